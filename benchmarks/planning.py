"""What planning pays: goals like those of three data sets, from the question to the answer.

    python benchmarks/planning.py [--quick] [--gate] [--out FOLDER]

**What is measured.** A goal of each of the data sets that were published with LLMCompiler (two searches and a
comparison; eight searches and a choice; five searches and arithmetic), with all that a user waits for: the model that
plans, the searches, the model that answers. The models are a server on the loopback that takes its time; everything
else is real: HTTP, the reading and checking of plans, the engine, the clock. Four ways, in turn:

- *loop*: `StepwisePlanner`, one step a turn, as a ReAct loop has it. Its last turn is the answer.
- *plan, then run*: `dagrun.draft(…)`, and then `dagrun.run` of what it gave.
- *streamed*: `dagrun.run(goal=…)`: steps run while the model still writes the plan.
- *route*: `RouterPlanner`, a plan that is known already. No model plans.

**How to read it.** *Speed-up* is the time of the loop over the time of the way. *Published* is what the authors of
LLMCompiler report for their own against a ReAct loop (arXiv 2312.04511 v3): 1.80, 3.74 and 2.15. The must is that
*streamed* is no worse.

**What is assumed**, since no latencies of single calls were published: the searches of all three data sets take as
long as those of Movie Recommendation (mean 0.61 s, slowest 1.13 s). A plan for that data set takes 1.88 s and its
answer 1.62 s, as published; it is written evenly, one line a call, and other plans at the same speed. All turns of a
loop take equally long. How slow the model of a data set is beside the one of Movie Recommendation follows from the
published time of the loop (7.12 s, 20.47 s, 35.90 s), and holds for its turns, plans, arithmetic and answers alike.
So the time of the loop is published and not found here, and what is found is how much of it the plan saves. Nobody
plans wrong, and nothing is planned again: what a model gets wrong is not measured.

With ``--quick`` all takes a tenth of its time, so that what the engine and the socket cost weighs ten times as much.
With ``--gate`` the exit code is 1 if a must is missed. A full run takes four minutes, and writes
``results/planning.json`` and its plot.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import median
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import (
    OpenAIModel,
    OpenAIPlanner,
    Plan,
    PlanningRule,
    Policy,
    Route,
    RouterPlanner,
    RunResult,
    StepwisePlanner,
    tool,
)
from dagrun.kernel.model.tool import AnyTool
from dagrun.testing import FakeModelServer, ModelAnswer
from peers.pipelines import ANSWER, ARITHMETIC, SHAPES, seconds_of
from shapes import Dependencies

PLANNED: Final = 1.88  # seconds that the plan of Movie Recommendation took
LAST: Final = ("compare", "choose", "answer")  # the step that answers
PIECE: Final = 4  # characters in a piece of a stream


@dataclass(frozen=True)
class Goal:
    """A goal of a data set.

    Attributes:
        data_set: Its name.
        shape: The name of its plan in `SHAPES`.
        loop: How long a loop was published to take, in seconds.
        published: The published speed-up of LLMCompiler over that loop.
    """

    data_set: str
    shape: str
    loop: float
    published: float

    @property
    def plan(self) -> Dependencies:
        """What each step waits for."""
        return SHAPES[self.shape]

    @property
    def turns(self) -> int:
        """How often the loop asks its model: for each step, the last of which is the answer."""
        return len(self.plan)

    @cached_property
    def slowness(self) -> float:
        """How many times as long the model of this data set takes as the one of Movie Recommendation."""
        at_tools = sum(s for id_, s in seconds_of(self.plan).items() if id_.startswith("search"))
        sums = len([id_ for id_ in self.plan if not id_.startswith("search")]) - 1
        return (self.loop - at_tools) / (sums * ARITHMETIC + self.turns * _turn())

    def seconds(self, id_: str) -> float:
        """How long a step takes."""
        took = seconds_of(self.plan)[id_]
        return took if id_.startswith("search") else took * self.slowness


MOVIES: Final = Goal("Movie Recommendation", "eight searches, choose", 20.47, 3.74)
GOALS: Final = (
    Goal("HotpotQA comparison", "two searches, compare", 7.12, 1.80),
    MOVIES,
    Goal("ParallelQA", "five questions, arithmetic", 35.90, 2.15),
)


def _turn() -> float:
    """Seconds of a turn of the loop on Movie Recommendation: what its searches leave of the published time."""
    at_tools = sum(s for id_, s in seconds_of(MOVIES.plan).items() if id_.startswith("search"))
    return (MOVIES.loop - at_tools) / MOVIES.turns


# What the models write ------------------------------------------------------------------------------------------------


def plan_text(goal: Goal) -> str:
    """The plan as a model writes it: one call a line."""
    numbers = {id_: number for number, id_ in enumerate(goal.plan, 1)}
    lines = [
        f"{numbers[id_]}. {_tool_of(id_)}({json.dumps(id_)}, {json.dumps([f'${numbers[n]}' for n in needs])})"
        if needs
        else f"{numbers[id_]}. {_tool_of(id_)}({json.dumps(id_)})"
        for id_, needs in goal.plan.items()
    ]
    return "\n".join([*lines, f"{len(lines) + 1}. join(${len(lines)})", "<END_OF_PLAN>", ""])


def loop_texts(goal: Goal) -> list[str]:
    """What the model of the loop says, turn by turn: the steps in order, and in the last turn that the goal is met."""
    texts = [
        json.dumps({"thought": "", "step": {"id": id_, "tool": _tool_of(id_), "args": _args_of(id_, needs)}})
        for id_, needs in list(goal.plan.items())[:-1]
    ]
    return [*texts, json.dumps({"thought": "", "stop": "goal_met", "output": f"${{{list(goal.plan)[-2]}}}"})]


def known_plan(goal: Goal) -> Plan:
    """The plan of the route."""
    steps = [{"id": id_, "tool": _tool_of(id_), "args": _args_of(id_, needs)} for id_, needs in goal.plan.items()]
    return Plan.model_validate({"steps": steps, "output": f"${{{list(goal.plan)[-1]}}}"})


def _tool_of(id_: str) -> str:
    return "search" if id_.startswith("search") else "answer" if id_ in LAST else "calculate"


def _args_of(id_: str, needs: Sequence[str]) -> dict[str, Any]:
    return {"what": id_, "of": [f"${{{need}}}" for need in needs]} if needs else {"what": id_}


def make_tools(goal: Goal, pace: float) -> list[AnyTool]:
    """The tools, which take the time that the step named *what* takes."""

    async def take(what: str) -> str:
        await anyio.sleep(goal.seconds(what) * pace)
        return f"what {what} found"

    @tool(effect="read")
    async def search(what: str) -> str:
        """Search the encyclopedia."""
        return await take(what)

    @tool(effect="read")
    async def calculate(what: str, of: list[str]) -> str:
        """Let a model calculate."""
        return await take(what)

    @tool(effect="read")
    async def answer(what: str, of: list[str]) -> str:
        """Let a model answer."""
        return await take(what)

    return [search, calculate, answer]


# Measuring ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """What a way of carrying a goal out is given: the goal, its tools, the server of the models, and the pace."""

    goal: Goal
    tools: Sequence[AnyTool]
    server: FakeModelServer

    def planner(self) -> OpenAIPlanner:
        """The planner that writes whole plans."""
        return OpenAIPlanner("a-model", base_url=self.server.base_url, api_key="none", dialect="compiler")


async def loop(at: Setting) -> RunResult:
    """Ask for one step, run it, and ask again."""
    model = OpenAIModel("a-model", base_url=at.server.base_url, api_key="none")
    planner = StepwisePlanner(model)
    return await dagrun.run(
        goal=at.goal.shape, planner=planner, tools=at.tools, policy=Policy(planning=PlanningRule(brief="full"))
    )


async def plan_then_run(at: Setting) -> RunResult:
    """Get the plan, and then carry it out."""
    return await dagrun.run(await dagrun.draft(at.goal.shape, planner=at.planner(), tools=at.tools))


async def streamed(at: Setting) -> RunResult:
    """Carry the plan out while it is written."""
    return await dagrun.run(goal=at.goal.shape, planner=at.planner(), tools=at.tools)


async def route(at: Setting) -> RunResult:
    """Carry out the plan that is known for such goals."""
    planner = RouterPlanner([Route("known", [at.goal.shape], known_plan(at.goal))])
    return await dagrun.run(goal=at.goal.shape, planner=planner, tools=at.tools)


WAYS: Final[dict[str, Callable[[Setting], Awaitable[RunResult]]]] = {
    "loop": loop,
    "plan, then run": plan_then_run,
    "streamed": streamed,
    "route": route,
}


def answers_of(goal: Goal, way: str, pace: float) -> list[ModelAnswer]:
    """The script of the server: a turn takes its time and comes at once, a plan comes evenly, piece by piece."""
    if way == "loop":
        return [ModelAnswer(text, delay=_turn() * goal.slowness * pace) for text in loop_texts(goal)]
    pieces_per_second = len(ModelAnswer(plan_text(MOVIES), piece=PIECE).pieces) / PLANNED
    return [ModelAnswer(plan_text(goal), piece=PIECE, tokens_per_second=pieces_per_second / goal.slowness / pace)]


async def measure_one(goal: Goal, way: str, pace: float) -> float:
    """Carry *goal* out once, and return the seconds from the call to the answer, at full pace."""
    async with FakeModelServer(answers_of(goal, way, pace)) as server:
        setting = Setting(goal, make_tools(goal, pace), server)
        began = time.monotonic()
        (await WAYS[way](setting)).raise_for_status()
        return (time.monotonic() - began) / pace


@dataclass(frozen=True, slots=True)
class Row:
    """One way on the goal of one data set.

    Attributes:
        data_set: Its name.
        way: How the goal was carried out.
        seconds: The median of the runs.
        speed_up: Over the loop.
        published: The published speed-up of LLMCompiler, which is for *streamed*.
    """

    data_set: str
    way: str
    seconds: float
    speed_up: float
    published: float

    @property
    def passed(self) -> bool:
        """Whether the must, if there is one, is kept."""
        return self.way != "streamed" or self.speed_up >= self.published


def measure(count: int, pace: float) -> Iterator[Row]:
    """Carry each goal out *count* times in each way, in turn; once before that, because the first call loads much."""
    anyio.run(measure_one, GOALS[0], "loop", 0.01)
    for goal in GOALS:
        runs = [{way: anyio.run(measure_one, goal, way, pace) for way in WAYS} for _ in range(count)]
        seconds = {way: median(run[way] for run in runs) for way in WAYS}
        for way, took in seconds.items():
            yield Row(goal.data_set, way, round(took, 3), round(seconds["loop"] / took, 2), goal.published)


def _shown(rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        must = f"   published {row.published:.2f}: {'ok' if row.passed else 'MISSED'}" if row.way == "streamed" else ""
        print(f"{row.data_set:22}{row.way:16}{row.seconds:>8.2f} s{row.speed_up:>9.2f} x{must}", flush=True)
        yield row


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether the musts are kept."""
    options = command.parser_of(__doc__, "each way once, at ten times the speed").parse_args(arguments)
    print(f"{'data set':22}{'way':16}{'time':>10}{'speed-up':>11}")
    rows = list(_shown(measure(1, 0.1) if options.quick else measure(3, 1.0)))
    if (folder := command.folder_of(options)) is not None:
        from plot_planning import draw_planning

        assumed = {
            "turn": round(_turn(), 3),
            "plan": PLANNED,
            "answer": ANSWER,
            "slowness": {goal.data_set: round(goal.slowness, 3) for goal in GOALS},
        }
        results = environment.describe() | {"assumed": assumed, "planning": [asdict(row) for row in rows]}
        command.write(folder, "planning", results)
        draw_planning(results, folder / "planning")
    return 1 if options.gate and not all(row.passed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
