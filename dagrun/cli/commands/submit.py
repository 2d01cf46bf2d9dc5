"""``dagrun submit``: a run that is checked here, and carried out by a worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import click

import dagrun
from dagrun.cli.records.resume_command import command_again, labels_of, options_again, quoted, where_is
from dagrun.cli.records.run_store import check_new_id, open_shared_runs, wait
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, data_output, printable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten


@command("submit")
def submit(*, plan: str | None, goal: str | None, **flags: Any) -> int:
    """Check PLAN, and submit the run: a worker (dagrun worker) carries it out. The name of the run is printed.

    Nothing of it runs here. Tools, critics and limits are recorded by their contracts, and only a worker that has the
    same claims the run. A planner, a critic and --compose must be named here and there. Secrets are named here, and
    the worker has their values.

    Examples:
      dagrun submit plan.json --tools my_tools --journal postgresql://app@db/runs
      dagrun submit plan.json -t my_tools --input region=EU --pool mail --follow
      dagrun submit plan.json -t my_tools --not-before 2026-11-26T08:30
      dagrun submit --goal "the goal, in words" -t my_tools --journal URL

    Exit codes:
      0 submitted, 1 it cannot be recorded, 2 wrong usage, 3 plan refused;
      with --follow, as for dagrun run
    """
    return submit_run(plan, goal, flags)


_FROM_NOW: Final = re.compile(r"(\d{1,6})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def submit_run(plan: str | None, goal: str | None, flags: Mapping[str, Any]) -> int:
    """Submit a run, print its name, and return the exit code; the run's, if it is followed.

    Args:
        plan: The file of the plan; `None` if there is a goal.
        goal: The goal in words; `None` if there is a plan.
        flags: The flags of the command line.

    Raises:
        BadInput: Something that is named cannot be used.
        PlanRefused: The plan has problems.
        JournalFailed: The run cannot be recorded.
    """
    from dagrun.cli.jobs.follow_run import follow_run

    if (plan is None) == (goal is None):
        raise BadInput("submit a PLAN, or a goal by --goal TEXT; not both, nor neither")
    configuration = configure(flags)
    records = open_shared_runs(configuration)
    run_id = check_new_id(flags["run_id"])
    options = {
        "journal": records.journal,
        "run_id": run_id,
        **_what(plan, goal, configuration, flags),
        **_how(configuration, flags),
        "pool": flags["pool"],
        "priority": flags["priority"],
        "not_before": _not_before(flags["not_before"]),
    }
    records.make_ready(run_id)
    wait(lambda: dagrun.submit(**options))
    where = where_is(configuration)
    words = command_again("follow", run_id, where)
    with data_output() as data:
        if flags["follows"]:
            click.echo(f"submitted: {run_id}", err=True)
            return follow_run(records, run_id, where, data, flags)
        if flags["as_json"]:
            facts = {"run_id": run_id, "pool": flags["pool"], "priority": flags["priority"], "next_command": words}
            data.json({"schema_version": SCHEMA_VERSION, **facts})
            return 0
        data.text(run_id)
        if not flags["quiet"]:
            pool = printable(flags["pool"])
            click.echo(f"submitted to pool {pool}; to see it go on:\n  {printable(quoted(words))}", err=True)
    return 0


def _what(plan: str | None, goal: str | None, configuration: Configuration, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the work: a checked plan, or a goal."""
    from dagrun.cli.jobs.goals import read_goal
    from dagrun.cli.setup.plans import load_plan, read_inputs, scheduled
    from dagrun.cli.setup.secrets import secrets_of
    from dagrun.cli.setup.tool_modules import load_toolbox
    from dagrun.kernel.checks.check_plan import check_plan

    policy = configuration.limits().policy
    toolbox = load_toolbox(configuration)
    inputs = read_inputs(flags["inputs"])
    secrets = secrets_of(configuration)  # with their values, so that none gets into the record
    if goal is not None:
        return {"goal": read_goal(goal), "tools": toolbox, "policy": policy, "secrets": secrets, "inputs": inputs}
    assert plan is not None
    checked = check_plan(load_plan(plan, toolbox), toolbox, policy, inputs=inputs, secrets=secrets)
    return {"plan": scheduled(checked, configuration.settings.mode), "inputs": inputs}


def _how(configuration: Configuration, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the participants that the worker must have, too, and the notes of the run."""
    from dagrun.cli.jobs.job import DAY, typed_arguments
    from dagrun.cli.setup.planners import load_compose, load_critics, make_planner
    from dagrun.cli.setup.secrets import record_key

    named, days = flags["planner"], configuration.settings.expires_after
    again = options_again(configuration, named, flags)
    return {
        "planner": make_planner(configuration, named) if named is not None else None,
        "critics": load_critics(flags["critics"]),
        "compose": load_compose(configuration, flags["compose"]),
        "record_key": record_key(),
        "labels": labels_of(typed_arguments(), configuration, again),
        "expires_after": None if days is None else days * DAY,
    }


def _not_before(text: str | None) -> datetime | None:
    return None if text is None else read_moment(text, datetime.now().astimezone())


def read_moment(text: str, now: datetime) -> datetime:
    """Return the time that *text* names: from now on (``30s``, ``10m``, ``2h``, ``1d``), or by ISO 8601.

    Args:
        text: What the user has typed. What names no zone is in that of *now*.
        now: The time of day.

    Raises:
        BadInput: It is no such time.
    """
    try:
        if found := _FROM_NOW.fullmatch(text.strip()):
            return now + timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
        moment = datetime.fromisoformat(text.strip())
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=now.tzinfo)
    except (ValueError, OverflowError):
        raise BadInput(
            f"--not-before {shorten(text, 60)}: write how long from now on (30s, 10m, 2h, 1d), or a time such as"
            " 2026-11-26T08:30"
        ) from None
