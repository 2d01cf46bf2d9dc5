"""The codec: the one way from an event to the text of a record, and back.

A record is one line of JSON, in UTF-8: ``{"v":1,"event":"StepExpanded","seq":7,"at":0.5,"step":"load","items":[1,2]}``.
After the format and the name of the event come its fields, all of them, in their order. Every event is recorded, but
`Progress` and `Gap`. Text that comes in is data and nothing else: no name in it is ever looked up anywhere but in the
closed list of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from json.encoder import encode_basestring as quote
from typing import Any, Final

from pydantic_core import to_json

from dagrun.errors import ContractError, JournalDamaged, RecordRefused, RunNotFound, UnknownFormat, shorten
from dagrun.model import event as call_event
from dagrun.model import event as events
from dagrun.model.codec.json_text import scan_whole, write_number
from dagrun.model.codec.type_codecs import Fields
from dagrun.model.event import AttemptEnded, AttemptStarted, Event, RunStarted
from dagrun.model.journal import FORMAT, Line
from dagrun.model.outcome import PROCEED, State
from dagrun.model.value import Stored, Unavailable

_NOT_RECORDED: Final = frozenset((Event, events.Progress, events.Gap))
RECORDED: Final = {
    kind.__name__: kind
    for kind in (*vars(events).values(), *vars(call_event).values())
    if isinstance(kind, type) and issubclass(kind, Event) and kind not in _NOT_RECORDED
}

_START: Final = f'{{"v":{FORMAT},"event":"'
_SUCCEEDED: Final = State.SUCCEEDED
# What follows the value of an attempt that has gone as it should, by far the most there are.
_WELL: Final = (
    b',"failure":null,"tokens":0,"cost":null,"surprise":""},'
    b'"decision":{"recovery":"proceed","reason":"","delay":0.0,"trigger":null}}'
)


@cache
def _fields(name: str) -> Fields:
    kind = RECORDED[name]
    return Fields(kind, ("checked",) if kind is events.Spliced else ())  # that follows from the rest


def encode(event: Event) -> bytes:
    """Give the text of the record of *event*.

    Raises:
        ContractError: It is none of those that are recorded.
        ValueRefused: It holds what no JSON can say: NaN, say.
    """
    write = _QUICK.get(type(event))
    return _whole(event) if write is None else write(event)


def _whole(event: Event) -> bytes:
    name = type(event).__name__
    if name not in RECORDED:
        raise ContractError(f"{name} is not recorded")
    return b'%b%b",%b}' % (_START.encode(), name.encode(), _fields(name).write(event))


def decode(text: bytes) -> Event:
    """Give the event that a record tells of.

    Raises:
        UnknownFormat: A later release has written it.
        RecordRefused: It is not what `encode` gives.
    """
    try:
        line = text.decode()
    except UnicodeDecodeError as error:
        raise RecordRefused(f"not UTF-8: {error.reason} at byte {error.start}") from None
    if "\n" in line:
        raise RecordRefused("a record is one line")
    name = line[len(_START) : line.find('"', len(_START))]
    if name not in RECORDED or not line.startswith(_START):
        raise _strange(line)
    event, end = _fields(name).read(line, len(_START) + len(name) + 2)
    if end != len(line):
        raise RecordRefused(f"there is more after the end of the record: {shorten(line[end:], 40)!r}")
    assert isinstance(event, Event)
    return event


def _strange(line: str) -> RecordRefused:
    """Say what is wrong with a text that does not even begin like a record."""
    found = scan_whole(line)
    if not isinstance(found, dict) or "v" not in found:
        return RecordRefused("not a record of a run")
    version, name = found["v"], found.get("event")
    if type(version) is not int or version < 1:
        return RecordRefused("expected the number of a format", "v")
    if version != FORMAT:
        return UnknownFormat(f"format {shorten(str(version), 20)} is unknown here; this release knows {FORMAT}", "v")
    if isinstance(name, str) and name in RECORDED:
        return RecordRefused("a record begins with v, event, seq and at, and has no blanks between its fields")
    return RecordRefused(f"{shorten(str(name), 60)!r} is no event that is recorded", "event")


# Two of these are written for every step, so they have a way of their own; it gives what `Fields` would. In the range
# that is asked for, pydantic writes a float as `repr` does, in a third of the time.


def _started(event: AttemptStarted) -> bytes:
    at = event.at
    when = to_json(at) if 1e-4 <= at < 1e15 else write_number(at)
    return (
        f'{_START}AttemptStarted","seq":{event.seq},"at":{when.decode()},'
        f'"step":{quote(event.step)},"attempt":{event.attempt},"tool":{quote(event.tool)}}}'
    ).encode("utf-8", "backslashreplace")


def _ended(event: AttemptEnded) -> bytes:
    outcome = event.outcome
    value = outcome.value
    if (
        event.decision is not PROCEED
        or event.state is not _SUCCEEDED
        or outcome.state is not _SUCCEEDED
        or outcome.tokens
        or outcome.cost is not None
        or outcome.surprise
        or outcome.failure is not None
        or type(value) is Unavailable
    ):
        return _whole(event)
    at = event.at
    when = to_json(at) if 1e-4 <= at < 1e15 else write_number(at)
    head = (
        f'{_START}AttemptEnded","seq":{event.seq},"at":{when.decode()},'
        f'"step":{quote(event.step)},"attempt":{event.attempt},"state":"succeeded",'
        f'"outcome":{{"state":"succeeded","value":{"" if type(value) is bytes else _scalar(value)}'
    ).encode("utf-8", "backslashreplace")
    return b"%b%b%b" % (head, value, _WELL) if type(value) is bytes else head + _WELL


def _scalar(value: Stored) -> str:
    kind = type(value)
    if kind is str:
        return quote(value)  # type: ignore[arg-type]
    if kind is int or kind is float:
        return repr(value)
    return "null" if value is None else "true" if value else "false"


_QUICK: Final[dict[type[Event], Callable[[Any], bytes]]] = {AttemptStarted: _started, AttemptEnded: _ended}


def events_of(run_id: str, lines: Sequence[Line]) -> list[Event]:
    """Give the events that the records of a run tell of.

    Raises:
        RunNotFound: There are none: the run was killed before the first.
        JournalDamaged: A record is of no known format, or says what no run says.
    """
    found: list[Event] = []
    for line in lines:
        try:
            event = decode(line.text)
        except ValueError as error:
            raise JournalDamaged(run_id, line.seq, str(error)) from error
        if event.seq != line.seq:
            raise JournalDamaged(run_id, line.seq, f"it says that it is record {event.seq}")
        found.append(event)
    if not found:
        raise RunNotFound(f"run {run_id} was killed before its first record was written; start it anew")
    if not isinstance(found[0], RunStarted) or found[0].opening is None:
        raise JournalDamaged(run_id, 1, "the first record does not say what the run was opened with")
    return found
