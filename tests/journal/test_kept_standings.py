"""What lists of runs keep: a warm list reads no record, and nothing that is kept outlives what it says."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Plan, SQLiteJournal, Step
from dagrun.cli.records import run_list
from dagrun.cli.records.run_store import open_runs
from dagrun.cli.setup.settings import configure
from dagrun.journal import summary_cache
from dagrun.journal.run_folder import RunPaths
from dagrun.journal.sqlite import database, reading
from dagrun.observe.run_standing import RunOverview, RunState
from page_client import Client, page_of
from persons import pay
from small_tools import scripted, toolset

RUNS = 20


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The databases that are opened to be read."""
    found: list[Path] = []
    open_ = database.open_for_reading

    def counted(run_id: str, path: Path, *facts: Any) -> Any:
        found.append(path)
        return open_(run_id, path, *facts)

    monkeypatch.setattr(database, "open_for_reading", counted)
    return found


def carry_out(folder: Path, *names: str, asks: bool = False) -> None:
    """Carry out short runs, and let them grow old: what was changed a moment ago is not kept."""

    async def all_of() -> None:
        journal = SQLiteJournal(folder)
        tools = toolset(pay() if asks else scripted("quick", "done"))
        for name in names:
            plan = Plan(
                goal=f"goal of {name}", steps=[Step(id="a", tool="pay" if asks else "quick", args={"value": 1})]
            )
            await dagrun.run(
                plan, tools=tools, journal=journal, run_id=name, labels={"command": ["dagrun", "run", name]}
            )

    anyio.run(all_of)
    for name in names:
        age(folder / name)


def age(run: Path) -> None:
    """Let the files of a run be a minute old."""
    for path in run.glob("journal.db*"):
        then = time.time() - 60
        os.utime(path, (then, then))


def listed(folder: Path) -> list[run_list.ListedRun]:
    """Return the list of ``dagrun runs``."""
    flags = {"runs": str(folder), "directory": None, "profile": None}
    return run_list.listed_runs(open_runs(configure(flags)))


def test_a_warm_list_opens_no_record(tmp_path: Path, opened: list[Path]) -> None:
    """And says the same; a list of a thousand runs takes no longer because of what is in them."""
    names = [f"r{n}" for n in range(RUNS)]
    carry_out(tmp_path, *names)
    opened.clear()
    cold = listed(tmp_path)
    assert len({path.parent.name for path in opened}) == RUNS
    opened.clear()
    warm = listed(tmp_path)
    assert opened == []
    assert [run.overview for run in warm] == [run.overview for run in cold]
    read = sum((tmp_path / name / summary_cache.SUMMARY).stat().st_size for name in names)
    assert read <= 1_000 * RUNS, "a list reads less than a kilobyte of each run"


def test_a_record_that_has_changed_is_read_again(tmp_path: Path, opened: list[Path]) -> None:
    """It alone; and what was changed a moment ago is read each time, as the clock of the file system is coarse."""
    carry_out(tmp_path, "a", "b")
    listed(tmp_path)
    os.utime(tmp_path / "a" / "journal.db")
    opened.clear()
    listed(tmp_path)
    listed(tmp_path)
    assert {path.parent.name for path in opened} == {"a"}
    assert len(opened) == 4  # each time, who holds it and its record
    age(tmp_path / "a")
    listed(tmp_path)
    opened.clear()
    listed(tmp_path)
    assert opened == []


def test_a_run_that_goes_on_is_never_kept(tmp_path: Path) -> None:
    """Nor one that is damaged: its process may end, and the damage may be mended, without a change of the record."""
    carry_out(tmp_path, "a", asks=True)
    carry_out(tmp_path, "b")
    journal = SQLiteJournal(tmp_path)

    async def hold() -> list[RunState]:
        run_log = await journal.open("a")
        age(tmp_path / "a")
        found = [run.overview.state for run in listed(tmp_path)]
        await run_log.aclose()
        return found

    assert anyio.run(hold) == [RunState.RUNNING, RunState.ENDED]
    assert not (tmp_path / "a" / summary_cache.SUMMARY).exists()
    with (tmp_path / "b" / "journal.db").open("r+b") as file:
        file.write(b"no database at all")
    age(tmp_path / "b")
    for _ in range(2):
        assert [run.overview.state for run in listed(tmp_path)][1] is RunState.DAMAGED


def test_a_waiting_run_is_kept_until_it_is_resumed(tmp_path: Path, opened: list[Path]) -> None:
    carry_out(tmp_path, "a", asks=True)
    assert [run.overview.waits_for for run in listed(tmp_path)] == [("a",)]
    opened.clear()
    (again,) = listed(tmp_path)
    assert (opened, again.overview.state, again.overview.waits_for) == ([], RunState.WAITING, ("a",))

    async def resume() -> None:
        options: dict[str, Any] = {"tools": toolset(pay()), "journal": SQLiteJournal(tmp_path), "approver": agree}
        async with dagrun.resume("a", **options) as run:
            await run.result()

    async def agree(_: object) -> bool:
        return True

    anyio.run(resume)
    assert [run.overview.state for run in listed(tmp_path)] == [RunState.ENDED]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1-2-3",
        b"[]",
        b"{}",
        b'{"overview": 1}',
        b"\xff\xfe",
        b"[" * 10_000,
        RunOverview(run_id="other", state=RunState.ENDED, records=1).as_text(),
        RunOverview(run_id="a", state=RunState.RUNNING, records=1).as_text(),
        RunOverview(run_id="a", state=RunState.ENDED).as_text(),
        RunOverview(run_id="a", state=RunState.ENDED, records=1).as_text().replace(b'"labels": {}', b'"labels": 1'),
        RunOverview(run_id="a", state=RunState.ENDED, records=1).as_text().replace(b'"dagrun"', b'"else"'),
        RunOverview(run_id="a", state=RunState.ENDED, records=1, labels={"x": "y" * 40_000}).as_text(),
    ],
)
def test_a_text_that_is_none_of_ours_counts_for_nothing(tmp_path: Path, text: bytes) -> None:
    carry_out(tmp_path, "a")
    mark = summary_cache.mark_of(RunPaths(tmp_path / "a").state())
    path = tmp_path / "a" / summary_cache.SUMMARY
    path.write_bytes(mark + b"\n" + text)
    path.chmod(0o600)
    (run,) = listed(tmp_path)
    assert (run.overview.status, run.overview.goal, run.overview.records) == ("succeeded", "goal of a", 4)


def test_a_file_that_others_may_have_put_there_is_not_read(tmp_path: Path) -> None:
    """A link, or a file that everybody may write."""
    carry_out(tmp_path, "a")
    listed(tmp_path)
    paths = RunPaths(tmp_path / "a")
    path = paths.folder / summary_cache.SUMMARY
    assert summary_cache.read_summary(paths) is not None
    path.chmod(0o606)
    assert summary_cache.read_summary(paths) is None
    path.chmod(0o600)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert summary_cache.read_summary(paths) is None


def test_what_is_kept_is_deleted_with_its_run(tmp_path: Path) -> None:
    """Personal data does not outlive its record; and nothing is written for a run that is gone."""
    carry_out(tmp_path, "a")
    listed(tmp_path)
    paths = RunPaths(tmp_path / "a")
    state, text = paths.state(), summary_cache.read_summary(paths)
    assert text is not None
    assert oct((tmp_path / "a" / summary_cache.SUMMARY).stat().st_mode & 0o777) == "0o600"
    anyio.run(SQLiteJournal(tmp_path).delete, "a")
    summary_cache.keep_summary(paths, state, text)
    assert list(tmp_path.iterdir()) == []


def test_what_deletes_runs_reads_their_records(tmp_path: Path, opened: list[Path]) -> None:
    """A kept text may be wrong; no run is deleted because of one."""
    carry_out(tmp_path, "a")
    listed(tmp_path)
    opened.clear()
    records = open_runs(configure({"runs": str(tmp_path), "directory": None, "profile": None}))
    run_list.read_runs(records)
    assert opened


def test_a_folder_that_cannot_be_written_is_listed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out(tmp_path, "a")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(summary_cache, "replace_file", refused)
    assert [run.overview.status for run in listed(tmp_path)] == ["succeeded"]


def test_the_page_and_the_command_read_what_the_other_has_kept(tmp_path: Path, opened: list[Path]) -> None:
    """The first list of a server that has just started opens no record, if any list was made before."""

    async def page() -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = (await Client(page_of(SQLiteJournal(tmp_path))).get("/api/runs")).json()["runs"]
        return sorted(runs, key=lambda run: run["run_id"])

    carry_out(tmp_path, "a", "b")
    by_command = listed(tmp_path)
    opened.clear()
    shown = anyio.run(page)
    assert opened == []
    assert [run["counts"] for run in shown] == [{"succeeded": 1}] * 2
    assert [run["command"] for run in shown] == ["dagrun run a", "dagrun run b"]
    for name in ("a", "b"):
        (tmp_path / name / summary_cache.SUMMARY).unlink()
    assert anyio.run(page) == shown
    opened.clear()
    assert [run.overview for run in listed(tmp_path)] == [run.overview for run in by_command]
    assert opened == []
    assert json.loads((tmp_path / "a" / summary_cache.SUMMARY).read_bytes().partition(b"\n")[2])["overview"][
        "labels"
    ] == {"command": ["dagrun", "run", "a"]}
    assert reading.held_run(tmp_path, "a", 1.0).is_held is False
