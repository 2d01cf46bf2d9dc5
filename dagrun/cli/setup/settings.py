"""The settings of the command line: from flags, the environment, the project's file and the user's, in this order."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import click
from pydantic import BaseModel, ConfigDict, Field, field_validator

from dagrun.cli.setup.toml_files import check_fields, read_toml
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.llm.prices import Price
from dagrun.model.policy import Policy
from dagrun.model.secrets.secret import NAME_PATTERN

Mode = Literal["parallel", "waves", "sequential"]
Api = Literal["auto", "responses", "chat"]
Structure = Literal["auto", "schema", "tool", "json"]
Dialect = Literal["json", "compiler"]
Level = Literal["process", "power"]

# A path may be anything; what is no variable must not pass for one, as it may be the secret itself.
_SECRET: Final = re.compile(rf"{NAME_PATTERN}(=env:[A-Za-z_][A-Za-z0-9_]{{0,199}}|=file:.{{1,1000}})?", re.ASCII)


class Settings(BaseModel):
    """What a configuration file may say.

    Attributes:
        tools: Sources of tools: ``module`` or ``module:name``.
        policy: The limits of runs: a TOML file, or the limits themselves.
        max_running: Steps that run at once; with a policy, the lower limit holds.
        mode: How steps are scheduled.
        output: The folder for what a run leaves.
        runs: The folder of the records of runs.
        durability: What a record survives that a run has gone on from: the end of the process, or a power cut.
        expires_after: Days after which the record of a run may be forgotten.
        secrets: Where secrets are: ``NAME=env:VARIABLE``, ``NAME=file:PATH``, or ``NAME`` for a variable of that name.
        planner: Who writes plans: openai, anthropic, stepwise, ensemble, or ``module:name``.
        model: The language model that the planner asks; of an ensemble, the strong one.
        fast_model: The model that an ensemble asks first.
        base_url: The address of its server, if that is not the provider's own.
        api: Which interface of the server is used.
        structure: How the model is made to answer in the form that is wanted.
        dialect: How it writes plans.
        max_output_tokens: The longest answer.
        prices: What models cost, by their names.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tools: list[str] = Field(default_factory=list)
    policy: str | dict[str, Any] | None = None
    max_running: Annotated[int, Field(ge=1)] | None = None
    mode: Mode = "parallel"
    output: str | None = None
    runs: str | None = None
    durability: Level = "process"
    expires_after: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    secrets: list[str] = Field(default_factory=list)
    planner: str | None = None
    model: str | None = None
    fast_model: str | None = None
    base_url: str | None = None
    api: Api = "auto"
    structure: Structure = "auto"
    dialect: Dialect = "json"
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    prices: dict[str, Price] = Field(default_factory=dict)

    @field_validator("secrets")
    @classmethod
    def _are_names(cls, given: list[str]) -> list[str]:
        """What is said about a fault does not show what was given: it may be the secret itself, by mistake."""
        if not all(_SECRET.fullmatch(text) for text in given):
            raise ValueError(
                "write NAME=env:VARIABLE, NAME=file:PATH, or NAME for a variable of that name; a value never stands"
                " where others can read it, so change one that you have given so"
            )
        return given

    @field_validator("base_url")
    @classmethod
    def _is_plain_address(cls, url: str | None) -> str | None:
        """An address is shown by ``config show`` and in errors, so nothing secret may stand in it."""
        parts = urlsplit(url or "http://none")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("it must be an address that begins with http:// or https://")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("it must be an address and no more: keys and passwords go into the environment")
        return url


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a setting comes from.

    Attributes:
        name: For people.
        folder: What its file names are relative to.
    """

    name: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings that hold, and where each of them comes from.

    Attributes:
        settings: The settings.
        origins: Where each of them comes from.
        address_for: The planner that is named where ``base_url`` is; `None` if none is named there.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    address_for: str | None = None

    def path(self, name: str) -> Path | None:
        """A setting that names a file or folder, relative to where it was set; `None` if it is not set."""
        value = getattr(self.settings, name)
        return self.origins[name].folder / value if isinstance(value, str) else None

    def limits(self) -> Limits:
        """The policy that holds, and what it says to the tools.

        Raises:
            BadInput: It cannot be read, or does not fit.
        """
        given, source = self.settings.policy, f"{self.origins['policy'].name}: policy"
        if isinstance(given, str):
            path = self.origins["policy"].folder / given
            given, source = read_toml(path), str(path)
        fields = dict(given or {})
        for_tools = fields.pop("tools", {})
        if not isinstance(for_tools, dict):
            raise BadInput(f"{source}: tools must be a table, for the settings of tools")
        policy = check_fields(Policy, fields, source)
        limits = [limit for limit in (policy.max_running, self.settings.max_running) if limit is not None]
        if limits:
            policy = policy.model_copy(update={"max_running": min(limits)})
        return Limits(policy, for_tools, source)


@dataclass(frozen=True, slots=True)
class Limits:
    """A policy file.

    Attributes:
        policy: The limits of the run.
        for_tools: Its table ``tools``: settings for the tools themselves, such as where they may connect to.
        source: Where they were read, for people.
    """

    policy: Policy
    for_tools: Mapping[str, Any]
    source: str


_DEFAULT: Final = "default"


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # the check says what is wrong with it


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "tools": _list,
    "policy": str,
    "max_running": lambda text: int(text) if text.strip().isdecimal() else text,
    "mode": str,
    "output": str,
    "runs": str,
    "durability": str,
    "expires_after": _number,
    "secrets": _list,
    "planner": str,
    "model": str,
    "fast_model": str,
    "base_url": str,
    "api": str,
    "structure": str,
    "dialect": str,
    "max_output_tokens": lambda text: int(text) if text.strip().isdecimal() else text,
}

ANTHROPIC: Final = "anthropic"

# The variables in which the libraries of providers look for the address of a server; by planner, the first for others.
PROVIDERS: Final[Mapping[str, str]] = {"": "OPENAI_BASE_URL", ANTHROPIC: "ANTHROPIC_BASE_URL"}


def configure(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Configuration:
    """Find out which settings hold.

    Args:
        flags: What the command line says; `None` and empty values say nothing.
        environment: The environment variables; by default those of this process.

    Raises:
        BadInput: A file or a variable cannot be used.
    """
    environment = os.environ if environment is None else environment
    here = Path.cwd()
    given = {name: value for name, value in flags.items() if name in Settings.model_fields and value}
    given |= {name: list(given[name]) for name in ("tools", "secrets") if name in given}
    layers = [
        (Origin("command line", here), given),
        (Origin("environment", here), _from_environment(environment)),
        *_files(here, environment),
    ]
    layers.insert(2, _from_provider(layers, here, environment))
    values: dict[str, Any] = {}
    address_for: str | None = None
    origins = dict.fromkeys(Settings.model_fields, Origin(_DEFAULT, here))
    for origin, fields in layers:
        settings = check_fields(Settings, fields, origin.name)
        if "base_url" in fields and "base_url" not in values:
            address_for = settings.planner
        for name in fields.keys() - values.keys():
            values[name], origins[name] = getattr(settings, name), _named(origin, name)
    return Configuration(Settings(**values), origins, address_for)


def _named(origin: Origin, name: str) -> Origin:
    return Origin(variable(name), origin.folder) if origin.name == "environment" else origin


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"DAGRUN_{name.upper()}"


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    return {name: parse(text) for name, parse in _PARSERS.items() if (text := environment.get(variable(name)))}


def _from_provider(
    layers: Sequence[tuple[Origin, Mapping[str, Any]]], here: Path, environment: Mapping[str, str]
) -> tuple[Origin, dict[str, Any]]:
    """The address that the environment names for the provider whose planner is asked."""
    planner = next((fields["planner"] for _, fields in layers if fields.get("planner")), "")
    name = PROVIDERS.get(str(planner), PROVIDERS[""])
    return Origin(name, here), {"base_url": url} if (url := environment.get(name)) else {}


def _files(here: Path, environment: Mapping[str, str]) -> list[tuple[Origin, dict[str, Any]]]:
    """The project's file, or the one that DAGRUN_CONFIG names; then the user's."""
    named = environment.get("DAGRUN_CONFIG")
    project = _read(Path(named)) if named else _find_project(here)
    user = Path(click.get_app_dir("dagrun")) / "config.toml"
    files = [project, _read(user) if user.is_file() else None]
    return [file for file in files if file is not None]


def _find_project(here: Path) -> tuple[Origin, dict[str, Any]] | None:
    """The nearest configuration from here up to the top of the checkout; outside of one, only the one that is here.

    A file further up may be anybody's: it says which code is imported.
    """
    tops = [folder for folder in (here, *here.parents) if (folder / ".git").exists()]
    folders = [here, *here.parents]
    for folder in folders[: folders.index(tops[0]) + 1] if tops else [here]:
        if (folder / "dagrun.toml").is_file():
            return _read(folder / "dagrun.toml")
        if (found := _read_pyproject(folder / "pyproject.toml")) is not None:
            return found
    return None


def _read(path: Path) -> tuple[Origin, dict[str, Any]]:
    return Origin(str(path), path.absolute().parent), read_toml(path)


def _read_pyproject(path: Path) -> tuple[Origin, dict[str, Any]] | None:
    if not path.is_file():
        return None
    try:
        fields = read_toml(path).get("tool", {}).get("dagrun")
    except (BadInput, AttributeError):
        return None  # whoever owns that file will hear of it from elsewhere
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise BadInput(f"{path}: tool.dagrun must be a table")
    return Origin(f"{path} [tool.dagrun]", path.absolute().parent), fields
