"""The executor of Ray on two nodes, on 127.0.0.1: the short form of ``make ray``. Skipped where Ray is not installed.

The nodes live in a process of their own. `test_ray_executor.py` has what does not need Ray itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from folders import ROOT
from on_ray.measure import MUSTS

pytestmark = [
    pytest.mark.rigs(seconds=90),
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (363 MB): make ray"),
]


def _python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "benchmarks")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_must_is_kept_on_a_cluster(tmp_path: Path) -> None:
    """Costs, cancellations, workers that die, a node that is gone: a small number of each."""
    _python("on_ray.measure", "--quick", "--out", str(tmp_path))

    facts: dict[str, Any] = json.loads((tmp_path / "ray.json").read_text())
    assert [text for text in MUSTS if not facts["musts"][text]] == [], facts["ray"]


def test_a_failed_step_is_spliced_while_its_sibling_runs_on_the_other_node() -> None:
    lines = _python("on_ray.demo").splitlines()

    def place(text: str) -> str:
        return next(line for line in lines if text in line).split("(on ")[-1].split(", process")[0]

    [failed] = [number for number, line in enumerate(lines) if "orders has failed" in line]
    [spliced] = [number for number, line in enumerate(lines) if "spliced into the running plan" in line]
    [repaired] = [number for number, line in enumerate(lines) if "orders-new has succeeded" in line]
    [computed] = [number for number, line in enumerate(lines) if "model has succeeded" in line]
    assert failed < spliced < repaired < computed
    assert place("orders has failed") != place("model: part 1")
    assert any("model: part" in line for line in lines[failed:spliced])
    assert lines[-1] == "succeeded: 106.5"
