"""A plan that ``dagrun sim`` simulates: from the options to the figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from dagrun.cli.jobs.bench_figures import check_suffix
from dagrun.cli.jobs.evaluate.sim_figures import as_dict, draw, table
from dagrun.cli.records.record_place import wait
from dagrun.cli.records.run_records import open_records
from dagrun.cli.setup.plans import load_plan, read_inputs
from dagrun.cli.setup.secrets import names_of_secrets
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.tool_modules import load_toolbox
from dagrun.cli.terminal.text import Data, columns_of, is_drawable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten
from dagrun.evaluate.simulation.call_models import FailureModel, failure_rates
from dagrun.evaluate.simulation.simulate import simulate
from dagrun.evaluate.simulation.simulation import MAX_VARIANTS, Variant
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.decide.durations import Durations

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
            learned=Durations.from_dict(wait(open_records(configuration).journal.durations)),
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
    journal = open_records(configuration).journal
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
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_VARIANTS:
        raise ValueError(f"{len(parts)} values are over the limit of {MAX_VARIANTS}")
    return [_WORDS[part] if part in _WORDS else _json(part) for part in parts]
