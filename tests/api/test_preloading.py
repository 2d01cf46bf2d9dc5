"""Nothing is imported on the loop of a host while its runs go on: an import holds up all other requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from folders import ROOT

RUNS = ROOT / "tests" / "helpers" / "runs" / "imports_of_runs.py"
# What `import dagrun` and the declaration of a tool do not load is counted, by the thread that looks for it.
FIRST_RUN = """
import asyncio, sys, threading
import dagrun

@dagrun.tool(effect="pure")
async def look() -> int:
    return 1

class Finder:
    names = []
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            self.names.append(name)

PLAN = dagrun.plan(output=look.step())
{before}
sys.meta_path.insert(0, Finder())

async def main():
    await dagrun.run(PLAN)

{how}
print(*[name for name in Finder.names if name in sys.modules], "|", "networkx" in sys.modules)
"""


def _loaded(how: str = "asyncio.run(main())", before: str = "") -> tuple[set[str], bool]:
    """The modules that the main thread has loaded in its first run, and whether networkx is there after it."""
    code = FIRST_RUN.format(how=how, before=before)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    names, _, has_networkx = done.stdout.partition("|")
    return set(names.split()), has_networkx.strip() == "True"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.costly
def test_an_open_engine_imports_nothing_on_its_loop(backend: str, tmp_path: Path) -> None:
    """Whatever a run does: patches, lists, streams, people, journals, failures, second calls, boundaries."""
    command = [sys.executable, str(RUNS), backend]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)

    assert done.stdout.splitlines() == []
    assert "SQLite" in done.stderr  # the last of them


@pytest.mark.costly
def test_the_first_run_of_a_process_loads_what_it_needs_beside_the_loop() -> None:
    """Only the functions that wait for it are loaded on the loop."""
    names, has_networkx = _loaded()

    assert {name for name in names if name.startswith(("dagrun", "networkx", "pydantic", "anyio"))} <= {
        *("dagrun.api", "dagrun.api.running", "dagrun.api.options", "dagrun.api.preloading"),
        *("dagrun.kernel.runtime", "dagrun.kernel.runtime.run_options"),
    }
    assert has_networkx


@pytest.mark.costly
def test_a_service_may_load_all_of_it_before_its_loop_runs() -> None:
    names, has_networkx = _loaded(before="dagrun.preload()\ndagrun.preload()")

    assert not {name for name in names if name.startswith(("dagrun", "networkx", "pydantic", "anyio"))}
    assert has_networkx


@pytest.mark.parametrize("how", ["dagrun.run_sync(PLAN)", "from dagrun.testing import run_virtual; run_virtual(main)"])
@pytest.mark.costly
def test_a_loop_of_its_own_and_a_virtual_clock_load_only_what_they_use(how: str) -> None:
    """Nobody else waits for such a loop; and a clock that jumps would jump over time limits while a thread works."""
    _, has_networkx = _loaded(how=how)

    assert not has_networkx
