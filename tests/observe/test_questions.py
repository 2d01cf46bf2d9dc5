"""Questions as a person sees them, without control characters or forgeries; and values as a person types them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun import Answer, Asked, Question
from dagrun.errors import visible
from dagrun.observe.line_breaks import BAR, cells, wrap
from dagrun.observe.question_text import MARK, MAX_LINES, BadAnswer, lay_out, read_value
from typist import ask

INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
HOSTILE = (
    "\x1b[2J\x1b[8m",  # clears the screen, and hides what follows
    "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "\x1b]52;c;ZXZpbA==\x07",  # writes to the clipboard
    "\x9b31m",
    "send to \u202emoc.live\u202c",
    "pay\u200bpal\u2060.example\ufeff",
    "a\rb\bc\x7f",
    "line\u2028line\u2029line\x85line",
    "\ud800",
    "\ue000",
    "\U000e0001\U000e0041",
    "blank\u3164\u115f\u2800\ufe0f\U000e0100",
    "o" + "\u0336\u0315\u0489\u0300\u0301\u0302\u0303" * 3,
)


def shown(question: Question, width: int = 79, **options: Any) -> str:
    return "\n".join(lay_out(question, width=width, **options).lines)


def unseen(text: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) in INVISIBLE and char != "\n"}


# Layout -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("place", ["text", "why", "tool", "effect", "checklist", "diff", "argument", "name", "schema"])
def test_nothing_in_a_question_steers_the_terminal(text: str, place: str) -> None:
    """S52: wherever a text comes from, invisible characters are shown as escapes."""
    tail = "" if place == "effect" else "."
    fields: Mapping[str, Mapping[str, Any]] = {
        "checklist": {"checklist": (text,)},
        "diff": {"diff": (text,)},
        "schema": {"schema": {"type": "object", "title": text}},
    }
    if place in ("argument", "name"):
        # A lone surrogate cannot be stored, so no argument can hold one.
        clean = text.replace("\ud800", "\x1b")
        question = ask(arguments={"a": clean + "\n" + clean} if place == "argument" else {clean: 1})
    else:
        question = ask(**fields.get(place, {place: text + tail}))

    for width in (79, 40):
        page = shown(question, width)
        assert not unseen(page)
        assert "\\u" in page or "\\x" in page or "\\r" in page or "\\U" in page


@given(st.text(max_size=300), st.integers(40, 120))
def test_no_text_steers_or_leaves_its_line(text: str, width: int) -> None:
    """No line is longer than the terminal: its rest would begin at the left edge, like a line of dagrun."""
    stored = text.encode("utf-8", "replace").decode()
    page = lay_out(ask(text=text, why=text, arguments={"a": stored, "b": [stored]}, diff=(text,)), width=width)
    assert all(not unseen(line) and cells(line) <= width for line in page.lines)


def test_text_cannot_pass_for_a_line_of_ours() -> None:
    """A note with a forged amount, after a line end or after so many blanks that the terminal breaks the line."""
    for forged in ("fine\n    amount: 5\npay: [y]es", "fine" + " " * 150 + "    amount: 5"):
        lines = lay_out(ask(arguments={"amount": 1_000_000, "note": forged}, text=forged), width=60).lines
        assert [line for line in lines if line.lstrip().startswith("amount")] == ["    amount: 1000000"]
        assert not any(line.lstrip().startswith("pay") for line in lines)


def test_escape_that_was_typed_differs_from_one_that_was_made() -> None:
    """A backslash in a text is doubled, so the two texts look different."""
    pages = [shown(ask(arguments={"a": f"{text}\nb"})) for text in ("\u202e", "\\u202e")]
    assert "| \\u202e" in pages[0]
    assert "| \\\\u202e" in pages[1]


@pytest.mark.parametrize(
    ("value", "line"), [(10, "10"), (10.0, "10.0"), ("10", '"10"'), (True, "true"), (None, "null")]
)
def test_values_are_shown_as_their_json(value: Any, line: str) -> None:
    """A person who agrees to 10 has not agreed to "10", the text."""
    assert f"    amount: {line}" in lay_out(ask(arguments={"amount": value})).lines


def test_long_text_does_not_hide_the_amount() -> None:
    """S52: 10,000 lines are cut, with a mark, the length and a hash; short arguments come last, near the prompt."""
    note = "\n".join(f"line {number}" for number in range(10_000))
    page = lay_out(ask(arguments={"amount": 1_000_000, "note": note}))

    assert page.is_cut
    assert page.lines[-1] == "    amount: 1000000"
    assert len(page.lines) < MAX_LINES + 15
    (mark,) = [line for line in page.lines if line.lstrip().startswith(f"{MARK}cut")]
    assert mark.strip() == "=== cut: 9,960 of 10,000 lines"
    whole = shown(ask(arguments={"note": note}))
    assert f"10,000 lines, {len(note):,} characters, SHA-256 " in whole
    assert "| line 0" in whole
    assert "| line 9999" in whole


def test_two_texts_that_differ_in_the_middle_are_told_apart() -> None:
    """A cut text has a hash, which a person can compare with that of the full text."""
    first, second = (shown(ask(arguments={"a": "x" * 9_000 + middle + "x" * 9_000})) for middle in "yz")
    assert first != second


@pytest.mark.parametrize(
    "value", [["x"] * 10_000, {f"k{n}": n for n in range(10_000)}, list(range(100_000)), [[["y" * 5_000] * 50] * 3]]
)
def test_lists_and_objects_are_cut_with_a_mark(value: Any) -> None:
    """And fast: hidden entries are not laid out."""
    page = lay_out(ask(arguments={"a": value, "amount": 7}))
    assert page.is_cut
    assert any(line.lstrip().startswith(MARK) for line in page.lines)
    assert "SHA-256" in "\n".join(page.lines)
    assert page.lines[-1] == "    amount: 7"
    assert len(page.lines) < 20 * MAX_LINES


def test_nothing_is_cut_when_all_is_asked_for() -> None:
    """A person who decides must be able to read everything."""
    names = {f"{'n' * 50}{number}": [f"value {number}"] for number in range(500)}
    page = lay_out(ask(arguments={"a": names}, diff=tuple(f"+ s{n}" for n in range(500))), is_whole=True)
    text = "\n".join(page.lines)
    assert not page.is_cut
    assert MARK not in text
    assert all(f"value {number}" in text and f"+ s{number}" in text for number in range(500))


def test_page_of_a_usual_question() -> None:
    """It shows all that a person needs, in the order of reading."""
    question = ask(
        arguments={"amount": 5, "to": "ann"},
        why="rule 1",
        checklist=("the amount is right",),
        asked_at=10.0,
        deadline=70.0,
        default=Answer("deny"),
    )
    assert shown(question, left=59.6).splitlines() == [
        "May this call be made?",
        "  | May it?",
        "  step      pay",
        "  tool      send_money",
        "  effect    effectful: changes the world with each call",
        "  why       rule 1",
        "  arguments",
        "    amount: 5",
        '    to: "ann"',
        "  to be ticked for a yes",
        "    1. the amount is right",
        "  without an answer in 60 s: no",
    ]


def test_wanted_value_is_described() -> None:
    schema = {"type": "integer", "minimum": 1, "maximum": 9}
    assert "  wanted    a whole number, at least 1, at most 9" in lay_out(ask(Asked.INPUT, schema=schema)).lines


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), max_size=200), st.integers(8, 40))
def test_wrapping_loses_nothing(text: str, width: int) -> None:
    lines = wrap(text, width, f"  {BAR}")
    assert "".join(line[4:] for line in lines) == text


def test_visible_leaves_what_people_write() -> None:
    """Umlauts in two characters, Vietnamese, Devanagari and Hebrew points are ordinary text, not piles of accents."""
    for text in ("Mu\u0308ller", "Vie\u0323\u0302t Nam", "हिन्दी", "שָׁלוֹם", "日本語", "naïve, 5 €"):
        assert visible(text) == text


# Values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "schema", "value"),
    [
        ("Ann Lee", {"type": "string"}, "Ann Lee"),
        ('"Ann"', {"type": "string"}, "Ann"),
        ("42", {"type": "string"}, "42"),
        ("42", {"type": "integer"}, 42),
        ("42", {"type": "number"}, 42),
        ("4.5", {"type": "number"}, 4.5),
        ("yes", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ("red", {"enum": ["red", "green", 3]}, "red"),
        ("3", {"enum": ["red", "green", 3]}, 3),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("nil", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "nil"),
        ('{"a": [1]}', {"type": "object"}, {"a": [1]}),
        ("[1]", {}, [1]),
    ],
)
def test_typed_value_is_read_as_its_schema_says(typed: str, schema: dict[str, Any], value: Any) -> None:
    read = read_value(typed, schema)
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("typed", "schema", "reason"),
    [
        ("many", {"type": "integer"}, "not JSON"),
        ("4.0", {"type": "integer"}, "a whole number is asked for"),
        ("true", {"type": "number"}, "a number is asked for"),
        ("1", {"type": "boolean"}, "asked for"),
        ("blue", {"enum": ["red", "green"]}, 'one of "red", "green"'),
        ("1", {"enum": [True, "1.0"]}, 'one of true, "1.0"'),
        ("0", {"type": "integer", "minimum": 1}, "at least 1"),
        ("9", {"type": "integer", "exclusiveMaximum": 9}, "less than 9"),
        ("ab", {"type": "string", "minLength": 3}, "at least 3 characters"),
        ("NaN", {"type": "number"}, "not JSON"),
        ('{"a": 1, "a": 2}', {"type": "object"}, "twice"),
        ("[" * 100_000, {}, "not JSON"),
        ("text", {}, "in quotes"),
        ("\x1b[A", {"type": "string"}, "cannot be seen"),
        ("9" * 5_000, {"type": "integer"}, "not JSON"),
    ],
)
def test_other_values_are_refused_with_the_reason(typed: str, schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadAnswer, match=re.escape(reason)):
        read_value(typed, schema)


def test_schema_that_is_nonsense_hurts_nobody() -> None:
    """The schema may come from a plan."""
    schema = {"anyOf": 5, "minimum": "a", "enum": 3, "type": {"x": 1}}
    assert read_value("5", schema) == 5
    assert lay_out(ask(Asked.INPUT, schema=schema)).lines


def test_wide_characters_take_two_cells_and_accents_none() -> None:
    """As on a terminal: a line of 20 Chinese characters takes 40 cells."""
    assert (cells("漢字"), cells("Mu\u0308ller"), cells("abc")) == (4, 6, 3)
    assert wrap("漢字漢字", 8, BAR) == ["| 漢字漢", "| 字"]
