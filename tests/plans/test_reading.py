"""Reading plans: a text that is no plan is refused with all problems at once, and there is no other error."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checking import TOOLBOX, refusal, refused
from dagrun import Plan, PlanLimits, PlanRefused, Step, read_plan

PLAN: dict[str, Any] = {
    "goal": "Count the rows",
    "steps": [
        {"id": "load", "tool": "load", "args": {"path": "a.csv"}},
        {
            "id": "count",
            "tool": "count",
            "args": {"rows": "${load.rows}"},
            "when": {"all": [{"ref": "load.count", "op": ">", "value": 0}]},
            "retry": {"max_attempts": 3},
            "timeout": 5,
            "depends_on": ["load"],
        },
    ],
    "output": "count",
}


def test_a_plan_is_the_same_from_file_text_and_bytes(tmp_path: Path) -> None:
    """The source makes no difference to the plan."""
    text = json.dumps(PLAN)
    (tmp_path / "plan.json").write_text(text)

    plan = read_plan(text)

    assert plan == read_plan(text.encode()) == read_plan(tmp_path / "plan.json") == Plan.model_validate(PLAN)
    assert plan.steps[1].timeout == 5
    assert plan.steps[1].depends_on == ("load",)


def test_a_schema_key_is_for_editors_and_dropped() -> None:
    """A file may name its schema; that is no field of a plan."""
    assert read_plan(json.dumps({"$schema": "plan.schema.json", **PLAN})) == Plan.model_validate(PLAN)


@pytest.mark.parametrize("mark", ["\ufeff", "\ufeff\n  "])
def test_a_byte_order_mark_is_passed_over(mark: str) -> None:
    """Some editors write one before UTF-8; it has no meaning."""
    assert read_plan((mark + json.dumps(PLAN)).encode()).goal == PLAN["goal"]


def test_all_problems_come_at_once_in_the_order_of_the_plan() -> None:
    """With one problem at a time, a planner would have to be asked ten times."""
    text = """{"confidence": 2, "steps": [
        {"tool": "a", "args": {"x": NaN}, "argss": 1},
        {"id": 7, "tool": "b", "timeout": -1, "on_failure": "explode", "for_each": 3},
        {"id": "c", "tool": "c", "when": {"rf": "a"}, "tool": "d", "retry": {"max_attempt": 1}, "depends_on": [1, "x"]}
    ], "outputs": "c", "output": 4}"""

    assert refused(text) == [
        "DR012 confidence",
        "DR010 outputs",
        "DR008 steps[0].args.x",
        "DR011 steps[0]",
        "DR010 steps[0].argss",
        "DR009 steps[1].id",
        "DR009 steps[1].for_each",
        "DR012 steps[1].timeout",
        "DR009 steps[1].on_failure",
        "DR007 steps[2]",
        "DR009 steps[2].depends_on[0]",
        "DR010 steps[2].when.rf",
        "DR010 steps[2].retry.max_attempt",
        "DR009 output",
    ]


def test_unknown_fields_come_with_the_field_that_was_meant() -> None:
    """A misspelt name is the usual fault, and the right name is known."""
    message = str(refusal('{"step": [], "steps": [{"id": "a", "tool": "t", "depend_on": [], "retry": {"factr": 1}}]}'))

    assert "unknown field 'step'; did you mean steps?" in message
    assert "unknown field 'depend_on'; did you mean depends_on?" in message
    assert "unknown field 'factr'; did you mean factor?" in message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "broken JSON at line 1, column 1: expecting value"),
        ('{"steps": [],\n "goal": }', "broken JSON at line 2, column 10: expecting value"),
        ('{"steps": []} {}', "broken JSON at line 1, column 15: there is more text after the end"),
        ("{'steps': []}", "broken JSON at line 1, column 2: expecting property name enclosed in double quotes"),
        ('{"steps": [],}', "broken JSON at line 1, column 13: illegal trailing comma before end of object"),
        ('{"goal": "a\nb"}', "broken JSON at line 1, column 12: invalid control character at"),
    ],
)
def test_broken_json_is_told_with_line_and_column(text: str, sentence: str) -> None:
    """The author must be able to find it."""
    message = str(refusal(text))
    if "trailing comma" in sentence:  # older versions of Python report a missing name at a superfluous comma
        assert "broken JSON at line 1, column 1" in message
    else:
        assert sentence in message


@pytest.mark.parametrize("text", ["[]", "3", "null", '"steps"', "true"])
def test_a_plan_is_an_object(text: str) -> None:
    """Any other value is refused by its type, not by an accident later."""
    assert refused(text) == ["DR009 "]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"\xff\xfe{\x00}\x00", "DR002", "it is UTF-16, not UTF-8"),
        (b'{"goal": "\xe9"}', "DR002", "byte 10 is not UTF-8"),
        ('{"goal": "\ud800"}', "DR013", "lone surrogate"),
    ],
)
def test_what_is_not_text_is_refused(data: str | bytes, code: str, words: str) -> None:
    """Other encodings and lone surrogates have problems of their own."""
    refused_ = refusal(data)

    assert [problem.code for problem in refused_.problems] == [code]
    assert words in str(refused_)


def test_unreadable_files_are_refusals_too(tmp_path: Path) -> None:
    """So a caller needs to catch only one error."""
    for path in (tmp_path / "missing.json", tmp_path, Path("nul\0.json")):
        assert refused(path) == ["DR001 "]


def test_a_file_name_is_not_taken_for_a_plan() -> None:
    """A text is the plan itself; the mistake is common, and "expecting value" would not explain it."""
    assert "give a pathlib.Path" in str(refusal("plans/plan.json"))


def test_the_suffix_says_yaml_and_syntax_overrules_it(tmp_path: Path) -> None:
    """JSON is the default for everything else."""
    yaml_text = "goal: Count\nsteps:\n- {id: a, tool: add}\n"
    for name in ("plan.yaml", "plan.YML", "plan.txt"):
        (tmp_path / name).write_text(yaml_text)

    assert read_plan(tmp_path / "plan.yaml") == read_plan(tmp_path / "plan.YML") == read_plan(yaml_text, syntax="yaml")
    assert refused(tmp_path / "plan.txt") == ["DR003 "]
    assert read_plan(tmp_path / "plan.txt", syntax="yaml").goal == "Count"


def test_values_are_never_shown() -> None:
    """A value in a wrong place may be a password, or 55 MB; its kind is enough."""
    secret = "hunter2hunter2"
    plan = {
        "steps": [{"id": "a", "tool": "t", "args": secret, "timeout": secret, "on_failure": secret}],
        "goal": [secret],
    }

    message = str(refusal(json.dumps(plan)))

    assert secret not in message
    assert "got a text of 14 characters" in message


def test_limits_are_the_hosts_to_set() -> None:
    """The defaults are for plans of strangers; the host may set higher or lower limits for other plans."""
    plan = {"steps": [{"id": f"s{i}", "tool": "t", "depends_on": [f"s{j}" for j in range(i)]} for i in range(4)]}
    text = json.dumps(plan)

    assert refused(text, limits=PlanLimits(max_steps=3)) == ["DR108 steps"]
    assert refused(text, limits=PlanLimits(max_dependencies=2)) == ["DR109 steps[3].depends_on"]
    assert refused(text, limits=PlanLimits(max_bytes=len(text) - 1)) == ["DR005 "]
    assert refused(text, limits=PlanLimits(max_depth=3)) == ["DR006 "]
    limits = PlanLimits(max_steps=4, max_dependencies=3, max_bytes=len(text), max_depth=4)
    assert len(read_plan(text, limits=limits).steps) == 4


def test_depth_counts_brackets_and_not_those_in_texts() -> None:
    """A text full of brackets is flat, with or without escaped quotes."""
    text = json.dumps({"steps": [{"id": "a", "tool": "t", "args": {"x": "[" * 500 + '\\"{' * 500}}]})

    assert read_plan(text).steps[0].args["x"].startswith("[[[")


def test_a_null_that_the_tool_does_not_take_means_left_out() -> None:
    """Strict output modes of models require every argument, so models write null for an argument to leave out."""
    step = {"id": "a", "tool": "add", "args": {"a": None, "b": None}}
    text = json.dumps({"steps": [step, {"id": "b", "tool": "clean", "args": {"rows": [], "options": None}}]})

    assert read_plan(text, toolbox=TOOLBOX).steps[0].args == {"a": None}  # `a` is required, so this is a fault
    assert read_plan(text, toolbox=TOOLBOX).steps[1].args == {"rows": [], "options": None}  # this argument takes a null
    assert read_plan(text).steps[0].args == {"a": None, "b": None}


@given(st.text(st.characters(exclude_categories=[])) | st.binary())
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    """No text makes reading end in any other way."""
    for syntax in ("json", "yaml"):
        with suppress(PlanRefused):
            read_plan(text, syntax=syntax)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "ref", "all", "x"]), inner),
    max_leaves=5,
)
_STEPS = st.lists(
    st.dictionaries(st.sampled_from([*Step.model_fields, "step_number", "action"]), _ANY, max_size=6) | _ANY
)


@given(st.dictionaries(st.sampled_from(["goal", "output", "total_steps", "x"]), _ANY, max_size=3), _STEPS)
def test_any_json_of_a_plans_words_is_read_or_refused(rest: dict[str, Any], steps: list[Any]) -> None:
    """JSON with the words of plans: every field with every type."""
    with suppress(PlanRefused):
        read_plan(json.dumps({**rest, "steps": steps}), toolbox=TOOLBOX)
