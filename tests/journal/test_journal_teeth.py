"""The suite of journals is worth what it catches: every broken one of `journal_mutants.py` and
`queue_mutants.py`, and not the real one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import anyio
import pytest

from dagrun import Durability, MemoryJournal
from dagrun.extend import Journal
from dagrun.testing import virtual_backend
from dagrun.testing.journal_suite import JournalSuite
from journal_mutants import MUTANTS as BROKEN_JOURNALS
from queue_mutants import MUTANTS as BROKEN_QUEUES

pytestmark = pytest.mark.rigs

MUTANTS = {**BROKEN_JOURNALS, **BROKEN_QUEUES}


class Suite(JournalSuite):
    """The suite on one kind of journal, outside of pytest."""

    survives_reopen = False
    durability = Durability.MEMORY
    big = 100_000

    def __init__(self, kind: type[MemoryJournal]) -> None:
        self._kind = kind

    async def make_journal(self) -> Journal:
        return self._kind()

    def cases(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Every test, once for each of its parameters."""
        for name, test in inspect.getmembers(self, inspect.iscoroutinefunction):
            if not name.startswith("test_"):
                continue
            marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
            for value in marks[0].args[1] if marks else [None]:
                yield f"{name}({value!r:.30})", partial(test, value) if marks else test

    def failures(self) -> Iterator[str]:
        """The tests that fail."""
        backend, options = virtual_backend()
        for name, case in self.cases():
            try:
                anyio.run(case, backend=backend, backend_options=options)
            except pytest.skip.Exception:
                continue
            except BaseException as error:  # noqa: BLE001  (pytest's own failures are no `Exception`)
                yield f"{name}: {type(error).__name__}: {error}"


def test_the_journal_in_memory_is_whole() -> None:
    """Else the mutants would prove nothing."""
    assert list(Suite(MemoryJournal).failures()) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_the_suite_notices(name: str) -> None:
    """At least one of its tests fails, and the suite never hangs on a broken store."""
    caught = next(Suite(MUTANTS[name]).failures(), None)
    print(f"{name}: {caught}")
    assert caught is not None, f"no test of the suite notices {name}: {MUTANTS[name].__doc__}"


def test_there_are_enough_mutants_and_tests() -> None:
    """What the suite promises in its name, and the list of what it must catch, do not shrink by accident."""
    assert len(MUTANTS) >= 60
    assert len({name.partition("(")[0] for name, _ in Suite(MemoryJournal).cases()}) >= 60
