"""Events as plain JSON: what other programs read of a run keeps its shape, and tells no secret."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

import dagrun
from command_line import Shell, shell
from dagrun import Event, MemoryJournal, Plan, Policy, Secrets, Step
from dagrun.kernel.model import event as event_module
from dagrun.kernel.model.redaction.event_json import events_schema
from records import EXAMPLES

__all__ = ["shell"]  # a fixture

# Every event, field and type that was ever published. `python tests/model/test_event_json.py` adds what is new.
PINNED: Final = Path(__file__).with_name("events.schema.json")
SECRET: Final = "correct-horse-battery"
TOKEN: Final = "ghp_" + "a1" * 18
MAIL: Final = "ann.canary@example.com"


def _published() -> dict[str, Any]:
    pinned: dict[str, Any] = json.loads(PINNED.read_text(encoding="utf-8"))
    return pinned


def _changed(before: Any, now: Any, place: str = "") -> list[str]:
    """Return the places where *now* lacks what *before* promises, or promises something else."""
    if isinstance(before, dict) and isinstance(now, dict):
        inner = [_changed(part, now.get(key), f"{place}/{key}") for key, part in before.items()]
        return [fault for faults in inner for fault in faults]
    if isinstance(before, list) and isinstance(now, list):
        return [] if all(part in now for part in before) else [place]
    return [] if before == now else [place]


def test_no_published_event_or_field_has_changed() -> None:
    """Programs of other people read these: a field may come, and none may go or change its type."""
    assert _changed(_published(), events_schema(dagrun.events.event_types)) == []


def test_what_is_new_is_published() -> None:
    """Else nothing would keep it from changing again; run this file to add it."""
    assert _changed(events_schema(dagrun.events.event_types), _published()) == []


def test_a_change_is_found() -> None:
    """The comparison itself must not be blind."""
    now = events_schema(dagrun.events.event_types)
    del now["$defs"]["Gap"]["properties"]["missed"]
    now["$defs"]["Progress"]["properties"]["message"] = {"type": "integer"}
    now["$defs"]["Progress"]["required"].remove("step")
    del now["$defs"]["Hedged"]

    assert set(_changed(_published(), now)) == {
        "/$defs/Gap/properties/missed",
        "/$defs/Progress/properties/message/type",
        "/$defs/Progress/required",
        "/$defs/Hedged",
    }


@pytest.mark.parametrize("redact", [True, False], ids=["redacted", "as it is"])
def test_every_event_fits_its_schema(redact: bool) -> None:
    schema = events_schema(dagrun.events.event_types)
    validator: Any = import_module("jsonschema").Draft202012Validator(schema)  # it has no types
    kinds = set()

    for event in EXAMPLES:
        shown = event.to_dict(redact=redact)
        kinds.add(shown["event"])
        assert list(shown)[:3] == ["event", "seq", "at"]
        own = {"$ref": f"#/$defs/{shown['event']}", "$defs": schema["$defs"]}
        assert [error.message for error in validator.evolve(schema=own).iter_errors(shown)] == []
        assert json.loads(json.dumps(shown, allow_nan=False)) == shown

    assert kinds == {type(event).__name__ for event in EXAMPLES}


def test_event_types_names_every_class() -> None:
    assert all(dagrun.events.event_types[name] is getattr(dagrun.events, name) for name in dagrun.events.event_types)
    assert {kind for kind in vars(event_module).values() if isinstance(kind, type) and issubclass(kind, Event)} == {
        Event,
        *dagrun.events.event_types.values(),
    }
    with pytest.raises(TypeError):
        dagrun.events.event_types["Own"] = Event  # type: ignore[index]


@dagrun.tool(effect="pure")
async def tells(key: str) -> dict[str, Any]:
    """Return what should not be shown."""
    return {"said": SECRET, "of": MAIL, "password": "hunter2", "found": f"it was {TOKEN}", "count": 3, "key": key}


def _plan() -> Plan:
    return Plan(steps=[Step(id="tells", tool="tells", args={"key": "plain"})])


@pytest.mark.anyio
async def test_an_event_tells_no_secret_of_its_run() -> None:
    """The run knows its secrets and its policy, so its events do, whoever writes them to a stream."""
    policy = Policy(redact=["email"])
    journal = MemoryJournal()
    async with dagrun.start(
        _plan(), tools=[tells], secrets=Secrets({"key": SECRET}), policy=policy, journal=journal
    ) as run:
        seen = [event async for event in run.events()]
    shown = json.dumps([event.to_dict() for event in seen])
    ended = next(event.to_dict() for event in seen if isinstance(event, dagrun.events.AttemptEnded))

    assert not any(part in shown for part in (SECRET, TOKEN, MAIL, "hunter2"))
    assert ended["outcome"]["value"]["count"] == 3
    assert ended["outcome"]["value"]["key"] == "plain"

    as_it_is = json.dumps([event.to_dict(redact=False) for event in seen])
    assert all(part in as_it_is for part in (SECRET, TOKEN, MAIL, "hunter2"))

    past = await dagrun.replay(run.id, journal=journal)
    assert MAIL not in json.dumps([event.to_dict() for event in past.events])


@pytest.mark.anyio
async def test_the_first_event_is_shown_redacted_too() -> None:
    plan = Plan(goal=f"use {SECRET}", steps=_plan().steps)
    async with dagrun.start(plan, tools=[tells], secrets=Secrets({"key": SECRET})) as run:
        seen = [event.to_dict() async for event in run.events()]

    assert seen[0]["event"] == "RunStarted"
    assert SECRET not in seen[0]["goal"]
    assert "opening" not in seen[0]


def test_the_command_prints_the_schema(shell: Shell) -> None:
    ended = shell("schema", "events")

    assert json.loads(ended.out) == events_schema(dagrun.events.event_types)


if __name__ == "__main__":
    new = events_schema(dagrun.events.event_types)
    if PINNED.exists() and (faults := _changed(_published(), new)):
        raise SystemExit(f"published, and changed now: {', '.join(faults)}")
    shapes = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(shape)}" for name, shape in new.pop("$defs").items())
    PINNED.write_text(f'{json.dumps(new)[:-1]},\n "$defs": {{\n  {shapes}\n }}\n}}\n', encoding="utf-8")
