"""Plans while they are written: each step when it is complete, and at the end the plan of `read_plan`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checking import TOOLBOX, places
from dagrun import Plan, PlanLimits, PlanRefused, Step, read_plan
from dagrun.errors import CannotPlan
from dagrun.planners.answers.plan_stream import Dialect, PlanReader
from judged_answers import end_of

ADD: dict[str, Any] = {"id": "a", "tool": "add", "args": {"a": 1}}
SHOW: dict[str, Any] = {"id": "b", "tool": "show", "args": {"text": "${a}"}, "depends_on": ["a"]}
TEXT = json.dumps({"goal": "g", "steps": [ADD, SHOW], "output": "b"})


def reader(**limits: int) -> PlanReader:
    """Return a reader for the tools of these tests."""
    return PlanReader(TOOLBOX, PlanLimits(**limits))


def feed(text: str, size: int = 1_000_000, **limits: int) -> tuple[list[Step], Plan]:
    """Feed *text* in pieces of *size* characters."""
    made = reader(**limits)
    steps = [step for at in range(0, len(text), size) for step in made.feed(text[at : at + size])]
    return steps, made.close()


def refusal(text: str, size: int = 1_000_000, **limits: int) -> list[str]:
    """Return the problems with which feeding *text* ends, each as code and place."""
    with pytest.raises(PlanRefused) as caught:
        feed(text, size, **limits)
    return places(caught.value.problems)


def test_a_step_comes_with_its_closing_brace() -> None:
    """The author may think about the next step for seconds, in which this one can run."""
    made = reader()
    end = TEXT.index("}}") + 2

    assert made.feed(TEXT[: end - 1]) == []
    assert made.feed(TEXT[end - 1 : end]) == [Step(**ADD)]
    assert made.feed(TEXT[end:]) == [Step(**SHOW)]
    assert made.close() == read_plan(TEXT)
    assert made.text == TEXT


@pytest.mark.parametrize("number", ["1", "12", "123", "-1.5e-7", "1e9"])
def test_half_a_number_is_never_a_value(number: str) -> None:
    """Readers of partial JSON take "12" of "123" for a number, and a step would run with it."""
    text = json.dumps({"steps": [{"id": "a", "tool": "anything", "args": {"value": "?"}}]}).replace('"?"', number)
    steps, _ = feed(text, 1)

    assert [step.args for step in steps] == [{"value": json.loads(number)}]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
_STEPS = st.fixed_dictionaries(
    {"id": st.text(), "tool": st.sampled_from(["add", "anything", "nope"])},
    optional={
        "args": st.dictionaries(st.text(), _VALUES, max_size=3),
        "depends_on": st.lists(st.text(), max_size=3),
        "description": st.text(),
        "for_each": st.lists(_VALUES, max_size=3),
    },
)
_PLANS = st.fixed_dictionaries(
    {"steps": st.lists(_STEPS, max_size=3)}, optional={"goal": st.text(), "output": st.text()}
)


@given(_PLANS, st.lists(st.integers(1, 40), min_size=1), st.booleans())
def test_any_plan_in_any_pieces_gives_the_steps_of_read_plan(plan: Any, sizes: list[int], ascii_: bool) -> None:
    """In order, each once, and with an equal plan at the end; or with equal problems."""
    text = json.dumps(plan, ensure_ascii=ascii_)
    made, steps, at, turn = reader(), list[Step](), 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        steps += made.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    expected = end_of(lambda: read_plan(text, toolbox=TOOLBOX))

    assert end_of(made.close) == expected
    if isinstance(expected, Plan):
        assert steps == list(expected.steps)


def test_the_dialect_of_step_number_and_action_streams_too() -> None:
    """Its steps are converted as in the whole plan, with the arguments that they leave out."""
    first = {"step_number": 1, "action": "load", "parameters": {"path": "a.csv"}}
    second = {"step_number": 2, "action": "show", "parameters": {"text": "x"}, "depends_on": [1]}
    for fields in ({"steps": [first, second], "total_steps": 2}, {"task_summary": "t", "steps": [first, second]}):
        text = json.dumps(fields)
        steps, plan = feed(text, 5)

        assert [(step.id, step.tool) for step in steps] == [("1", "load"), ("2", "show")]
        assert plan == read_plan(text, toolbox=TOOLBOX)


@pytest.mark.parametrize("size", [1, 1_000])
def test_what_stands_behind_the_steps_does_not_change_how_they_are_read(size: int) -> None:
    """Whether later text is known already depends on the size of the pieces."""
    made = reader()
    text = json.dumps({"steps": [ADD], "total_steps": 1})
    steps = [step for at in range(0, len(text), size) for step in made.feed(text[at : at + size])]

    assert steps == [Step(**ADD)]
    assert refusal(text)[0] == "DR010 steps[0].id"


def test_one_plan_has_one_dialect() -> None:
    """A step in another dialect would be refused with the whole plan, so it does not start."""
    first = {"step_number": 1, "action": "load", "parameters": {"path": "a.csv"}}
    mixed, other = reader(), reader()

    assert [step.id for step in mixed.feed(json.dumps({"steps": [first, ADD]}))] == ["1"]
    assert [step.id for step in other.feed(json.dumps({"steps": [ADD, first]}))] == ["a"]


def test_nulls_that_mean_left_out_are_dropped_while_streaming() -> None:
    """Strict output modes require every field; a step must be equal in the stream and in the plan."""
    step = {**ADD, "args": {"a": 1, "b": None}, "when": None, "confidence": None}
    steps, plan = feed(
        json.dumps({"goal": "", "refusal": None, "steps": [step], "output": None, "confidence": None}), 3
    )

    assert steps[0].args == {"a": 1}
    assert plan.steps == (steps[0],)


def test_a_malformed_step_is_kept_back_and_its_problems_are_told() -> None:
    """The other steps are returned; the plan is refused with every problem at once."""
    bad = [{"id": 3, "tool": "add"}, {"id": "x", "tool": "add", "arg": {}}]
    text = json.dumps({"steps": [ADD, bad[0], SHOW, bad[1]], "output": 4})
    made = reader()

    assert [step.id for step in made.feed(text)] == ["a", "b"]
    assert places(made.problems) == ["DR009 steps[1].id", "DR010 steps[3].arg"]
    assert refusal(text) == ["DR009 steps[1].id", "DR010 steps[3].arg", "DR009 output"]


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ('{"id": "a", "id": "b", "tool": "add"}', "DR007"),
        ('{"id": "a", "tool": "add", "args": {"a": NaN}}', "DR008"),
        ('{"id": "a", "tool": "add", "args": {"a": "\\ud800"}}', "DR013"),
        ('{"id": "a", "tool": "add", "args": {"a": 1,}}', "DR003"),
        ('{"id": "a" "tool": "add"}', "DR003"),
    ],
)
def test_steps_are_parsed_as_strictly_as_plans(step: str, code: str) -> None:
    """A step for which the plan would be refused never starts."""
    made = reader()

    assert made.feed(f'{{"steps": [{step}]}}') == []
    assert [problem.code for problem in made.problems] == [code]
    assert refusal(f'{{"steps": [{step}]}}')[0].startswith(code)


def test_bytes_are_counted_and_refused_at_once() -> None:
    """In UTF-8, and from then on every call raises the same problem; an endless answer must cost nothing."""
    made = reader(max_bytes=20)
    made.feed("é" * 10)

    assert made.text == "é" * 10
    for call in (lambda: made.feed("x"), lambda: made.feed(""), made.close):
        with pytest.raises(PlanRefused, match="more than 20 bytes, the ceiling is 20"):
            call()
    assert made.text == "é" * 10


def test_steps_and_depth_are_bounded_at_once() -> None:
    """It is useless to wait for the end of a plan that will be refused."""
    made = reader(max_steps=2)
    with pytest.raises(PlanRefused, match="more than 2 steps"):
        made.feed(json.dumps({"steps": [ADD] * 3})[:-2])

    made = reader(max_depth=6)
    with pytest.raises(PlanRefused, match="deeper than 6 levels"):
        made.feed('{"steps": [{"id": "a", "args": {"x": [[[')
    assert len(feed(json.dumps({"steps": [ADD, SHOW]}), max_steps=2, max_depth=4)[0]) == 2
    assert refusal(json.dumps({"steps": [{**ADD, "depends_on": ["x", "y"]}]}), max_dependencies=1) == [
        "DR109 steps[0].depends_on"
    ]


@pytest.mark.parametrize("rest", ["", ', "steps": []', ', "steps": null, "goal": "x"'])
def test_a_refusal_is_its_authors_sentence(rest: str) -> None:
    """A planner that cannot plan must be able to say so, instead of inventing steps."""
    with pytest.raises(CannotPlan, match=r"^No tool can do that\.$"):
        feed('{"refusal": " No tool can do that. "' + rest + "}", 4)


def test_a_refusal_with_steps_is_a_contradiction_and_gives_out_none() -> None:
    """If the planner says that it cannot plan, half of a plan must not run."""
    text = json.dumps({"refusal": "No.", "steps": [ADD]})

    assert reader().feed(text) == []
    assert refusal(text) == ["DR014 refusal"]
    assert refusal('{"refusal": 3, "steps": []}') == ["DR009 refusal"]
    for none in (" ", "", "\n", None):
        assert len(feed(json.dumps({"refusal": none, "steps": [ADD]}), 3)[0]) == 1


def test_an_answer_that_breaks_off_is_refused_with_what_is_known() -> None:
    """It names the place where the plan began, and the problems of the steps so far."""
    text = 'Sure:\n{"steps": [{"id": 1, "tool": "add"}, {"id": "b", "to'

    assert refusal(text) == ["DR421 ", "DR009 steps[0].id"]
    assert reader().feed(text) == []


def test_broken_json_is_told_with_the_line_of_the_answer() -> None:
    """Not the line in the object."""
    with pytest.raises(PlanRefused, match="line 4, column 4"):
        feed('Here:\n```\n{"steps": [],\n   oops}\n```')


@pytest.mark.parametrize("text", ["", "I cannot help with that.", "{}", "[]", "```\n```", '{"goal": 1'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    """Whatever it is instead."""
    assert refusal(text, 2)[0] in ("DR009 ", "DR421 ")


def test_an_object_without_steps_says_so() -> None:
    """The object closest to a plan can be corrected."""
    assert refusal('Here: {"goal": "x", "step": []}') == ["DR011 ", "DR010 step"]


def test_two_plans_are_none() -> None:
    """It is unclear which one is meant."""
    assert refusal(f"{TEXT}\n{TEXT}", 7) == ["DR009 "]


@pytest.mark.parametrize("dialect", ["json", "auto"])
def test_numbered_prose_is_no_plan_in_lines_of_calls(dialect: Dialect) -> None:
    """Lines that do not look like calls are ignored like other prose."""
    made = PlanReader(TOOLBOX, dialect=dialect)
    text = f"1. First I load it.\n2) Then (perhaps) show.\n{TEXT}"
    steps = [step.id for sign in text for step in made.feed(sign)]

    assert steps == ["a", "b"]
    assert made.close() == read_plan(TEXT)


@pytest.mark.parametrize("dialect", ["compiler", "auto"])
def test_lines_of_calls_stream_line_by_line(dialect: Dialect) -> None:
    """A step is returned when its line has ended, with the thought before it."""
    made = PlanReader(TOOLBOX, dialect=dialect)
    thought = "Thought: " + "both at once " * 20

    assert made.feed(f'```\n{thought}\n1. add(1, b={{"') == []
    made = PlanReader(TOOLBOX, dialect=dialect)
    assert made.feed(f"```\n{thought}\n1. add(1, b=2)") == []
    assert made.feed("\n2. sh") == [
        Step(id="1", tool="add", args={"a": 1, "b": 2}, description=thought.removeprefix("Thought: ").strip())
    ]
    assert [step.args for step in made.feed('ow("$1")\n3. joi')] == [{"text": "${1}"}]
    assert made.feed("n($2)\n```") == []
    plan = made.close()
    assert [step.id for step in plan.steps] == ["1", "2"]
    assert plan.output == "${2}"


def test_the_first_dialect_that_begins_is_the_one() -> None:
    """An object in the arguments of a call is no plan, and neither is a call in a text of a plan."""
    call = '1. anything({"steps": [{"id": "x", "tool": "add"}]})\n2. join()'
    plan = json.dumps({"goal": "x", "steps": [{**ADD, "description": "\n1. add(1)\n"}]}, indent=1)

    assert [step.id for step in feed(call)[1].steps] == ["1"]
    assert [step.id for step in feed(plan, 3)[0]] == ["a"]
    assert reader().feed('{"goal": "line breaks are not allowed here:\n1. add(1)\n2. add(2)\n') == []
