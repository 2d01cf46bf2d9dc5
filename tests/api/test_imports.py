"""What an import costs: a library that is imported for one function must not bring half a second along."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from operator import attrgetter
from types import ModuleType

import pytest

import dagrun
import dagrun.testing
from folders import ROOT


def _modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def _cpu_seconds(code: str) -> float:
    """CPU of a fresh interpreter that runs *code*; the best of five, as noise only adds."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


@pytest.mark.parametrize(
    "code",
    ["import dagrun", "import dagrun; dagrun.Plan, dagrun.Step, dagrun.tool, dagrun.Policy, dagrun.ToolError"],
)
@pytest.mark.costly
def test_importing_dagrun_loads_nothing_heavy(code: str) -> None:
    """Declaring tools and plans must stay cheap for programs that run none."""
    heavy = {"networkx", "openai", "rich", "matplotlib", "httpx", "httpx2", "click", "yaml", "trio"}
    assert not heavy & _modules_after(code)


@pytest.mark.costly
def test_importing_dagrun_costs_at_most_twice_its_two_foundations() -> None:
    """A ratio of CPU measured in one go, so that it holds on any machine."""
    assert _cpu_seconds("import dagrun") <= 2 * _cpu_seconds("import anyio, pydantic")


TIERS = (
    dagrun,
    dagrun.errors,
    dagrun.events,
    dagrun.extend,
    dagrun.network,
    dagrun.records,
    dagrun.testing,
    dagrun.texts,
)


@pytest.mark.parametrize("tier", TIERS)
def test_every_public_name_can_be_had(tier: ModuleType) -> None:
    """The tables of lazy names are checked by nothing else."""
    for name in tier.__all__:
        assert getattr(tier, name) is not None
    assert set(tier.__all__) <= set(dir(tier))


def test_the_public_names_stay_few() -> None:
    """A new name replaces one, or joins the tier of those who need it: what all programs see is read by all."""
    assert len(dagrun.__all__) <= 150
    assert max(len(tier.__all__) for tier in (dagrun.extend, dagrun.records, dagrun.texts)) <= 60


def test_a_name_of_two_tiers_is_one_object() -> None:
    for tier in (dagrun.errors, dagrun.events, dagrun.extend):
        for name in set(tier.__all__) & set(dagrun.__all__):
            assert getattr(tier, name) is getattr(dagrun, name)


def test_the_tiers_are_complete() -> None:
    assert {kind.__name__ for kind in dagrun.events.event_types.values()} < set(dagrun.events.__all__)
    assert {
        name
        for name, kind in vars(dagrun.errors).items()
        if isinstance(kind, type) and issubclass(kind, dagrun.DagrunError)
    } < set(dagrun.errors.__all__)


PUBLIC = {tier.__name__: {*tier.__all__} for tier in TIERS}


@pytest.mark.parametrize("room", ["evaluate", "testing"])
def test_what_judges_and_tests_runs_uses_public_names_alone(room: str) -> None:
    """import-linter looks at modules, and mypy takes any name of a module that has lazy ones."""
    taken = [
        (node.module, name.name)
        for path in (ROOT / "dagrun" / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module in PUBLIC
        for name in node.names
    ]

    assert taken
    assert [(module, name) for module, name in taken if name not in PUBLIC[module]] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(dagrun, "nothing")  # noqa: B009 - type checkers know that there is none


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        ("dagrun", "Polcy", "Policy"),
        ("dagrun.errors", "OverCeilng", "OverCeiling"),
        ("dagrun.events", "RunEndd", "RunEnded"),
        ("dagrun.extend", "LanguageModl", "LanguageModel"),
        ("dagrun.testing", "run_virtul", "run_virtual"),
    ],
)
def test_a_misspelt_name_says_which_was_meant(module: str, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; did you mean {meant}\?"):
        getattr(sys.modules[module], name)
    with pytest.raises(ImportError, match=rf"cannot import name '{name}' from '{module}'"):  # Python drops the rest
        exec(f"from {module} import {name}")


@pytest.mark.parametrize(("old", "new"), dagrun._RENAMED.items())
def test_a_name_that_was_given_up_says_the_new_one(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"dagrun\.{old} is now dagrun\.{new};"):
        assert getattr(dagrun, old) is attrgetter(new)(dagrun)
    assert old not in dagrun.__all__
    assert old not in dir(dagrun)
