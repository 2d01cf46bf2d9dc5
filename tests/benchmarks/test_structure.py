"""The script that counts the structure of a checkout, on a package made up for it: every figure is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import structure

INIT = '''
"""A package that can do as much as the script asks of it."""

from contextlib import asynccontextmanager
from dagrun.plans.plan import Add, Patch, Plan, Step
from dagrun.run import Run


def tool(effect):
    return lambda function: function


class MemoryJournal: ...


@asynccontextmanager
async def start(plan, tools, journal=None, run_id=None):
    yield Run(plan)


@asynccontextmanager
async def resume(run_id, tools, journal):
    await tools[0]()
    yield Run(None)
'''

PLAN = '''
class Kept:
    """Keeps what it is given."""

    def __init__(self, **fields):
        self.fields = fields


class Plan(Kept): ...
class Step(Kept): ...
class Patch(Kept): ...
class Add(Kept): ...
'''

RUN = '''
"""Two lines of docstring,
which are no code."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagrun import ending

# A comment is no code, either.
TEXT = """
three lines
"""


class Run:
    def __init__(self, plan):
        self.plan = plan

    async def result(self):
        from dagrun.ending import end

        return end([number for number in range(3)])

    async def splice(self, patch):
        self.plan = patch

    def suspend(self, reason):
        self.plan = None
'''

MAIN = """
import sys

import anyio

from dagrun.run import Run


def main(args):
    anyio.run(sys.modules[args[-1]].count)
    return int(Run(None).plan is not None)
"""

ENDING = """
from dataclasses import dataclass, field

import dagrun.run


class Step:
    def __init__(self, a, b, c, d, e, f, g, h, *, i): ...


class Short:
    def __init__(self, a, b, c, d, e, f, g, *, h): ...


@dataclass(frozen=True)
class Wide:
    a: int
    b: int
    c: int
    d: int
    e: int
    f: int
    g: int
    h: int
    i: int
    made: int = field(init=False)


def end(numbers):
    return numbers
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout of a package that is called like ours."""
    files = {"__init__": INIT, "run": RUN, "ending": ENDING, "plans/__init__": "", "plans/plan": PLAN}
    files |= {"cli/__init__": "", "cli/main": MAIN}
    for name, text in files.items():
        path = tmp_path / f"dagrun/{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.lstrip())
    (tmp_path / "dagrun/long.py").write_text("\n" * 60)
    return tmp_path


@pytest.mark.costly
def test_every_figure_is_counted(root: Path) -> None:
    """Each definition of the script stands in one of the files above."""
    figures = {one.name: one for one in structure.figures_of(root)}

    assert {name: one.value for name, one in figures.items()} == {
        "source files": 5,
        "most files in a folder": 3,
        "files under 60 lines": 4,
        "import circles": 1,
        "code lines": 13 + 7 + 16 + 20 + 6,
        "code lines of top files": 13 + 16 + 20,
        "code lines of cli": 6,
        "code lines of plans": 7,
        "class names used twice or more": 1,
        "constructors of more than 8 parameters": 1,
        "dataclasses of more than 8 fields": 1,
        "files of a run of three steps": 3,
        "functions of a run of three steps": 4,
        "files of a splice": 1,
        "functions of a splice": 1,
        "files of the command run, to the first call": 1,
        "files of the command run": 2,
        "files of a resumed run, to the first call": 1,
    }
    assert figures["most files in a folder"].names == ("dagrun (3)", "dagrun/cli (1)", "dagrun/plans (1)")
    assert figures["import circles"].names == ("2 modules: dagrun.ending, dagrun.run",)
    assert figures["class names used twice or more"].names == ("Step: dagrun/ending.py, dagrun/plans/plan.py",)
    assert figures["constructors of more than 8 parameters"].names == ("Step (9)",)
    assert figures["dataclasses of more than 8 fields"].names == ("Wide (9)",)


@pytest.mark.costly
def test_a_missed_target_is_named_and_can_end_the_check(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--check`` the table is for reading alone."""
    out = root / "structure.json"
    (root / "dagrun/cellar").mkdir()
    (root / "dagrun/cellar/wine.py").write_text("bottles = 1\n" * 60)

    assert structure.main(["--root", str(root), "--json", str(out)]) == 0
    assert structure.main(["--root", str(root), "--check"]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("import circles") and "MISSED  2 modules" in line for line in lines)
    missed = {line.split()[3] for line in lines if line.startswith("code lines of") and "MISSED" in line}
    assert missed == {"cellar"}  # a room without a ceiling
    assert {one["name"]: one["value"] for one in json.loads(out.read_text())}["source files"] == 6


def test_a_face_that_shows_names_lazily_closes_no_circle(root: Path) -> None:
    """What it shows type checkers is imported when it is used; its other imports count."""
    face = (
        "from typing import TYPE_CHECKING\nfrom dagrun._lazy import lazy_names\nimport dagrun.run\n"
        "if TYPE_CHECKING:\n    from dagrun import step\nelse:\n    __getattr__ = lazy_names(__name__, {})\n"
    )
    (root / "dagrun/ending.py").write_text(face)
    (root / "dagrun/step.py").write_text("")

    assert structure.imports_of(structure.Sources(root))["dagrun.ending"] == {"dagrun.run"}


def test_circles_are_found_apart() -> None:
    """A module that only leads to a circle is none of it."""
    imports = {"a": {"b"}, "b": {"a"}, "c": {"a", "d"}, "d": {"e"}, "e": {"c"}, "f": {"a"}}

    assert structure.circles_of(imports) == [["a", "b"], ["c", "d", "e"]]
