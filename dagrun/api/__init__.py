"""The public functions: check a plan, run it, watch it run, and go on with it."""

from dagrun.api.checking import AnyPlan, check
from dagrun.api.engine import Engine
from dagrun.api.replaying import Replayed, replay
from dagrun.api.running import draft, resume, retry, run, run_sync, start
from dagrun.runtime.run_options import Inputs, RunOptions

__all__ = [
    "AnyPlan",
    "Engine",
    "Inputs",
    "Replayed",
    "RunOptions",
    "check",
    "draft",
    "replay",
    "resume",
    "retry",
    "run",
    "run_sync",
    "start",
]
