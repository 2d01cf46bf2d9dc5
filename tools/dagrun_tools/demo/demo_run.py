"""One run of a plan of the demo, with its sources, its policy, and a folder for its files."""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagrun_tools
from dagrun import Planner, Policy, RunResult, Toolbox, check
from dagrun.cli.jobs.execute import Executed, execute
from dagrun.cli.jobs.job import Job, Reporting
from dagrun.cli.records.output_files import RunFolder, run_folder
from dagrun.cli.setup.plans import scheduled
from dagrun.cli.setup.setting_fields import Mode
from dagrun.cli.terminal.display import StepLines
from dagrun.cli.terminal.text import is_drawable
from dagrun_tools.demo.server import serving
from dagrun_tools.demo.tools import in_constant_dollars, mortgage_rates_on_file


def toolbox() -> Toolbox:
    """Return the tools of the package, and the two of the demo."""
    return Toolbox(dagrun_tools, in_constant_dollars, mortgage_rates_on_file)


def packaged(name: str) -> str:
    """Read a text file of this package."""
    return (files(__package__) / name).read_text("utf-8")


def policy_of(port: int) -> Policy:
    """Return the policy of the run, and configure the tools: they may connect to *port* alone."""
    policy = tomllib.loads(packaged("policy.toml"))
    tables: dict[str, Any] = policy.pop("tools")
    dagrun_tools.configure(tables | {"network": tables["network"] | {"ports": [port]}})
    return Policy.model_validate(policy)


def carry_out(
    plan: str,
    output: Path,
    *,
    mode: Mode = "parallel",
    latency: float | None = None,
    planner: Planner | None = None,
) -> Executed:
    """Run a plan in *output*, with sources of its own, and save its result there.

    Args:
        plan: The text of the plan.
        output: The folder for files; it is made if needed.
        mode: How the steps are scheduled.
        latency: Seconds that an answer of a source takes; `None` for the usual ones.
        planner: The planner that is asked when a step fails; `None` for none.
    """
    with serving(latency) as server, run_folder(output) as folder:
        inputs = {"server": server.url}
        checked = check(plan, toolbox(), policy=policy_of(server.server_port), inputs=inputs)
        job = Job(plan=scheduled(checked, mode), inputs=inputs, artifacts=folder.artifacts, planner=planner)
        watch = None if is_drawable(sys.stderr) else StepLines().on_event
        return execute(job, Reporting(on_result=lambda result: save_run(result, folder), on_event=watch))


def files_in(folder: Path) -> list[str]:
    """Return the names of the files that a run has written for people."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def save_run(result: RunResult, folder: RunFolder) -> None:
    """Write the ``run.json`` of a run into its folder."""
    view = json.loads(result.report(format="json", values="full"))
    folder.save({"schema_version": 2, **result.as_dict(), "view": view})
