"""``dagrun compare``: golden tasks with several variants, run under ceilings, and reported also where interrupted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dagrun.cli.jobs.case_runs import host_of, quiet_logs, summary_file, tell
from dagrun.cli.setup.setting_fields import SETTINGS, checked
from dagrun.cli.setup.settings import Configuration, Origin, configure, names_in
from dagrun.cli.setup.toml_files import check_fields, read_toml
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import Data, columns_of, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import hint, shorten

if TYPE_CHECKING:
    from dagrun import RunVariant


@command("compare")
def compare(*, paths: tuple[str, ...], **flags: Any) -> int:
    """Run golden tasks with several variants, and compare success, time, tokens and cost.

    The cases of dagrun eval with a goal are run; cases with a plan are left out. Every variant runs each case with
    equal stubs and seeds, so runs are compared in pairs. For each two variants there is a verdict; where there is no
    difference, about how many runs would be needed to see one.

    Tools are stubs, unless a case names them as real: each run may call these, and they may only read.

    Examples:
      dagrun compare evals/ --model NAME
      dagrun compare evals/ --variants variants.toml --repeat 20 --max-cost 2
      dagrun compare evals/ --only refund-happy --variants variants.toml --json

    A file of variants has a table for each:
      [loop]                              # a step at a time
      planner = "stepwise"
      policy = {planning = {brief = "full"}}
      [agent]                             # no plan: one agent calls the tools
      planner = "agent"
      [plan]                              # a whole plan at once
      planner = "openai"
      model = "a-model"                   # and dialect, instructions, prompts, …
      [chain]
      planner = "my_routes:router,openai=a-fast-model,openai=a-model"

    Figures:
      success      everything is as the case expects it
      seconds      from the goal to the end; median of the runs that succeeded
      idle calls   calls that succeeded, in steps that nothing uses: neither the
                   answer, nor a step that is used, nor the case; they have no
                   effect, and no planner has decided anything after them
      early stops  the run says succeeded, and the answer, a step or a call that
                   is expected is not there

    Exit codes: 0 all runs were made, whatever they say; 2 wrong usage, or a file that cannot be used; 4 a ceiling has
    ended the comparison; 130 Ctrl-C has. What was found before is reported.
    """
    configuration = configure(flags)
    with data_output() as data:
        return compare_variants(configuration, data, paths, flags)


_INTERRUPTED: Final = "it was interrupted"


def compare_variants(configuration: Configuration, data: Data, paths: Sequence[str], flags: Mapping[str, Any]) -> int:
    """Carry out cases with several variants, report on them, and return the exit code.

    Args:
        configuration: The settings that hold.
        data: Takes the report.
        paths: The files and folders of cases.
        flags: The flags of the command line.

    Raises:
        CasesRefused: A file or a variant cannot be used; nothing was run.
        BadInput: The file of variants cannot be used, or there is no job to summarise.
    """
    from dagrun import Status
    from dagrun.evaluate.comparison.compare import Comparing
    from dagrun.evaluate.comparison.comparison_text import markdown_of, text_of

    summary = summary_file() if flags["github"] else None
    variants = read_variants(configuration, flags["variants"])
    comparing = Comparing(paths, variants, runs=flags["repeat"], only=flags["only"], host=host_of(configuration))
    comparison = comparing.comparison
    _announce(
        comparing.asking,
        comparing.judging,
        has_ceiling=flags["max_cost"] is not None or flags["max_tokens"] is not None,
    )
    _announce_real(*comparing.touching)
    code = 0
    try:
        with quiet_logs(is_quiet=not flags["verbose"]):
            comparing.carry_out(max_cost=flags["max_cost"], max_tokens=flags["max_tokens"], tell=tell)
        if comparison.stopped:
            code = Status.OVER_BUDGET.exit_code
    except KeyboardInterrupt:  # the runs before it were paid for
        comparison.stopped, code = _INTERRUPTED, Status.CANCELLED.exit_code
    tell("")
    if flags["as_json"]:
        data.json(comparison.as_dict() | {"exit_code": code})
    else:
        data.text(text_of(comparison, columns_of(sys.stdout)))
    if summary is not None:
        with summary.open("a", encoding="utf-8") as file:
            file.write(markdown_of(comparison))
    return code


def _announce(asking: int, judging: int, *, has_ceiling: bool) -> None:
    """Announce the runs that take real time and money."""
    ceiling = "" if has_ceiling else "; --max-cost and --max-tokens set a limit for all of them together"
    told = [f"{_runs(asking)} will ask a model"] if asking else []
    told += [f"a model will judge the answers of {_runs(judging)}"] if judging else []
    if told:
        click.echo(f"{' and '.join(told)}, in real time and at its real cost{ceiling}", err=True)


def _runs(number: int) -> str:
    return f"{number} run{'s' * (number != 1)}"


def _announce_real(touching: int, tools: Sequence[str]) -> None:
    """Announce the real tools that are called; all others are stubs."""
    if touching:
        click.echo(
            f"{_runs(touching)} may call real tools, as their cases want: {shorten(', '.join(tools), 300)}", err=True
        )


Made = TypeVar("Made")

AGENT: Final = "agent"
MAX_VARIANTS: Final = 20

# The settings that a variant may have of its own; all others are those of the command.
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


def read_variants(configuration: Configuration, file: str | None) -> dict[str, RunVariant]:
    """Return the variants of a file by name; without one, step by step and with a plan.

    Args:
        configuration: The settings that hold where a variant has none of its own. Their tools are loaded already.
        file: A TOML file with a table for each variant.

    Raises:
        BadInput: The file cannot be used, or there is nothing to compare.
    """
    if file is None:
        return _default_variants(configuration)
    path = Path(file)
    tables = read_toml(path)
    loose = [shorten(name, 60) for name, table in tables.items() if not isinstance(table, dict)]
    faults = [f"{path}: {name} is no table: a variant is [NAME], with settings below it" for name in loose]
    if not 2 <= len(tables) <= MAX_VARIANTS:
        count = f"{len(tables)} variant{'s' * (len(tables) != 1)}"
        faults.append(f"{path}: it has {count}, and 2 to {MAX_VARIANTS} can be compared: [NAME] begins one")
    if faults:
        raise BadInput(*faults)
    folder = path.absolute().parent
    return {name: _variant(configuration, table, Origin(f"{path}: {name}", folder)) for name, table in tables.items()}


def _default_variants(configuration: Configuration) -> dict[str, RunVariant]:
    from dagrun import RunVariant
    from dagrun.cli.setup.planners import STEPWISE, make_planner, name_of

    planner = name_of(configuration)
    if STEPWISE in names_in(planner):
        raise BadInput(
            "the planner stepwise is the one that others are compared with: name two variants by --variants FILE"
        )
    loop = partial(make_planner, configuration, STEPWISE)
    return {
        "loop": RunVariant(planner=loop, policy={"planning": {"brief": "full"}}),
        "plan": RunVariant(planner=partial(make_planner, configuration, planner)),
    }


def _variant(configuration: Configuration, table: Mapping[str, Any], origin: Origin) -> RunVariant:
    from dagrun import RunVariant
    from dagrun.cli.setup.planners import load_model, make_planner, name_of

    if faults := [_unknown_field(name, origin.name) for name in table if name not in FIELDS]:
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


def _unknown_field(name: str, source: str) -> str:
    if name in SETTINGS:
        return f"{source}: {name} is not of a variant: it is the same for all, and stands elsewhere"
    return f"{source}: unknown field {shorten(name, 60)}{hint(name, FIELDS)}"


def _policy(given: str | dict[str, Any] | None, origin: Origin) -> dict[str, Any]:
    """Return fields of a policy that can be used, from a table or a file."""
    from dagrun import Policy

    fields, source = given or {}, f"{origin.name}: policy"
    if isinstance(fields, str):
        path = origin.folder / fields
        fields, source = read_toml(path), str(path)
    found = {name: value for name, value in fields.items() if name != "tools"}
    return check_fields(Policy, found, source).model_dump(exclude_unset=True)
