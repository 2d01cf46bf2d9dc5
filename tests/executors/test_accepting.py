"""What an executor does not take is refused by the check of a plan or a patch, not when the step is due."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

import dagrun
import wire_tools
from dagrun import (
    Add,
    Engine,
    MemoryJournal,
    Patch,
    Plan,
    PlanRefused,
    Policy,
    PoolLimits,
    Status,
    Step,
    Tool,
    ToolContext,
    tool,
)
from dagrun.errors import ContractError, SpliceRefused
from dagrun.executors import wire
from dagrun.kernel.model.tool import make_tool
from pools import Pool
from small_tools import near, scripted, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


class Choosy(Pool):
    """Takes no tool but those that it names."""

    def __init__(self, *taken: str) -> None:
        super().__init__()
        self.taken = taken
        self.asked: list[str] = []

    def accepts(self, tool: Tool[..., Any]) -> str | None:
        self.asked.append(tool.name)
        return None if tool.name in self.taken else f"{tool.name} needs a screen"


def _nap(id_: str, executor: str | None = "far") -> Step:
    return Step(id=id_, tool="nap", args={"seconds": 0, "gives": id_}, executor=executor)


def _problems(plan: Plan, executors: Any, tools: Any = ()) -> list[str]:
    with pytest.raises(PlanRefused) as caught:
        dagrun.check(plan, toolset(*tools), executors=executors)
    return [str(problem) for problem in caught.value.problems]


REFUSED = "DR222 steps[0].executor: step a runs nap in the executor far, which does not accept it: nap needs a screen"


def test_a_check_asks_the_executors_once_for_each_tool() -> None:
    choosy = Choosy("echo")
    plan = Plan(steps=[_nap("a"), Step(id="b", tool="echo", args={"value": 1}, executor="far"), _nap("c")])

    problems = _problems(plan, {"far": choosy})

    assert problems == [REFUSED, REFUSED.replace("steps[0]", "steps[2]").replace("step a", "step c")]
    assert choosy.asked == ["nap", "echo"]


def test_a_step_that_runs_elsewhere_is_not_asked_about() -> None:
    choosy = Choosy()
    dagrun.check(Plan(steps=[_nap("a", executor=None)]), toolset(), executors={"far": choosy})
    assert choosy.asked == []


@pytest.mark.parametrize("others", [("far",), {"far": Choosy("nap")}], ids=["names", "another executor"])
async def test_a_checked_plan_is_asked_about_again_where_its_executors_are_new(others: Any) -> None:
    checked = dagrun.check(Plan(steps=[_nap("a")]), toolset(), executors=others)

    with pytest.raises(PlanRefused) as caught:
        await dagrun.run(checked, executors={"far": Choosy()})
    assert [str(problem) for problem in caught.value.problems] == [REFUSED]

    choosy = Choosy("nap")
    assert (await dagrun.run(checked, executors={"far": choosy})).output == "a"
    assert choosy.calls == ["nap"]


async def test_an_engine_that_knows_a_plan_asks_another_executor_too() -> None:
    plan = Plan(steps=[_nap("a")])
    tools = toolset()
    async with Engine() as engine:
        assert (await engine.run(plan, tools=tools, executors={"far": Choosy("nap")})).output == "a"
        with pytest.raises(PlanRefused, match="nap needs a screen"):
            await engine.run(plan, tools=tools, executors={"far": Choosy()})


@pytest.mark.parametrize("is_checked", [True, False])
async def test_a_patch_is_asked_about_as_a_plan_is(is_checked: bool) -> None:
    choosy = Choosy("echo")
    plan: Any = Plan(steps=[Step(id="a", tool="nap", args={"seconds": 3})])
    if is_checked:
        plan = dagrun.check(plan, toolset(), executors=("far",))
    async with dagrun.start(plan, tools=None if is_checked else toolset(), executors={"far": choosy}) as run:
        with pytest.raises(SpliceRefused, match="which does not accept it: nap needs a screen"):
            await run.splice(Patch(edits=(Add(step=_nap("b")),)))
        result = await run.result()

    assert (result.status, list(result.steps)) == (Status.SUCCEEDED, ["a"])


async def test_a_patch_of_a_resumed_run_is_asked_about_too() -> None:
    """The record knows the names of the executors alone."""
    journal = MemoryJournal()
    plan = Plan(steps=[Step(id="a", tool="nap", args={"seconds": 3})])
    options: Any = {"tools": toolset(), "executors": {"far": Choosy()}, "journal": journal}
    async with dagrun.start(plan, run_id="one", **options) as run:
        run.suspend()
        await run.result()
    async with dagrun.resume("one", **options) as run:
        with pytest.raises(SpliceRefused, match="nap needs a screen"):
            await run.splice(Patch(edits=(Add(step=_nap("b")),)))
        assert (await run.result()).status is Status.SUCCEEDED


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (True, "its accepts returned True; it returns None, or the reason in words"),
        ("", "its accepts returned ''; it returns None, or the reason in words"),
        (ZeroDivisionError("no"), "its accepts raised ZeroDivisionError: no"),
    ],
)
def test_an_executor_that_answers_wrongly_is_told_so(answer: Any, said: str) -> None:
    class Wrong(Pool):
        def accepts(self, tool: Tool[..., Any]) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

    assert _problems(Plan(steps=[_nap("a")]), {"far": Wrong()})[0].endswith(f"does not accept it: {said}")


def test_accepts_is_a_method() -> None:
    pool = Pool()
    pool.accepts = "nap"  # type: ignore[attr-defined]
    with pytest.raises(ContractError, match=r"accepts of executor far is a method: accepts\(tool\) -> str \| None"):
        Engine(executors={"far": pool})


async def test_the_name_of_an_executor_is_the_pool_of_its_steps() -> None:
    """So a limit needs no second name; a pool that the step or its tool names goes before."""
    steps = [
        Step(id=id_, tool="nap", args={"seconds": 1}, executor="far", pool="own" if id_ == "d" else None)
        for id_ in "abcd"
    ]
    result = await dagrun.run(
        Plan(steps=steps),
        tools=toolset(),
        executors={"far": Pool(places=9)},
        policy=Policy(pools={"far": PoolLimits(max_running=1)}),
    )
    assert result.makespan == near(3)


# Over the wire --------------------------------------------------------------------------------------------------------


async def _local() -> int:
    return 1


def _inside() -> Tool[..., Any]:
    async def closure() -> int:
        return 1

    return make_tool(closure, effect="read")


class Client:
    """An object of the host."""


@tool(effect="read")
async def uses_client(client: Annotated[Client, dagrun.dep]) -> int:
    """Use an object of the host."""
    return 1


@tool(effect="read")
async def uses_context(context: ToolContext[Client]) -> int:
    """Use it through the context."""
    return 1


@tool(effect="read")
async def gives_object() -> dagrun.Object[Client]:
    """Return an object."""
    return Client()


async def _call(arguments: Any, context: ToolContext) -> Any:
    return None


def _of_schema() -> Tool[..., Any]:
    return dagrun.schema_tool("forecast", _call, {"type": "object", "properties": {}}, effect="read")


def _of_program() -> Tool[..., Any]:
    made = make_tool(_local, name="own", effect="read")

    async def own() -> int:
        return 1

    own.__module__, own.__qualname__ = "__main__", "own"
    object.__setattr__(made, "function", own)
    return made


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (_inside(), r"no other place can import closure: .*closure is defined inside a function; move it to the top"),
        (_of_program(), "no other place can import own: it is defined in the program or the notebook itself"),
        (_of_schema(), "no other place can import forecast: it was made from a schema"),
        (uses_client, "client, an object of the host, does not reach another place"),
        (uses_context, "context.deps, an object of the host, does not reach another place"),
        (gives_object, "gives_object takes or returns objects in memory"),
        (wire_tools.far_asks, "far_asks asks people, and its question does not reach them from another place"),
        (make_tool(_local, name="local", effect="read"), None),
        (wire_tools.far_nested, None),
        (wire_tools.far_report, None),
    ],
    ids=lambda one: one.name if isinstance(one, Tool) else None,
)
async def test_what_the_wire_form_cannot_carry_is_known_before(refused: Tool[..., Any], said: str | None) -> None:
    answer = wire.refusal_of(refused)
    if said is None:
        assert answer is None
        return
    assert answer is not None
    import re

    assert re.match(said, answer)


def test_a_worker_process_cannot_ask_people() -> None:
    step = Step(id="a", tool="far_asks", executor="process")
    with pytest.raises(PlanRefused) as caught:
        dagrun.check(Plan(steps=[step]), [wire_tools.far_asks])
    assert [str(problem) for problem in caught.value.problems] == [
        "DR222 steps[0].tool: step a runs far_asks in the executor process, which does not accept it: far_asks asks "
        "people, and its question does not reach them from there"
    ]


async def test_a_scripted_tool_is_not_asked_about_where_nobody_chooses() -> None:
    """An executor without the method takes everything, as before."""
    ok = scripted("ok", 1)
    result = await dagrun.run(
        Plan(steps=[Step(id="a", tool="ok", executor="far")]), tools=[ok.tool], executors={"far": Pool()}
    )
    assert result.output == 1
