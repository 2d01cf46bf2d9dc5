"""A recorded run comes to the same when it is carried out again from its record: random plans, repairs, resumes."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, cast

import anyio
import pytest

import dagrun
from acts import STAGE, TOOLS, Act, Stage
from dagrun import (
    Add,
    Answer,
    Applied,
    Brief,
    CannotPlan,
    Cassette,
    MemoryJournal,
    Patch,
    Plan,
    Policy,
    Question,
    Replace,
    RetryRule,
    Status,
    Step,
    ToolContext,
    ToolError,
    Verdict,
    tool,
)
from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.case_file import HostDeed
from dagrun.evaluate.cases.host_deeds import run_with_host
from dagrun.model.condition import Condition
from dagrun.model.event import AttemptEnded, Event
from dagrun.model.outcome import Outcome
from dagrun.model.question import Choice
from dagrun.testing import run_virtual
from played_again import again, differs_again
from random_cases import GRID, Case, make_case
from view_runs import RICH, Mirrors, rich_tools

pytestmark = pytest.mark.real_time  # a virtual clock of its own

# A planner answers when a ceiling is reached; a step is released when another ends the run: which is first is chance.
AT_ONE_INSTANT = {44, 1197}
GOOD: Act = {"does": "succeeds", "seconds": GRID, "gives": 4}


# Random runs ----------------------------------------------------------------------------------------------------------


class Fixer:
    """Repairs what has failed with something that works, with nothing, or with what is wrong; by a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._asked = 0

    async def revise(self, brief: Brief) -> Patch | None:
        """Answer after some time."""
        self._asked += 1
        rng, number = random.Random(f"fixer {self._seed} {self._asked}"), self._asked
        await anyio.sleep(rng.randint(0, 3) * GRID)
        steps = [trigger.step for trigger in brief.triggers if trigger.step and "[" not in trigger.step]
        choice = rng.random()
        if choice < 0.1 or not steps:
            raise CannotPlan("no idea")
        if choice < 0.2:
            return None
        if choice < 0.3:
            return Patch(edits=[Replace(id="nobody", step=Step(id=f"n{number}", tool="pure_act"))])
        new = [Step(id=f"n{number}-{at}", tool="spare_act", args={"acts": [GOOD]}) for at, _ in enumerate(steps)]
        return Patch(edits=[Replace(id=id_, step=step) for id_, step in zip(steps, new, strict=True)])


async def approve(question: Question) -> Answer | None:
    """Agree to most, and say of an effect in doubt what its id says."""
    rng = random.Random(f"{question.step} {question.kind}")
    await anyio.sleep(rng.randint(0, 4) * GRID)
    yes, no, *_ = question.choices
    value = {"value": 2, "rows": [], "trail": "of a person"} if question.kind == "effect" else None
    return Answer(cast("Choice", rng.choice((yes, yes, no))), value, by="ann", note="seen")


async def record(case: Case, journal: MemoryJournal) -> Status:
    """Carry out a random plan, with somebody who repairs and somebody who answers, if the case has them."""
    STAGE.set(Stage())
    options: dict[str, Any] = {} if case.planner is None else {"planner": Fixer(case.planner)}
    if case.approver is not None:
        options["approver"] = approve
    run = await dagrun.run(
        case.plan, tools=TOOLS, policy=case.policy, journal=journal, run_id="r", seed=case.seed, **options
    )
    return run.status


def is_clear(case: Case) -> bool:
    """Whether no call takes its time to stop: for how long is on no record."""
    return all(act["does"] != "clings" for step in case.plan.steps for act in step.args["acts"])


def play(seeds: range) -> Counter[str]:
    """Carry random runs out again; return how they ended, or that they wait for a person."""
    ends: Counter[str] = Counter()

    async def one(case: Case) -> list[str]:
        journal = MemoryJournal()
        ends[await record(case, journal)] += 1
        return [] if await waits(journal) else await again(journal, "r", TOOLS)

    for seed in seeds:
        case = make_case(seed)
        if is_clear(case) and seed not in AT_ONE_INSTANT:
            found = run_virtual(one, case)
            assert found == [], f"seed {seed}: {found[:5]}"
    return ends


async def waits(journal: MemoryJournal) -> bool:
    """Whether a run is not over, because it waits for a person; then there is no case of it."""
    if (await dagrun.replay("r", journal=journal)).has_ended:
        return False
    with pytest.raises(CasesRefused, match="run r has not ended"):
        await Cassette.from_journal("r", journal=journal)
    return True


def test_random_runs_come_to_the_same_again() -> None:
    """With retries, fallbacks, lists, limits, repairs, approvals, and tools that hang, exit, or will not stop."""
    ends = play(range(60))
    assert ends[Status.SUCCEEDED] > 5
    assert ends[Status.FAILED] > 1
    assert ends[Status.UNKNOWN] > 5


@pytest.mark.rigs
def test_many_random_runs_come_to_the_same_again() -> None:
    """The same for rarer runs."""
    ends = play(range(1_000, 1_200))
    assert set(ends) >= {Status.SUCCEEDED, Status.FAILED, Status.UNKNOWN, Status.OVER_BUDGET}


# Runs of every kind ---------------------------------------------------------------------------------------------------


async def approve_all(question: Question) -> Answer:
    """Agree after some time."""
    await anyio.sleep(0.4)
    return Answer("approve", by="ann", note="invoice seen")


async def rich(journal: MemoryJournal) -> None:
    """A patch, a retry, a question, a default, a list, three places for calls at once."""
    facts: dict[str, Any] = {"planner": Mirrors(), "approver": approve_all, "policy": Policy(max_running=3), "seed": 3}
    await dagrun.run(RICH, tools=rich_tools(), journal=journal, run_id="r", **facts)


@tool(effect="read")
async def look(what: str, seconds: float = 1.0) -> str:
    """Look something up."""
    await anyio.sleep(seconds)
    return what


@tool(effect="effectful")
async def send(text: str, context: ToolContext) -> str:
    """Send it."""
    await anyio.sleep(1)
    context.report_usage(tokens=7)
    context.report_confidence(0.8)
    return f"sent {text}"


@tool(effect="effectful")
async def lose(text: str) -> str:
    """Send it, perhaps."""
    await anyio.sleep(1)
    raise ConnectionError("the line is dead")


@tool(effect="read")
async def refuse_all(text: str) -> str:
    """Do nothing."""
    raise ToolError("no")


PAIR = (
    Step(id="a", tool="look", args={"what": "x"}),
    Step(id="b", tool="send", args={"text": "${a}"}),
)


async def stopped_and_resumed(journal: MemoryJournal) -> None:
    """A call that was stopped in the middle is made again after the run is resumed."""
    async with dagrun.start(Plan(steps=PAIR), tools=[look, send], journal=journal, run_id="r") as run:
        await anyio.sleep(0.5)
        run.suspend()
        await run.result()
    async with dagrun.resume("r", tools=[look, send], journal=journal) as run:
        await run.result()


async def spliced_by_its_host(journal: MemoryJournal) -> None:
    """The host adds a step, cancels one, and changes what is answered."""
    slow = Step(id="slow", tool="look", args={"what": "y", "seconds": 60.0})
    async with dagrun.start(Plan(steps=[*PAIR, slow]), tools=[look, send], journal=journal, run_id="r") as run:
        await anyio.sleep(1.5)
        await run.splice(Patch(edits=[Add(step=Step(id="c", tool="look", args={"what": "${b}"}))], output="${c}"))
        await anyio.sleep(1)
        run.cancel("slow")
        await run.result()


async def cancelled(journal: MemoryJournal) -> None:
    """The host has enough of it."""
    async with dagrun.start(Plan(steps=PAIR), tools=[look, send], journal=journal, run_id="r") as run:
        await anyio.sleep(1.5)
        run.cancel()
        await run.result()


async def cancelled_at_once(journal: MemoryJournal) -> None:
    """Nothing has begun."""
    async with dagrun.start(Plan(steps=PAIR), tools=[look, send], journal=journal, run_id="r") as run:
        run.cancel()
        await run.result()


@tool(effect="read")
async def stumble(context: ToolContext) -> str:
    """Fail at once, the first time."""
    if context.attempt == 1:
        raise ToolError("not now", retryable=True)
    return "well"


async def cancelled_when_a_call_had_failed_at_once(journal: MemoryJournal) -> None:
    """No time has passed, no step has ended, and no call is open; but one was made."""
    failed = anyio.Event()

    def see(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            failed.set()

    plan = Plan(steps=[Step(id="a", tool="stumble")])
    async with dagrun.start(plan, tools=[stumble], journal=journal, run_id="r", on_event=see) as run:
        await failed.wait()
        run.cancel()
        await run.result()


async def cancelled_before_it_was_planned(journal: MemoryJournal) -> None:
    """Nobody has asked the planner."""
    await _cancelled_goal(journal, 0)


async def cancelled_while_it_was_planned(journal: MemoryJournal) -> None:
    """The planner had not answered."""
    await _cancelled_goal(journal, 0.25)


async def cancelled_while_its_second_plan_was_written(journal: MemoryJournal) -> None:
    """The first was refused; of the second nothing is on record."""
    await _cancelled_goal(journal, 1.25)


async def _cancelled_goal(journal: MemoryJournal, after: float) -> None:
    async with dagrun.start(goal="look", tools=[look, send], planner=Writer(), journal=journal, run_id="r") as run:
        if after:
            await anyio.sleep(after)
        run.cancel()
        await run.result()


class Slow:
    """Repairs, after a time."""

    async def revise(self, brief: Brief) -> Patch | None:
        """Think."""
        await anyio.sleep(5)
        return None


@tool(effect="read")
async def tidy(text: str) -> str:
    """Look for ever, and tidy up when told to stop."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.1)
    return text


async def cancelled_while_it_was_repaired(journal: MemoryJournal) -> None:
    """As another call takes a time to stop, that of the planner is on record, after the end of what it was for."""
    plan = Plan(steps=[Step(id=name, tool=name, args={"text": "x"}) for name in ("refuse_all", "tidy")])
    async with dagrun.start(plan, tools=[refuse_all, tidy], planner=Slow(), journal=journal, run_id="r") as run:
        await anyio.sleep(1)
        run.cancel()
        await run.result()


class Writer:
    """Writes a plan step by step, with a step that is none, then a good one; and wants to see what comes of it."""

    async def revise(self, brief: Brief) -> AsyncIterator[Add | Patch]:
        """Write."""
        await anyio.sleep(0.5)
        if brief.is_next:
            yield Patch(edits=[Add(step=Step(id="last", tool="send", args={"text": "${b}"}))], output="${last}")
        elif brief.refused:
            yield Patch(edits=[Add(step=Step(id="b", tool="look", args={"what": "${a}"}))], more=True)
        else:
            yield Add(step=Step(id="a", tool="look", args={"what": "x"}))
            await anyio.sleep(0.5)
            yield Add(step=Step(id="b", tool="nothing"))


async def written_for_a_goal(journal: MemoryJournal) -> None:
    """A plan that was refused, repaired, and went on when everything in it had ended."""
    await dagrun.run(goal="look and send", tools=[look, send], planner=Writer(), journal=journal, run_id="r")


class Doubter:
    """Objects to the first output."""

    name = "doubter"

    def applies_to(self, step: Step) -> bool:
        """Every step."""
        return True

    def __init__(self) -> None:
        self._seen = 0

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge."""
        self._seen += 1
        return Verdict("fail", reason="too short") if self._seen == 1 else Verdict("pass")


async def judged(journal: MemoryJournal) -> None:
    """A critic has not passed an output."""
    await dagrun.run(Plan(steps=PAIR), tools=[look, send], critics=[Doubter()], journal=journal, run_id="r")


async def in_doubt(journal: MemoryJournal) -> None:
    """A person says what became of a call."""

    async def settle(question: Question) -> Answer:
        return Answer("took_effect", "sent after all", by="ann")

    plan = Plan(steps=[Step(id="a", tool="lose", args={"text": "x"}), Step(id="b", tool="look", args={"what": "${a}"})])
    await dagrun.run(plan, tools=[lose, look], approver=settle, journal=journal, run_id="r")


SENT: set[str] = set()


async def was_sent(key: str) -> Applied | bool:
    """Look into the box of what was sent: what has gone out first is there."""
    SENT.add(key)
    is_first, seconds = len(SENT) == 1, len(SENT)
    await anyio.sleep(seconds)
    return Applied("found in the box") if is_first else False


@tool(effect="effectful", reconcile=was_sent)
async def send_or_lose(text: str) -> str:
    """Send it, perhaps: the second one is lost."""
    await anyio.sleep(2)
    raise ConnectionError("the line is dead")


async def found_out_of_two(journal: MemoryJournal) -> None:
    """Of two calls in doubt, one has taken effect; the other is made again, and lost again."""
    SENT.clear()
    steps = [Step(id=text, tool="send_or_lose", args={"text": text}, retry=RetryRule(max_attempts=1)) for text in "ab"]
    plan = Plan(steps=[steps[0], steps[1].model_copy(update={"depends_on": ("a",)})])
    result = await dagrun.run(plan, tools=[send_or_lose], journal=journal, run_id="r")
    assert [str(step.state) for step in result.steps.values()] == ["succeeded", "unknown"]


async def cancelled_in_doubt_and_taken_up_again(journal: MemoryJournal) -> None:
    """It has ended as unknown; then it is found out that one call took effect, and the other is made again."""
    SENT.clear()
    async with dagrun.start(IN_DOUBT, tools=[send_or_lose], journal=journal, run_id="r") as run:
        await anyio.sleep(1.5)
        run.cancel()
        assert (await run.result()).status is Status.UNKNOWN
    async with dagrun.resume("r", tools=[send_or_lose], journal=journal) as run:
        assert (await run.result()).steps["a"].state == "succeeded"


IN_DOUBT = Plan(steps=[Step(id=id_, tool="send_or_lose", args={"text": id_}) for id_ in "az"])


async def wrong_in_many_ways(journal: MemoryJournal) -> None:
    """Each step fails in another way, or has a condition that does not hold."""
    errors: dict[str, BaseException] = {
        "key": KeyError("total"),
        "limit": Limited(429),
        "down": Limited(503),
        "away": ToolError("gone", unreachable=True),
        "lacks": ToolError("no date", missing_input="date"),
        "later": ToolError("not now", retryable=True, retry_after=3.0),
        "exit": SystemExit(3),
        "forbidden": ToolError("no", permission=True),
    }

    @tool(effect="read")
    async def fail(how: str) -> int:
        """Fail."""
        await anyio.sleep(0.25)
        if how == "wrong":
            return cast("int", "seven")
        if how in errors:
            raise errors[how]
        return 7

    steps = [Step(id=how, tool="fail", args={"how": how}) for how in (*errors, "wrong")]
    condition = Condition(ref="odd", op="<", value=5)
    steps.append(Step(id="odd", tool="fail", args={"how": "not"}, success=condition))
    await dagrun.run(Plan(steps=steps), tools=[fail], approver=refuse, journal=journal, run_id="r")


async def refuse(question: Question) -> bool:
    """Say no."""
    return False


class Limited(Exception):
    """What a client of HTTP raises."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status_code = status


KINDS = (
    rich,
    stopped_and_resumed,
    spliced_by_its_host,
    cancelled,
    cancelled_at_once,
    cancelled_when_a_call_had_failed_at_once,
    cancelled_while_it_was_planned,
    cancelled_before_it_was_planned,
    cancelled_while_its_second_plan_was_written,
    cancelled_while_it_was_repaired,
    written_for_a_goal,
    judged,
    in_doubt,
    found_out_of_two,
    cancelled_in_doubt_and_taken_up_again,
    wrong_in_many_ways,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_run_comes_to_the_same_again(kind: Callable[[MemoryJournal], Awaitable[None]]) -> None:
    """Without its tools: their contracts are on record."""

    assert differs_again(kind) == []


# What is not on a cassette --------------------------------------------------------------------------------------------


def test_what_follows_a_step_waits_for_its_end_in_the_run_that_was_taken_up_again() -> None:
    """It had ended before, in doubt, and is opened again."""
    told: list[str] = []

    def tell(event: Event) -> None:
        told.append(f"{type(event).__name__} {getattr(event, 'step', '')}".strip())

    async def main() -> None:
        SENT.clear()
        added = {"edits": [{"op": "add", "step": {"id": "d", "tool": "look", "args": {"what": "x"}}}]}
        deeds = [HostDeed(takes=1.5, cancel="*"), HostDeed(resume=True), HostDeed(after="a", splice=added)]
        async with dagrun.Engine() as engine:
            result = await run_with_host(IN_DOUBT, deeds, [], tell, engine, tools=[send_or_lose, look])
        assert result.steps["d"].state == "succeeded"

    run_virtual(main)
    assert told.index("StepSettled a") < told.index("Spliced")


def test_a_run_that_is_over_is_not_taken_up_again() -> None:
    """A case that says so is told what has become of the run."""

    async def main() -> list[str]:
        strange: list[str] = []
        async with dagrun.Engine() as engine:
            deeds = [HostDeed(resume=True)]
            await run_with_host(Plan(steps=PAIR), deeds, strange, lambda _: None, engine, tools=[look, send])
        return strange

    assert run_virtual(main) == ["the host cannot resume the run, as it did: it has ended as succeeded"]


def test_a_call_that_is_not_on_the_cassette_fails_and_shows_the_nearest_one() -> None:
    async def main() -> Cassette:
        journal = MemoryJournal()
        await dagrun.run(Plan(steps=PAIR), tools=[look, send], journal=journal, run_id="r")
        cassette = await Cassette.from_journal("r", journal=journal, tools=[look, send])
        other = Step(id="a", tool="look", args={"what": "z", "seconds": 1.0})
        result = await cassette.run(plan=Plan(steps=[other]))
        assert result.status is Status.FAILED
        return cassette

    (text,) = run_virtual(main).strange
    assert 'step a: no act of look is for the arguments {"what": "z", "seconds": 1.0}; the nearest is' in text
    assert 'what is "z", not "x"' in text


def test_a_request_to_the_planner_that_is_not_on_the_cassette_fails_and_shows_the_nearest_one() -> None:
    async def main() -> Cassette:
        journal = MemoryJournal()
        await rich(journal)
        cassette = await Cassette.from_journal("r", journal=journal, tools=rich_tools())
        steps = [Step(id=id_, tool="fetch", args={"source": "old"}) for id_ in ("orders", "more")]
        await cassette.run(plan=Plan(steps=steps), policy=Policy(max_running=1))
        return cassette

    assert "the planner is asked about more; the nearest reply is about orders (which was used)" in [
        text.partition(",")[0] for text in run_virtual(main).strange
    ]


def test_other_limits_come_to_something_else() -> None:
    """Today's policy on yesterday's run."""

    async def main() -> tuple[Status, Sequence[str]]:
        journal = MemoryJournal()
        await rich(journal)
        cassette = await Cassette.from_journal("r", journal=journal)
        result = await cassette.run(policy=Policy(max_replans=0, last_resort="escalate"))
        return result.status, cassette.strange

    assert run_virtual(main) == (Status.ESCALATED, [])


def test_equal_calls_of_two_steps_are_told_apart_by_the_step() -> None:
    """One got an answer at once, the other at its second attempt."""
    seen: Counter[str] = Counter()

    @tool(effect="read")
    async def flaky(context: ToolContext) -> str:
        """Fail the first time in one step."""
        seen[context.step] += 1
        if context.step == "two" and seen["two"] == 1:
            raise ToolError("not now", retryable=True)
        return f"{context.step} {seen[context.step]}"

    async def main() -> list[str]:
        journal = MemoryJournal()
        plan = Plan(steps=[Step(id="one", tool="flaky"), Step(id="two", tool="flaky")])
        await dagrun.run(plan, tools=[flaky], journal=journal, run_id="r")
        return await again(journal, "r")

    assert run_virtual(main) == []


# What is shown, and how fast ------------------------------------------------------------------------------------------


def test_what_must_not_be_shown_is_redacted_and_the_run_still_comes_to_the_same() -> None:
    """Arguments are filled in from redacted outputs, so that both are redacted alike."""

    @tool(effect="read")
    async def card(order: int) -> dict[str, str]:
        """Look the card up."""
        return {"number": "4111 1111 1111 1111", "password": "open-sesame"}

    async def main() -> str:
        journal = MemoryJournal()
        plan = Plan(
            steps=[
                Step(id="card", tool="card", args={"order": 1}),
                Step(id="tell", tool="look", args={"what": "${card.number}"}),
            ]
        )
        policy = Policy(redact=["card"])
        await dagrun.run(plan, tools=[card, look], policy=policy, journal=journal, run_id="r")
        cassette = await Cassette.from_journal("r", journal=journal, tools=[card, look])
        result = await cassette.run()
        assert result.status is Status.SUCCEEDED
        assert cassette.strange == []
        return cassette.case.model_dump_json()

    text = run_virtual(main)
    assert "4111" not in text
    assert "open-sesame" not in text


def test_a_thousand_calls_are_found_without_a_search_through_all() -> None:
    """The budget is over ten times what it takes; a look at every act for every call takes a hundred times as long."""
    count = 1_000

    async def main() -> float:
        journal = MemoryJournal()
        step = Step(id="all", tool="look", for_each=[f"{n}" for n in range(count)], args={"what": "${item}"})
        await dagrun.run(Plan(steps=[step]), tools=[look], journal=journal, run_id="r")
        cassette = await Cassette.from_journal("r", journal=journal)
        began = time.process_time()
        result = await cassette.run()
        assert (result.status, cassette.strange) == (Status.SUCCEEDED, [])
        return time.process_time() - began

    assert run_virtual(main) < 4


# Exactly the call that was made ---------------------------------------------------------------------------------------


@tool(effect="read")
async def fetch_all(body: dict[str, object] | None = None, url: str = "u", a: int = 0) -> int:
    """Fetch."""
    return 1


@pytest.mark.parametrize("knows_tools", [True, False])
@pytest.mark.parametrize(
    ("recorded", "called"),
    [
        ({"body": {"order": 17}}, {"body": {"order": 17, "force": True, "amount": 1e6}}),
        ({"body": {"order": 17}}, {"body": {"order": 17}, "url": "other"}),
        ({}, {"a": 5}),
        ({"a": 10_000_000_000}, {"a": 10_000_000_001}),
    ],
)
def test_a_call_with_more_or_other_arguments_is_not_on_the_cassette(
    recorded: dict[str, Any], called: dict[str, Any], knows_tools: bool
) -> None:
    async def main() -> None:
        journal = MemoryJournal()
        plans = [Plan(steps=[Step(id="s", tool="fetch_all", args=args)]) for args in (recorded, called)]
        await dagrun.run(plans[0], tools=[fetch_all], journal=journal, run_id="r")
        for plan, is_there in zip(plans, (True, False), strict=True):
            tools = [fetch_all] if knows_tools else None
            cassette = await Cassette.from_journal("r", journal=journal, tools=tools)
            result = await cassette.run(plan=plan)
            assert (result.status is Status.SUCCEEDED, cassette.strange == []) == (is_there, is_there)

    run_virtual(main)


def test_what_the_function_of_the_host_takes_out_is_not_on_the_cassette() -> None:
    def hide(text: str) -> str:
        return text.replace("ACME-4711", "[customer]")

    @tool(effect="read")
    async def find(order: str) -> dict[str, str]:
        """Find who has ordered."""
        return {"customer": "ACME-4711"}

    @tool(effect="read")
    async def refuse_customer(customer: str) -> str:
        """Refuse."""
        raise ToolError(f"no {customer}")

    async def main() -> str:
        journal = MemoryJournal()
        steps = [
            Step(id="a", tool="find", args={"order": "of ACME-4711"}),
            Step(id="b", tool="refuse_customer", args={"customer": "${a.customer}"}),
        ]
        tools = [find, refuse_customer]
        await dagrun.run(Plan(steps=steps), tools=tools, journal=journal, run_id="r", redact=hide)
        cassette = await Cassette.from_journal("r", journal=journal, tools=tools, redact=hide)
        result = await cassette.run()
        assert (result.status, cassette.strange) == (Status.FAILED, [])
        return cassette.case.model_dump_json()

    text = run_virtual(main)
    assert "4711" not in text
    assert "no [customer]" in text
