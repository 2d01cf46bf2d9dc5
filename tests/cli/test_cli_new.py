"""A new project works at once: its plan runs, and its own tests pass."""

import subprocess
import sys
from pathlib import Path

import pytest

from command_line import Shell, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time


@pytest.mark.costly
def test_a_new_project_runs_and_passes_its_own_tests(shell: Shell) -> None:
    made = shell("new", "shop-prices")

    assert made.code == 0
    assert "shop-prices/plan.yaml" in made.out.splitlines()
    folder = Path("shop-prices").absolute()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "4 passed" in tests.stdout, tests.stdout
    assert shell("check", "plan.yaml", "-C", str(folder), "-i", "item=tea").code == 0
    ran = shell("run", "plan.yaml", "-C", str(folder), "-i", "item=tea", "--run-id", "one")
    assert ran.code == 5  # a person has to agree
    assert "May step order call order?" in ran.err
    assert shell("answer", "one", "order", "--yes", "-C", str(folder)).code == 0
    assert shell("resume", "one", "-C", str(folder)).out.strip() == "tea from south for 3.90"


def test_what_is_there_is_left_alone(shell: Shell) -> None:
    Path("shop").mkdir()
    shell.file("shop/notes.txt", "mine")

    made = shell("new", "shop")

    assert made.code == 2
    assert "shop is not empty" in made.err
    assert [path.name for path in Path("shop").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["9x", "a b", "..", "a.b"])
def test_a_name_that_cannot_be_is_refused(shell: Shell, name: str) -> None:
    made = shell("new", name)

    assert made.code == 2
    assert "begins with a letter" in made.err
