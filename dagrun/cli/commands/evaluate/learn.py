"""``dagrun learn``: makes routes of the plans that worked in recorded runs."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import Records, runs_option
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.stdout import Data, data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION, printable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, JournalDamaged, JournalFailed, RunNotFound, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagrun.evaluate.learning.learn_routes import Learned
    from dagrun.evaluate.learning.planned_runs import PlannedRun
    from dagrun.planners.route_files import RouteFile

EPILOG: Final = """
\b
Examples:
  dagrun learn --since 30d
  dagrun learn --min-runs 3 -o routes/

\b
What makes a plan a route:
  It was written whole for a goal, never changed, and the run succeeded.
  Plans that are equal up to literals are one route. Values that stand in
  the goal become parameters, and those that are inputs refer to them.

\b
Use:
  router = dagrun.RouterPlanner(dagrun.read_routes("routes"))
  dagrun do GOAL --planner my_module:router,openai=MODEL

Exit codes: 0, 2 wrong usage.
"""


@click.command(epilog=EPILOG)
@options.combined(runs_option)
@click.option("--since", metavar="TIME", help="Learn from runs that began then or later: 7d, 2026-11-20.")
@click.option("--min-runs", type=click.IntRange(min=1), default=1, show_default=True, help="Successes that it takes.")
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write a file for each route. Without it, the routes are only listed.",
)
@click.option("--force", "is_forced", is_flag=True, help="Write over files of routes that are there.")
@options.as_json
@options.directory
def learn(*, min_runs: int, folder: str | None, is_forced: bool, as_json: bool, **flags: Any) -> int:
    """Make routes of plans that worked: templates with parameters, which need no model.

    Nothing uses a route by itself: read the files, commit them, and hand them to a planner.
    """
    from dagrun.evaluate.learning.learn_routes import learn_routes
    from dagrun.evaluate.metrics.read_runs import read_time

    try:
        since = None if flags["since"] is None else read_time(flags["since"], time.time())
    except ContractError as error:
        raise BadInput(str(error)) from error
    with data_output() as data:
        runs, skipped = _planned_runs(Records(configure(flags)), since)
        learned = learn_routes(runs, min_runs=min_runs)
        written = {} if folder is None else _write(Path(folder), learned.routes, is_forced=is_forced)
        if as_json:
            data.json(_as_dict(learned, skipped, written))
        else:
            _show(data, learned, len(runs), written)
    return 0


def _planned_runs(records: Records, since: float | None) -> tuple[list[PlannedRun], dict[str, str]]:
    from dagrun.evaluate.learning.planned_runs import planned_run

    found, skipped = [], {}
    for run_id in records.names():
        try:
            lines = records.lines(run_id)
            run = planned_run(run_id, lines) if lines else "it has no record"
        except RunNotFound:
            continue
        except (JournalDamaged, JournalFailed) as error:
            run = shorten(str(error))
        if isinstance(run, str):
            skipped[run_id] = run
        elif since is None or run.began >= since:
            found.append(run)
    return found, skipped


def _write(folder: Path, routes: Sequence[RouteFile], *, is_forced: bool) -> dict[str, str]:
    """Write a file for each route; return their paths by the names of the routes."""
    paths = {route.name: folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', route.name)}.json" for route in routes}
    there = [str(path) for path in paths.values() if path.exists()]
    if there and not is_forced:
        raise BadInput("these files are there already; --force writes over them:", *there)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for route in routes:
            text = json.dumps(route.model_dump(mode="json"), indent=2, ensure_ascii=False)
            paths[route.name].write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from error
    return {name: str(path) for name, path in paths.items()}


def _as_dict(learned: Learned, skipped: Mapping[str, str], written: Mapping[str, str]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "routes": [route.model_dump(mode="json") for route in learned.routes],
        "files": dict(written),
        "left_out": {**learned.left_out, **skipped},
    }


def _show(data: Data, learned: Learned, count: int, written: Mapping[str, str]) -> None:
    lines = [
        f"{len(learned.routes)} route{'s' * (len(learned.routes) != 1)} in {count} runs that a planner has planned"
    ]
    for route in learned.routes:
        facts = route.learned
        where = f"  -> {written[route.name]}" if route.name in written else ""
        often = f"({facts['succeeded']} of {facts['runs']} succeeded)"
        lines.append(f"  {route.name}: {shorten(route.goals[0], 100)}  {often}{where}")
    data.text("\n".join(printable(line) for line in lines))
    for run_id, why in learned.left_out.items():
        click.echo(printable(f"no route from {run_id}: {why}"), err=True)
