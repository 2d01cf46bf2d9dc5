"""The tests of the wire form are worth what they catch: each broken promise must be noticed by one of them."""

from __future__ import annotations

import inspect
import logging
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

import test_wire as tests
import wire_tools
from catching import Parts, first_catch, survivors
from dagrun.executors.wire import serving
from dagrun.testing import run_virtual
from simulation import replaced
from wire_mutants import MUTANTS

pytestmark = pytest.mark.rigs


class _Caught:
    """Stands for pytest's `caplog`."""

    text = ""

    def set_level(self, level: int) -> None:
        pass


async def _other_version() -> None:
    with pytest.MonkeyPatch.context() as patches:
        await tests.test_another_version_of_a_tool_is_refused_before_anything_happens({"version": "2"}, patches)


async def _large_files() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await tests.test_files_that_are_too_large_to_travel_are_refused(Path(folder))


Look = Callable[[], Awaitable[None]]
IN_VIRTUAL_TIME: Final[tuple[Look, ...]] = (
    tests.test_reports_arrive_in_order_while_the_call_runs,
    tests.test_a_failure_says_where_it_happened,
    tests.test_a_call_that_is_told_to_stop_may_clean_up,
    tests.test_a_stop_that_overtakes_its_call_is_kept_for_it,
    tests.test_a_stop_that_comes_after_the_end_is_not_kept,
    tests.test_a_request_that_comes_twice_is_carried_out_once,
    partial(tests.test_a_secret_is_in_the_request_and_nowhere_else, _Caught()),  # type: ignore[arg-type]
    tests.test_a_request_that_cannot_be_read_does_not_show_its_secrets,
    _other_version,
    tests.test_no_one_but_a_parent_sends_functions,
    tests.test_messages_over_a_stream_come_whole,
)
IN_REAL_TIME: Final[tuple[Look, ...]] = (tests.test_nothing_is_reported_after_the_end, _large_files)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Broken runs complain a lot."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def looks(parts: Parts) -> Iterator[str]:
    """The tests of the wire form, with some parts replaced."""
    for look in (*IN_VIRTUAL_TIME, *IN_REAL_TIME):
        wire_tools.done.clear()
        serving._load_tool.cache_clear()
        with replaced(parts):
            try:
                if look in IN_REAL_TIME:
                    anyio.run(_in_time, look, 20)
                else:
                    run_virtual(partial(_in_time, look, 1000), backend="trio")
            except BaseException as error:  # noqa: BLE001  (whatever a broken part lets out)
                name = inspect.unwrap(look.func if isinstance(look, partial) else look).__name__
                yield f"{name}: {type(error).__name__}"
    serving._load_tool.cache_clear()


async def _in_time(look: Callable[[], Awaitable[Any]], seconds: float) -> None:
    with anyio.fail_after(seconds):
        await look()


def test_the_real_parts_pass() -> None:
    """Otherwise that a mutant is caught says nothing."""
    assert first_catch((looks,), {}) is None


@pytest.mark.rigs
@pytest.mark.filterwarnings("ignore")
def test_every_broken_promise_is_noticed() -> None:
    """A bug of each of these kinds cannot come back unnoticed."""
    assert len(MUTANTS) >= 15
    assert not survivors((looks,), MUTANTS)
