"""Advice: the plan can run, but a careful reader would ask; in a strict check, advice is an error."""

from __future__ import annotations

from typing import Any

import pytest

from checking import TOOLBOX, find, places
from dagrun import ApprovalRule, Condition, HedgeRule, PlanningRule, Policy, PoolLimits, Toolbox, tool
from dagrun.kernel.checks.findings import MAX_ADVICE

LOAD = {"id": "load", "tool": "load", "args": {"path": "a.csv"}}


def advice(*steps: dict[str, Any], **options: Any) -> list[str]:
    """Return the advice about a plan without problems."""
    problems, checked = find(*steps, **options)
    assert checked is not None
    assert problems == checked.advice
    return places(problems)


def test_a_dependency_that_is_not_used_is_pointed_out() -> None:
    """A step that only computes leaves nothing but its output: waiting for it without using the output loses time."""
    unused = {"id": "a", "tool": "add", "args": {"a": 1}, "depends_on": ["load"]}
    used = {"id": "b", "tool": "anything", "args": {"value": "${load}"}, "depends_on": ["load"]}
    asked = {
        "id": "c",
        "tool": "add",
        "args": {"a": 2},
        "depends_on": ["load"],
        "when": {"ref": "load", "op": "exists"},
    }

    assert advice(LOAD, unused, used, asked) == ["DR901 steps[1].depends_on[0]"]


def test_of_several_dependencies_those_are_pointed_out_that_are_not_used() -> None:
    """The other dependencies do not matter, nor do those of earlier steps."""
    send = {"id": "send", "tool": "send", "args": {"to": "x"}, "on_failure": "stop"}
    other = {"id": "other", "tool": "add", "args": {"a": 1}}
    after = {"id": "after", "tool": "add", "args": {"a": 2}, "depends_on": ["send"]}
    mixed = {
        "id": "mixed",
        "tool": "anything",
        "args": {"value": "${load}"},
        "depends_on": ["send", "load", "other"],
    }

    assert advice(LOAD, send, other, after, mixed) == ["DR901 steps[4].depends_on[2]"]


def test_what_is_wrong_is_not_advised_against_as_well() -> None:
    """A dependency on itself, on an unknown step or on a step with an unknown tool has a problem already."""
    broken = {"id": "broken", "tool": "nowhere", "args": {}}
    step = {"id": "a", "tool": "add", "args": {"a": 1}, "depends_on": ["a", "nobody", "broken", "load"]}

    problems = places(find(LOAD, broken, step)[0])

    assert [p for p in problems if p.startswith("DR901")] == ["DR901 steps[2].depends_on[3]"]


def test_to_wait_for_an_effect_is_a_reason() -> None:
    """Then the plan wants only the order, and can say it in no other way."""
    send = {"id": "send", "tool": "send", "args": {"to": "x"}, "on_failure": "stop"}

    assert advice(send, {"id": "a", "tool": "add", "args": {"a": 1}, "depends_on": ["send"]}) == []


def test_the_same_pure_call_twice_is_pointed_out() -> None:
    """One call would do, and another step could refer to it."""

    def call(id_: str, **fields: Any) -> dict[str, Any]:
        return {"id": id_, "tool": "add", "args": {"a": 1, "b": "${n}"}, **fields}

    n = {"id": "n", "tool": "add", "args": {"a": 1}}

    assert advice(n, call("x"), call("y", description="again"), call("z")) == ["DR902 steps[2]"]
    assert find(n, call("x"), call("y"), call("z"))[0][0].facts["steps"] == "x, y, z"
    assert advice(n, call("x"), {**call("y"), "args": {"a": 2, "b": "${n}"}}, {**call("z"), "args": {"a": 1}}) == [
        "DR902 steps[3]"
    ]
    assert advice(n, call("x"), call("y", when={"ref": "n", "op": "exists"})) == []
    assert advice(n, call("x"), call("y", for_each=[1])) == []


def test_what_looks_at_the_world_may_do_so_twice() -> None:
    """The second answer may differ from the first."""
    assert "DR902" not in str(find(LOAD, {**LOAD, "id": "again"})[0])


@tool
async def undeclared(x: int = 0) -> int:
    """A tool without any declaration."""
    raise NotImplementedError


@pytest.mark.parametrize(
    ("fields", "policy", "open_questions"),
    [
        ({}, None, ["DR910 steps[0].tool", "DR911 steps[0]", "DR912 steps[0]"]),
        ({"timeout": 3}, None, ["DR910 steps[0].tool", "DR912 steps[0]"]),
        ({"deadline": 3}, None, ["DR910 steps[0].tool", "DR912 steps[0]"]),
        ({}, Policy(timeout=3), ["DR910 steps[0].tool", "DR912 steps[0]"]),
        ({"timeout": 3, "on_failure": "skip"}, None, ["DR910 steps[0].tool"]),
        ({"timeout": 3, "fallback": "anything"}, None, ["DR910 steps[0].tool"]),
    ],
)
def test_questions_that_nobody_answered_are_asked(
    fields: dict[str, Any], policy: Policy | None, open_questions: list[str]
) -> None:
    """Approval, time, failure: for an undeclared tool, all three are open."""
    box = Toolbox(undeclared, TOOLBOX["anything"])

    assert advice({"id": "a", "tool": "undeclared", **fields}, toolbox=box, policy=policy) == open_questions


def test_strict_makes_errors_of_advice() -> None:
    """This is for plans that run without another review."""
    problems, checked = find({"id": "send", "tool": "send", "args": {"to": "x"}}, strict=True)

    assert places(problems) == ["DR912 steps[0]"]
    assert checked is None


def test_advice_is_cut_and_said_to_be() -> None:
    """100,000 lines of advice are useless; one line says that there is more."""
    found = advice(*({"id": f"s{i}", "tool": "undeclared"} for i in range(1000)), toolbox=Toolbox(undeclared))

    assert len(found) == 3 * MAX_ADVICE + 3
    assert found.count("DR990 ") == 3


def test_advice_comes_with_errors_too() -> None:
    """The author can correct everything at once."""
    problems, checked = find(LOAD, {"id": "a", "tool": "add", "args": {"a": 1, "c": 1}, "depends_on": ["load"]})

    assert checked is None
    assert places(problems) == ["DR204 steps[1].args.c", "DR901 steps[1].depends_on[0]"]


def test_a_misspelt_name_in_the_policy_is_a_problem() -> None:
    """A misspelt limit limits nothing, which would go unnoticed until it is needed."""
    policy = Policy(
        max_running_by_tool={"load": 1, "laod": 1},
        pools={"sql": PoolLimits(max_running=2), "sqll": PoolLimits(max_running=2)},
    )
    pooled = LOAD | {"pool": "sql"}

    found = [problem for problem in find(pooled, policy=policy)[0] if problem.code == "DR214"]

    assert [problem.path for problem in found] == ["policy.max_running_by_tool", "policy.pools"]
    assert [problem.sentence for problem in found] == [
        "the policy names the tool 'laod', which is not known here; did you mean load?",
        "the policy names the pool 'sqll', which is not known here; did you mean sql?",
    ]


def test_every_place_of_the_policy_that_names_a_tool_is_checked() -> None:
    """A misspelt rule asks nobody, and a misspelt ceiling counts nothing; the star stands for every tool."""
    policy = Policy(
        max_calls_by_tool={"load": 1, "lode": 1},
        approve=[ApprovalRule(tool="send"), ApprovalRule(tool="sned"), ApprovalRule(tool="*")],
        planning=PlanningRule(stream_safe=["send", "sendd"]),
        unrecorded=["laod"],
        hedge=HedgeRule(tools=["loda"]),
    )

    found = [problem for problem in find(LOAD, policy=policy)[0] if problem.code == "DR214"]

    assert [str(problem) for problem in found] == [
        "DR214 policy.max_calls_by_tool: the policy names the tool 'lode', which is not known here; did you mean load?",
        "DR214 policy.planning.stream_safe[1]: "
        "the policy names the tool 'sendd', which is not known here; did you mean send?",
        "DR214 policy.unrecorded[0]: the policy names the tool 'laod', which is not known here; did you mean load?",
        "DR214 policy.hedge.tools[0]: the policy names the tool 'loda', which is not known here; did you mean load?",
        "DR214 policy.approve[1].tool: the policy names the tool 'sned', which is not known here; did you mean send?",
    ]


def test_a_name_that_is_like_no_other_is_advice() -> None:
    """Runs with other tools may share the policy."""
    [problem] = [p for p in find(LOAD, policy=Policy(max_calls_by_tool={"telegraph": 1}))[0] if "telegraph" in str(p)]

    assert (problem.code, problem.is_advice) == ("DR913", True)


def test_a_rule_over_an_argument_that_the_tool_does_not_take_is_a_problem() -> None:
    """It could not be applied, so it would ask about every call, or seem to work."""
    rule = ApprovalRule(tool="load", when=Condition(ref="args.pth", op="==", value="x"))
    right = ApprovalRule(tool="load", when=Condition(ref="args.path", op="==", value="x"))

    found = [str(p) for p in find(LOAD, policy=Policy(approve=[rule, right]))[0] if p.code == "DR215"]

    assert found == [
        "DR215 policy.approve[0].when: a rule of the policy tests 'pth', which load does not take; did you mean path?"
    ]


@tool(effect="read", timeout=5, max_tokens=100, fallback="guess")
async def think(x: int = 0) -> int:
    """Asks a model, and declares the most that it can use."""
    raise NotImplementedError


@tool(effect="read", timeout=5, max_cost=0.1)
async def guess(x: int = 0) -> int:
    """Asks another model."""
    raise NotImplementedError


BOX = Toolbox(TOOLBOX["add"], think, guess)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (Policy(), []),
        (Policy(max_attempts=1, max_calls_by_tool={"think": 1}), []),
        (Policy(max_tokens=500), ["the ceiling of 500 tokens does not bind guess: it names no max_tokens"]),
        (Policy(max_cost=2.5), ["the ceiling of 2.5 in cost does not bind think: it names no max_cost"]),
    ],
)
def test_a_ceiling_that_does_not_bind_a_tool_says_so(policy: Policy, told: list[str]) -> None:
    """Once for each tool, however many steps call it, also as a fallback; a pure tool calls no model."""
    steps = [{"id": f"t{n}", "tool": "think", "args": {"x": n}} for n in range(3)]

    problems = find(*steps, {"id": "a", "tool": "add", "args": {"a": 1}}, toolbox=BOX, policy=policy)[0]

    assert [problem.sentence for problem in problems] == told
    assert {problem.code for problem in problems} <= {"DR914"}


def test_a_rule_of_the_policy_answers_the_question_of_approval() -> None:
    """The rule says whether calls of the tool need a person."""
    box = Toolbox(undeclared)
    step = {"id": "a", "tool": "undeclared", "timeout": 3, "on_failure": "skip"}

    assert advice(step, toolbox=box) == ["DR910 steps[0].tool"]
    assert advice(step, toolbox=box, policy=Policy(approve=[ApprovalRule(tool="undeclared")])) == []
    assert advice(step, toolbox=box, policy=Policy(approve=[ApprovalRule(tool="*")])) == []
