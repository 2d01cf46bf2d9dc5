"""The public functions: check a plan, run it, watch it, resume or retry it, and replay it.

In: what the host program has (plans or goals, tools, options). Out: a checked plan, a `Run` to watch, or its result.
Open ``running.py`` first: `start` and `run`. ``engine.py`` puts a run together; ``record_opening.py`` and
``retrying.py`` do so from a record, whose tools ``tool_contracts.py`` compares with those of now; the options of a run
are listed in ``dagrun/kernel/runtime/run_options.py``.

This package runs no step and decides nothing: it checks what the host passes, and hands it to
``dagrun.kernel.runtime``. `replay` is in ``replaying.py`` alone, as runs do not need it. Modules have names in "-ing"
because the functions `check`, `resume` and `replay` would hide modules of these names.
"""

from typing import TYPE_CHECKING, Any

from dagrun.api.running import draft, resume, retry, run, run_sync, start
from dagrun.kernel.runtime.run_options import Inputs, RunOptions

if TYPE_CHECKING:
    from dagrun.api.checking import AnyPlan, check
    from dagrun.api.engine import Engine

__all__ = [
    "AnyPlan",
    "Engine",
    "Inputs",
    "RunOptions",
    "check",
    "draft",
    "resume",
    "retry",
    "run",
    "run_sync",
    "start",
]


def __getattr__(name: str) -> Any:
    """Load slow modules when their names are first used, as `run` and `start` are used in running loops."""
    if name in ("AnyPlan", "check"):
        from dagrun.api import checking

        return getattr(checking, name)
    if name == "Engine":
        from dagrun.api.engine import Engine

        return Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
