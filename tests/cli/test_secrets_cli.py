"""Secrets on the command line: never given there, and nowhere to be found after a run."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final

import pytest

from command_line import Shell, finished, shell
from leaky_tools import FORMS, VALUE, traces_in
from stages_of_tests import by_day_each_once

__all__ = ["shell"]

TOOLS = ("--tools", "leaky_tools")
HANDLE = {"$secret": "api"}


@pytest.fixture(autouse=True)
def _canary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", VALUE)
    monkeypatch.delenv("CANARY_GONE", raising=False)


def leaky_plan(shell: Shell, form: str = "exact") -> str:
    """A plan whose steps let the secret slip."""
    return shell.plan(
        {"id": "gives", "tool": "gives", "args": {"form": form}},
        {"id": "says", "tool": "says", "args": {"form": form}},
        {"id": "fails", "tool": "fails", "args": {"form": form, "how": "chained"}},
        {"id": "cut", "tool": "fails", "args": {"form": form, "how": "cut"}},
        {"id": "crashes", "tool": "crashes", "args": {"key": HANDLE}},
    )


def left_in(folder: Path) -> dict[str, list[str]]:
    """What stands of the secret in the files of a folder, by file."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and (traces := traces_in(path.read_bytes().decode("utf-8", "replace"))):
            found[path.name] = traces
    return found


HOW: Final = ((), ("--json",), ("--events", "jsonl"), ("-vv",))


@pytest.mark.parametrize(("form", "how"), by_day_each_once(FORMS, HOW))
def test_no_form_of_a_secret_is_printed_or_left(shell: Shell, form: str, how: tuple[str, ...]) -> None:
    """S60, S62, S65: not on the terminal, in ``run.json``, in the record, nor where ``-vv`` shows everything."""
    plan = leaky_plan(shell, form)
    ended = shell("run", plan, *TOOLS, "--secret", "api=env:CANARY", "--runs", "kept", "-o", "left", *how)

    assert ended.code == 1
    assert traces_in(ended.out) == []
    assert traces_in(ended.err) == []
    assert left_in(shell.folder) == {}
    assert "[secret:api]" in ended.out + ended.err


@pytest.mark.parametrize("how", [("--json",), ("--events", "jsonl"), ("-vv",)], ids=["json", "events", "vv"])
def test_the_canary_would_be_seen_on_the_command_line(shell: Shell, how: tuple[str, ...]) -> None:
    """The teeth of the test above: another secret hides nothing of this one."""
    os.environ["OTHER"] = "quite-another-value"
    plan = leaky_plan(shell)
    ended = shell("run", plan, *TOOLS, "--secret", "api=env:OTHER", "--runs", "kept", "-o", "left", *how)

    assert traces_in(ended.out)
    assert traces_in(ended.err)
    assert {"run.json", "journal.db"} <= {name.removesuffix("-wal") for name in left_in(shell.folder)}


@pytest.mark.rigs
def test_a_process_of_its_own_shows_nothing_either(shell: Shell) -> None:
    """Also of what is printed past Python, and when everything has ended."""
    plan = leaky_plan(shell)
    facts = {"CANARY": VALUE}
    ended = finished(shell, "run", plan, *TOOLS, "--secret", "api=env:CANARY", "--runs", "kept", "-vv", **facts)

    assert ended.code == 1, ended.err
    assert traces_in(ended.out + ended.err) == []


GIVEN = (VALUE, f"api={VALUE}", "api=plainTOKEN12345", "api=env:sk-live-1", "api=vault:hunter2x", "=env:A", "1=env:A")


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_value_on_the_command_line_is_refused_and_not_repeated(shell: Shell, command: str, given: str) -> None:
    """Everybody on the machine can read it there; and what is refused goes to logs."""
    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": HANDLE}})
    ended = shell(command, plan, *TOOLS, "--secret", given)

    assert ended.code == 2
    assert "NAME=env:VARIABLE" in ended.err
    said = ended.err + ended.out
    assert all(part not in said for part in ("Canary", "plainTOKEN", "sk-live", "hunter2"))


def test_a_variable_that_is_not_set_is_named_by_its_secret(shell: Shell) -> None:
    """What stands in its place may be the secret itself, so it is not repeated."""
    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": HANDLE}})
    ended = shell("run", plan, *TOOLS, "--secret", "api=env:hunter2hunter2")

    assert ended.code == 2
    assert "secret api: the environment variable that it names is not set" in ended.err
    assert "hunter2" not in ended.err


def test_a_variable_may_have_the_name_of_the_secret(shell: Shell) -> None:
    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": {"$secret": "CANARY"}}})
    ended = shell("run", plan, *TOOLS, "--secret", "CANARY", "--runs", "kept")

    assert "with [secret:CANARY]" in ended.err


def _file(shell: Shell, mode: int = 0o600, content: bytes = VALUE.encode() + b"\n") -> str:
    path = shell.folder / "secret.txt"
    path.write_bytes(content)
    path.chmod(mode)
    return "api=file:secret.txt"


def test_a_secret_may_come_from_a_file(shell: Shell) -> None:
    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": HANDLE}})
    given = _file(shell)
    ended = shell("run", plan, *TOOLS, "--secret", given, "--runs", "kept")

    assert "with [secret:api]" in ended.err


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_may_read_or_change_is_refused(shell: Shell, mode: int) -> None:
    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": HANDLE}})
    ended = shell("run", plan, *TOOLS, "--secret", _file(shell, mode))

    assert ended.code == 2
    assert "others may read or change it" in ended.err


def _link(shell: Shell) -> None:
    _file(shell)
    (shell.folder / "other").symlink_to("secret.txt")


def _pipe(shell: Shell) -> None:
    os.mkfifo(shell.folder / "other", 0o600)


def _folder(shell: Shell) -> None:
    (shell.folder / "other").mkdir(mode=0o700)


def _none(shell: Shell) -> None:
    pass


def _bytes(shell: Shell) -> None:
    (shell.folder / "other").write_bytes(b"\xff\xfe123456")
    (shell.folder / "other").chmod(stat.S_IRUSR)


@pytest.mark.parametrize("make", [_link, _pipe, _folder, _none, _bytes])
def test_what_is_no_file_of_ones_own_is_refused(shell: Shell, make: Any) -> None:
    """At once: a pipe would wait for ever for somebody to write."""
    make(shell)
    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": HANDLE}})
    ended = shell("run", plan, *TOOLS, "--secret", "api=file:other")

    assert ended.code == 2
    assert "--secret api: cannot read other" in ended.err


def test_to_check_a_plan_names_are_enough(shell: Shell) -> None:
    """Where plans are checked, there are mostly no secrets."""
    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": HANDLE}})

    assert shell("check", plan, *TOOLS, "--secret", "api=env:CANARY_GONE").code == 0
    assert "DR210" in shell("check", plan, *TOOLS).err
    assert shell("run", plan, *TOOLS, "--secret", "api=env:CANARY_GONE").code == 2


def test_a_literal_in_a_plan_is_refused_and_not_repeated(shell: Shell) -> None:
    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": VALUE}})
    ended = shell("run", plan, *TOOLS, "--secret", "api=env:CANARY")

    assert ended.code == 3
    assert "DR209" in ended.err
    assert traces_in(ended.err + ended.out) == []


def test_a_run_goes_on_without_an_output_that_holds_a_secret_and_says_what_it_has(shell: Shell) -> None:
    """The output is in no record; neither the partial answer nor the summary may stumble over that."""
    held = {"id": "held", "tool": "gives", "args": {"form": "exact"}, "depends_on": ["pays"], "pause": "before"}
    plan = shell.plan({"id": "pays", "tool": "pays", "args": {}}, held)
    options = ("--secret", "api=env:CANARY", "--runs", "kept")
    begun = shell("run", plan, *TOOLS, *options, "--run-id", "one")
    ended = shell("resume", "one", *TOOLS, *options)

    assert (begun.code, ended.code) == (5, 5)
    assert "it holds the secret api" in ended.out
    assert "dagrun answer one held" in ended.err
    assert traces_in(ended.out + ended.err) == []


def test_help_says_where_secrets_come_from(shell: Shell) -> None:
    for command in ("run", "do", "plan", "check"):
        assert "--secret NAME=env:VARIABLE" in shell(command, "--help-all").out


def test_a_crash_of_the_command_shows_no_secret(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    """What Python prints of an error that nobody has caught."""
    import sys

    from dagrun.cli.terminal.text import SECRETS

    plan = shell.plan({"id": "a", "tool": "crashes", "args": {"key": HANDLE}})
    shell("run", plan, *TOOLS, "--secret", "api=env:CANARY", "--runs", "kept")
    try:
        raise RuntimeError(f"broken: {VALUE}")
    except RuntimeError as error:
        sys.excepthook(RuntimeError, error, error.__traceback__)
    finally:
        SECRETS.forget()

    err = capsys.readouterr().err
    assert "RuntimeError: broken: [secret:api]" in err
    assert traces_in(err) == []


def test_what_looks_like_a_secret_is_hidden_where_it_is_shown(shell: Shell) -> None:
    """Nobody has registered it: a token in what a tool prints, and in events; fields by their names; an address."""
    token = "ghp_" + "a1B2" * 9
    shell.file("policy.toml", 'redact = ["email"]\n')
    plan = shell.plan({"id": "a", "tool": "prints", "args": {"text": f"{token} jane@mail.example.com"}})
    ended = shell("run", plan, *TOOLS, "--runs", "kept", "--policy", "policy.toml", "--events", "jsonl")

    assert ended.code == 0
    assert "printed" not in ended.err
    assert "[token]" in ended.err
    assert token not in ended.err + ended.out
    values = [line["outcome"]["value"] for line in ended.lines if line["event"] == "AttemptEnded"]
    assert values == [{"note": "[token] [email]", "password": "(hidden: its name says that it is secret)"}]


def test_step_whose_output_is_not_in_the_record_is_still_told(shell: Shell) -> None:
    """That a secret is in what it gave is no reason to say nothing of it."""
    shell("run", leaky_plan(shell), *TOOLS, "--secret", "api=env:CANARY", "--run-id", "one")

    text, found = shell("inspect", "one", "gives"), shell("inspect", "one", "gives", "--json")

    assert (text.code, "output: not in the record: it holds the secret api" in text.out) == (0, True)
    assert (found.json["step"]["output"], found.json["step"]["unavailable"]) == (None, "it holds the secret api")
