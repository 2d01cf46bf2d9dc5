"""How often a very small model writes a plan that is valid, and one that is of any use.

    PYTHONPATH=benchmarks python -m real_model.run_goals [--ways WAY ...] [--goals COUNT] [--cache FOLDER] [--out FILE]

**What is measured.** Each goal of ``goals`` is planned and run once for each way to ask: JSON whose form the server
enforces (``schema``), the arguments of a tool that must be called (``tool``), JSON without an enforced form (``json``),
and lines of calls without any form (``compiler``). An answer has at most 384 tokens, or 128 as lines; else all is as it
is in ``dagrun do``, chance included: no two runs of this are alike. A plan that is refused goes back to the model once,
with what is wrong.

**How to read it.** *Valid*: dagrun's checker has taken the plan, and it was run. *Useful*: the run succeeded, no step
was left out, and the answer comes from a call of every tool that the goal needs. *Right*: besides, the answer holds
what it must. Each of the first two twice: *at once*, and with the repair call. *First step* is when the first step
started. The model is tiny, and the figures say how a planner behaves whose plans are mostly bad; about other models
they say nothing.

A full run writes ``results/real_model.json``; what was said, word by word, is in ``.model/answers-*.txt``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal

import anyio

import environment
from dagrun.llm.language_model import Structure
from dagrun.llm.openai_model import OpenAIModel
from dagrun.planners.model_planner import ModelPlanner
from dagrun.planners.prompt_texts import PROMPT_VERSION
from real_model.goals import GOALS, Goal
from real_model.measuring import POLICY, Overheard, Row, as_dict, measure
from real_model.prepare import CACHE, MODEL_FILE, MODEL_VERSION, SERVER_VERSION, CannotPrepare, prepare, say
from real_model.serving import CONTEXT, MODEL, serving

RESULTS: Final = Path(__file__).parent.parent / "results"

Way = Literal["schema", "tool", "json", "compiler"]
# Tokens, enough for a good plan of most of the goals: a model that has lost its way never comes to an end by itself.
MAX_OUTPUT: Final[dict[Way, int]] = {"schema": 384, "tool": 384, "json": 384, "compiler": 128}
STRUCTURES: Final[dict[Way, Structure]] = {"schema": "schema", "tool": "tool", "json": "json", "compiler": "schema"}


def planner_for(way: Way, url: str) -> tuple[ModelPlanner, Overheard]:
    """A planner that asks in one way, and its model."""
    model = Overheard(OpenAIModel(MODEL, base_url=url, api="chat", structure=STRUCTURES[way], api_key="none"))
    dialect: Literal["json", "compiler"] = "compiler" if way == "compiler" else "json"
    return ModelPlanner(model, dialect=dialect, max_output_tokens=MAX_OUTPUT[way]), model


async def run_all(way: Way, url: str, goals: Sequence[Goal], log: Path) -> AsyncGenerator[Row, None]:
    """Plan and run each goal in one way, and write down what was said."""
    planner, model = planner_for(way, url)
    with log.open("w") as said:
        for goal in goals:
            row = await measure(goal, planner, model.answers)
            for answer in model.answers:
                said.write(f"=== {goal.text} ({answer.seconds:.1f} s)\n{answer.asked}\n[answer]\n{answer.text}\n")
            said.write(f"--- {row}\n\n")
            said.flush()
            yield row


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'way':10}{'goals':>6} |{'valid:':>7}{'at once':>9}{'repaired':>9} |{'useful:':>8}{'at once':>9}{'repaired':>9} |"
    f"{'right':>6} |{'run':>8}{'first step':>12} |{'tokens: in':>11}{'out':>6}"
)


def summary_of(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows of one way in a few figures: counts, and medians of seconds and tokens."""
    return {
        "goals": len(rows),
        "valid_at_once": sum(row.is_valid_at_once for row in rows),
        "valid": sum(row.is_valid for row in rows),
        "useful_at_once": sum(row.is_useful_at_once for row in rows),
        "useful": sum(row.is_useful for row in rows),
        "right": sum(row.is_right for row in rows),
        "seconds": _median([row.seconds for row in rows]),
        "first_step": _median([row.first_step for row in rows]),
        "input_tokens": _median([row.input_tokens for row in rows]),
        "output_tokens": _median([row.output_tokens for row in rows]),
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 2) if known else None


def line_of(way: str, summary: dict[str, Any]) -> str:
    """One line of the table."""
    count = summary["goals"]

    def share(name: str) -> str:
        return f"{summary[name]}/{count}"

    def time(name: str) -> str:
        return "-" if summary[name] is None else f"{summary[name]:.1f} s"

    return (
        f"{way:10}{count:>6} |{'':7}{share('valid_at_once'):>9}{share('valid'):>9} |{'':8}{share('useful_at_once'):>9}"
        f"{share('useful'):>9} |{share('right'):>6} |{time('seconds'):>8}{time('first_step'):>12} |"
        f"{summary['input_tokens'] or '-':>11}{summary['output_tokens'] or '-':>6}"
    )


def surroundings() -> dict[str, Any]:
    """What was measured, where, and how; the times are those of a machine under the load that is told here."""
    here = environment.describe()
    here["versions"]["openai"] = version("openai")
    return {
        "environment": here | {"load_average": round(os.getloadavg()[1], 1)},
        "model": {"file": MODEL_FILE, "from": MODEL_VERSION, "server": SERVER_VERSION, "context_tokens": CONTEXT},
        "options": {
            "api": "chat",
            "prompt_version": PROMPT_VERSION,
            "temperature": None,
            "max_output_tokens": MAX_OUTPUT,
            "policy": POLICY.model_dump(mode="json", exclude_unset=True),
        },
    }


def write(facts: dict[str, Any], rows: dict[Way, list[Row]], path: Path) -> None:
    """Write figures and surroundings as JSON."""
    found = {
        "summary": {way: summary_of(these) for way, these in rows.items()},
        "goals": {way: [as_dict(row) for row in these] for way, these in rows.items()},
    }
    path.write_text(json.dumps(facts | found, indent=1, ensure_ascii=False) + "\n")


async def show(url: str, ways: Sequence[Way], goals: Sequence[Goal], cache: Path, out: Path | None) -> None:
    """Measure, say at once what was found, and write it to *out*."""
    facts, found = surroundings(), dict[Way, list[Row]]()
    for way in ways:
        found[way] = []
        async for row in run_all(way, url, goals, cache / f"answers-{way}.txt"):
            found[way].append(row)
            level = "right" if row.is_right else "useful" if row.is_useful else "valid" if row.is_valid else "-"
            say(f"{way:9} {level:7}{row.seconds:6.1f} s  {row.goal}  [{row.reason[:90]}]")
            if out is not None:  # now: a run that is interrupted must not have been for nothing
                write(facts, found, out)
    print(HEAD)
    for way, rows in found.items():
        print(line_of(way, summary_of(rows)))


def main() -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(description="Count the valid and the useful plans of a very small model.")
    parser.add_argument("--ways", nargs="+", choices=list(STRUCTURES), default=list(STRUCTURES), metavar="WAY")
    parser.add_argument("--goals", type=int, default=len(GOALS), metavar="COUNT", help="only the first of them")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="where the model and server are")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--out", type=Path, metavar="FILE", help="for the figures; by default only of a full run")
    options = parser.parse_args()
    goals, cache = GOALS[: options.goals], options.cache.resolve()
    is_full = len(goals) == len(GOALS) and set(options.ways) == set(STRUCTURES)
    out = options.out or (RESULTS / "real_model.json" if is_full else None)
    try:
        if options.url:
            anyio.run(partial(show, options.url, options.ways, goals, cache, out))
        else:
            with serving(prepare(cache), log=cache / "server.log") as url:
                anyio.run(partial(show, url, options.ways, goals, cache, out))
    except CannotPrepare as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
