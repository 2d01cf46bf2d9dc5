"""The scenarios of ``dagrun demo``: a plan on real data, run in parallel and then step by step, to compare."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import click

from dagrun import RunResult
from dagrun.cli.terminal.text import columns_of, data_output, is_ascii
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import MissingExtra
from dagrun.observe.progress import count_recoveries
from dagrun_tools.demo.demo_run import carry_out, files_in, packaged
from dagrun_tools.demo.replan import NEW_NAME, OLD_NAME, replan_facts, replan_lines, run_replan
from dagrun_tools.reports.drawing import prepare


def show_scenario(output: Path, scenario: str, *, as_json: bool) -> int:
    """Run a scenario of the demo, and print its results.

    Args:
        output: The folder of its files.
        scenario: ``sources``, ``replan`` or ``tools``.
        as_json: Whether to print one JSON object.

    Returns:
        The exit code.
    """
    if scenario != "tools":
        prepare()  # load the chart library now, so that neither run has to wait for it
    with data_output() as data:
        code, facts = _SCENARIOS[scenario](output)
        if code == 0 and as_json:
            data.json(facts)
        elif code == 0:
            data.text("\n".join(str(output / name) for name in facts["files"]))
    return code


def _sources(output: Path) -> tuple[int, dict[str, Any]]:
    plan = packaged("plan.json")
    _say("1. The plan, each step as soon as it can run:")
    fast = carry_out(plan, output)
    if fast.code:
        return fast.code, {}
    fast.result.report(output / "run.html")
    _say("\n2. The same plan, step by step:")
    with tempfile.TemporaryDirectory(prefix="dagrun-demo-") as folder:
        slow = carry_out(plan, Path(folder), mode="sequential")
    if slow.code:
        return slow.code, {}
    facts = _facts(fast.result, slow.result, output)
    _say("\n" + "\n".join(_lines(facts)))
    return 0, facts


def _replan(output: Path) -> tuple[int, dict[str, Any]]:
    width = min(80, columns_of(sys.stderr))
    _say(
        fill(
            f"The column {OLD_NAME} of the source is called {NEW_NAME} from today on. Nobody has told the plan.", width
        )
    )
    ran, timeline = run_replan(output)
    ran.result.report(output / "run.html")
    _say("\n" + "\n".join(replan_lines(timeline, output, width=width, is_ascii=is_ascii(sys.stderr))))
    return ran.code, replan_facts(ran.result, timeline, output)


def _tools(output: Path) -> tuple[int, dict[str, Any]]:
    from dagrun_tools.demo.mailbox import mailbox_facts, mailbox_lines, run_mailbox

    width = min(80, columns_of(sys.stderr))
    try:
        ran, story = run_mailbox(output)
    except MissingExtra as error:
        raise BadInput(str(error)) from error
    ran.result.report(output / "run.html")
    _say("\n" + "\n".join(mailbox_lines(ran, story, output, width=width)))
    return ran.code, mailbox_facts(ran, story, output)


_SCENARIOS: Final = {"sources": _sources, "replan": _replan, "tools": _tools}


def _facts(fast: RunResult, slow: RunResult, output: Path) -> dict[str, Any]:
    retries, fallbacks = count_recoveries(fast)
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
        "files": files_in(output),
    }


def _lines(facts: Mapping[str, Any]) -> list[str]:
    return [
        f"{facts['steps']} steps, {facts['retries']} retried, {facts['fallbacks']} answered by a fallback.",
        f"  step by step          {facts['sequential']:6.2f} s",
        f"  as soon as they can   {facts['makespan']:6.2f} s   {facts['speedup']:.1f} times as fast",
        f"  longest chain         {facts['critical_path']:6.2f} s   no schedule of these steps is faster",
        f"Open {facts['output']}/report.html, and {facts['output']}/run.html for how the run went.",
    ]


def _say(text: str) -> None:
    click.echo(text, err=True)
