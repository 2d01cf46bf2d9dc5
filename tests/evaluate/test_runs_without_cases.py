"""Recorded runs that cannot become a case, and why."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

import dagrun
from dagrun import MemoryJournal, Plan, Policy, Run, Step, ToolError, tool
from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.recorded_case import playable_events, recorded_case
from dagrun.testing import run_virtual

pytestmark = pytest.mark.real_time  # a virtual clock of its own


@tool(effect="read")
async def look(what: str) -> str:
    """Look."""
    await anyio.sleep(1)
    return what


@tool(effect="idempotent")
async def send(text: str) -> str:
    """Send."""
    return text


@tool(effect="read")
async def refuse_all(text: str) -> str:
    """Refuse."""
    raise ToolError("no")


PAIR = [Step(id="a", tool="look", args={"what": "x"}), Step(id="b", tool="send", args={"text": "${a}"})]


def test_a_run_that_has_not_ended_is_refused() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        async with dagrun.start(Plan(steps=PAIR), tools=[look, send], journal=journal, run_id="r") as run:
            await anyio.sleep(0.5)
            run.suspend()
            await run.result()
        with pytest.raises(
            CasesRefused, match=r"run r has not ended \(cancelled: suspended by the host\): a case says how it ends"
        ):
            recorded_case("r", playable_events("r", await journal.read("r")))

    run_virtual(main)


def test_a_value_that_is_not_on_record_is_named() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        policy = Policy(unrecorded=["look"])
        await dagrun.run(Plan(steps=PAIR), tools=[look, send], policy=policy, journal=journal, run_id="r")
        with pytest.raises(CasesRefused, match="run r cannot become a case: its record does not have what step a gave"):
            recorded_case("r", playable_events("r", await journal.read("r")))

    run_virtual(main)


def test_a_retry_that_takes_outputs_over_names_the_run_to_take() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        plan = Plan(steps=[PAIR[0], Step(id="b", tool="refuse_all", args={"text": "${a}"})])
        await dagrun.run(plan, tools=[look, refuse_all], journal=journal, run_id="first")
        async with dagrun.retry("first", tools=[look, refuse_all], journal=journal, new_id="second") as run:
            await run.result()
        with pytest.raises(CasesRefused, match="it retries run first: make one of that run"):
            recorded_case("second", playable_events("second", await journal.read("second")))

    run_virtual(main)


@pytest.mark.parametrize(
    ("deed", "what"),
    [
        (lambda run: run.cancel("b"), "cancelled step b"),
        (lambda run: run.cancel(), "ended it"),
    ],
)
def test_a_run_that_its_host_changed_is_refused(deed: Callable[[Run], object], what: str) -> None:
    """No case says what a host does; a cassette plays it."""

    async def main() -> None:
        journal = MemoryJournal()
        async with dagrun.start(Plan(steps=PAIR), tools=[look, send], journal=journal, run_id="r") as run:
            await anyio.sleep(0.5)
            deed(run)
            await run.result()
        with pytest.raises(CasesRefused, match=f"its host {what} while it ran, which no case says: play it with"):
            recorded_case("r", playable_events("r", await journal.read("r")))

    run_virtual(main)


def test_a_run_of_two_sessions_is_refused() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        async with dagrun.start(Plan(steps=PAIR), tools=[look, send], journal=journal, run_id="r") as run:
            await anyio.sleep(0.5)
            run.suspend()
            await run.result()
        async with dagrun.resume("r", tools=[look, send], journal=journal) as run:
            await run.result()
        with pytest.raises(CasesRefused, match="it was resumed, and a case is of one session: play it with"):
            recorded_case("r", playable_events("r", await journal.read("r")))

    run_virtual(main)
