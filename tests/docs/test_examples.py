"""The programs of docs/examples run as they stand, without a network, and print what their last lines say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from folders import ROOT

FOLDER: Final = ROOT / "docs" / "examples"
# A file without a main program is a service, which a test of its own starts.
PROGRAMS: Final = [path for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]
MOST_LINES: Final = 80


@pytest.mark.real_time
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.costly
def test_an_example_prints_what_it_says(program: Path, tmp_path: Path) -> None:
    """A reader compares; so does this test."""
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall("^# prints: (.*)$", program.read_text(encoding="utf-8"), re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_fits_on_a_page(program: Path) -> None:
    assert len(program.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_every_example_is_on_the_page_of_examples() -> None:
    index = (FOLDER / "index.md").read_text(encoding="utf-8")

    assert len(PROGRAMS) >= 8
    assert {path.name for path in FOLDER.glob("*.py")} == set(re.findall(r"\((\w+\.py)\)", index))
