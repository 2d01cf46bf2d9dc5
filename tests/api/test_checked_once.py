"""A plan is checked once and run with any inputs: an engine knows it again, and inputs that do not fit are refused."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest

import dagrun
from dagrun.api import checking
from dagrun.kernel.checks.check_plan import check_plan

pytestmark = pytest.mark.anyio

DOUBLED: list[int] = []


@dagrun.tool(effect="effectful")
async def double(n: int) -> int:
    """Double a number, and note it."""
    DOUBLED.append(n)
    return 2 * n


@dagrun.tool(effect="pure")
def shout(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


TEXT = """{"steps": [
    {"id": "first", "tool": "double", "args": {"n": 1}},
    {"id": "second", "tool": "double", "args": {"n": "${input.rows[0].n}"}, "depends_on": ["first"]}
], "output": "${second}"}"""


@pytest.fixture(autouse=True)
def no_calls() -> None:
    DOUBLED.clear()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The plans that were checked whole."""
    seen: list[object] = []
    real: Callable[..., Any] = check_plan

    def counted(plan: dagrun.Plan, *arguments: Any, **options: Any) -> dagrun.CheckedPlan:
        seen.append(plan)
        checked: dagrun.CheckedPlan = real(plan, *arguments, **options)
        return checked

    monkeypatch.setattr(checking, "check_plan", counted)
    return seen


def inputs(n: object) -> dict[str, Any]:
    return {"rows": [{"n": n}]}


@pytest.mark.parametrize(("given", "code"), [({}, "DR306"), ({"rows": []}, "DR306"), (inputs("3"), "DR304")])
async def test_a_checked_plan_refuses_inputs_that_do_not_fit_before_anything_runs(given: Any, code: str) -> None:
    plan = dagrun.check(TEXT, [double])
    with pytest.raises(dagrun.PlanRefused) as refused:
        await dagrun.run(plan, inputs=given)
    with pytest.raises(dagrun.PlanRefused) as unprepared:
        await dagrun.run(TEXT, tools=[double], inputs=given)
    assert [problem.code for problem in refused.value.problems] == [code]
    assert refused.value.problems == unprepared.value.problems
    assert DOUBLED == []


async def test_a_checked_plan_runs_with_other_inputs_without_another_check(checks: list[object]) -> None:
    plan = dagrun.check(TEXT, [double])
    outputs = [(await dagrun.run(plan, inputs=inputs(n))).output for n in (2, 3, 4)]
    assert outputs == [4, 6, 8]
    assert len(checks) == 2  # without inputs, and with the first


async def test_an_engine_checks_a_text_once_for_inputs_of_the_same_types(checks: list[object]) -> None:
    async with dagrun.Engine() as engine:
        outputs = [(await engine.run(TEXT, tools=[double], inputs=inputs(n))).output for n in (2, 3, 4)]
        assert outputs == [4, 6, 8]
        assert len(checks) == 1
        with pytest.raises(dagrun.PlanRefused):
            await engine.run(TEXT, tools=[double], inputs=inputs(None))
        assert len(checks) == 2
        assert (await engine.run(TEXT.encode(), tools=(double,), inputs=inputs(5))).output == 10
        assert len(checks) == 3  # bytes are not the text


async def test_an_engine_checks_again_what_may_be_another_plan(tmp_path: Path, checks: list[object]) -> None:
    plan = dagrun.Plan(steps=[dagrun.Step(id="a", tool="shout", args={"text": "hm"})])
    file = tmp_path / "plan.json"
    file.write_text(plan.model_dump_json(exclude_unset=True))
    policy, secret = dagrun.Policy(max_running=3), {"key": "a-long-and-rare-value-42"}
    async with dagrun.Engine() as engine:

        async def count(chosen: object, **options: Any) -> int:
            checks.clear()
            for _ in range(2):
                assert (await engine.run(chosen, **options)).status == "succeeded"  # type: ignore[arg-type]
            return len(checks)

        assert await count(plan, tools=[shout]) == 1
        assert await count(plan, tools=[shout]) == 0
        assert await count(plan, tools=[shout, double]) == 1  # other tools
        assert await count(plan, tools=[shout], policy=policy) == 1
        assert await count(plan.model_copy(), tools=[shout]) == 1  # another object
        assert await count(file, tools=[shout]) == 2  # a file may change
        assert await count(plan, tools=[shout], secrets=secret) == 2


async def test_an_engine_sees_that_a_plan_or_a_policy_was_changed_in_place() -> None:
    """Both are frozen, but not the mappings in them."""
    plan = dagrun.Plan(steps=[dagrun.Step(id="a", tool="double", args={"n": 1})], output="${a}")
    policy = dagrun.Policy(pools={"bank": dagrun.PoolLimits(max_running=1)})
    async with dagrun.Engine() as engine:
        assert (await engine.run(plan, tools=[double], policy=policy)).output == 2
        plan.steps[0].args["n"] = 5
        assert (await engine.run(plan, tools=[double], policy=policy)).output == 10
        plan.steps[0].args["n"] = "five"
        with pytest.raises(dagrun.PlanRefused):
            await engine.run(plan, tools=[double], policy=policy)
        plan.steps[0].args["n"] = 1


async def test_an_engine_does_not_take_a_tool_for_one_that_left_its_list(checks: list[object]) -> None:
    """A list of toolboxes is emptied by its host: what takes the place of one in memory is another one."""
    tools = [dagrun.Toolbox(double)]
    gone = weakref.ref(tools[0])
    async with dagrun.Engine() as engine:
        await engine.run(TEXT, tools=tools, inputs=inputs(1))
        tools.clear()
        gc.collect()
        assert gone() is not None  # its identity is what the plan is known by


class Named:
    """What a tool depends on."""

    def __init__(self, name: str) -> None:
        self.name = name


@dagrun.tool(effect="pure")
def name_of(named: Annotated[Named, dagrun.dep]) -> str:
    """Say the name of what the host gave."""
    return named.name


async def test_a_plan_with_dependencies_is_checked_with_those_of_each_run(checks: list[object]) -> None:
    plan = dagrun.Plan(steps=[dagrun.Step(id="a", tool="name_of")], output="${a}")
    async with dagrun.Engine() as engine:
        for name in ("x", "y"):
            assert (await engine.run(plan, tools=[name_of], deps=Named(name))).output == name
        for _ in range(2):
            with pytest.raises(dagrun.PlanRefused):
                await engine.run(plan, tools=[name_of])
    assert len(checks) == 4


async def test_an_engine_forgets_the_plans_that_were_not_used_for_longest(checks: list[object]) -> None:
    texts = [TEXT.replace('"n": 1', f'"n": {number}') for number in range(checking._MAX_KEPT + 1)]
    async with dagrun.Engine() as engine:
        for text in (*texts, texts[-1], texts[0]):
            await engine.run(text, tools=[double], inputs=inputs(1))
    assert len(checks) == len(texts) + 1


async def test_a_reference_in_a_condition_or_the_output_counts_as_one_in_arguments() -> None:
    steps = [
        {"id": "a", "tool": "shout", "args": {"text": "x"}, "when": {"ref": "input.wanted", "op": "==", "value": 1}}
    ]
    for plan in (
        dagrun.Plan.model_validate({"steps": steps}),
        dagrun.Plan.model_validate(
            {"steps": [{**steps[0], "when": None}], "output": {"a": "${a}", "w": "${input.wanted}"}}
        ),
    ):
        checked = dagrun.check(plan, [shout])
        with pytest.raises(dagrun.PlanRefused, match="input"):
            await dagrun.run(checked, inputs={})
