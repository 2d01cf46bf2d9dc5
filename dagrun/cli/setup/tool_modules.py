"""The tools that ``--tools MODULE[:NAME]`` or the settings name, as a toolbox, and the dependencies that they get."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dagrun import Toolbox
from dagrun.cli.setup.settings import Configuration, Limits
from dagrun.cli.setup.toml_files import fault_lines
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, hint, shorten
from dagrun.kernel.model.tool import import_target

_NO_TOOLS = (
    'name the tools that the plan may call: --tools MODULE, DAGRUN_TOOLS=MODULE,… or tools = ["MODULE"] in dagrun.toml;'
    " or the OpenAPI document of a service: --openapi FILE; or MCP servers: --mcp FILE"
)


class ConnectedToolbox(Toolbox):
    """A toolbox with the connections that must be open while its tools are called.

    Args:
        boxes: The toolboxes that it is made of.
        connections: What is entered before the first call, and left after the last one.

    Attributes:
        connections: The same.
    """

    def __init__(self, boxes: Sequence[Toolbox], connections: Sequence[AbstractAsyncContextManager[Any]]) -> None:
        super().__init__(*boxes)
        self.connections = tuple(connections)


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
    if _is_path(source):
        module = Path(module).stem
    return module, module.partition(".")[0]


def load_toolbox(configuration: Configuration, *, or_installed: bool = False) -> Toolbox:
    """Import the tools that the configuration names.

    Modules that are not installed are looked for in the current directory, then in the folder of the file that names
    them.

    Args:
        configuration: The settings that hold.
        or_installed: Whether the tools of installed packages are used if no tools are named.

    Raises:
        BadInput: Modules cannot be imported, or have no tools; the error has a line for each.
    """
    sources = configuration.settings.tools
    if not names_tools(configuration) and not or_installed:
        raise BadInput(_NO_TOOLS)
    folder = configuration.origins["tools"].folder
    modules = [_module_of_file(source, folder) if _is_path(source) else source for source in sources]
    for module in modules:
        look_in(folder, module)
    with redirect_stdout(sys.stderr):  # a module may print while it is imported
        boxes = [_toolbox(modules)] if modules else []
        if configuration.settings.openapi:
            from dagrun.cli.setup.openapi_services import service_toolboxes

            boxes += service_toolboxes(configuration)
        if configuration.settings.mcp_files:
            from dagrun.cli.setup.mcp_servers import listed_servers

            servers, box = listed_servers(configuration)
            return _joined([*boxes, box], servers)
        return _joined(boxes) if boxes else _installed()


def names_tools(configuration: Configuration) -> bool:
    """Whether the settings name tools, of whatever kind."""
    settings = configuration.settings
    return bool(settings.tools or settings.openapi or settings.mcp_files)


def _is_path(source: str) -> bool:
    path = source.partition(":")[0]
    return path.endswith(".py") or "/" in path or os.sep in path or path in (".", "..")


def _module_of_file(source: str, folder: Path) -> str:
    """Make the module in the file *source* importable, and return ``module`` or ``module:name``.

    Raises:
        BadInput: There is no such file of Python, or another module has its name.
    """
    path, colon, name = source.partition(":")
    written, option = Path(path).expanduser(), f"--tools {shorten(source, 100)}"
    found = next((place / written for place in (Path.cwd(), folder) if (place / written).exists()), None)
    if found is None:
        raise BadInput(f"{option}: there is no such file")
    if found.is_dir() and not (found / "__init__.py").is_file():
        raise BadInput(f"{option}: it is a folder; name a file of Python in it")
    if found.is_file() and found.suffix != ".py":
        raise BadInput(f"{option}: it is no file of Python; tools are functions in a file that ends with .py")
    if not found.stem.isidentifier():
        raise BadInput(f"{option}: {found.stem} is no name of a module in Python; rename the file")
    parent = str(found.resolve().parent)
    if parent not in sys.path:
        sys.path.append(parent)  # last, so that no file there stands in for a library that dagrun imports
        importlib.invalidate_caches()
    spec = find_spec(found.stem)
    origin = Path(spec.origin).resolve() if spec is not None and spec.origin is not None else None
    if origin not in (found.resolve(), found.resolve() / "__init__.py"):
        raise BadInput(f"{option}: Python has another module {found.stem}; rename the file")
    return f"{found.stem}{colon}{name}"


def look_in(folder: Path, target: str) -> None:
    """Make Python look for a module that is not installed: in the current directory, then in *folder*.

    Both come last, so that no file there stands in for a library that dagrun imports; and if the module is installed,
    they are not searched at all.

    Args:
        folder: The folder of the file that names the module.
        target: ``module`` or ``module:name``.
    """
    name = _modules(target)[1]
    try:
        is_known = not name or name in sys.modules or find_spec(name) is not None
    except (ImportError, ValueError):
        is_known = False
    if not is_known:
        sys.path.extend(path for path in dict.fromkeys((str(Path.cwd()), str(folder))) if path not in sys.path)


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
    return _joined(boxes)


def _joined(boxes: Sequence[Toolbox], *connections: AbstractAsyncContextManager[Any]) -> Toolbox:
    if len(boxes) == 1 and not connections:
        return boxes[0]
    try:
        return ConnectedToolbox(boxes, connections) if connections else Toolbox(*boxes)
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
    if isinstance(error.__cause__, ModuleNotFoundError) and error.__cause__.name == source.partition(":")[0]:
        return f"{error}{hint(source, [file.stem for file in Path.cwd().glob('*.py')])}"
    return str(error)


def _place(error: BaseException) -> str:
    """Return the file and line of the tools that raised the error; empty if unknown, or in the error."""
    if isinstance(error, SyntaxError):  # the trace ends in the machinery of imports
        return ""
    trace, place = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith("<"):
            place = f" ({name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return place


@asynccontextmanager
async def opened_deps(target: str | None, toolbox: Toolbox) -> AsyncIterator[Any]:
    """Make the dependencies that ``--deps`` names, and close them after the body; and so with connections of tools.

    The target may be a function, async or not, or a class; or an object. What it returns is entered if it is a context
    manager, async or not: the dependencies are then what that gives.

    Args:
        target: ``module:name``; `None` for no dependencies.
        toolbox: The tools that are called in the body.

    Raises:
        BadInput: There is no such thing, or it raised an error.
    """
    connections = toolbox.connections if isinstance(toolbox, ConnectedToolbox) else ()
    if target is None and not connections:
        yield None
        return
    stack = AsyncExitStack()
    try:
        for connection in connections:
            await stack.enter_async_context(connection)
        with redirect_stdout(sys.stderr):  # the standard output is for the answer of the run
            made = None if target is None else await _entered_deps(target, stack)
        yield made
    finally:
        with redirect_stdout(sys.stderr):
            await stack.__aexit__(*sys.exc_info())


def loop_of(toolbox: Toolbox) -> dict[str, object]:
    """Return the options of `anyio.run` for a run: the loop with the open servers of its tools, if any.

    The run closes that loop at its end.
    """
    from dagrun.kernel.runtime.backend import loop_options

    connections = toolbox.connections if isinstance(toolbox, ConnectedToolbox) else ()
    if not connections:
        return loop_options()
    from dagrun.cli.setup.mcp_servers import KeptServers

    loops = (connection.loop for connection in connections if isinstance(connection, KeptServers))
    loop = next((loop for loop in loops if loop is not None), None)
    return loop_options() if loop is None else {"loop_factory": lambda: loop}


async def _entered_deps(target: str, stack: AsyncExitStack) -> Any:
    try:
        made = _load_deps(target)
        made = made() if callable(made) else made
        made = await made if inspect.isawaitable(made) else made
        if hasattr(made, "__aenter__"):
            return await stack.enter_async_context(made)
        return stack.enter_context(made) if hasattr(made, "__enter__") else made
    except BadInput:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {shorten(str(error))}"
        raise BadInput(f"--deps {shorten(target, 100)}: it cannot be made: {reason}") from error


def _load_deps(target: str) -> Any:
    if not target.partition(":")[2]:
        raise BadInput(f"--deps {shorten(target, 100)}: name what is in the module, too: MODULE:NAME")
    look_in(Path.cwd(), target)
    try:
        return import_target(target)
    except ContractError as error:
        raise BadInput(f"--deps: {error}") from error
