"""The tests of hedging are worth what they catch: each way to hedge wrongly must be noticed by one of them."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

import anyio
import pytest

import test_hedge_ends as ends
import test_hedge_limits as limits
import test_hedge_people as people
import test_hedging as hedging
from catching import Parts, first_catch, survivors
from dagrun.testing import run_virtual
from hedge_mutants import MUTANTS
from simulation import replaced, seeded_schedule

pytestmark = pytest.mark.rigs

FOR_EVER: Final = 10_000.0  # virtual seconds
LOOKS: Final[tuple[Callable[[], Awaitable[None]], ...]] = (
    hedging.test_the_second_call_wins_if_it_is_faster,
    hedging.test_what_depends_on_it_starts_at_once,
    hedging.test_the_first_call_wins_after_all,
    hedging.test_the_second_call_decides_if_the_first_one_fails,
    hedging.test_the_first_call_goes_on_if_the_second_one_fails,
    partial(hedging.test_what_changes_the_world_never_is, "idempotent", ()),
    hedging.test_a_slow_step_beside_a_longer_branch_gets_none,
    hedging.test_what_comes_after_it_counts,
    people.test_a_second_call_asks_nobody,
    people.test_a_call_that_waits_for_a_person_gets_none,
    partial(limits.test_where_there_is_no_place_there_is_no_second_call, {"max_running": 1}),
    limits.test_the_loser_has_its_place_until_it_has_unwound,
    partial(limits.test_a_second_call_must_fit_under_every_ceiling, {"max_tokens": 199}, False),
    limits.test_both_calls_are_charged_what_they_have_reported,
    partial(limits.test_where_everything_has_become_slow_few_get_a_second_call, 0.1, 9),
    partial(ends.test_both_calls_are_told_at_once, "the step is cancelled"),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Broken runs complain a lot."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def looks(parts: Parts) -> Iterator[str]:
    """The tests of hedging, with some parts replaced."""
    for look in LOOKS:
        with replaced(parts), seeded_schedule(0):
            try:
                run_virtual(partial(_in_time, look), backend="trio")
            except BaseException as error:  # noqa: BLE001  (whatever a broken part lets out)
                name = inspect.unwrap(look.func if isinstance(look, partial) else look).__name__
                yield f"{name}: {type(error).__name__}"


async def _in_time(look: Callable[[], Awaitable[Any]]) -> None:
    with anyio.fail_after(FOR_EVER):
        await look()


def test_the_real_parts_pass() -> None:
    """Otherwise that a mutant is caught says nothing."""
    assert first_catch((looks,), {}) is None


@pytest.mark.rigs
@pytest.mark.filterwarnings("ignore")
def test_every_way_to_hedge_wrongly_is_noticed() -> None:
    """A bug of each of these kinds cannot come back unnoticed."""
    assert len(MUTANTS) >= 12
    assert not survivors((looks,), MUTANTS)
