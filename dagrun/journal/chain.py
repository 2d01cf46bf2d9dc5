"""The chain of hashes through the records of a run: none can be changed, moved or left out without being noticed.

Whoever can write the whole file can also compute a new chain; the anchor beside it (`dagrun.journal.anchor`) is what
tells a chain that was cut, and one that was made anew by somebody who has overlooked it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from dagrun.model.journal import Line

DIGEST_SIZE = 32  # bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with the records of a run.

    Attributes:
        seq: The first record that cannot be trusted; 0 if it cannot be said.
        reason: In a sentence.
    """

    seq: int
    reason: str


def seed(run_id: str) -> bytes:
    """The digest that stands before the first record of a run: its records fit no other run."""
    return sha256(b"dagrun journal\0" + run_id.encode()).digest()


def link(before: bytes, seq: int, text: bytes) -> bytes:
    """The digest of a record and of all before it.

    Args:
        before: The digest of the record before, 32 bytes; `seed` for the first.
        seq: The number of the record, from 1.
        text: What it says.
    """
    digest = sha256(before + seq.to_bytes(8, "big"))
    digest.update(text)
    return digest.digest()


def chained(run_id: str, texts: Iterable[bytes]) -> list[Line]:
    """Make the lines of a run out of its texts, from the first on."""
    lines: list[Line] = []
    digest = seed(run_id)
    for seq, text in enumerate(texts, 1):
        digest = link(digest, seq, text)
        lines.append(Line(seq, text, digest.hex()))
    return lines


def verify(run_id: str, rows: Iterable[tuple[object, object, object]]) -> tuple[list[Line], Fault | None]:
    """Check the records of a run, as a store gives them.

    Args:
        run_id: The run.
        rows: Number, text and digest (in hex) of each, in the order of their numbers; of any type, since they come
            out of a file that anybody may have changed.

    Returns:
        The records that are good, from the first on; and what is wrong with the next one, or `None`.
    """
    lines: list[Line] = []
    digest = seed(run_id)
    for seq, text, stored in rows:
        expected = len(lines) + 1
        fault = _fault_of(expected, seq, text, stored)
        if fault is not None:
            return lines, Fault(expected, fault)
        assert isinstance(text, bytes)
        digest = link(digest, expected, text)
        written = digest.hex()
        if stored != written:
            return lines, Fault(expected, f"record {expected} was changed, or another one stands in its place")
        lines.append(Line(expected, text, written))
    return lines, None


def _fault_of(expected: int, seq: object, text: object, stored: object) -> str | None:
    if type(seq) is not int:
        return f"where record {expected} should be stands one without a number"
    if seq > expected:
        return f"record {expected} is missing; the next one is record {seq}"
    if seq < expected:
        return f"record {seq} stands twice, or out of its order"
    if type(text) is not bytes or type(stored) is not str:
        return f"record {expected} is not text"
    return None
