"""Check the arguments of a step against the contract of its tool: names, known values, and secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError

from dagrun.errors import shorten
from dagrun.kernel.checks.check_context import CheckContext, ToolFacts
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.model.contracts.objects import hint_at, hint_name, may_take, places_in
from dagrun.kernel.model.contracts.schema_types import Lookup, Types, are_disjoint, clash, words
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import Placeholder, Reference, Template, path_text
from dagrun.kernel.model.secrets import KEY, KEY_TEXT, NO_SECRETS, Secrets, without_tokens
from dagrun.kernel.model.signature import Arguments
from dagrun.kernel.model.value import Path, describe

_MOST_LOOKED_AT: Final = 200  # steps, for one problem
_MOST_NAMED: Final = 3

_TEXT: Final[Types] = frozenset(("string",))
_MISSING: Final = {"missing", "missing_argument", "missing_keyword_only_argument", "missing_positional_only_argument"}
_NAME_FAULTS: Final = ("missing", "extra_forbidden")

# The code of a problem, its place in the arguments, and its facts.
SecretFault = tuple[str, str, dict[str, object]]


@dataclass(slots=True)
class ArgumentCheck:
    """Checks the arguments of a step against the contract of its tool, or of its fallback.

    Attributes:
        findings: Collects the problems.
        index: The place of the step.
        step: The step.
        facts: The facts about the tool.
        secrets: The secrets of the host.
        context: The other steps, of which problems may name one; `None` for a trial.
    """

    findings: Findings
    index: int
    step: Step
    facts: ToolFacts
    secrets: Secrets = NO_SECRETS
    context: CheckContext | None = None

    @property
    def contract(self) -> Arguments:
        """The argument contract of the tool."""
        return self.facts.tool.arguments

    def check(self, template: Template, lookups: Iterable[tuple[Placeholder, Lookup | None]]) -> None:
        """Check arguments with or without references."""
        if template.references:
            self.check_with_references(template, lookups)
        else:
            self.check_literal(template)

    def check_literal(self, template: Template) -> None:
        """Check arguments without references: the tool will get exactly these values."""
        if not (self.step.args or self.contract.required or self.contract.is_json_only):
            return
        self._check_secrets(template)
        try:
            self._check_twice(template.pieces[0], self.contract.parse(template.pieces[0]))
        except ValidationError as error:
            self._check_names()
            self._report(error, ())
        except Exception as error:  # noqa: BLE001  (validators are the host's code, and may raise anything)
            reason = f"its own validator fails ({type(error).__name__})"
            self.add("DR205", "args", argument="arguments", reason=reason, found=describe(self.step.args))

    def check_with_references(self, template: Template, lookups: Iterable[tuple[Placeholder, Lookup | None]]) -> None:
        """Check arguments with references, whose values are known by their types only."""
        self._check_names()
        self._check_secrets(template)
        for hole, lookup in lookups:
            if lookup is not None and self.contract.names.get(str(hole.place[0])) not in self.contract.secrets:
                self.check_type(hole, lookup)
        places = template.places
        if len(places) == len(self.step.args) and not template.texts and all(len(place) == 1 for place in places):
            return  # every argument is a reference, so no value is known
        try:
            data = b"null".join(template.pieces)
            self._check_twice(data, self.contract.parse(data))
        except ValidationError as error:
            self._report(error, places)
        except Exception:  # noqa: BLE001  (a validator of the host may fail on the null in place of a reference)
            return

    def add(self, code: str, place: str, /, **facts: object) -> None:
        """Add a problem of this call."""
        self.findings.add(code, self.index, place, step=self.step.id, **{"tool": self.facts.tool.name, **facts})

    def _check_names(self) -> None:
        names, args = self.contract.names, self.step.args
        if not self.facts.has_aliases and names.keys() >= args.keys() >= self.contract.required:
            return
        first: dict[str, str] = {}
        for name in args:
            parameter = names.get(name)
            if parameter is None:
                if not self.contract.is_open or name == self.contract.context:
                    self._report_unknown(name)
            elif parameter in first:
                reason = f"it is the same argument as {first[parameter]}, given twice"
                self.add("DR205", f"args{path_text((name,))}", argument=name, reason=reason, found=describe(args[name]))
            else:
                first[parameter] = name
        for name in self.contract.schema.get("properties", ()):  # the names that planners see
            parameter = names.get(name, name)
            if parameter in self.contract.required and parameter not in first:
                self.add("DR203", "args", argument=name, type=words(self.facts.types_of(name)))

    def _check_twice(self, data: bytes, parsed: Mapping[str, Any]) -> None:
        """Refuse a field of a model that is given twice, by two names: people may read the one that does not count."""
        twice = self.contract.received(data, parsed).twice if self.contract.aliases else {}
        for place, first in twice.items():
            if len(place) > 1:  # `_check_names` looks at the others
                reason, found = f"it is the same field as {first}, given twice", describe(_at(self.step.args, place))
                argument = path_text(place).removeprefix(".")
                self.add("DR205", f"args{path_text(place)}", argument=argument, reason=reason, found=found)

    def _check_secrets(self, template: Template) -> None:
        for code, place, facts in secret_faults(self.step, self.facts, template, self.secrets, self.findings.hint):
            self.add(code, place, **facts)

    def _report_unknown(self, name: str) -> None:
        place = f"args{path_text((name,))}"
        if name == self.contract.context or name in self.contract.deps:
            self.add("DR206", place, argument=name)
        else:
            self.add("DR204", place, argument=name, hint=self.findings.hint(name, tuple(self.contract.names)))

    def check_type(self, hole: Placeholder, lookup: Lookup) -> None:
        """Check that the value of a reference can have a type that the argument takes."""
        top = str(hole.place[0])
        if top not in self.contract.names and not self.contract.is_open:
            return
        if lookup.hint is not None and not (hole.is_text and not any(places_in(lookup.types))):
            self._check_object(hole, lookup)
            return
        expected = self.facts.types_of(*hole.place)
        argument = path_text(hole.place).removeprefix(".")
        if hole.is_text and are_disjoint(expected, _TEXT):
            reason = f"it takes {words(expected)}"
            self.add("DR205", f"args{path_text(hole.place)}", argument=argument, reason=reason, found="a text")
        elif not hole.is_text and (told := self._clash(hole.place, lookup)) is not None:
            facts = {"reference": hole.reference, "producer": hole.reference.step, "argument": argument}
            found = f"{told[1]}{self._givers(expected) if are_disjoint(expected, lookup.types) else ''}"
            self.add("DR304", f"args{path_text(hole.place)}", expected=told[0], found=found, **facts)

    def _clash(self, place: Path, given: Lookup) -> tuple[str, str] | None:
        """Return the expected and the given type of the argument at *place*, in words; `None` if they may fit."""
        taken = self.facts.place_of(place).lookup
        if are_disjoint(taken.types, given.types):
            return words(taken.types), words(given.types)
        found = clash(taken.schemas, given.schemas, {})
        if found is None or self.facts.tool.is_on_record:  # what is on record has passed the check of its time
            return None
        where = path_text(found[0]).removeprefix(".")
        return (
            f"{words(taken.types)} with {words(found[1])} in {where}",
            f"{words(given.types)} with {words(found[2])} there",
        )

    def _givers(self, expected: Types | None) -> str:
        """Name the earlier steps whose output has one of the types, for an author who took the wrong one."""
        found = []
        for id_ in islice(self.context.index if self.context is not None else (), _MOST_LOOKED_AT):
            if id_ == self.step.id or self.context is None:
                break
            types = self.context.sources.look_up(Reference(id_)).types
            if types is not None and not are_disjoint(expected, types):
                found.append(f"${{{id_}}}")
        return f"; {words(expected)} comes from {' or '.join(found[-_MOST_NAMED:])}" if found else ""

    def check_stream(self, elements: Iterable[tuple[Placeholder, Lookup]]) -> None:
        """Check the types of the elements of a stream: else the first wrong one would stop the call in the middle."""
        for hole, lookup in elements:
            told = self._clash((*hole.place, 0), lookup) if lookup.hint is None and lookup.missing is None else None
            if told is not None:
                argument = f"the elements of {path_text(hole.place).removeprefix('.')}"
                facts = {"reference": hole.reference, "producer": hole.reference.step, "argument": argument}
                place = f"args{path_text(hole.place)}"
                self.add("DR304", place, expected=told[0], found=told[1], **facts)

    def _check_object(self, hole: Placeholder, lookup: Lookup) -> None:
        """Check that an argument accepts a value with objects in memory, whose type is known."""
        place, given = f"args{path_text(hole.place)}", hint_name(lookup.hint)
        if hole.is_text:
            who, reason = f"step {self.step.id}", "it cannot stand inside a text"
            self.add("DR313", place, who=who, reference=hole.reference, type=given, reason=reason)
            return
        name = self.contract.names.get(str(hole.place[0]), "")
        accepted = hint_at(self.contract.hints.get(name, Any), hole.place[1:])
        if not self.contract.is_json_only and may_take(accepted, lookup.hint):
            return
        facts = {"reference": hole.reference, "producer": hole.reference.step}
        is_object = any(places_in(lookup.types))
        self.add(
            "DR304",
            place,
            argument=path_text(hole.place).removeprefix("."),
            expected="plain JSON" if self.contract.is_json_only else hint_name(accepted),
            found=f"{'an object' if is_object else 'objects'} in memory ({given})",
            **facts,
        )

    def _report(self, error: ValidationError, holes: tuple[Path, ...]) -> None:
        """Add the problems that pydantic found, except those that references may cause; values are never shown."""
        reasons: dict[tuple[Path, str], dict[str, None]] = {}  # a problem for each place, and for each missing field
        for fault in error.errors(include_url=False, include_input=False, include_context=False):
            spot = self._spot(fault["loc"], fault["type"])
            if fault["type"] in _NAME_FAULTS and len(fault["loc"]) == 1:
                continue  # `_check_names` has reported it, in better words
            if fault["loc"] and self.contract.names.get(str(fault["loc"][0])) in self.contract.secrets:
                continue  # `_check_secrets` has reported it
            if not spot.is_open(holes):
                field = str(fault["loc"][-1]) if fault["type"] in _MISSING else ""
                text = f"its field {shorten(field, 60)} is missing" if field else _reason(fault["msg"])
                reasons.setdefault((spot.place, "" if spot.choices else field), {})[text] = None
        for (place, _), texts in reasons.items():
            argument = path_text(place).removeprefix(".")
            reason, found = " or ".join(list(texts)[:3]), describe(_at(self.step.args, place))
            self.add("DR205", f"args{path_text(place)}", argument=argument, reason=reason, found=found)

    def _spot(self, location: tuple[int | str, ...], kind: str) -> _Spot:
        """Find the place in the arguments for a location of pydantic, which also names branches of unions."""
        is_missing = kind in _MISSING
        parts = location[:-1] if is_missing else location
        spot = _Spot((), [], is_certain=is_missing or kind in _NAME_FAULTS)
        value: Any = self.step.args
        for number, part in enumerate(parts):
            key = self._written_name(part) if number == 0 else part
            if _has(value, key):
                value, spot.place = value[key], (*spot.place, key)
            else:
                spot.choices.append(spot.place)
        return spot

    def _written_name(self, part: str | int) -> str | int:
        """Return the name that the plan uses for the argument that pydantic calls *part*."""
        parameter = self.contract.names.get(str(part))
        return next((name for name in self.step.args if self.contract.names.get(name) == parameter), part)


@dataclass(slots=True)
class _Spot:
    """The place of an error of pydantic.

    Attributes:
        place: The place in the arguments.
        choices: The places on the way where the error concerns only one branch of a union.
        is_certain: Whether the error stands whatever the values of references are.
    """

    place: Path
    choices: list[Path]
    is_certain: bool

    def is_open(self, holes: tuple[Path, ...]) -> bool:
        """Whether the error may disappear when the values of references are known."""
        if any(hole[: len(choice)] == choice for choice in self.choices for hole in holes):
            return True  # another branch of the union may fit
        if self.is_certain:
            return False
        return any(self.place[: len(hole)] == hole or hole[: len(self.place)] == self.place for hole in holes)


def _has(value: Any, key: str | int) -> bool:
    if isinstance(key, str):
        return isinstance(value, dict) and key in value
    return isinstance(value, list | tuple) and key < len(value)


def _at(value: Any, place: Path) -> Any:
    for part in place:
        value = value[part]
    return value


def _reason(message: str) -> str:
    for start, better in (("Input should be", "it should be"), ("Value error, ", ""), ("Assertion failed, ", "")):
        if message.startswith(start):
            return better + message.removeprefix(start)
    return message[:1].lower() + message[1:]


# Secrets --------------------------------------------------------------------------------------------------------------


def secret_faults(
    step: Step, facts: ToolFacts, template: Template, secrets: Secrets, hint: Callable[[str, Collection[str]], str]
) -> Iterator[SecretFault]:
    """Yield every fault of the secrets that *step* passes to a tool.

    Args:
        step: The step.
        facts: The facts about the tool.
        template: The template of the arguments.
        secrets: The secrets of the host.
        hint: Returns a "did you mean" for an unknown name.
    """
    contract = facts.tool.arguments
    if not contract.secrets and KEY_TEXT not in b"".join(template.pieces):
        return  # as in nearly every step
    if secrets.are_unknown:
        return
    for name, value in step.args.items():
        if contract.names.get(name) not in contract.secrets:
            for path in _handles_in(value, (name,)):
                yield "DR212", f"args{path_text(path)}", {"argument": path_text(path).removeprefix(".")}
        elif (fault := _handle_fault(name, value, facts, secrets)) is not None:
            code, problem_facts = fault
            if code == "DR210":
                problem_facts["hint"] = hint(value[KEY], tuple(secrets))
            yield code, f"args{path_text((name,))}", problem_facts


def leaked_secret(step: Step, context: CheckContext) -> str:
    """Return the name of a secret whose value is written in *step* itself; empty if there is none."""
    if not context.secrets.are_hidden:
        return ""
    try:
        return context.secrets.found_in(step.model_dump_json(exclude_unset=True, by_alias=True))
    except (ValueError, RecursionError):  # the step is not plain JSON, which another check reports
        return ""


def _handle_fault(name: str, value: Any, facts: ToolFacts, secrets: Secrets) -> tuple[str, dict[str, object]] | None:
    """Return the fault of a handle of a secret, as a code and facts; `None` if it has none."""
    if value is None and "null" in (facts.types_of(name) or ()):
        return None
    handle = value.get(KEY) if isinstance(value, Mapping) and value.keys() == {KEY} else None
    if not isinstance(handle, str) or "${" in handle:
        return "DR209", {"argument": name, "found": _kind_of(value)}
    if handle not in secrets:
        return "DR210", {"secret": _show_name(handle, secrets)}
    return None if secrets.may_have(facts.tool.name, handle) else ("DR211", {"secret": handle})


def _kind_of(value: Any) -> str:
    is_reference = "${" in value if isinstance(value, str) else isinstance(value, Mapping) and "$step" in value
    return "a reference" if is_reference else "an object" if isinstance(value, Mapping) else describe(value)


def _show_name(handle: str, secrets: Secrets) -> str:
    """Return an unknown name; or only its length, if the name may be the secret itself."""
    if secrets.found_in(handle) or without_tokens(handle) != handle or len(handle) > 64:
        return f"whose name has {len(handle)} characters"
    return handle


def _handles_in(value: Any, path: Path) -> Iterator[Path]:
    """Yield the places of handles in an argument that is no secret; *value* is plain JSON, not nested too deep."""
    if isinstance(value, Mapping):
        if KEY in value:
            yield path
        for key, part in value.items():
            yield from _handles_in(part, (*path, key))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _handles_in(part, (*path, number))
