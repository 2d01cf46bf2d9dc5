"""One run of ``run``, ``do``, ``resume`` or ``retry``: its output, its files, and its exit code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dagrun import RunResult, State, Status
from dagrun.cli.jobs.execute import both, execute, exit_code_of
from dagrun.cli.jobs.job import Job, OnEvent, Reporting
from dagrun.cli.records.output_files import RunFolder, run_folder, write_whole
from dagrun.cli.setup.plans import plan_text
from dagrun.cli.terminal.text import SCHEMA_VERSION, SECRETS, Data, coloured, columns_of, is_ascii, printable, to_json
from dagrun.cli.terminal.user_errors import BadInput, problem_lines
from dagrun.errors import first_lines
from dagrun.kernel.model.value import decode_or_reason
from dagrun.observe.progress import summarise, warnings_of

if TYPE_CHECKING:
    from dagrun.cli.jobs.page_server import PageServer
    from dagrun.cli.records.output_files import ReportFile
    from dagrun.cli.terminal.event_lines import EventLines

# Of run.json, which has all that is printed, and the view of the run. Schema 1 had no view.
RUN_JSON_VERSION: Final = 2

if TYPE_CHECKING:
    from dagrun import Tracing

_LEVELS: Final = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}


def log_level(flags: Mapping[str, Any]) -> int:
    """Return the least level of log records that are shown, by ``--quiet`` and ``--verbose``."""
    return _LEVELS.get(-1 if flags["quiet"] else flags["verbose"], logging.DEBUG)


def _event_lines(data: Data, job: Job) -> EventLines:
    from dagrun.cli.terminal.event_lines import EventLines

    return EventLines(data, job.plan.redactor)


def _report_file(name: str) -> ReportFile:
    from dagrun.cli.records.output_files import ReportFile

    return ReportFile(name, option="--report")


class OneRun:
    """Carries out one job, and reports it as the options require.

    Args:
        job: The run.
        output: The folder for the files that the run leaves, absolute; `None` if it leaves none.
        data: The standard output.
        flags: The flags of the command line: ``as_json``, ``events``, ``quiet``, ``verbose``, ``timeline``, ``report``,
            ``trace``, and those of the live page.
        save_plan: The file for the plan as it stands at the end, absolute; `None` for none.
    """

    def __init__(
        self, job: Job, output: Path | None, data: Data, flags: Mapping[str, Any], save_plan: Path | None = None
    ) -> None:
        self._job = job
        self._next_steps = job.recording.next_steps if job.recording is not None else None
        self._output = output
        self._data = data
        self._save_plan_to = save_plan
        self._flags = flags
        self._as_json: bool = flags["as_json"]
        self._is_quiet: bool = flags["quiet"]
        self._level = log_level(flags)
        self._is_traced: bool = flags.get("trace", False)
        self._lines = _event_lines(data, job) if flags["events"] else None
        self._report = _report_file(flags["report"]) if flags.get("report") else None
        self._stack = ExitStack()

    def carry_out(self) -> int:
        """Run it, and return the exit code.

        Raises:
            BadInput: An option needs ``--serve``, or the port of the page is in use.
        """
        server = self._page_server()
        with run_folder(self._output) as folder, ExitStack() as traces, self._stack:
            if self._lines is not None:
                self._stack.enter_context(self._lines)
            tracing = traces.enter_context(_exported()) if self._is_traced else None
            reporting = Reporting(
                on_result=lambda result: self._deliver(result, folder),
                on_event=self._observer(),
                code_of=self._code_of,
                is_shown=not self._is_quiet,
                log_level=self._level,
                tracing=tracing,
                server=server,
                lingers=self._flags["lingers"],
            )
            return execute(self._job, reporting).code

    def _page_server(self) -> PageServer | None:
        flags = self._flags
        if flags["serves"]:
            from dagrun.cli.jobs.page_server import PageServer

            return PageServer(None, flags)
        needs = {"--port": flags["port"] is not None, "--open": flags["open_browser"], "--linger": flags["lingers"]}
        if any(needs.values()):
            raise BadInput(*(f"{name} needs --serve" for name, is_given in needs.items() if is_given))
        return None

    def _observer(self) -> OnEvent | None:
        lines = self._lines.on_event if self._lines is not None else None
        return lines if self._next_steps is None else both(self._next_steps.on_event, lines)

    def _code_of(self, result: RunResult) -> int:
        """Return the exit code; an unresolved call outranks a signal and a wait for people."""
        is_in_doubt = self._next_steps is not None and self._next_steps.is_in_doubt(result)
        return Status.UNKNOWN.exit_code if is_in_doubt else exit_code_of(result)

    def _deliver(self, result: RunResult, folder: RunFolder) -> None:
        self._stack.close()  # writes the last event, which comes before the result
        record = {"schema_version": SCHEMA_VERSION, **result.as_dict()}
        if self._next_steps is not None:
            record |= self._next_steps.as_dict(result)
        try:
            self._save(record, result, folder)
        except OSError as error:
            self._say(f"cannot write run.json: {error.strerror}")
        self._save_plan(result)
        self._write_report(result)
        if self._lines is not None:
            self._data.line({"event": "Result", **record})
        elif self._as_json:
            self._data.json(record)
        else:
            self._answer(result)
        if self._flags.get("timeline"):
            from dagrun.observe.timeline import read_timeline, timeline_page
            from dagrun.observe.view.document import view_of

            width = min(120, columns_of(sys.stderr))
            for line in timeline_page(
                read_timeline(view_of(result, values="none")), width, is_ascii=is_ascii(sys.stderr)
            ):
                self._say(line)
        if not self._is_quiet or result.status is not Status.SUCCEEDED:
            self._summarise(result)

    def _save(self, record: dict[str, Any], result: RunResult, folder: RunFolder) -> None:
        """Write ``run.json`` into the output folder, or beside the record; a run with neither leaves none."""
        recording = self._job.recording
        if folder.path is None and (recording is None or recording.folder is None):
            return
        from dagrun.observe.view.document import view_of

        whole = {**record, "schema_version": RUN_JSON_VERSION, "view": view_of(result, values="full")}
        if folder.path is not None:
            folder.save(whole)
        elif recording is not None and recording.folder is not None:
            write_whole(recording.folder / "run.json", to_json(whole, indent=2) + "\n", mode=0o600)

    def _write_report(self, result: RunResult) -> None:
        if self._report is None:
            return
        from dagrun.observe.view.document import view_of
        from dagrun.observe.view.steps import shortened

        view = view_of(result, values="full")
        try:
            self._report.write(shortened(view, "short"))
        except OSError as error:
            self._say(f"cannot write {self._report.path}: {error.strerror}")
            self._report = None  # so that the end names the command that makes one

    def _save_plan(self, result: RunResult) -> None:
        path = self._save_plan_to
        if path is None:
            return
        if not result.has_plan:
            self._say(f"there is no plan to write to {path.name}")
            return
        try:
            write_whole(path, plan_text(result.plan.current))
        except OSError as error:
            self._say(f"cannot write {path}: {error.strerror}")

    def _answer(self, result: RunResult) -> None:
        """Print the answer of the run; or, if it did not succeed, the outputs that there are."""
        if result.status is Status.SUCCEEDED:
            self._data.value(result.shown_output)
        elif partial := _partial(result):
            self._data.json(partial)

    def _summarise(self, result: RunResult) -> None:
        for warning in warnings_of(result):
            self._say(coloured(f"warning: {warning}", 33, sys.stderr))
        colour = 32 if result.status is Status.SUCCEEDED else 31
        self._say(coloured(summarise(result), colour, sys.stderr))
        for line in problem_lines(result.problems):
            self._say(f"  {line}")
        if result.problems and result.planner_answers and (said := first_lines(result.planner_answers[-1])):
            self._say(f"  its model answered: {said}")
        for line in self._next_steps.lines(result) if self._next_steps is not None else ():
            self._say(printable(line))
        if self._report is not None:
            self._say(f"report: {self._report.path}")
        elif self._next_steps is not None:
            self._say(f"report: {printable(self._next_steps.report_command)}")

    @staticmethod
    def _say(text: str) -> None:
        click.echo(SECRETS.hide(text), err=True, color=True)


def _exported() -> AbstractContextManager[Tracing]:
    from dagrun.observe.tracing import exported_tracing  # with OpenTelemetry, which few runs need

    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # one line if nothing can be sent, not one for each try
    return exported_tracing()


def _partial(result: RunResult) -> dict[str, Any]:
    """Return the outputs of the steps that succeeded, except those that other such steps depend on."""
    steps = result.plan.steps
    good = [id_ for id_ in steps if result.steps[id_].state is State.SUCCEEDED]
    used = {need for id_ in good for need in result.dependencies(id_)}
    return {id_: decode_or_reason(result.steps[id_].stored) for id_ in good if id_ not in used}
