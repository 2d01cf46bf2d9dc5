"""The plan of the demo, to be run as often as one likes: a real server beside it, and no file left behind."""

from __future__ import annotations

import contextlib
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TypeAlias

import dagrun
from dagrun import CheckedPlan, RunResult

RunDemo: TypeAlias = Callable[[Callable[[CheckedPlan], CheckedPlan]], RunResult]


@contextmanager
def demo() -> Iterator[RunDemo]:
    """Give a function that runs the plan once, as what it is given turns it into another.

    Each run has sources of its own, since one of them fails only the first time that it is asked.

    Raises:
        ImportError: The ready-made tools, or a library that they need, are not installed.
    """
    import dagrun_tools
    from dagrun_tools.demo.server import serving
    from dagrun_tools.demo.tools import in_constant_dollars, mortgage_rates_on_file
    from dagrun_tools.reports.drawing import prepare

    prepare()  # the library for charts loads once; no mode should pay for the others
    own = files("dagrun_tools.demo")
    toolbox = dagrun.Toolbox(dagrun_tools, in_constant_dollars, mortgage_rates_on_file)

    def run(change: Callable[[CheckedPlan], CheckedPlan]) -> RunResult:
        with serving() as server, tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            limits = tomllib.loads((own / "policy.toml").read_text("utf-8"))
            tables = limits.pop("tools")
            dagrun_tools.configure(tables | {"network": tables["network"] | {"ports": [server.server_port]}})
            policy, inputs = dagrun.Policy.model_validate(limits), {"server": server.url}
            plan = dagrun.check((own / "plan.json").read_text("utf-8"), toolbox, policy=policy, inputs=inputs)
            return dagrun.run_sync(change(plan), inputs=inputs, seed=0).raise_for_status()

    yield run
