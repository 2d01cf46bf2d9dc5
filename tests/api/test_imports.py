"""What an import costs: a library that is imported for one function must not bring half a second along."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

import dagrun


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
def test_importing_dagrun_loads_nothing_heavy(code: str) -> None:
    """Declaring tools and plans must stay cheap for programs that run none."""
    heavy = {"networkx", "openai", "rich", "matplotlib", "httpx", "httpx2", "click", "yaml", "trio"}
    assert not heavy & _modules_after(code)


def test_importing_dagrun_costs_at_most_twice_its_two_foundations() -> None:
    """A ratio of CPU measured in one go, so that it holds on any machine."""
    assert _cpu_seconds("import dagrun") <= 2 * _cpu_seconds("import anyio, pydantic")


def test_every_public_name_can_be_had() -> None:
    """The table of lazy names is checked by nothing else."""
    for name in dagrun.__all__:
        assert getattr(dagrun, name) is not None
    assert set(dagrun.__all__) <= set(dir(dagrun))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dagrun.nothing  # noqa: B018


@pytest.mark.parametrize(("old", "new"), dagrun._RENAMED.items())
def test_a_name_that_was_given_up_says_the_new_one(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"dagrun\.{old} is now called dagrun\.{new};"):
        assert getattr(dagrun, old) is getattr(dagrun, new)
    assert old not in dagrun.__all__
    assert old not in dir(dagrun)
