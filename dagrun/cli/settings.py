"""The settings of the command line: from flags, the environment, the project's file and the user's, in this order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import click
from pydantic import BaseModel, ConfigDict, Field

from dagrun.cli.problems import BadInput
from dagrun.cli.toml_files import check_fields, read_toml
from dagrun.model.policy import Policy

Mode = Literal["parallel", "waves", "sequential"]


class Settings(BaseModel):
    """What a configuration file may say.

    Attributes:
        tools: Sources of tools: ``module`` or ``module:name``.
        policy: The limits of runs: a TOML file, or the limits themselves.
        max_running: Steps that run at once; with a policy, the lower limit holds.
        mode: How steps are scheduled.
        output: The folder for what a run leaves.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tools: list[str] = Field(default_factory=list)
    policy: str | dict[str, Any] | None = None
    max_running: Annotated[int, Field(ge=1)] | None = None
    mode: Mode = "parallel"
    output: str | None = None


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
    """The settings that hold, and where each of them comes from."""

    settings: Settings
    origins: Mapping[str, Origin]

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
_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "tools": lambda text: [part.strip() for part in text.split(",") if part.strip()],
    "policy": str,
    "max_running": lambda text: int(text) if text.strip().isdecimal() else text,
    "mode": str,
    "output": str,
}


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
    if "tools" in given:
        given["tools"] = list(given["tools"])
    layers = [
        (Origin("command line", here), given),
        (Origin("environment", here), _from_environment(environment)),
        *_files(here, environment),
    ]
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, Origin(_DEFAULT, here))
    for origin, fields in layers:
        settings = check_fields(Settings, fields, origin.name)
        for name in fields.keys() - values.keys():
            values[name], origins[name] = getattr(settings, name), _named(origin, name)
    return Configuration(Settings(**values), origins)


def _named(origin: Origin, name: str) -> Origin:
    return Origin(variable(name), origin.folder) if origin.name == "environment" else origin


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"DAGRUN_{name.upper()}"


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    return {name: parse(text) for name, parse in _PARSERS.items() if (text := environment.get(variable(name)))}


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
