"""``dagrun sim``: a plan that is simulated on a virtual clock; and its figures, as JSON, a table or a picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import floor, isfinite, log10
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagrun.cli.records.run_store import open_runs, wait
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, columns, columns_of, data_output, is_drawable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten
from dagrun.evaluate.intervals import Interval

if TYPE_CHECKING:
    from dagrun import Simulation, Variant
    from dagrun.evaluate.simulation.call_models import FailureModel


@command("sim")
def sim(*, plan: str, inputs: tuple[str, ...], **flags: Any) -> None:
    """Simulate many runs of PLAN on a virtual clock, and call no tool.

    The engine is the real one, so the whole policy applies: limits, retries, fallbacks, hedging, time limits, ceilings.
    Only the tools are replaced: the duration of a call is drawn from the recorded durations of real calls, or from
    --duration, and it fails at the rate of --fail. All variants get the same random draws, call by call, so that small
    differences between them show. Brackets are 95 % intervals.

    Examples:
      dagrun sim plan.json --tools my_tools
      dagrun sim plan.json --tools my_tools --duration 'fetch=lognorm(0.2,0.8)'
      dagrun sim plan.json --tools my_tools --fail fetch=0.02:timeout --person 60
      dagrun sim plan.json --tools my_tools --fail learned --fail fetch=0.1
      dagrun sim plan.json -t my_tools --vary max_running=2,4 --vary hedge=off,on

    Durations: 0.3 (seconds), uniform(LOW,HIGH), exp(MEAN), lognorm(MEDIAN,SIGMA).
    Failures: a part of the calls, and how they fail (by default: connection):
      timeout     the call does not come back
      connection  it breaks, and may have had its effect
      busy        the tool says that it cannot now
      refused     the tool says no for good
      bug         it raises anything else
    """
    configuration = configure(flags)
    with data_output() as data:
        simulate_plan(configuration, data, plan, inputs, flags)


T = TypeVar("T")

_LEARNED: Final = "learned"
_WORDS: Final[Mapping[str, Any]] = {"on": True, "off": False, "none": None}


def simulate_plan(
    configuration: Configuration, data: Data, plan: str, inputs: tuple[str, ...], flags: Mapping[str, Any]
) -> None:
    """Simulate a plan, and print the figures.

    Args:
        configuration: The settings that hold.
        data: Takes the figures.
        plan: The name of the file of the plan.
        inputs: The inputs, as typed.
        flags: The flags of the command line.

    Raises:
        BadInput: An option cannot be read, or the picture cannot be drawn.
        PlanRefused: The plan has problems.
        ContractError: It is not known how long a tool takes, or an option does not fit the plan.
    """
    from dagrun import simulate
    from dagrun.cli.commands.evaluate.bench import check_suffix
    from dagrun.cli.setup.plans import load_plan, read_inputs
    from dagrun.cli.setup.secrets import names_of_secrets
    from dagrun.cli.setup.tool_modules import load_toolbox
    from dagrun.extend import Durations
    from dagrun.kernel.checks.check_plan import check_plan

    plot = None if flags["plot"] is None else check_suffix(Path(flags["plot"]).absolute())
    options: dict[str, Any] = {
        "durations": _named("--duration", flags["durations"], str),
        "failures": _named("--fail", [text for text in flags["failures"] if text != _LEARNED], str),
        "items": _named("--items", flags["items"], _count),
        "outputs": _named("--returns", flags["returns"], _json),
        "costs": _named("--cost", flags["costs"], _amount),
        "vary": _named("--vary", flags["vary"], _values),
    }
    input_values = read_inputs(inputs)
    toolbox = load_toolbox(configuration)
    checked = check_plan(
        load_plan(plan, toolbox),
        toolbox,
        configuration.limits().policy,
        inputs=input_values,
        secrets=names_of_secrets(configuration),
    )
    with _progress() as on_variant:
        simulation = simulate(
            checked,
            inputs=input_values,
            runs=flags["repeat"],
            seed=flags["seed"],
            people=flags["people"],
            learned=Durations.from_dict(wait(open_runs(configuration).journal.durations)),
            learned_failures=_recorded_failures(configuration) if _LEARNED in flags["failures"] else None,
            on_variant=on_variant,
            **options,
        )
    if flags["as_json"]:
        data.json(as_dict(simulation, plan))
    else:
        data.text(table(simulation, plan, columns_of(sys.stdout)))
    if plot is not None:
        draw(simulation, plot)


def _recorded_failures(configuration: Configuration) -> dict[str, FailureModel]:
    from dagrun import failure_rates

    journal = open_runs(configuration).journal
    return wait(lambda: failure_rates(journal=journal))


@contextmanager
def _progress() -> Iterator[Callable[[Variant], None]]:
    """Show on a terminal how many variants have been simulated, in one line that is overwritten."""
    count, is_shown = 0, is_drawable(sys.stderr)

    def tell(variant: Variant) -> None:
        nonlocal count
        count += 1
        if is_shown and variant.name:
            click.echo(f"\r\x1b[K{count} simulated: {variant.name}", err=True, nl=False)

    try:
        yield tell
    finally:
        if is_shown and count:
            click.echo("\r\x1b[K", err=True, nl=False)


def _named(option: str, given: Sequence[str], read: Callable[[str], T]) -> dict[str, T]:
    """Return values by name, from texts of the form ``name=value``.

    Raises:
        BadInput: Some cannot be read; the error has a line for each.
    """
    found: dict[str, T] = {}
    faults = []
    for text in given:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not (name and sign and value):
            faults.append(f"{option} {shorten(text, 80)!r} has not the form name=value")
        elif name in found:
            faults.append(f"{option} {shorten(name, 80)} is given twice")
        else:
            try:
                found[name] = read(value)
            except ValueError as error:
                faults.append(f"{option} {shorten(name, 80)}: {error}")
    if faults:
        raise BadInput(*faults)
    return found


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"a number of elements is wanted, not {shorten(text, 40)!r}")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise ValueError(f"an amount of 0 or more is wanted, not {shorten(text, 40)!r}")
    return amount


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # as with inputs: texts need no quotes


def _values(text: str) -> list[Any]:
    from dagrun.evaluate.simulation.simulation import MAX_VARIANTS

    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_VARIANTS:
        raise ValueError(f"{len(parts)} values are over the limit of {MAX_VARIANTS}")
    return [_WORDS[part] if part in _WORDS else _json(part) for part in parts]


_MOST_CRITICAL: Final = 5
_MOST_DRAWN: Final = 10  # lines of a picture that can still be told apart


def as_dict(simulation: Simulation, plan: str) -> dict[str, Any]:
    """Return all figures as plain JSON; times are in seconds."""
    return {"schema_version": SCHEMA_VERSION, "status": "succeeded", "plan": plan, **simulation.as_dict()}


def table(simulation: Simulation, plan: str, width: int) -> str:
    """Return the figures as a text for people."""
    lines = [_title(simulation, plan), "", *_figures(simulation)]
    if len(simulation.variants) > 1:
        lines += ["", *_differences(simulation)]
    lines.append("")
    for text in _remarks(simulation):
        lines += wrap(text, max(40, width - 2), subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _title(simulation: Simulation, plan: str) -> str:
    steps, variants = simulation.steps, len(simulation.variants)
    each = f" of each of {variants} variants" if variants > 1 else ""
    plural = "s" * (simulation.runs != 1)
    return (
        f"{plan}: {steps} step{'s' * (steps != 1)}, {simulation.runs:,} simulated run{plural}{each},"
        f" seed {simulation.seed}"
    )


def _figures(simulation: Simulation) -> list[str]:
    from dagrun.evaluate.simulation.simulation import SHOWN_QUANTILES

    has_cost = any(variant.cost is not None for variant in simulation.variants)
    is_varied = len(simulation.variants) > 1
    head = [*(f"p{q * 100:g} in seconds" for q in SHOWN_QUANTILES), "succeeded", "calls", *["cost"] * has_cost]
    rows = []
    for variant in simulation.variants:
        row = [f"{_number(variant.quantile(q))} ({_range(variant.interval(q))})" for q in SHOWN_QUANTILES]
        low, high = variant.success_interval
        row += [f"{variant.success:.1%} ({low:.1%} to {high:.1%})", f"{variant.calls / variant.runs:.1f}"]
        if has_cost:
            row.append("-" if variant.cost is None else f"{variant.cost / variant.runs:.4g}")
        rows.append([variant.name, *row] if is_varied else row)
    return columns(rows, head=["", *head] if is_varied else head).rstrip("\n").split("\n")


def _differences(simulation: Simulation) -> Iterator[str]:
    from dagrun.evaluate.simulation.simulation import SHOWN_QUANTILES

    first, *others = simulation.variants
    yield f"Against {first.name}, run by run:"
    rows = [
        [f"  {variant.name}", *(_verdict(variant.slower_than(first, q), q) for q in SHOWN_QUANTILES)]
        for variant in others
    ]
    yield from columns(rows).rstrip("\n").split("\n")


def _verdict(interval: Interval, q: float) -> str:
    low, high = interval
    if low > 0:
        return f"p{q * 100:g} {_range(interval)} s slower"
    if high < 0:
        return f"p{q * 100:g} {_range((-high, -low))} s faster"
    if not isfinite(low):
        return f"p{q * 100:g} too few runs"
    return f"p{q * 100:g} no difference" if low == high else f"p{q * 100:g} not known ({_range(interval)} s)"


def _remarks(simulation: Simulation) -> Iterator[str]:
    from dagrun import Status

    for variant in simulation.variants:
        yield _critical(variant)
        if variant.success < 1:
            counts = {str(status): count for status, count in sorted(variant.statuses.items())}
            counts.pop(str(Status.SUCCEEDED), None)
            ended = ", ".join(f"{count / variant.runs:.1%} {status}" for status, count in counts.items())
            yield f"Not succeeded{_with(variant)}: {ended}"
    yield "Durations: " + "; ".join(f"{name} {text}" for name, text in simulation.durations.items())
    if simulation.failures:
        yield "Failures: " + "; ".join(f"{name} {text}" for name, text in simulation.failures.items())
    yield "Taken for granted:"
    yield from (f"- {note}" for note in simulation.notes)


def _critical(variant: Variant) -> str:
    most = variant.critical.most_common(_MOST_CRITICAL)
    steps = ", ".join(f"{step} {count / variant.runs:.0%}" for step, count in most)
    more = len(variant.critical) - len(most)
    return f"Critical{_with(variant)}, in so many runs: {steps or 'no step'}" + (f"; and {more} more" if more else "")


def _with(variant: Variant) -> str:
    return f" with {variant.name}" if variant.name else ""


def _number(value: float) -> str:
    """Return a number with three digits that count, and no exponent."""
    digits = 2 if not value else min(6, max(0, 2 - floor(log10(abs(value)))))
    return f"{value:,.{digits}f}"


def _range(interval: Interval) -> str:
    low, high = interval
    if not isfinite(low):
        return f"up to {_number(high)}" if isfinite(high) else "too few runs"
    return f"{_number(low)} to {_number(high)}" if isfinite(high) else f"{_number(low)} or more"


def draw(simulation: Simulation, path: Path) -> None:
    """Draw the part of the runs that have ended, over time: a line for each variant.

    Raises:
        BadInput: The picture cannot be written.
    """
    from matplotlib.figure import Figure

    from dagrun.evaluate.simulation.simulation import SHOWN_QUANTILES

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for variant in simulation.variants[:_MOST_DRAWN]:
        parts = [(i + 1) / variant.runs for i in range(variant.runs)]
        axes.step(variant.ordered, parts, where="post", linewidth=1.5, label=variant.name or None)
    for q in SHOWN_QUANTILES:
        axes.axhline(q, color="#9ca3af", linewidth=0.6, linestyle="--")
        axes.annotate(f"p{q * 100:g}", (1.005, q), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axes.set_xlabel("makespan in seconds, simulated")
    axes.set_ylabel("part of the runs")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    if len(simulation.variants) > 1:
        more = len(simulation.variants) - _MOST_DRAWN
        axes.legend(loc="lower right", frameon=False, fontsize=8, title=f"{more} more not shown" if more > 0 else None)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from error
