"""Drawings: every step once, every edge, and no text of a plan outside of its label."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dagrun import Plan, State, Step
from dagrun.plans.drawing import MAX_INDENT, MAX_MERMAID_EDGES, MAX_MERMAID_TEXT, draw_dot, draw_mermaid, draw_tree

HOSTILE = [
    "end",
    "<script>alert(1)</script>",
    '"];x[label="',
    'a"]\n  click n0 href "javascript:alert(1)"',
    "subgraph",
    "`**bold**`",
    "#quot;",
    "a\\",
    "\\N\\G",
    "]]>",
    "a --> b",
    "%%{init: {}}%%",
    "<b>html</b>",
    "|x|",
    "\u202eright to left\x1b[31m\0",
]


def plan(*steps: dict[str, Any]) -> Plan:
    """Return an unchecked plan."""
    return Plan(steps=tuple(Step(**{"tool": "work", **step}) for step in steps))


DIAMOND = plan(
    {"id": "fetch", "description": "Get it"},
    {"id": "left", "depends_on": ["fetch"]},
    {"id": "right", "args": {"x": ["${fetch.rows}"]}},
    {"id": "join", "depends_on": ["left"], "for_each": "${right}", "when": {"ref": "fetch", "op": "exists"}},
)


def test_a_tree_shows_each_step_once_and_mentions_it_elsewhere() -> None:
    """Under its first parent; under a second parent, it is mentioned in brackets."""
    assert draw_tree(DIAMOND) == (
        "fetch: work - Get it\n├─ left: work\n│  └─ join: work (for each)\n├─ right: work\n│  └─ (join)\n└─ (join)\n"
    )


def test_states_are_marked() -> None:
    """By a symbol for readers, and by a class for style sheets."""
    states = {"fetch": State.SUCCEEDED, "left": State.FAILED}

    tree, mermaid, dot = (draw(DIAMOND, states) for draw in (draw_tree, draw_mermaid, draw_dot))

    assert tree.startswith("✓ fetch: work")
    assert "├─ ✗ left: work" in tree
    assert "  class n1 failed\n" in mermaid
    assert "  classDef succeeded " in mermaid
    assert re.search(r'n1 \[label="✗ left: work".*class="failed"', dot)
    assert "class" not in draw_dot(DIAMOND)


def test_mermaid_and_dot_hold_every_edge() -> None:
    """Declared, or implied by a reference, a list or a condition."""
    edges = {(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)}

    for text, arrow in ((draw_mermaid(DIAMOND), "-->"), (draw_dot(DIAMOND), "->")):
        found = re.findall(rf"^  n(\d+) {arrow} n(\d+);?$", text, re.MULTILINE)
        assert {(int(a), int(b)) for a, b in found} == edges


def hostile(text: str) -> Plan:
    """Return a plan with *text* in every place."""
    return plan({"id": text, "tool": text, "description": text}, {"id": "b", "depends_on": [text]})


@pytest.mark.parametrize("text", HOSTILE)
def test_s84_mermaid_labels_hold_what_they_quote(text: str) -> None:
    """Names are numbers, and labels contain letters, digits and character numbers: no quotes, lines or brackets."""
    lines = draw_mermaid(hostile(text)).splitlines()

    assert lines[0] == "flowchart TD"
    assert lines[2:] == ['  n1["b: work"]', "  n0 --> n1"]
    label = re.fullmatch(r'  n0\["(.*)"\]', lines[1])
    assert label is not None
    assert re.fullmatch(r"(?:[\w .:,/()-]|#\d+;)*", label.group(1))


@pytest.mark.parametrize("text", HOSTILE)
def test_s84_dot_labels_hold_what_they_quote(text: str) -> None:
    """Each is one quoted string that ends where it should, and never an HTML-like label."""
    lines = draw_dot(hostile(text)).splitlines()

    assert len(lines) == 6
    string = r'"(?:[^"\\\n]|\\["\\])*"'
    assert re.fullmatch(rf"  n0 \[label={string}, tooltip={string}\];", lines[2])
    assert "<" not in lines[2]
    assert lines[4] == "  n0 -> n1;"


@pytest.mark.parametrize("text", HOSTILE)
def test_s84_a_tree_stays_on_its_lines(text: str) -> None:
    """Control characters would be executed by the terminal."""
    lines = draw_tree(hostile(text)).splitlines()

    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_a_plan_too_large_for_mermaid_becomes_a_table() -> None:
    """Mermaid would show an error in its place."""
    ids = [f"s{i}" for i in range(40)]
    many_edges = plan(*({"id": ids[i], "depends_on": ids[:i]} for i in range(40)))
    much_text = plan(*({"id": f"{i}", "tool": "<" * 50} for i in range(400)))

    for drawn in (draw_mermaid(many_edges), draw_mermaid(much_text)):
        assert drawn.startswith("This plan has ")
        assert f"({MAX_MERMAID_EDGES} edges, {MAX_MERMAID_TEXT} characters)" in drawn
        assert "flowchart" not in drawn
        assert "<" not in drawn
    assert "| 39 | s39: work | 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … (39) |" in draw_mermaid(many_edges)
    assert draw_mermaid(plan(*({"id": ids[i], "depends_on": ids[:i]} for i in range(32)))).startswith("flowchart")


def test_a_long_chain_takes_a_line_for_each_step() -> None:
    """Full indentation would take megabytes, and recursive drawing would fail."""
    size = 5_000
    chain = plan(*({"id": f"s{i}", "depends_on": [f"s{i - 1}"] if i else []} for i in range(size)))

    text = draw_tree(chain)

    assert max(len(line) for line in text.splitlines()) < 3 * MAX_INDENT + 40
    assert sum(line.endswith(": work") for line in text.splitlines()) == size
    assert " ↓" in text


def test_a_step_with_many_consumers_mentions_a_few() -> None:
    """A complete graph would have a page of names for every step."""
    ids = [f"s{i}" for i in range(60)]
    dense = plan(*({"id": ids[i], "depends_on": ids[:i][::-1]} for i in range(60)))

    assert "(and leads to 48 more)" in draw_tree(dense).splitlines()[0]


def test_plans_that_would_be_refused_can_still_be_drawn() -> None:
    """A drawing helps to find a cycle; unknown steps are ignored."""
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    broken = Plan(
        steps=(
            Step(id="a", tool="t", depends_on=["b", "a", "nowhere"]),
            Step(id="b", tool="t", depends_on=["a"]),
            Step(id="b", tool="t", args={"x": "${b", "y": "\ud800"}),
            Step.model_construct(id="c", tool="t", args={"x": deep}),
        )
    )

    assert draw_tree(broken) == "b: t\nc: t\na: t\n└─ b: t\n   └─ (a)\n"
    for drawn in (draw_mermaid(broken), draw_dot(broken)):
        assert drawn.count("n1") >= 2


def test_an_empty_plan_has_an_empty_drawing() -> None:
    """It must not fail."""
    empty = Plan(steps=())

    assert draw_tree(empty) == "\n"
    assert draw_mermaid(empty) == "flowchart TD\n"
    assert draw_dot(empty).startswith("digraph plan {")
