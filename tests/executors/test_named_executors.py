"""Executors of the host: where steps run, which names plans and patches may use, and what failures do."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import (
    Add,
    Engine,
    Patch,
    Plan,
    PlanRefused,
    Policy,
    Replace,
    RetryRule,
    RunResult,
    State,
    Status,
    Step,
    ToolContext,
)
from dagrun.errors import ContractError, SpliceRefused
from dagrun.extend import StillRunning, ToolCall
from dagrun.kernel.checks.waves import in_waves
from dagrun.kernel.model.outcome import ErrorKind
from pools import Broken, Pool, Remote
from replans import Thinker
from small_tools import ONCE, near, scripted, states, toolset

pytestmark = pytest.mark.anyio


def _nap(id_: str, seconds: float = 1, executor: str | None = "sql", **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, executor=executor, **fields)


async def _run(*steps: Step, tools: Any = (), executors: Any = None, **policy: Any) -> RunResult:
    options = Policy(**{"retry": ONCE, **policy})
    return await dagrun.run(Plan(steps=steps), tools=toolset(*tools), executors=executors, policy=options)


# Routing ----------------------------------------------------------------------------------------------------


async def test_a_step_runs_where_it_says_and_the_others_where_they_always_do() -> None:
    """Three steps in a pool with one place take turns; a step outside of it does not wait."""
    pool = Pool(places=1)

    result = await _run(_nap("a"), _nap("b"), _nap("c"), _nap("d", executor=None), executors={"sql": pool})

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(3))
    assert (pool.calls, pool.most) == (["nap"] * 3, 1)


async def test_each_name_is_a_pool_of_its_own() -> None:
    sql, web = Pool(places=1), Pool(places=2)
    steps = [_nap("a"), _nap("b"), _nap("c", executor="web"), _nap("d", executor="web")]

    result = await _run(*steps, executors={"sql": sql, "web": web})

    assert (result.makespan, sql.most, web.most, len(web.calls)) == (near(2), 1, 2, 2)


async def test_a_plain_function_and_the_elements_of_a_list_run_there_too() -> None:
    """The executor decides how a function is called; in built-in executors, the kind of function does."""

    @dagrun.tool(effect="pure")
    def double(x: int) -> int:
        return 2 * x

    pool = Pool(places=2)
    step = Step(id="all", tool="double", args={"x": "${item}"}, for_each=[1, 2, 3], executor="sql")

    result = await _run(step, tools=[double], executors={"sql": pool})

    assert (result.output, pool.calls) == ([2, 4, 6], ["double"] * 3)


async def test_a_call_carries_its_arguments_as_text_and_may_answer_with_text() -> None:
    """A pool on other machines needs that; dagrun checks that the text is JSON, and its size."""

    @dagrun.tool(effect="read")
    async def fetch(n: int) -> list[int]:
        raise AssertionError("it runs elsewhere")

    remote = Remote(b"[1, 2]", b'{"a": NaN}')
    steps = [
        Step(id="good", tool="fetch", args={"n": 7}, executor="far"),
        Step(id="bad", tool="fetch", args={"n": 8}, executor="far", depends_on=["good"]),
    ]

    result = await _run(*steps, tools=[fetch], executors={"far": remote})

    assert remote.sent == [b'{"n":7}', b'{"n":8}']
    assert result.steps["good"].output == [1, 2]
    bad = result.steps["bad"].failure
    assert bad is not None
    assert bad.kind is ErrorKind.BAD_OUTPUT


async def test_a_fallback_runs_where_its_own_tool_does() -> None:
    """The executor of the step is for its own tool; the fallback may be of another kind."""
    pool = Pool()
    bad, other = scripted("bad", ValueError("no")), scripted("other", "ok")
    step = Step(id="a", tool="bad", fallback="other", executor="sql")

    result = await _run(step, tools=[bad, other], executors={"sql": pool})

    assert (result.output, pool.calls) == ("ok", ["bad"])


async def test_the_context_of_a_tool_works_there() -> None:
    @dagrun.tool(effect="read")
    async def count(context: ToolContext) -> str:
        context.report_usage(tokens=5)
        return f"{context.step} {context.seconds_left:g}"

    step = Step(id="a", tool="count", executor="sql", timeout=30)
    result = await _run(step, tools=[count], executors={"sql": Pool()})

    assert (result.output, result.tokens) == ("a 30", 5)


# Plans ------------------------------------------------------------------------------------------------------


def _problems(executor: str, known: Any) -> list[str]:
    with pytest.raises(PlanRefused) as caught:
        dagrun.check(Plan(steps=[_nap("a", executor=executor)]), toolset(), executors=known)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("name", "known", "names"),
    [
        ("sql", (), "coroutine, thread or process, not 'sql'"),
        ("sqll", ("web", "sql"), "coroutine, thread, process, sql or web, not 'sqll'; did you mean sql?"),
        ("SQL", {"sql": Pool}, "coroutine, thread, process or sql, not 'SQL'"),
        ("", ("sql",), "coroutine, thread, process or sql, not ''"),
    ],
)
def test_an_unknown_name_is_refused_before_the_run(name: str, known: Any, names: str) -> None:
    """Not when the step is due, because other steps have had effects by then."""
    assert _problems(name, known) == [f"DR112 steps[0].executor: step a: executor is {names}"]


def test_a_name_of_ours_keeps_its_rules() -> None:
    assert "nap is async, which runs as a coroutine or in a process" in _problems("thread", ("sql",))[0]


async def test_a_checked_plan_needs_the_executors_that_it_was_checked_with() -> None:
    """The error comes at the start, not at the step. A patch may name any of them, so all must exist."""
    checked = dagrun.check(Plan(steps=[_nap("a")]), toolset(), executors=("sql", "web"))

    with pytest.raises(ContractError, match=r"the plan was checked with an executor web: executors=\{…\}"):
        await dagrun.run(checked, executors={"sql": Pool()})

    pool = Pool()
    assert (await dagrun.run(checked, executors={"sql": pool, "web": Pool()})).output == "a"
    assert (await dagrun.run(in_waves(checked), executors={"sql": pool, "web": Pool()})).output == "a"
    assert len(pool.calls) == 2


@pytest.mark.parametrize("bring", [Add, Replace])
async def test_a_patch_may_name_what_the_plan_may_and_nothing_else(bring: Any) -> None:
    """The place where a step runs is a limit, and no patch may widen a limit."""

    def patch(executor: str) -> Patch:
        step = Step(id="new", tool="nap", args={"seconds": 0}, executor=executor)
        return Patch(edits=(Add(step=step) if bring is Add else Replace(id="b", step=step),))

    pool = Pool()
    plan = Plan(steps=[_nap("a", executor=None), _nap("b", executor=None, depends_on=["a"])])
    async with dagrun.start(plan, tools=toolset(), executors={"sql": pool}) as run:
        with pytest.raises(SpliceRefused, match="executor is coroutine, thread, process or sql, not 'root'"):
            await run.splice(patch("root"))
        await run.splice(patch("sql"))
        result = await run.result()

    assert (result.status, pool.calls) == (Status.SUCCEEDED, ["nap"])


async def test_a_planner_may_name_them_too() -> None:
    pool = Pool()
    patch = Patch(edits=(Replace(id="bad", step=_nap("again")),))

    result = await dagrun.run(
        Plan(steps=[Step(id="bad", tool="fail")]),
        tools=toolset(),
        executors={"sql": pool},
        planner=Thinker(patch),
        policy=Policy(retry=ONCE),
    )

    assert (result.status, result.output, pool.calls) == (Status.SUCCEEDED, "again", ["nap"])


# Engines ----------------------------------------------------------------------------------------------------


async def test_an_engine_has_executors_for_all_its_runs_and_a_run_may_bring_more() -> None:
    """The host closes its executors, because they may serve other engines."""
    shared, own = Pool(places=1), Pool()
    steps = [_nap("a"), _nap("b", executor="own")]

    async with Engine(executors={"sql": shared}) as engine:
        first = await engine.run(Plan(steps=[_nap("a")]), tools=toolset())
        second = await engine.run(Plan(steps=steps), tools=toolset(), executors={"own": own})
        with pytest.raises(PlanRefused, match="thread, process or sql, not 'own'"):
            await engine.run(Plan(steps=steps), tools=toolset())

    assert (first.status, second.status) == (Status.SUCCEEDED, Status.SUCCEEDED)
    assert (len(shared.calls), len(own.calls), shared.closed, own.closed) == (2, 1, 0, 0)


async def test_a_run_may_replace_an_executor_of_its_engine() -> None:
    shared, own = Pool(), Pool()

    async with Engine(executors={"sql": shared}) as engine:
        await engine.run(Plan(steps=[_nap("a")]), tools=toolset(), executors={"sql": own})

    assert (shared.calls, own.calls) == ([], ["nap"])


@pytest.mark.parametrize(
    ("executors", "said"),
    [
        ({"thread": Pool()}, "cannot be called thread"),
        ({"": Pool()}, "'' is not a name of an executor"),
        ({"a b": Pool()}, "'a b' is not a name"),
        ({3: Pool()}, "3 is not a name"),
        ({"sql": Pool}, "executor sql needs a method call"),
        ({"sql": 3}, "executor sql needs a method call"),
        ([Pool()], r'executors are given by name: executors=\{"sql": …\}; got list'),
    ],
)
async def test_what_is_no_executor_is_refused_at_once(executors: Any, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        Engine(executors=executors)
    with pytest.raises(ContractError, match=said):
        await _run(_nap("a", executor=None), executors=executors)


def test_the_names_are_no_text() -> None:
    """`executors="sql"` would allow the names s, q and l."""
    with pytest.raises(ContractError, match="executors is a list of names, or the executors by name, got 'sql'"):
        dagrun.check(Plan(steps=[_nap("a")]), toolset(), executors="sql")


# The failure contract ---------------------------------------------------------------------------------------


async def _swallows(call: ToolCall) -> object:
    """Ignores that it has to stop, and returns a value."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(3.5)
    return "late"


async def _clings(call: ToolCall) -> object:
    while True:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.3)


async def _exits(call: ToolCall) -> object:
    await anyio.sleep(0.1)
    raise SystemExit(3)


async def _cancels_itself(call: ToolCall) -> object:
    raise asyncio.CancelledError


async def _would_not(call: ToolCall) -> object:
    raise StillRunning("the server still works on it")


async def _gives_an_object(call: ToolCall) -> object:
    return object()


def _exits_at_once(call: ToolCall) -> object:
    raise SystemExit(4)


def _gives_no_coroutine(call: ToolCall) -> object:
    return 3


@pytest.mark.parametrize(
    ("act", "state", "said"),
    [
        (_exits, State.FAILED, "nap raised SystemExit, which would have ended more than this step"),
        (_exits_at_once, State.FAILED, "nap raised SystemExit, which would have ended more than this step"),
        (lambda call: anyio.sleep_forever(), State.TIMED_OUT, "3 s"),
        (_swallows, State.TIMED_OUT, "3 s"),
        (_clings, State.ABANDONED, "3 s"),
        (_would_not, State.ABANDONED, "the server still works on it"),
        (_cancels_itself, State.FAILED, "it"),
        (_gives_an_object, State.FAILED, "an object is not a JSON value"),
        (_gives_no_coroutine, State.FAILED, "has no attribute 'send'"),
    ],
)
@pytest.mark.leaves_tasks
async def test_a_broken_executor_hurts_its_step_alone(act: Any, state: State, said: str) -> None:
    """As with a broken tool, the sibling continues, the run ends, and late values are not used."""
    steps = [_nap("bad", executor="bad", timeout=3), _nap("good", 5, executor=None), _nap("behind", depends_on=["bad"])]

    result = await _run(*steps, executors={"bad": Broken(act), "sql": Pool()}, grace=0.9)

    assert states(result) == {"bad": str(state), "good": "succeeded", "behind": "skipped"}
    assert said in result.steps["bad"].reason
    assert result.makespan == near(5)
    assert result.steps["bad"].output is None


async def test_an_effect_is_in_doubt_there_as_anywhere() -> None:
    """An executor that loses its connection does not know what the tool has done."""

    async def lose(call: ToolCall) -> object:
        raise ConnectionError("lost")

    pay = scripted("pay", 1, effect="effectful")
    step = Step(id="pay", tool="pay", executor="far")

    result = await _run(step, tools=[pay], executors={"far": Broken(lose)})

    assert (result.steps["pay"].state, result.status) == (State.UNKNOWN, Status.UNKNOWN)


@pytest.mark.parametrize(("effect", "state"), [("read", State.ABANDONED), ("effectful", State.UNKNOWN)])
async def test_a_call_that_an_executor_has_given_up_may_still_take_effect(effect: str, state: State) -> None:
    """It was not told to stop, so a time limit of the step does not explain the end."""
    pay = scripted("pay", 1, effect=effect)

    result = await _run(Step(id="pay", tool="pay", executor="far"), tools=[pay], executors={"far": Broken(_would_not)})

    assert result.steps["pay"].state is state


async def test_a_transient_failure_of_an_executor_is_retried_by_the_table() -> None:
    calls: list[str] = []

    async def flaky(call: ToolCall) -> object:
        calls.append(call.tool.name)
        if len(calls) == 1:
            raise ConnectionError("busy")
        return "ok"

    retry = RetryRule(max_attempts=2, first_delay=0)
    result = await _run(_nap("a", executor="far"), executors={"far": Broken(flaky)}, retry=retry)

    assert (result.output, len(calls)) == ("ok", 2)
