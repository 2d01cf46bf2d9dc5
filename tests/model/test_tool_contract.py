"""The tool contract: plans are checked against the signature, and outputs against the return type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, ValidationError

import dagrun
from dagrun import Effect
from dagrun.errors import ContractError, ValueRefused
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.value import decode


@dataclass
class Row:
    """A row."""

    name: str
    total: float


class Report(BaseModel):
    """A report."""

    title: str
    day: date


def _documented(path: str, *, limit: int = 10, tags: list[str] | None = None) -> list[Row]:
    """Read rows of a file.

    Two sentences here.

    Args:
        path: Where the file is,
            on two lines.
        limit (int): How many rows.
    """
    return [Row(path, limit)]


def test_signature_and_docstring_become_the_argument_schema() -> None:
    """Planners and editors see only this schema."""
    made = make_tool(_documented)

    assert made.description == "Read rows of a file. Two sentences here."
    assert made.arguments.schema["required"] == ["path"]
    assert made.arguments.schema["additionalProperties"] is False
    properties = made.arguments.schema["properties"]
    assert properties["path"]["description"] == "Where the file is, on two lines."
    assert properties["limit"] == {"type": "integer", "default": 10, "title": "Limit", "description": "How many rows."}


@pytest.mark.parametrize(
    "data",
    [b'{"path": 1}', b'{"path": "x", "limit": "3"}', b'{"path": "x", "limit": 1.0}', b'{"path": "x", "limit": true}',
     b'{"path": "x", "more": 1}', b"{}"],
)  # fmt: skip
def test_arguments_are_strict(data: bytes) -> None:
    """Lax conversion would accept "yes" as true and 1.0 as 1, and hide mistakes of planners (S14, S23)."""
    with pytest.raises(ValidationError):
        make_tool(_documented).arguments.parse(data)


def test_a_parameter_that_is_left_out_keeps_the_default_of_the_function() -> None:
    """The function knows its defaults, the schema does not."""
    assert make_tool(_documented).arguments.parse(b'{"path": "x"}') == {"path": "x"}


def test_aliases_are_accepted_and_arrive_under_the_name_of_the_parameter() -> None:
    """Plans from other systems write filePath, but Python functions do not."""

    def load(file_path: Annotated[str, Field(alias="filePath")]) -> str:
        return file_path

    arguments = make_tool(load).arguments
    assert arguments.parse(b'{"filePath": "x"}') == arguments.parse(b'{"file_path": "x"}') == {"file_path": "x"}
    assert list(arguments.schema["properties"]) == ["filePath"]


def test_the_context_is_not_an_argument() -> None:
    """A plan that could fill it in could forge its idempotency key (S24)."""

    def pay(amount: int, context: dagrun.ToolContext) -> int:
        return amount

    arguments = make_tool(pay).arguments
    assert list(arguments.schema["properties"]) == ["amount"]
    assert arguments.context == "context"
    with pytest.raises(ValidationError):
        arguments.parse(b'{"amount": 1, "context": {}}')


@pytest.mark.parametrize(
    ("function", "given", "stored"),
    [
        (lambda: None, 7, 7),
        (_documented, [Row("a", 1.5)], b'[{"name":"a","total":1.5}]'),
    ],
)
def test_outputs_are_stored_as_json(function: Callable[..., Any], given: object, stored: object) -> None:
    """A step cannot change the output of another one."""
    function.__name__ = "named"
    assert make_tool(function).output.encode(given, 1000) == stored


def test_models_and_dates_are_stored_by_their_declared_type() -> None:
    """A consumer gets what the schema says."""

    def report() -> Report:
        return Report(title="t", day=date(2026, 1, 2))

    made = make_tool(report)
    assert made.output.encode(report(), 1000) == b'{"title":"t","day":"2026-01-02"}'
    assert made.output.schema["properties"]["day"]["format"] == "date"


def _int() -> int:
    return 1


def _float() -> float:
    return 1.0


def _dict() -> dict[str, int]:
    return {}


@pytest.mark.parametrize(
    ("function", "value"),
    [(_int, "1"), (_int, True), (_int, 1.0), (_int, None), (_float, "1"), (_float, float("nan")), (_dict, {"a": "1"}),
     (_dict, [1]), (_dict, {1: 1}), (_documented, [{"name": "a", "total": "x"}])],
)  # fmt: skip
def test_a_wrong_return_type_is_refused(function: Callable[..., Any], value: object) -> None:
    """Consumers were checked against the declared type, so it must be right."""
    with pytest.raises(ValueRefused):
        make_tool(function).output.encode(value, 1000)


def _bool() -> bool:
    return True


def _list() -> list[int]:
    return []


def _any() -> dict[str, Any]:
    return {}


class Counted(BaseModel):
    """A model that numpy has filled."""

    n: int
    rest: Any = None


def _counted() -> list[Counted]:
    return []


def test_scalars_of_numpy_have_the_types_that_they_stand_for() -> None:
    """At the top, inside, as keys, and in a model that took them without looking."""
    numpy = pytest.importorskip("numpy")
    cases: list[tuple[Callable[..., Any], object, object]] = [
        (_float, numpy.mean([1.0, 2.0]), 1.5),
        (_float, numpy.float32(1.5), 1.5),
        (_int, numpy.int64(3), 3),
        (_bool, numpy.bool_(True), True),
        (_list, [numpy.int64(3), 4], [3, 4]),
        (_dict, {"a": numpy.int32(3)}, {"a": 3}),
        (_any, {"a": [numpy.int64(3)]}, {"a": [3]}),
        (_counted, [Counted(n=1, rest=[numpy.int64(3)])], [{"n": 1, "rest": [3]}]),
    ]
    for function, value, plain in cases:
        assert decode(make_tool(function).output.encode(value, 1000)) == plain
    for function, value in ((_int, numpy.float64(1)), (_bool, numpy.int64(1)), (_list, [numpy.float64(1)])):
        with pytest.raises(ValueRefused, match=r"declare"):
            make_tool(function).output.encode(value, 1000)


def test_bytes_that_nobody_has_declared_are_refused_with_what_to_do() -> None:
    match = r"bytes are not a JSON value; declare bytes in the return type, or return an Artifact"
    with pytest.raises(ValueRefused, match=match):
        make_tool(_any).output.encode({"a": b"\x89PNG"}, 1000)


def test_the_function_itself_can_still_be_called() -> None:
    """A tool stays usable in tests and in other code."""

    @dagrun.tool(effect="pure")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert add(1, b=2) == 3
    assert (add.name, add.effect, add.__doc__) == ("add", Effect.PURE, "Add.")


def test_no_declaration_means_effectful() -> None:
    """This is the safe assumption about an undeclared tool."""
    made = dagrun.tool(_int)
    assert made.effect is Effect.EFFECTFUL
    assert not made.effect_declared


def _variadic(*values: int) -> int:
    return 0


def _keywords(**values: int) -> int:
    return 0


def _positional(a: int, /) -> int:
    return a


def _generator() -> Iterator[int]:
    yield 1


def _unserialisable() -> threading_lock:  # type: ignore[name-defined]  # noqa: F821  (resolved nowhere, on purpose)
    return None


async def _async() -> int:
    return 1


class Service:
    """An object whose methods could be tools."""

    def ask(self, question: str) -> str:
        """Ask."""
        return question.upper()


def test_a_bound_method_can_be_a_tool() -> None:
    """The object of the method is not an argument of a plan."""
    made = dagrun.tool(effect="read")(Service().ask)
    assert list(made.arguments.schema["properties"]) == ["question"]
    assert made(question="why") == "WHY"


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        (_variadic, {}, "by name"),
        (_keywords, {}, "by name"),
        (_positional, {}, "by name"),
        (_generator, {}, "generator"),
        (_unserialisable, {}, "cannot resolve"),
        (_int, {"effect": "harmless"}, "pure, read, idempotent, effectful"),
        (_int, {"name": "rm -rf"}, "not a tool name"),
        (Service.ask, {}, "make a tool of a bound one"),
        (_int, {"timeout": 0}, "timeout must be"),
        (_int, {"timeout": True}, "timeout must be"),
        (_int, {"max_cost": float("inf")}, "max_cost must be"),
        (_int, {"retries": 3}, "unknown option retries"),
        (_int, {"executor": "coroutine"}, "make it async"),
        (_async, {"executor": "thread"}, "plain functions"),
        (_int, {"executor": "cloud"}, "coroutine, thread or process"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(
    function: Callable[..., Any], options: dict[str, Any], said: str
) -> None:
    """The error comes when the program is written, not when a plan runs."""
    with pytest.raises(ContractError, match=said):
        make_tool(function, **options)


def test_a_return_type_without_a_json_form_is_refused_when_the_tool_is_declared() -> None:
    """Else the tool would fail at its first call."""

    class Socket:
        pass

    def connect() -> Socket:
        return Socket()

    connect.__annotations__["return"] = Socket
    with pytest.raises(ContractError, match=r"connect: what it returns: .*dagrun.Object\[…\]"):
        make_tool(connect)


def test_a_parameter_without_a_json_form_takes_an_object_in_memory() -> None:
    """Nothing else could be meant, and a plan that passes data is refused."""

    class Socket:
        pass

    def connect(to: Socket, times: int = 1) -> int:
        return times

    connect.__annotations__["to"] = Socket
    made = make_tool(connect)

    assert made.arguments.objects == {"to"}
    with pytest.raises(ValidationError, match="it should be an object in memory"):
        made.arguments.parse(b'{"to":"localhost"}')
