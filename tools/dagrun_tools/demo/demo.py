"""``dagrun demo``: a real plan on real data, run as fast as its inputs allow, and once more step by step."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import click

import dagrun_tools
from dagrun import Policy, RunResult, Toolbox, check
from dagrun.cli.data import data_output
from dagrun.cli.execute import Job, execute, scheduled
from dagrun.cli.files import RunFolder, run_folder
from dagrun.cli.settings import Mode
from dagrun.observe.summary import count_recoveries
from dagrun_tools.demo.server import serving
from dagrun_tools.demo.tools import in_constant_dollars, mortgage_rates_on_file
from dagrun_tools.drawing import prepare

EPILOG: Final = """
\b
Examples:
  dagrun demo
  dagrun demo --json -o /tmp/dagrun-demo
"""


@click.command(epilog=EPILOG)
@click.option(
    "-o",
    "--output",
    default="dagrun-demo",
    show_default=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the reports, the charts and run.json go.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(output: Path, as_json: bool) -> int:
    """Analyse 15 years of home sales in Texas: a plan of 14 steps on real data, in about 20 seconds.

    Steps run as soon as what they need is there. Two sources are remote and slow: one of them fails once and is tried
    again, the other is gone for good and its fallback answers. Then the same plan runs step by step, to compare.
    """
    prepare()  # the library for charts loads once; neither of the two runs should pay for the other
    with data_output() as data:
        _say("1. The plan, each step as soon as it can run:")
        fast = _run("parallel", output)
        if fast.code:
            return fast.code
        _say("\n2. The same plan, step by step:")
        with tempfile.TemporaryDirectory(prefix="dagrun-demo-") as folder:
            slow = _run("sequential", Path(folder))
        if slow.code:
            return slow.code
        facts = _facts(fast.result, slow.result, output)
        _say("\n" + "\n".join(_lines(facts)))
        if as_json:
            data.json(facts)
        else:
            data.text("\n".join(str(output / name) for name in facts["files"]))
    return 0


@dataclass(slots=True)
class _Ran:
    """How a run ended: with what exit code, and with which result."""

    code: int
    result: RunResult


def _run(mode: Mode, output: Path) -> _Ran:
    """Run the plan in *output*, with sources of its own."""
    own = files(__package__)
    with serving() as server, run_folder(output) as folder:
        policy = _configured(tomllib.loads((own / "policy.toml").read_text("utf-8")), server.server_port)
        toolbox = Toolbox(dagrun_tools, in_constant_dollars, mortgage_rates_on_file)
        inputs = {"server": server.url}
        plan = check((own / "plan.json").read_text("utf-8"), toolbox, policy=policy, inputs=inputs)
        results: list[RunResult] = []

        def deliver(result: RunResult) -> None:
            _save(result, folder)
            results.append(result)

        code = execute(Job(plan=scheduled(plan, mode), inputs=inputs, artifacts=folder.artifacts, on_result=deliver))
        return _Ran(code, results[0])


def _configured(policy: dict[str, Any], port: int) -> Policy:
    """Hand the settings of the tools on to them, for *port* alone; the rest is the policy of the run."""
    tables: dict[str, Any] = policy.pop("tools")
    dagrun_tools.configure(tables | {"network": tables["network"] | {"ports": [port]}})
    return Policy.model_validate(policy)


def _save(result: RunResult, folder: RunFolder) -> None:
    folder.save({"schema_version": 1, **result.as_dict()})


def _facts(fast: RunResult, slow: RunResult, output: Path) -> dict[str, Any]:
    retries, fallbacks = count_recoveries(fast)
    left = sorted(path.name for path in output.iterdir() if path.is_file() and not path.name.startswith("."))
    return {
        "status": str(fast.status),
        "steps": len(fast.steps),
        "retries": retries,
        "fallbacks": fallbacks,
        "makespan": round(fast.makespan, 3),
        "sequential": round(slow.makespan, 3),
        "critical_path": round(fast.critical_path, 3),
        "speedup": round(slow.makespan / fast.makespan, 2),
        "output": str(output),
        "files": left,
    }


def _lines(facts: Mapping[str, Any]) -> list[str]:
    return [
        f"{facts['steps']} steps, {facts['retries']} retried, {facts['fallbacks']} answered by a fallback.",
        f"  step by step          {facts['sequential']:6.2f} s",
        f"  as soon as they can   {facts['makespan']:6.2f} s   {facts['speedup']:.1f} times as fast",
        f"  longest chain         {facts['critical_path']:6.2f} s   no schedule of these steps is faster",
        f"Open {facts['output']}/report.html.",
    ]


def _say(text: str) -> None:
    click.echo(text, err=True)
