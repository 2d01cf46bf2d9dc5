"""The artifact folder of a run: files named by the hash of their content."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

from dagrun.kernel.model.value import Artifact

_CHUNK = 1 << 20


class ArtifactFolder:
    """Keeps artifacts in a folder.

    Args:
        folder: The folder; made when it is first needed. `None` for a temporary one, which is deleted with this object.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """The folder of the files; it exists from now on."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="dagrun-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self._folder

    def save(
        self, data: bytes | str | Path, *, media_type: str = "application/octet-stream", name: str = ""
    ) -> Artifact:
        """Keep *data*, and return its artifact. Equal data is kept once."""
        handle, draft = tempfile.mkstemp(dir=self.folder, prefix=".draft-")
        digest = hashlib.sha256()
        size = 0
        try:
            with os.fdopen(handle, "wb") as file:
                for chunk in _chunks(data):
                    digest.update(chunk)
                    size += file.write(chunk)
            os.chmod(draft, 0o400)
            os.replace(draft, self.folder / digest.hexdigest())  # readers see the whole file or none
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
        return Artifact(sha256=digest.hexdigest(), media_type=media_type, name=name, size=size)

    def path(self, artifact: Artifact) -> Path:
        """Return the file of *artifact*.

        Raises:
            FileNotFoundError: The run has no such artifact.
        """
        file = self.folder / artifact.sha256
        if not file.is_file():
            raise FileNotFoundError(f"the run has no artifact {artifact.sha256[:12]}… ({artifact.name or 'unnamed'})")
        return file


def _chunks(data: bytes | str | Path) -> Iterable[bytes]:
    if isinstance(data, Path):
        return _file_chunks(data)
    return [data.encode() if isinstance(data, str) else data]


def _file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
