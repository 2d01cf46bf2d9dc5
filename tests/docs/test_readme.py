"""The path of a newcomer through the README: its files, saved under the names that it gives, and its commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from dagrun.cli.main import main
from folders import ROOT

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")


def _block(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return str(block)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the two files of the README."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.py").write_text(_block("python"), encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(_block("yaml"), encoding="utf-8")
    return tmp_path


def test_the_first_example_has_ten_lines() -> None:
    assert len([line for line in _block("python").splitlines() if line.strip()]) == 10


@pytest.mark.real_time
def test_the_commands_of_the_readme_work_on_its_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Importing the tools must not run the plan of the file that they stand in."""
    commands = re.findall(r"^\$ dagrun ((?:check|run|new) [^#\n]*?) *(?:#.*)?$", README, re.MULTILINE)
    answers = {}

    for command in commands:
        assert main(command.split()) == 0, command
        answers[command.split()[0]] = capsys.readouterr()

    assert answers["run"].out == "Lima\n"
    assert "━" in answers["run"].err
    assert answers["check"].out.startswith("plan.yaml: 3 steps")
    assert (folder / "my_project" / "plan.yaml").is_file()


def test_ci_calls_the_commands_of_the_readme() -> None:
    """What newcomers are told to type is what CI has tried."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert re.findall(r"^\$ (make \w+)", README, re.MULTILINE) == ["make demo", "make test"]
    assert "\nmake test\n" in script
    assert '"$dagrun" demo' in script


def test_the_readme_is_a_page() -> None:
    assert len(README.splitlines()) <= 170
