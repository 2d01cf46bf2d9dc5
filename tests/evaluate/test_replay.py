"""A recorded run comes to the same when it is played from its record: random plans, repairs, suspensions, hosts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import anyio
import pytest

import dagrun
from acts import STAGE, TOOLS, Act, Stage
from dagrun import (
    Add,
    Answer,
    Applied,
    ApprovalRule,
    Brief,
    Cassette,
    Condition,
    Event,
    HedgeRule,
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
from dagrun.errors import CannotPlan
from dagrun.evaluate.replay import Order, RecordedOutcomes
from dagrun.events import AttemptEnded
from dagrun.kernel.model import event as events
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.question import Choice
from dagrun.testing import run_virtual
from played_again import again, differs_again
from random_cases import GRID, Case, make_case
from seeds import NIGHT
from view_runs import RICH, Mirrors, rich_tools

pytestmark = pytest.mark.real_time  # a virtual clock of its own

# A planner answers when a ceiling is reached; a step is released when another ends the run: which is first is chance.
AT_ONE_INSTANT = {44, 1197}
Kind: TypeAlias = Callable[[MemoryJournal], Awaitable[None]]
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


def play(seeds: range) -> Counter[Status]:
    """Play random runs from their records; return how they ended."""
    ends: Counter[Status] = Counter()

    async def one(case: Case) -> list[str]:
        journal = MemoryJournal()
        ends[await record(case, journal)] += 1
        return await again(journal, "r", TOOLS)

    for seed in seeds:
        case = make_case(seed)
        if is_clear(case) and seed not in AT_ONE_INSTANT:
            found = run_virtual(one, case)
            assert found == [], f"seed {seed}: {found[:5]}"
    return ends


def test_random_runs_come_to_the_same_again() -> None:
    """With retries, fallbacks, lists, limits, repairs, approvals, and tools that hang, exit, or will not stop."""
    ends = play(range(60))
    assert ends[Status.SUCCEEDED] > 5
    assert ends[Status.FAILED] > 1
    assert ends[Status.UNKNOWN] > 5


@pytest.mark.rigs
def test_many_random_runs_come_to_the_same_again() -> None:
    """The same for rarer runs."""
    ends = play(range(1_000, 1_200 if NIGHT else 1_100))
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


SLOW: set[str] = set()


@tool(effect="read")
async def lag(what: str) -> str:
    """Take a second, but a minute the first time that it is the last one."""
    is_first = what == "9" and what not in SLOW
    SLOW.add(what)
    await anyio.sleep(60 if is_first else 1)
    return f"{what} again" if what == "9" and not is_first else what


async def hedged(journal: MemoryJournal) -> None:
    """The second call of a slow step has won."""
    SLOW.clear()
    step = Step(id="all", tool="lag", for_each=[f"{n}" for n in range(10)], args={"what": "${item}"})
    policy = Policy(hedge=HedgeRule(min_calls=5), max_running=3)
    result = await dagrun.run(Plan(steps=[step]), tools=[lag], policy=policy, journal=journal, run_id="r")
    assert result.steps["all[9]"].output == "9 again"


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


class Ponders:
    """A critic that takes three seconds to pass the output of one step."""

    name = "ponders"

    def applies_to(self, step: Step) -> bool:
        return step.id == "a"

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        await anyio.sleep(3)
        return Verdict("pass")


async def cancelled_in_its_only_review(journal: MemoryJournal) -> None:
    """No verdict of the critic is on record, and still the step waited for one."""
    steps = [
        Step(id="a", tool="look", args={"what": "x"}),
        Step(id="b", tool="look", args={"what": "y", "seconds": 5.0}),
    ]
    async with dagrun.start(Plan(steps=steps), tools=[look], critics=[Ponders()], journal=journal, run_id="r") as run:
        await anyio.sleep(2)
        run.cancel("a", "why")
        assert (await run.result()).steps["a"].state != "succeeded"


async def suspended_in_its_second_review(journal: MemoryJournal) -> None:
    """The critic has judged one element when the run is suspended, which is no end of a review."""
    steps = [Step(id="a", tool="look", args={"what": "${item}", "seconds": 1.0}, for_each=["x", "y"])]
    policy = Policy(max_running=1)
    options: Any = {"tools": [look], "critics": [Ponders()], "policy": policy, "journal": journal, "run_id": "r"}
    async with dagrun.start(Plan(steps=steps), **options) as run:
        await anyio.sleep(6)
        run.suspend("why")
        await run.result()


@tool(effect="read")
async def cling(seconds: float) -> float:
    """Not to be stopped."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(seconds)
    return seconds


async def abandoned_beside_another(journal: MemoryJournal) -> None:
    """A call is given up a grace period after its cancellation; in between, another step ends."""
    steps = [
        Step(id="a", tool="cling", args={"seconds": 50.0}),
        Step(id="b", tool="look", args={"what": "y", "seconds": 1.5}),
    ]
    plan = Plan(steps=[*steps, Step(id="c", tool="look", args={"what": "z"}, depends_on=["b"])])
    async with dagrun.start(plan, tools=[look, cling], policy=Policy(grace=1.0), journal=journal, run_id="r") as run:
        await anyio.sleep(1)
        run.cancel("a", "why")
        await run.result()


KINDS = (
    abandoned_beside_another,
    cancelled_in_its_only_review,
    suspended_in_its_second_review,
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
    hedged,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_run_comes_to_the_same_again(kind: Kind) -> None:
    """Without its tools: their contracts are on record."""
    assert differs_again(kind) == []


@pytest.mark.parametrize(
    "kind", [stopped_and_resumed, spliced_by_its_host, written_for_a_goal, judged, in_doubt, hedged]
)
def test_its_state_is_the_same_to_the_last_digit(kind: Kind) -> None:
    """On a virtual clock the times are equal, too, and so is the hash of the state."""

    async def main() -> list[str]:
        journal = MemoryJournal()
        await kind(journal)
        cassette = await Cassette.from_journal("r", journal=journal)
        await cassette.run()
        return [(await dagrun.replay("r", journal=one)).hash for one in (journal, cassette.journal)]

    first, second = run_virtual(main)
    assert first == second


# Lookups with a fault -------------------------------------------------------------------------------------------------


def first_attempt(outcomes: RecordedOutcomes) -> None:
    """Look calls up by their step alone."""
    outcomes.calls = {(step, number): outcomes.calls[step, 1] for step, number in outcomes.calls}


def first_request(outcomes: RecordedOutcomes) -> None:
    """Look answers of the planner up by the order of requests alone: the last one first."""
    outcomes.replies = defaultdict(list, {number: told[::-1] for number, told in outcomes.replies.items()})


def any_question(outcomes: RecordedOutcomes) -> None:
    """Look answers up by the kind of question."""
    ends = [told for told in outcomes.answers.values() if told]
    outcomes.answers = defaultdict(list, dict.fromkeys(outcomes.answers, ends[0]))


def no_deed(outcomes: RecordedOutcomes) -> None:
    """Forget the host."""
    outcomes.host_actions.clear()


async def well_at_last(journal: MemoryJournal) -> None:
    """The second attempt succeeds."""
    await dagrun.run(Plan(steps=[Step(id="a", tool="stumble")]), tools=[stumble], journal=journal, run_id="r")


async def asked_twice(journal: MemoryJournal) -> None:
    """A person agrees to one call, and not to the other."""

    async def some(question: Question) -> bool:
        return question.step == "a"

    steps = [Step(id=id_, tool="send", args={"text": id_}) for id_ in "ab"]
    policy = Policy(approve=[ApprovalRule(tool="send")])
    await dagrun.run(Plan(steps=steps), tools=[send], approver=some, policy=policy, journal=journal, run_id="r")


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (well_at_last, first_attempt),
        (written_for_a_goal, first_request),
        (asked_twice, any_question),
        (spliced_by_its_host, no_deed),
    ],
)
def test_a_lookup_by_less_than_its_key_is_seen(
    kind: Kind, fault: Callable[[RecordedOutcomes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = RecordedOutcomes.__init__
    assert differs_again(kind) == []
    monkeypatch.setattr("dagrun.evaluate.replay._PATIENCE", 100.0)

    def broken(outcomes: RecordedOutcomes, recorded: Sequence[Event]) -> None:
        read(outcomes, recorded)
        fault(outcomes)

    monkeypatch.setattr(RecordedOutcomes, "__init__", broken)
    assert differs_again(kind) != []


def test_what_came_first_at_one_instant_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times alone do not say so."""

    async def only_sleep(order: Order, at: float, event: Event, began: Event | None = None) -> None:
        await anyio.sleep_until(at)

    monkeypatch.setattr(Order, "turn", only_sleep)
    assert differs_again(cancelled_while_it_was_repaired) + differs_again(wrong_in_many_ways) != []


# What was not recorded ------------------------------------------------------------------------------------------------


async def played(kind: Kind, **options: Any) -> tuple[Status, list[str], str]:
    """Record run "r", and play it with other options; return its status, what it missed, and where it differs."""
    journal = MemoryJournal()
    await kind(journal)
    cassette = await Cassette.from_journal("r", journal=journal)
    result = await cassette.run(**options)
    return result.status, [f"{miss.step}: {miss}" for miss in cassette.misses], cassette.difference


def test_an_attempt_that_was_not_recorded_is_a_miss_that_names_it() -> None:
    """Today's policy makes one more."""

    @tool(effect="read")
    async def away() -> str:
        raise ConnectionError("nobody answers")

    async def once(journal: MemoryJournal) -> None:
        policy = Policy(retry=RetryRule(max_attempts=1))
        await dagrun.run(
            Plan(steps=[Step(id="b", tool="away")]), tools=[away], policy=policy, journal=journal, run_id="r"
        )

    status, misses, difference = run_virtual(partial(played, once, policy=Policy()))
    assert (status, misses) == (Status.FAILED, ["b: step b attempt 2 was not recorded"])
    assert difference.startswith("AttemptEnded of step b attempt 1 (ready) came in place of AttemptEnded of step b")


def test_a_request_that_was_not_recorded_is_a_miss() -> None:
    async def without(journal: MemoryJournal) -> None:
        plan, policy = Plan(steps=[Step(id="a", tool="refuse_all", args={"text": "x"})]), Policy(max_replans=0)
        await dagrun.run(plan, tools=[refuse_all], planner=Slow(), policy=policy, journal=journal, run_id="r")

    status, misses, _ = run_virtual(partial(played, without, policy=Policy()))
    assert (status, misses) == (Status.FAILED, ["a: the answer of the planner about a was not recorded"])


def test_a_question_that_was_not_recorded_is_a_miss() -> None:
    """Nobody answers, so the run waits, until it is suspended."""

    async def unasked(journal: MemoryJournal) -> None:
        await dagrun.run(Plan(steps=PAIR), tools=[look, send], journal=journal, run_id="r")

    status, misses, _ = run_virtual(
        partial(played, unasked, policy=Policy(approve=[ApprovalRule(tool="send")]), attended=True)
    )
    assert (status, misses) == (
        Status.CANCELLED,
        ["b: the question about b was not recorded", ": what the run waits for was not recorded"],
    )


def test_a_value_that_is_not_on_record_is_a_miss_that_names_the_attempt() -> None:
    async def kept_out(journal: MemoryJournal) -> None:
        policy = Policy(unrecorded=["look"])
        await dagrun.run(Plan(steps=PAIR), tools=[look, send], policy=policy, journal=journal, run_id="r")

    _, misses, _ = run_virtual(partial(played, kept_out))
    assert misses == ["a: what step a attempt 1 gave was not recorded: the policy keeps it out of the record"]


def test_other_limits_come_to_something_else() -> None:
    """Today's policy on yesterday's run."""
    status, misses, _ = run_virtual(partial(played, rich, policy=Policy(max_replans=0, last_resort="escalate")))
    assert (status, misses) == (Status.ESCALATED, [])


def test_a_run_whose_record_breaks_off_is_suspended_there() -> None:
    """As after a crash."""

    async def main() -> tuple[Status, str, Any]:
        journal = MemoryJournal()
        await rich(journal)
        lines = await journal.read("r")
        number = next(n for n, line in enumerate(lines) if b"Spliced" in line.text) + 1
        cassette = Cassette("r", lines[:number])
        result = await cassette.run()
        replayed = await dagrun.replay("r", journal=cassette.journal)
        assert isinstance(replayed.events[number - 1], events.Spliced)
        return result.status, result.reason, (cassette.misses, cassette.difference)

    assert run_virtual(main) == (Status.CANCELLED, "its record ends here", ([], ""))


def test_hundreds_of_calls_are_found_without_a_search_through_all() -> None:
    """They are looked up by key: each is looked for once."""
    count = 300

    async def many(journal: MemoryJournal) -> None:
        step = Step(id="all", tool="look", for_each=[f"{n}" for n in range(count)], args={"what": "${item}"})
        await dagrun.run(Plan(steps=[step]), tools=[look], journal=journal, run_id="r")

    assert run_virtual(partial(played, many)) == (Status.SUCCEEDED, [], "")
