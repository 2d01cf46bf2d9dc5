"""Files of a run: artifacts, named by the hash of their content, and frames.

Frames are written when a tool has returned them, and read when a run is resumed. Their files are written in a thread,
before the end of the attempt is recorded. What cannot be kept in a file stays in memory alone: the run goes on with it,
and a resumed run calls the tool again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from dagrun.errors import ValueRefused, shorten
from dagrun.kernel.model.contracts.frames import CODECS, FrameCodec, codec_of_frame
from dagrun.kernel.model.contracts.held_objects import FILE, NOT_RECORDED, OBJECT_KEY, HeldObjects, owner_of, tokens_in
from dagrun.kernel.model.secrets import NO_SECRETS, Secrets
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Artifact, ArtifactStore, Stored, Unavailable, encode, to_json

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


_LOG: Final = logging.getLogger("dagrun.run")
_MORE: Final = 2_000  # bytes of JSON for one artifact
_FILE_KEY: Final = f'"{FILE}":'.encode()


class FiledOutput:
    """An output with its frames already in files: its stored form, or the error."""

    __slots__ = ("_error", "_stored")

    def __init__(self, stored: Stored = None, error: ValueRefused | None = None) -> None:
        self._stored = stored
        self._error = error

    def unwrap(self) -> Stored:
        """Return the stored value.

        Raises:
            ValueRefused: The output does not fit its tool.
        """
        if self._error is not None:
            raise self._error
        return self._stored


class FramesInFiles(Mapping[str, object]):
    """Objects that are read from their files when they are first needed.

    Args:
        tokens: The tokens, each of which names a file.
        artifacts: The store of the files.
    """

    def __init__(self, tokens: list[dict[str, Any]], artifacts: ArtifactStore) -> None:
        self._tokens = {owner_of(token): token for token in tokens}
        self._artifacts = artifacts
        self._read: dict[str, object] = {}

    def __getitem__(self, owner: str) -> object:
        if owner not in self._read:
            self._read[owner] = self._open(self._tokens[owner])
        return self._read[owner]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def __contains__(self, owner: object) -> bool:
        return owner in self._tokens

    def _open(self, token: dict[str, Any]) -> object:
        name = token[OBJECT_KEY]
        try:
            codec = _codec_named(name)
            return codec.read(self._artifacts.path(Artifact.model_validate(token[FILE])))
        except Exception as error:  # whatever a library raises about a file
            reason = shorten(f"{type(error).__name__}: {error}")
            raise ValueRefused(f"the file of {name} cannot be read: {reason}") from error


def write_frame(frame: object, artifacts: ArtifactStore, secrets: Secrets = NO_SECRETS) -> Mapping[str, Any] | None:
    """Write a frame to a file of the run; return its artifact as JSON, or `None` if it cannot be kept in a file."""
    codec = codec_of_frame(frame)
    if codec is None:
        return None
    try:
        with tempfile.TemporaryDirectory(prefix="dagrun-frame-") as folder:
            path = Path(folder, "frame")
            codec.write(frame, path)
            if secrets.are_hidden and secrets.found_in(path.read_bytes().decode("latin-1")):
                return None  # a secret is in no file
            return artifacts.save(path, media_type=codec.media_type, name=type(frame).__name__).model_dump()
    except Exception as error:  # noqa: BLE001  (no library, no room, or the library refuses what it cannot write)
        _LOG.debug("a frame stays in memory: %s: %s", type(error).__name__, error)
        return None


def opened(stored: Stored, artifacts: ArtifactStore) -> Stored:
    """Return a stored value with its frames, if it names files of frames; `Unavailable` if one of them is gone."""
    if type(stored) is not bytes or _FILE_KEY not in stored:
        return stored
    tokens = list(tokens_in(from_json(stored)))
    if not tokens or not all(FILE in token for token in tokens):
        return stored
    try:
        for token in tokens:
            _codec_named(token[OBJECT_KEY])
            artifacts.path(Artifact.model_validate(token[FILE]))
    except (LookupError, OSError, ValueError):
        names = dict.fromkeys(str(token[OBJECT_KEY]) for token in tokens)
        return Unavailable(f"{NOT_RECORDED}{', '.join(names)}")
    return HeldObjects(stored, FramesInFiles(tokens, artifacts), is_filed=True)


def with_files(data: bytes, objects: Mapping[str, object], artifacts: ArtifactStore) -> bytes:
    """Return arguments with a file name in the token of each frame, for another process.

    Raises:
        ValueRefused: A frame cannot be written to a file.
    """
    if not objects:
        return data
    arguments = from_json(data)
    for token in tokens_in(arguments):
        frame = objects.get(owner_of(token))
        if frame is not None and FILE not in token:
            token[FILE] = write_frame(frame, artifacts)
            if token[FILE] is None:
                raise ValueRefused(
                    f"a {token[OBJECT_KEY]} cannot be written to a file as it is, so it cannot get to a worker process"
                )
    return to_json(encode(arguments, len(data) + _MORE * len(objects)))


def held_in_files(tool: AnyTool, result: object, call: str, artifacts: ArtifactStore, secrets: Secrets) -> FiledOutput:
    """Store the output of a tool, with its frames in files.

    Args:
        tool: The tool.
        result: Its return value.
        call: The call, for the tokens.
        artifacts: Where the files are kept.
        secrets: Must be in no file.
    """
    hold = tool.output.hold
    assert hold is not None
    try:
        return FiledOutput(hold(result, call, tool.output_limit, lambda frame: write_frame(frame, artifacts, secrets)))
    except ValueRefused as error:
        return FiledOutput(None, error)


def _codec_named(name: str) -> FrameCodec:
    """Return the codec for the name of a type in a token.

    Raises:
        LookupError: There is none.
    """
    return CODECS[f"{name.partition('.')[0]}.{name.rpartition('.')[2]}"]
