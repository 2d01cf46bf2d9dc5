"""How often a small model writes a plan that is valid, and one that is of any use.

    PYTHONPATH=benchmarks python -m real_model.run_goals [--model MODEL] [--ways WAY ...] [--goals COUNT] [--out FILE]

**What is measured.** Each goal of ``goals`` is planned and run once for each way to ask: numbered calls with the prompt
for small models (``calls``) or that for large ones (``compiler``), and JSON whose form the server enforces, with the
calls alone (``lean``) or with every field (``json``). An answer has at most 256 tokens as lines, or 512 as JSON; else
all is as it is in ``dagrun do``. A plan that is refused goes back to the model once, with what is wrong. Except in
``calls``, whose first answer is at temperature 0, no two runs of this are alike.

**How to read it.** *Valid*: dagrun's checker has taken the plan, and it was run. *Useful*: the run succeeded, no step
was left out, and the answer comes from a call of every tool that the goal needs. *Right*: besides, the answer holds
what it must. Each of the first two twice: *at once*, and with the repair call. *First step* is when the first step
started.

Figures are written to ``results/real_model.json``, which keeps those of other models and ways; what was said, word by
word, is in ``.model/answers-*.txt``.
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
from typing import Any, Final

import anyio

import environment
from dagrun import ModelPlanner, OpenAIModel
from dagrun.planners.prompt_examples import Dialect
from dagrun.planners.prompt_texts import PROMPT_VERSION
from real_model.goals import GOALS, Goal
from real_model.measuring import POLICY, Overheard, Row, as_dict, measure
from real_model.models import DEFAULT, MODELS, SmallModel
from real_model.prepare import CACHE, SERVER_VERSION, CannotPrepare, prepare, say
from real_model.server import CONTEXT
from real_model.serving import serving

RESULTS: Final = Path(__file__).parent.parent / "results" / "real_model.json"

# Tokens, enough for a good plan of all goals: a model that has lost its way never comes to an end by itself.
MAX_OUTPUT: Final[dict[Dialect, int]] = {"calls": 256, "compiler": 256, "lean": 512, "json": 512}


def planner_for(model: SmallModel, way: Dialect, url: str) -> tuple[ModelPlanner, Overheard]:
    """A planner that asks in one way, and its model."""
    overheard = Overheard(OpenAIModel(model.name, base_url=url, api="chat", structure="schema", api_key="none"))
    return ModelPlanner(overheard, dialect=way, max_output_tokens=MAX_OUTPUT[way]), overheard


async def run_all(
    model: SmallModel, way: Dialect, url: str, goals: Sequence[Goal], log: Path
) -> AsyncGenerator[Row, None]:
    """Plan and run each goal in one way, and write down what was said."""
    planner, overheard = planner_for(model, way, url)
    with log.open("w") as said:
        for goal in goals:
            row = await measure(goal, planner, overheard.answers)
            for answer in overheard.answers:
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


async def show_goals(model: SmallModel, url: str, way: Dialect, goals: Sequence[Goal], cache: Path) -> list[Row]:
    """Plan and run each goal in one way, say at once what came of it, and print the line of the table."""
    rows: list[Row] = []
    async for row in run_all(model, way, url, goals, cache / f"answers-{model.name}-{way}.txt"):
        rows.append(row)
        level = "right" if row.is_right else "useful" if row.is_useful else "valid" if row.is_valid else "-"
        say(f"{way:9} {level:7}{row.seconds:6.1f} s  {row.goal}  [{row.reason[:90]}]")
    print(f"{HEAD}\n{line_of(way, summary_of(rows))}")
    return rows


def surroundings(model: SmallModel) -> dict[str, Any]:
    """What was measured, where, and how; the times are those of a machine under the load that is told here."""
    here = environment.describe()
    here["versions"]["openai"] = version("openai")
    named = {"title": model.title, "licence": model.licence, "sha256": model.sha256, "billions": model.parameters}
    return {
        "environment": here | {"load_average": round(os.getloadavg()[1], 1)},
        "model": named | {"server": SERVER_VERSION, "context_tokens": CONTEXT},
        "options": {
            "api": "chat",
            "prompt_version": PROMPT_VERSION,
            "max_output_tokens": MAX_OUTPUT,
            "policy": POLICY.model_dump(mode="json", exclude_unset=True),
        },
    }


def write(model: SmallModel, way: Dialect, rows: list[Row], path: Path) -> None:
    """Write the figures of one way, in place of older ones, and where they were measured."""
    found = json.loads(path.read_text()) if path.exists() else {}
    figures = {**surroundings(model), "summary": summary_of(rows), "goals": [as_dict(row) for row in rows]}
    found.setdefault(model.name, {})[way] = figures
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


async def run_ways(
    model: SmallModel, url: str, ways: Sequence[Dialect], goals: Sequence[Goal], *, cache: Path, out: Path | None
) -> None:
    """Measure each way, and write each to *out* when it is whole."""
    for way in ways:
        rows = await show_goals(model, url, way, goals, cache)
        if out is not None:
            write(model, way, rows, out)


def main() -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(description="Count the valid and the useful plans of a small model.")
    parser.add_argument("--model", choices=list(MODELS), default=DEFAULT)
    parser.add_argument("--ways", nargs="+", choices=list(MAX_OUTPUT), default=["calls"], metavar="WAY")
    parser.add_argument("--goals", type=int, default=len(GOALS), metavar="COUNT", help="only the first of them")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="FOLDER", help="where the model and server are")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--out", type=Path, metavar="FILE", help="for the figures; by default only of all goals")
    options = parser.parse_args()
    model, goals, cache = MODELS[options.model], GOALS[: options.goals], options.cache.resolve()
    out = options.out or (RESULTS if len(goals) == len(GOALS) else None)
    try:
        if options.url:
            anyio.run(partial(run_ways, model, options.url, options.ways, goals, cache=cache, out=out))
        else:
            with serving(prepare(model, cache), log=cache / "server.log") as url:
                anyio.run(partial(run_ways, model, url, options.ways, goals, cache=cache, out=out))
    except CannotPrepare as problem:
        say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
