"""Advice about tools: each fault is found by its code, a good tool has none, and every finding says how to mend it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import dagrun
from dagrun import Problem, ToolContext, check_tools
from dagrun.kernel.model.tool import make_tool
from dagrun.problem_texts import FIXES, SENTENCES


class Price(BaseModel):
    """A price."""

    amount: float
    currency: str


async def find_price(item: str, *, day: str = "") -> Price:
    """Find what an item cost on a day.

    Args:
        item: The number of the item, such as ``A-17``.
        day: As 2026-01-31; today if it is empty.

    Raises:
        ToolError: There is no such item.
    """
    raise NotImplementedError


def tool_of(function: Any = find_price, **options: Any) -> dagrun.Tool[..., Any]:
    """A tool without faults, unless an option brings one."""
    return make_tool(function, **{"effect": "read", "timeout": 5.0, **options})


def codes(*tools: Any, **options: Any) -> list[str]:
    """The codes of what is found."""
    return [problem.code for problem in check_tools(list(tools), **options)]


def described(text: str, **options: Any) -> dagrun.Tool[..., Any]:
    """A tool of that description."""

    async def find_price(item: str) -> Price:
        raise NotImplementedError

    find_price.__doc__ = f"{text}\n\n    Args:\n        item: The item.\n\n    Raises:\n        ToolError: No.\n"
    return tool_of(find_price, **options)


def test_a_good_tool_has_no_findings() -> None:
    """Else people would learn to look away."""
    assert check_tools([tool_of()]) == ()
    assert check_tools([tool_of(effect="effectful", needs_approval=True, reconcile=lambda key: False)]) == ()


@pytest.mark.parametrize("name", ["process_data", "handle", "doTask", "run.job", "generic_helper"])
def test_a_name_that_could_be_any_tool(name: str) -> None:
    """All of its words are empty ones."""
    assert codes(tool_of(name=name)) == ["DR801"]


@pytest.mark.parametrize("name", ["fetch_json", "run_code", "join_outputs", "data_quality", "handoff"])
def test_a_name_that_says_something(name: str) -> None:
    """One word that means something is enough."""
    assert codes(tool_of(name=name)) == []


@pytest.mark.parametrize("name", ["search_edit_infer", "read_or_write", "load_and_clean", "createDelete"])
def test_a_name_of_several_jobs(name: str) -> None:
    """A plan could not tell which of them a step does."""
    assert codes(tool_of(name=name)) == ["DR802"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Find price.", ["DR803"]),
        ("Find the price.", ["DR803"]),
        ("Search, edit or infer prices.", ["DR804"]),
        ("Reads or writes a price.", ["DR804"]),
        ("Find prices, discounts etc. of an item.", ["DR804"]),
        ("Do anything with an item.", ["DR804"]),
        ("Find what an item cost, or will cost.", []),
        ("Count one or more items of a list.", []),
        ("Load and check a price list.", []),
    ],
)
def test_descriptions(text: str, found: list[str]) -> None:
    """None, one that repeats the name, one of several jobs, and one of vague words."""
    assert codes(described(text)) == found


def test_no_description_at_all() -> None:
    """A planner knows the name alone, then; and nothing says how it fails."""

    async def find_price() -> Price:
        raise NotImplementedError

    assert codes(tool_of(find_price)) == ["DR803", "DR811"]


def test_outputs_and_arguments_without_a_type() -> None:
    """Then no reference to a part of the output can be checked, and no argument."""

    async def count_rows(table: Any, rows: list, more: dict[str, int]) -> dict[str, Any]:  # type: ignore[type-arg]
        """Count the rows of a table.

        Args:
            table: The table.
            rows: More rows.

        Raises:
            ToolError: No.
        """
        raise NotImplementedError

    found = check_tools([tool_of(count_rows)])

    assert [problem.code for problem in found] == ["DR805", "DR807", "DR808"]
    assert "returns an object of any fields" in str(found[0])
    assert (found[1].facts["arguments"], found[2].facts["arguments"]) == ("more", "table, rows")


def test_too_many_arguments() -> None:
    """A small model fills in every one of them."""

    async def find_price(a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int, i: int) -> Price:
        """Find what an item cost.

        Raises:
            ToolError: No.
        """
        raise NotImplementedError

    assert codes(tool_of(find_price), ignore=["DR807"]) == ["DR806"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"effect": None, "needs_approval": True, "reconcile": print}, ["DR809"]),
        ({"timeout": None}, ["DR810"]),
        ({"timeout": None, "effect": "pure"}, []),
        ({"effect": "effectful"}, ["DR812", "DR813"]),
        ({"effect": "effectful", "needs_approval": False, "reconcile": print}, []),
        ({"effect": "idempotent", "needs_approval": True}, ["DR815"]),
    ],
)
def test_effects(options: dict[str, Any], found: list[str]) -> None:
    """What is not declared, and what follows from what is."""
    assert codes(tool_of(**options)) == found


def test_an_idempotent_tool_that_takes_its_key() -> None:
    """By the context: there it gets the key of the call."""

    async def book_seat(seat: str, context: ToolContext) -> Price:
        """Book one seat of a train.

        Args:
            seat: Its number.

        Raises:
            ToolError: It is taken.
        """
        raise NotImplementedError

    assert codes(tool_of(book_seat, effect="idempotent", needs_approval=True)) == []


def test_a_tool_that_does_not_say_how_it_fails() -> None:
    """A docstring with Raises, or a fallback, says what happens then."""

    async def find_price(item: str) -> Price:
        """Find what an item cost.

        Args:
            item: The item.
        """
        raise NotImplementedError

    assert codes(tool_of(find_price)) == ["DR811"]
    assert codes(tool_of(find_price, fallback="other")) == []


def test_two_tools_that_nobody_can_tell_apart() -> None:
    """The second of them is named."""
    twins = described("Find what an item cost."), described("Find what an item cost!", name="look_up")

    found = check_tools(twins)

    assert [(problem.code, problem.path, problem.facts["other"]) for problem in found] == [
        ("DR814", "look_up", "find_price")
    ]


def test_codes_can_be_ignored() -> None:
    """For a rule that a team has decided against."""
    assert codes(tool_of(timeout=None), ignore=["DR810"]) == []


def test_every_finding_has_a_sentence_and_a_mend() -> None:
    """And no mend is left over."""
    ours = {code for code in SENTENCES if code.startswith("DR8")}

    assert ours == set(FIXES)
    finding = check_tools([tool_of(timeout=None)])[0]
    assert isinstance(finding, Problem)
    assert finding.fix == FIXES["DR810"]
    assert finding.mend == finding.fix
    assert str(finding).startswith("DR810 find_price: ")
