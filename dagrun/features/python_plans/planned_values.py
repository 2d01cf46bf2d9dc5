"""Placeholders in plans written in Python for outputs that exist only during the run."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar, overload
from weakref import WeakValueDictionary

from dagrun.errors import ContractError, ValueRefused
from dagrun.kernel.model.contracts.schema_types import look_up
from dagrun.kernel.model.plan import Planned
from dagrun.kernel.model.reference import Condition, Op, Reference, parse_path, path_text
from dagrun.kernel.model.signature import typed_as
from dagrun.kernel.model.value import Path, value_at

T = TypeVar("T")
Naming: TypeAlias = Callable[["PlannedValue"], Reference]

_BEFORE: Final = frozenset(("options", "each", "step"))
_ADVICE: Final = "it has no value before the run: pass it to the step of a tool, as an argument"

_serials: Final = itertools.count(1)
_steps: Final[WeakValueDictionary[int, PlannedStep]] = WeakValueDictionary()
# A step in an f-string leaves this mark. Nobody else can write one: a text from elsewhere must not become a reference.
_NONCE: Final = secrets.token_hex(8)
_PARTS: Final = r"((?:\.[A-Za-z0-9_-]+|\[[0-9]+\]|\[\"(?:[^\"\\]|\\.)*\"\])*)"
_MARK: Final = re.compile(r"\$\{[^{}#]*#" + _NONCE + r":([a-z0-9]+)" + _PARTS + r"\}")


class PlannedValue(Planned):
    """A part of an output, of an input or of an element, in a plan that is being written.

    ``value["rows"][0]`` and ``value.rows`` are parts of it; comparisons of it are conditions for ``when`` and
    ``success``; in an f-string it stands for its text. It has no public attributes of its own, because each name may be
    that of a field.
    """

    __slots__ = ("__weakref__", "_path", "_schema")

    _root: PlannedStep | str

    def __init__(self, root: PlannedStep | str, path: Path, schema: Mapping[str, Any]) -> None:
        self._root = root
        self._path = path
        self._schema = schema

    def __getitem__(self, key: str | int) -> PlannedValue:
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise ContractError(f"{self!r}: a part is a key or an index, got {key!r}; let a tool do the rest")
        if isinstance(key, int) and key < 0:
            raise ContractError(f"{self!r}: an index counts from the start, got {key}")
        return self._part(key)

    def __getattr__(self, name: str) -> PlannedValue:
        if name.startswith("_"):
            raise AttributeError(name)
        found = look_up([(self._schema, self._schema)], (*self._path, name))
        if found.missing is not None:
            known = f"; it has {', '.join(found.known)}" if found.known else ""
            if name in _BEFORE:
                known += f"; a tool has {name}, before its step: tool.{name}(…).step(…)"
            raise AttributeError(f"{self!r} has no field {name}{known}")
        return self._part(name)

    def _part(self, key: str | int) -> PlannedValue:
        return PlannedValue(self._root, (*self._path, key), self._schema)

    def __repr__(self) -> str:
        return f"<{_name_of(self)}{path_text(self._path)} of a plan>"

    def __format__(self, spec: str) -> str:
        if spec:
            raise ContractError(f"{self!r} takes no format {spec!r}: {_ADVICE}")
        serial = self._root._serial if isinstance(self._root, PlannedStep) else self._root
        return f"${{{_name_of(self)}#{_NONCE}:{serial}{path_text(self._path)}}}"

    def __str__(self) -> str:
        return format(self)

    def _value_in(self, output: Any, step: str) -> Any:
        try:
            return value_at(output, self._path)
        except LookupError as error:
            raise ValueRefused(f"step {step} has no such part: {error}") from None

    # What cannot be known before the run --------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise ContractError(f"{self!r} is neither true nor false yet; for a step that depends on it, .options(when=…)")

    def __iter__(self) -> Iterator[Any]:
        advice = f"for a step that runs for each element, tool.each({_name_of(self)}).step(…)"
        raise ContractError(f"{self!r} cannot be iterated over; {advice}")

    def __len__(self) -> int:
        raise ContractError(f"{self!r} has no length yet; {_ADVICE}")

    # Conditions ---------------------------------------------------------------------------------------------------

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> Comparison:  # type: ignore[override]
        return Comparison.of(self, "==", other)

    def __ne__(self, other: object) -> Comparison:  # type: ignore[override]
        return Comparison.of(self, "!=", other)

    def __lt__(self, other: object) -> Comparison:
        return Comparison.of(self, "<", other)

    def __le__(self, other: object) -> Comparison:
        return Comparison.of(self, "<=", other)

    def __gt__(self, other: object) -> Comparison:
        return Comparison.of(self, ">", other)

    def __ge__(self, other: object) -> Comparison:
        return Comparison.of(self, ">=", other)


class PlannedStep(PlannedValue):
    """A step of a plan that is being written, made by `Tool.step`; used as a value, it refers to its output.

    The private attributes are read by this package alone: the tool, the arguments by name, the options of the step, the
    list of a for_each or `None`, and the serial number by which steps are ordered.
    """

    __slots__ = ("_args", "_items", "_options", "_serial", "_tool")

    def __init__(self, tool: Any, args: Mapping[str, Any], options: Mapping[str, Any], items: Any) -> None:
        schema: Mapping[str, Any] = tool.output.schema
        if items is not None:  # a local reference starts at the root, so the definitions move there
            schema = {"type": "array", "items": schema, **({"$defs": schema["$defs"]} if "$defs" in schema else {})}
        super().__init__(self, (), schema)
        self._tool = tool
        self._args = args
        self._options = options
        self._items = items
        self._serial = next(_serials)
        _steps[self._serial] = self

    @property
    def _given_id(self) -> str | None:
        return self._options.get("id")

    def _value_in(self, output: Any, step: str) -> Any:
        typed: Callable[[Any], Any] = self._tool.output.typed
        if self._items is None:
            return typed_as(f"the output of step {step}", output, typed)
        return [
            None if value is None else typed_as(f"element {index} of step {step}", value, typed)
            for index, value in enumerate(output)
        ]

    def __repr__(self) -> str:
        return f"<step {self._given_id or self._tool.name} of a plan>"


class Comparison:
    """A condition on planned values; ``&``, ``|`` and ``~`` join conditions."""

    __slots__ = ("_joins", "_make", "_values")

    def __init__(self, make: Callable[[Naming], Condition], values: tuple[PlannedValue, ...]) -> None:
        self._make = make
        self._values = values
        self._joins: tuple[str, tuple[Comparison, ...]] = ("", ())  # the word of a joined condition, and its parts

    @classmethod
    def of(cls, value: PlannedValue, op: Op, operand: object) -> Comparison:
        """Compare a planned value with plain data."""
        if isinstance(operand, PlannedValue):
            raise ContractError(f"{value!r} {op} {operand!r}: one side must be data; let a tool compare the two")

        def make(name: Naming) -> Condition:
            return Condition(ref=str(name(value))[2:-1], op=op, value=operand)

        return cls(make, (value,))

    def __and__(self, other: Comparison) -> Comparison:
        return self._joined(other, "all")

    def __or__(self, other: Comparison) -> Comparison:
        return self._joined(other, "any")

    def __invert__(self) -> Comparison:
        return Comparison(lambda name: Condition.model_validate({"not": self._make(name)}), self._values)

    def _joined(self, other: Comparison, word: Literal["all", "any"]) -> Comparison:
        if not isinstance(other, Comparison):
            raise ContractError(f"a condition is joined with another condition, got {type(other).__name__}")

        parts = (*self._parts(word), *other._parts(word))  # ``a & b & c`` is one condition of three parts

        def make(name: Naming) -> Condition:
            return Condition.model_validate({word: [part._make(name) for part in parts]})

        joined = Comparison(make, (*self._values, *other._values))
        joined._joins = (word, parts)
        return joined

    def _parts(self, word: str) -> tuple[Comparison, ...]:
        return self._joins[1] if self._joins[0] == word else (self,)

    def __bool__(self) -> bool:
        values = " and ".join(map(repr, self._values))
        raise ContractError(
            f"a condition on {values} is neither true nor false yet: .options(when=…) of the step that depends on it; "
            "conditions are joined by & and |, not by 'and' and 'or'"
        )


def where(value: Any, op: Op, operand: Any = True) -> Any:
    """Make a condition with an operator that Python has no sign for.

    Args:
        value: A planned step, or a part of one, of an input or of an element.
        op: ``in``, ``contains``, ``exists``, ``min_length``, ``max_length``, or a sign such as ``>``.
        operand: The data that it is compared with.

    Examples:
        >>> plan_input = input("rows", list[int])
        >>> condition = where(plan_input, "min_length", 1)
    """
    if not isinstance(value, PlannedValue):
        raise ContractError(f"where() takes a step of a plan, an input or a part of one, got {type(value).__name__}")
    return Comparison.of(value, op, operand)


@overload
def input(name: str, type_: type[T], /) -> T: ...
@overload
def input(name: str, type_: Any = ..., /) -> Any: ...
def input(name: str, type_: Any = Any, /) -> Any:
    """Return a reference to an input of the run, in a plan written in Python.

    Args:
        name: Its name in ``inputs={…}`` of the run.
        type_: The type as which a type checker sees it.
    """
    return PlannedValue("input", (name,), {})


item: Final[Any] = PlannedValue("item", (), {})
"""Stands for the element, in the arguments of a step made with `Tool.each`; ``item["name"]`` for a part of it."""


def _name_of(value: PlannedValue) -> str:
    root = value._root
    return root if isinstance(root, str) else (root._given_id or root._tool.name)


def marked_values(text: str) -> list[tuple[str, PlannedValue | None]]:
    """Cut *text* into literal parts, and the planned values that stand in it by the marks of `PlannedValue.__format__`.

    Returns:
        Pairs of a literal text and `None`, or of an empty text and a value, in the order of *text*.

    Raises:
        ContractError: The step of a mark is gone.
    """
    parts: list[tuple[str, PlannedValue | None]] = []
    at = 0
    for mark in _MARK.finditer(text):
        if mark.start() > at:
            parts.append((text[at : mark.start()], None))
        parts.append(("", _value_of(mark.group(1), mark.group(2))))
        at = mark.end()
    if at < len(text) or not parts:
        parts.append((text[at:], None))
    return parts


def _value_of(root: str, path: str) -> PlannedValue:
    place = parse_path(path.removeprefix("."))
    if not root.isdigit():
        return PlannedValue(root, place, {})
    step = _steps.get(int(root))
    if step is None:
        raise ContractError("a text refers to a step that no variable holds; keep the step until the plan is made")
    return PlannedValue(step, place, step._schema) if place else step
