"""``dagrun check``: lists the problems of a plan, and its trust boundary, and runs nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, bounded, columns, columns_of, data_output, printable
from dagrun.errors import PlanRefused, Problem, visible

if TYPE_CHECKING:
    from dagrun import Plan, Policy, Toolbox
    from dagrun.advice.flow_table import FlowRow, FlowTable


Questions: TypeAlias = Mapping[str, tuple[str, ...]]
MAX_LINES: Final = 200
_MIN_WIDTH: Final = 20


@command("check")
def check(
    *,
    plan: str,
    inputs: tuple[str, ...],
    strict: bool,
    flow: bool,
    html: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Check PLAN, list all its problems, and run nothing.

    Without --input, references to the inputs of the run are not checked. With a policy, from --policy or a settings
    file, the questions follow that nobody has answered: about a step, what its tool does to the world, whether a person
    must agree to it, how long it may take, and what follows when it has failed for good; about the run, how many calls,
    how much time, how many tokens and how much money it may use, and how long a person is waited for. --strict refuses
    the plan for those about the run, too.

    With --flow, a table follows of the trust boundary ([flow] of the policy): each guarded argument, the sources
    of its data and their path, and whether it passes, asks a person, or is refused. With --strict, it also shows how
    much passes only because the policy endorses a tool.

    Examples:
      dagrun check plan.json --tools my_tools
      dagrun check plan.json --tools my_tools --strict --json
      dagrun check plan.json --tools my_tools --policy policy.toml
      dagrun check plan.json --tools my_tools --policy policy.toml --flow

    Exit codes: 0 the plan can be run, 2 wrong usage, 3 it cannot.
    """
    configuration = configure(flags)
    with data_output() as data:
        _check_plan(configuration, data, plan, inputs, html, strict=strict, shows_flow=flow, as_json=as_json)


def _check_plan(
    configuration: Configuration,
    data: Data,
    plan: str,
    inputs: tuple[str, ...],
    html: str | None,
    *,
    strict: bool,
    shows_flow: bool,
    as_json: bool,
) -> None:
    from dagrun.advice.open_questions import open_questions, question_problems
    from dagrun.advice.shape_advice import shape_advice
    from dagrun.cli.setup.plans import load_plan, read_inputs
    from dagrun.cli.setup.secrets import names_of_secrets
    from dagrun.cli.setup.tool_modules import load_toolbox
    from dagrun.kernel.checks.check_plan import find_problems

    input_values = read_inputs(inputs) if inputs else None
    policy = configuration.limits().policy
    toolbox = load_toolbox(configuration)
    read = load_plan(plan, toolbox)
    secrets = names_of_secrets(configuration)
    problems, checked = find_problems(read, toolbox, policy, inputs=input_values, secrets=secrets)
    problems += shape_advice(checked) if checked is not None else ()
    if html is not None:
        _draw(html, read, problems)
    wants_flow = shows_flow or (strict and policy.flow is not None and bool(policy.flow.endorse))
    table = _flow_table(read, toolbox, policy, inputs=input_values, secrets=secrets) if wants_flow else None
    has_policy = configuration.settings.policy is not None
    questions = open_questions(checked) if checked is not None and has_policy else None
    faults = problems + question_problems(questions or {})
    if checked is None or (strict and faults):
        if table is not None and not as_json:
            _tell_flow(data, table, policy, shows_all=shows_flow)
        raise PlanRefused(fault for fault in faults if strict or not fault.is_advice)
    if as_json:
        data.json(_as_dict(len(read.steps), problems, questions, table))
        return
    _tell(data, plan, len(read.steps), problems, questions or {})
    if table is not None:
        _tell_flow(data, table, policy, shows_all=shows_flow)


def _flow_table(plan: Plan, toolbox: Toolbox, policy: Policy, **facts: Any) -> FlowTable | None:
    """Return the table of the trust boundary; `None` if the plan has problems of other kinds."""
    from dagrun import Flow
    from dagrun.advice.flow_table import flow_table
    from dagrun.kernel.checks.check_plan import find_problems

    _, checked = find_problems(plan, toolbox, policy.model_copy(update={"flow": None}), **facts)
    return None if checked is None else flow_table(checked, policy.flow or Flow())


def _tell_flow(data: Data, table: FlowTable, policy: Policy, *, shows_all: bool) -> None:

    width, is_preview = columns_of(sys.stdout), policy.flow is None
    data.text("\n".join(flow_lines(table, width, is_preview=is_preview) if shows_all else endorsement_lines(table)))


def _draw(file: str, plan: Plan, problems: tuple[Problem, ...]) -> None:
    from dagrun.cli.records.output_files import ReportFile
    from dagrun.observe.view.document import plan_view

    ReportFile(file, "html", option="--html").write(plan_view(plan, problems))


def _as_dict(
    steps: int, problems: tuple[Problem, ...], questions: Questions | None, table: FlowTable | None
) -> dict[str, Any]:
    listed = [problem.as_dict() for problem in problems]
    shown: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "status": "ok", "steps": steps, "problems": listed}
    if questions is not None:
        shown["questions"] = {key: list(steps_of) for key, steps_of in questions.items()}
    return shown if table is None else shown | {"flow": table.as_dict()}


def _tell(data: Data, plan: str, steps: int, advice: tuple[Problem, ...], questions: Questions) -> None:
    from dagrun.advice.open_questions import question_text
    from dagrun.observe.line_breaks import wrap_words

    count = f"{len(advice)} piece{'s' * (len(advice) != 1)} of advice" if advice else "nothing to say"
    lines = [f"{plan}: {steps} step{'s' * (steps != 1)}, {count}", *(f"  {problem}" for problem in advice)]
    shown = bounded(lines, MAX_LINES, lambda more: f"  … and {more} more (--json has them all)")
    data.text(printable("\n".join(shown)))
    if questions:
        width = max(columns_of(sys.stdout), _MIN_WIDTH)
        told = [line for each in questions.items() for line in wrap_words(question_text(*each), width, "  ", "    ")]
        data.text("\n".join(["", "Nobody has answered", *told]))


_HEAD: Final = ("step", "argument", "made of", "way", "verdict")
_MAX_ROWS: Final = 200
_PREVIEW: Final = (
    "The policy has no [flow], so a run computes nothing of this; it is shown as an empty [flow] would have it."
)


def flow_lines(table: FlowTable, width: int, *, is_preview: bool) -> list[str]:
    """Return the table in lines of at most *width* characters, where that can be.

    Args:
        table: The table.
        width: The columns of the terminal.
        is_preview: Whether the policy has no trust boundary.
    """
    asked = sum(row.verdict != "passes" for row in table.rows)
    head = f"Trust boundary: {len(table.rows)} guarded argument{'s' * (len(table.rows) != 1)}, {asked} not accepted"
    lines = ["", *([*wrap(_PREVIEW, max(width, 20)), ""] if is_preview else ()), head]
    if table.rows:
        lines += ["", *_rows(table.rows, width)]
    return [*lines, *endorsement_lines(table)]


def endorsement_lines(table: FlowTable) -> list[str]:
    """Return the endorsements that the policy makes in the plan, and their effect; nothing without any."""
    if not table.endorsed:
        return []
    count, passes = len(table.endorsed), table.passes_by_endorsement
    named = visible(", ".join(table.endorsed[:10]))
    return [
        "",
        f"The policy endorses {count} tool{'s' * (count != 1)} of the plan, so that {passes} more pass: {named}",
    ]


def _rows(rows: Sequence[FlowRow], width: int) -> list[str]:
    cells = [_cells(row) for row in rows]
    lines = columns(cells, head=_HEAD).splitlines()
    if max(map(len, lines)) > width:
        lines = [line for row in cells for line in _paragraph(row)]
    return bounded(lines, _MAX_ROWS, lambda more: f"… and {more} more lines (--json has them all)")


def _paragraph(cells: tuple[str, ...]) -> Iterator[str]:
    step, argument, made_of, way, verdict = map(visible, cells)
    yield f"{step} {argument}: {verdict}"
    yield f"  made of {made_of}"
    if way:
        yield f"  by way of {way}"


def _cells(row: FlowRow) -> tuple[str, ...]:
    place = row.place.removeprefix("args.") if row.place != "tool" else "(its own calls)"
    verdict = row.verdict if not row.code else f"{row.verdict} ({row.code})"
    return row.step, f"{place} of {row.tool}", ", ".join(row.sources), row.way, verdict
