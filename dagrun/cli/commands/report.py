"""``dagrun report``: writes a page, a picture or a text about a run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dagrun.cli.records.run_store import open_runs
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalDamaged, shorten

if TYPE_CHECKING:
    from dagrun.cli.records.output_files import ReportFile
    from dagrun.observe.report.report import ReportStyle
    from dagrun.observe.view.shape import RunView


@command("report")
def report(*, source: str, file: str | None, form: str | None, as_json: bool, **flags: Any) -> int:
    """Write a report of RUN: one HTML file that loads nothing, and can be mailed.

    RUN is the name of a recorded run, its beginning, or last; a run.json, or a folder with one; or - for the view of a
    run (dagrun schema view) on the standard input. A run that is not over is shown as far as it is recorded.

    Examples:
      dagrun report last
      dagrun report last -o run.html --open
      dagrun report last -o run.svg --part graph
      dagrun report last --values none --redact email
      dagrun report out/run.json -o run.md
      dagrun report last --github

    Exit codes: 0, 1 if the record is damaged (the report shows its good part), 2 wrong usage.
    """
    from dagrun.cli.records.output_files import ReportFile
    from dagrun.observe.report.report import ReportStyle, make_report

    with data_output() as data:
        style = ReportStyle(
            title=flags["title"], max_boxes=flags["max_nodes"], part=flags["part"], is_dark=flags["theme"] == "dark"
        )
        view, damage = _view(source, flags)
        if damage:
            style = ReportStyle(
                **{name: getattr(style, name) for name in ("title", "max_boxes", "part", "is_dark")}, note=damage
            )
        if flags["github"]:
            _add_to_summary(view)
        if file == "-" or (file is None and flags["github"]):
            if file == "-":
                _to_stdout(make_report(view, form or "html", style), form or "html", data)
        else:
            _write(
                ReportFile(file or _name(view, form), form, is_forced=flags["force"]),
                view,
                style,
                (data, flags, as_json),
            )
        if damage:
            click.echo(damage, err=True)
        return 1 if damage else 0


def _write(target: ReportFile, view: RunView, style: ReportStyle, to: tuple[Data, dict[str, Any], bool]) -> None:
    from dagrun.cli.records.output_files import LARGE

    data, flags, as_json = to
    try:
        size = target.write(view, style)
    except OSError as error:
        raise BadInput(f"cannot write {target.path}: {error.strerror}") from error
    if as_json:
        facts = {"file": str(target.path), "bytes": size, "steps": len(view["steps"]), "left_out": view["left_out"]}
        data.json({"schema_version": SCHEMA_VERSION, **facts})
    else:
        data.text(str(target.path))
    if size > LARGE:
        click.echo(f"the report has {size / 1e6:.0f} MB; --values none makes it smaller", err=True)
    if flags["open_browser"]:
        click.launch(target.path.as_uri())


def _to_stdout(report: bytes, form: str, data: Data) -> None:
    if form != "png":
        data.text(report.decode("utf-8", "replace"))
    elif sys.stdout.isatty():
        raise BadInput("a PNG is no text for a terminal: name a file by -o")
    else:
        raise BadInput("a PNG needs a file: name one by -o")


def _name(view: RunView, form: str | None) -> str:
    endings = {"markdown": "md", "mermaid": "mmd"}
    return f"{view['run']['id'] or 'run'}.{endings.get(form or 'html', form or 'html')}"


def _view(source: str, flags: dict[str, Any]) -> tuple[RunView, str]:
    """Return the view of *source*, and the fault of its record; empty if there is none."""
    from dagrun.kernel.model.redaction.redactor import Redactor
    from dagrun.observe.view.document import view_of
    from dagrun.observe.view.steps import shortened, without

    path = Path(source)
    if path.is_dir() and (path / "run.json").is_file():
        path /= "run.json"
    if source == "-" or path.is_file():
        kept = shortened(view_of(_read(path, source)), flags["values"])
        return (without(kept, Redactor(personal=flags["redact"])) if flags["redact"] else kept), ""
    records = open_runs(configure(flags))
    name = records.find(source)
    damage = ""
    try:
        past = records.shown(name)
    except JournalDamaged as error:
        past = records.good_part(name, error)
        damage = f"The record is damaged at number {error.seq}: {error.reason}. This report shows what was before."
    if flags["redact"]:
        past.graph.plan.redactor.add_personal(flags["redact"])
    held = records.held(name)
    return view_of(past, values=flags["values"], held=held), damage


def _read(path: Path, source: str) -> Any:
    try:
        found = json.loads(sys.stdin.read() if source == "-" else path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"cannot read {shorten(source, 100)}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{shorten(source, 100)} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput(f"{shorten(source, 100)} is no run.json")
    return found


def _add_to_summary(view: RunView) -> None:
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        raise BadInput("--github: there is no GITHUB_STEP_SUMMARY in the environment; it is set in GitHub Actions")
    from dagrun.observe.report.report import make_report

    with open(summary, "ab") as file:
        file.write(make_report(view, "markdown"))
