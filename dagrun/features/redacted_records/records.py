"""Redact whole events: as a record may keep them, and as a recorded run may be shown.

1. The meaning of a field decides, not the look of its text. Every text is redacted, unless its field holds a name that
   the run works with (an id, a hash, a tool): `NAMES` lists these fields. So a field that is added later is redacted
   until it is listed there.
2. References to steps and handles of secrets stay, wherever they stand in a plan or a patch: without them a record
   could not be folded. Numbers become 0 there, because a text in their place would not pass the checks again.
3. In a record, a value of a step is kept whole or not at all: half of a value would be taken for the value.
4. `as_recorded` also says which parts with which the run computes are redacted. A run without them cannot be resumed,
   unless the record has the original, sealed.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from functools import cache, partial
from typing import Any, Final, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic_core import from_json

from dagrun.codec import Marks, encode_event, marks_of, with_marks
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model import event as events
from dagrun.kernel.model.event import AttemptEnded, Event, Opening, Reviewed, Spliced, StepSettled
from dagrun.kernel.model.outcome import UNRECORDED, Outcome, State
from dagrun.kernel.model.patch import Add, Drop, Edit, Replace, Rewire, edit_as_dict
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.question import Question
from dagrun.kernel.model.redaction.event_json import NAMES, may_hold_names
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR, HIDDEN, Hook, Redactor, without_secrets
from dagrun.kernel.model.reference import HOLE
from dagrun.kernel.model.secrets import KEY, NO_SECRETS, Personal, Secrets, is_secret_name
from dagrun.kernel.model.value import Stored, Unavailable, decode, encode_plain, to_json

KEPT_OUT: Final = Unavailable("it holds personal data, which the policy keeps out of the record")

# The fields of a step that people read, and those that hold names. In all others there may be values.
_STEP_TEXTS: Final = frozenset(("description", "expected_output"))
_STEP_NAMES: Final = frozenset(
    ("id", "tool", "depends_on", "fallback", "executor", "pool", "on_failure", "pause", "op", "use")
)
_EDITS: Final = frozenset((Add, Drop, Replace, Rewire))
_REFERENCE: Final = "$step"
_HASH: Final = "sha256"  # of an artifact: 64 digits and letters, which may look like the number of a card


def as_recorded(event: Event, redactor: Redactor) -> tuple[Event, tuple[str, ...]]:
    """Return *event* as a record may keep it.

    Returns:
        The event itself, if nothing in it has to be hidden, or else a redacted copy; and the parts with which the run
        computes and that are redacted: ``plan``, ``inputs``, ``patch``.
    """
    walk = _Walk(redactor, is_kept=True)
    return walk.event(event), tuple(sorted(walk.lost))


def as_shown(event: Event, redactor: Redactor) -> Event:
    """Return *event* as it may be shown; values of steps are redacted, and not left out."""
    return _Walk(redactor, is_kept=False).event(event)


def is_kept_out(stored: Stored, redactor: Redactor) -> bool:
    """Whether a value of a step would be left out of a redacted record."""
    return _Walk(redactor, is_kept=True).value(stored) is KEPT_OUT


class _Walk:
    """Redacts one event.

    Args:
        redactor: Redacts the texts.
        is_kept: Whether the event is recorded; else it is shown.

    Attributes:
        lost: The parts with which the run computes and that are redacted.
    """

    def __init__(self, redactor: Redactor, *, is_kept: bool) -> None:
        self.text = redactor.text
        self._redactor = redactor
        self.is_kept = is_kept
        self.lost: set[str] = set()

    def event(self, event: Event) -> Event:
        """Return the redacted event."""
        kind: Any = type(event)
        redacted = _walker_of(kind)(event, self)
        assert isinstance(redacted, Event)
        return redacted

    # Data -------------------------------------------------------------------------------------------------

    def json(self, value: Any, *, keeps_types: bool = False, in_plan: bool = False, knows_names: bool = True) -> Any:
        """Return a JSON value with its texts redacted; the same object if there is nothing to redact.

        Args:
            value: The value.
            keeps_types: Whether a number with hidden digits becomes 0, and not a text.
            in_plan: Whether references and handles of secrets in it stay.
            knows_names: Whether the fields are hidden whose name says that they are secret.
        """
        inner = partial(self.json, keeps_types=keeps_types, in_plan=in_plan, knows_names=knows_names)
        match value:
            case str():
                return self.template(value) if in_plan else self.text(value)
            case Mapping() if in_plan and (_REFERENCE in value or KEY in value):
                return value
            case Mapping():
                hide = partial(self._hidden, keeps_types=keeps_types, in_plan=in_plan)
                return self._object(value, inner, hide if knows_names else inner)
            case list() | tuple():
                parts = [inner(part) for part in value]
                return value if all(map(_is, parts, value)) else parts
            case int() | float() if not isinstance(value, bool):
                shown = self.text(repr(value))
                return value if shown == repr(value) else 0 if keeps_types else shown
            case _:
                return value

    def _object(self, value: Mapping[str, Any], inner: Callable[[Any], Any], hide: Callable[[Any], Any]) -> Any:
        parts: dict[str, Any] = {}
        is_same = True
        for key, part in value.items():
            name = self.text(key)
            if name != key:
                name = _free_name(name, parts)
            if key == _HASH:
                parts[name] = part
            else:
                parts[name] = hide(part) if is_secret_name(key) else inner(part)
            is_same = is_same and name == key and _is(parts[name], part)
        return value if is_same else parts

    def _hidden(self, value: Any, *, keeps_types: bool, in_plan: bool) -> Any:
        """Return the replacement for the value of a field with a secret name."""
        hide = partial(self._hidden, keeps_types=keeps_types, in_plan=in_plan)
        match value:
            case None | bool() | "":
                return value
            case str():
                return _around_references(value, lambda _: HIDDEN) if in_plan else HIDDEN
            case Mapping() if in_plan and (_REFERENCE in value or KEY in value):
                return value
            case Mapping() if keeps_types:
                return self._object(value, hide, hide)
            case list() | tuple() if keeps_types:
                return [hide(part) for part in value]
            case int() | float() if keeps_types:
                return 0
            case _:
                return HIDDEN

    def template(self, text: str) -> str:
        """Return a text of a plan with everything but its references redacted."""
        return _around_references(text, self._literal) if "${" in text else self._literal(text)

    def _literal(self, text: str) -> str:
        shown = self.text(text)
        return text if shown == text else shown.replace("${", "$${")  # the hook of a host may return anything

    # Values of steps --------------------------------------------------------------------------------------

    def value(self, stored: Stored) -> Stored:
        """Return a value of a step; `KEPT_OUT` in a record, if something in it has to be hidden."""
        if stored is None or isinstance(stored, bool | Unavailable):
            return stored
        plain = decode(stored)
        shown = self.json(plain)
        if _is(shown, plain):
            return stored
        if self.is_kept:
            return KEPT_OUT
        return encode_plain(shown).encode("utf-8", "backslashreplace") if type(stored) is bytes else shown

    def arguments(self, stored: Stored) -> Stored:
        """Return an input of the computation, redacted, with an unchanged shape."""
        if stored is None or isinstance(stored, bool | Unavailable):
            return stored
        plain = decode(stored)
        shown = self.json(plain, keeps_types=True)
        if _is(shown, plain):
            return stored
        self.lost.add("inputs")
        return encode_plain(shown).encode("utf-8", "backslashreplace") if type(stored) is bytes else shown

    def labels(self, labels: Mapping[str, Any]) -> Any:
        """Return the labels of a run. They hold the command that resumes it, which names secrets and no values."""
        walk = _Walk(self._redactor, is_kept=self.is_kept)
        walk.text = self._redactor.words
        return walk.json(labels, knows_names=False)

    # Plans ------------------------------------------------------------------------------------------------

    def plan(self, plan: Plan) -> Plan:
        """Return a plan with its texts and literals redacted."""
        written = plan.model_dump(mode="json", by_alias=True, exclude_unset=True, fallback=repr)
        changed = {**written}
        if "goal" in written:
            changed["goal"] = self.text(written["goal"])
        if isinstance(written.get("output"), dict | list):
            changed["output"] = self._computed("plan", written["output"])
        if "steps" in written:
            changed["steps"] = _unless_same([self._step("plan", step) for step in written["steps"]], written["steps"])
        return plan if _has_same_parts(changed, written) else _plans().validate_python(changed)

    def edit(self, edit: Add | Drop | Replace | Rewire) -> Add | Drop | Replace | Rewire:
        """Return an edit of a patch with its texts and literals redacted."""
        written = edit_as_dict(edit)
        changed = {
            name: self._step("patch", part) if name == "step" else self._field("patch", name, part)
            for name, part in written.items()
        }
        if _has_same_parts(changed, written):
            return edit
        redacted: Add | Drop | Replace | Rewire = _edit_adapter().validate_python(changed)
        return redacted

    def output(self, output: Any) -> Any:
        """Return the answer of a run as a patch has written it; a bare text is a reference."""
        return output if isinstance(output, str) else self._computed("patch", output)

    def _step(self, part_of: str, step: dict[str, Any]) -> dict[str, Any]:
        changed = {name: self._field(part_of, name, part) for name, part in step.items()}
        return step if _has_same_parts(changed, step) else changed

    def _field(self, part_of: str, name: str, part: Any) -> Any:
        if name in _STEP_TEXTS:
            return self.text(part)
        if name in _STEP_NAMES:
            return part
        if name == "for_each" and isinstance(part, str):
            return part  # a reference
        if name in ("when", "success"):
            return self._condition(part_of, part)
        return self._computed(part_of, part)

    def _computed(self, part_of: str, value: Any) -> Any:
        shown = self.json(value, keeps_types=True, in_plan=True)
        if not _is(shown, value):
            self.lost.add(part_of)
        return shown

    def _condition(self, part_of: str, condition: Any) -> Any:
        """Return a condition with its compared values redacted, and nothing else."""
        match condition:
            case {"ref": _}:
                if "value" not in condition:
                    return condition
                value = self._computed(part_of, condition["value"])
                return condition if _is(value, condition["value"]) else {**condition, "value": value}
            case Mapping():
                changed = {name: self._condition(part_of, part) for name, part in condition.items()}
                return condition if _has_same_parts(changed, condition) else changed
            case list():
                return _unless_same([self._condition(part_of, part) for part in condition], condition)
            case _:
                return condition

    # Answers and elements ---------------------------------------------------------------------------------

    def answered(self, event: events.QuestionAnswered) -> events.QuestionAnswered:
        """Return the event of an answer without a value that has to be hidden."""
        answer = event.answer
        if answer is None or answer.value is None:
            return event
        shown = self.json(answer.value)
        if _is(shown, answer.value):
            return event
        if self.is_kept:
            return replace(event, answer=replace(answer, value=None), hides_value=True)
        return replace(event, answer=replace(answer, value=shown))

    def expanded(self, event: events.StepExpanded) -> events.StepExpanded:
        """Return the event of a for_each without the elements that have to be hidden."""
        items = tuple(map(self.value, event.items))
        if all(map(_is, items, event.items)):
            return event
        gone = tuple(index for index, item in enumerate(items) if isinstance(item, Unavailable))
        kept = tuple(None if isinstance(item, Unavailable) else item for item in items)
        return replace(event, items=kept, hidden=gone or event.hidden)


def _is(one: Any, other: Any) -> bool:
    """Whether two values are equal; numbers and texts are compared by value, as they may be different objects."""
    return one is other or (type(one) is type(other) and isinstance(one, str | int | float) and one == other)


def _has_same_parts(changed: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    return all(_is(part, written[name]) for name, part in changed.items())


def _unless_same(parts: list[Any], before: list[Any]) -> list[Any]:
    return before if all(map(_is, parts, before)) else parts


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return a name that is not taken: two keys may be redacted to the same text."""
    number = 2
    free = name
    while free in taken:
        free, number = f"{name} {number}", number + 1
    return free


def _around_references(text: str, change: Callable[[str], str]) -> str:
    """Change the parts of a text that are no references."""
    return "".join(_changed_pieces(text, change))


def _changed_pieces(text: str, change: Callable[[str], str]) -> Iterator[str]:
    at = 0
    for match in HOLE.finditer(text):
        yield change(text[at : match.start()]) if match.start() > at else ""
        yield match.group()
        at = match.end()
    yield change(text[at:]) if len(text) > at else ""


@cache
def _plans() -> TypeAdapter[Plan]:
    return TypeAdapter(Plan)


@cache
def _edit_adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Edit)


# Walkers: for each type, a function that redacts its values ----------------------------------------------------------

Walker = Callable[[Any, _Walk], Any]


def _same(value: Any, walk: _Walk) -> Any:
    return value


def _text(value: str, walk: _Walk) -> str:
    return walk.text(value)


def _texts_only(value: Any, walk: _Walk) -> Any:
    """Redact a JSON value whose keys are not names of secrets: a schema."""
    return walk.json(value, knows_names=False)


# Fields that need more than their type says.
_SPECIAL: Final[Mapping[tuple[type, str], Walker]] = {
    (Opening, "labels"): lambda value, walk: walk.labels(value),
    (Opening, "inputs"): lambda value, walk: walk.arguments(value),
    (Question, "schema"): _texts_only,
    (Spliced, "output"): lambda value, walk: walk.output(value),
    (Spliced, "checked"): _same,
    (events.StepExpanded, "items"): _same,  # see `_Walk.expanded`
}
_WHOLE: Final[Mapping[type, Walker]] = {
    events.QuestionAnswered: lambda event, walk: walk.answered(event),
    events.StepExpanded: lambda event, walk: walk.expanded(event),
}


@cache
def _walker_of(hint: Any) -> Walker:
    """Return the redacting function for a type hint."""
    if hint == Stored:
        return lambda value, walk: walk.value(value)
    if hint is str:
        return _text
    if hint is Any:
        return lambda value, walk: walk.json(value)
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _walker_of_union(inside)
    if origin is Literal:
        return _same
    if origin is tuple:
        return _row_of([_walker_of(part) for part in inside if part is not Ellipsis], is_open=inside[-1] is Ellipsis)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_of(inside[1])
    return _walker_of_class(hint)


def _walker_of_union(inside: Sequence[Any]) -> Walker:
    if _EDITS.issuperset(inside):
        return lambda value, walk: walk.edit(value)
    (kind,) = [kind for kind in inside if kind is not type(None)]
    walker = _walker_of(kind)
    return _same if walker is _same else lambda value, walk: None if value is None else walker(value, walk)


def _walker_of_class(kind: type[Any]) -> Walker:
    if kind is Plan:
        return lambda value, walk: walk.plan(value)
    if kind is Policy or issubclass(kind, StrEnum | bool | int | float):
        return _same
    if issubclass(kind, BaseModel):
        return _model_of(kind)
    assert is_dataclass(kind), kind
    return _fields_of(kind)


def _model_of(kind: type[BaseModel]) -> Walker:
    """Redact a model as the JSON that it is written as."""

    def work(value: BaseModel, walk: _Walk) -> Any:
        written = value.model_dump(mode="json", by_alias=True, exclude_unset=True, fallback=repr)
        shown = walk.json(written, keeps_types=True)
        return value if _is(shown, written) else kind.model_validate(shown)

    return work


def _row_of(walkers: Sequence[Walker], *, is_open: bool) -> Walker:
    if all(walker is _same for walker in walkers):
        return _same

    def work(value: tuple[Any, ...], walk: _Walk) -> tuple[Any, ...]:
        each = [*walkers] * (len(value) if is_open else 1)
        parts = tuple(walker(part, walk) for walker, part in zip(each, value, strict=True))
        return value if all(map(_is, parts, value)) else parts

    return work


def _mapping_of(hint: Any) -> Walker:
    if hint is Any:
        return lambda value, walk: walk.json(value)
    walker = _walker_of(hint)

    def work(value: Mapping[str, Any], walk: _Walk) -> Mapping[str, Any]:
        parts = {key: walker(part, walk) for key, part in value.items()}
        return value if _has_same_parts(parts, value) else parts

    return _same if walker is _same else work


def _fields_of(kind: type[Any]) -> Walker:
    hints = typing.get_type_hints(kind)
    recorded = [field.name for field in fields(kind) if not field.metadata.get(UNRECORDED)]
    walkers = [(name, _walker_of_field(kind, name, hints[name])) for name in recorded]
    used = [(name, walker) for name, walker in walkers if walker is not _same]
    whole = _WHOLE.get(kind, _same)

    def work(value: Any, walk: _Walk) -> Any:
        value = whole(value, walk)  # first: it decides about a value that is still as it was
        changed: dict[str, Any] = {}
        for name, walker in used:
            before = getattr(value, name)
            after = walker(before, walk)
            if not _is(after, before):
                changed[name] = after
        return replace(value, **changed) if changed else value

    return work if used or whole is not _same else _same


def _walker_of_field(kind: type[Any], name: str, hint: Any) -> Walker:
    special = _SPECIAL.get((kind, name))
    if special is not None:
        return special
    return _same if name in NAMES and may_hold_names(hint) else _walker_of(hint)


# The redactor of a record ---------------------------------------------------------------------------------------------


def shown_lines(recorded: Sequence[Event], lines: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the lines of a record as they may be shown.

    A line from which something was taken out is marked as redacted. Sealed parts of a line are left out.

    Args:
        recorded: The events of the record.
        lines: The records of these events.
    """
    redactor = redactor_of(recorded)
    for event, line in zip(recorded, lines, strict=True):
        walk = None if redactor is None else _Walk(redactor, is_kept=False)
        shown = event if walk is None else walk.event(event)
        marks = marks_of(line)
        if shown is event and (marks is None or not marks.sealed):
            yield line
        else:
            lost = {*(() if marks is None else marks.lost), *(() if walk is None else walk.lost)}
            yield with_marks(encode_event(shown), Marks(tuple(sorted(lost))))


def shown_events(recorded: Sequence[Event]) -> list[Event]:
    """Return the events of a record as they may be shown to people: without the kinds of data that its policy names."""
    redactor = redactor_of(recorded)
    return list(recorded) if redactor is None else [as_shown(event, redactor) for event in recorded]


def redactor_of(recorded: Sequence[Event], hook: Hook | None = None) -> Redactor | None:
    """Return the redactor for all that is shown of a record; `None` if its policy names no kinds of personal data.

    A run may have been resumed under another policy; then the kinds of all its policies count. The function of the host
    is not on record: *hook*, if it is given.
    """
    openings = [event.opening for event in recorded if isinstance(event, events.RunStarted | events.RunResumed)]
    kinds = dict.fromkeys(kind for opening in openings if opening is not None for kind in opening.policy.redact)
    return Redactor(personal=kinds, hook=hook) if kinds or hook is not None else None


def redacted_events(recorded: Sequence[Event], hook: Hook | None = None) -> list[Event]:
    """Return the events of a record without apparent secrets, and without the parts that its policy and *hook* name."""
    redactor = redactor_of(recorded, hook) or DEFAULT_REDACTOR
    return [as_shown(event, redactor) for event in recorded]


def can_be_shown(value: Any, kinds: Iterable[Personal]) -> bool:
    """Whether plain JSON holds nothing that looks like a secret, and no personal data of these kinds."""
    return bool(Redactor(NO_SECRETS, tuple(kinds)).value(value) == value)


# Registered secrets ---------------------------------------------------------------------------------------------------


def redacted_record(event: Event, secrets: Secrets) -> bytes:
    """Return the text of the record of *event*, without registered secrets.

    A value of a step that holds a secret is left out of the record as a whole: `Unavailable` stands in its place.

    Raises:
        ContractError: See `dagrun.codec.encode_event`.
        ValueRefused: See there, too.
    """
    data = encode_event(event)
    if not secrets.found_in(data.decode()):
        return data
    redacted = without_secrets(secrets, from_json(encode_event(without_secret_values(event, secrets))))
    return encode_plain(redacted).encode("utf-8", "backslashreplace")


def without_secret_values(event: Event, secrets: Secrets) -> Event:
    """Return *event*, with `Unavailable` for a value that contains a registered secret."""
    match event:
        case AttemptEnded() | Reviewed() if name := _name_in(event.outcome.value, secrets):
            return replace(event, outcome=replace(event.outcome, value=Unavailable(_reason(name))))
        case StepSettled() if name := _name_in(event.value, secrets):
            return replace(event, value=Unavailable(_reason(name)))
        case events.RunStarted(opening=Opening() as opening) | events.RunResumed(opening=Opening() as opening):
            names = {id_: _name_in(outcome.value, secrets) for id_, outcome in opening.elements.items()}
            lost = {id_: Outcome(State.SUCCEEDED, Unavailable(_reason(name))) for id_, name in names.items() if name}
            return replace(event, opening=replace(opening, elements={**opening.elements, **lost})) if lost else event
        case _:
            return event


def _name_in(value: Stored, secrets: Secrets) -> str:
    if value is None or isinstance(value, Unavailable):
        return ""
    return secrets.found_in(to_json(value).decode())


def _reason(name: str) -> str:
    return f"it holds the secret {name}"


# Writing records ------------------------------------------------------------------------------------------------------


def redacted_line(
    event: Event, write: Callable[[Event], bytes], redactor: Redactor, seal: Callable[[bytes], str] | None
) -> bytes:
    """Return the record of *event* without personal data, with the original sealed in it if there is a key.

    Args:
        event: The event.
        write: Returns the record of an event as it is.
        redactor: Redacts the texts.
        seal: Encrypts a record; `None` if there is no key.
    """
    redacted, lost = as_recorded(event, redactor)
    if redacted is event:
        return write(event)
    return with_marks(write(redacted), Marks(lost, "" if seal is None else seal(write(event))))


def text_writer(plan: CheckedPlan, seal: Callable[[bytes], str] | None) -> Callable[[Event], bytes]:
    """Return the function that writes the records of a run of *plan*.

    Args:
        plan: The plan; its policy names the redacted kinds, and its secrets are not written.
        seal: Encrypts the record of an event that is redacted; `None` if the host has given no key.
    """
    write: Callable[[Event], bytes] = (
        partial(redacted_record, secrets=plan.secrets) if plan.secrets.are_hidden else encode_event
    )
    if plan.policy.redact_records:
        write = partial(redacted_line, write=write, redactor=plan.redactor, seal=seal)
    return write
