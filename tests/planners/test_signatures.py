"""Signatures of tools, as models read them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from dagrun import tool
from dagrun.planners.signatures import MAX_DESCRIPTION, MAX_VALUES, Signatures, signatures_of


class Row(BaseModel):
    """A row."""

    name: str
    total: float | None = None


class Tree(BaseModel):
    """A tree."""

    parts: list[Tree] = []


@dataclass
class Size:
    """A size."""

    n: Annotated[int, Field(ge=1, le=9)]


class Kind(enum.Enum):
    """A kind."""

    A = "a"
    B = 2


def _signatures(*types: Any, gives: Any = None) -> Signatures:
    tools = []
    for number, type_ in enumerate(types):

        async def take(value: Any) -> Any: ...

        take.__annotations__ |= {"value": type_, "return": gives}
        tools.append(tool(effect="pure", name=f"t{number}")(take))
    return signatures_of(made.describe() for made in tools)


@pytest.mark.parametrize(
    ("type_", "shown"),
    [
        (str, "string"),
        (Any, "any"),
        (list[int], "integer[]"),
        (list[int | str], "(integer | string)[]"),
        (dict[str, float], "{[key]: number}"),
        (Row, "{name: string, total?: number | null}"),
        (Literal["x", "y"], '"x" | "y"'),
        (Kind, '"a" | 2'),
        (tuple[int, str], "[integer, string]"),
        (Size, "{n: integer (1 to 9)}"),
        (Annotated[int, Field(ge=1)], "integer (at least 1)"),
        (Annotated[float, Field(le=1)], "number (at most 1)"),
        (SecretStr, '{"$secret": name}'),
        (Tree, "Tree"),
    ],
)
def test_a_type_in_a_few_words(type_: Any, shown: str) -> None:
    """A model reads them in every request, and a schema says the same at ten times the length."""
    [line] = _signatures(type_).tools

    assert line["call"] == f"t0(value: {shown}) -> null"


def test_a_type_that_contains_itself_is_named() -> None:
    assert _signatures(Tree).types == {"Tree": "{parts?: Tree[]}"}


def test_a_type_that_two_tools_use_is_written_once() -> None:
    """The types of results are long, and each of them is the argument of another tool."""
    signatures = _signatures(list[Row], dict[str, Row], gives=Row)

    assert [line["call"] for line in signatures.tools] == [
        "t0(value: Row[]) -> Row", "t1(value: {[key]: Row}) -> Row"
    ]  # fmt: skip
    assert signatures.types == {"Row": "{name: string, total?: number | null}"}


def test_two_types_of_one_name_stay_apart() -> None:
    """Two modules may each have their own Row."""
    other: Any = type("Row", (BaseModel,), {"__annotations__": {"x": int}, "__doc__": "Another row."})

    signatures = _signatures(
        list[Row], dict[str, Row], list.__class_getitem__(other), dict.__class_getitem__((str, other))
    )

    assert signatures.types == {"Row": "{name: string, total?: number | null}", "Row2": "{x: integer}"}
    assert [line["call"].partition(")")[0] for line in signatures.tools[2:]] == [
        "t2(value: Row2[]", "t3(value: {[key]: Row2}"
    ]  # fmt: skip


def test_an_argument_says_whether_it_may_be_left_out_and_what_it_is_for() -> None:
    async def find(query: str, limit: int = 10, note: str = "") -> None:
        """Find.

        Args:
            query: What to look for.
            limit: The most results.
        """

    [line] = signatures_of([tool(effect="read")(find).describe()]).tools

    assert line["call"] == "find(query: string, limit?: integer = 10, note?: string) -> null"
    assert line["arguments"] == {"query": "What to look for.", "limit": "The most results."}


def test_long_lists_and_descriptions_are_cut() -> None:
    long: Any = Literal.__getitem__(tuple(f"v{n}" for n in range(MAX_VALUES + 5)))
    described = Annotated[long, Field(description="x" * 9_000)]

    [line] = _signatures(described).tools

    assert line["call"].count("|") == MAX_VALUES
    assert "…" in line["call"]
    assert len(line["arguments"]["value"]) == MAX_DESCRIPTION
