"""What the rows of the tables in PostgreSQL say: who holds a run, where its records end, what letters lie there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from dagrun.errors import RunHeld
from dagrun.journal.hash_chain import Chain, ChainFault
from dagrun.journal.lease import Holding, Owner, decode, held_text, this_process
from dagrun.journal.postgres.statements import Sql
from dagrun.model.journal import Letter, Line

if TYPE_CHECKING:
    from asyncpg import Connection, Record

Ask = Callable[[Callable[["Connection"], Awaitable[Any]]], Awaitable[Any]]


class LetterRows:
    """The letters of a run, in the database.

    Args:
        ask: Does something with a connection, in the loop beside.
        sql: The statements.
        number: Of the row of the run.
    """

    def __init__(self, ask: Ask, sql: Sql, number: int) -> None:
        self._ask = ask
        self._sql = sql
        self._number = number

    async def fetch(self, seen: Sequence[str]) -> list[Letter]:
        """The oldest letters but those that were *seen*."""
        rows = await self._ask(lambda connection: connection.fetch(self._sql.letters, self._number, seen))
        return [Letter(row["id"], row["text"]) for row in rows]

    async def discard(self, letter: str) -> None:
        """Throw a letter away."""
        await self._ask(lambda connection: connection.execute(self._sql.discard, self._number, letter))


def as_bytes(text: object) -> object:
    """A text as it was written, if it is one."""
    return text.encode() if isinstance(text, str) else text


def fault_of_end(run_id: str, lines: Sequence[Line], seq: int, digest: str) -> ChainFault | None:
    """Compare the good records of a run with what its row says of the last one."""
    if len(lines) < seq:
        return ChainFault(len(lines) + 1, f"the records end at {len(lines)}, and {seq} were written: the last are lost")
    if len(lines) > seq:
        return ChainFault(
            seq + 1, f"{seq} records were written, and there are {len(lines)}: somebody else has added some"
        )
    if digest != (lines[-1].digest if lines else Chain(run_id).digest):
        return ChainFault(seq, "the last record is not the one that the row of the run knows")
    return None


def _owner(row: Record) -> Owner | None:
    return decode(row["owner"])


def owner_text(row: Record) -> str:
    """Who holds a run, in words; empty if nobody does."""
    owner = _owner(row)
    return str(owner) if owner is not None else row["owner"] and "somebody unknown"


def is_held(row: Record) -> bool:
    """Whether the run could not be opened now."""
    return bool(row["is_running"]) and not _is_dead(_owner(row))


def _is_dead(owner: Owner | None) -> bool:
    """Whether the process is known to have ended. Machines can have the same name: only its own start is sure."""
    return owner is not None and bool(owner.boot) and owner.boot == this_process().boot and owner.is_dead()


def held_error(row: Record) -> RunHeld:
    """The error for a run that somebody holds."""
    return RunHeld(held_text(row["run_id"], Holding(row["token"], _owner(row), row["expires"])))
