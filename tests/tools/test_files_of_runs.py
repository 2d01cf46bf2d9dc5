"""File tools never enter the folders of records: who could write there could answer for a person."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import dagrun
from dagrun import Plan, SQLiteJournal, Status, Step, is_private_folder
from dagrun_tools.files import confined_files, file_tools
from dagrun_tools.files.confined_files import OutsideRoot
from dagrun_tools.files.data_files import read_bytes, write_bytes
from dagrun_tools.files.file_tools import FileRules, read_file, write_file
from dagrun_tools.tables.load_csv import load_csv

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.skipif(sys.platform == "win32", reason="no dir_fd")]

RUN: Final = "r1"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder that tools may use."""
    token = file_tools.rules.set(FileRules(root=tmp_path))
    yield tmp_path
    file_tools.rules.reset(token)


async def _with_a_run(folder: Path) -> SQLiteJournal:
    journal = SQLiteJournal(folder)
    await (await journal.create(RUN)).aclose()
    return journal


@pytest.mark.parametrize(
    "path",
    [
        f"runs/{RUN}/inbox/00000000000000000001-0123456789abcdef.json",
        f"runs/{RUN}/inbox/deeper/x",
        f"runs/{RUN}/answer_key",
        f"runs/{RUN}/journal.db",
        f"runs/{RUN}/artifacts/x",
        "runs/a-forged-run/journal.db",
        "runs/.durations.json",
        "runs/x",
    ],
)
async def test_no_path_leads_into_the_runs(root: Path, path: str) -> None:
    """Neither to read nor to write, and no folder is made on the way."""
    journal = await _with_a_run(root / "runs")
    before = sorted(str(file) for file in root.rglob("*"))
    with pytest.raises(OutsideRoot, match="records of runs"):
        confined_files.write(root, path, b"x", overwrite=True)
    with pytest.raises(OutsideRoot, match="records of runs"):
        confined_files.read(root, path, 1000)
    with pytest.raises(OutsideRoot, match="records of runs"):
        write_bytes(path, b"x")
    with pytest.raises(OutsideRoot, match="records of runs"):
        read_bytes(path, 1000)
    assert sorted(str(file) for file in root.rglob("*")) == before
    await journal.aclose()


@pytest.mark.parametrize("below", [".", RUN, f"{RUN}/inbox", f"{RUN}/artifacts"])
@pytest.mark.parametrize("through_a_link", [False, True])
async def test_a_folder_for_tools_that_lies_in_the_runs_is_refused(
    tmp_path: Path, below: str, through_a_link: bool
) -> None:
    journal = await _with_a_run(tmp_path / "runs")
    place = tmp_path / "runs" / below
    if through_a_link:
        (tmp_path / "link").symlink_to(place)
        place = tmp_path / "link"
    with pytest.raises(OutsideRoot, match="records of runs"):
        confined_files.write(place, "x.json", b"x", overwrite=False)
    await journal.aclose()


async def test_the_folder_of_a_run_of_another_program_is_refused(root: Path) -> None:
    """Also in a worker process, where no journal is open."""
    await _with_a_run(root / "runs")
    gc.collect()
    assert not is_private_folder(root)
    for path in (f"runs/{RUN}/inbox/x", f"runs/{RUN}/answer_key"):
        with pytest.raises(OutsideRoot, match="records of runs"):
            confined_files.write(root, path, b"x", overwrite=True)


async def test_a_folder_that_is_made_or_renamed_later_is_private(root: Path) -> None:
    journal = SQLiteJournal(root / "later")
    assert not is_private_folder(root)
    (root / "later").mkdir()
    assert is_private_folder(root / "later")
    (root / "later" / "more").mkdir()
    assert is_private_folder(root / "later" / "more")
    await journal.aclose()


async def test_other_files_are_used_as_before(root: Path) -> None:
    journal = await _with_a_run(root / "runs")
    assert confined_files.write(root, "reports/a/b.txt", b"text", overwrite=False)
    assert confined_files.read(root, "reports/a/b.txt", 100) == b"text"
    os.symlink(root / "runs", root / "link")
    with pytest.raises(OutsideRoot):
        confined_files.read(root, f"link/{RUN}/answer_key", 100)
    await journal.aclose()


TOOLS: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "read_file": (read_file, {"path": f"runs/{RUN}/answer_key"}),
    "write_file": (write_file, {"path": f"runs/{RUN}/inbox/x.json", "content": "{}"}),
    "load_csv": (load_csv, {"filePath": f"runs/{RUN}/answer_key"}),
}


@pytest.mark.parametrize("name", TOOLS)
async def test_each_tool_that_takes_a_path_is_refused_in_its_own_run(root: Path, name: str) -> None:
    """As a plan would call it, in the run whose folder it is after."""
    tool, args = TOOLS[name]
    journal = SQLiteJournal(root / "runs")
    result = await dagrun.run(
        Plan(steps=(Step(id="reach", tool=name, args=args),)), tools=[tool], journal=journal, run_id=RUN
    )
    assert result.status is not Status.SUCCEEDED
    assert "records of runs" in str(result.steps["reach"])
    await journal.aclose()
