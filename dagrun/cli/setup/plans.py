"""Plans and inputs of the command line: read from files, put into a mode, printed in order, and written as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dagrun import CheckedPlan, Plan, PlanLimits, Step, Toolbox, read_plan
from dagrun.cli.setup.setting_fields import Mode
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, columns, to_json
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ValueRefused, hint, shorten
from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.waves import generations, in_waves
from dagrun.kernel.model.value import MAX_ARGUMENT_BYTES, encode

STDIN: Final = "-"


def load_plan(name: str, toolbox: Toolbox | None = None) -> Plan:
    """Read the plan in the file *name*; ``-`` means the standard input.

    Raises:
        PlanRefused: The plan cannot be read; every problem is in the error.
        BadInput: There is nothing to read, or a program in place of a plan.
    """
    if name != STDIN:
        if name.endswith(".py"):
            raise BadInput(
                f"{name} is a program, and a plan is a file of JSON or YAML; in Python, plan.to_yaml() writes one"
            )
        return read_plan(Path(name), toolbox=toolbox)
    data = sys.stdin.buffer.read(PlanLimits().max_bytes + 1) if sys.stdin is not None else b""
    if not data.strip():
        raise BadInput("there is no plan on the standard input")
    return read_plan(data, toolbox=toolbox, syntax=None if _is_json(data) else "yaml")


def _is_json(data: bytes) -> bool:
    """Whether a text without a name is JSON or numbered calls, which `read_plan` distinguishes, and not YAML."""
    from dagrun.plans.compiler_dialect import is_compiler_text

    text = data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    return text.startswith(("{", "[")) or is_compiler_text(text)


def as_written(part: Plan | Step) -> dict[str, Any]:
    """Return a plan or a step as plain JSON, without the fields that its author has left out."""
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True)


def plan_text(plan: Plan) -> str:
    """Return a plan as the text of a file."""
    return to_json(as_written(plan), indent=2) + "\n"


def scheduled(plan: CheckedPlan, mode: Mode) -> CheckedPlan:
    """Return *plan*, extended for *mode*; the engine is the same for all modes."""
    match mode:
        case "parallel":
            return plan
        case "waves":
            return in_waves(plan)
        case "sequential":
            return replace(plan, policy=plan.policy.model_copy(update={"max_running": 1}))


def show_order(plan: CheckedPlan, data: Data, *, as_json: bool) -> None:
    """Print the steps that would run, by generation: the steps of one wait only for steps of earlier ones."""
    waves = generations(plan)
    if as_json:
        steps = [_as_dict(plan.steps[id_], number) for number, wave in enumerate(waves, 1) for id_ in wave]
        data.json({"schema_version": SCHEMA_VERSION, "status": "dry_run", "steps": steps})
        return
    rows = [_row(plan.steps[id_], number) for number, wave in enumerate(waves, 1) for id_ in wave]
    data.text(columns(rows, head=("wave", "step", "tool", "effect", "limit", "waits for")))


def _row(step: CheckedStep, wave: int) -> tuple[str, ...]:
    tool = step.tool.name + (" (each)" if step.items is not None else "")
    limit = f"{step.timeout:g} s" if step.timeout is not None else "-"
    return str(wave), step.step.id, tool, str(step.tool.effect), limit, ", ".join(step.depends_on)


def _as_dict(step: CheckedStep, wave: int) -> dict[str, Any]:
    return {
        "wave": wave,
        "id": step.step.id,
        "tool": step.tool.name,
        "effect": str(step.tool.effect),
        "executor": step.executor,
        "timeout": step.timeout,
        "depends_on": list(step.depends_on),
    }


# Of a file, and of all inputs: the policy is asked when the run is started.
_LIMIT: Final = MAX_ARGUMENT_BYTES


def read_inputs(given: Sequence[str]) -> dict[str, Any]:
    """Return inputs by name, from texts of the form ``name=value``.

    A value that is JSON is read as JSON, any other as a text. ``@file`` stands for the contents of a file, and ``@@``
    begins a text that begins with ``@``.

    Raises:
        BadInput: Inputs cannot be used; the error has a line for each.
    """
    inputs: dict[str, Any] = {}
    faults: list[str] = []
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            faults.append(f"--input {shorten(text, 80)!r} has not the form name=value")
        elif name in inputs:
            faults.append(f"--input {shorten(name, 80)} is given twice")
        else:
            try:
                inputs[name] = _input_value(value)
            except (ValueRefused, OSError, UnicodeDecodeError) as error:
                faults.append(f"--input {shorten(name, 80)}: {_input_fault(error)}")
    if faults:
        raise BadInput(*faults)
    return _fitting_inputs(inputs)


def _fitting_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    try:
        encode(inputs, _LIMIT)
    except ValueRefused as error:
        raise BadInput(f"--input: all of them together: {error}") from None
    return inputs


def _input_value(text: str) -> Any:
    if text.startswith("@@"):
        return text[1:]
    if text.startswith("@"):
        text = _read_input(Path(text[1:]))
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueRefused("it is nested too deeply") from None
    except ValueError:  # not JSON, so a text: paths and names need no quotes
        value = text
    encode(value, _LIMIT)
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _read_input(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(_LIMIT + 1)
    if len(data) > _LIMIT:
        raise ValueRefused(f"{path} has more than {_LIMIT} bytes")
    return data.decode("utf-8-sig")


def _input_fault(error: Exception) -> str:
    match error:
        case OSError():
            return f"cannot read {error.filename}: {error.strerror}{_neighbour(str(error.filename))}"
        case UnicodeDecodeError():
            return f"the file is not text: byte {error.start} is not UTF-8"
        case _:
            return str(error)


def _neighbour(name: str) -> str:
    folder = Path(name).parent
    try:
        return hint(Path(name).name, [entry.name for entry in folder.iterdir()])
    except OSError:
        return ""
