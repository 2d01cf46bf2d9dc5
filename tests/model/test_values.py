"""Values between steps: encoded once, limited in size, and never shared."""

from __future__ import annotations

import enum
import json
from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun.errors import ValueRefused, ValueTooLarge
from dagrun.kernel.model.reference import compile_template
from dagrun.kernel.model.value import decode, encode, join_stored, select_part, store_text, to_json

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_goes_in_comes_out_equal_and_is_another_object(value: Any) -> None:
    """The JSON is equal; a consumer that changes its copy changes nothing else."""
    stored = encode(value)
    assert decode(stored) == value
    assert json.loads(to_json(stored)) == value
    if isinstance(value, dict | list):
        assert decode(stored) is not decode(stored)


@given(st.lists(JSON, max_size=5))
def test_joining_stored_values_is_storing_the_list(values: list[Any]) -> None:
    """The output of a for_each is joined without decoding."""
    assert decode(join_stored([encode(value) for value in values])) == values


@given(JSON)
def test_the_text_is_that_of_the_standard_library(value: Any) -> None:
    """Records hold this text and are compared with it later: the faster encoder must write the same text."""
    if isinstance(value, dict | list):
        assert encode(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def test_what_every_kind_of_container_holds_is_counted() -> None:
    """JSON types are measured in a faster way; other types must have the same limit."""
    makers: list[Callable[[object], object]] = [
        lambda inner: (inner,),
        lambda inner: UserDict({"a": inner}),
        lambda inner: Plain({"a": inner}),
        lambda inner: {"a": inner},
        lambda inner: [inner],
    ]
    for made in makers:
        with pytest.raises(ValueRefused, match="takes over 100 bytes"):
            encode(made("x" * 101), 100)
        with pytest.raises(ValueRefused, match="takes over 100 bytes"):
            encode([made(["x" * 101])], 100)


class Plain(dict[str, Any]):
    pass


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@pytest.mark.parametrize(("value", "stored"), [(Colour.RED, "red"), (Level.LOW, 1), ((1, "a"), b'[1,"a"]')])
def test_python_types_that_are_json_underneath_are_stored_as_json(value: object, stored: object) -> None:
    """Tools often return enums and tuples."""
    assert encode(value) == stored
    assert type(encode(value)) is type(stored)


class Hostile(dict[str, int]):
    def items(self) -> Any:
        raise SystemExit(3)


def _endless() -> Any:
    while True:
        yield 0


def _deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


REFUSED = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "nan inside": [float("nan")],
    "surrogate": "half \ud800",
    "surrogate inside": ["half \ud800"],
    "huge int": 10**5000,
    "huge int inside": [10**5000],
    "object": object(),
    "bytes": b"raw",
    "tuple as key": {(1, 2): 3},
    "deep": _deep(100),
    "very deep": _deep(5000),
    "circular": _circular(),
    "endless": _endless(),
    "endless inside": {"a": _endless()},
    "long text": "x" * 2000,
    "long text inside": ["x" * 2000],
    "long list": [0] * 2000,
    "wide object": {str(n): n for n in range(500)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_value_is_refused(name: str) -> None:
    """Each of these broke something: a journal, a parser, or the memory (S3, S7, S9, S18)."""
    with pytest.raises(ValueRefused):
        encode(REFUSED[name], limit=1000)


def test_a_hostile_subclass_can_raise_anything_while_it_is_encoded() -> None:
    """This is why encoding must be inside the wrapper that catches everything."""
    with pytest.raises(SystemExit):
        encode(Hostile(a=1))


def test_a_gigantic_structure_is_refused_without_walking_all_of_it() -> None:
    """The walk ends at the limit, as a list shows that counts how far it was read."""

    class Counting(list[int]):
        read = 0

        def __iter__(self) -> Any:
            for value in super().__iter__():
                Counting.read += 1
                yield value

    with pytest.raises(ValueRefused, match="over 1000 bytes"):
        encode([Counting([0] * 400), Counting([0] * 10_000_000)], limit=1000)
    assert Counting.read <= 400


@pytest.mark.parametrize(
    ("path", "found"),
    [(("rows", 1, "a b"), 2), (("rows",), b'[{"a b":1},{"a b":2}]'), (("none",), None), ((), b'{"rows":')],
)
def test_a_path_gives_the_part_that_it_names(path: tuple[str | int, ...], found: object) -> None:
    """Keys and indices on plain JSON."""
    stored = encode({"rows": [{"a b": 1}, {"a b": 2}], "none": None})
    got = select_part(stored, path)
    assert got == found or (isinstance(got, bytes) and isinstance(found, bytes) and got.startswith(found))


@pytest.mark.parametrize("path", [("rows", 2), ("rows", "0"), ("x",), ("rows", 0, "a b", "c"), ("__class__",)])
def test_a_path_to_nothing_is_a_lookup_error(path: tuple[str | int, ...]) -> None:
    """A path never names an attribute or a negative index, and nothing is guessed (S32)."""
    with pytest.raises(LookupError):
        select_part(encode({"rows": [{"a b": 1}, {"a b": 2}]}), path)


@pytest.mark.parametrize("data", [b"", b"{", b"NaN", b"[1,]", b"1 2", b"\xff", b"x" * 2000])
def test_text_that_is_not_json_is_refused(data: bytes) -> None:
    """The text comes from another process, which may have a defect."""
    with pytest.raises(ValueRefused):
        store_text(data, limit=1000)


# Sizes ----------------------------------------------------------------------------------------------------------------

WIDE_TEXTS = st.text(st.sampled_from('ab"\\\n\x00\x7fé→😀'), max_size=60)


@given(st.recursive(WIDE_TEXTS, lambda x: st.lists(x, max_size=4) | st.dictionaries(WIDE_TEXTS, x, max_size=4)))
def test_what_a_value_takes_is_the_size_of_its_json(value: Any) -> None:
    """Quotes and escapes count, bytes and not characters: a limit means the same wherever it is asked."""
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())

    assert len(to_json(encode(value, limit=size))) == size
    assert store_text(to_json(encode(value)), limit=size) == encode(value)
    assert join_stored([encode(value)], limit=size + 2) == b"[" + to_json(encode(value)) + b"]"
    with pytest.raises(ValueTooLarge):
        encode(value, limit=size - 1)
    with pytest.raises(ValueTooLarge):
        store_text(to_json(encode(value)), limit=size - 1)
    with pytest.raises(ValueTooLarge):
        join_stored([encode(value)], limit=size + 1)


@given(WIDE_TEXTS, JSON, st.booleans())
def test_what_arguments_take_is_the_size_of_their_json(text: str, value: Any, is_text: bool) -> None:
    """Also what stands before the first reference, and references inside a text."""
    literal = text.replace("$", "")
    template, faults = compile_template({literal: ("<" if is_text else "") + "${a}", "b": [literal, "${a}"]})
    assert not faults
    filled = template.fill(lambda _: encode(value))

    json.loads(filled)
    assert template.fill(lambda _: encode(value), len(filled)) == filled
    with pytest.raises(ValueTooLarge):
        template.fill(lambda _: encode(value), len(filled) - 1)


# Numpy ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"),
    [("float64", 1.5), ("float32", 1.5), ("float16", 1.5), ("longdouble", 1.5), ("int64", 3), ("uint8", 3),
     ("bool_", True), ("str_", "a")],
)  # fmt: skip
def test_scalars_of_numpy_are_plain_values(kind: str, value: Any) -> None:
    """Whether they stand alone, inside, or are keys: nobody wants to know what an array gives."""
    scalar = getattr(pytest.importorskip("numpy"), kind)(value)

    assert encode(scalar) == value
    assert type(encode(scalar)) is type(value)
    assert decode(encode({"a": [scalar, (scalar,)]})) == {"a": [value, [value]]}
    assert decode(encode({scalar: 1})) == json.loads(json.dumps({value: 1}))


@pytest.mark.parametrize("make", ["datetime64('2020-01-01T00:00:00.000000000')", "array([1])"])
def test_what_numpy_has_beyond_scalars_of_json_is_refused(make: str) -> None:
    """A time of numpy is an integer of nanoseconds underneath, which would say something else."""
    numpy = pytest.importorskip("numpy")

    with pytest.raises(ValueRefused, match="is not a JSON value"):
        encode([eval(f"numpy.{make}", {"numpy": numpy})])


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (float("nan"), "nan is"),
        ([1.0, float("nan")], r"nan at \[1\] is"),
        ({"a": [{"b": float("-inf")}]}, r"-inf at \.a\[0\]\.b is"),
    ],
)
def test_nan_and_infinity_are_refused_with_their_place_and_what_to_return(value: Any, place: str) -> None:
    with pytest.raises(ValueRefused, match=place) as caught:
        encode(value)
    assert str(caught.value).endswith("is not a JSON value; return None (null) in its place")
