"""Reconciling: a tool finds out by itself what became of a call whose answer was lost, before anybody is asked."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import (
    Answer,
    Applied,
    Asked,
    Event,
    MemoryJournal,
    Plan,
    Policy,
    Question,
    QuestionRule,
    RetryRule,
    RunResult,
    Status,
    Step,
    ToolContext,
)
from dagrun.events import QuestionAnswered, QuestionAsked, ReplanRequested
from dagrun.kernel.model.tool import AnyTool, make_tool
from persons import Person
from replans import Thinker, instead, nap
from small_tools import ONCE, near, states, toolset

pytestmark = pytest.mark.anyio

EFFECTS: Final = ("idempotent", "effectful")


class Bank:
    """A service whose answers get lost.

    Args:
        acts: What becomes of each call, the last one for ever: it is *lost* after it was booked, has *never* got there,
            lasts *for ever*, or goes *well*.
        says: What the bank says when it is asked about a key; an exception is raised. By default, the truth.
        seconds: What it takes to say that.

    Attributes:
        keys: Of the calls.
        asked: The keys that it was asked about.
        booked: By key.
    """

    def __init__(self, *acts: str, says: Any = ..., seconds: float = 0.0) -> None:
        self.keys: list[str] = []
        self.asked: list[str] = []
        self.booked: dict[str, int] = {}
        self._acts = acts
        self._says = says
        self._seconds = seconds

    async def _charge(self, amount: int, context: ToolContext) -> int:
        act = self._acts[min(len(self.keys), len(self._acts) - 1)]
        self.keys.append(context.idempotency_key)
        if act != "never":
            self.booked[context.idempotency_key] = amount
        if act == "for ever":
            await anyio.sleep_forever()
        if act != "well":
            raise ConnectionResetError("gone")
        return amount

    async def _look(self, key: str) -> Any:
        await anyio.sleep(self._seconds)
        return self._look_at_once(key)

    def _look_at_once(self, key: str) -> Any:
        self.asked.append(key)
        if isinstance(self._says, BaseException):
            raise self._says
        if self._says is not ...:
            return self._says
        return Applied(self.booked[key]) if key in self.booked else False

    def tool(self, effect: str = "effectful", *, is_async: bool = True, **options: Any) -> AnyTool:
        """What books, and finds out by key what was booked; a cut call is over at once, so a no counts at once."""
        look = self._look if is_async else self._look_at_once
        facts = {"needs_approval": False, "reconcile": look, "reconcile_after": 0}
        return make_tool(self._charge, name="charge", effect=effect, **facts | options)


def charge(amount: int = 7, id_: str = "pay", **fields: Any) -> Step:
    return Step(id=id_, tool="charge", args={"amount": amount}, **{"retry": ONCE, **fields})


async def run(*steps: Step, tool: AnyTool, seen: list[Event] | None = None, **options: Any) -> RunResult:
    policy = {name: options.pop(name) for name in ("last_resort", "questions") if name in options}
    return await dagrun.run(
        Plan(steps=steps),
        tools=toolset(tool),
        policy=Policy(**policy),
        on_event=None if seen is None else seen.append,
        **options,
    )


def journal_or_none(has_journal: bool) -> MemoryJournal | None:
    return MemoryJournal() if has_journal else None


# What it may say ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_journal", [True, False], ids=["journal", "no journal"])
@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_call_that_took_effect_counts_with_the_value_that_it_gave(effect: str, has_journal: bool) -> None:
    """Nobody else is asked, and it is not called again."""
    bank, person, events = Bank("lost"), Person(False), list[Event]()

    result = await run(
        charge(), tool=bank.tool(effect), approver=person, journal=journal_or_none(has_journal), seen=events
    )

    assert (result.status, result.output, person.asked) == (Status.SUCCEEDED, 7, [])
    assert (len(bank.keys), bank.asked) == (1, bank.keys)
    answers = [event.answer for event in events if isinstance(event, QuestionAnswered)]
    assert answers == [Answer("took_effect", value=7, by="reconcile of charge")]


@pytest.mark.parametrize("has_journal", [True, False], ids=["journal", "no journal"])
@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_call_that_never_got_there_is_made_again_under_a_new_key(effect: str, has_journal: bool) -> None:
    """The old key is spent: a service may have kept that it refused it."""
    bank = Bank("never", "well")

    result = await run(charge(), tool=bank.tool(effect), journal=journal_or_none(has_journal))

    assert (result.status, result.output) == (Status.SUCCEEDED, 7)
    assert (len(set(bank.keys)), bank.asked, list(bank.booked)) == (2, bank.keys[:1], bank.keys[1:])


@pytest.mark.parametrize(
    "says",
    [
        None,
        ValueError("the bank is closed"),
        KeyboardInterrupt(),
        True,
        0,
        "yes",
        Answer("approve", value=7),
        Applied("seven"),
        Applied({1}),
        Applied,
    ],
    ids=repr,
)
@pytest.mark.parametrize("effect", EFFECTS)
async def test_whatever_is_no_answer_leaves_it_to_people(effect: str, says: Any) -> None:
    """A guess here books twice, or never."""
    bank, person = Bank("lost", says=says), Person(Answer("took_effect", value=8, by="ann"))

    result = await run(charge(), tool=bank.tool(effect), approver=person)

    assert [question.kind for question in person.asked] == [Asked.EFFECT]
    assert (result.status, result.output, len(bank.keys), bank.asked) == (Status.SUCCEEDED, 8, 1, bank.keys)


@pytest.mark.parametrize("says", [None, ValueError("no"), "yes", Applied("seven")], ids=repr)
async def test_with_nobody_else_to_ask_it_stays_in_doubt(says: Any) -> None:
    result = await run(charge(), tool=Bank("lost", says=says).tool())

    assert (result.status, states(result)) == (Status.UNKNOWN, {"pay": "unknown"})


@pytest.mark.parametrize("says", [None, ValueError("no"), "yes", Applied("seven")], ids=repr)
async def test_with_a_journal_the_run_waits_for_people_then(says: Any) -> None:
    """Somebody may know later; the step is not given up for want of a process that waits for that."""
    journal, bank = MemoryJournal(), Bank("lost", says=says)
    tool = bank.tool()

    result = await run(charge(), tool=tool, journal=journal, run_id="r")
    assert (result.status, states(result)) == (Status.WAITING, {"pay": "held"})

    async with dagrun.resume("r", journal=journal, tools=toolset(tool), attended=True) as again:
        await anyio.sleep(1)
        await again.answer(again.pending[0], Answer("took_effect", value=9))
        ended = await again.result()
    assert (ended.status, ended.output) == (Status.SUCCEEDED, 9)
    assert (len(bank.keys), bank.asked) == (1, bank.keys * 2)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (ValueError("the bank is closed"), "it raised ValueError: the bank is closed"),
        ("yes", "reconcile of charge gives Applied(value) or True, False, or None if it does not know; got 'yes'"),
        (Applied("seven"), "it raised ValueRefused"),
    ],
)
async def test_what_was_wrong_with_its_answer_is_logged(says: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """Else its author never learns that it is of no use."""
    with caplog.at_level(logging.WARNING, "dagrun"):
        await run(charge(), tool=Bank("lost", says=says).tool())

    assert [record for record in caplog.messages if why in record and "step pay" in record]


@pytest.mark.real_time
@pytest.mark.parametrize("act", ["lost", "never"])
async def test_a_plain_function_looks_in_a_thread(act: str) -> None:
    """It may wait for an answer of the service; the loop does not wait with it."""
    bank, threads = Bank(act, "well"), list[int]()

    def look(key: str) -> Any:
        threads.append(threading.get_ident())
        return bank._look_at_once(key)

    result = await run(charge(), tool=bank.tool(reconcile=look))

    assert (result.status, result.output, bank.asked) == (Status.SUCCEEDED, 7, bank.keys[:1])
    assert threads
    assert threading.get_ident() not in threads


# When it is asked -----------------------------------------------------------------------------------------------------


async def test_it_is_asked_before_the_approver() -> None:
    """Whoever is called out of bed wants to know that nothing else could have told."""
    order: list[str] = []
    bank = Bank("lost")

    async def look(key: str) -> None:
        await anyio.sleep(5)
        order.append("tool")

    async def approver(question: Question) -> Answer:
        order.append("person")
        return Answer("approve", value=7)

    await run(charge(), tool=bank.tool(reconcile=look), approver=approver)

    assert order == ["tool", "person"]


async def test_it_is_asked_after_a_timeout_too() -> None:
    bank = Bank("for ever")

    result = await run(charge(timeout=5.0), tool=bank.tool())

    assert (result.status, result.output, bank.asked) == (Status.SUCCEEDED, 7, bank.keys)


@pytest.mark.parametrize("effect", ["pure", "read"])
async def test_it_is_not_asked_about_a_call_that_has_changed_nothing(effect: str) -> None:
    """What only looks is called again, or fails: nothing is in doubt."""
    bank = Bank("lost")

    result = await run(charge(), tool=bank.tool(effect))

    assert (states(result), bank.asked) == ({"pay": "failed"}, [])


async def test_an_idempotent_call_is_tried_again_under_its_key_before_that() -> None:
    """To repeat it is safe, and says more than to ask."""
    bank = Bank("lost", "lost", "well")

    result = await run(charge(retry=RetryRule(max_attempts=2)), tool=bank.tool("idempotent"))

    assert (result.output, len(bank.keys), len(set(bank.keys)), bank.asked) == (7, 2, 1, bank.keys[:1])


async def test_the_planner_is_asked_only_if_the_tool_does_not_know() -> None:
    knows, planner = Bank("lost"), Thinker(instead("pay", nap("look", 1.0)))
    assert (await run(charge(), tool=knows.tool(), planner=planner)).output == 7
    assert planner.briefs == []

    result = await run(charge(), tool=Bank("lost", says=None).tool(), planner=planner)

    assert (planner.kinds, result.status) == ([["unknown_effect"]], Status.UNKNOWN)


async def test_a_call_that_never_gets_there_is_not_made_for_ever() -> None:
    """As often as the retry rule says, the tool is believed; then the step ends, in doubt."""
    bank = Bank("never")

    result = await run(charge(retry=RetryRule(max_attempts=2)), tool=bank.tool())

    assert (states(result), len(bank.keys), len(set(bank.keys))) == ({"pay": "unknown"}, 3, 3)


# The key --------------------------------------------------------------------------------------------------------------


async def test_the_tool_in_reserve_is_asked_about_its_own_call() -> None:
    """The key is made of the name of the tool, too."""
    main, spare = Bank("never"), Bank("lost")
    tools = [
        make_tool(main._charge, name="charge", effect="read", fallback="spare"),
        make_tool(spare._charge, name="spare", effect="effectful", needs_approval=False, reconcile=spare._look),
    ]

    result = await dagrun.run(Plan(steps=[charge()]), tools=tools)

    assert (result.status, result.output) == (Status.SUCCEEDED, 7)
    assert (spare.asked, main.asked) == (spare.keys, [])
    assert spare.keys != main.keys


async def test_a_substitute_is_asked_about_under_the_key_of_the_first_step() -> None:
    """The planner has written the very same call anew: it is one call, whatever the step is called."""
    bank = Bank("lost", "lost")
    planner = Thinker(instead("pay", charge(id_="pay2")))

    async def look(key: str) -> Applied | None:
        bank.asked.append(key)
        return Applied(7) if len(bank.asked) > 1 else None

    result = await run(charge(), tool=bank.tool("idempotent", reconcile=look), planner=planner)

    assert (result.status, len(bank.keys), len({*bank.keys, *bank.asked}), len(bank.asked)) == (
        Status.SUCCEEDED,
        2,
        1,
        2,
    )


async def test_every_element_of_a_for_each_has_a_key_of_its_own() -> None:
    bank = Bank("lost")
    each = Step(id="each", tool="charge", args={"amount": "${item}"}, for_each=[1, 2, 3], retry=ONCE)

    result = await run(each, tool=bank.tool())

    assert (result.output, sorted(bank.asked)) == ([1, 2, 3], sorted(bank.keys))
    assert len(set(bank.keys)) == 3


# While it is asked ----------------------------------------------------------------------------------------------------


async def test_the_host_may_answer_meanwhile() -> None:
    """The question is there for whoever knows; the tool is not waited for then."""
    bank = Bank("lost", seconds=60)
    async with dagrun.start(Plan(steps=[charge()]), tools=[bank.tool()], attended=True) as running:
        await anyio.sleep(1)
        assert [question.kind for question in running.pending] == [Asked.EFFECT]
        await running.answer(running.pending[0], Answer("took_effect", value=8))
        result = await running.result()

    assert (result.output, result.makespan, bank.asked) == (8, near(1), [])


async def test_the_rest_of_the_run_goes_on_meanwhile() -> None:
    bank = Bank("lost", seconds=5)

    result = await run(charge(), nap("other", 1.0), nap("after", 1.0, "other"), tool=bank.tool())

    assert (result.steps["after"].ended, result.makespan) == (near(2), near(5))


async def test_it_has_as_long_as_people_have() -> None:
    """A tool that never comes back holds its step no longer than a person who never answers would."""
    bank = Bank("lost", seconds=3600)

    result = await run(charge(), tool=bank.tool(), questions=QuestionRule(answer_within=60.0))

    assert (states(result), result.makespan) == ({"pay": "unknown"}, near(60))


async def test_it_is_stopped_with_the_run() -> None:
    bank = Bank("lost", seconds=3600)
    async with dagrun.start(Plan(steps=[charge()]), tools=[bank.tool()]) as running:
        await anyio.sleep(1)
        running.cancel()
        result = await running.result()

    assert (states(result), result.makespan, bank.asked) == ({"pay": "unknown"}, near(1), [])


# In a later process ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["lost", "never"])
async def test_a_call_that_was_cut_off_is_asked_about_when_the_run_goes_on(act: str) -> None:
    """It is never made again on suspicion."""
    journal, bank = MemoryJournal(), Bank("for ever" if act == "lost" else "sleeps", "well")
    if act == "never":
        bank = _Slow("never", "well")
    tools = [bank.tool()]
    async with dagrun.start(Plan(steps=[charge()]), tools=tools, journal=journal, run_id="r") as running:
        await anyio.sleep(1)
        running.suspend()
    assert bank.asked == []

    async with dagrun.resume("r", journal=journal, tools=tools) as again:
        result = await again.result()

    assert (result.status, result.output, bank.asked) == (Status.SUCCEEDED, 7, bank.keys[:1])
    assert len(set(bank.keys)) == len(bank.keys) == (1 if act == "lost" else 2)


class _Slow(Bank):
    """A bank whose first call hangs before it has booked anything."""

    async def _charge(self, amount: int, context: ToolContext) -> int:
        if not self.keys:
            self.keys.append(context.idempotency_key)
            await anyio.sleep_forever()
        return await super()._charge(amount, context)


async def test_a_run_that_is_suspended_meanwhile_asks_once_more() -> None:
    """The question is on record; what the tool was about to say is not."""
    journal, bank, events = MemoryJournal(), Bank("lost", seconds=10), list[Event]()
    tools = [bank.tool()]
    async with dagrun.start(Plan(steps=[charge()]), tools=tools, journal=journal, run_id="r") as running:
        await anyio.sleep(1)
        running.suspend()
        assert (await running.result()).makespan == near(1)
    assert bank.asked == []

    async with dagrun.resume("r", journal=journal, tools=tools, on_event=events.append) as again:
        result = await again.result()

    assert (result.output, bank.asked, len(bank.keys)) == (7, bank.keys, 1)
    assert not [event for event in events if isinstance(event, QuestionAsked | ReplanRequested)]
