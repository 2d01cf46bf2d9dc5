"""The settings of the command line, and their allowed values.

Data from outside is checked by pydantic elsewhere. Settings are not, because every command reads them, and to load
pydantic takes longer than all that ``dagrun runs`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from dagrun.cli.setup import setting_checks
from dagrun.cli.setup.toml_files import fault_lines
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.journal.base import without_password

if TYPE_CHECKING:
    from dagrun.llm.prices import Price

Mode = Literal["parallel", "waves", "sequential"]
Api = Literal["auto", "responses", "chat"]
Structure = Literal["auto", "schema", "tool", "json"]
Dialect = Literal["json", "lean", "compiler", "calls"]
Level = Literal["process", "power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings that a settings file may have.

    Attributes:
        tools: Sources of tools: ``module`` or ``module:name``.
        openapi: Services whose tools plans may call, by name: each a table with the *file* of its OpenAPI document, and
            *base_url*, *secret*, *include*, *effects*, *prefix*, *network*, *check_answers*, *timeout*
            and *untrusted*.
        mcp_files: Files that name MCP servers whose tools plans may call, as Claude, Cursor and VS Code read them.
        mcp_pins: The lock file that tools of MCP servers are held to; ``dagrun mcp pin`` writes it.
        mcp: What holds for MCP servers, by name: each a table with *trust*, *allow*, *errors*, *timeout*,
            *max_running* and *effects*.
        deps: What makes the dependencies of the tools: ``module:name`` of a function or a context manager.
        policy: The limits of runs: the path of a TOML file, or the limits themselves.
        max_running: Steps that run at once; if the policy has a limit, too, the lower one holds.
        mode: How steps are scheduled.
        output: The folder for the files that a run leaves.
        runs: The folder of the records of runs.
        journal: The database of the records of runs, instead of a folder: ``postgresql://user@host/database``.
        artifacts: The folder for the files of runs whose records are in a database, shared by all that carry out runs.
        durability: The failure that a record survives: the end of the process, or a power cut.
        expires_after: Days after which the record of a run may be deleted.
        secrets: Sources of secrets: ``NAME=env:VARIABLE``, ``NAME=file:PATH``, or ``NAME`` for the variable ``NAME``.
        planner: The planner: openai, anthropic, stepwise, ensemble, person, or ``module:name``; or several with commas
            between them, a fallback chain, where one of ours may name its model: ``openai=gpt-5``.
        model: The language model that the planner asks; of an ensemble, the strong one.
        fast_model: The model that an ensemble asks first.
        base_url: The address of the server of the model, if it is not the provider's own.
        api: The interface of the server.
        structure: How the model is made to answer in the wanted form.
        dialect: How the model writes plans.
        max_output_tokens: The longest answer, in tokens.
        instructions: Instructions to the model about your domain and good plans, in your own words.
        constraints: What every plan must keep, a sentence each.
        prompts: Texts that replace dagrun's, by name; ``dagrun plan --show-prompt --texts`` prints them.
        prices: The prices of models, by their names.
    """

    tools: Sequence[str] = ()
    openapi: Mapping[str, Any] = field(default_factory=dict)
    mcp_files: Sequence[str] = ()
    mcp_pins: str | None = None
    mcp: Mapping[str, Any] = field(default_factory=dict)
    deps: str | None = None
    policy: str | dict[str, Any] | None = None
    max_running: int | None = None
    mode: Mode = "parallel"
    output: str | None = None
    runs: str | None = None
    journal: str | None = None
    artifacts: str | None = None
    durability: Level = "process"
    expires_after: float | None = None
    secrets: Sequence[str] = ()
    planner: str | None = None
    model: str | None = None
    fast_model: str | None = None
    base_url: str | None = None
    api: Api = "auto"
    structure: Structure = "auto"
    dialect: Dialect = "json"
    max_output_tokens: int | None = None
    instructions: str | None = None
    constraints: Sequence[str] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON, those that cannot be read included: for people to look at."""
        values = {name: object.__getattribute__(self, name) for name in SETTINGS}
        plain = {name: price.model_dump(mode="json") for name, price in values["prices"].items()}
        values |= {"constraints": list(values["constraints"]), "prompts": dict(values["prompts"])}
        values |= {"openapi": dict(values["openapi"]), "mcp": dict(values["mcp"])}
        values |= {"mcp_files": list(values["mcp_files"])}
        values["journal"] = values["journal"] and without_password(values["journal"])
        return values | {"tools": list(values["tools"]), "secrets": list(values["secrets"]), "prices": plain}


SETTINGS: Final = tuple(one.name for one in fields(Settings))


def _prices(value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield "", "input should be a table"


_CHECKS: Final[Mapping[str, setting_checks.Check]] = {
    "tools": setting_checks.texts,
    "openapi": setting_checks.table_of_tables,
    "mcp_files": setting_checks.texts,
    "mcp_pins": setting_checks.text,
    "mcp": setting_checks.table_of_tables,
    "deps": setting_checks.text,
    "policy": setting_checks.text_or_table,
    "max_running": setting_checks.count,
    "mode": setting_checks.one_of("parallel", "waves", "sequential"),
    "output": setting_checks.text,
    "runs": setting_checks.text,
    "journal": setting_checks.database,
    "artifacts": setting_checks.text,
    "durability": setting_checks.one_of("process", "power"),
    "expires_after": setting_checks.positive,
    "secrets": setting_checks.names_of_secrets,
    "planner": setting_checks.text,
    "model": setting_checks.text,
    "fast_model": setting_checks.text,
    "base_url": setting_checks.address,
    "api": setting_checks.one_of("auto", "responses", "chat"),
    "structure": setting_checks.one_of("auto", "schema", "tool", "json"),
    "dialect": setting_checks.one_of("json", "lean", "compiler", "calls"),
    "max_output_tokens": setting_checks.count,
    "instructions": setting_checks.text,
    "constraints": setting_checks.texts,
    "prompts": setting_checks.table_of_texts,
    "prices": _prices,
}


def checked(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return settings by name, with prices as `Price`.

    Args:
        given: What a file, the environment or the command line says.
        source: Where that was read, for people.

    Raises:
        BadInput: Settings do not fit; the error has a line for each fault.
    """
    faults: list[str] = []
    for name, value in given.items():
        if name not in _CHECKS:
            faults.append(f"{source}: unknown field {_named_like(name)}")
        else:
            faults += [f"{source}: {name}{place}: {fault}" for place, fault in _CHECKS[name](value)]
    if faults:
        raise BadInput(*faults)
    prices = given.get("prices")
    return dict(given) if not prices else {**given, "prices": _read_prices(prices, source)}


def _named_like(name: str) -> str:
    from dagrun.errors import shorten
    from dagrun.model.toolbox import hint

    return f"{shorten(name, 100)}{hint(name, SETTINGS)}"


def services_given(files: Sequence[str], include: Sequence[str], url: str | None) -> dict[str, dict[str, Any]]:
    """Return the tables of settings for the ``--openapi`` options.

    Args:
        files: The values of ``--openapi``: ``FILE``, or ``NAME=FILE``.
        include: The values of ``--include``.
        url: The value of ``--openapi-url``.

    Raises:
        BadInput: Two services have one name, or there is none for the other options.
    """
    if not files:
        if include or url:
            raise BadInput(
                f"{'--include' if include else '--openapi-url'} is for a document: name it by --openapi FILE"
            )
        return {}
    if url and len(files) > 1:
        raise BadInput("--openapi-url is for one document; several have a table [openapi.NAME] each in dagrun.toml")
    shared = ({"include": list(include)} if include else {}) | ({"base_url": url} if url else {})
    tables: dict[str, dict[str, Any]] = {}
    for text in files:
        name, sign, file = text.partition("=")
        is_named = bool(sign) and name.isidentifier()
        key = name if is_named else text
        if key in tables:
            raise BadInput(f"--openapi {key} is given twice")
        prefix = {} if is_named else {"prefix": ""}
        tables[key] = {"file": file if is_named else text, **prefix, **shared}
    return tables


def _read_prices(given: Mapping[str, Any], source: str) -> dict[str, Price]:
    from pydantic import ValidationError

    from dagrun.llm.prices import Price

    prices: dict[str, Price] = {}
    faults: list[str] = []
    for model, its_fields in given.items():
        try:
            prices[model] = Price.model_validate(its_fields)
        except ValidationError as error:
            faults += fault_lines(error, f"{source}: prices.{model}", Price)
    if faults:
        raise BadInput(*faults)
    return prices
