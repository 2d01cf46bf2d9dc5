"""Loading modules for runs in a thread, because an import would block the host's loop.

Many modules are imported where they are first used, so that programs that never use them do not pay for them. In a
service, that is the first run with a list, a patch, a failure. So they are loaded by package: a module that is added to
one of them is covered, and a test counts what is still imported on the loop.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from threading import Lock
from typing import Final

_ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = ("kernel", "features", "plans", "journal", "executors", "model_tools", "api")
# The modules that they import in functions.
_OTHERS: Final = ("dagrun.codec", "networkx", "anyio._backends._asyncio", "anyio.streams.memory")
_EXTRAS: Final = ("dagrun.executors.ray", "dagrun.journal.postgres")  # loaded by code that uses them

OWN_LOOP: Final[ContextVar[bool]] = ContextVar("dagrun own loop", default=False)
"""Whether the loop was started for one run, so that nobody else waits while its modules are loaded."""

is_done = False
_lock: Final = Lock()


def preload() -> None:
    """Load every module that a run may need, so that no run of this process has to.

    Call it where a service starts, before its loop runs. It takes up to a second of CPU, and no time at all when it was
    called before. Without it, ``async with dagrun.Engine()`` and the first `dagrun.run` of a process do the same in a
    thread beside the loop. What belongs to an extra (MCP, OpenAPI, Ray, PostgreSQL, models) is loaded when it is named.
    """
    global is_done  # noqa: PLW0603 - modules belong to the process
    with _lock:
        names = [] if is_done else [*_names()]
        for name in names:
            with suppress(ImportError):  # of an extra that is not installed
                import_module(name)
        is_done = True


def _names() -> list[str]:
    found = [*_OTHERS, *(["anyio._backends._trio"] if "trio" in sys.modules else [])]
    for package in _PACKAGES:
        modules = walk_packages([str(_ROOT / package)], f"dagrun.{package}.")
        found += [module.name for module in modules if not module.name.startswith(_EXTRAS)]
    return found


async def preload_aside() -> None:
    """Call `preload` in a thread, unless the loop belongs to one run, or its clock would jump."""
    if OWN_LOOP.get():
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        if type(trio.lowlevel.current_clock()).__name__ != "MockClock":
            await trio.to_thread.run_sync(preload)
    else:
        if not getattr(loop, "jumps", False):
            await asyncio.to_thread(preload)
