"""The five jobs: dagrun's programs print what they should, counts are right, and the page shows what was measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import command
from jobs import compare_jobs
from jobs.compare_jobs import JOBS, PAGE, SYSTEMS, System, WrongAnswer

OURS = [system for system in SYSTEMS if not system.peer]

PROGRAM = '''
"""A program
of a made-up library."""

import asyncio
from made_up import driver, retry as again
import made_up


class Planner:
    async def revise(self):  # made_up calls it
        return made_up.Patch(edits=[])


async def main():
    print(driver.build().text.strip(), asyncio.build(), made_up._hidden)
'''


@pytest.mark.costly
@pytest.mark.real_time
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("system", OURS, ids=lambda system: system.program)
def test_programs_of_dagrun_do_their_job(job: str, system: System) -> None:
    """Each prints the answer, and takes CPU time."""
    assert compare_jobs.run(job, system, Path(sys.executable)) > 0


@pytest.mark.costly
@pytest.mark.real_time
def test_wrong_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that prints something else is not compared."""
    monkeypatch.setattr(compare_jobs, "JOBS", {"join": ("fetch", "Oslo")})

    with pytest.raises(WrongAnswer, match="join with dagrun, plans in Python printed 'Cairo"):
        compare_jobs.run("join", OURS[0], Path(sys.executable))


def test_lines_are_code_without_imports() -> None:
    """Docstrings, comments, blank lines and imports do not count."""
    assert compare_jobs.lines_of(PROGRAM) == 5


def test_concepts_are_names_of_the_library() -> None:
    """Imported names, attributes of the module and its objects, and methods that it calls; nothing of other modules."""
    members = frozenset({"build", "text", "revise", "strip"})

    assert compare_jobs.concepts_of(PROGRAM, "made_up", members) == [
        "Patch",
        "build",
        "driver",
        "retry",
        "revise",
        "text",
    ]


def test_page_shows_what_was_measured() -> None:
    """The table of the page is that of the recorded results, for all jobs and systems."""
    results = json.loads((command.RESULTS / "jobs.json").read_text())
    page = PAGE.read_text(encoding="utf-8")

    assert compare_jobs.page_with(page, compare_jobs.table_of(results)) == page
    expected = {(job, s.name) for job in JOBS for s in SYSTEMS if compare_jobs.path_of(job, s).exists()}
    assert {(row["job"], row["system"]) for row in results["jobs"]} == expected


def test_recorded_counts_are_those_of_the_programs() -> None:
    """A program that was changed is measured again."""
    results = json.loads((command.RESULTS / "jobs.json").read_text())
    recorded = {(row["job"], row["system"]): row["lines"] for row in results["jobs"]}

    for system in SYSTEMS:
        for job in JOBS:
            path = compare_jobs.path_of(job, system)
            if path.exists():
                assert recorded[job, system.name] == compare_jobs.lines_of(path.read_text(encoding="utf-8"))
