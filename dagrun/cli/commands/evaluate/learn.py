"""``dagrun learn``: makes routes of the plans that worked in recorded runs."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dagrun.cli.records.run_store import RunStore, open_runs
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, data_output, printable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, JournalDamaged, JournalFailed, RunNotFound, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagrun.evaluate.learning.learn_routes import Learned, PlannedRun
    from dagrun.planners.route_files import RouteFile

_TRIED: Final = 5  # runs of which a golden task is tried


@command("learn")
def learn(*, min_runs: int, folder: str | None, is_forced: bool, as_json: bool, **flags: Any) -> int:
    """Make routes of plans that worked: templates with parameters, which need no model.

    Nothing uses a route by itself: read the files, commit them, and hand them to a planner. Beside each route stands a
    golden task of it (dagrun eval DIR): its example goal, its plan, and a world of what the tools returned in the run.
    A redact function of the program that ran it is not applied: check the files before you share them.

    Examples:
      dagrun learn --since 30d
      dagrun learn --min-runs 3 -o routes/
      dagrun eval routes/ --tools my_tools

    What makes a plan a route:
      It was written whole for a goal, never changed, and the run succeeded.
      Plans that are equal up to literals are one route. Values that stand in
      the goal become parameters, and those that are inputs refer to them.

    Use:
      router = dagrun.RouterPlanner(dagrun.read_routes("routes"))
      dagrun do GOAL --planner my_module:router,openai=MODEL

    Exit codes: 0, 2 wrong usage.
    """
    from dagrun.evaluate.learning.learn_routes import learn_routes
    from dagrun.evaluate.metrics.metrics import read_time

    try:
        since = None if flags["since"] is None else read_time(flags["since"], time.time())
    except ContractError as error:
        raise BadInput(str(error)) from error
    with data_output() as data:
        records = open_runs(configure(flags))
        runs, skipped = _planned_runs(records, since)
        learned = learn_routes(runs, min_runs=min_runs)
        written = _Written() if folder is None else _write(Path(folder), learned, records, is_forced=is_forced)
        if as_json:
            data.json(_as_dict(learned, skipped, written))
        else:
            _show(data, learned, len(runs), written)
    return 0


def _planned_runs(records: RunStore, since: float | None) -> tuple[list[PlannedRun], dict[str, str]]:
    from dagrun.evaluate.learning.learn_routes import planned_run

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


@dataclass(slots=True)
class _Written:
    """The files written for routes, the reasons for missing golden tasks, and conflicts.

    Attributes:
        routes: The files of routes.
        cases: The files of golden tasks.
        no_case: Why there is none.
        conflicts: Which routes in the folder are for the same goal, or why the folder cannot be used.
    """

    routes: dict[str, str] = field(default_factory=dict)
    cases: dict[str, str] = field(default_factory=dict)
    no_case: dict[str, str] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)


def _write(folder: Path, learned: Learned, records: RunStore, *, is_forced: bool) -> _Written:
    """Write a file for each route, and its golden task beside it."""
    paths = {route.name: folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', route.name)}.json" for route in learned.routes}
    both = [path for one in paths.values() for path in (one, one.with_suffix(".yaml"))]
    if not is_forced and (there := [str(path) for path in both if path.exists()]):
        raise BadInput("these files are there already; --force writes over them:", *there)
    written = _Written()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for route in learned.routes:
            path = paths[route.name]
            text = json.dumps(route.model_dump(mode="json"), indent=2, ensure_ascii=False)
            path.write_text(text + "\n", encoding="utf-8")
            written.routes[route.name] = str(path)
            _write_case(route, learned.examples[route.name], path, records, written)
    except OSError as error:
        raise BadInput(f"cannot write {folder}: {error.strerror}") from error
    written.conflicts = _conflicts_in(folder)
    return written


def _conflicts_in(folder: Path) -> list[str]:
    """Return the conflicts that loading the folder will report: other files may have been in it."""
    from dagrun.planners.route_files import conflicts_of, routes_in

    try:
        return conflicts_of(routes_in(folder))
    except ContractError as error:
        return [str(error)]


def _write_case(
    route: RouteFile, runs: Sequence[PlannedRun], route_path: Path, records: RunStore, written: _Written
) -> None:
    """Write the golden task of a route, from the latest run that can be played with stubs."""
    from dagrun.evaluate.cases.recorded_case import playable_events
    from dagrun.evaluate.learning.route_cases import NoCase, route_case

    path = route_path.with_suffix(".yaml")
    for run in runs[:_TRIED]:
        try:
            events = playable_events(run.run_id, records.lines(run.run_id))
            path.write_text(route_case(route, run, events, route_path.name), encoding="utf-8")
        except NoCase as error:
            written.no_case.setdefault(route.name, f"{run.run_id}: {error}")
        else:
            written.cases[route.name] = str(path)
            written.no_case.pop(route.name, None)
            return
    path.unlink(missing_ok=True)  # that of an earlier route, under --force


def _as_dict(learned: Learned, skipped: Mapping[str, str], written: _Written) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "routes": [route.model_dump(mode="json") for route in learned.routes],
        "files": written.routes,
        "cases": written.cases,
        "no_case": written.no_case,
        "conflicts": written.conflicts,
        "left_out": {**learned.left_out, **skipped},
    }


def _show(data: Data, learned: Learned, count: int, written: _Written) -> None:
    lines = [
        f"{len(learned.routes)} route{'s' * (len(learned.routes) != 1)} in {count} runs that a planner has planned"
    ]
    for route in learned.routes:
        facts = route.learned
        where = f"  -> {written.routes[route.name]}" if route.name in written.routes else ""
        often = f"({facts['succeeded']} of {facts['runs']} succeeded)"
        lines.append(f"  {route.name}: {shorten(route.goals[0], 100)}  {often}{where}")
        lines += [f"    golden task -> {written.cases[route.name]}"] if route.name in written.cases else []
    data.text("\n".join(printable(line) for line in lines))
    if written.cases:
        text = "redact functions of programs that ran them are not applied: check the files before you share them"
        click.echo(text, err=True)
    for conflict in written.conflicts:
        click.echo(printable(conflict), err=True)
    for name, why in written.no_case.items():
        click.echo(printable(f"no golden task of {name}: {why}"), err=True)
    for run_id, why in learned.left_out.items():
        click.echo(printable(f"no route from {run_id}: {why}"), err=True)
