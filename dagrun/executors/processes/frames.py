"""The messages between a worker process and its executor: a kind, a length, and JSON of that length."""

from __future__ import annotations

import struct
from typing import Final

HEADER: Final = struct.Struct(">cQ")

# To the worker: the tool with the facts of the call, and then the arguments.
CALL: Final = b"c"
ARGUMENTS: Final = b"a"

# From the worker: the function is about to be called; a report of the tool; at the end, the value, or the traceback of
# an exception as text and then the failure.
BEGUN: Final = b"b"
REPORT: Final = b"r"
VALUE: Final = b"v"
TRACEBACK: Final = b"t"
FAILURE: Final = b"f"

# The most bytes of a frame from a worker, except a value. A failure may hold an answer of a model: 64 KiB, escaped.
MAX_NOTE: Final = 1 << 19
MAX_TRACEBACK: Final = 1 << 16


def frame(kind: bytes, data: bytes = b"") -> bytes:
    """Put *data* into a frame."""
    return HEADER.pack(kind, len(data)) + data
