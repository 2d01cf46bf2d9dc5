"""`load_csv`: the bytes of a CSV file as a table."""

from __future__ import annotations

import codecs
import csv
import io
import zlib
from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field

from dagrun import ToolContext, ToolError, tool
from dagrun_tools.facts import Table
from dagrun_tools.files.data_files import SAMPLES, read_bytes
from dagrun_tools.tables.cells import is_missing
from dagrun_tools.tables.rows import Row, save_rows

MAX_BYTES: Final = 128 << 20  # of text, after decompression, because the rows are held in memory
_GZIP: Final = b"\x1f\x8b"
_DELIMITERS: Final = ",;\t|"
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # it begins like the mark of UTF-16, so it is tried first
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@tool(effect="read", timeout=120)
def load_csv(
    context: ToolContext,
    file_path: Annotated[str, Field(alias="filePath", min_length=1)],
    delimiter: Annotated[str | None, Field(max_length=1)] = None,
    encoding: Annotated[str | None, Field(max_length=40)] = None,
) -> Table:
    """Read a CSV file, compressed with gzip or not, into a table; encoding and delimiter are detected.

    Args:
        context: Of the call.
        file_path: A file in the working directory, or ``sample:texas_housing_sales``, a data set that comes along.
        delimiter: The character between the cells, if it is not to be detected.
        encoding: Of the file, such as ``utf-8`` or ``cp1252``, if it is not to be detected.

    Returns:
        The table: cells as they are written, and how many of each column are missing.

    Raises:
        ToolError: There is no such file, or it is no text, no table, or too large.
    """
    data = read_bytes(file_path, MAX_BYTES)
    text, used_encoding = _decode(_unzip(data, file_path) if data[:2] == _GZIP else data, encoding, file_path)
    separator = delimiter or _delimiter(text)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=False)
    try:
        header = _header(next(lines, []), file_path)
        cells = list(_cells(context, lines, len(header)))
    except csv.Error as error:
        raise ToolError(f"{file_path}, line {lines.line_num}: {error}") from error
    rows: list[Row] = [dict(zip(header, row, strict=False)) for row in cells]
    lost = sum(len(row) > len(header) for row in cells)
    notes = [f"{lost} rows have more cells than the header; what is beyond it was left out."] if lost else []
    facts = {
        "columns": header,
        "missing": {name: count for name in header if (count := sum(is_missing(row[name]) for row in rows))},
        "source": file_path.removeprefix(SAMPLES),
        "encoding": used_encoding,
        "delimiter": separator,
        "notes": notes,
    }
    return save_rows(context, rows, facts)


def _unzip(data: bytes, name: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    size = 0
    try:
        while data:
            parts.append(unpacker.decompress(data, MAX_BYTES + 1 - size))  # stops a bomb at the ceiling
            size += len(parts[-1])
            if size > MAX_BYTES:
                raise ToolError(f"{name} has over {MAX_BYTES:,} bytes when it is unpacked, which is the ceiling")
            data = unpacker.unconsumed_tail
            if unpacker.eof:  # another member may follow
                data, unpacker = unpacker.unused_data, zlib.decompressobj(wbits=31)
    except zlib.error as error:
        raise ToolError(f"{name} is broken: {error}") from error
    return b"".join(parts)


def _decode(data: bytes, encoding: str | None, name: str) -> tuple[str, str]:
    candidates = [encoding] if encoding else _encodings(data, name)
    for candidate in candidates:
        try:
            return data.decode(candidate), candidate
        except UnicodeDecodeError:
            continue
        except LookupError as error:
            raise ToolError(f"{candidate!r} is not an encoding") from error
    raise ToolError(f"{name} is not text in {' or '.join(candidates)}; name its encoding")


def _encodings(data: bytes, name: str) -> list[str]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return [encoding]
    if b"\0" in data[:8192]:
        raise ToolError(f"{name} is not text: it holds zero bytes")
    return ["utf-8", "cp1252", "latin-1"]


def _delimiter(text: str) -> str:
    """Return the delimiter that cuts the first lines most evenly, and into the most cells."""
    head = text[:65_536].splitlines()[:50]
    return max(_DELIMITERS, key=lambda candidate: _evenness(head, candidate))


def _evenness(lines: list[str], delimiter: str) -> tuple[float, int]:
    try:
        widths = [len(row) for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return 0.0, 0
    if not widths or widths[0] < 2:
        return 0.0, 0
    return sum(width == widths[0] for width in widths) / len(widths), widths[0]


def _header(cells: list[str], name: str) -> list[str]:
    if not any(cell.strip() for cell in cells):
        raise ToolError(f"{name} is empty: its first line should name the columns")
    header: list[str] = []
    for number, cell in enumerate(cells, 1):
        wanted = " ".join(cell.split())[:200] or f"column_{number}"
        taken = sum(known == wanted or known.startswith(f"{wanted}_") for known in header)
        header.append(f"{wanted}_{taken + 1}" if wanted in header else wanted)
    return header


def _cells(context: ToolContext, lines: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    for number, row in enumerate(lines):
        if number % 10_000 == 0:
            context.check_cancelled()
        if row:
            yield row + [""] * (width - len(row))
