"""From ``--tools MODULE[:NAME]`` to a toolbox."""

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
    """Hand what the policy says to the tools themselves (its table ``tools``) on to them.

    A module of tools takes it by a function ``configure(tables)``, which holds for the runs that are started next.

    Raises:
        BadInput: No module takes it, or it has a fault.
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
    """The module that a source names, and the package that it is in."""
    module = source.partition(":")[0]
    return module, module.partition(".")[0]


def load_toolbox(configuration: Configuration, *, or_installed: bool = False) -> Toolbox:
    """Import the tools that the configuration names.

    Modules are looked for in the current directory first, and in the folder of the file that names them.

    Args:
        configuration: The settings that hold.
        or_installed: Whether the tools of installed packages stand in where none are named.

    Raises:
        BadInput: Some of them cannot be imported, or hold no tools; all of those are in it.
    """
    sources = configuration.settings.tools
    if not sources and not or_installed:
        raise BadInput(_NO_TOOLS)
    look_in(configuration.origins["tools"].folder)
    with redirect_stdout(sys.stderr):  # a module may print while it is imported
        return _toolbox(sources) if sources else _installed()


def look_in(folder: Path) -> None:
    """Look for modules in the current directory first, and then in *folder*."""
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
    """Where in the tools the error came from."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith("<"):
            place = f" ({name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place
