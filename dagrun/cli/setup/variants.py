"""The ways that ``dagrun compare`` compares: tables of settings in a file, or the two that it takes without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from dagrun.cli.setup.planners import STEPWISE, load_model, make_planner, name_of
from dagrun.cli.setup.setting_fields import SETTINGS, checked
from dagrun.cli.setup.settings import Configuration, Origin, names_in
from dagrun.cli.setup.toml_files import check_fields, read_toml
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten
from dagrun.evaluate.comparison.variants import RunVariant
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.toolbox import hint

Made = TypeVar("Made")

AGENT: Final = "agent"
MAX_WAYS: Final = 20

# The settings that a way may have of its own; all others are those of the command.
FIELDS: Final = (
    "planner",
    "model",
    "fast_model",
    "base_url",
    "api",
    "structure",
    "dialect",
    "max_output_tokens",
    "instructions",
    "constraints",
    "prompts",
    "prices",
    "policy",
)


def read_ways(configuration: Configuration, file: str | None) -> dict[str, RunVariant]:
    """Return the variants of a file by name; without one, step by step and with a plan.

    Args:
        configuration: The settings that hold where a way has none of its own. Their tools are loaded already.
        file: A TOML file with a table for each way.

    Raises:
        BadInput: The file cannot be used, or there is nothing to compare.
    """
    if file is None:
        return _default_ways(configuration)
    path = Path(file)
    tables = read_toml(path)
    loose = [shorten(name, 60) for name, table in tables.items() if not isinstance(table, dict)]
    faults = [f"{path}: {name} is no table: a way is [NAME], with settings below it" for name in loose]
    if not 2 <= len(tables) <= MAX_WAYS:
        count = f"{len(tables)} way{'s' * (len(tables) != 1)}"
        faults.append(f"{path}: it has {count}, and 2 to {MAX_WAYS} can be compared: [NAME] begins one")
    if faults:
        raise BadInput(*faults)
    folder = path.absolute().parent
    return {name: _way(configuration, table, Origin(f"{path}: {name}", folder)) for name, table in tables.items()}


def _default_ways(configuration: Configuration) -> dict[str, RunVariant]:
    planner = name_of(configuration)
    if STEPWISE in names_in(planner):
        raise BadInput("the planner stepwise is the one that others are compared with: name two ways by --ways FILE")
    loop = partial(make_planner, configuration, STEPWISE)
    return {
        "loop": RunVariant(planner=loop, policy={"planning": {"brief": "full"}}),
        "plan": RunVariant(planner=partial(make_planner, configuration, planner)),
    }


def _way(configuration: Configuration, table: Mapping[str, Any], origin: Origin) -> RunVariant:
    if faults := [_fault(name, origin.name) for name in table if name not in FIELDS]:
        raise BadInput(*faults)
    values = checked(table, origin.name)
    policy = _policy(values.pop("policy", None), origin)
    if not values:  # it differs by its policy alone
        return RunVariant(policy=policy)
    own = replace(
        configuration,
        settings=replace(configuration.settings, **values),
        origins={**configuration.origins, **dict.fromkeys(values, origin)},
        address_for=values.get("planner") if "base_url" in values else configuration.address_for,
    )
    name = name_of(own)
    if name == AGENT:
        return RunVariant(agent=partial(_made, origin, load_model, own), policy=policy)
    return RunVariant(planner=partial(_made, origin, make_planner, own, name), policy=policy)


def _made(origin: Origin, make: Callable[..., Made], *arguments: Any) -> Made:
    """Make a planner or a model of a variant; its faults are reported for the variant, and not for an option."""
    try:
        return make(*arguments)
    except BadInput as error:
        raise BadInput(*(f"{origin.name}: {line}" for line in error.lines)) from error


def _fault(name: str, source: str) -> str:
    if name in SETTINGS:
        return f"{source}: {name} is not of a way: it is the same for all, and stands elsewhere"
    return f"{source}: unknown field {shorten(name, 60)}{hint(name, FIELDS)}"


def _policy(given: str | dict[str, Any] | None, origin: Origin) -> dict[str, Any]:
    """Return fields of a policy that can be used, from a table or a file."""
    fields, source = given or {}, f"{origin.name}: policy"
    if isinstance(fields, str):
        path = origin.folder / fields
        fields, source = read_toml(path), str(path)
    found = {name: value for name, value in fields.items() if name != "tools"}
    return check_fields(Policy, found, source).model_dump(exclude_unset=True)
