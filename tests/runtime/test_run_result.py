"""What a run hands back: its figures, its answer, and the same as plain JSON."""

from __future__ import annotations

import json
import os
import signal
import time
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Plan, PlanRefused, Policy, RunFailed, Step
from dagrun.errors import ContractError, ValueRefused
from dagrun.kernel.model.tool import make_tool
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
        "verdicts": [],
        "is_gone": False,
        "substitute": "",
        "attempts": [],
    }
    with pytest.raises(RunFailed, match="the run ended as failed: bad failed: ValueError: no") as caught:
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
    assert (await dagrun.run(failed, tools=toolset())).output == {"bad": None}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("${bad}", None),
        ("the answer: ${bad} and ${a}", None),
        ({"one": "${a}", "two": "${bad}"}, {"one": "a", "two": None}),
        (
            {"text": "a ${bad}, b ${b}", "none": "${none}", "list": ["${b}", "${bad}"]},
            {"text": None, "none": None, "list": ["b", None]},
        ),
        (["${a}", ["${bad.rows[0]}", "x ${a}"], {"$step": "bad"}], ["a", [None, "x a"], None]),
        ({"part": "${a.rows}", "rest": "${b}"}, {"part": None, "rest": "b"}),
    ],
)
async def test_an_answer_has_null_only_where_a_step_failed(output: Any, expected: Any) -> None:
    """What there is comes back. A text around a failed part would say something else, so it is null as a whole."""
    steps = [_nap("a", 0.0), _nap("b", 0.0), Step(id="bad", tool="fail"), _nap("none", 0.0, "bad")]

    result = await dagrun.run(Plan(steps=steps, output=output), tools=toolset())

    assert (result.status, result.output) == ("failed", expected)


async def test_an_answer_may_be_larger_than_any_value_in_it() -> None:
    """It goes to the host, not into a tool: what holds for arguments does not hold for it."""
    plan = Plan(steps=[Step(id="a", tool="echo", args={"value": "${input.text}"})], output=["${a}", "${a}"])

    result = await dagrun.run(plan, tools=toolset(), inputs={"text": "x" * 700_000})

    assert [len(text) for text in result.output] == [700_000, 700_000]


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


VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="unset")


@pytest.mark.real_time
async def test_run_sync_hands_on_the_context_variables() -> None:
    async def look() -> str:
        return VARIABLE.get()

    VARIABLE.set("of the host")
    plan = Plan(steps=[Step(id="a", tool="look")])

    assert dagrun.run_sync(plan, tools=[make_tool(look, effect="read")]).output == "of the host"


@pytest.mark.real_time
async def test_an_interrupt_ends_a_run_sync_in_a_running_loop() -> None:
    """Whoever stops a cell of a notebook does not wait for the run to end by itself."""

    async def interrupt() -> None:
        await anyio.sleep(0.2)  # until the other thread waits
        os.kill(os.getpid(), signal.SIGUSR1)
        await anyio.sleep(50)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    plan = Plan(steps=[Step(id="a", tool="interrupt")])
    before, begun = signal.signal(signal.SIGUSR1, stop), time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            dagrun.run_sync(plan, tools=[make_tool(interrupt, effect="read")])
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert time.monotonic() - begun < 20


def test_run_sync_raises_a_refusal_without_a_tale_of_missing_loops() -> None:
    with pytest.raises(PlanRefused) as caught:
        dagrun.run_sync(Plan(steps=[]), tools=toolset())

    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"plan": {"steps": []}}, r"plan must be .*Plan\.model_validate.*; got dict"),
        ({"tools": {"nap": nap}}, "tools is a list .*, got dict"),
        ({"tools": 3}, "tools is a list .*, got int"),
        ({"policy": {"max_running": 1}}, "policy must be a dagrun.Policy; got dict"),
        ({"journal": "runs"}, r"not the name of one: journal=dagrun\.SQLiteJournal\('runs'\)"),
        ({"inputs": [1]}, "inputs must be values by name.*; got list"),
        ({"on_event": nap}, "on_event is a plain function"),
        ({"on_event": 3}, "on_event is a plain function"),
        ({"approver": "ann"}, "approver is an async function that is given a question; got str"),
    ],
)
def test_what_is_held_wrong_is_named(wrong: dict[str, Any], sentence: str) -> None:
    """The mistakes of the first hour; an AttributeError from the depths would help nobody."""
    options: dict[str, Any] = {"plan": Plan(steps=[_nap("a", 0.0)]), "tools": toolset(), **wrong}

    with pytest.raises(ContractError, match=sentence):
        dagrun.run_sync(options.pop("plan"), **options)


def test_inputs_that_are_no_json_are_named() -> None:
    with pytest.raises(ValueRefused, match="inputs: an object is not a JSON value"):
        dagrun.run_sync(Plan(steps=[_nap("a", 0.0)]), tools=toolset(), inputs={"x": object()})


async def test_elements_that_a_limit_kept_waiting_do_not_lengthen_the_critical_path() -> None:
    """One slot for all runs three elements of 2 s in 6 s; without the limit 2 s would do, and that is the bound."""
    plan = Plan(
        steps=[Step(id="a", tool="nap", for_each=[2.0, 2.0, 2.0], args={"seconds": "${item}", "gives": 1})],
    )
    limited = await dagrun.run(plan, tools=[make_tool(nap, effect="read")], policy=Policy(max_running=1))
    assert limited.makespan == pytest.approx(6)
    assert limited.critical_path == pytest.approx(2)
