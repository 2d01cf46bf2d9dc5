"""What one tool returns, another takes: an equal value of the same type, for every type with a form in JSON."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from ipaddress import IPv4Address
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

import dagrun
from dagrun.errors import ValueRefused
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.value import MAX_VALUE_BYTES, to_json


class Colour(Enum):
    """An enum of texts."""

    RED = "red"


class Level(IntEnum):
    """An enum of numbers."""

    HIGH = 3


class Word(StrEnum):
    """An enum that is a text."""

    YES = "yes"


@dataclass
class Inner:
    """A dataclass with what JSON has no types for."""

    data: bytes
    at: datetime
    kinds: set[Colour] = field(default_factory=set)


class Fields(TypedDict):
    """A typed dict."""

    data: bytes
    price: Decimal


class Point(NamedTuple):
    """A named tuple."""

    x: float
    y: float


class Model(BaseModel):
    """A model."""

    when: datetime
    prices: dict[Colour, Decimal]
    inner: list[Point]
    text: bytes = b"text"


class Binary(BaseModel):
    """A model that says how its bytes are written."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


AT = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
INNER = Inner(b"\xff\x00", AT, {Colour.RED})

CASES: list[tuple[Any, Any]] = [
    (bytes, b""),
    (bytes, bytes(range(256))),
    (list[bytes], [b"\xfe", b"text"]),
    (dict[str, bytes], {"a": b"\xfe"}),
    (bytes | None, b"\xfe"),
    (Inner, INNER),
    (list[Inner], [INNER]),
    (Inner | None, INNER),
    (Fields, {"data": b"\xff", "price": Decimal("1.10")}),
    (Model, Model(when=AT, prices={Colour.RED: Decimal("0.30")}, inner=[Point(1.0, 2.5)])),
    (Binary, Binary(data=b"\xff")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Word, Word.YES),
    (dict[Colour, int], {Colour.RED: 1}),
    (dict[int, str], {1: "a"}),
    (dict[date, int], {date(2024, 2, 29): 1}),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+400")),
    (datetime, AT),
    (datetime, AT.replace(tzinfo=None)),
    (date, date(2024, 2, 29)),
    (time, time(23, 59, 59, 1)),
    (timedelta, timedelta(days=-1, seconds=5, microseconds=7)),
    (Path, Path("/tmp/a file")),
    (PurePosixPath, PurePosixPath("a/b")),
    (UUID, UUID("12345678-1234-5678-1234-567812345678")),
    (IPv4Address, IPv4Address("10.0.0.1")),
    (set[int], {1, 2}),
    (frozenset[str], frozenset("ab")),
    (set[date], {date(2024, 2, 29)}),
    (tuple[int, str], (1, "a")),
    (tuple[date, ...], (date(2024, 2, 29),)),
    (Point, Point(1.0, 2.0)),
    (float, 0.1 + 0.2),
    (float, 5e-324),
    (int, 2**63),
    (str, "grüße \u2028 \x00"),
    (np.float64, np.float64(0.1)),
    (np.float32, np.float32(0.1)),
    (np.int64, np.int64(-(2**63))),
    (np.uint8, np.uint8(255)),
    (np.bool_, np.bool_(True)),
    (np.str_, np.str_("text")),
    (list[np.float32], [np.float32(1.5)]),
    (dict[str, np.int64 | None], {"a": np.int64(3), "b": None}),
]


def through(hint: Any, value: Any) -> Any:
    """Return what a tool gets that takes what another has returned, both of the same type."""

    def give() -> Any: ...

    def take(value: Any) -> None: ...

    give.__annotations__["return"] = take.__annotations__["value"] = hint
    producer, consumer = make_tool(give, effect="pure"), make_tool(take, effect="pure")
    stored = to_json(producer.output.encode(value, MAX_VALUE_BYTES))
    return consumer.arguments.parse(b'{"value":' + stored + b"}")["value"]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and so are the types of all that is in them."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(map(type, one)) == list(map(type, other)) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize(("hint", "value"), CASES, ids=[f"{hint}-{number}" for number, (hint, _) in enumerate(CASES)])
def test_a_value_comes_back_equal_and_of_its_type(hint: Any, value: Any) -> None:
    """A producer of X fits a consumer of X."""
    assert same(through(hint, value), value)


@pytest.mark.parametrize(("hint", "value"), CASES, ids=[f"{hint}-{number}" for number, (hint, _) in enumerate(CASES)])
@pytest.mark.anyio
async def test_so_does_the_answer_of_a_run(hint: Any, value: Any) -> None:
    """`result[step]` has the declared type."""

    def give() -> Any:
        return value

    give.__annotations__["return"] = hint
    step = make_tool(give, effect="pure", name="give").step()
    result = await dagrun.run(dagrun.plan(output=step))

    assert same(result[step], value)


TYPES: dict[Any, Callable[[], st.SearchStrategy[Any]]] = {
    bytes: st.binary,
    Decimal: lambda: st.decimals(allow_nan=False, allow_infinity=False),
    datetime: lambda: st.datetimes(timezones=st.just(UTC)),
    date: st.dates,
    time: st.times,
    timedelta: lambda: st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)),
    UUID: st.uuids,
    float: lambda: st.floats(allow_nan=False, allow_infinity=False),
    str: lambda: st.text(st.characters(exclude_categories=["Cs"])),
}


@given(st.data())
@pytest.mark.rigs
def test_any_value_in_any_container_comes_back(data: st.DataObject) -> None:
    """A property: types, in lists, tuples, dicts and unions with null."""
    kind: Any = data.draw(st.sampled_from(list(TYPES)))
    values = TYPES[kind]()
    hint, strategy = data.draw(
        st.sampled_from(
            [
                (kind, values),
                (list[kind], st.lists(values, max_size=3)),
                (tuple[kind, ...], st.lists(values, max_size=3).map(tuple)),
                (dict[str, kind], st.dictionaries(st.text("abc"), values, max_size=3)),
                (kind | None, st.none() | values),
            ]
        )
    )
    value = data.draw(strategy)
    assert same(through(hint, value), value)


def test_schemas_say_that_bytes_are_base64() -> None:
    """And a plan writes them so, in either alphabet."""

    @dagrun.tool(effect="pure")
    async def take(data: bytes) -> bytes:
        return data

    assert take.output.schema == {"type": "string", "format": "byte"}
    assert take.arguments.schema["properties"]["data"]["format"] == "byte"
    for text in ("_w==", "/w==", "/w"):
        assert take.arguments.parse(f'{{"data":"{text}"}}'.encode()) == {"data": b"\xff"}


def test_what_has_no_place_in_json_is_refused_still() -> None:
    """NaN in any form; bytes that nobody has declared; a text for a number of numpy."""
    for hint, value in ((float, math.nan), (np.float64, np.float64("nan")), (list[float], [math.inf])):
        with pytest.raises(ValueRefused, match="is not a JSON value"):
            through(hint, value)
    with pytest.raises(ValueRefused, match="declare bytes in the return type, or return an Artifact"):
        through(Any, {"a": b"\xff"})
    with pytest.raises(ValueRefused, match="bytes"):
        through(Model, Model(when=AT, prices={}, inner=[], text=b"\xff"))
    Row = namedtuple("Row", "a")
    assert through(Row, Row(1)) == (1,)
