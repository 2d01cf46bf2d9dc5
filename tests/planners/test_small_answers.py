"""Habits of small models in lines of calls: put right where the meaning is beyond doubt, and left alone elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun import ModelPlanner, Problem, Refusal
from dagrun.planners.small_models import SmallAnswer
from scripted_model import Said, ScriptedModel
from test_model_planner import answer
from test_prompts import brief_of

TOOLS = ("sales", "average", "write")


def rewritten(text: str, size: int = 7) -> str:
    said = SmallAnswer(TOOLS)
    return "".join(said.feed(text[at : at + size]) for at in range(0, len(text), size)) + said.end()


@pytest.mark.parametrize("size", [1, 7, 999])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('1. average(sales("south"))\njoin()', '901. sales("south")\n1. average("${901}")\njoin()\n'),
        (
            '1. write("a", average(numbers=sales("x)"))) # both\n2. average([sales("y"), 1])\njoin()',
            '901. sales("x)")\n902. average(numbers="${901}")\n1. write("a", "${902}") # both\n'
            '903. sales("y")\n2. average(["${903}", 1])\njoin()\n',
        ),
        ('1. write("Sum: " + "$1" + ".")\njoin($1)', '1. write("Sum: $1.")\njoin($1)\n'),
        ('1. write(title: "a: b, c: d", body : "$1")\njoin()', '1. write(title="a: b, c: d", body="$1")\njoin()\n'),
        ('1. sales("north")\n', '1. sales("north")\njoin()\n'),
        ('1. sales("north")', '1. sales("north")\njoin()\n'),
        ('1. sales("north")\n2. join()', '1. sales("north")\n2. join()\n'),
    ],
)
def test_what_is_meant_is_written(text: str, wanted: str, size: int) -> None:
    assert rewritten(text, size) == wanted


@pytest.mark.parametrize(
    "line",
    [
        '1. write("average(sales())")',
        r'1. write("a \" + \" b")',
        '1. write(other("x"))',
        '1. average(sales("south"',
        "Thought: average(sales(1))",
        "1. write((1))",
        "1. write({a: 1}, b: 2)",
    ],
)
def test_what_is_in_doubt_stays(line: str) -> None:
    """Text of the user, tools that do not exist, and broken lines: the reader says what is wrong with them."""
    assert rewritten(f"{line}\njoin()") == f"{line}\njoin()\n"


def test_a_refusal_gets_no_end() -> None:
    assert rewritten('{"refusal": "no"}') == '{"refusal": "no"}\n'


@given(st.text(alphabet='123. salesaverage("$)\\\n+,{}', max_size=80), st.integers(1, 9))
def test_any_text_comes_out_the_same_in_pieces_of_any_size(text: str, size: int) -> None:
    """And comes out at all."""
    assert rewritten(text, size) == rewritten(text, 1_000)


@pytest.mark.anyio
async def test_a_nested_call_becomes_two_steps() -> None:
    model = ScriptedModel(Said(text='1. look_up(look_up("A"))', piece=3))

    found, error = await answer(ModelPlanner(model, dialect="calls"), brief_of())

    assert error is None
    assert [(edit.step.id, edit.step.args) for edit in found[:-1]] == [
        ("901", {"key": "A"}),
        ("1", {"key": "${901}"}),
    ]


@pytest.mark.anyio
async def test_a_refusal_writes_references_as_the_model_does() -> None:
    """The model wrote ``$2``; told of ``${2}``, a small one copies that, or does not know what is meant."""
    facts = {"step": "3", "reference": "${2}", "argument": "body", "tool": "write", "expected": "a text"}
    problem = Problem("DR304", "", {**facts, "producer": "2", "found": "a number; a text comes from ${1}"})
    model = ScriptedModel("1. add(1, 2)\n")
    await answer(ModelPlanner(model, dialect="calls"), brief_of(refused=(Refusal(None, (problem,)),)))

    assert "step 3 passes $2 as body: write takes a text, 2 gives a number; a text comes from $1" in model.prompts[0]
