"""Watch ``dagrun do`` work with a real language model on this machine, without any network once it is set up.

    make demo-model [MODEL=qwen-1.5b] [GOAL="What is 17 plus 25?"]
    PYTHONPATH=benchmarks python -m real_model.demo [GOAL ...] [--model MODEL] [--cache FOLDER]

Sets the model up if need be (see ``prepare``), starts its server on loopback, and runs ``dagrun do`` for each goal with
the harmless tools of ``goals``. Without a goal of yours, it runs one, and then plans and runs twelve simple ones, and
prints for each whether the plan was valid, of any use, and right.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from real_model.goals import TWELVE
from real_model.models import DEFAULT, MODELS, SmallModel
from real_model.prepare import CACHE, HERE, CannotPrepare, prepare, say
from real_model.run_goals import show_goals
from real_model.serving import serving

GOAL: Final = "What are the total sales of the west?"
# The run failed, or its plan was refused: that is the model's doing. Anything else is ours.
ENDS: Final = {0: "succeeded", 1: "has failed", 3: "has got no plan that can be carried out", 4: "is over budget"}


def do(goal: str, model: SmallModel, url: str) -> int:
    """Run ``dagrun do`` for *goal* with the server at *url*; returns its exit code."""
    options = ("--model", model.name, "--tools", "real_model.goals", "--dialect", model.dialect)
    limits = ("--max-output-tokens", "256", "--policy", os.path.relpath(HERE / "policy.toml"))
    command = ["do", goal, "--base-url", url, *options, *limits]
    say(f"\n$ dagrun {shlex.join(command)}")
    # No key is needed on loopback, but the client insists on one; a real one must not go there.
    variables = os.environ | {"OPENAI_API_KEY": "none"}
    code = subprocess.run([sys.executable, "-m", "dagrun", *command], env=variables, check=False).returncode
    say(f"-> exit code {code}: the run {ENDS.get(code, 'did not end as it should')}")
    return code


def show(goals: list[str], model: SmallModel, cache: Path) -> int:
    """Set up, serve, and run each goal; returns the exit code."""
    prepared = prepare(model, cache)
    with serving(prepared, log=cache / "server.log") as url:
        say(f"It answers at {url}; what it does is in {cache / 'server.log'}.")
        codes = [do(goal, model, url) for goal in goals or [GOAL]]
        if not goals:
            say(f"\nTwelve simple goals, each planned and run, with --dialect {model.dialect}:\n")
            anyio.run(partial(show_goals, model, url, model.dialect, TWELVE, cache))
    say("\nThe server is stopped. All 24 goals, with each model: benchmarks/results/real_model.json")
    return next((code for code in codes if code not in ENDS), 0)


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description="Run dagrun with a small language model on this machine.")
    parser.add_argument("goals", nargs="*", metavar="GOAL", help="what is wanted; by default twelve simple things")
    parser.add_argument("--model", choices=list(MODELS), default=DEFAULT, help=f"by default {DEFAULT}")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="where the model and server are")
    options = parser.parse_args()
    try:
        return show(options.goals, MODELS[options.model], options.cache.resolve())
    except CannotPrepare as problem:
        say(str(problem))
        return 1


if __name__ == "__main__":
    sys.exit(main())
