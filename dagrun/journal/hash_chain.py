"""The chain of hashes through the records of a run: none can be changed, moved or left out without being noticed.

The digest of a record is that of all records up to it, so that many can be added at the price of one.

Whoever can write the whole file can also compute a new chain; the anchor beside it (`dagrun.journal.anchor`) is what
tells a chain that was cut, and one that was made anew by somebody who has overlooked it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dagrun.model.journal import Line


@dataclass(frozen=True, slots=True)
class ChainFault:
    """What is wrong with the records of a run.

    Attributes:
        seq: The first record that cannot be trusted; 0 if it cannot be said.
        reason: In a sentence.
    """

    seq: int
    reason: str


END: Final = b"\x1e"  # of a record, where several stand one after another: no JSON text has it (RFC 7464)


class Chain:
    """The hash over the records of a run, from the first to the last: SHA-256 of the name of the run and of every text.

    The name makes records fit no other run.

    Args:
        run_id: The run.
        texts: Its records.

    Attributes:
        seq: The number of the last record; 0 before the first.
    """

    __slots__ = ("_hash", "seq")

    def __init__(self, run_id: str, texts: Iterable[bytes] = ()) -> None:
        self.seq = 0
        self._hash = sha256(b"dagrun journal\0%b%b" % (run_id.encode(), END))
        for text in texts:
            self.add(text)

    @property
    def digest(self) -> str:
        """Of the last record and all before it, in hex."""
        return self._hash.hexdigest()

    def add(self, text: bytes, count: int = 1) -> None:
        """Go on with *text*: a record, or *count* of them, with `END` between them."""
        self._hash.update(text + END)
        self.seq += count

    def copy(self) -> Chain:
        """The same, to go on by itself."""
        other = object.__new__(Chain)
        other.seq, other._hash = self.seq, self._hash.copy()
        return other


def chained(run_id: str, texts: Iterable[bytes]) -> list[Line]:
    """Make the lines of a run out of its texts, from the first on."""
    chain = Chain(run_id)
    return [_line(chain, text) for text in texts]


def _line(chain: Chain, text: bytes) -> Line:
    chain.add(text)
    return Line(chain.seq, text, chain.digest)


def verify(run_id: str, rows: Iterable[tuple[object, object, object]]) -> tuple[list[Line], ChainFault | None]:
    """Check the records of a run, as a store gives them.

    Args:
        run_id: The run.
        rows: Of one record or several: the number of the first, their texts, with `END` between them, and the digest
            of the last, in hex. In the order of their numbers, and of any type, since they come out of a file that
            anybody may have changed.

    Returns:
        The records that are good, from the first on; and what is wrong with the next one, or `None`.
    """
    lines: list[Line] = []
    chain = Chain(run_id)
    for seq, text, stored in rows:
        expected = chain.seq + 1
        fault = _fault_of(expected, seq, text, stored)
        if fault is not None:
            return lines, ChainFault(expected, fault)
        assert isinstance(text, bytes)
        row = [_line(chain, one) for one in text.split(END)]
        if stored != chain.digest:
            which = f"record {expected}" if len(row) == 1 else f"one of records {expected} to {chain.seq}"
            return lines, ChainFault(expected, f"{which} was changed, or another one stands in its place")
        lines += row
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
