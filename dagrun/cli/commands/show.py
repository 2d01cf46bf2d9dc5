"""``dagrun show``: draws a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.records.output_files import writable, write_whole
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import Data, data_output, is_ascii
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun import Plan


_PICTURES: Final = ("svg", "png", "html")
_PLAIN_LINES: Final = str.maketrans("├└│─", "|`|-")  # where the output has ASCII alone


@command("show")
def show(*, plan: str, form: str | None, file: str | None, **flags: Any) -> None:
    """Draw PLAN, without checking it.

    With --tools, a plan in the dialect of step_number and action is drawn with the data flow that it only implies.

    Examples:
      dagrun show plan.json
      dagrun show plan.json --format mermaid > plan.mmd
      dagrun show plan.json --format svg -o plan.svg
    """
    from dagrun.cli.setup.plans import load_plan, plan_text
    from dagrun.cli.setup.tool_modules import load_toolbox, names_tools
    from dagrun.plans.drawing import draw_dot, draw_mermaid, draw_tree

    drawings = {"tree": draw_tree, "mermaid": draw_mermaid, "dot": draw_dot}
    configuration = configure(flags)
    with data_output() as data:
        toolbox = load_toolbox(configuration) if names_tools(configuration) else None
        drawn = load_plan(plan, toolbox)
        if form in _PICTURES or (form is None and file is not None):
            _draw(drawn, form, file, data)
            return
        text = plan_text(drawn) if form == "json" else drawings[form or "tree"](drawn)
        if file is None:
            text = text.removesuffix("\n")
            data.text(text.translate(_PLAIN_LINES) if form in (None, "tree") and is_ascii(sys.stdout) else text)
        else:
            data.text(str(_write(file, text, plan)))


def _write(name: str, text: str, plan: str) -> Path:
    """Write a drawing that is a text into the file *name*, and return its path."""
    from dagrun.cli.setup.plans import STDIN

    path = writable(name, "-o")
    assert path is not None
    if path.exists() and plan != STDIN and path.samefile(plan):
        raise BadInput(f"-o {name}: it is the plan itself")
    try:
        write_whole(path, text.removesuffix("\n") + "\n")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error
    return path


def _draw(plan: Plan, form: str | None, file: str | None, data: Data) -> None:
    """Draw a plan as a picture or a page, into a file or to the standard output."""
    from dagrun.cli.records.output_files import ReportFile
    from dagrun.observe.report.report import make_report
    from dagrun.observe.view.document import plan_view

    view = plan_view(plan)
    if file is not None:
        target = ReportFile(file, form)
        target.write(view)
        data.text(str(target.path))
    elif form == "png":
        raise BadInput("a PNG needs a file: name one by -o")
    else:
        assert form is not None
        data.text(make_report(view, form).decode())
