"""The public functions: check a plan, run it, watch it run, and go on with it."""

from dagrun.api.checking import AnyPlan, Inputs, check
from dagrun.api.engine import Engine
from dagrun.api.options import RunOptions
from dagrun.api.replaying import Replayed, replay
from dagrun.api.running import draft, resume, retry, run, run_sync, start

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
