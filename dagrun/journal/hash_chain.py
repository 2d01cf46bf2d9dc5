"""The hash chain through the records of a run: it shows when a record was changed, moved or left out.

The digest of a record covers all records up to it, so many records can be added for the price of one digest.

A process that can write the whole file can also compute a new chain. The anchor beside the file
(`dagrun.journal.anchor`) shows a chain that was cut, and a new chain whose maker has overlooked the anchor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dagrun.kernel.model.journal import Line, StoredRow


@dataclass(frozen=True, slots=True)
class ChainFault:
    """A fault in the records of a run.

    Attributes:
        seq: Number of the first record that cannot be trusted; 0 if it is unknown.
        reason: The fault in a sentence.
    """

    seq: int
    reason: str


END: Final = b"\x1e"  # ends a record where several are in one text: no JSON text contains it (RFC 7464)


class Chain:
    """The running hash over the records of a run: SHA-256 of the run id and of every text.

    The run id is hashed so that records do not fit another run.

    Args:
        run_id: The run.
        texts: The first records of the run.

    Attributes:
        seq: Number of the last record; 0 before the first.
    """

    __slots__ = ("_hash", "seq")

    def __init__(self, run_id: str, texts: Iterable[bytes] = ()) -> None:
        self.seq = 0
        self._hash = sha256(b"dagrun journal\0%b%b" % (run_id.encode(), END))
        for text in texts:
            self.add(text)

    @property
    def digest(self) -> str:
        """The digest of all records so far, in hex."""
        return self._hash.hexdigest()

    def add(self, text: bytes, count: int = 1) -> None:
        """Add *text*: one record, or *count* records with `END` between them."""
        self._hash.update(text + END)
        self.seq += count

    def copy(self) -> Chain:
        """Return an independent copy."""
        other = object.__new__(Chain)
        other.seq, other._hash = self.seq, self._hash.copy()
        return other


def chained(run_id: str, texts: Iterable[bytes], chain: Chain | None = None) -> list[Line]:
    """Return the lines of a run from all its texts, or from the texts that come after *chain*."""
    chain = Chain(run_id) if chain is None else chain
    return [_line(chain, text) for text in texts]


def _line(chain: Chain, text: bytes) -> Line:
    chain.add(text)
    return Line(chain.seq, text, chain.digest)


def verify(run_id: str, rows: Iterable[StoredRow], chain: Chain | None = None) -> tuple[list[Line], ChainFault | None]:
    """Check the records of a run, as a store returns them.

    Args:
        run_id: The run.
        rows: One row for one record or several: the number of the first record, the texts with `END` between them, and
            the digest of the last record, in hex. In the order of their numbers. The values may have any type, as
            anybody may have changed the file.
        chain: The chain up to the record before them, which goes on with the good ones; `None` for the first record.

    Returns:
        The good records, in order; and the fault of the next record, or `None`.
    """
    lines: list[Line] = []
    chain = Chain(run_id) if chain is None else chain
    for seq, text, stored in rows:
        expected = chain.seq + 1
        fault = _fault_of(expected, seq, text, stored)
        if fault is not None:
            return lines, ChainFault(expected, fault)
        assert isinstance(text, bytes)
        row = [_line(chain, one) for one in text.split(END)]
        if stored != chain.digest:
            which = f"record {expected}" if len(row) == 1 else f"one of records {expected} to {chain.seq}"
            return lines, ChainFault(expected, f"{which} was changed or replaced")
        lines += row
    return lines, None


def _fault_of(expected: int, seq: object, text: object, stored: object) -> str | None:
    if type(seq) is not int:
        return f"instead of record {expected}, there is one without a number"
    if seq > expected:
        return f"record {expected} is missing; the next one is record {seq}"
    if seq < expected:
        return f"record {seq} occurs twice, or out of order"
    if type(text) is not bytes or type(stored) is not str:
        return f"record {expected} is not text"
    return None
