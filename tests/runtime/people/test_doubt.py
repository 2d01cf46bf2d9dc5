"""Steps that may have taken effect: only the very same call may follow, and the doubt stays until a call returns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

from dagrun import Answer, Effect, Question, RetryRule, State, Status, Step, ToolContext, ToolError
from dagrun.kernel.decide.recovery import Situation, decide, settled_state
from dagrun.kernel.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery
from dagrun.kernel.model.plan import OnFailure
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import StandIn
from replans import Thinker, instead, nap, run, start
from small_tools import AT_ONCE, near, scripted, states

pytestmark = pytest.mark.anyio

MISSING = Outcome(
    State.FAILED, None, Failure(ErrorKind.MISSING_INPUT, "no", nothing_happened=True, missing_input="region")
)
FORBIDDEN = Outcome(State.FAILED, None, Failure(ErrorKind.PERMISSION, "no", nothing_happened=True))
REFUSED = Outcome(State.FAILED, None, Failure(ErrorKind.TOOL, "no", nothing_happened=True))
LOST = Outcome(State.UNKNOWN, None, Failure(ErrorKind.CONNECTION, "gone", is_transient=True))

LATER = RetryRule(max_attempts=9, first_delay=60)


# The table --------------------------------------------------------------------------------------------------


def _doubted(**changes: Any) -> Situation:
    rule = RetryRule(max_attempts=3)
    return replace(Situation(effect=Effect.IDEMPOTENT, attempt=2, rule=rule, in_doubt=True), **changes)


def test_only_the_very_same_call_may_follow_one_in_doubt() -> None:
    """A person may not add an argument, and no other tool may be called; to try again is safe."""
    assert decide(MISSING, _doubted(can_ask=True)).recovery is Recovery.GIVE_UP
    assert decide(REFUSED, _doubted(fallback="other")).recovery is Recovery.GIVE_UP
    assert decide(LOST, _doubted()).recovery is Recovery.RETRY
    assert decide(FORBIDDEN, _doubted(can_ask=True)).recovery is Recovery.ASK


@pytest.mark.parametrize("on_failure", [None, "skip", "default", "stop"])
def test_what_a_later_attempt_vouches_for_does_not_settle_the_doubt(on_failure: OnFailure | None) -> None:
    """That one had no effect; the one before it may have."""
    decision = decide(REFUSED, _doubted(on_failure=on_failure))

    assert decision.recovery is (Recovery.STOP if on_failure == "stop" else Recovery.GIVE_UP)
    assert settled_state(REFUSED, decision, in_doubt=True) is State.UNKNOWN


@pytest.mark.parametrize("kind", [ErrorKind.BAD_OUTPUT, ErrorKind.SUCCESS_CONDITION, ErrorKind.CRITIC])
def test_a_call_that_returns_settles_the_doubt(kind: ErrorKind) -> None:
    """It took effect, then; what it gave is another matter."""
    outcome = Outcome(State.FAILED, None, Failure(kind, "no"))
    decision = decide(outcome, _doubted(on_failure="skip"))

    assert decision.recovery is Recovery.SKIP
    assert settled_state(outcome, decision, in_doubt=True) is State.FAILED
    assert settled_state(Outcome(State.SUCCEEDED), Decision(Recovery.PROCEED), in_doubt=True) is State.SUCCEEDED


# In a run ---------------------------------------------------------------------------------------------------

GONE = ConnectionResetError("gone")
BUSY = ToolError("busy", retryable=True)


def _put(*acts: Any, **options: Any) -> Any:
    return scripted("put", *acts, effect="idempotent", **options)


@pytest.mark.parametrize("end", [ToolError("no"), ToolError("no", permission=True), ToolError("no", unreachable=True)])
@pytest.mark.parametrize("on_failure", [None, "skip"])
async def test_a_step_whose_first_call_was_lost_ends_in_doubt(end: ToolError, on_failure: Any) -> None:
    """The second says that it did nothing, which says nothing of the first."""
    put, spare = _put(GONE, end, fallback="spare"), scripted("spare", 1, effect="idempotent")

    result = await run([Step(id="put", tool="put", retry=AT_ONCE, on_failure=on_failure)], None, put, spare)

    assert (states(result), result.status) == ({"put": "unknown"}, Status.UNKNOWN)
    assert (len(put.calls), spare.calls) == (2, [])


async def test_a_call_that_goes_through_at_last_settles_it() -> None:
    result = await run([Step(id="put", tool="put", retry=AT_ONCE)], None, _put(GONE, 7))

    assert (result.status, result.output) == (Status.SUCCEEDED, 7)


async def test_a_surprise_after_a_lost_call_is_no_doubt() -> None:
    """It has gone through; that its result is odd is another matter, which the planner may look at."""

    async def put(context: ToolContext) -> int:
        if context.attempt == 1:
            raise GONE
        context.surprise("it was there already")
        return 7

    planner = Thinker(None)
    tool = make_tool(put, effect="idempotent")

    result = await run([Step(id="put", tool="put", retry=AT_ONCE)], planner, tool)

    assert (planner.kinds, result.status, result.output) == ([["surprise"]], Status.SUCCEEDED, 7)


async def test_the_planner_is_told_of_the_doubt() -> None:
    planner = Thinker(instead("put", nap("look", 1.0)))

    result = await run([Step(id="put", tool="put", retry=AT_ONCE)], planner, _put(GONE, ToolError("no")))

    assert (planner.kinds, result.status) == ([["unknown_effect"]], Status.UNKNOWN)  # a look settles nothing


@pytest.mark.parametrize("whole", [False, True])
async def test_what_is_cancelled_before_it_could_try_again_is_in_doubt(whole: bool) -> None:
    """The pause between two attempts is no time without effects."""
    async with start([Step(id="put", tool="put", retry=LATER)], None, _put(GONE)) as handle:
        await anyio.sleep(1)
        handle.cancel(None if whole else "put")
        result = await handle.result()

    assert (states(result), result.status) == ({"put": "unknown"}, Status.UNKNOWN)


async def test_what_surely_did_nothing_is_cancelled_like_any_step() -> None:
    async with start([Step(id="put", tool="put", retry=LATER)], None, _put(BUSY)) as handle:
        await anyio.sleep(1)
        handle.cancel()
        result = await handle.result()

    assert states(result) == {"put": "cancelled"}


async def test_a_deadline_that_passes_in_between_leaves_it_in_doubt() -> None:
    """It waits for a slot to try again; an order to skip it cannot hide what it may have done."""
    retry = RetryRule(max_attempts=9, first_delay=4)
    put = Step(id="put", tool="put", retry=retry, deadline=5.0, on_failure="skip")

    result = await run([put, nap("slow", 10.0)], None, _put(GONE, 1), max_running=1)

    assert (states(result), result.makespan) == ({"put": "unknown", "slow": "succeeded"}, near(10))


# Other parameters -------------------------------------------------------------------------------------------


async def _pay(context: ToolContext, amount: int, account: str = "") -> str:
    return "paid"


def _payer(*acts: Any, effect: str) -> Any:
    return StandIn(make_tool(_pay, name="pay", effect=effect, needs_approval=False), *acts)


NO_ACCOUNT = ToolError("which account?", missing_input="account")


@pytest.mark.parametrize("effect", ["read", "idempotent", "effectful"])
async def test_a_person_may_complete_a_call_that_surely_did_nothing(effect: str) -> None:
    pay = _payer(NO_ACCOUNT, "paid", effect=effect)

    async def approver(question: Question) -> Answer:
        return Answer("approve", value="DE1")

    result = await run([Step(id="pay", tool="pay", args={"amount": 5})], None, pay, approver=approver)

    assert (result.output, [call.get("account") for call in pay.calls]) == ("paid", [None, "DE1"])


async def test_a_person_may_not_complete_a_call_that_may_have_gone_through() -> None:
    """With other parameters it would be another payment under the same key."""
    pay = _payer(GONE, NO_ACCOUNT, "paid", effect="idempotent")
    asked: list[Question] = []

    async def approver(question: Question) -> Answer:
        asked.append(question)
        return Answer("approve", value="DE1")

    result = await run([Step(id="pay", tool="pay", args={"amount": 5}, retry=AT_ONCE)], None, pay, approver=approver)

    assert (states(result), asked, len(pay.calls)) == ({"pay": "unknown"}, [], 2)


@pytest.mark.parametrize(
    ("effect", "first", "new", "is_refused"),
    [
        ("idempotent", GONE, {"amount": 6}, True),
        ("idempotent", GONE, {"amount": 5}, False),
        ("effectful", GONE, {"amount": 5}, True),
        ("effectful", ToolError("no"), {"amount": 6}, False),
        ("idempotent", ToolError("no"), {"amount": 6}, False),
        ("read", GONE, {"amount": 6}, False),
    ],
)
async def test_a_planner_may_change_a_call_only_where_it_surely_did_nothing(
    effect: str, first: BaseException, new: dict[str, int], is_refused: bool
) -> None:
    """The very same call of an idempotent tool may be made again; anything else would be a second effect."""
    pay = _payer(first, "paid", effect=effect)
    planner = Thinker(instead("pay", Step(id="again", tool="pay", args=new)))
    step = Step(id="pay", tool="pay", args={"amount": 5}, retry=RetryRule(max_attempts=1))

    result = await run([step], planner, pay)

    assert len(pay.calls) == (1 if is_refused else 2)
    codes = [p.code for p in planner.briefs[-1].refused[0].problems] if is_refused else []
    assert codes == (["DR418"] if is_refused else [])
    assert (result.status is Status.SUCCEEDED) is not is_refused


async def test_what_a_person_knows_not_to_have_taken_place_may_be_changed() -> None:
    """The no to "did it take effect?" makes the next call another one, with a key of its own."""
    keys: list[str] = []

    async def pay(context: ToolContext, amount: int) -> str:
        keys.append(context.idempotency_key)
        if len(keys) == 1:
            raise ConnectionResetError("gone")
        if len(keys) == 2:
            raise ToolError("closed on Sundays")
        return "paid"

    async def approver(question: Question) -> Answer:
        return Answer("did_not")

    tool = make_tool(pay, effect="effectful", needs_approval=False)
    planner = Thinker(instead("pay", Step(id="again", tool="pay", args={"amount": 6})))

    result = await run([Step(id="pay", tool="pay", args={"amount": 5})], planner, tool, approver=approver)

    assert (states(result), len(set(keys))) == ({"pay": "failed", "again": "succeeded"}, 3)
    assert result.status is Status.SUCCEEDED
