"""Answers of planners, changes and next steps: they are read strictly, or refused with every problem."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checking import TOOLBOX, places
from dagrun import Add, Drop, Patch, Plan, PlanLimits, PlanRefused, Replace, Rewire, Step, read_plan
from dagrun.errors import CannotPlan
from dagrun.planners.answers.model_answers import NextStepAnswer, read_answer, read_next_step

ADD = {"id": "n", "tool": "add", "args": {"a": 1, "b": None}}
STEP = Step(id="n", tool="add", args={"a": 1})


def answer(tree: Any, **limits: int) -> Patch | Plan:
    """Read an answer."""
    return read_answer(tree if isinstance(tree, str) else json.dumps(tree), TOOLBOX, PlanLimits(**limits))


def patch(*edits: Any, **fields: Any) -> Patch:
    """Read a patch."""
    made = answer({"edits": list(edits), **fields})
    assert isinstance(made, Patch)
    return made


def refusal(tree: Any, **limits: int) -> list[str]:
    """Return the problems of an answer, each as code and place."""
    with pytest.raises(PlanRefused) as caught:
        answer(tree, **limits)
    return places(caught.value.problems)


def test_an_object_with_edits_is_a_patch() -> None:
    """Every kind of edit; the nulls of strict output modes count as left out."""
    made = patch(
        {"op": "add", "step": ADD},
        {"op": "drop", "id": "old[2]", "cancel": None},
        {"op": "replace", "id": "s", "step": ADD, "cancel": True},
        {"op": "rewire", "id": "t", "use": {"s": "n"}, "depends_on": ["n"], "args": None},
        reason="because",
        confidence=0.5,
        refusal=None,
    )

    assert made == Patch(
        edits=(
            Add(step=STEP),
            Drop(id="old[2]"),
            Replace(id="s", step=STEP, cancel=True),
            Rewire(id="t", use={"s": "n"}, depends_on=("n",)),
        ),
        reason="because",
        confidence=0.5,
    )


def test_an_output_of_null_leaves_the_output_as_it_is() -> None:
    """Strict output modes require the field, but a patch with an output changes the answer of the run."""
    assert not patch({"op": "drop", "id": "a"}, output=None, base=None, reason=None, more=None).changes_output
    assert patch({"op": "drop", "id": "a"}, output="n").changes_output


def test_use_is_taken_as_pairs_too() -> None:
    """Strict output modes have no objects with arbitrary keys."""
    made = patch({"op": "rewire", "id": "t", "use": [{"old": "a", "new": "b"}, {"old": "c", "new": "d"}]})

    assert made.edits[0] == Rewire(id="t", use={"a": "b", "c": "d"})
    assert patch({"op": "rewire", "id": "t", "use": []}).edits[0] == Rewire(id="t")
    for wrong in ([{"old": "a"}], [{"old": 1, "new": "b"}], ["a"], [{"old": "a", "new": "b", "x": 1}]):
        assert refusal({"edits": [{"op": "rewire", "id": "t", "use": wrong}]}) == ["DR009 edits[0].use"]
    twice = [{"old": "a", "new": "b"}, {"old": "a", "new": "c"}]
    assert refusal({"edits": [{"op": "rewire", "id": "t", "use": twice}]}) == ["DR007 edits[0].use"]
    assert refusal({"edits": [{"op": "rewire", "id": "t", "use": [{"old": "a", "new": 1}]}]}) == [
        "DR009 edits[0].use.a"
    ]


def test_nulls_in_the_arguments_of_a_rewire_are_dropped_if_every_tool_would() -> None:
    """The edit does not name its tool, so a tool with exactly these arguments is looked for."""
    for given, kept in (
        ({"a": 1, "b": None}, {"a": 1}),
        ({"rows": [], "options": None}, {"rows": [], "options": None}),
    ):
        assert patch({"op": "rewire", "id": "t", "args": given}).edits[0] == Rewire(id="t", args=kept)
    assert patch({"op": "rewire", "id": "t", "args": {"b": None}}).edits[0] == Rewire(id="t", args={"b": None})


def test_all_problems_of_a_patch_come_at_once() -> None:
    """In the words that a planner knows from the problems of plans."""
    tree = {
        "edits": [
            {"op": "add", "step": {"id": 3, "tool": "add", "arg": {}, "when": {"rf": "x"}}},
            {"op": "explode"},
            {"id": "a"},
            3,
            {"op": "drop", "idd": "a"},
            {"op": "add"},
            {"op": "replace", "id": "a", "step": 4, "cancel": "yes"},
            {"op": ["add"], "step": ADD},
        ],
        "raeson": "x",
        "output": 4,
        "confidence": 2,
    }

    assert sorted(refusal(tree)) == [
        "DR009 edits[0].step.id",
        "DR009 edits[1].op",
        "DR009 edits[3]",
        "DR009 edits[6].cancel",
        "DR009 edits[6].step",
        "DR009 edits[7].op",
        "DR009 output",
        "DR010 edits[0].step.arg",
        "DR010 edits[0].step.when.rf",
        "DR010 edits[4].idd",
        "DR010 raeson",
        "DR011 edits[2]",
        "DR011 edits[4]",
        "DR011 edits[5]",
        "DR012 confidence",
    ]


@pytest.mark.parametrize(
    ("text", "places_"),
    [
        ('{"edits": [{"op": "drop", "id": "a", "id": "b"}]}', ["DR007 edits[0]"]),
        ('{"edits": [], "base": NaN}', ["DR008 base"]),
        ('{"edits": [], "reason": "\\u0000"}', ["DR013 reason"]),
        ('{"edits": [{"op": "drop"', ["DR421 "]),
        ('{"edits": [}', ["DR421 "]),
        ('{"edits": [oops]}', ["DR003 "]),
        ('{"edits": {}}', ["DR009 edits"]),
        ('{"edits": [{}]} {"edits": []}', ["DR009 ", "DR011 edits[0]"]),
        ('{"edits": [1], "steps": [2]}', ["DR420 "]),
        ('{"changes": []}', ["DR420 "]),
        ("I would drop the second step.", ["DR009 "]),
        ("", ["DR009 "]),
        ('{"edits": [], "refusal": 3}', ["DR009 refusal"]),
        ('{"edits": [{"op": "drop", "id": "a"}], "refusal": "no"}', ["DR014 refusal"]),
    ],
)
def test_what_is_no_patch_is_refused(text: str, places_: list[str]) -> None:
    """Patches are parsed as strictly as plans."""
    assert refusal(text) == places_


def test_ceilings_hold_for_patches() -> None:
    """Bytes, depth, and as many edits as a plan may have steps."""
    drop = {"op": "drop", "id": "a"}

    assert refusal({"edits": [drop] * 3}, max_steps=2) == ["DR409 edits"]
    assert refusal({"edits": [drop]}, max_bytes=10) == ["DR005 "]
    assert refusal({"edits": [{"op": "rewire", "id": "a", "args": {"x": [1]}}]}, max_depth=4) == ["DR006 "]
    assert len(answer({"edits": [drop] * 3}, max_steps=3, max_depth=3).edits) == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"steps": [ADD], "edits": None}),
        json.dumps({"steps": [ADD], "edits": []}),
        "Another way:\n```json\n" + json.dumps({"goal": "", "refusal": None, "steps": [ADD], "output": None}) + "\n```",
        "1. add(1)\n2. join()",
        json.dumps({"steps": [{"step_number": 1, "action": "add", "parameters": {"a": 1}}]}),
    ],
)
def test_a_whole_plan_is_an_answer_too(text: str) -> None:
    """In every dialect; all published examples answer with whole plans."""
    made = answer(text)

    assert isinstance(made, Plan)
    assert made.steps[0].args == {"a": 1}


def test_calls_in_the_prose_before_a_patch_are_prose() -> None:
    """A patch cannot be written in lines of calls; but before a plan, such lines would be another plan."""
    tree = json.dumps({"edits": [{"op": "drop", "id": "a"}]})

    assert answer("I undo these:\n1. load('a')\n" + tree) == Patch(edits=(Drop(id="a"),))
    assert answer("1. anything(" + json.dumps({"steps": []}) + ")\n2. join()").steps[0].tool == "anything"  # type: ignore[union-attr]


def test_calls_behind_a_plan_are_prose() -> None:
    """The text that begins first is the plan."""
    made = answer(json.dumps({"steps": [ADD]}) + "\nThat is:\n1. add(1)\n2. join()")

    assert isinstance(made, Plan)
    assert made.steps == (STEP,)


def test_a_patch_beside_an_empty_list_of_steps_is_a_patch() -> None:
    """A model that fills in every field leaves the other one empty."""
    assert isinstance(answer({"edits": [{"op": "drop", "id": "a"}], "steps": []}), Patch)
    assert answer({"edits": [], "steps": None}) == Patch(edits=())


@pytest.mark.parametrize(
    "text", ['{"refusal": "No way."}', '{"refusal": "No way.", "edits": []}', '{"steps": [], "refusal": "No way."}']
)
def test_a_refusal_is_raised(text: str) -> None:
    """So the run can report it."""
    with pytest.raises(CannotPlan, match=r"^No way\.$"):
        answer(text)


def test_the_next_step_is_read_like_a_step_of_a_plan() -> None:
    """Nulls are removed, and prose around the answer is ignored."""
    tree = {"thought": "x", "step": ADD, "stop": None, "output": None, "reason": None, "confidence": 0.5}
    made = read_next_step(f"Well:\n```json\n{json.dumps(tree)}\n```", TOOLBOX)

    assert made == NextStepAnswer(thought="x", step=STEP, confidence=0.5)
    assert made.step == read_plan(json.dumps({"steps": [ADD]}), toolbox=TOOLBOX).steps[0]
    assert read_next_step('{"thought": null, "stop": "goal_met", "output": "n"}', TOOLBOX) == NextStepAnswer(
        stop="goal_met", output="n"
    )


@pytest.mark.parametrize(
    ("tree", "places_"),
    [
        ({"step": None, "stop": None}, ["DR009 "]),
        ({"step": ADD, "stop": "cannot"}, ["DR009 "]),
        ({"stop": "bored"}, ["DR009 stop"]),
        ({"step": {"id": 3, "tool": "add"}}, ["DR009 step.id"]),
        ({"step": [ADD]}, ["DR009 step"]),
        ({"stop": "cannot", "why": "x", "confidence": 7}, ["DR012 confidence", "DR010 why"]),
        ({"steps": [ADD]}, ["DR009 ", "DR010 steps"]),
        ({}, ["DR009 "]),
    ],
)
def test_what_is_no_next_step_is_refused(tree: Any, places_: list[str]) -> None:
    """Exactly one of a step and a reason to stop, and no other fields."""
    with pytest.raises(PlanRefused) as caught:
        read_next_step(json.dumps(tree), TOOLBOX)

    assert places(caught.value.problems) == places_
