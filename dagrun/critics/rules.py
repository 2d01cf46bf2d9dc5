"""Critics without a model: a function, counts, types and schemas, and sources that agree; and the base class of all."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final, TypeAlias, TypedDict

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from dagrun.errors import ContractError, MissingExtra, shorten
from dagrun.kernel.model.critic import SOURCES, Verdict
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import BadReference, parse_path, path_text
from dagrun.kernel.model.signature import explain, refuse_async
from dagrun.kernel.model.value import Stored, decode, describe, to_json, value_at


class FilterOptions(TypedDict, total=False):
    """The options of `StepFilter`, for critics that pass them on."""

    steps: Sequence[str]
    tools: Sequence[str]


class StepFilter:
    """Decides which steps a critic judges.

    Args:
        name: The name of the critic, for records and messages.
        steps: Ids of the steps whose outputs are judged. A step that replaces one of them in a patch has another id.
        tools: Names of the tools whose outputs are judged. Without *steps* and *tools*, every output is judged.

    Raises:
        ContractError: An argument has the wrong type.
    """

    __slots__ = ("_steps", "_tools", "name")

    def __init__(self, name: str, *, steps: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        if not name:
            raise ContractError("a critic needs a name, such as 'row count'")
        self.name = name
        self._steps = _names(name, "steps", steps)
        self._tools = _names(name, "tools", tools)

    def applies_to(self, step: Step) -> bool:
        """Whether the critic judges the output of *step*."""
        is_for_all = not self._steps and not self._tools
        return is_for_all or step.id in self._steps or step.tool in self._tools


def _names(critic: str, what: str, names: Sequence[str]) -> frozenset[str]:
    # A text is a sequence, too: its letters would be taken for the ids of steps.
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ContractError(f"critic {critic}: {what} must be a list of names")
    return frozenset(names)


Rule: TypeAlias = Callable[[Any], "bool | str | Verdict | None"]

_NOT_PASSED = "the rule did not pass it"


class RuleCritic(StepFilter):
    """Asks a function about each output.

    The function gets a copy of the output as plain data. It returns `True` or `None` for a pass, `False` for a fail, a
    text for a fail with that reason, or a `Verdict`. It is called in the event loop, so it must be quick: nothing can
    interrupt it, and all other steps wait. A rule that has to wait needs a class of its own with an async ``review``
    (see `Critic`).

    Args:
        name: The name of the critic, for records and messages.
        rule: The function, which is not async.
        steps: Ids of the steps whose outputs are judged.
        tools: Names of the tools whose outputs are judged. Without *steps* and *tools*, every output is judged.

    Raises:
        ContractError: An argument has the wrong type.

    Examples:
        >>> def sums_up(output):
        ...     return sum(output["parts"]) == output["total"] or "the parts do not make the total"
        >>> critic = RuleCritic("sums up", sums_up, tools=["split_revenue"])
    """

    __slots__ = ("_rule",)

    def __init__(self, name: str, rule: Rule, *, steps: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        super().__init__(name, steps=steps, tools=tools)
        refuse_async(rule, f"critic {name}: its rule")
        self._rule = rule

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge the output of a successful outcome.

        Raises:
            ContractError: The rule returned something else than a bool, `None`, a text or a `Verdict`.
        """
        return self._verdict(self._rule(outcome.output))

    def _verdict(self, answer: object) -> Verdict:
        match answer:
            case True | None:
                return Verdict("pass")
            case False:
                return Verdict("fail", reason=_NOT_PASSED)
            case str():
                return Verdict("fail", reason=answer or _NOT_PASSED)
            case Verdict():
                return answer
        if inspect.iscoroutine(answer):  # from a lambda that calls an async function
            answer.close()
        # Other values are refused: the truth value of an array, or of a number of faults, would often be misleading.
        raise ContractError(
            f"critic {self.name}: its rule gave {type(answer).__name__}; it gives True, False, None, a reason or a "
            "Verdict (bool(…) makes True or False of anything else)"
        )


class CountCritic(StepFilter):
    """Compares the length of a list, or a number, with thresholds.

    An output that has neither a list nor a number at *path* fails.

    Args:
        name: The name of the critic, for records and messages.
        path: The place in the output, such as ``rows`` or ``tables[0].count``; empty for the whole output.
        at_least: The output fails with a smaller count.
        at_most: The output fails with a larger count.
        expected: The expected count, more than 0.
        factor: The output is surprising if the count is over *factor* times larger or smaller than *expected*; more
            than 1.
        steps: Ids of the steps whose outputs are judged.
        tools: Names of the tools whose outputs are judged. Without *steps* and *tools*, every output is judged.

    Raises:
        ContractError: The path is not valid, or the thresholds contradict each other.

    Examples:
        >>> critic = CountCritic("rows", "rows", at_least=1, expected=5_000, factor=10, steps=["load"])
    """

    __slots__ = ("_at_least", "_at_most", "_expected", "_factor", "_path", "_place")

    def __init__(
        self,
        name: str,
        path: str = "",
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        expected: float | None = None,
        factor: float = 5.0,
        steps: Sequence[str] = (),
        tools: Sequence[str] = (),
    ) -> None:
        super().__init__(name, steps=steps, tools=tools)
        try:
            self._path = parse_path(path)
        except BadReference as error:
            raise ContractError(f"critic {name}: {path!r} is not a path: {error}") from None
        self._place = path or "the output"
        limits = {"at_least": at_least, "at_most": at_most, "expected": expected, "factor": factor}
        for word, limit in limits.items():
            _must_be_number(name, word, limit)
        if fault := _fault(at_least, at_most, expected, factor):
            raise ContractError(f"critic {name}: {fault}")
        self._at_least, self._at_most, self._expected, self._factor = at_least, at_most, expected, factor

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge the output of a successful outcome."""
        try:
            value = value_at(outcome.output, self._path)
        except LookupError as error:
            return Verdict("fail", reason=f"nothing to count at {self._place}: {error.args[0]}")
        if isinstance(value, list):
            return self._judge(len(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._judge(value)
        return Verdict("fail", reason=f"{self._place} is {describe(value)}, neither a list nor a number")

    def _judge(self, count: float) -> Verdict:
        shown = f"{self._place}: {shorten(str(count), 40)}"
        if self._at_least is not None and count < self._at_least:
            return Verdict("fail", reason=f"{shown}, at least {self._at_least} wanted")
        if self._at_most is not None and count > self._at_most:
            return Verdict("fail", reason=f"{shown}, at most {self._at_most} wanted")
        surprise = "" if self._expected is None else self._surprise(count, self._expected)
        return Verdict("surprising", reason=f"{shown}, {surprise}") if surprise else Verdict("pass")

    def _surprise(self, count: float, expected: float) -> str:
        if count > expected * self._factor:
            return f"over {self._factor:g} times the {expected} expected"
        # *expected* is divided, and the count not multiplied: a count from an output may be too large for a float.
        return f"under 1/{self._factor:g} of the {expected} expected" if count < expected / self._factor else ""


def _must_be_number(name: str, word: str, limit: object) -> None:
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool) and math.isfinite(limit)
    if limit is not None and not is_number:
        raise ContractError(f"critic {name}: {word} must be a number, got {limit!r}")


def _fault(at_least: float | None, at_most: float | None, expected: float | None, factor: float) -> str:
    if at_least is None and at_most is None and expected is None:
        return "it needs a threshold: at_least, at_most or expected"
    if at_least is not None and at_most is not None and at_least > at_most:
        return f"no count is at least {at_least} and at most {at_most}"
    if expected is not None and expected <= 0:
        return f"expected must be more than 0, got {expected}; at_most=0 says that there should be nothing"
    return f"factor must be more than 1, got {factor}" if factor <= 1 else ""


# Returns the faults of a stored value as text; empty if there is none.
_Check: TypeAlias = Callable[[Stored], str]

_MAX_FAULTS: Final = 5


class SchemaCritic(StepFilter):
    """Checks outputs against a shape. Reasons name places and the values expected there, never the actual values.

    The check runs in the event loop, where nothing can interrupt it. For the largest possible output (1 MiB), a type
    takes milliseconds. A JSON Schema takes up to a hundred times as long, and with ``uniqueItems`` over objects the
    time grows with the square of their number.

    Args:
        name: The name of the critic, for records and messages.
        shape: A type, such as ``list[int]``, a dataclass or a pydantic model, checked strictly as JSON (no text for a
            number); or a JSON Schema as a mapping, of the draft that its ``$schema`` names, else 2020-12. The targets
            of ``$ref`` are never fetched, and ``format`` is not checked.
        steps: Ids of the steps whose outputs are judged.
        tools: Names of the tools whose outputs are judged. Without *steps* and *tools*, every output is judged.

    Raises:
        ContractError: The shape is neither a type nor a JSON Schema.
        MissingExtra: A JSON Schema needs the extra ``jsonschema``, and it is not installed.

    Examples:
        >>> critic = SchemaCritic("totals", dict[str, float], tools=["sum_up"])
    """

    __slots__ = ("_check",)

    def __init__(self, name: str, shape: Any, *, steps: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        super().__init__(name, steps=steps, tools=tools)
        self._check = _check_of_schema(name, shape) if isinstance(shape, Mapping) else _check_of_type(name, shape)

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge the output of a successful outcome."""
        fault = self._check(outcome.value)
        return Verdict("fail", reason=fault) if fault else Verdict("pass")


def _check_of_type(name: str, shape: Any) -> _Check:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(shape)
    except (PydanticUserError, NameError) as error:
        reason = shorten(str(error).split("\n", maxsplit=1)[0])
        raise ContractError(f"critic {name}: {shape!r} is no type of JSON values: {reason}") from error
    if not adapter.pydantic_complete:
        raise ContractError(f"critic {name}: {shape!r} names a type that is not defined here")

    def check(value: Stored) -> str:
        try:
            adapter.validate_json(to_json(value), strict=True)
        except ValidationError as error:
            return explain(error, _MAX_FAULTS)
        return ""

    return check


def _check_of_schema(name: str, schema: Mapping[str, Any]) -> _Check:
    validator = _validator(name, schema)

    def check(value: Stored) -> str:
        errors: Iterator[Any] = validator.iter_errors(decode(value))
        # Only as many faults as are shown: 100,000 of them would take seconds.
        faults = [_sentence(error) for error in islice(errors, _MAX_FAULTS)]
        return "; ".join(faults) + ("; and perhaps more" if len(faults) == _MAX_FAULTS else "")

    return check


def _validator(name: str, schema: Mapping[str, Any]) -> Any:
    try:
        jsonschema: Any = import_module("jsonschema")
        referencing: Any = import_module("referencing")
    except ImportError:
        raise MissingExtra(
            f"critic {name}: a JSON Schema needs jsonschema: pip install 'dagrun-engine[jsonschema]'; "
            "a Python type needs nothing"
        ) from None
    own = _plain(name, schema)
    draft = jsonschema.validators.validator_for(own, default=jsonschema.Draft202012Validator)
    try:
        draft.check_schema(own)
    except jsonschema.SchemaError as error:
        place = path_text(tuple(error.absolute_path)).removeprefix(".") or "the whole"
        raise ContractError(f"critic {name}: not a JSON Schema: {place}: {shorten(error.message)}") from None
    # With a registry of its own, the validator fetches nothing from the network.
    return draft(own, registry=referencing.Registry())


def _plain(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the schema as plain JSON, because the caller may change it later."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(schema), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ContractError(f"critic {name}: not a JSON Schema: {shorten(str(error))}") from error
    return plain


def _sentence(error: Any) -> str:
    """Describe a fault without the value, which the message of jsonschema would show."""
    place = shorten(path_text(tuple(error.absolute_path)).removeprefix("."), 80) or "the output"
    match error.validator:
        case "required":
            return f"{place}: {error.message}"  # this message names only the field
        case "additionalProperties" | "unevaluatedProperties":
            return f"{place}: there are fields that the schema does not have"
        case None:  # the schema of a field is `false`; the path is that of its parent
            return f"{place}: there is something that the schema forbids"
        case keyword:
            expected = shorten(json.dumps(error.validator_value, ensure_ascii=False))
            return f"{place}: expected {keyword} {expected}, got {describe(error.instance)}"


# Returns what a source says, of its output; `None` if it says nothing about it.
Says: TypeAlias = Callable[[Any], Any]

_MAX_SHOWN: Final = 5


class AgreementCritic(StepFilter):
    """Compares the sources of a step, which are the steps whose outputs it uses, and reports contradictions.

    The output of the step is judged by its sources: a sum of two reports that name different totals may be
    right, but somebody should look. The verdict is ``contradictory``, and the planner is asked (trigger
    ``contradiction``) before any step uses the output. Its confidence is the share of the sources that agree with
    most, so the answer of the run may be held for a person (`Policy.min_confidence`). Fewer than two sources that say
    anything pass. Of a ``for_each``, each element is a source.

    Args:
        name: The name of the critic, for records and messages.
        says: Returns the compared part of the output of a source: a number, a text, any JSON; `None` for nothing. By
            default the whole output. It is called in the event loop, so it must be quick.
        tolerance: Numbers agree if they differ by at most this part of the greater one.
        steps: Ids of the steps whose sources are compared.
        tools: Names of the tools whose sources are compared. Without *steps* and *tools*, every step's are.

    Raises:
        ContractError: An argument is not valid.

    Examples:
        >>> critic = AgreementCritic("totals", lambda report: report["total"], tolerance=0.01, tools=["summarise"])
    """

    __slots__ = ("_says", "_tolerance")

    def __init__(
        self,
        name: str = "agreement",
        says: Says | None = None,
        *,
        tolerance: float = 0.0,
        steps: Sequence[str] = (),
        tools: Sequence[str] = (),
    ) -> None:
        super().__init__(name, steps=steps, tools=tools)
        if says is not None:
            refuse_async(says, f"critic {name}: what a source says is a function; it")
        if not 0 <= tolerance < math.inf:
            raise ContractError(f"critic {name}: tolerance is a number of at least 0, got {tolerance!r}")
        self._says = says
        self._tolerance = tolerance

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Compare the sources of a step."""
        sources = SOURCES.get()
        said = self._all(sources() if sources is not None else {})
        if len(said) < 2:
            return Verdict("pass")
        groups = self._groups(said)
        most = max(groups, key=len)
        confidence = len(most) / len(said)
        if len(groups) == 1:
            return Verdict("pass", confidence=confidence)
        return Verdict("contradictory", reason=_words(groups, said), confidence=confidence)

    def _all(self, sources: Mapping[str, Any]) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for id_, output in sources.items():
            # A list is what several sources gave, if it is all that there is.
            parts = output if len(sources) == 1 and isinstance(output, list) else None
            for place, part in enumerate(parts) if parts is not None else ((None, output),):
                value = part if self._says is None else self._says(part)
                if value is not None:
                    said[id_ if place is None else f"{id_}[{place}]"] = value
        return said

    def _groups(self, said: Mapping[str, Any]) -> list[list[str]]:
        """Return the sources in groups that agree with their first member."""
        groups: list[list[str]] = []
        for id_, value in said.items():
            group = next((group for group in groups if self._agree(said[group[0]], value)), None)
            if group is None:
                groups.append([id_])
            else:
                group.append(id_)
        return groups

    def _agree(self, one: Any, other: Any) -> bool:
        if _is_number(one) and _is_number(other):
            return math.isclose(one, other, rel_tol=self._tolerance, abs_tol=0.0)
        if isinstance(one, str) and isinstance(other, str):
            return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()
        return json.dumps(one, sort_keys=True, default=str) == json.dumps(other, sort_keys=True, default=str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _words(groups: list[list[str]], said: Mapping[str, Any]) -> str:
    shown = [f"{', '.join(group[:3])}: {shorten(repr(said[group[0]]), 60)}" for group in groups[:_MAX_SHOWN]]
    return f"the sources contradict each other: {'; '.join(shown)}"
