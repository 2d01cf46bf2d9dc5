"""The fault matrix: whatever a tool does, it hurts only its own step and what depends on that.

Every behaviour of `misbehaving` runs as a pure and as an effectful tool, alone, between siblings, before dependents,
and while the run is being cancelled. The table is the promise; a change of it is a change of the contract.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import anyio
import pytest

import dagrun
from dagrun import Plan, Policy, RetryRule, RunResult, State, Status, Step, StepResult
from dagrun.kernel.model.tool import AnyTool, make_tool
from misbehaving import BEHAVIOURS, CLEANED_UP, end_what_was_left_behind, once_cancelled, skip_what_only_asyncio_has

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

EFFECTS = ("pure", "effectful")

# The step has a timeout of 1 s and a grace period of 0.5 s; it is not tried again. "ends" is when it is let go.
# "told to stop" is the same behaviour shown on being cancelled; it is `cancelled` (pure) and `unknown` (effectful)
# unless a state stands there.
TABLE = """
behaviour                         ends  pure                         effectful                     told to stop
raises_exception                  0     failed exception             unknown exception
raises_value_error                0     failed exception             unknown exception
raises_tool_error                 0     failed tool                  failed tool                   cancelled cancelled
raises_retryable_tool_error       0     failed tool                  failed tool                   cancelled cancelled
raises_permission_error           0     failed permission            failed permission             cancelled cancelled
raises_missing_input              0     failed missing_input         failed missing_input          cancelled cancelled
raises_unreachable                0     failed unreachable           failed unreachable            cancelled cancelled
raises_timeout_error              0     failed timeout               unknown timeout
raises_connection_error           0     failed connection            unknown connection
raises_memory_error               0     failed exception             unknown exception
raises_cancelled_error            0     failed foreign_cancellation  unknown foreign_cancellation
raises_an_old_cancellation        0     failed foreign_cancellation  unknown foreign_cancellation
raises_system_exit                0     failed forbidden_exception   unknown forbidden_exception
raises_keyboard_interrupt         0     failed forbidden_exception   unknown forbidden_exception
raises_generator_exit             0     failed forbidden_exception   unknown forbidden_exception
raises_base_exception             0     failed forbidden_exception   unknown forbidden_exception
raises_stop_iteration             0     failed exception             unknown exception
raises_stop_async_iteration       0     failed exception             unknown exception
raises_group                      0     failed exception             unknown exception
raises_group_of_one               0     failed tool                  unknown tool
raises_group_with_cancellation    0     failed forbidden_exception   unknown forbidden_exception
raises_group_of_one_cancellation  0     failed foreign_cancellation  unknown foreign_cancellation
raises_mute_exception             0     failed exception             unknown exception
raises_100_mb_of_text             0     failed exception             unknown exception
recurses_without_end              0     failed exception             unknown exception
hangs                             1     timed_out timeout            unknown timeout
swallows_a_cancellation           1     timed_out timeout            unknown timeout
swallows_every_cancellation       1.5   abandoned timeout            unknown timeout               abandoned unknown
swallows_every_cancellation_without_a_shield 1.5 abandoned timeout  unknown timeout               abandoned unknown
raises_in_finally                 1     timed_out timeout            unknown timeout
vouches_in_finally                1     timed_out timeout            timed_out timeout             cancelled cancelled
cleans_up_quickly                 1.1   timed_out timeout            unknown timeout
cleans_up_without_a_shield        1.1   timed_out timeout            unknown timeout
cleans_up_with_and_without_a_shield 1.3 timed_out timeout            unknown timeout
cleans_up_and_returns             1.1   timed_out timeout            unknown timeout
cleans_up_in_a_task               1.1   timed_out timeout            unknown timeout
cleans_up_for_ever                1.5   timed_out timeout            unknown timeout
cleans_up_for_ever_three_times    1.5   timed_out timeout            unknown timeout
cleans_up_for_too_long            1.5   abandoned timeout            unknown timeout               abandoned unknown
leaks_a_scope                     0     failed exception             unknown exception
leaks_a_cancelled_scope           0     failed exception             unknown exception
leaks_a_scope_and_raises          0     failed exception             unknown exception
leaks_a_shielded_scope            0     failed exception             unknown exception
leaks_a_task_group                0     failed exception             unknown exception
yields_nonsense_to_the_loop       0     failed exception             unknown exception
runs_a_loop_inside                0     failed exception             unknown exception
awaits_a_cancelled_future         0     failed foreign_cancellation  unknown foreign_cancellation
cancels_itself                    0     failed foreign_cancellation  unknown foreign_cancellation
cancels_itself_and_returns        0     succeeded -                  succeeded -
cancels_itself_and_exits          0     failed forbidden_exception   unknown forbidden_exception
uncancels_itself                  0     succeeded -                  succeeded -
leaves_a_cancellation_behind      0     succeeded -                  succeeded -
leaves_a_task_behind              0     succeeded -                  succeeded -
returns_the_wrong_type            0     failed bad_output            failed bad_output
returns_a_generator               0     failed bad_output            failed bad_output
returns_a_coroutine               0     failed bad_output            failed bad_output
returns_a_list_of_generators      0     failed bad_output            failed bad_output
returns_nan                       0     failed bad_output            failed bad_output
returns_half_a_character          0     failed bad_output            failed bad_output
returns_a_gigantic_number         0     failed bad_output            failed bad_output
returns_a_circle                  0     failed bad_output            failed bad_output
returns_a_hostile_dict            0     failed bad_output            failed bad_output
returns_a_hostile_object          0     failed bad_output            failed bad_output
returns_5000_levels               0     failed bad_output            failed bad_output
returns_too_long_a_text           0     failed bad_output            failed bad_output
returns_a_gigantic_list           0     failed bad_output            failed bad_output
returns_a_billion_laughs          0     failed bad_output            failed bad_output
returns_bytes                     0     failed bad_output            failed bad_output
returns_a_function                0     failed bad_output            failed bad_output
"""


class Row(NamedTuple):
    """What must come of one behaviour."""

    ends: float
    ended: dict[str, tuple[str, str]]
    told_to_stop: dict[str, str]


def _rows() -> dict[str, Row]:
    rows = {}
    for line in TABLE.strip().splitlines()[1:]:
        name, ends, *words = line.split()
        stopped = words[4:] or ["cancelled", "unknown"]
        ended = {"pure": (words[0], words[1]), "effectful": (words[2], words[3])}
        rows[name] = Row(float(ends), ended, dict(zip(EFFECTS, stopped, strict=True)))
    return rows


ROWS = _rows()

# What each can do within the grace period.
CLEANS_UP = {
    "cleans_up_without_a_shield": "without a shield",
    "cleans_up_with_and_without_a_shield": "with and without a shield",
    "cleans_up_and_returns": "and returns",
    "cleans_up_in_a_task": "without a shield",
}
POLICY = Policy(grace=0.5, retry=RetryRule(max_attempts=1))
STATUSES = {State.SUCCEEDED: Status.SUCCEEDED, State.UNKNOWN: Status.UNKNOWN}


@pytest.fixture(params=list(ROWS))
async def name(request: pytest.FixtureRequest) -> str:
    skip_what_only_asyncio_has(request.param)
    CLEANED_UP.clear()  # of a test that has failed
    return str(request.param)


async def napper(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "well"


async def echo(value: Any) -> Any:
    return value


TOOLS = (make_tool(napper, effect="read"), make_tool(echo, effect="pure"), make_tool(echo, name="act"))


def test_every_behaviour_has_its_row() -> None:
    assert ROWS.keys() == BEHAVIOURS.keys()
    assert len(ROWS) >= 30


def _bad_tool(behaviour: Callable[[], Awaitable[Any]], effect: str) -> AnyTool:
    # A smaller limit than the usual one, so that gigantic values are refused sooner.
    return make_tool(behaviour, name="bad", effect=effect, output_limit=50_000)


async def _run(name: str, effect: str, *others: Step) -> RunResult:
    """Run the behaviour among *others*; the run must end, settle every step and leave no task behind."""
    before = {task.id for task in anyio.get_running_tasks()}
    bad = Step(id="bad", tool="bad", timeout=1.0)
    plan = Plan(steps=[*others[:1], bad, *others[1:]])

    result = await dagrun.run(plan, tools=[_bad_tool(BEHAVIOURS[name], effect), *TOOLS], policy=POLICY)

    await _no_task_is_left(before)
    _has_cleaned_up(name)
    row, step = ROWS[name], result.steps["bad"]
    _is_as_promised(step, row.ended[effect])
    assert step.ended == pytest.approx(row.ends)
    assert result.status is STATUSES.get(step.state, Status.FAILED)
    assert all(each.state.is_settled for each in result.steps.values())
    return result


def _has_cleaned_up(name: str) -> None:
    assert ([CLEANS_UP[name]] if name in CLEANS_UP else []) == CLEANED_UP
    CLEANED_UP.clear()


def _is_as_promised(step: StepResult, promised: tuple[str, str]) -> None:
    kind = "-" if step.failure is None else str(step.failure.kind)
    assert (str(step.state), kind) == promised
    assert (step.reason == "") == (promised[0] == "succeeded")
    assert len(step.reason) < 1_000


async def _no_task_is_left(before: set[int]) -> None:
    await end_what_was_left_behind()
    left = [task for task in anyio.get_running_tasks() if task.id not in before]
    assert not left


async def test_it_hurts_only_itself_and_its_dependents(name: str) -> None:
    """Alone it ends as the table says; siblings keep their time; dependents never run on an error."""
    for effect in EFFECTS:
        await _alone(name, effect)
        await _between_siblings(name, effect)
        await _before_dependents(name, effect)


async def _alone(name: str, effect: str) -> None:
    result = await _run(name, effect)

    assert result.makespan == pytest.approx(ROWS[name].ends)


async def _between_siblings(name: str, effect: str) -> None:
    """One sibling runs already, one starts after it, perhaps on the very same worker."""
    siblings = [Step(id=id_, tool="napper", args={"seconds": 3.0}) for id_ in ("before", "behind")]
    # A cancellation that was left behind hits the second one at 0.05 s, which costs it a new start and no more.
    late = {"before": 0.0, "behind": 0.05 if name == "leaves_a_cancellation_behind" else 0.0}

    result = await _run(name, effect, *siblings)

    assert result.makespan == pytest.approx(3 + late["behind"])
    for id_, delay in late.items():
        sibling = result.steps[id_]
        assert (sibling.state, sibling.output, sibling.started) == (State.SUCCEEDED, "well", 0)
        assert sibling.ended == pytest.approx(3 + delay)


async def _before_dependents(name: str, effect: str) -> None:
    """Where the step succeeded after all, its dependents run, whatever it has left behind on their worker."""
    dependents = [
        Step(id="nap", tool="napper", args={"seconds": 0.1}),
        Step(id="uses", tool="echo", args={"value": "${bad}"}),
        Step(id="acts", tool="act", args={"value": 1}, depends_on=("bad",)),
        Step(id="later", tool="act", args={"value": "${uses}"}, depends_on=("nap",)),
    ]

    result = await _run(name, effect, *dependents)

    succeeded = result.steps["bad"].state is State.SUCCEEDED
    assert result.steps["nap"].state is State.SUCCEEDED
    for id_ in ("uses", "acts", "later"):
        step = result.steps[id_]
        assert step.state is (State.SUCCEEDED if succeeded else State.SKIPPED)
        assert succeeded or ("bad" in step.reason and not step.attempts)


async def test_a_cancelled_run_settles_every_step(name: str) -> None:
    """Cancelled by its handle, or because the code around it was: the step misbehaves only then."""
    for effect in EFFECTS:
        await _cancel(name, effect, from_outside=False)
        await _cancel(name, effect, from_outside=True)


async def _cancel(name: str, effect: str, *, from_outside: bool) -> None:
    before = {task.id for task in anyio.get_running_tasks()}
    steps = [
        Step(id="bad", tool="bad"),
        Step(id="sibling", tool="napper", args={"seconds": 3.0}),
        Step(id="done", tool="napper", args={"seconds": 0.5}),
        Step(id="dependent", tool="echo", args={"value": "${bad}"}),
    ]
    tools = [_bad_tool(once_cancelled(BEHAVIOURS[name]), effect), *TOOLS]
    start = anyio.current_time()
    with anyio.CancelScope() as scope:
        async with dagrun.start(Plan(steps=steps), tools=tools, policy=POLICY) as run:
            await anyio.sleep(1)
            if from_outside:
                scope.cancel()
            else:
                run.cancel()
                await run.result()
                assert anyio.current_time() - start <= 1 + POLICY.grace
    result = await run.result()

    await _no_task_is_left(before)
    _has_cleaned_up(name)
    assert {id_: str(step.state) for id_, step in result.steps.items()} == {
        "bad": ROWS[name].told_to_stop[effect],
        "sibling": "cancelled",
        "done": "succeeded",
        "dependent": "cancelled",
    }
    unknown = result.steps["bad"].state is State.UNKNOWN
    assert result.status is (Status.UNKNOWN if unknown else Status.CANCELLED)
