"""The public functions: check a plan, run it, and watch it run."""

from dagrun.api.checking import AnyPlan, Inputs, check
from dagrun.api.engine import Engine
from dagrun.api.options import RunOptions
from dagrun.api.running import draft, run, run_sync, start

__all__ = ["AnyPlan", "Engine", "Inputs", "RunOptions", "check", "draft", "run", "run_sync", "start"]
