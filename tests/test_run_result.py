"""What a run hands back: its figures, its answer, and the same as plain JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dagrun
from dagrun import Plan, Step
from dagrun.errors import RunFailed
from dagrun.model.tool import make_tool
from small_tools import nap, near, run, toolset

pytestmark = pytest.mark.anyio


def _nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


async def test_the_figures_of_a_result() -> None:
    """A diamond with a long side: work is the sum, the critical path the longest chain."""
    result = await run(_nap("a", 1.0), _nap("b", 3.0, "a"), _nap("c", 2.0, "a"), _nap("d", 1.0, "b", "c"))

    assert (result.makespan, result.work, result.critical_path) == (
        near(5),
        near(7),
        near(5),
    )
    assert result.parallelism == near(7 / 5)
    shown = json.loads(json.dumps(result.as_dict()))
    assert shown["status"] == "succeeded"
    assert shown["steps"]["b"]["attempts"][0]["ended"] == near(4)
    assert result.raise_for_status() is result


async def test_a_failed_result_is_plain_json_and_raises_on_demand() -> None:
    result = await run(Step(id="bad", tool="fail"), _nap("b", 0.0, "bad"))

    shown = json.loads(json.dumps(result.as_dict()))
    assert shown["steps"]["bad"]["failure"]["kind"] == "exception"
    assert shown["steps"]["b"] | {"reason": ""} == {
        "state": "skipped",
        "reason": "",
        "failure": None,
        "is_default": False,
        "errors": [],
        "output": None,
        "attempts": [],
    }
    with pytest.raises(RunFailed, match="the run ended as failed: bad failed: no") as caught:
        result.raise_for_status()
    assert caught.value.status == "failed"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (None, {"b": "b", "c": "c"}),
        ("a", "a"),
        ("${b}", "b"),
        ({"one": "${a}", "text": "${b}+${c}"}, {"one": "a", "text": "b+c"}),
        (["${c}", 1], ["c", 1]),
    ],
)
async def test_what_the_run_answers(output: Any, expected: Any) -> None:
    """What the plan names; else the outputs of its sinks."""
    plan = Plan(steps=[_nap("a", 0.0), _nap("b", 0.0, "a"), _nap("c", 0.0, "a")], output=output)

    assert (await dagrun.run(plan, tools=toolset())).output == expected


async def test_one_sink_answers_alone_and_failed_ones_not_at_all() -> None:
    assert (await run(_nap("a", 0.0), _nap("b", 0.0, "a"))).output == "b"
    assert (await run(_nap("a", 0.0), Step(id="bad", tool="fail"))).output == {"a": "a"}
    failed = Plan(steps=[Step(id="bad", tool="fail"), _nap("a", 0.0)], output={"bad": "${bad}"})
    assert (await dagrun.run(failed, tools=toolset())).output is None


async def test_inputs_are_filled_in() -> None:
    plan = Plan(steps=[Step(id="a", tool="echo", args={"value": "${input.region}: ${input.years[1]}"})])

    result = await dagrun.run(plan, tools=toolset(), inputs={"region": "north", "years": [1, 2]})

    assert result.output == "north: 2"


@pytest.mark.real_time
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_run_sync_works_inside_a_running_loop(backend: str) -> None:
    """As in a notebook; the run has a loop of its own."""
    plan = Plan(steps=[Step(id="a", tool="nap", args={"seconds": 0.01, "gives": 7})])

    assert dagrun.run_sync(plan, tools=[make_tool(nap, effect="read")], backend=backend).output == 7
