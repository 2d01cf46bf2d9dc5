"""Frames: data frames, tables and arrays, which objects in memory may be and which a file can hold.

1. A return type that is one of the classes below, exactly, needs no ``Object[…]``. What a tool returns is passed on in
   memory like any object.
2. Where the run has a journal, a frame is also kept as a file in the folder of the run: as an Arrow file without
   compression, an array as ``.npy``. A resumed run reads it, and does not call the tool again.
3. Only what comes back as it was is kept so. A frame with Python objects, nested columns or the like stays in memory.
   Nothing is ever pickled.

No library is imported because of an annotation: the classes are known by their names, and a library is imported when a
frame of it is written or read.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ARROW: Final = "application/vnd.apache.arrow.file"
NPY: Final = "application/x-npy"


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


def is_frame_class(kind: Any) -> bool:
    """Whether a type is one of the classes of frames; arrays of a certain type are arrays."""
    while hasattr(kind, "__value__"):  # a type with a name of its own, as `NDArray` is in numpy 2.5
        kind = kind.__value__
    return isinstance(kind := typing.get_origin(kind) or kind, type) and _name_of(kind) in CODECS


def codec_of_frame(value: object) -> FrameCodec | None:
    """Return the codec of a value; `None` if it is no frame. A subclass is none: it would come back as its base."""
    return CODECS.get(_name_of(type(value)))


def _name_of(kind: type) -> str:
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


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
    "pandas.DataFrame": FrameCodec(ARROW, _write_pandas, _read_pandas),
    "polars.DataFrame": FrameCodec(ARROW, _write_polars, _read_polars),
    "pyarrow.Table": FrameCodec(ARROW, _write_arrow, _read_arrow),
    "numpy.ndarray": FrameCodec(NPY, _write_numpy, _read_numpy),
}
