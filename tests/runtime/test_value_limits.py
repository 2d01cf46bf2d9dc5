"""How much values may hold: arguments by the policy, outputs by their tool, and what becomes a file instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dagrun
import process_tools
from agents import answer, call
from dagrun import Artifact, Plan, PlanRefused, Policy, Step, ToolContext, WorkerLimits, agent_tool
from dagrun.errors import ValueRefused
from dagrun.kernel.model.tool import AnyTool, make_tool
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio

SMALL = Policy(max_argument_bytes=2_000)


async def page(n: int) -> str:
    """Return a text of *n* characters."""
    return "x" * n


async def take(value: Any = None, values: list[Any] | None = None) -> int:
    """Return the length of what it got."""
    return len(value if values is None else values)


async def rows(n: int) -> list[int] | Artifact:
    """Return *n* numbers, or the file that they are in."""
    return [7] * n


async def count(rows: list[int] | Artifact, context: ToolContext, name: str = "") -> int:
    """Count numbers, wherever they are."""
    if isinstance(rows, Artifact):
        assert rows.media_type == "application/json"
        return len(json.loads(context.artifacts.path(rows).read_bytes()))
    return len(rows)


async def count_each(lists: list[list[int] | Artifact], context: ToolContext) -> list[int]:
    """Count the numbers of many lists."""
    return [await count(rows, context) for rows in lists]


TOOLS: list[AnyTool] = [
    make_tool(page, effect="read"),
    make_tool(take, effect="pure"),
    make_tool(rows, effect="read", output_limit=1_000),
    make_tool(count, effect="pure"),
    make_tool(count_each, effect="pure"),
]
BIG = 1_000_000  # characters: two of them did not fit into the arguments of one call


async def _run(*steps: Step, policy: Policy | None = None, **options: Any) -> dagrun.RunResult:
    return await dagrun.run(Plan(steps=steps), tools=TOOLS, policy=policy, **options)


def _pages(count: int, size: int) -> list[Step]:
    return [Step(id=f"p{n}", tool="page", args={"n": size}) for n in range(count)]


# Arguments ------------------------------------------------------------------------------------------------------------

FAN_IN: dict[str, dict[str, Any]] = {
    "list": {"values": ["${p0}", "${p1}", "${p2}"]},
    "object": {"value": {"a": "${p0}", "b": {"c": "${p1}", "d": "${p2}"}}},
    "text": {"value": "${p0}, ${p1} and ${p2}"},
}


@pytest.mark.parametrize("form", FAN_IN)
async def test_one_step_takes_what_many_have_returned(form: str) -> None:
    """Outputs that fit one by one fit together, and the default limit is sixteen of the largest."""
    result = await _run(*_pages(3, BIG), Step(id="last", tool="take", args=FAN_IN[form]))

    assert result.status == "succeeded"
    assert result.steps["last"].output == {"list": 3, "object": 2, "text": 3 * BIG + 7}[form]


@pytest.mark.parametrize("form", FAN_IN)
async def test_arguments_over_the_limit_of_the_policy_name_it_and_what_to_do(form: str) -> None:
    result = await _run(*_pages(3, 900), Step(id="last", tool="take", args=FAN_IN[form]), policy=SMALL)

    last = result.steps["last"]
    assert (last.state, last.failure and last.failure.kind) == ("failed", "bad_arguments")
    assert last.reason == (
        "the arguments would take over 2000 bytes of JSON, the ceiling (max_argument_bytes of the policy); raise it, "
        "pass less of it, or an Artifact"
    )


@pytest.mark.parametrize(("policy", "status"), [(None, "succeeded"), (SMALL, "failed")])
async def test_the_list_of_a_for_each_and_its_outputs_have_the_same_limit(policy: Policy | None, status: str) -> None:
    """They join many values, as arguments do."""
    size = BIG if policy is None else 900
    each = Step(id="each", tool="take", for_each=["${p0}", "${p1}", "${p2}"], args={"value": "${item}"})
    back = Step(id="back", tool="page", for_each=[size] * 3, args={"n": "${item}"})
    last = Step(id="last", tool="take", args={"values": "${back}"})

    listed = await _run(*_pages(3, size), each, policy=policy)
    joined = await _run(back, last, policy=policy)

    assert (listed.status, joined.status) == (status, status)
    for result, step in ((listed, "each"), (joined, "back")):
        assert (policy is None) is ("max_argument_bytes of the policy" not in result.steps[step].reason)


LITERALS: dict[str, dict[str, Any]] = {
    "args": {"args": {"value": "é" * 1_000}},
    "args with a reference": {"args": {"values": ["x" * 2_000, "${input.a}"]}},
    "args of many values": {"args": {"value": [[1] * 500, [2] * 600]}},
    "for_each": {"for_each": ["x" * 1_000, "y" * 1_000], "args": {"value": "${item}"}},
    "default": {"args": {"value": ""}, "on_failure": "default", "default": "x" * 2_000},
}


@pytest.mark.parametrize("name", LITERALS)
async def test_what_stands_in_the_plan_is_found_by_the_check(name: str) -> None:
    """Before anything runs; and what is found by the check is what the run would refuse."""
    plan = Plan(steps=[Step(id="a", tool="take", **LITERALS[name])])

    with pytest.raises(PlanRefused) as caught:
        dagrun.check(plan, TOOLS, policy=SMALL, inputs={"a": 1})
    assert [problem.code for problem in caught.value.problems] == ["DR220"]
    assert "ceiling is 2000 (max_argument_bytes of the policy); raise it, or pass an Artifact" in str(caught.value)
    dagrun.check(plan, TOOLS, policy=Policy(max_argument_bytes=3_000), inputs={"a": 1})


async def test_a_large_literal_runs_where_the_policy_allows_it() -> None:
    """Arguments and a default of more than one output may hold."""
    text = "x" * (2 << 20)
    result = await _run(
        Step(id="a", tool="take", args={"value": text}),
        Step(id="b", tool="take", args={"value": 3}, on_failure="default", default=text),
        Step(id="c", tool="take", args={"value": "${b}"}),
    )

    assert [result.steps[id_].output for id_ in "ac"] == [len(text)] * 2


async def test_inputs_have_the_limit_too() -> None:
    step = Step(id="a", tool="take", args={"value": "${input.text}"})

    assert (await _run(step, inputs={"text": "x" * (2 << 20)})).output == 2 << 20
    with pytest.raises(ValueRefused, match=r"inputs: .*max_argument_bytes of the policy"):
        await _run(step, inputs={"text": "x" * 2_000}, policy=SMALL)


async def test_an_output_over_its_limit_names_the_limit() -> None:
    result = await _run(Step(id="a", tool="page", args={"n": 1 << 20}))

    assert "output_limit of page" in result.steps["a"].reason
    assert "Artifact" in result.steps["a"].reason


# Outputs that become files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 499, 500, 5_000])
async def test_what_is_over_the_limit_of_its_tool_becomes_an_artifact(n: int) -> None:
    """Where the return type says so, and the next step takes both; exactly from the limit on."""
    result = await _run(
        Step(id="load", tool="rows", args={"n": n}), Step(id="last", tool="count", args={"rows": "${load}"})
    )

    output = result.steps["load"].output
    assert (result.status, result.output) == ("succeeded", n)
    assert isinstance(output, dict) is (2 * n + 1 > 1_000)
    if isinstance(output, dict):
        artifact = Artifact(**output)
        assert (artifact.size, artifact.name) == (2 * n + 1, "load.json")
        assert json.loads(result.artifacts.path(artifact).read_bytes()) == [7] * n


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "whole": ({"tool": "take", "args": {"values": "${load}"}}, "takes no Artifact as values"),
    "anything": ({"tool": "take", "args": {"value": "${load}"}}, "takes no Artifact as value"),
    "inside": ({"tool": "take", "args": {"value": {"a": ["${load}"]}}}, "takes no Artifact as value.a[0]"),
    "a text": ({"tool": "count", "args": {"rows": [], "name": "of ${load}"}}, "takes no Artifact inside a text"),
    "a part": ({"tool": "take", "args": {"value": "${load[3]}"}}, "asks for an element of an object"),
    "a list": ({"tool": "take", "for_each": "${load}", "args": {"value": "${item}"}}, "for_each needs a list"),
}


@pytest.mark.parametrize("name", MISFITS)
async def test_an_artifact_in_place_of_data_is_a_failure_that_names_the_limit(name: str) -> None:
    """The data itself was expected there; its file must not be taken for it."""
    fields, text = MISFITS[name]
    result = await _run(Step(id="load", tool="rows", args={"n": 5_000}), Step(id="last", **fields))

    last = result.steps["last"]
    assert last.state == "failed"
    assert text in last.reason
    assert "10001 bytes of JSON are over the output_limit of 1000 that rows has" in last.reason
    small = await _run(Step(id="load", tool="rows", args={"n": 5}), Step(id="last", **fields))
    assert "output_limit" not in small.reason


async def test_elements_of_a_for_each_become_artifacts_one_by_one() -> None:
    each = Step(id="each", tool="rows", for_each=[5, 5_000], args={"n": "${item}"})

    both = await _run(each, Step(id="last", tool="count_each", args={"lists": "${each}"}))
    again = await _run(each, Step(id="last", tool="count", for_each="${each}", args={"rows": "${item}"}))
    wrong = await _run(each, Step(id="last", tool="take", args={"values": "${each}"}))
    item = await _run(each, Step(id="last", tool="take", for_each="${each}", args={"value": "${item}"}))

    assert (both.output, again.output) == ([5, 5_000], [5, 5_000])
    assert "takes no Artifact as values[1]" in wrong.steps["last"].reason
    assert "takes no Artifact as value;" in item.steps["last"].reason


async def test_what_is_over_the_limit_for_files_or_may_be_in_no_record_is_a_failure() -> None:
    load = Step(id="load", tool="rows", args={"n": 5_000})

    large = await _run(load, policy=Policy(max_spill_bytes=10_000))
    unrecorded = await _run(load, policy=Policy(unrecorded=("rows",)))

    assert "ceiling is max_spill_bytes of the policy" in large.steps["load"].reason
    assert "ceiling is output_limit of rows" in unrecorded.steps["load"].reason


async def test_a_file_holds_no_secret() -> None:
    """A record would keep the output back; a file that the run writes by itself must not be a way around that."""

    async def leak() -> list[str] | Artifact:
        return ["hunter2-is-the-word"] * 100

    plan = Plan(steps=[Step(id="a", tool="leak")])
    tools = [make_tool(leak, effect="read", output_limit=1_000)]
    result = await dagrun.run(plan, tools=tools, secrets={"word": "hunter2-is-the-word"})

    assert "hold the secret word" in result.steps["a"].reason


async def test_a_retried_run_still_has_large_values_and_files() -> None:
    """That an output was spilled follows from its value, so a reader in another run is refused in the same words."""
    fail = [True]

    async def gate(value: Any, rows: list[int] | Artifact) -> int:
        if fail[0]:
            raise dagrun.ToolError("not now")
        return len(value)

    tools = [*TOOLS, make_tool(gate, effect="pure")]
    plan = Plan(
        steps=[
            Step(id="load", tool="rows", args={"n": 5_000}),
            *_pages(3, BIG),
            Step(id="gate", tool="gate", args={"value": ["${p0}", "${p1}", "${p2}"], "rows": "${load}"}),
            Step(id="bad", tool="take", args={"value": "${load}"}, depends_on=["gate"]),
            Step(id="good", tool="count", args={"rows": "${load}"}, depends_on=["gate"]),
        ]
    )
    journal = dagrun.MemoryJournal()
    first = await dagrun.run(plan, tools=tools, journal=journal, run_id="first")
    fail[0] = False
    async with dagrun.retry("first", journal=journal, tools=tools) as run:
        second = await run.result()

    assert first.steps["gate"].state == "failed"
    assert (second.steps["gate"].output, second.steps["good"].output) == (3, 5_000)
    assert "output_limit of 1000 that rows has" in second.steps["bad"].reason


@pytest.mark.real_time
@pytest.mark.costly
async def test_worker_processes_have_the_same_limits() -> None:
    """Arguments and outputs of many frames: what is over the limit of the tool becomes a file here, too."""
    texts = Step(id="texts", tool="join_texts", args={"texts": ["${p0}", "${p1}", "${p2}"]})
    load = Step(id="load", tool="return_list", args={"count": 100_000})
    last = Step(id="last", tool="count", args={"rows": "${load}"})
    tools: list[AnyTool] = [*TOOLS, process_tools.join_texts, process_tools.return_list]

    policy = Policy(max_spill_bytes=150_000, workers=WorkerLimits(max_processes=1))
    result = await dagrun.run(Plan(steps=[*_pages(3, BIG), texts, load, last]), tools=tools)
    refused = await dagrun.run(Plan(steps=[load]), tools=tools, policy=policy)

    assert result.status == "succeeded"
    assert (len(result.steps["texts"].output), result.steps["last"].output) == (3 * BIG, 100_000)
    assert result.steps["load"].output["size"] == 200_001
    assert "150000" in refused.steps["load"].reason


async def test_the_calls_of_an_agent_have_the_same_limits() -> None:
    """Arguments by the policy, in words for the model; outputs by their tool, as a file where its type says so."""
    model = ScriptedModel(
        call("take", value="x" * 3_000, values=None),
        call("rows", n=5_000),
        call("take", value="x", values=None),
        answer(),
    )
    agent = agent_tool(model, TOOLS[1:3])
    plan = Plan(steps=[Step(id="work", tool=agent.name, args={"task": "Find it."})])

    result = await dagrun.run(plan, tools=[agent], policy=SMALL)

    said = [request.messages[-1].text for request in model.requests[1:]]
    assert result.status == "succeeded"
    assert "over 2000 bytes of JSON" in said[0] or "over the ceiling of 2000" in said[0]
    assert "max_argument_bytes of the policy" in said[0]
    assert '"size":10001' in said[1].replace(" ", "")
    assert "1" in said[2]
