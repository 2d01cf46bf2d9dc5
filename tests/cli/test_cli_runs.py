"""Runs that are written down can be listed, read, verified and deleted, without their tools and their planner."""

import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import TOOLS, Shell, shell
from dagrun import SQLiteJournal
from dagrun.cli.records.run_store import wait

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

ADD = {"id": "sum", "tool": "add", "args": {"a": 1}}
ASK = {"id": "pay", "tool": "needs_a_person"}
FAIL = {"id": "bad", "tool": "fail"}


def ran(shell: Shell, *steps: dict[str, Any], name: str = "one", options: tuple[str, ...] = ()) -> int:
    """Run some steps, written down under a name."""
    return shell("run", shell.plan(*steps), *TOOLS, "--run-id", name, *options).code


def damage(shell: Shell, name: str) -> None:
    """Change a record behind dagrun's back."""
    with sqlite3.connect(shell.runs / name / "journal.db") as database:
        database.execute("UPDATE records SET text = replace(text, 'sum', 'mus') WHERE seq = 2")
    database.close()


# Where ----------------------------------------------------------------------------------------------------------------


def test_run_is_written_down_for_its_user_alone(shell: Shell) -> None:
    """What a plan handles is nobody else's business."""
    ran(shell, ADD)

    place = shell.runs / "one"
    found = {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()}
    assert found.keys() >= {"journal.db", "anchor", "artifacts", "inbox", "run.json"}
    assert {found["journal.db"], found["run.json"], found["anchor"]} == {0o600}
    assert place.stat().st_mode & 0o777 == 0o700
    assert json.loads((place / "run.json").read_text())["status"] == "succeeded"


def test_names_sort_by_time(shell: Shell) -> None:
    shell("run", shell.plan(ADD), *TOOLS)

    day, clock, tail = shell.run_id.split("-")
    assert (len(day), len(clock), len(tail)) == (8, 6, 4)


def test_output_folder_has_the_files_and_the_runs_folder_the_record(shell: Shell) -> None:
    """There is one place for artifacts, whichever that is."""
    ran(shell, ADD, options=("-o", "left"))

    assert (shell.folder / "left" / "run.json").exists()
    assert not (shell.runs / "one" / "run.json").exists()
    assert (shell.runs / "one" / "journal.db").exists()


def test_no_journal_leaves_nothing(shell: Shell) -> None:
    assert shell("run", shell.plan(ADD), *TOOLS, "--no-journal").code == 0

    assert not shell.runs.exists()


@pytest.mark.parametrize("args", [["check"], ["run", "-n"], ["bench", "--repeat", "1"]])
def test_what_runs_nothing_for_its_own_sake_writes_nothing_down(shell: Shell, args: list[str]) -> None:
    assert shell(args[0], shell.plan(ADD), *TOOLS, *args[1:]).code == 0

    assert not shell.runs.exists()


def test_folder_comes_from_the_settings(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.trusted("dagrun.toml", 'runs = "kept"')
    ran(shell, ADD)
    monkeypatch.setenv("DAGRUN_RUNS", "elsewhere")
    ran(shell, ADD)

    assert (shell.folder / "kept" / "one").exists()
    assert (shell.folder / "elsewhere" / "one").exists()


@pytest.mark.parametrize("kind", ["link", "open", "file", "missing"])
def test_folder_that_cannot_be_used_is_told_with_the_ways_out(
    shell: Shell, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing was run: a record that is only half there is no record."""
    place = shell.folder / "place"
    match kind:
        case "link":
            (shell.folder / "other").mkdir()
            place.symlink_to("other")
        case "open":
            place.mkdir()
            place.chmod(0o777)
        case "file":
            place.write_text("")
        case _:
            place = Path("/proc/none/runs")
    step = {"id": "w", "tool": "write_here", "args": {"name": "made"}}

    monkeypatch.setenv("DAGRUN_RUNS", str(place))

    ended = shell("run", shell.plan(step), *TOOLS)

    assert ended.code == 2
    assert "--runs" in ended.err
    assert "--no-journal" in ended.err
    assert "Traceback" not in ended.err
    assert not (shell.folder / "made").exists()


def test_name_that_is_taken_is_told(shell: Shell) -> None:
    ran(shell, ADD)

    ended = shell("run", shell.plan(ADD), *TOOLS, "--run-id", "one")

    assert (ended.code, "--run-id" in ended.err) == (2, True)


@pytest.mark.parametrize("name", ["last", "../up", ".hidden", "a b", "x" * 101])
def test_name_that_cannot_be_is_refused(shell: Shell, name: str) -> None:
    assert shell("run", shell.plan(ADD), *TOOLS, "--run-id", name).code == 2


def test_values_of_inputs_are_no_label(shell: Shell) -> None:
    """They are in the record once; a label would be a second place to look for them."""
    step = {"id": "a", "tool": "echo", "args": {"value": "${input.who}"}}
    shell("run", shell.plan(step), *TOOLS, "--run-id", "one", "-i", "who=alice", "--input=also=bob")

    (run,) = shell("runs", "--json").json["runs"]
    assert run["command"][-3:] == ["-i", "who=…", "--input=also=…"]
    assert not any(name in " ".join(run["command"]) for name in ("alice", "bob"))


# Listing --------------------------------------------------------------------------------------------------------------


def test_no_runs_is_no_error(shell: Shell) -> None:
    assert (shell("runs").code, shell("runs", "--json").json["runs"]) == (0, [])
    assert shell("runs").out.startswith("no runs in ")


def test_list_says_where_each_run_stands(shell: Shell) -> None:
    ran(shell, ADD, name="a")
    ran(shell, ASK, name="b")
    ran(shell, FAIL, name="c")

    found = {run["run_id"]: run for run in shell("runs", "--json").json["runs"]}

    assert {name: run["state"] for name, run in found.items()} == {"a": "ended", "b": "waiting", "c": "ended"}
    assert [run["stand"] for run in found.values()] == [run["state"] for run in found.values()]
    assert found["b"]["waits_for"] == ["pay"]
    assert found["b"]["is_resumable"]
    assert (found["c"]["status"], found["a"]["settled"]) == ("failed", 1)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 160])
def test_list_fits_the_terminal(shell: Shell, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ran(shell, ADD, name="20261122-124501-a3f9")
    ran(shell, ASK, name="a-name-that-somebody-has-thought-of-and-that-is-rather-long-for-a-name")

    shown = shell("runs").out

    assert max(map(len, shown.splitlines())) <= max(columns, 71)
    assert "20261122-124501-a3f9" in shown


def test_damaged_run_hides_no_other(shell: Shell) -> None:
    ran(shell, ADD, name="a")
    ran(shell, ADD, name="b")
    damage(shell, "a")

    ended = shell("runs", "--json")

    found = {run["run_id"]: run for run in ended.json["runs"]}
    assert ended.code == 1
    assert (found["a"]["state"], found["b"]["state"]) == ("damaged", "ended")
    assert "record 2" in found["a"]["reason"]


def test_run_that_was_killed_at_its_very_start_is_no_damage(shell: Shell) -> None:
    """Its folder is there, and not one record: there is nothing to go on with, and nothing was lost."""

    async def begin() -> None:
        run_log = await SQLiteJournal(shell.runs).create("one")
        await run_log.aclose()

    wait(begin)

    (run,) = shell("runs", "--json").json["runs"]
    resumed = shell("resume", "one", *TOOLS)

    assert (shell("runs").code, run["state"], run["is_resumable"]) == (0, "empty", False)
    assert (resumed.code, "start it again" in resumed.err) == (2, True)
    assert shell("runs", "--verify", "one").code == 0
    assert shell("prune", "one").code == 0


@pytest.mark.parametrize(("text", "code"), [("20261122-1245", 0), ("last", 0), ("2026", 2), ("x", 2), ("", 2)])
def test_run_is_named_by_the_beginning_of_its_name(shell: Shell, text: str, code: int) -> None:
    for name in ("20261122-124501-a3f9", "20261122-130000-b000"):
        ran(shell, ADD, name=name)

    ended = shell("inspect", text, "--hash")

    assert ended.code == code
    assert len(ended.out.strip()) == (0 if code else 64)


def test_last_is_the_run_that_was_written_to_last(shell: Shell) -> None:
    """Reading one does not make it the last."""
    ran(shell, ADD, name="z")
    ran(shell, ADD, name="a")
    os.utime(shell.runs / "z" / "anchor", (1, 1))
    shell("inspect", "z", "--state")

    assert shell("inspect", "last", "--state").out.startswith("run a:")


def test_names_are_completed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(shell, ADD, name="20261122-124501-a3f9")
    monkeypatch.setenv("_DAGRUN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "dagrun inspect 2026")
    monkeypatch.setenv("COMP_CWORD", "2")

    from dagrun.cli.command_table import cli

    shell.capture.readouterr()
    with pytest.raises(SystemExit):
        cli.main(prog_name="dagrun")

    assert "20261122-124501-a3f9" in shell.capture.readouterr().out


# Reading --------------------------------------------------------------------------------------------------------------


def test_replay_needs_no_tools_and_gives_the_same_hash(shell: Shell) -> None:
    ran(shell, ADD, ASK)
    for name in [name for name in sys.modules if name == "cli_tools"]:
        del sys.modules[name]

    first, second = (shell("inspect", "one", "--state", "--json").json for _ in range(2))

    assert "cli_tools" not in sys.modules
    assert first["hash"] == second["hash"] == shell("inspect", "one", "--hash").out.strip()
    assert first["steps"] == {"sum": "succeeded", "pay": "held"}


def test_verify_checks_a_run_that_is_named_twice_once(shell: Shell) -> None:
    shell("run", shell.plan({"id": "a", "tool": "echo", "args": {"value": 1}}), *TOOLS, "--run-id", "one")

    assert shell("runs", "--verify", "one", "one").out == shell("runs", "--verify", "one").out


def test_verify_tells_the_damage_with_its_place(shell: Shell) -> None:
    ran(shell, ADD, name="a")
    ran(shell, ADD, name="b")
    damage(shell, "b")

    good, bad = shell("runs", "--verify", "a"), shell("runs", "--verify", "--json")

    assert (good.code, good.out) == (0, "a: good, 4 records\n")
    assert bad.code == 1
    assert [(run["is_good"], run["seq"]) for run in bad.json["runs"]] == [(True, None), (False, 2)]


@pytest.mark.parametrize("args", [["--state", "ended"], ["nosuch"]])
def test_what_cannot_be_verified_is_wrong_usage(shell: Shell, args: list[str]) -> None:
    ran(shell, ADD)

    assert shell("runs", "--verify", *args).code == 2


@pytest.mark.parametrize("command", [["inspect", "--state"], ["inspect"], ["inspect", "--export"], ["resume", *TOOLS]])
def test_damaged_record_is_told_and_not_gone_on_with(shell: Shell, command: list[str]) -> None:
    ran(shell, ADD)
    damage(shell, "one")

    ended = shell(*command, "one")

    assert (ended.code, ended.out) == (1, "")
    assert "damaged at record 2" in ended.err


def test_export_gives_the_records(shell: Shell) -> None:
    ran(shell, ADD)

    lines = shell("inspect", "one", "--export").lines

    assert [line["seq"] for line in lines] == [1, 2, 3, 4]
    assert (lines[0]["event"], lines[-1]["event"]) == ("RunStarted", "RunEnded")


# Pruning --------------------------------------------------------------------------------------------------------------


def test_prune_deletes_what_has_expired_and_nothing_else(shell: Shell) -> None:
    ran(shell, ADD, name="due", options=("--expires-after", "0.0000001"))
    ran(shell, ADD, name="later", options=("--expires-after", "1"))
    ran(shell, ADD, name="never")
    ran(shell, ASK, name="waits", options=("--expires-after", "0.0000001"))

    rehearsed = shell("prune", "--dry-run", "--json").json
    ended = shell("prune")

    assert [run["run_id"] for run in rehearsed["deleted"]] == ["due"]
    assert sorted(os.listdir(shell.runs)) == ["later", "never", "waits"]
    assert "due: deleted (expired)" in ended.out
    assert "waits: kept: it can go on" in ended.out


def test_prune_by_age_and_by_name(shell: Shell) -> None:
    for name in ("a", "b", "c"):
        ran(shell, ADD, name=name)

    assert shell("prune", "--older-than", "1").out == "nothing is due\n"
    assert shell("prune", "b").out == "b: deleted (named)\n"
    assert shell("prune", "--older-than", "0").code == 0
    assert os.listdir(shell.runs) == []


def test_prune_of_what_could_go_on_or_is_damaged_must_be_forced(shell: Shell) -> None:
    ran(shell, ASK, name="waits")
    ran(shell, ADD, name="hurt")
    damage(shell, "hurt")

    shell("prune", "waits", "hurt")
    assert sorted(os.listdir(shell.runs)) == ["hurt", "waits"]

    shell("prune", "waits", "hurt", "--force")
    assert os.listdir(shell.runs) == []
