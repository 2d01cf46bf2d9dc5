"""The dependencies of a run on the command line: made by a function of the user, and closed after the run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from dagrun.cli.setup.shared_servers import KeptServers
from dagrun.cli.setup.tool_modules import ConnectedToolbox, look_in
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, shorten
from dagrun.model.toolbox import Toolbox, import_target
from dagrun.runtime.backend import loop_options


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
            made = None if target is None else await _entered(target, stack)
        yield made
    finally:
        with redirect_stdout(sys.stderr):
            await stack.__aexit__(*sys.exc_info())


def loop_of(toolbox: Toolbox) -> dict[str, object]:
    """Return the options of `anyio.run` for a run: the loop with the open servers of its tools, if any.

    The run closes that loop at its end.
    """
    connections = toolbox.connections if isinstance(toolbox, ConnectedToolbox) else ()
    loops = (connection.loop for connection in connections if isinstance(connection, KeptServers))
    loop = next((loop for loop in loops if loop is not None), None)
    return loop_options() if loop is None else {"loop_factory": lambda: loop}


async def _entered(target: str, stack: AsyncExitStack) -> Any:
    try:
        made = _load(target)
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


def _load(target: str) -> Any:
    if not target.partition(":")[2]:
        raise BadInput(f"--deps {shorten(target, 100)}: name what is in the module, too: MODULE:NAME")
    look_in(Path.cwd(), target)
    try:
        return import_target(target)
    except ContractError as error:
        raise BadInput(f"--deps: {error}") from error
