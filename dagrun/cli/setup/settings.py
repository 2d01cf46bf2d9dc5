"""Settings of the command line: from flags, the environment, the project's file, then the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from dagrun.cli.setup.setting_fields import SETTINGS, Settings, checked, services_given
from dagrun.cli.setup.toml_files import check_fields, read_toml
from dagrun.cli.setup.trust import SettingsFile, close_to_tools, needs_trust, policy_needs_trust
from dagrun.cli.terminal.user_errors import BadInput

if TYPE_CHECKING:
    from dagrun import Policy


class UntrustedSettings(Settings):
    """Settings that partly come from an untrusted file: reading one of these is an error.

    So the one place that every command passes refuses them, and a command that does not use them is not disturbed.

    Args:
        settings: The settings.
        file: The file that is not trusted.
        names: The settings that come from it.
    """

    __slots__ = ("_file", "_names")

    def __init__(self, settings: Settings, file: SettingsFile, names: tuple[str, ...]) -> None:
        object.__setattr__(self, "_file", file)
        object.__setattr__(self, "_names", ())
        super().__init__(**{name: getattr(settings, name) for name in SETTINGS})
        object.__setattr__(self, "_names", names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the settings that cannot be read."""
        names: tuple[str, ...] = self._names
        return names

    def __getattribute__(self, name: str) -> Any:
        """Return an attribute.

        Raises:
            BadInput: It is a setting of a file that is not trusted; the error says which file, and what to do.
        """
        if name in SETTINGS and name in self._names:
            raise self._file.refusal(self._names)
        return super().__getattribute__(name)


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of a setting.

    Attributes:
        name: The source of the setting, for people.
        folder: The folder that its file names are relative to.
        is_project: Whether it is a file of the project, which the user has not named.
    """

    name: str
    folder: Path
    is_project: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings in effect, and the source of each.

    Attributes:
        settings: The settings.
        origins: The origin of each setting, by the name of the setting.
        address_for: The planner that is named in the same place as ``base_url``; `None` if none is named there.
        project: The file of the project, if it may have any author; `None` if there is none, or the user has named it.
    """

    settings: Settings
    origins: Mapping[str, Origin]
    address_for: str | None = None
    project: SettingsFile | None = None

    def path(self, name: str) -> Path | None:
        """Return a setting that is a path, relative to the folder of its origin; `None` if it is not set."""
        value = getattr(self.settings, name)
        return self.origins[name].folder / value if isinstance(value, str) else None

    @property
    def untrusted(self) -> tuple[str, ...]:
        """The names of the settings from an untrusted file; reading one is an error."""
        return self.settings.names if isinstance(self.settings, UntrustedSettings) else ()

    def limits(self) -> Limits:
        """Return the policy that holds, and its settings for tools.

        Raises:
            BadInput: The policy cannot be read, or does not fit.
        """
        from dagrun import Policy

        given, source = self.settings.policy, f"{self.origins['policy'].name}: policy"
        if isinstance(given, str):
            path = self.origins["policy"].folder / given
            given, source = read_toml(path), str(path)
            named = SettingsFile(path, given)
            if self.origins["policy"].is_project and policy_needs_trust(given) and not named.is_trusted:
                raise named.refusal(())
        limits_given = dict(given or {})
        for_tools = limits_given.pop("tools", {})
        if not isinstance(for_tools, dict):
            raise BadInput(f"{source}: tools must be a table, for the settings of tools")
        policy = check_fields(Policy, limits_given, source)
        limits = [limit for limit in (policy.max_running, self.settings.max_running) if limit is not None]
        if limits:
            policy = policy.model_copy(update={"max_running": min(limits)})
        return Limits(policy, for_tools, source)


@dataclass(frozen=True, slots=True)
class Limits:
    """The contents of a policy file.

    Attributes:
        policy: The limits of the run.
        for_tools: The table ``tools``: settings for the tools themselves, such as the hosts that they may connect to.
        source: Where the policy was read, for people.
    """

    policy: Policy
    for_tools: Mapping[str, Any]
    source: str


DEFAULT: Final = "default"
COMMAND_LINE: Final = "command line"
PYPROJECT: Final = "pyproject.toml"


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # the check of the settings reports it


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "tools": _list,
    "policy": str,
    "max_running": lambda text: int(text) if text.strip().isdecimal() else text,
    "mode": str,
    "output": str,
    "runs": str,
    "journal": str,
    "artifacts": str,
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
    "instructions": str,
}

ANTHROPIC: Final = "anthropic"

# The variables in which the libraries of providers look for the address of a server, by planner; "" is for all others.
PROVIDERS: Final[Mapping[str, str]] = {"": "OPENAI_BASE_URL", ANTHROPIC: "ANTHROPIC_BASE_URL"}


# Where the records of runs are: the nearest place that names one of these says so.
_PLACES: Final = frozenset(("runs", "journal"))


def names_in(planner: str) -> list[str]:
    """Return the names of planners in a setting: several, separated by commas, for a fallback chain."""
    return [part.partition("=")[0].strip() for part in planner.split(",")]


def configure(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Configuration:
    """Return the settings that hold.

    Args:
        flags: The flags of the command line; `None` and empty values are not set.
        environment: The environment variables; `None` for this process's.

    Raises:
        BadInput: A file or a variable cannot be used.
    """
    environment = os.environ if environment is None else environment
    close_to_tools()
    here = Path.cwd()
    given = {name: value for name, value in flags.items() if name in SETTINGS and value}
    given |= {name: list(given[name]) for name in ("tools", "mcp_files", "secrets") if name in given}
    if "journal" in given and "://" not in given["journal"]:  # a folder; more than one name of it is an error below
        _refuse_two_places(given, COMMAND_LINE)
        given["runs"] = given.pop("journal")
    if services := services_given(flags.get("openapi") or (), flags.get("include") or (), flags.get("openapi_url")):
        given["openapi"] = services
    files, project = _files(here, environment)
    layers = [
        (Origin(COMMAND_LINE, here), given),
        (Origin("environment", here), _from_environment(environment)),
        *files,
    ]
    layers.insert(2, _from_provider(layers, here, environment))
    values: dict[str, Any] = {}
    address_for: str | None = None
    origins = dict.fromkeys(SETTINGS, Origin(DEFAULT, here))
    for origin, found in layers:
        fitting = checked(found, origin.name)
        if "base_url" in fitting and "base_url" not in values:
            address_for = fitting.get("planner")
        _refuse_two_places(fitting, origin.name)
        is_placed = not _PLACES.isdisjoint(values)
        for name in fitting.keys() - values.keys() - (_PLACES if is_placed else set()):
            values[name], origins[name] = fitting[name], _named(origin, name)
    return _guarded(Configuration(Settings(**values), origins, address_for, project))


def _refuse_two_places(given: Mapping[str, Any], source: str) -> None:
    """Refuse two places for the records of runs.

    Raises:
        BadInput: There are two.
    """
    if given.keys() >= _PLACES:
        raise BadInput(f"{source}: runs and journal both say where the records are; name one")


def _guarded(configuration: Configuration) -> Configuration:
    """Return the configuration so that no setting of a file that is not trusted can be read."""
    project, settings, origins = configuration.project, configuration.settings, configuration.origins
    if project is None:
        return configuration
    names = (name for name, origin in origins.items() if origin.is_project)
    doubtful = tuple(name for name in names if needs_trust(name, project.fields[name], origins[name].folder))
    if not doubtful or project.is_trusted:
        return configuration
    return replace(configuration, settings=UntrustedSettings(settings, project, doubtful))


def _named(origin: Origin, name: str) -> Origin:
    return replace(origin, name=variable(name)) if origin.name == "environment" else origin


def variable(name: str) -> str:
    """Return the name of the environment variable of a setting."""
    return f"DAGRUN_{name.upper()}"


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    return {name: parse(text) for name, parse in _PARSERS.items() if (text := environment.get(variable(name)))}


def _from_provider(
    layers: Sequence[tuple[Origin, Mapping[str, Any]]], here: Path, environment: Mapping[str, str]
) -> tuple[Origin, dict[str, Any]]:
    """Return the address that the environment names for the provider of the planner."""
    planner = next((found["planner"] for _, found in layers if found.get("planner")), "")
    name = PROVIDERS[ANTHROPIC if ANTHROPIC in names_in(str(planner)) else ""]
    return Origin(name, here), {"base_url": url} if (url := environment.get(name)) else {}


_Layer: TypeAlias = tuple[Origin, dict[str, Any]]


def _files(here: Path, environment: Mapping[str, str]) -> tuple[list[_Layer], SettingsFile | None]:
    """Return the contents of the project's file, or of the file that DAGRUN_CONFIG names; then of the user's file.

    The other value is the project's file, unless the user has named it: then it is trusted like the user's own.
    """
    named = environment.get("DAGRUN_CONFIG")
    found = None if named else find_project(here)
    layers = [_read(Path(named))] if named else []
    if found is not None:
        name = f"{found.path} [tool.dagrun]" if found.path.name == PYPROJECT else str(found.path)
        origin = Origin(name, found.path.absolute().parent, is_project=True)
        layers.append((origin, dict(found.fields)))
    user = Path(click.get_app_dir("dagrun")) / "config.toml"
    if user.is_file():
        layers.append(_read(user))
    return layers, found


def project_folder(here: Path) -> Path:
    """Return the folder of the project: of the checkout or of the settings around *here*, or *here* itself.

    Runs belong together if they were started in the same project.
    """
    folders = [here, *here.parents]
    top = next((folder for folder in folders if (folder / ".git").exists()), None)
    if top is not None:
        return top
    found = next((folder for folder in folders if (folder / "dagrun.toml").is_file()), None)
    return here if found is None else found


def find_project(here: Path) -> SettingsFile | None:
    """Return the nearest settings file, from this folder up to the top of the checkout; without a checkout, only here.

    A settings file names code to import, and one further up may belong to another user.
    """
    tops = [folder for folder in (here, *here.parents) if (folder / ".git").exists()]
    folders = [here, *here.parents]
    for folder in folders[: folders.index(tops[0]) + 1] if tops else [here]:
        for name in ("dagrun.toml", PYPROJECT):
            if (found := read_settings(folder / name)) is not None:
                return found
    return None


def read_settings(path: Path) -> SettingsFile | None:
    """Return a file of settings, of ``pyproject.toml`` the table ``tool.dagrun``; `None` if there is none.

    Raises:
        BadInput: The file cannot be read.
    """
    if not path.is_file():
        return None
    fields = _read_pyproject(path) if path.name == PYPROJECT else read_toml(path)
    return None if fields is None else SettingsFile(path, fields)


def _read(path: Path) -> _Layer:
    return Origin(str(path), path.absolute().parent), read_toml(path)


def _read_pyproject(path: Path) -> dict[str, Any] | None:
    try:
        fields = read_toml(path).get("tool", {}).get("dagrun")
    except (BadInput, AttributeError):
        return None  # other programs that read the file will report it
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise BadInput(f"{path}: tool.dagrun must be a table")
    return fields
