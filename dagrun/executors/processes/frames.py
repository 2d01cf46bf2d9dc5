"""Frames: what a worker process and its executor send each other: a kind, a length, and so many bytes of JSON."""

from __future__ import annotations

import struct
from typing import Final

HEADER: Final = struct.Struct(">cQ")

# To the worker: what to call and for whom, then the arguments.
CALL: Final = b"c"
ARGUMENTS: Final = b"a"

# From the worker: the function is entered from here on; a report of it; and in the end one of the last two.
BEGUN: Final = b"b"
REPORT: Final = b"r"
VALUE: Final = b"v"
FAILURE: Final = b"f"

# The most bytes of any frame from a worker but a value.
MAX_NOTE: Final = 1 << 16


def frame(kind: bytes, data: bytes = b"") -> bytes:
    """Put *data* into a frame."""
    return HEADER.pack(kind, len(data)) + data
