"""Suspending: a run lets go of everything, because the host wants it or only people are missing, and goes on later."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import anyio
import pytest
from anyio.lowlevel import checkpoint

import dagrun
from dagrun import (
    Answer,
    Asked,
    Event,
    MemoryJournal,
    Plan,
    Policy,
    Question,
    QuestionRule,
    RetryRule,
    Run,
    RunResult,
    Status,
    Step,
    ToolContext,
    ToolError,
)
from dagrun.codec import decode_event
from dagrun.errors import AnswerRefused, ContractError, QuestionNotFound
from dagrun.events import (
    AttemptEnded,
    AttemptStarted,
    QuestionAsked,
    Reviewed,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
)
from dagrun.kernel.model.question import AnswerMessage
from dagrun.kernel.model.tool import AnyTool, make_tool
from dagrun.testing import StandIn
from judges import Judge
from persons import Person, pay, settle, step
from replans import Thinker, instead, nap
from small_tools import ONCE, near, scripted, states, toolset

pytestmark = pytest.mark.anyio

RUN: Final = "run"


class Story:
    """A run with a journal, in as many parts as it takes.

    Args:
        steps: Of the plan.
        tools: Beside the small ones.
        goal: What a planner makes a plan for, if there are no steps.
        policy: Of the run.
    """

    def __init__(
        self, *steps: Step, tools: Sequence[StandIn | AnyTool] = (), goal: str | None = None, **policy: Any
    ) -> None:
        self.journal = MemoryJournal()
        self.events: list[Event] = []
        self._plan, self._policy = None if goal else Plan(steps=steps), Policy(**policy)
        self._goal = goal
        self._tools = toolset(*tools)

    def begin(self, **options: Any) -> AbstractAsyncContextManager[Run]:
        facts: dict[str, Any] = {"tools": self._tools, "journal": self.journal, "on_event": self.events.append}
        return dagrun.start(self._plan, goal=self._goal, policy=self._policy, run_id=RUN, **facts, **options)

    def go_on(self, **options: Any) -> AbstractAsyncContextManager[Run]:
        facts: dict[str, Any] = {"tools": self._tools, "journal": self.journal, "on_event": self.events.append}
        return dagrun.resume(RUN, **facts, **options)

    async def suspended(self, after: float, **options: Any) -> RunResult:
        """Begin, and suspend the run after so many seconds."""
        async with self.begin(**options) as running:
            await anyio.sleep(after)
            assert running.suspend("later")
            result = await running.result()
        await self._must_be_closed()
        return result

    async def to_the_end(self, **options: Any) -> RunResult:
        """Begin, or go on, and wait for what comes."""
        async with self.go_on(**options) if self.events else self.begin(**options) as running:
            result = await running.result()
        await self._must_be_closed()
        return result

    async def _must_be_closed(self) -> None:
        """Whatever a run still does when it has let go is not written down any more."""
        last = decode_event((await self.journal.read(RUN))[-1].text)
        assert isinstance(last, RunEnded | RunSuspended)
        assert last.seq == self.events[-1].seq

    async def post(self, question: str, answer: Answer) -> None:
        key = await self.journal.answer_key(RUN)
        await self.journal.post(RUN, AnswerMessage.of(question, answer, key).model_dump_json().encode())

    def named(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def started(self, id_: str) -> int:
        """How often a step was started."""
        return sum(1 for event in self.named(AttemptStarted) if event.step == id_)


def send(id_: str = "send", seconds: float = 3.0, **fields: Any) -> Step:
    return Step(id=id_, tool="send", args={"seconds": seconds, "gives": id_}, **{"retry": ONCE, **fields})


async def _send(seconds: float, gives: Any = None) -> Any:
    """Change the world, slowly."""
    await anyio.sleep(seconds)
    return gives


SEND: Final = make_tool(_send, name="send", effect="effectful", needs_approval=False)
PUT: Final = make_tool(_send, name="put", effect="idempotent")


# The host suspends a run ----------------------------------------------------------------------------------------------


async def test_what_only_looks_is_stopped_and_a_call_with_an_effect_may_end() -> None:
    """The look can be had again; the effect would be in doubt."""
    story = Story(nap("look", 60.0), send(), nap("after", 1.0, "send"), tools=[SEND], grace=5)

    result = await story.suspended(1)

    assert (result.status, result.status.exit_code, result.reason) == (Status.CANCELLED, 130, "later")
    assert (result.makespan, states(result)) == (
        near(3),
        {"look": "running", "send": "succeeded", "after": "ready"},
    )
    assert [type(event) for event in story.events[-2:]] == [AttemptEnded, RunSuspended]

    result = await story.to_the_end()
    assert (result.status, set(states(result).values())) == (Status.SUCCEEDED, {"succeeded"})
    assert [story.started(id_) for id_ in ("look", "send", "after")] == [2, 1, 1]


async def test_a_run_with_nothing_but_looks_is_suspended_at_once() -> None:
    result = await Story(nap("look", 60.0), nap("after", 1.0, "look")).suspended(1)

    assert (result.makespan, states(result)) == (near(1), {"look": "running", "after": "waiting"})


@pytest.mark.parametrize(("tool", "calls", "status"), [("put", 2, "succeeded"), ("send", 1, "unknown")])
async def test_a_call_that_takes_longer_than_the_grace_period_is_as_after_a_crash(
    tool: str, calls: int, status: str
) -> None:
    """The same call is made again where that is safe; else it is in doubt, which people have to settle."""
    slow = Step(id="slow", tool=tool, args={"seconds": 20.0, "gives": 7}, retry=ONCE)
    story = Story(slow, tools=[SEND, PUT], grace=5, questions=QuestionRule(answer_within=60.0))

    result = await story.suspended(1)
    assert (result.makespan, states(result)) == (near(6), {"slow": "running"})

    result = await story.to_the_end(attended=True)
    assert (states(result), story.started("slow")) == ({"slow": status}, calls)


async def test_what_would_not_stop_is_left_behind() -> None:
    """The run is suspended all the same; what it holds on to is no business of the next process."""
    given_up: list[str] = []

    async def stubborn() -> str:
        try:
            await anyio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(20)
            given_up.append("at last")
        return "much too late"

    story = Story(Step(id="a", tool="stubborn"), tools=[make_tool(stubborn, effect="read")], grace=5)
    async with story.begin() as running:
        await anyio.sleep(1)
        running.suspend()
        result = await running.result()
        assert (result.makespan, states(result), given_up) == (near(6), {"a": "running"}, [])
    assert not [event for event in story.named(AttemptEnded) if event.step == "a"]


async def test_a_failure_within_the_grace_period_counts() -> None:
    """It ended by itself: that is known, and on record; what follows from it comes when the run goes on."""
    busy = ToolError("busy", retryable=True, retry_after=10)
    calls: list[float] = []

    async def tries() -> int:
        calls.append(anyio.current_time())
        await anyio.sleep(2)
        if len(calls) == 1:
            raise busy
        return 7

    tool = make_tool(tries, effect="effectful", needs_approval=False)
    story = Story(Step(id="a", tool="tries"), tools=[tool], grace=5)
    result = await story.suspended(1)
    assert (result.makespan, states(result), len(calls)) == (near(2), {"a": "ready"}, 1)

    await anyio.sleep(1000)
    began = anyio.current_time()
    result = await story.to_the_end()
    assert (result.output, len(calls)) == (7, 2)
    assert calls[1] - began == near(10)


async def test_the_time_in_between_does_not_count() -> None:
    """A weekend between two processes is no reason to fail."""
    story = Story(nap("a", 2.0, deadline=5.0), nap("b", 2.0, "a"), max_seconds=8.0)
    await story.suspended(1)
    await anyio.sleep(100_000)

    result = await story.to_the_end()

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(5))
    assert story.events[-1].at == near(5)


async def test_what_comes_after_it_has_the_next_numbers() -> None:
    """It is one record, whoever writes it."""
    story = Story(nap("a", 2.0))
    await story.suspended(1)
    assert [type(event) for event in story.events] == [RunStarted, AttemptStarted, RunSuspended]

    await story.to_the_end()

    assert [event.seq for event in story.events] == list(range(1, len(story.events) + 1))
    assert isinstance(story.events[3], RunResumed)
    assert [line.seq for line in await story.journal.read(RUN)] == [event.seq for event in story.events]


async def test_the_planner_is_asked_again_when_the_run_goes_on() -> None:
    """What it was about to say is lost; the request is the same one, and counts once."""
    planner = Thinker(None, instead("a", nap("b", 1.0)), seconds=10)
    story = Story(Step(id="a", tool="fail"), max_replans=1)
    result = await story.suspended(1, planner=planner)
    assert (result.makespan, planner.told_to_stop) == (near(1), 1)

    result = await story.to_the_end(planner=planner)

    assert (result.status, result.replans, len(planner.briefs)) == (Status.SUCCEEDED, 1, 2)


async def test_what_the_planner_wants_to_see_before_it_goes_on_is_not_forgotten() -> None:
    """Its last step ends within the grace period: that is not the end of the run."""
    planner = Thinker(
        dagrun.Patch(edits=[dagrun.Add(step=send())], more=True), dagrun.Patch(edits=[dagrun.Add(step=nap("b", 1.0))])
    )
    story = Story(goal="that it is sent", tools=[SEND], grace=5)
    result = await story.suspended(1, planner=planner)
    assert (result.status, states(result), len(planner.briefs)) == (Status.CANCELLED, {"send": "succeeded"}, 1)

    result = await story.to_the_end(planner=planner)

    assert (result.status, set(states(result)), len(planner.briefs)) == (Status.SUCCEEDED, {"send", "b"}, 2)


async def test_the_critics_look_again_and_the_tool_is_not_called_again() -> None:
    critic = Judge(seconds=10, step="send")
    story = Story(send(), tools=[SEND])
    result = await story.suspended(5, critics=[critic])
    assert (result.makespan, states(result)) == (near(5), {"send": "running"})

    result = await story.to_the_end(critics=[critic])

    assert (result.status, result.output, story.started("send")) == (Status.SUCCEEDED, "send", 1)
    assert [type(event) for event in story.events[-3:]] == [RunResumed, Reviewed, RunEnded]


async def test_the_elements_of_a_for_each_go_on_where_they_were() -> None:
    each = Step(id="each", tool="nap", args={"seconds": "${item}", "gives": "${item}"}, for_each=[1.0, 5.0, 9.0])
    story = Story(each)
    await story.suspended(2)

    result = await story.to_the_end()

    assert (result.output, [story.started(f"each[{i}]") for i in range(3)]) == ([1.0, 5.0, 9.0], [1, 2, 2])


async def test_an_attempt_that_was_cut_off_uses_none_of_its_retries() -> None:
    """It says nothing about the call."""
    flaky = scripted("flaky", dagrun.testing.Takes(5, 1), ToolError("busy", retryable=True), 7)
    rule = RetryRule(max_attempts=2, first_delay=0)
    story = Story(Step(id="a", tool="flaky", retry=rule), tools=[flaky])
    await story.suspended(1)

    result = await story.to_the_end()

    assert (result.output, len(flaky.calls)) == (7, 3)


async def test_a_run_can_be_suspended_as_often_as_anybody_wants() -> None:
    story = Story(*(nap(f"s{i}", 2.0, *([f"s{i - 1}"] if i else [])) for i in range(4)))
    await story.suspended(1)
    for _ in range(3):
        async with story.go_on() as running:
            await anyio.sleep(3)
            assert running.suspend()

    result = await story.to_the_end()

    assert result.status is Status.SUCCEEDED
    assert (len(story.named(RunSuspended)), len(story.named(RunResumed)), len(story.named(RunEnded))) == (4, 4, 1)


# What it is to suspend ------------------------------------------------------------------------------------------------


async def test_only_a_run_with_a_journal_can_be_suspended() -> None:
    async with dagrun.start(Plan(steps=[nap("a", 2.0)]), tools=toolset()) as running:
        with pytest.raises(ContractError, match="only a run with a journal can be suspended"):
            running.suspend()
        assert (await running.result()).status is Status.SUCCEEDED


async def test_it_says_whether_the_run_was_going_on() -> None:
    story = Story(nap("a", 2.0))
    async with story.begin() as running:
        await anyio.sleep(1)
        assert running.suspend("first")
        assert running.suspend("second") in (True, False)  # the first may have ended it, or has just begun to
        result = await running.result()
        assert (result.reason, running.suspend("third")) == ("first", False)
    assert len(story.named(RunSuspended)) == 1

    async with story.go_on() as running:
        await running.result()
        assert not running.suspend()
    assert isinstance(story.events[-1], RunEnded)


async def test_it_belongs_into_the_loop_of_the_run() -> None:
    async with Story(nap("a", 2.0)).begin() as running:
        running._thread += 1
        with pytest.raises(ContractError, match=r"anyio.from_thread.run_sync\(run.suspend\)"):
            running.suspend()
        running._thread -= 1


@pytest.mark.parametrize("after", [0.0, 1.0, 5.5])
async def test_a_run_that_is_being_suspended_can_still_be_cancelled(after: float) -> None:
    """Then it is over for good: before anything has ended, after what only looks has, or after the grace period."""
    stubborn = make_tool(_stubborn, name="stubborn", effect="effectful", needs_approval=False)
    steps = nap("look", 60.0), send("s", 60.0), nap("after", 1.0, "s"), Step(id="x", tool="stubborn")
    story = Story(*steps, tools=[SEND, stubborn], grace=5)
    async with story.begin() as running:
        await anyio.sleep(1)
        running.suspend()
        await anyio.sleep(after)
        assert running.cancel(reason="enough")
        result = await running.result()

    assert (result.status, result.steps["s"].reason.startswith("nobody")) == (Status.UNKNOWN, False)
    assert states(result) == {"look": "cancelled", "s": "unknown", "after": "cancelled", "x": "unknown"}
    assert isinstance(story.events[-1], RunEnded)
    assert story.named(RunSuspended) == []
    ends = [event.step for event in story.named(AttemptEnded)]
    assert sorted(ends) == ["look", "s", "x"]


async def _stubborn() -> None:
    try:
        await anyio.sleep(60)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)


async def test_a_run_that_is_being_cancelled_cannot_be_suspended_any_more() -> None:
    """What was told to stop for good must not be left open."""
    stubborn = make_tool(_stubborn, name="stubborn")
    story = Story(send("s", 60.0), Step(id="x", tool="stubborn"), tools=[SEND, stubborn], grace=5)
    async with story.begin(approver=Person(True)) as running:
        await anyio.sleep(1)
        running.cancel(reason="enough")
        await checkpoint()
        running.suspend()
        result = await running.result()

    assert states(result) == {"s": "unknown", "x": "unknown"}
    assert {step.reason for step in result.steps.values()} == {"enough"}
    assert story.named(RunSuspended) == []


async def test_a_ceiling_that_is_reached_within_the_grace_period_ends_the_run() -> None:
    story = Story(nap("look", 60.0), send("s", 4.0), tools=[SEND], grace=5, max_seconds=2.0)

    result = await story.suspended(1)

    assert (result.status, isinstance(story.events[-1], RunEnded)) == (Status.UNKNOWN, True)
    assert states(result) == {"look": "cancelled", "s": "unknown"}


async def test_a_run_that_ends_within_the_grace_period_has_ended() -> None:
    story = Story(send(), tools=[SEND], grace=5)

    result = await story.suspended(1)

    assert (result.status, isinstance(story.events[-1], RunEnded)) == (Status.SUCCEEDED, True)


@pytest.mark.parametrize("has_journal", [True, False], ids=["journal", "no journal"])
async def test_code_around_a_run_that_fails_suspends_it_if_there_is_a_journal(has_journal: bool) -> None:
    """Ctrl-C is no decision that the work is of no use any more."""
    story = Story(nap("look", 60.0), send("s", 60.0), tools=[SEND])
    seen: list[Event] = story.events
    begun = story.begin() if has_journal else dagrun.start(story._plan, tools=toolset(SEND), on_event=seen.append)

    async def fails() -> None:
        async with begun:
            await anyio.sleep(1)
            raise KeyError("of the host")

    with pytest.raises(KeyError):
        await fails()

    assert isinstance(seen[-1], RunSuspended if has_journal else RunEnded)
    if has_journal:
        async with story.go_on(attended=True) as running:
            await settle()
            assert [question.kind for question in running.pending] == [Asked.EFFECT]
            await running.answer(running.pending[0], Answer("took_effect", value=1))
            assert (await running.result()).status is Status.SUCCEEDED


# Only people are missing ----------------------------------------------------------------------------------------------


def _missing() -> StandIn:
    async def takes(value: Any = None, region: str | None = None) -> Any:
        return value

    tool = make_tool(takes, name="needs", effect="read")
    return StandIn(tool, ToolError("which?", missing_input="region"), 7)


def _forbidden() -> StandIn:
    return scripted("forbidden", ToolError("no", permission=True), 7)


def _lost() -> StandIn:
    return scripted("lost", ConnectionResetError("gone"), effect="effectful", needs_approval=False)


YES: Final = Answer("approve", by="ann")
WAITS: Final[dict[str, tuple[Asked, Any, Step, Answer, dict[str, Any]]]] = {
    "approval": (Asked.APPROVAL, pay, step(), YES, {}),
    "pause before": (Asked.PAUSE, lambda: None, nap("pay", 1.0, pause="before"), YES, {}),
    "pause after": (Asked.PAUSE, lambda: None, nap("pay", 1.0, pause="after"), YES, {}),
    "input": (Asked.INPUT, _missing, step(tool="needs"), Answer("approve", value="north"), {}),
    "permission": (Asked.PERMISSION, _forbidden, step(tool="forbidden"), YES, {}),
    "effect": (Asked.EFFECT, _lost, step(tool="lost"), Answer("took_effect", value=7), {}),
    "output": (Asked.OUTPUT, lambda: None, nap("pay", 1.0), YES, {"approve_output": True}),
}


def _waiting(kind: str, *more: Step) -> tuple[Story, Asked, Answer]:
    asked, make, first, answer, policy = WAITS[kind]
    made = make()
    steps = first, Step(id="use", tool="echo", args={"value": "${pay}"}), *more
    return Story(*steps, tools=[made] if made is not None else [], **policy), asked, answer


@pytest.mark.parametrize("kind", WAITS)
async def test_a_run_that_only_waits_for_people_is_suspended_and_goes_on_with_a_letter(kind: str) -> None:
    """Days later, in another process: nobody has to sit and wait."""
    story, asked, answer = _waiting(kind)
    result = await story.to_the_end()
    (question,) = [event.question for event in story.named(QuestionAsked)]
    assert (result.status, result.status.exit_code, question.kind) == (Status.WAITING, 5, asked)
    assert (question.step or question.text) in result.reason
    assert isinstance(story.events[-1], RunSuspended)

    await story.post(question.id, answer)
    result = await story.to_the_end()

    assert (result.status, set(states(result).values())) == (Status.SUCCEEDED, {"succeeded"})
    assert len(story.named(QuestionAsked)) == 1


@pytest.mark.parametrize("kind", [kind for kind in WAITS if kind != "output"])
async def test_a_letter_that_comes_while_something_runs_is_heard_at_once(kind: str) -> None:
    story, _, answer = _waiting(kind, nap("long", 20.0))
    async with story.begin() as running:
        await anyio.sleep(5)
        (question,) = running.pending
        await story.post(question.id, answer)
        result = await running.result()

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(20))
    assert result.steps["use"].ended in (near(5), near(6))


@pytest.mark.parametrize("kind", WAITS)
async def test_a_run_that_goes_on_without_an_answer_waits_again(kind: str) -> None:
    """Nothing is asked twice, and nothing is called."""
    story, _, answer = _waiting(kind)
    first = await story.to_the_end()

    for _ in range(2):
        again = await story.to_the_end()
        assert (again.status, again.makespan, states(again)) == (Status.WAITING, near(first.makespan), states(first))
    assert len(story.named(QuestionAsked)) == 1

    async with story.go_on(attended=True) as running:
        await settle()
        await running.answer(running.pending[0], answer)
        assert (await running.result()).status is Status.SUCCEEDED


@pytest.mark.parametrize("kind", WAITS)
async def test_it_is_not_suspended_while_the_host_may_answer(kind: str) -> None:
    story, _, answer = _waiting(kind)
    async with story.begin(attended=True) as running:
        await anyio.sleep(10_000)
        assert not running.has_ended
        await running.answer(running.pending[0], answer)
        assert (await running.result()).status is Status.SUCCEEDED
    assert story.named(RunSuspended) == []


@pytest.mark.parametrize("kind", WAITS)
async def test_it_is_not_suspended_while_the_approver_thinks(kind: str) -> None:
    story, _, answer = _waiting(kind)

    result = await story.to_the_end(approver=Person(answer, seconds=10_000))

    assert (result.status, story.named(RunSuspended)) == (Status.SUCCEEDED, [])


@pytest.mark.parametrize("says", [None, ValueError("out of office"), "nonsense"], ids=repr)
@pytest.mark.parametrize("kind", WAITS)
async def test_it_is_suspended_when_the_approver_has_nothing_to_say(kind: str, says: Any) -> None:
    """He was asked; nobody else is there. The next process asks him again."""
    story, _, answer = _waiting(kind)
    with anyio.fail_after(1000):
        result = await story.to_the_end(approver=Person(says, seconds=10))
    assert result.status is Status.WAITING

    result = await story.to_the_end(approver=(person := Person(answer)))

    assert (result.status, len(person.asked)) == (Status.SUCCEEDED, 1)


async def test_it_is_not_suspended_while_an_answer_comes_by_itself() -> None:
    """The policy says what counts when nobody answers: that comes first."""
    story = Story(step(), tools=[pay()], questions=QuestionRule(answer_within=60.0, default_answer="deny"))

    result = await story.to_the_end()

    assert (states(result), result.makespan, story.named(RunSuspended)) == ({"pay": "failed"}, near(60), [])


async def test_it_is_not_suspended_while_anything_else_goes_on() -> None:
    """A step that runs, one that waits for its back-off, a planner that thinks."""
    busy = scripted("busy", ToolError("busy", retryable=True, retry_after=30), 7)
    story = Story(step(), Step(id="b", tool="busy"), nap("long", 10.0), tools=[pay(), busy])

    result = await story.to_the_end()

    assert (result.status, result.makespan) == (Status.WAITING, near(30))
    assert states(result) == {"pay": "held", "b": "succeeded", "long": "succeeded"}


async def test_it_is_not_suspended_while_the_planner_thinks() -> None:
    planner = Thinker(instead("bad", nap("good", 1.0)), seconds=10)
    story = Story(step(), Step(id="bad", tool="fail"), tools=[pay()])

    result = await story.to_the_end(planner=planner)

    assert (result.status, result.makespan, states(result)["good"]) == (Status.WAITING, near(11), "succeeded")


async def test_what_has_no_room_to_be_asked_about_waits_with_the_rest() -> None:
    """Beyond max_pending, questions stand in line; who answers one by one comes to all of them."""
    story = Story(*(step(f"p{i}") for i in range(5)), tools=[pay()], questions=QuestionRule(max_pending=2))
    result = await story.to_the_end()
    assert (result.status, len(story.named(QuestionAsked))) == (Status.WAITING, 2)

    lives = 0
    while result.status is Status.WAITING:
        lives += 1
        for question in [event.question for event in story.named(QuestionAsked)]:
            await story.post(question.id, YES)
        result = await story.to_the_end()

    assert (result.status, lives) == (Status.SUCCEEDED, 3)
    assert len(story.named(QuestionAsked)) == 5


async def test_the_reason_names_those_that_wait_and_counts_the_rest() -> None:
    story = Story(*(step(f"p{i}") for i in range(13)), tools=[pay()])

    result = await story.to_the_end()

    assert result.reason.startswith("nobody is there to answer about p")
    assert result.reason.endswith(" and 3 more")
    assert result.reason.count(", ") == 9


@pytest.mark.parametrize("effect", ["read", "effectful"])
async def test_who_asks_in_the_middle_of_a_call_waits_if_the_call_can_be_made_again(effect: str) -> None:
    """A tool cannot wait for days in a process that has ended; but it can be called again, if that does no harm."""

    async def ask(context: ToolContext) -> Any:
        try:
            return await context.ask("Which region?")
        except ToolError:
            return "nobody"

    story = Story(Step(id="a", tool="ask"), tools=[make_tool(ask, effect=effect)])

    result = await story.to_the_end()

    said = (Status.SUCCEEDED, "nobody") if effect == "effectful" else (Status.WAITING, None)
    assert (result.status, result.output) == said


async def test_a_patch_that_nobody_may_approve_is_not_applied() -> None:
    planner = Thinker(instead("bad", nap("good", 1.0)))
    story = Story(step(), Step(id="bad", tool="fail"), tools=[pay()], approve_patches="always")

    result = await story.to_the_end(planner=planner)

    assert (result.status, states(result)) == (Status.WAITING, {"pay": "held", "bad": "failed"})


# Letters --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [b"", b"\xff", b"{}", b"[]", b'{"question": 1, "choice": "approve"}', b'{"question": "q", "choice": "perhaps"}'],
)
async def test_what_is_no_letter_is_thrown_away(text: bytes) -> None:
    """Anybody may write there."""
    story, _, _ = _waiting("approval")
    await story.to_the_end()
    await story.journal.post(RUN, text)

    assert (await story.to_the_end()).status is Status.WAITING
    assert await _left(story) == []


@pytest.mark.parametrize("key", ["none", "wrong", "of another run"])
async def test_an_answer_without_the_key_of_the_run_is_ignored(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """A tool that writes files could put a letter there; it cannot read the key.

    The log tells of it once: whoever can write letters must not be able to fill it.
    """
    story, _, answer = _waiting("approval")
    await story.to_the_end()
    (question,) = [event.question for event in story.named(QuestionAsked)]
    await (await story.journal.create("other")).aclose()
    keys = {"none": "", "wrong": "0" * 64, "of another run": await story.journal.answer_key("other")}
    for _ in range(3):
        letter = AnswerMessage.of(question.id, answer, keys[key])
        await story.journal.post(RUN, letter.model_dump_json().encode())

    assert (await story.to_the_end()).status is Status.WAITING
    assert await _left(story) == []
    assert [record.levelname for record in caplog.records if "answer key" in record.message] == ["WARNING"]
    assert keys[key] not in caplog.text or not keys[key]

    await story.post(question.id, answer)
    assert (await story.to_the_end()).status is Status.SUCCEEDED


async def test_the_answer_key_is_on_no_record() -> None:
    """Nothing that a plan, a planner or a tool can see holds it."""
    story, _, answer = _waiting("approval")
    await story.to_the_end()
    (question,) = [event.question for event in story.named(QuestionAsked)]
    await story.post(question.id, answer)
    result = await story.to_the_end()

    key = await story.journal.answer_key(RUN)
    assert not [line for line in await story.journal.read(RUN) if key.encode() in line.text]
    assert key not in repr((story.events, result))


async def _left(story: Story) -> list[bytes]:
    run_log = await story.journal.open(RUN)
    try:
        return [letter.text for letter in await run_log.backlog()]
    finally:
        await run_log.aclose()


async def test_a_letter_about_another_question_is_kept_until_that_is_asked() -> None:
    """It may be early; that a question of this run is meant, nobody can know before."""
    story = Story(step("a"), step("b", depends_on=["a"]), tools=[pay()])
    asked: list[Question] = []
    async with dagrun.start(
        story._plan, tools=story._tools, attended=True, run_id=RUN, journal=MemoryJournal()
    ) as other:
        await settle()
        asked += other.pending
        await other.answer(other.pending[0], True)
        await settle()
        asked += other.pending
        other.cancel()
    await story.to_the_end()

    await story.post(asked[1].id, YES)
    assert (await story.to_the_end()).status is Status.WAITING
    assert len(await _left(story)) == 1
    await story.post(asked[0].id, YES)

    result = await story.to_the_end()
    assert (result.status, await _left(story)) == (Status.SUCCEEDED, [])


async def test_an_answer_that_does_not_fit_is_thrown_away_and_the_question_stays() -> None:
    story, _, answer = _waiting("input")
    await story.to_the_end()
    (question,) = [event.question for event in story.named(QuestionAsked)]

    await story.post(question.id, Answer("approve", value=["not a region"]))
    assert (await story.to_the_end()).status is Status.WAITING
    assert await _left(story) == []

    await story.post(question.id, answer)
    assert (await story.to_the_end()).status is Status.SUCCEEDED


async def test_the_second_letter_about_a_question_changes_nothing() -> None:
    """Two people answer from two terminals: the first one counts."""
    paid = pay()
    story = Story(step(), nap("long", 5.0), tools=[paid])
    async with story.begin() as running:
        await settle()
        (question,) = running.pending
        await story.post(question.id, YES)
        with pytest.raises(AnswerRefused, match="it was answered already: approve by ann"):
            await story.post(question.id, Answer("deny"))
        result = await running.result()

    assert (states(result)["pay"], len(paid.calls)) == ("succeeded", 1)


async def test_a_letter_says_no() -> None:
    paid = pay()
    story = Story(step(), tools=[paid])
    await story.to_the_end()
    (question,) = [event.question for event in story.named(QuestionAsked)]
    await story.post(question.id, Answer("deny", note="too dear"))

    result = await story.to_the_end()

    assert (states(result), paid.calls) == ({"pay": "failed"}, [])
    assert "too dear" in result.steps["pay"].reason


async def test_a_letter_hands_the_run_over() -> None:
    story, _, _ = _waiting("approval")
    await story.to_the_end()
    (question,) = [event.question for event in story.named(QuestionAsked)]
    await story.post(question.id, Answer("escalate", by="bob"))

    result = await story.to_the_end()

    assert (result.status, await _left(story)) == (Status.ESCALATED, [])


# What must not be heard any more --------------------------------------------------------------------------------------


async def test_an_answer_after_that_is_refused() -> None:
    """It would be lost, or be a record after the last one."""
    story, _, answer = _waiting("approval")
    async with story.begin() as running:
        await running.result()
        (question,) = running.pending
        with pytest.raises(QuestionNotFound, match="suspended: resume it"):
            await running.answer(question, answer)
    assert isinstance(story.events[-1], RunSuspended)


async def test_who_looks_at_a_patch_meanwhile_is_asked_anew() -> None:
    """The planner is asked first: what it proposes now may be something else."""
    planner = Thinker(instead("bad", nap("one", 1.0)), instead("bad", nap("two", 1.0)))
    person = Person(YES, seconds=10)
    story = Story(Step(id="bad", tool="fail"), approve_patches="always")
    result = await story.suspended(5, planner=planner, approver=person)
    assert (result.makespan, len(person.asked)) == (near(5), 1)

    result = await story.to_the_end(planner=planner, approver=person)

    assert (result.status, set(result.steps), len(person.asked)) == (Status.SUCCEEDED, {"bad", "two"}, 2)


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_tool_that_asks_meanwhile_asks_anew(is_stubborn: bool) -> None:
    """Its process has ended; the question of that one is void. Its clean-up gets the grace period of a second."""

    async def ask(context: ToolContext) -> Any:
        try:
            return await context.ask("Which region?")
        finally:
            with anyio.CancelScope(shield=is_stubborn):
                await anyio.sleep(5)

    story = Story(Step(id="a", tool="ask"), tools=[make_tool(ask, effect="read")])
    result = await story.suspended(5, attended=True)
    assert (result.makespan, states(result)) == (near(6), {"a": "held"})

    result = await story.to_the_end(approver=Person(Answer("approve", value="north")))

    assert (result.status, result.output, len(story.named(QuestionAsked))) == (Status.SUCCEEDED, "north", 2)
