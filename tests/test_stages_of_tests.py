"""No test runs nowhere, and each function runs for every change: the rules by which conftest.py sorts the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from stages_of_tests import SHARE, choose_stages, only_at_night

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
COPIES = 400


async def plain() -> None:
    """A test that runs on whatever backend it is given."""


async def asks(anyio_backend_name: str) -> None:
    """A test that ends otherwise on another backend."""


@dataclass
class Case:
    """What is known about a test that was collected."""

    nodeid: str
    marks: set[str] = field(default_factory=set)
    function: Callable[..., Any] = plain
    fixturenames: Sequence[str] = ()

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, name: str) -> None:
        self.marks.add(name)

    @property
    def stages(self) -> set[str]:
        return self.marks & {"rigs", "night"}


def _sort(*cases: Case) -> None:
    choose_stages(cast("list[pytest.Item]", cases))


def _only_at_night(*cases: Case) -> list[str]:
    return only_at_night(cast("list[pytest.Item]", cases))


def _expressions() -> dict[str, str]:
    """What each target selects, as its command line says it, or pyproject.toml for all that say nothing."""
    usual = re.search(r'"-m", "(.*?)"\]', (ROOT / "pyproject.toml").read_text())
    assert usual is not None
    found = {"test": usual[1]}
    for target in ("rigs", "night"):
        recipe = re.search(rf"^{target}:.*\n\t.*?-m (\"[^\"]*\"|\w+)", MAKEFILE, re.MULTILINE)
        assert recipe is not None
        found[target] = recipe[1].strip('"')
    return found


def _selects(expression: str, marks: set[str]) -> bool:
    return not expression or bool(eval(expression, {}, {name: name in marks for name in ("rigs", "night")}))


@pytest.mark.parametrize("chosen", [*product([False, True], repeat=2)])
def test_the_night_runs_all_and_the_day_what_is_not_for_the_night(chosen: tuple[bool, bool]) -> None:
    marks = {name for name, is_chosen in zip(("rigs", "night"), chosen, strict=True) if is_chosen}
    found = _expressions()

    assert _selects(found["night"], marks)
    assert _selects(found["test"], marks) == (not marks)
    assert _selects(found["rigs"], marks) == (marks == {"rigs"})


def test_a_change_passes_through_the_tests_and_the_rigs() -> None:
    script = (ROOT / ".ci/run").read_text()

    assert "\nmake test\n" in script
    assert "\nmake rigs\n" in script


def test_a_copy_on_trio_waits_for_the_night_and_a_tenth_of_them_for_the_rigs() -> None:
    first = [Case(f"tests/a.py::test[asyncio-{n}]") for n in range(COPIES)]
    copies = [Case(f"tests/a.py::test[trio-{n}]") for n in range(COPIES)]

    _sort(*first, *copies)

    assert not any(case.stages for case in first)
    assert all(len(case.stages) == 1 for case in copies)
    assert COPIES // SHARE // 2 < sum(case.stages == {"rigs"} for case in copies) < COPIES // SHARE * 2


def test_the_tenth_is_the_same_each_time() -> None:
    chosen = []
    for _ in range(2):
        copies = [Case(f"tests/a.py::test[trio-{n}]") for n in range(COPIES)]
        _sort(*(Case(f"tests/a.py::test[asyncio-{n}]") for n in range(COPIES)), *copies)
        chosen.append([case.stages for case in copies])

    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    "case", [Case("a.py::test[trio-1]", {"both_backends"}), Case("a.py::test[trio-1]", function=asks)]
)
def test_what_may_end_otherwise_on_trio_stays(case: Case) -> None:
    _sort(Case("a.py::test[asyncio-1]"), case)

    assert not case.stages


@pytest.mark.parametrize(
    "name", ["a.py::test[trio]", "a.py::test[trio-asyncio-2]", "a.py::test[patrio-1]", "a.py::test"]
)
def test_what_is_no_copy_stays(name: str) -> None:
    """A test that runs on trio alone is nobody's copy."""
    case = Case(name)

    _sort(Case("a.py::test[asyncio-1]"), Case("a.py::test_other[asyncio]"), case)

    assert not case.stages


@pytest.mark.parametrize("case", [Case("a.py::test", {"costly"}), Case("a.py::test", fixturenames=["postgres"])])
def test_what_starts_something_is_a_rig(case: Case) -> None:
    _sort(case)

    assert case.stages == {"rigs"}


@pytest.mark.parametrize("marks", [{"costly"}, {"costly", "both_backends"}])
def test_a_costly_copy_is_never_in_make_test(marks: set[str]) -> None:
    case = Case("a.py::test[trio]", set(marks))

    _sort(Case("a.py::test[asyncio]", {"costly"}), case)

    assert case.stages
    assert marks == {"costly"} or case.stages == {"rigs"}


def test_the_second_python_runs_one_case_of_each_function_and_of_each_file_that_starts_something() -> None:
    cases = [
        Case("a.py::test[0]", {"rigs"}),
        Case("a.py::test[1]", {"night"}),
        Case("a.py::test[2]"),
        Case("a.py::test[3]"),
        Case("a.py::test_other"),
        Case("a.py::test_long", {"rigs"}),
        Case("a.py::test_process[asyncio]", {"costly"}),
        Case("a.py::test_process[trio]", {"costly"}),
        Case("a.py::test_database", fixturenames=["postgres"]),
        Case("b.py::test_process", {"costly"}),
    ]

    _sort(*cases)

    assert [case.nodeid for case in cases if "smoke" in case.marks] == [
        "a.py::test[2]",
        "a.py::test_other",
        "a.py::test_process[asyncio]",
        "b.py::test_process",
    ]


def test_a_function_that_runs_at_night_only_is_named() -> None:
    """conftest.py refuses to begin then."""
    night, rigs = {"night"}, {"rigs"}

    assert _only_at_night(Case("a.py::test[1]", night), Case("a.py::test[2]", night)) == ["a.py::test"]
    assert _only_at_night(Case("a.py::test[1]", night), Case("a.py::test[2]", rigs), Case("a.py::other")) == []


STARTING = """
import subprocess
import sys

import pytest


def test_of_everyday_work():
    subprocess.run([sys.executable, "-c", ""], check=True)


@pytest.mark.costly
def test_of_the_rigs():
    subprocess.run([sys.executable, "-c", ""], check=True)
"""


@pytest.mark.costly
def test_what_starts_python_without_its_mark_fails(tmp_path: Path) -> None:
    """Or everyday tests would become slow again, one after the other."""
    (tmp_path / "test_starting.py").write_text(STARTING)
    ours = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *ours, "-m", "", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
    )

    assert "Python was started, which costs as much as fifty other tests: mark it costly" in done.stdout
    assert re.search(r"^ERROR .*::test_of_everyday_work", done.stdout, re.MULTILINE)
    assert "2 passed, 1 error" in done.stdout
