"""What commands show of records: no personal data of the kinds that the recorded policy names."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

import dagrun
from command_line import Shell, shell
from dagrun.kernel.model.secrets import Personal

MAIL, CARD, IBAN, PHONE = "ann.canary@example.com", "4111 1111 1111 1111", "DE89370400440532013000", "+49 170 1234567"
ALL = f"{MAIL} {CARD} {IBAN} {PHONE}"
CANARIES = ("canary", "4111 1111", "41111111", "DE8937", "170 1234567")
KINDS: tuple[Personal, ...] = ("email", "phone", "iban", "card")
KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

__all__ = ["shell"]
pytestmark = pytest.mark.real_time


@dagrun.tool(effect="read")
async def person(name: str) -> dict[str, Any]:
    return {"name": name, "mail": MAIL, "number": 4111111111111111}


@dagrun.tool(effect="effectful")
async def send(to: str) -> str:
    return "sent"


def recorded(shell: Shell, **options: Any) -> None:
    """A run that waits for a yes, with personal data in everything that is recorded of it."""
    steps = [
        dagrun.Step(id="who", tool="person", args={"name": f"${{input.who}} {ALL}"}, description=ALL),
        dagrun.Step(id="mail", tool="send", args={"to": "${who.mail}"}),
    ]
    policy = dagrun.Policy(redact=KINDS, approve=[dagrun.ApprovalRule(tool="send")], **options.pop("policy", {}))

    async def main() -> None:
        journal = dagrun.SQLiteJournal(shell.runs)
        try:
            await dagrun.run(
                dagrun.Plan(goal=f"write to {ALL}", steps=steps, output={"to": [ALL]}),
                tools=[person, send],
                policy=policy,
                journal=journal,
                run_id="one",
                inputs={"who": ALL, MAIL: 4111111111111111},
                labels={"command": ["dagrun", "do", f"write to {ALL}"], "again": ["-C", "/tmp", "--goal", MAIL]},
                **options,
            )
        finally:
            await journal.aclose()

    anyio.run(main)


COMMANDS = [
    ["runs"],
    ["runs", "--json"],
    ["inspect", "one"],
    ["inspect", "one", "--json"],
    ["inspect", "one", "who"],
    ["inspect", "one", "who", "--json"],
    ["inspect", "one", "--export"],
    ["inspect", "one", "--state", "--json"],
]


@pytest.mark.parametrize("policy", [{}, {"redact_records": True}])
def test_no_command_shows_personal_data(shell: Shell, policy: dict[str, Any]) -> None:
    """Also of records that were written with it."""
    recorded(shell, policy=policy)

    shown = {" ".join(command): shell(*command, "--runs", str(shell.runs)) for command in COMMANDS}

    assert {ended.code for ended in shown.values()} == {0}
    found = {(name, one) for name, ended in shown.items() for one in CANARIES if one in ended.out + ended.err}
    assert found == set()
    assert "goal: write to [email]" in shown["inspect one"].out
    step = shown["inspect one who"].out.replace("\n  ", "")  # lines are wrapped
    assert ("output: not in the record: it holds personal data" if policy else '"mail":"[email]"') in step


def test_nothing_is_unsealed_to_be_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key may well be in the environment of whoever looks."""
    pytest.importorskip("cryptography")
    recorded(shell, policy={"redact_records": True}, record_key=KEY)
    monkeypatch.setenv("DAGRUN_RECORD_KEY", KEY)

    shown = [shell(*command, "--runs", str(shell.runs)) for command in COMMANDS]

    assert not [one for ended in shown for one in (*CANARIES, "sealed") if one in ended.out + ended.err]


def test_a_full_export_is_the_record(shell: Shell) -> None:
    recorded(shell)

    full = shell("inspect", "one", "--export", "--full", "--runs", str(shell.runs)).lines
    shown = shell("inspect", "one", "--export", "--runs", str(shell.runs)).lines

    assert MAIL in json.dumps(full)
    assert [line["event"] for line in shown] == [line["event"] for line in full]
    assert not any("redacted" in line for line in full)
    assert shown[0]["redacted"] == ["inputs", "plan"]  # so that nobody takes it for the whole


def test_the_hash_that_is_shown_is_that_of_the_record(shell: Shell) -> None:
    recorded(shell)

    inspected = shell("inspect", "one", "--json", "--runs", str(shell.runs)).json["hash"]

    assert inspected == shell("inspect", "one", "--hash", "--runs", str(shell.runs)).out.strip()
