"""The codec of records: an event as one line of JSON, and back.

A record looks like this: ``{"v":1,"event":"StepExpanded","seq":7,"at":0.5,"step":"load","items":[1,2]}``, in UTF-8. It
contains the format, the name of the event, and all fields of the event in their order. Every event except `Progress`
and `Gap` is recorded. The record of an event that was redacted ends with its `Marks`, for example
``,"redacted":["plan"],"sealed":"gAAA…"}``. The text of a record is not trusted: the name of the event is looked up in
the closed list of events, and no other name in the text is looked up anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from json.encoder import encode_basestring as quote
from typing import Any, Final

from pydantic_core import to_json

from dagrun.codec.json_text import scan_whole, write_number
from dagrun.codec.type_codecs import Fields
from dagrun.errors import ContractError, JournalDamaged, RecordRefused, RunNotFound, UnknownFormat, shorten
from dagrun.kernel.model import event as events
from dagrun.kernel.model.event import AttemptEnded, AttemptStarted, Event, RunStarted, event_types
from dagrun.kernel.model.journal import FORMAT, Line
from dagrun.kernel.model.outcome import PROCEED, State
from dagrun.kernel.model.value import Stored, Unavailable

_NOT_RECORDED: Final = frozenset((events.Progress, events.Gap))
RECORDED: Final = {name: kind for name, kind in event_types.items() if kind not in _NOT_RECORDED}

# No event has a field of the first name, and only a key can stand between a comma and a colon: so these are the last
# fields of the record itself, never a part of a value.
_MARK: Final = ',"redacted":['
_MARKS: Final = re.compile(r',"redacted":\[((?:"[a-z]+"(?:,"[a-z]+")*)?)\](?:,"sealed":"([A-Za-z0-9_=-]+)")?\}')

_START: Final = f'{{"v":{FORMAT},"event":"'
_SUCCEEDED: Final = State.SUCCEEDED
# The rest of the record after the value, for an attempt that has simply succeeded, as nearly all attempts do.
_SUCCESS_TAIL: Final = (
    b',"failure":null,"tokens":0,"cost":null,"surprise":""},'
    b'"decision":{"recovery":"proceed","reason":"","delay":0.0,"trigger":null}}'
)


@cache
def _fields(name: str) -> Fields:
    kind = RECORDED[name]
    return Fields(kind, ("checked",) if kind is events.Spliced else ())  # `checked` follows from the other fields


@dataclass(frozen=True, slots=True)
class Marks:
    """The redaction marks of a record whose event was redacted before it was written.

    Attributes:
        lost: The parts with which the run computes and that are redacted: ``plan``, ``inputs``, ``patch``.
        sealed: The original record, encrypted with the key of the host, as a token; empty if there was no key.
    """

    lost: tuple[str, ...] = ()
    sealed: str = ""


def with_marks(text: bytes, marks: Marks) -> bytes:
    """Return the record *text* of a redacted event with its marks."""
    lost = ",".join(f'"{part}"' for part in marks.lost)
    sealed = f',"sealed":"{marks.sealed}"' if marks.sealed else ""
    return b"%b%b%b]%b}" % (text[:-1], _MARK.encode(), lost.encode(), sealed.encode())


def marks_of(text: bytes) -> Marks | None:
    """Return the marks of a record; `None` if its event was not redacted."""
    return _without_marks(text.decode("utf-8", "replace"))[1]


def _without_marks(line: str) -> tuple[str, Marks | None]:
    if not line.endswith(("]}", '"}')):
        return line, None
    at = line.rfind(_MARK)
    found = _MARKS.fullmatch(line, at) if at >= 0 else None
    if found is None:
        return line, None
    lost, sealed = found.groups()
    return f"{line[:at]}}}", Marks(tuple(lost.replace('"', "").split(",")) if lost else (), sealed or "")


def encode_event(event: Event) -> bytes:
    """Return the text of the record of *event*.

    Raises:
        ContractError: The event is of a type that is not recorded.
        ValueRefused: The event holds a value that is not JSON, for example NaN.
    """
    write = _FAST_ENCODERS.get(type(event))
    return _encode_fields(event) if write is None else write(event)


def _encode_fields(event: Event) -> bytes:
    name = type(event).__name__
    if name not in RECORDED:
        raise ContractError(f"{name} is not recorded")
    return b'%b%b",%b}' % (_START.encode(), name.encode(), _fields(name).write(event))


def decode_event(text: bytes) -> Event:
    """Return the event of a record.

    Raises:
        UnknownFormat: A later release of dagrun has written the record.
        RecordRefused: The text is not a record as `encode_event` writes it.
    """
    try:
        line = text.decode()
    except UnicodeDecodeError as error:
        raise RecordRefused(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if "\n" in line:
        raise RecordRefused("a record is one line")
    line, _ = _without_marks(line)
    name = line[len(_START) : line.find('"', len(_START))]
    if name not in RECORDED or not line.startswith(_START):
        raise _refusal(line)
    event, end = _fields(name).read(line, len(_START) + len(name) + 2)
    if end != len(line):
        raise RecordRefused(f"there is more after the end of the record: {shorten(line[end:], 40)!r}")
    assert isinstance(event, Event)
    return event


def _refusal(line: str) -> RecordRefused:
    """Return the error for a text that does not begin like a record."""
    value = scan_whole(line)
    if not isinstance(value, dict) or "v" not in value:
        return RecordRefused("not a record of a run")
    version, name = value["v"], value.get("event")
    if type(version) is not int or version < 1:
        return RecordRefused("expected the number of a format", "v")
    if version != FORMAT:
        return UnknownFormat(f"format {shorten(str(version), 20)} is unknown here; this release knows {FORMAT}", "v")
    if isinstance(name, str) and name in RECORDED:
        return RecordRefused("a record begins with v, event, seq and at, and has no blanks between its fields")
    return RecordRefused(f"{shorten(str(name), 60)!r} is no event that is recorded", "event")


# `AttemptStarted` and `AttemptEnded` are written for every step, so they have fast encoders, with the same result as
# `Fields`. In the range that is checked for, pydantic writes a float as `repr` does, in a third of the time.


def _encode_start(event: AttemptStarted) -> bytes:
    at = event.at
    when = to_json(at) if 1e-4 <= at < 1e15 else write_number(at)
    return (
        f'{_START}AttemptStarted","seq":{event.seq},"at":{when.decode()},'
        f'"step":{quote(event.step)},"attempt":{event.attempt},"tool":{quote(event.tool)}}}'
    ).encode("utf-8", "backslashreplace")


def _encode_end(event: AttemptEnded) -> bytes:
    outcome = event.outcome
    value = outcome.value
    if (
        event.decision is not PROCEED
        or event.state is not _SUCCEEDED
        or outcome.state is not _SUCCEEDED
        or outcome.tokens
        or outcome.cost is not None
        or outcome.surprise
        or outcome.shared is not None
        or outcome.failure is not None
        or type(value) is Unavailable
    ):
        return _encode_fields(event)
    at = event.at
    when = to_json(at) if 1e-4 <= at < 1e15 else write_number(at)
    head = (
        f'{_START}AttemptEnded","seq":{event.seq},"at":{when.decode()},'
        f'"step":{quote(event.step)},"attempt":{event.attempt},"state":"succeeded",'
        f'"outcome":{{"state":"succeeded","value":{"" if type(value) is bytes else _scalar(value)}'
    ).encode("utf-8", "backslashreplace")
    return b"%b%b%b" % (head, value, _SUCCESS_TAIL) if type(value) is bytes else head + _SUCCESS_TAIL


def _scalar(value: Stored) -> str:
    kind = type(value)
    if kind is str:
        return quote(value)  # type: ignore[arg-type]
    if kind is int or kind is float:
        return repr(value)
    return "null" if value is None else "true" if value else "false"


_FAST_ENCODERS: Final[dict[type[Event], Callable[[Any], bytes]]] = {
    AttemptStarted: _encode_start,
    AttemptEnded: _encode_end,
}


def events_of(run_id: str, lines: Sequence[Line], unseal: Callable[[str], bytes] | None = None) -> list[Event]:
    """Return the events of the records of a run.

    Args:
        run_id: The run.
        lines: Its records.
        unseal: Opens the sealed originals of redacted events; `None` for the redacted events.

    Raises:
        RunNotFound: There are no records, because the run was killed before it wrote the first.
        JournalDamaged: A record has an unknown format, or is not possible in a run.
    """
    decoded: list[Event] = []
    for line in lines:
        try:
            event = decode_event(line.text if unseal is None else _original(line.text, unseal))
        except ValueError as error:
            raise JournalDamaged(run_id, line.seq, str(error)) from error
        if event.seq != line.seq:
            raise JournalDamaged(run_id, line.seq, f"it says that it is record {event.seq}")
        decoded.append(event)
    if not decoded:
        raise RunNotFound(f"run {run_id} was killed before its first record was written; start it again")
    if not isinstance(decoded[0], RunStarted) or decoded[0].opening is None:
        raise JournalDamaged(run_id, 1, "the first record does not say what the run was opened with")
    return decoded


def _original(text: bytes, unseal: Callable[[str], bytes]) -> bytes:
    """Return the unredacted record; *text* itself if it was not redacted, or was not sealed."""
    marks = marks_of(text)
    return text if marks is None or not marks.sealed else unseal(marks.sealed)
