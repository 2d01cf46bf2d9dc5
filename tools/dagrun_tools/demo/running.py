"""Running a plan of the demo: its own sources beside it, its own limits, in the folder that it leaves its files in."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import dagrun_tools
from dagrun import Event, Planner, Policy, RunResult, Toolbox, check
from dagrun.cli.jobs.execute import execute
from dagrun.cli.jobs.job import Job, Reporting
from dagrun.cli.records.output_folder import RunFolder, run_folder
from dagrun.cli.setup.plans import scheduled
from dagrun.cli.setup.settings import Mode
from dagrun_tools.demo.server import serving
from dagrun_tools.demo.tools import in_constant_dollars, mortgage_rates_on_file


@dataclass(slots=True)
class Ran:
    """How a run ended: with what exit code, and with which result."""

    code: int
    result: RunResult


def toolbox() -> Toolbox:
    """The tools of the package, and the two of the demo."""
    return Toolbox(dagrun_tools, in_constant_dollars, mortgage_rates_on_file)


def packaged(name: str) -> str:
    """The text of a file that lies beside this one."""
    return (files(__package__) / name).read_text("utf-8")


def policy_of(port: int) -> Policy:
    """Hand the settings of the tools on to them, for *port* alone; the rest is the policy of the run."""
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
    on_event: Callable[[Event], object] | None = None,
) -> Ran:
    """Run a plan in *output*, with sources of its own, and keep its record there.

    Args:
        plan: Its text.
        output: The folder for files; made if needed.
        mode: How it is scheduled.
        latency: Seconds that an answer of a source takes; `None` for what is usual.
        planner: Who is asked when a step fails; `None` for nobody.
        on_event: Called with each event.
    """
    with serving(latency) as server, run_folder(output) as folder:
        inputs = {"server": server.url}
        checked = check(plan, toolbox(), policy=policy_of(server.server_port), inputs=inputs)
        results: list[RunResult] = []

        def deliver(result: RunResult) -> None:
            _save(result, folder)
            results.append(result)

        job = Job(plan=scheduled(checked, mode), inputs=inputs, artifacts=folder.artifacts, planner=planner)
        return Ran(execute(job, Reporting(on_result=deliver, on_event=on_event)), results[0])


def files_in(folder: Path) -> list[str]:
    """What a run has left for people, by name."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _save(result: RunResult, folder: RunFolder) -> None:
    folder.save({"schema_version": 1, **result.as_dict()})
