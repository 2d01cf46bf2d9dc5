"""YAML is another way of writing JSON here: the same scalars, and none of YAML's surprises."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from checking import refusal, refused
from dagrun import PlanLimits, PlanRefused, read_plan
from dagrun.plans import yaml_reader
from dagrun.plans.yaml_reader import parse_yaml

STEP = "steps:\n- id: a\n  tool: t\n  args:\n    x: {value}\n"


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use each parser of PyYAML, because the fast one is not on every machine."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(yaml_reader, "_LOADER", getattr(yaml, request.param))


def value(text: str) -> Any:
    """Return the meaning of *text* as an argument."""
    return read_plan(STEP.format(value=text), syntax="yaml").steps[0].args["x"]


def test_what_json_does_not_type_stays_a_text() -> None:
    """The country code of Norway, a time, a zip code, a date: they are texts."""
    texts = ["no", "on", "Yes", "off", "y", "True", "Null", "~", "12:30", "010", "0o17", "0x1F", "1_000", "1e", "e5"]
    texts += [".5", "5.", "+1", ".inf", "-.inf", ".nan", "NaN", "Infinity", "=", "--1", "1.2.3", "2025-12-31"]

    assert [value(text) for text in texts] == texts


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("true", True),
        ("false", False),
        ("null", None),
        ("", None),
        ("0", 0),
        ("-12", -12),
        ("1.50", 1.5),
        ("-2E+3", -2000.0),
    ],
)
def test_json_scalars_are_typed(text: str, meaning: Any) -> None:
    """Numbers and words of JSON have their JSON types; an empty scalar is null."""
    assert value(text) == meaning
    assert type(value(text)) is type(meaning)


@pytest.mark.parametrize("text", ['"true"', "'12'", '"null"'])
def test_quotes_make_a_text(text: str) -> None:
    """This is the purpose of quotes."""
    assert value(text) == text.strip("\"'")


def test_blocks_and_comments_are_yamls_own() -> None:
    """These are the reasons to use YAML."""
    steps = "steps:\n  - {id: a, tool: t}  # flow\n  - id: b\n    tool: >-\n      t\n...\n"
    text = f"# a plan\n---\ngoal: |\n  two\n  lines\n{steps}"

    plan = read_plan(text, syntax="yaml")

    assert plan.goal == "two\nlines\n"
    assert [(step.id, step.tool) for step in plan.steps] == [("a", "t"), ("b", "t")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("goal: &a x\nsteps: []\n", "the anchor &a at line 1, column 7"),
        ("goal: *a\nsteps: []\n", "the alias *a at line 1, column 7"),
        ("*a : x\nsteps: []\n", "the alias *a at line 1, column 1"),
        ("goal: !!str x\nsteps: []\n", "the tag tag:yaml.org,2002:str at line 1"),
        ("goal: ! x\nsteps: []\n", "the tag ! at line 1"),
        ("goal: !!python/object/apply:os.system [x]\nsteps: []\n", "the tag tag:yaml.org,2002:python/object"),
        ("steps: []\n<<: {goal: x}\n", "the merge key << at line 2"),
        ("%YAML 1.1\n---\nsteps: []\n", "a directive at line"),
        ("steps: []\n---\nsteps: []\n", "a second document at line 2"),
        ("? [a]\n: b\n", "a key that is no text at line 1"),
        ("? {a: b}\n: b\n", "a key that is no text at line 1"),
    ],
)
def test_yamls_surprises_are_refused_by_name(text: str, reason: str) -> None:
    """Each of them gives a text a meaning that it does not show."""
    refusal_ = refusal(text, syntax="yaml")

    assert "DR004" in {problem.code for problem in refusal_.problems}
    assert reason in str(refusal_)


def test_a_quoted_merge_key_is_a_key() -> None:
    """Only texts that have an effect in YAML are refused."""
    assert value('{"<<": 1}') == {"<<": 1}


def test_duplicate_keys_and_bad_numbers_are_refused_as_in_json() -> None:
    """Both syntaxes have the same rules."""
    text = "steps:\n- id: a\n  tool: safe\n  tool: pay\n  args: {x: 1e999, y: " + "9" * 2000 + "}\n"

    assert refused(text, syntax="yaml") == ["DR007 steps[0]", "DR008 steps[0].args.x", "DR008 steps[0].args.y"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("steps:\n  - a\n b: c\n", "line 3, column 2"),
        ("steps: [a\n", "line 2, column 1"),
        ("goal: \x01\n", "line 1, column 7"),
    ],
)
def test_broken_yaml_is_told_with_line_and_column(text: str, place: str) -> None:
    """The author must be able to find it."""
    assert f"broken YAML at {place}" in str(refusal(text, syntax="yaml"))


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 20_000 + "x", "{a: " * 20_000, "? " * 20_000])
def test_depth_is_refused_at_the_ceiling(text: str) -> None:
    """The composer has its own stack, which ends at the limit; the rest of the text is never parsed."""
    assert refused(text, syntax="yaml") in (["DR006 "], ["DR004 "])


def test_aliases_do_not_multiply() -> None:
    """A few lines of YAML can stand for a billion values, so they are refused."""
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]

    assert set(refused("\n".join(lines), syntax="yaml")) >= {"DR004 "}


@pytest.mark.parametrize("use", ["- {a: *d}", "- &e {a: *d}\n- [*e]", "- {a: [*d]}", "- [x, *d, [*d]]"])
def test_an_alias_counts_for_the_depth_as_what_it_stands_for(use: str) -> None:
    """Aliases of aliases would nest deeper than whatever reads the document can follow."""
    text = f"- &d [[x], y]\n{use}\n"
    tree, _ = parse_yaml(text, 10, is_plan=False)
    depth = _depth(tree)

    assert parse_yaml(text, depth, is_plan=False) == (tree, [])
    with pytest.raises(PlanRefused, match=f"{depth - 1}"):
        parse_yaml(text, depth - 1, is_plan=False)


def _depth(tree: Any) -> int:
    if not isinstance(tree, list | dict):
        return 0
    return 1 + max(map(_depth, tree.values() if isinstance(tree, dict) else tree), default=0)


def test_a_ceiling_of_depth_counts_lists_and_objects_alike() -> None:
    """A plan has the same depth in both syntaxes."""
    plan = {"steps": [{"id": "a", "tool": "t", "args": {"x": [1]}}]}

    for syntax in ("json", "yaml"):
        assert read_plan(json.dumps(plan), syntax=syntax, limits=PlanLimits(max_depth=5)).steps
        assert refused(json.dumps(plan), syntax=syntax, limits=PlanLimits(max_depth=4)) == ["DR006 "]


_SCALAR = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
_JSON = st.recursive(_SCALAR, lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=8), x, max_size=4))


@given(st.dictionaries(st.text(max_size=8), _JSON, max_size=4))
def test_json_read_as_yaml_means_the_same(tree: dict[str, Any]) -> None:
    """YAML was meant to contain JSON, and in this reader it does."""
    text = json.dumps(tree)
    if "\\u" in text:  # YAML has no pairs of surrogates, and fewer characters
        return

    assert parse_yaml(text, 50) == (tree, [])
