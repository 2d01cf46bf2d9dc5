"""Imports the tools that ``--tools MODULE[:NAME]`` or the settings name, as a toolbox."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from pydantic import ValidationError

from dagrun.cli.setup.settings import Configuration, Limits
from dagrun.cli.setup.toml_files import fault_lines
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, shorten
from dagrun.model.toolbox import Toolbox, hint

_NO_TOOLS = (
    'name the tools that the plan may call: --tools MODULE, DAGRUN_TOOLS=MODULE,… or tools = ["MODULE"] in dagrun.toml'
)


def configure_tools(configuration: Configuration, limits: Limits) -> None:
    """Pass the table ``tools`` of the policy, which has settings for the tools themselves, to their modules.

    A module takes it by a function ``configure(tables)``. The settings hold for runs that start afterwards.

    Raises:
        BadInput: No module takes the table, or the table has a fault.
    """
    if not limits.for_tools:
        return
    names = dict.fromkeys(part for source in configuration.settings.tools for part in _modules(source))
    hooks = [hook for name in names if callable(hook := getattr(sys.modules.get(name), "configure", None))]
    if not hooks:
        raise BadInput(f"{limits.source}: it has settings for tools, but none of these tools takes any")
    for hook in hooks:
        try:
            hook(limits.for_tools)
        except ValidationError as error:
            raise BadInput(*fault_lines(error, f"{limits.source}: tools")) from error
        except (ContractError, ValueError, TypeError) as error:
            raise BadInput(f"{limits.source}: tools: {error}") from error


def _modules(source: str) -> tuple[str, str]:
    """Return the module that a source names, and its top-level package."""
    module = source.partition(":")[0]
    return module, module.partition(".")[0]


def load_toolbox(configuration: Configuration, *, or_installed: bool = False) -> Toolbox:
    """Import the tools that the configuration names.

    Modules are looked for in the current directory first, then in the folder of the file that names them.

    Args:
        configuration: The settings that hold.
        or_installed: Whether the tools of installed packages are used if no tools are named.

    Raises:
        BadInput: Modules cannot be imported, or have no tools; the error has a line for each.
    """
    sources = configuration.settings.tools
    if not sources and not or_installed:
        raise BadInput(_NO_TOOLS)
    look_in(configuration.origins["tools"].folder)
    with redirect_stdout(sys.stderr):  # a module may print while it is imported
        return _toolbox(sources) if sources else _installed()


def look_in(folder: Path) -> None:
    """Make Python look for modules in the current directory first, then in *folder*."""
    for name in (str(folder), str(Path.cwd())):
        if sys.path[:1] != [name]:
            sys.path.insert(0, name)


def _toolbox(sources: Sequence[str]) -> Toolbox:
    boxes: list[Toolbox] = []
    faults: list[str] = []
    for source in sources:
        try:
            boxes.append(Toolbox(source))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  (a module may raise anything while it is imported)
            faults.append(_fault(source, error))
    if faults:
        raise BadInput(*faults)
    try:
        return Toolbox(*boxes)
    except ContractError as error:
        raise BadInput(str(error)) from error


def _installed() -> Toolbox:
    try:
        return Toolbox.from_entry_points()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BadInput(_fault("the tools of an installed package", error)) from error


def _fault(source: str, error: BaseException) -> str:
    if not isinstance(error, ContractError):
        return f"cannot import {shorten(source, 100)}: {type(error).__name__}: {shorten(str(error))}{_place(error)}"
    if source.endswith(".py") or "/" in source:
        return f"{error} (name the module as Python imports it, without folder and .py)"
    if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name == source.partition(":")[0]:
        return f"{error}{hint(source, [file.stem for file in Path.cwd().glob('*.py')])}"
    return str(error)


def _place(error: BaseException) -> str:
    """Return the file and line of the tools that the error came from; empty if it is not known."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith("<"):
            place = f" ({name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place
