"""Odd texts where one part of a plan names another: whatever they are, a check finds problems, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import dagrun
from dagrun import Flow, Patch, Plan, PlanRefused, Policy, Step
from dagrun.testing import FakeModelServer, ModelAnswer
from drafts import Says, Writer


@dagrun.tool(effect="pure")
async def make(n: int = 0, texts: list[str] = [], fields: dict[str, Any] = {}) -> dict[str, int]:  # noqa: B006
    """Make something."""
    return {"a": n}


@dagrun.tool(effect="effectful")
async def act(n: int = 0) -> int:
    """Do something."""
    return n


@dagrun.tool(effect="read")
async def boom() -> str:
    """Fail, so that the planner is asked."""
    raise dagrun.ToolError("no")


TOOLS: Final = [make, act, boom]
LONG: Final = "x" * 50_000
KNOWN: Final = (
    "get data",
    "é",
    "step #1",
    "a/b",
    "x" * 49,
    "",
    "input",
    "item",
    "a[0]",
    "a}${b",
    "${",
    "$step",
    "a\n",
    LONG,
)
NAMES: Final = st.text(max_size=60) | st.text(alphabet='ab.[]{}$"\\ #\x00é', max_size=12)
FORMS: Final = ("{}", "${{{}}}", "${{{}.a}}", "a text with ${{{}}} in it", "${{a.{}}}", "${{a[{}]}}", '${{a["{}"]}}')


def references(name: str) -> Iterator[Any]:
    """Each way to write a reference with *name* in it."""
    yield from (form.format(name) for form in FORMS)
    yield from (
        {"$step": name},
        {"$step": name, "path": "a"},
        {"$step": "a", "path": name},
        {"$step": "a", "path": [name]},
    )


def places(name: str, reference: Any) -> Iterator[dict[str, Any]]:
    """The fields of a step in which one part of a plan names another."""
    yield from ({"args": {"n": reference}}, {"args": {"fields": {"k": [reference]}}}, {"args": {name: reference}})
    yield from ({"for_each": reference}, {"for_each": [reference]}, {"default": reference, "on_failure": "default"})
    yield from ({"depends_on": [name]}, {"depends_on": [reference]}, {"depends_on": [name, name, "a"]})
    yield from (
        {"when": {"ref": reference, "op": "==", "value": reference}},
        {"success": {"ref": name, "op": "exists"}},
    )
    yield from (
        {field: name} for field in ("fallback", "tool", "executor", "pool", "on_failure", "pause", "description")
    )


def plans(name: str) -> Iterator[dict[str, Any]]:
    """Plans of two steps, of which one names the other, which may have the odd name."""
    for reference in references(name):
        for fields in places(name, reference):
            for id_ in ("a", name):
                steps = [{"id": id_, "tool": "make"}, {"id": "b", "tool": "make", **fields}]
                yield {"steps": steps}
                yield {"steps": steps[::-1], "output": reference}


def edits(name: str) -> Iterator[dict[str, Any]]:
    """The edits of a patch that name something."""
    for reference in references(name):
        for fields in places(name, reference):
            yield {"op": "add", "step": {"id": "n", "tool": "make", **fields}}
        yield {"op": "rewire", "id": "b", "args": {"n": reference}}
    step = {"id": name, "tool": "make"}
    yield from ({"op": "add", "step": step}, {"op": "replace", "id": "boom", "step": step}, {"op": "drop", "id": name})
    yield from ({"op": "replace", "id": name, "step": step}, {"op": "rewire", "id": name, "depends_on": [name]})
    yield {"op": "rewire", "id": "b", "depends_on": [name]}


def read(kind: Any, document: Any) -> Any:
    """Return the model of a document, or `None` if it has not even its shape."""
    try:
        return kind.model_validate(document)
    except ValidationError:
        return None


def check(document: dict[str, Any], name: str) -> None:
    """Check a plan in each way; anything but a refusal is an error of the check."""
    for source in (json.dumps(document), read(Plan, document)):
        for policy in (Policy(), Policy(flow=Flow(untrusted=["make"]))):
            with suppress(PlanRefused):
                if source is not None:
                    dagrun.check(source, TOOLS, policy=policy, inputs={name: 1})


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.rigs
def test_a_plan_with_an_odd_text_is_taken_or_refused(name: str) -> None:
    """As a text and as a plan of the host, with and without a trust boundary; nothing else comes out of a check."""
    for document in islice(plans(name), 0, None, 5):
        check(document, name)


@given(name=NAMES, data=st.data())
@pytest.mark.rigs
def test_a_plan_with_any_text_is_taken_or_refused(name: str, data: st.DataObject) -> None:
    """Texts that nobody has thought of."""
    check(data.draw(st.sampled_from(list(plans(name)))), name)


@pytest.mark.parametrize("name", ["get data", "é", "step #1", "a/b", "x" * 49, "a}${b"])
def test_a_whole_argument_that_names_a_bad_id_is_refused(name: str) -> None:
    """With the fault of the id, and that of the reference, if it is none."""
    document = {"steps": [{"id": name, "tool": "make"}, {"id": "b", "tool": "make", "args": {"n": f"${{{name}}}"}}]}

    with pytest.raises(PlanRefused) as caught:
        dagrun.check(json.dumps(document), TOOLS)

    first, *others = caught.value.problems
    assert (first.code, first.path) == ("DR101", "steps[0].id")
    assert {problem.path for problem in others} == {"steps[1].args.n"}


async def play(planner: Any, plan: Plan | None = None) -> str:
    """Let a planner answer; return all that the run has said."""
    events: list[dagrun.Event] = []
    known: Any = {"tools": TOOLS, "policy": Policy(max_replans=1), "on_event": events.append, "planner": planner}
    result = await (dagrun.run(goal="g", **known) if plan is None else dagrun.run(plan, **known))
    return " ".join([result.reason, *map(str, events)])


@pytest.mark.anyio
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.rigs
async def test_a_patch_and_a_streamed_step_with_an_odd_text_are_taken_or_refused(name: str) -> None:
    """And no run ends with the error of a check."""
    waits = Step(id="b", tool="make", depends_on=["boom"])
    plan = Plan(steps=[Step(id="a", tool="make"), Step(id="boom", tool="boom"), waits])
    for document in islice(edits(name), 0, None, 4):
        if (patch := read(Patch, {"edits": [document]})) is not None:
            assert "cannot be checked" not in await play(Says(patch), plan)

    named = read(Step, {"id": name, "tool": "make"})
    for fields in places(name, f"${{{name}}}"):
        steps = [one for one in (named, read(Step, {"id": "n", "tool": "make", **fields})) if one is not None]
        assert "cannot be checked" not in await play(Writer([*steps, 1.0]))


@pytest.mark.anyio
@pytest.mark.real_time
@pytest.mark.parametrize("name", ["get data", "a}${b"])
async def test_a_model_repairs_a_plan_with_an_odd_id(name: str) -> None:
    """Its planner is told of the problems, as of any others."""
    first = {"steps": [{"id": name, "tool": "make"}, {"id": "b", "tool": "make", "args": {"n": f"${{{name}}}"}}]}
    second = {"steps": [{"id": "a", "tool": "make", "args": {"n": 3}}]}

    with FakeModelServer([ModelAnswer(json.dumps(first)), ModelAnswer(json.dumps(second))]) as server:
        planner = dagrun.OpenAIPlanner("any", base_url=server.base_url)
        result = await dagrun.run(goal="g", planner=planner, tools=TOOLS)

    assert (result.status, result.output) == ("succeeded", {"a": 3})
