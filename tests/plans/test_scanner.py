"""The scanner: it returns each part when it has closed, and looks at each character once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dagrun import PlanRefused
from dagrun.planners.answers.json_stream import ClosedPart, Element, Field, JsonScanner

PLAN = json.dumps({"goal": 'a "{[', "steps": [{"id": "a", "args": {"x": [{"y": "}\\"}]}}, {"id": "b"}], "output": 1.5})
ELEMENTS = ['{"id": "a", "args": {"x": [{"y": "}\\\\"}]}}', '{"id": "b"}']


def feed(scanner: JsonScanner, text: str, size: int) -> list[ClosedPart]:
    """Feed *text* in pieces of *size* characters."""
    return [found for at in range(0, len(text), size) for found in scanner.feed(text[at : at + size])]


def elements(text: str, size: int = 1_000_000) -> list[str]:
    """Return the texts of the elements in *text*."""
    return [found.text for found in feed(JsonScanner(32), text, size) if isinstance(found, Element)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_closed_elements_and_fields_come_in_order_each_once(size: int) -> None:
    """Whatever the size of the pieces, and whatever quotes, escapes and brackets are in the texts."""
    scanner = JsonScanner(32)

    assert feed(scanner, PLAN, size) == [
        Field("goal", '"a \\"{["'),
        Element(0, ELEMENTS[0]),
        Element(1, ELEMENTS[1]),
        Field("output", "1.5"),
    ]
    assert scanner.keys == {"goal", "steps", "output"}
    assert (scanner.start, scanner.end) == (0, len(PLAN))


def test_an_element_comes_with_its_closing_brace_and_not_before() -> None:
    """A step must start as soon as it is complete, and an incomplete one must not."""
    scanner = JsonScanner(32)
    ends = [at for at, sign in enumerate(PLAN) for found in scanner.feed(sign) if isinstance(found, Element)]

    assert ends == [PLAN.index(text) + len(text) - 1 for text in ELEMENTS]


@pytest.mark.parametrize(
    "before",
    [
        "\ufeff",
        "Sure! Here is the plan:\n```json\n",
        'For {goal}, I use {} and { {} and {"note": {"steps": "none"}} and [{"x": [1]}]: ',
        "<think>{a} {{b}}</think>",
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_what_stands_around_the_object_is_passed_over(before: str, size: int) -> None:
    """Models write prose and code fences in spite of their instructions; braces in prose are no plan."""
    scanner = JsonScanner(32)
    text = before + PLAN + "\n```\nThat is {all}."
    found = [part.text for part in feed(scanner, text, size) if isinstance(part, Element)]

    assert found == ELEMENTS
    assert text[scanner.start : scanner.end] == PLAN
    assert not scanner.is_repeated


@pytest.mark.parametrize(
    "text",
    [
        '{"x": {"steps": [{"id": "a"}]}}',
        '{"goal": "steps", "x": [{"id": "a"}]}',
        '{"goal": "\\"steps\\": [{", "x": [{"id": "a"}], "y": "}]"}',
        '{"steps": {"x": [{"id": "a"}]}}',
        '{"steps": [[{"id": "a"}]]}',
        '{"steps": "x", "x": [{"id": "a"}]}',
        '{"steps": ["{}", 3, null]}',
        '[{"id": "a"}]',
    ],
)
def test_only_objects_in_the_list_itself_are_elements(text: str) -> None:
    """Not those of another list, nor deeper ones, nor text that looks like one."""
    assert elements(text) == elements(text, 1) == []


def test_a_key_may_be_escaped() -> None:
    """A parser treats it as the same key. If the scanner did not, steps would be returned twice or never."""
    assert elements('{"st\\u0065ps": [{"id": "a"}]}', 1) == ['{"id": "a"}']


def test_of_a_list_that_stands_twice_only_the_first_counts() -> None:
    """It is unclear which one is meant, so the parser refuses the whole."""
    assert elements('{"steps": [{"id": "a"}], "steps": [{"id": "b"}]}') == ['{"id": "a"}']


def test_indices_count_what_is_no_object_too() -> None:
    """Problems name steps by index."""
    found = JsonScanner(32).feed('{"steps": [3, [1, 2], {"a": [1, 2]}, "x,y", {}]}')

    assert [(part.index, part.text) for part in found if isinstance(part, Element)] == [(2, '{"a": [1, 2]}'), (4, "{}")]


def test_nothing_comes_after_brackets_that_do_not_match() -> None:
    """The rest cannot be understood, and must not run by accident."""
    scanner = JsonScanner(32)

    assert elements('{"steps": [{"id": "a"}}, {"id": "b"}]}') == ['{"id": "a"}']
    assert elements('{"steps": [{"id": "a"}, {"x": [1}}, {"id": "b"}]}') == ['{"id": "a"}']
    assert scanner.feed('{"steps": [{"x": [1}, {"id": "b"}]} {"steps": [{"id": "c"}]}') == []
    assert (scanner.start, scanner.end) == (0, -1)


def test_depth_is_bounded_at_once() -> None:
    """An answer of brackets must not fill the memory; brackets in texts do not count."""
    flat = '{"steps": [{"x": "' + "[" * 500 + '"}]}'

    assert len(elements(flat)) == 1
    with pytest.raises(PlanRefused, match="deeper than 5 levels"):
        JsonScanner(5).feed('{"steps": [{"x": [[[')
    assert JsonScanner(5).feed('{"steps": [{"x": [[') == []


def test_objects_before_the_one_that_is_meant_leave_nothing_behind() -> None:
    """Their keys are not the keys of the plan."""
    scanner = JsonScanner(32)
    found = feed(scanner, '{"goal": 1, "x": 2} ' + PLAN, 3)

    assert scanner.keys == {"goal", "steps", "output"}
    assert scanner.keys_before_list == {"goal", "steps"}
    assert [part for part in found if isinstance(part, Field)][2:] == [
        Field("goal", '"a \\"{["'),
        Field("output", "1.5"),
    ]


def test_depth_behind_the_object_says_nothing() -> None:
    """Text after the object is ignored."""
    assert elements(PLAN + '{"x": ' + "[" * 500) == ELEMENTS


@pytest.mark.parametrize("second", ['{"steps": [{"id": "z"}]}', '{"a": 1, "refusal": null}'])
def test_a_second_object_is_noticed(second: str) -> None:
    """It is unclear which of two plans is meant, so both are refused."""
    scanner = JsonScanner(32)
    found = feed(scanner, f"{PLAN} or else {second}", 3)

    assert [part.text for part in found if isinstance(part, Element)] == ELEMENTS
    assert scanner.is_repeated
    assert scanner.end == len(PLAN)


class Counted(JsonScanner):
    """Counts the characters that it looks at, and those that it copies."""

    def __init__(self, *args: Any) -> None:
        self.looked = 0
        super().__init__(*args)

    def _in_prose(self, text: str, at: int) -> int:
        return self._counted(at, super()._in_prose(text, at))

    def _after_brace(self, text: str, at: int) -> int:
        end = super()._after_brace(text, at)
        self._counted(at, end + 1)  # the last character is looked at again
        return end

    def _in_body(self, text: str, at: int) -> int:
        return self._counted(at, super()._in_body(text, at))

    def _in_text(self, text: str, at: int) -> int:
        return self._counted(at, super()._in_text(text, at))

    def _in_escape(self, text: str, at: int) -> int:
        return self._counted(at, super()._in_escape(text, at))

    def _end_copy(self, text: str, here: int) -> str:
        made = super()._end_copy(text, here)
        self.looked += len(made)
        return made

    def _counted(self, at: int, end: int) -> int:
        self.looked += end - at
        return end


class Rereading(Counted):
    """The naive way: it scans the whole text again with each piece."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._all = ""

    def feed(self, text: str) -> list[ClosedPart]:
        """Feed the whole text to a new scanner."""
        self._all += text
        fresh = Counted(32)
        found = fresh.feed(self._all)
        self.looked += fresh.looked
        return found


@pytest.mark.parametrize("kind", [Counted, Rereading])
def test_every_character_is_looked_at_about_once(kind: type[Counted]) -> None:
    """138 KB in pieces of 4 characters: parsing the whole for each took 3.5 s. Measured by counts, not by a clock."""
    steps = [{"id": f"s{i}", "tool": "search", "args": {"q": 'a "word" ' * 9}} for i in range(1000)]
    text = json.dumps({"goal": "x" * 5000, "steps": steps[: 1000 if kind is Counted else 20]})
    scanner = kind(32)

    feed(scanner, text, 4)

    assert (scanner.looked < 2.5 * len(text)) == (kind is Counted)
