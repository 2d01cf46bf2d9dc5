"""The settings of the command line, and their allowed values: each check yields the faults of a value in words.

Data from outside is checked by pydantic elsewhere. Settings are not, because every command reads them, and to load
pydantic takes longer than all that ``dagrun runs`` does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from dagrun.cli.setup.toml_files import fault_lines
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.journal.base import without_password

if TYPE_CHECKING:
    from dagrun.llm.prices import Price


# Yields a fault for each part of a value that does not fit: the place of the part in the value, and a sentence.
Check: TypeAlias = Callable[[Any], Iterator[tuple[str, str]]]

# The form of a secret in settings. A path may be anything; but what follows "env:" must be the name of a variable, as a
# user may write the value of the secret there by mistake. The name is as in `dagrun.kernel.model.secrets`, which
# would load pydantic; a test compares them.
NAME_PATTERN: Final = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_SECRET: Final = re.compile(rf"{NAME_PATTERN}(=env:[A-Za-z_][A-Za-z0-9_]{{0,199}}|=file:.{{1,1000}})?", re.ASCII)


def _text(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a text."""
    if not isinstance(value, str):
        yield "", "input should be a valid string"


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a list of texts."""
    if not isinstance(value, list):
        yield "", "input should be a valid list"
        return
    for place, part in enumerate(value):
        yield from ((f".{place}", fault) for _, fault in _text(part))


def _table_of_texts(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a table of texts."""
    if not isinstance(value, dict):
        yield "", "input should be a table"
        return
    for name, part in value.items():
        yield from ((f".{name}", fault) for _, fault in _text(part))


def _table_of_tables(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a table of tables, whose fields are checked where they are used."""
    if not isinstance(value, dict):
        yield "", "input should be a table"
        return
    for name, part in value.items():
        if not isinstance(part, dict):
            yield f".{name}", "input should be a table"


def _text_or_table(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a text or a table."""
    if not isinstance(value, str | dict):
        yield "", "input should be the path of a file, or a table"


def _count(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a whole number from 1."""
    if type(value) is not int:
        yield "", "input should be a valid integer"
    elif value < 1:
        yield "", "input should be greater than or equal to 1"


def _positive(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a number above 0."""
    if type(value) not in (int, float):
        yield "", "input should be a valid number"
    elif not math.isfinite(value):
        yield "", "input should be a finite number"
    elif value <= 0:
        yield "", "input should be greater than 0"


def _one_of(*choices: str) -> Check:
    """Return a check for one of *choices*."""
    *first, last = map(repr, choices)

    def check(value: Any) -> Iterator[tuple[str, str]]:
        if value not in choices:
            yield "", f"input should be {', '.join(first)} or {last}"

    return check


def _names_of_secrets(value: Any) -> Iterator[tuple[str, str]]:
    """Check the form of secrets. The fault does not show the text: it may be the secret itself, by mistake."""
    faults = list(_texts(value))
    yield from faults
    if not faults and not all(_SECRET.fullmatch(part) for part in value):
        yield (
            "",
            "write NAME=env:VARIABLE, NAME=file:PATH, or NAME for a variable of that name; a value never stands where"
            " others can read it, so change one that you have given so",
        )


def _database(value: Any) -> Iterator[tuple[str, str]]:
    """Check for the address of a database. The fault does not show it: there may be a password in it."""
    if not isinstance(value, str):
        yield from _text(value)
    elif not value.startswith(("postgresql://", "postgres://")):
        yield (
            "",
            "it must be an address that begins with postgresql://; for records in a folder there is the field runs",
        )


def _address(value: Any) -> Iterator[tuple[str, str]]:
    """Refuse an address with a password or a key in it, as ``config show`` and errors show the address."""
    if not isinstance(value, str):
        yield from _text(value)
        return
    try:
        parts = urlsplit(value)
    except ValueError as error:
        yield "", f"it is no address: {error}"
        return
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        yield "", "it must be an address that begins with http:// or https://"
    elif parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        yield "", "it must be an address and no more: keys and passwords go into the environment"


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


_CHECKS: Final[Mapping[str, Check]] = {
    "tools": _texts,
    "openapi": _table_of_tables,
    "mcp_files": _texts,
    "mcp_pins": _text,
    "mcp": _table_of_tables,
    "deps": _text,
    "policy": _text_or_table,
    "max_running": _count,
    "mode": _one_of(*get_args(Mode)),
    "output": _text,
    "runs": _text,
    "journal": _database,
    "artifacts": _text,
    "durability": _one_of(*get_args(Level)),
    "expires_after": _positive,
    "secrets": _names_of_secrets,
    "planner": _text,
    "model": _text,
    "fast_model": _text,
    "base_url": _address,
    "api": _one_of(*get_args(Api)),
    "structure": _one_of(*get_args(Structure)),
    "dialect": _one_of(*get_args(Dialect)),
    "max_output_tokens": _count,
    "instructions": _text,
    "constraints": _texts,
    "prompts": _table_of_texts,
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
    from dagrun.errors import hint, shorten

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
