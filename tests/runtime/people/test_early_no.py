"""A "no" of `reconcile` right after a call was cut is no evidence: most servers work on, though the line is closed."""

from __future__ import annotations

import time
from typing import Any, Final

import anyio
import pytest

import dagrun
from crash_process import RUN
from dagrun import Applied, MemoryJournal, Plan, Policy, QuestionRule, RunResult, Status, Step, ToolContext
from dagrun.errors import ContractError
from dagrun.events import RunResumed, RunStarted
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.model.tool import AnyTool, make_tool
from keeping import Keeping
from persons import Person
from replans import nap
from small_tools import ONCE, near, states, toolset

pytestmark = pytest.mark.anyio

FOR_EVER: Final = float("inf")


class Server:
    """Books a payment some time after the call has come, whether its caller still waits or not.

    Args:
        books_after: Seconds after the call; endless if the first call never gets there.
        looks_for: Seconds that a look at the books takes; it shows the books as they were when it began.

    Attributes:
        keys: Of the calls.
        looks: When the books were looked at, and the seconds since the cut that were told.
    """

    def __init__(self, books_after: float, looks_for: float = 0.0) -> None:
        self.keys: list[str] = []
        self.looks: list[tuple[float, float]] = []
        self._books_after = books_after
        self._looks_for = looks_for
        self._booked: list[tuple[float, str]] = []

    @property
    def booked(self) -> int:
        """How many payments the server makes in the end."""
        return sum(when < FOR_EVER for when, _ in self._booked)

    async def _pay(self, context: ToolContext) -> str:
        self.keys.append(context.idempotency_key)
        is_first = len(self.keys) == 1
        self._booked.append((anyio.current_time() + (self._books_after if is_first else 0.0), context.idempotency_key))
        if is_first:
            await anyio.sleep_forever()
        return "paid at last"

    async def _look(self, key: str, *, seconds_since_cut: float) -> Applied | bool:
        now = anyio.current_time()
        self.looks.append((now, seconds_since_cut))
        await anyio.sleep(self._looks_for)
        return Applied("found") if (key in {known for when, known in self._booked if when <= now}) else False

    def tool(self, **options: Any) -> AnyTool:
        """What pays, for a second at most."""
        facts: dict[str, Any] = {"needs_approval": False, "timeout": 1.0, "reconcile": self._look}
        return make_tool(self._pay, name="pay", effect="effectful", **facts | options)

    def asked(self, cut: float) -> list[float]:
        """Return the seconds from *cut* to each look."""
        return [round(when - cut, 3) for when, _ in self.looks]


PLAN: Final = Plan(steps=[Step(id="p", tool="pay", retry=ONCE)])


async def run(tool: AnyTool, *steps: Step, **options: Any) -> RunResult:
    return await dagrun.run(Plan(steps=[*PLAN.steps, *steps]), tools=toolset(tool), **options)


# How long a no does not count -----------------------------------------------------------------------------------------


async def test_a_payment_that_is_booked_after_the_cut_is_not_made_again() -> None:
    """The server sees nothing when it is asked first, and the payment when it is asked again."""
    server = Server(books_after=2.5)

    result = await run(server.tool())

    assert (result.status, result.output, server.booked, len(server.keys)) == (Status.SUCCEEDED, "found", 1, 1)
    assert (server.asked(cut=1.0), result.makespan) == ([0.0, 1.0, 3.0], near(4.0))


@pytest.mark.parametrize("journal", [MemoryJournal, lambda: None], ids=["journal", "no journal"])
@pytest.mark.parametrize(
    ("limit", "after", "counts_at"),
    [(1.0, None, 30.0), (20.0, None, 40.0), (1.0, 2.0, 2.0), (1.0, 0, 0.0), (1.0, 3600, 3600.0)],
)
async def test_a_no_counts_when_its_time_has_come(
    limit: float, after: float | None, counts_at: float, journal: Any
) -> None:
    """By default that is twice the limit of the attempt, and at least 30 s; until then the run waits."""
    server = Server(books_after=FOR_EVER)

    result = await run(server.tool(timeout=limit, reconcile_after=after), journal=journal())

    assert (result.status, result.output, len(set(server.keys))) == (Status.SUCCEEDED, "paid at last", 2)
    assert (server.asked(cut=limit)[-1], result.makespan) == (counts_at, near(limit + counts_at))


async def test_the_deadline_of_the_step_is_a_limit_of_its_attempt() -> None:
    server = Server(books_after=FOR_EVER)
    plan = Plan(steps=[Step(id="p", tool="pay", deadline=20.0, retry=ONCE)])

    await dagrun.run(plan, tools=[server.tool(timeout=None)])

    assert server.asked(cut=20.0)[-1] == 40.0


async def test_it_is_asked_less_and_less_often() -> None:
    server = Server(books_after=FOR_EVER)

    await run(server.tool())

    assert server.asked(cut=1.0) == [0.0, 1.0, 3.0, 7.0, 15.0, 30.0]


async def test_an_ask_that_began_too_early_does_not_count() -> None:
    """It says what the books were like then, however late it comes back."""
    server = Server(books_after=4.0, looks_for=5.0)

    result = await run(server.tool(reconcile_after=4.0))

    assert (result.output, server.booked, server.asked(cut=1.0)) == ("found", 1, [0.0, 5.001])


async def test_it_is_told_how_long_ago_the_call_was_cut() -> None:
    server = Server(books_after=FOR_EVER)

    await run(server.tool(reconcile_after=5))

    assert [seconds for _, seconds in server.looks] == [near(n) for n in (0.0, 1.0, 3.0, 5.0)]


@pytest.mark.parametrize("says", [None, ValueError("closed")], ids=repr)
async def test_that_nobody_knows_counts_at_once(says: Any) -> None:
    """People may know what the service does not; they are not kept waiting for that."""
    server, person = Server(books_after=FOR_EVER), Person(dagrun.Answer("took_effect", value="told"))

    async def look(key: str) -> None:
        if says is not None:
            raise says

    result = await run(server.tool(reconcile=look), approver=person)

    assert (result.output, result.makespan, len(person.asked)) == ("told", near(1.0), 1)


async def test_a_yes_without_a_value_is_enough_for_a_tool_that_returns_none() -> None:
    async def send() -> None:
        """Send."""
        raise ConnectionError("lost")

    async def look(key: str) -> bool:
        return True

    tool = make_tool(send, effect="effectful", needs_approval=False, reconcile=look)

    result = await dagrun.run(Plan(steps=[Step(id="s", tool="send")]), tools=[tool])

    assert (result.status, result.output) == (Status.SUCCEEDED, None)


# Meanwhile ------------------------------------------------------------------------------------------------------------


async def test_a_step_that_waits_for_a_no_occupies_no_place() -> None:
    server = Server(books_after=FOR_EVER)

    result = await run(server.tool(), nap("a", 5.0), nap("b", 5.0), policy=Policy(max_running=1))

    assert (result.steps["b"].ended, result.output["p"]) == (near(11.0), "paid at last")


async def test_people_have_their_time_when_the_tool_has_had_its_own() -> None:
    """Else a short time for people would be the end of every tool that can only say no."""
    server = Server(books_after=FOR_EVER)

    result = await run(server.tool(), policy=Policy(questions=QuestionRule(answer_within=10)))

    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, "paid at last", near(31.0))


@pytest.mark.parametrize("end", ["cancel", "max_seconds", "cancel the step"])
async def test_a_run_that_is_ended_does_not_wait_for_a_no(end: str) -> None:
    """It ends with its doubt. When it is resumed, the tool is asked again, for the rest of the time."""
    server, journal = Server(books_after=FOR_EVER), MemoryJournal()
    tools, policy = [server.tool()], Policy(max_seconds=10.0 if end == "max_seconds" else None)
    async with dagrun.start(PLAN, tools=tools, policy=policy, journal=journal, run_id=RUN) as running:
        if end != "max_seconds":
            await anyio.sleep(10.0)
            running.cancel("p" if end == "cancel the step" else None)
        result = await running.result()
    assert (result.status, states(result), result.makespan) == (Status.UNKNOWN, {"p": "unknown"}, near(10.0))
    assert server.booked == 0
    if end == "max_seconds":
        return

    async with dagrun.resume(RUN, journal=journal, tools=tools) as again:
        result = await again.result()

    assert (result.status, result.output, result.makespan) == (Status.SUCCEEDED, "paid at last", near(31.0))


async def test_a_run_that_is_suspended_does_not_wait_for_a_no() -> None:
    server, journal = Server(books_after=FOR_EVER), MemoryJournal()
    async with dagrun.start(PLAN, tools=[server.tool()], journal=journal, run_id=RUN) as running:
        await anyio.sleep(10.0)
        running.suspend()
        assert (await running.result()).makespan == near(10.0)

    async with dagrun.resume(RUN, journal=journal, tools=[server.tool()]) as again:
        result = await again.result()

    assert (result.output, result.makespan, server.asked(cut=1.0)[-1]) == ("paid at last", near(31.0), 30.0)


# When a run is resumed ------------------------------------------------------------------------------------------------


async def _left(server: Server, *, is_cut: bool) -> Keeping:
    """Return what a process leaves that dies 5 s after the start: the call was cut after 1 s, or not at all."""
    journal, left = Keeping(), Keeping()
    tools = toolset(server.tool(timeout=1.0 if is_cut else None))
    plan = Plan(steps=[*PLAN.steps, nap("other", 3.0)])
    async with dagrun.start(plan, tools=tools, journal=journal, run_id=RUN) as running:
        await anyio.sleep(5.0)
        left.put(journal.texts)
        running.cancel()
        await running.result()
    server.looks.clear()
    return left


async def _resumed(left: Keeping, server: Server, seconds_later: float, monkeypatch: pytest.MonkeyPatch) -> RunResult:
    """Resume so many seconds after the process has died, by the clock of day."""
    now = time.time() + 5.0 + seconds_later
    monkeypatch.setattr(time, "time", lambda: now)
    tools = toolset(server.tool(timeout=None))
    async with dagrun.resume(RUN, journal=left, tools=tools, allow_differences=True) as again:
        return await again.result()


async def test_the_time_without_a_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call was cut, on record, an hour before: the server has had its time."""
    server = Server(books_after=FOR_EVER)

    result = await _resumed(await _left(server, is_cut=True), server, 3600.0, monkeypatch)

    assert result.output["p"] == "paid at last"
    assert [round(seconds) for _, seconds in server.looks] == [3604]


async def test_a_clock_that_was_set_back_shortens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(books_after=FOR_EVER)

    await _resumed(await _left(server, is_cut=True), server, -7200.0, monkeypatch)

    assert [round(seconds) for _, seconds in server.looks] == [2, 3, 5, 9, 17, 30]


async def test_a_call_of_a_process_that_died_was_cut_when_its_run_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record does not say until when it has worked on the call, so the latest possible moment counts."""
    server = Server(books_after=FOR_EVER)

    result = await _resumed(await _left(server, is_cut=False), server, 3600.0, monkeypatch)

    assert result.output["p"] == "paid at last"
    assert [round(seconds) for _, seconds in server.looks] == [0, 1, 3, 7, 15, 30]


def test_the_time_asleep_is_that_since_the_moment_in_question() -> None:
    plan = dagrun.check(PLAN, tools=[Server(0.0).tool()])
    graph = LiveGraph(plan, b"{}", Frontier())
    apply(graph, RunStarted(1, 0.0, RUN, 1, "", 1_000.0))
    apply(graph, RunResumed(2, 10.0, 1_110.0))  # 100 s asleep
    apply(graph, RunResumed(3, 20.0, 1_125.0))  # 5 s

    assert [graph.asleep_since(at) for at in (0.0, 9.0, 10.0, 19.0, 20.0, 30.0)] == [105.0, 105.0, 5.0, 5.0, 0.0, 0.0]
    assert graph.asleep_since(10.0 - 1e-12) == 5.0  # the end of an attempt, recorded on resumption


# What is declared -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [-1, float("nan"), FOR_EVER, True, "30", [1]], ids=repr)
def test_a_time_that_is_none_is_refused(after: Any) -> None:
    with pytest.raises(ContractError, match="_pay: reconcile_after must be a finite number from 0"):
        Server(0.0).tool(reconcile_after=after)


def test_a_time_without_reconcile_is_refused() -> None:
    with pytest.raises(ContractError, match="_pay: reconcile_after is for a tool with reconcile"):
        Server(0.0).tool(reconcile=None, reconcile_after=5)
