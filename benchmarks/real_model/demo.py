"""Watch ``dagrun do`` work with a real language model on this machine, without any network once it is set up.

    make demo-model [GOAL="What is 17 plus 25?"]
    PYTHONPATH=benchmarks python -m real_model.demo [GOAL ...] [--cache FOLDER]

Sets the model up if need be (see ``prepare``), starts its server on loopback, runs ``dagrun do`` for each goal with the
harmless tools of ``goals``, and stops the server. The model is tiny: most of its plans are useless, and
``run_goals`` counts how many. What is to be seen is that dagrun refuses what is no plan, says why, and gives the model
a second chance.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

from real_model.prepare import CACHE, HERE, CannotPrepare, prepare, say
from real_model.serving import MODEL, serving

GOALS: Final = (
    "What is 17 plus 25?",
    "Get the sales of the north.",
    "What is the average of the sales in the south?",
)
OPTIONS: Final = (
    *("--model", MODEL, "--tools", "real_model.goals", "--max-output-tokens", "384"),
    *("--policy", os.path.relpath(HERE / "policy.toml")),
)
# The run failed, or its plan was refused: that is the model's doing. Anything else is ours.
ENDS: Final = {0: "succeeded", 1: "has failed", 3: "has got no plan that can be carried out", 4: "is over budget"}


def do(goal: str, url: str) -> int:
    """Run ``dagrun do`` for *goal* with the server at *url*; returns its exit code."""
    command = ["do", goal, "--base-url", url, *OPTIONS]
    say(f"\n$ dagrun {shlex.join(command)}")
    # No key is needed on loopback, but the client insists on one; a real one must not go there.
    variables = os.environ | {"OPENAI_API_KEY": "none"}
    return subprocess.run([sys.executable, "-m", "dagrun", *command], env=variables, check=False).returncode


def show(goals: list[str], cache: Path) -> int:
    """Set up, serve, and run each goal; returns the exit code."""
    prepared = prepare(cache)
    bad = 0
    with serving(prepared, log=cache / "server.log") as url:
        say(f"It answers at {url}; what it does is in {cache / 'server.log'}.")
        for goal in goals:
            code = do(goal, url)
            say(f"-> exit code {code}: the run {ENDS.get(code, 'did not end as it should')}")
            bad = bad or (code if code not in ENDS else 0)
    say("\nThe server is stopped. How often such a model plans well: benchmarks/results/real_model.json")
    return bad


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description="Run dagrun with a small language model on this machine.")
    parser.add_argument("goals", nargs="*", metavar="GOAL", help="what is wanted; by default three simple things")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="where the model and server are")
    options = parser.parse_args()
    try:
        return show(options.goals or list(GOALS), options.cache.resolve())
    except CannotPrepare as problem:
        say(str(problem))
        return 1


if __name__ == "__main__":
    sys.exit(main())
