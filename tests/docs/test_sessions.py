"""A tutorial is a session: its files are written, its commands carried out; they print and end as the page says.

A file is a block after a sentence that names it in backquotes: "Put this in `shop.py`" or "This is `x.yaml` now". In a
block of the console, ``…`` stands for any lines; names of runs, times and durations differ from day to day.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from folders import ROOT

BLOCK: Final = re.compile(r"```(?P<kind>\w+)\n(?P<text>.*?)```\n", re.DOTALL)
NAMED: Final = re.compile(r"(?:[Pp]ut this in|[Aa]nd this in|This is) `([^`]+)`")
ANY: Final = "…"
VARYING: Final = (
    (re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}"), "RUN"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"), "DAY"),
    (re.compile(r"\d+\.\d+ ?s\b"), "N s"),
)


def steps_of(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the files and the commands of a page: a name, or "$", and the text."""
    text, at = page.read_text(encoding="utf-8"), 0
    for match in BLOCK.finditer(text):
        names = NAMED.findall(text[at : match.start()])
        at = match.end()
        if match["kind"] == "console":
            yield "$", match["text"]
        elif names:
            yield names[-1], match["text"]


def sessions_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a block with the lines that it should print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed.splitlines()


def plain(line: str) -> str:
    """Return a line without what differs from day to day."""
    for pattern, word in VARYING:
        line = pattern.sub(word, line)
    return line.rstrip()


def fits(printed: list[str], wanted: list[str]) -> bool:
    """Whether lines are as wanted, with any number of them in place of each ``…``."""
    pattern = "".join(r"(?:[^\n]*\n)*" if line == ANY else re.escape(line) + r"\n" for line in wanted)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def code_of(wanted: list[str]) -> int:
    """Return the exit code of a command that prints such lines: whatever says that it failed has failed."""
    return int(any(line.startswith("failed: ") or line.strip() == "FAILED" for line in wanted))


def carry_out(command: str, folder: Path) -> tuple[list[str], int]:
    """Carry out a command in a folder, and return what it prints, and its exit code."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tools")])
    home = {"HOME": str(folder / "home"), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": paths}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DAGRUN", "PYTEST"))}
    words = command.split()
    if words[0] == "dagrun":
        words = [sys.executable, "-m", *words]
    elif words[0] == "python":
        words[0] = sys.executable
    (folder / "work").mkdir(exist_ok=True)
    done = subprocess.run(
        words, cwd=folder / "work", env=environment | home, text=True, capture_output=True, timeout=60, check=False
    )
    return [plain(line) for line in [*done.stdout.splitlines(), *done.stderr.splitlines()]], done.returncode


def difference(page: Path, folder: Path) -> str:
    """Carry out a page in a folder, and return where it prints something else than it says; empty if nowhere."""
    for kind, text in steps_of(page):
        if kind != "$":
            file = folder / "work" / kind
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            continue
        for command, wanted in sessions_of(text):
            printed, code = carry_out(command, folder)
            if not fits(printed, [plain(line) for line in wanted]):
                return f"{command}:\n" + "\n".join(printed)
            if code != code_of(wanted):
                return f"{command} ended with {code}"
    return ""


@pytest.mark.rigs
@pytest.mark.real_time
@pytest.mark.parametrize("name", ["incident.md"])
def test_a_session_prints_what_its_page_says(name: str, tmp_path: Path) -> None:
    """A page that is wrong is wrong each time; on a busy machine, a call may take the millisecond that a case notes."""
    found = ""
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = difference(ROOT / "docs" / "tutorials" / name, folder)
        if not found:
            return
    raise AssertionError(found)
