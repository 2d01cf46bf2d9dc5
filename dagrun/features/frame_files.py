"""Frames in files of a run: data frames, tables and arrays, which are also objects in memory.

1. Where the run has a journal, a frame that a tool returns is kept as a file in the folder of the run: as an Arrow file
   without compression, an array as ``.npy``. A resumed run reads it, and does not call the tool again.
2. Only what comes back as it was is kept so. A frame with Python objects, nested columns or the like stays in memory:
   the run goes on with it, and a resumed run calls the tool again. Nothing is ever pickled.
3. Files are written in a thread, before the end of the attempt is recorded.

A library is imported when a frame of it is written or read. Worker processes take and return frames in such files, too.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json
from typing_extensions import override

from dagrun.errors import ValueRefused, shorten
from dagrun.kernel.model.contracts.held_objects import FILE, NOT_RECORDED, OBJECT_KEY, HeldObjects, owner_of, tokens_in
from dagrun.kernel.model.contracts.objects import frame_name
from dagrun.kernel.model.executor import Encoded
from dagrun.kernel.model.secrets import NO_SECRETS, Secrets
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Artifact, ArtifactStore, Stored, Unavailable, encode, to_json
from dagrun.kernel.runtime.run_features import FrameFiles

_LOG: Final = logging.getLogger("dagrun.run")
_MORE: Final = 2_000  # bytes of JSON for one artifact
_FILE_KEY: Final = f'"{FILE}":'.encode()

_ARROW: Final = "application/vnd.apache.arrow.file"
_NPY: Final = "application/x-npy"


class FramesOfRun(FrameFiles):
    """Keeps the frames of one run in files.

    Args:
        artifacts: The store of the files.
        secrets: Must be in no file.
    """

    def __init__(self, artifacts: ArtifactStore, secrets: Secrets) -> None:
        self._artifacts = artifacts
        self._secrets = secrets

    @override
    def opened(self, stored: Stored) -> Stored:
        if type(stored) is not bytes or _FILE_KEY not in stored:
            return stored
        tokens = list(tokens_in(from_json(stored)))
        if not tokens or not all(FILE in token for token in tokens):
            return stored
        try:
            for token in tokens:
                _codec_named(token[OBJECT_KEY])
                self._artifacts.path(Artifact.model_validate(token[FILE]))
        except (LookupError, OSError, ValueError):
            names = dict.fromkeys(str(token[OBJECT_KEY]) for token in tokens)
            return Unavailable(f"{NOT_RECORDED}{', '.join(names)}")
        return HeldObjects(stored, FramesInFiles(tokens, self._artifacts), is_filed=True)

    @override
    async def filed(self, call: Coroutine[Any, Any, object], tool: AnyTool, name: str) -> object:
        result = await call
        import anyio.to_thread  # here: worker processes, which import this file, have no loop

        return await anyio.to_thread.run_sync(self._hold, tool, result, name)

    def _hold(self, tool: AnyTool, result: object, name: str) -> _FiledOutput:
        hold = tool.output.hold
        assert hold is not None
        write = partial(write_frame, artifacts=self._artifacts, secrets=self._secrets)
        try:
            return _FiledOutput(hold(result, name, tool.output_limit, write))
        except ValueRefused as error:
            return _FiledOutput(None, error)


class _FiledOutput(Encoded):
    """An output with its frames already in files: its stored form, or the error."""

    __slots__ = ("_error", "_stored")

    def __init__(self, stored: Stored, error: ValueRefused | None = None) -> None:
        super().__init__(b"")
        self._stored = stored
        self._error = error

    @override
    def store(self, limit: int) -> Stored:
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


def _codec_named(name: str) -> FrameCodec:
    """Return the codec for the name of a type in a token.

    Raises:
        LookupError: There is none.
    """
    return CODECS[f"{name.partition('.')[0]}.{name.rpartition('.')[2]}"]


# Codecs ------------------------------------------------------------------------------------------------------------


class NotKept(Exception):
    """A frame cannot be written without a loss."""


@dataclass(frozen=True, slots=True)
class FrameCodec:
    """How the frames of one class are written to a file, and read.

    Attributes:
        media_type: Of the file.
        write: Writes a frame to a new file; raises `NotKept`.
        read: Reads it.
    """

    media_type: str
    write: Callable[[Any, Path], None]
    read: Callable[[Path], Any]


def codec_of_frame(value: object) -> FrameCodec | None:
    """Return the codec of a value; `None` if it is no frame. A subclass is none: it would come back as its base."""
    return CODECS.get(frame_name(type(value)))


def _write_pandas(frame: Any, path: Path) -> None:
    import pyarrow

    try:
        table = pyarrow.Table.from_pandas(frame)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise NotKept(str(error)) from error
    if any(pyarrow.types.is_nested(field.type) for field in table.schema):
        raise NotKept("a column of lists comes back as one of arrays")
    empty = table.slice(0, 0).to_pandas()
    if not (empty.dtypes.equals(frame.dtypes) and empty.index.dtype == frame.index.dtype and not frame.attrs):
        raise NotKept("its columns come back with other types")
    _write_arrow(table, path)


def _read_pandas(path: Path) -> Any:
    return _read_arrow(path).to_pandas()


def _write_arrow(table: Any, path: Path) -> None:
    import pyarrow

    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _read_arrow(path: Path) -> Any:
    import pyarrow

    with pyarrow.OSFile(str(path), "rb") as file:
        return pyarrow.ipc.open_file(file).read_all()


def _write_polars(frame: Any, path: Path) -> None:
    import polars

    if any(dtype == polars.Object for dtype in frame.dtypes):
        raise NotKept("a column holds Python objects")
    frame.write_ipc(path, compression="uncompressed")


def _read_polars(path: Path) -> Any:
    import polars

    return polars.read_ipc(path)


def _write_numpy(array: Any, path: Path) -> None:
    import numpy

    if array.dtype.hasobject:
        raise NotKept("it holds Python objects")
    with path.open("wb") as file:
        numpy.save(file, array, allow_pickle=False)


def _read_numpy(path: Path) -> Any:
    import numpy

    return numpy.load(path, allow_pickle=False)


CODECS: Final[Mapping[str, FrameCodec]] = {
    "pandas.DataFrame": FrameCodec(_ARROW, _write_pandas, _read_pandas),
    "polars.DataFrame": FrameCodec(_ARROW, _write_polars, _read_polars),
    "pyarrow.Table": FrameCodec(_ARROW, _write_arrow, _read_arrow),
    "numpy.ndarray": FrameCodec(_NPY, _write_numpy, _read_numpy),
}
