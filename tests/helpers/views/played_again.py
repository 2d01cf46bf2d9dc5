"""Recorded runs that are carried out again from their records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

import dagrun
from dagrun import Cassette, MemoryJournal
from dagrun.evaluate.cases.matching import differences
from dagrun.testing import run_virtual
from run_outline import outline_of


async def again(journal: MemoryJournal, run_id: str, tools: Any = None, **options: Any) -> list[str]:
    """Play a run from its record; return where what came of it differs, and what was not recorded."""
    past = await dagrun.replay(run_id, journal=journal)
    cassette = await Cassette.from_journal(run_id, journal=journal, tools=tools)
    with anyio.fail_after(1e6):
        result = await cassette.run(**options)
    return [*differences(outline_of(result._graph), outline_of(past.graph), "run"), *map(str, cassette.misses)]


def differs_again(kind: Callable[[MemoryJournal], Awaitable[object]], tools: Any = None) -> list[str]:
    """Record run "r" on a virtual clock, and carry it out again; return what `again` does."""

    async def main() -> list[str]:
        journal = MemoryJournal()
        await kind(journal)
        return await again(journal, "r", tools)

    return run_virtual(main)
