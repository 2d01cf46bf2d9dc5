"""Damaged answers of models in whole runs: each run ends with a reason, and only calls of valid plans are made."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

import dagrun
from dagrun import EnsemblePlanner, Event, ModelPlanner, Planner, PlanningRule, Policy, Status, Tool, Toolbox
from dagrun.events import AttemptStarted, DraftEnded, ReplanEnded
from dagrun.testing import StandIn, run_virtual
from goals import GOALS, WORLD, Goal
from model_answers import DAMAGES
from scripted_model import Said, ScriptedModel
from seeds import choose_seeds

pytestmark = pytest.mark.rigs

NO = {"refusal": "no more"}
POLICY = Policy(planning=PlanningRule(max_calls=6), max_seconds=600)


def text_of(goal: Goal, rng: random.Random) -> str:
    """Return an answer, which is damaged in most cases."""
    forms = [json.dumps(goal.plan()), json.dumps(goal.strict(), indent=1), *([goal.lines] if goal.lines else [])]
    text = rng.choice(forms)
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        text = rng.choice(DAMAGES)(text, rng)
    return text


def planner_of(goal: Goal, rng: random.Random) -> Planner:
    """Return a planner whose model answers a few times with texts like the plan, in pieces and with pauses."""
    answers: list[Any] = [Said(text=text_of(goal, rng), piece=rng.choice((3, 20, 200)), delay=0.01) for _ in range(3)]
    one = ModelPlanner(ScriptedModel(*answers, *[NO] * 6), dialect=rng.choice(("json", "compiler")))
    two = ModelPlanner(ScriptedModel(text_of(goal, rng), *[NO] * 6))
    return rng.choice((one, EnsemblePlanner(one, two)))


async def play(seed: int) -> Status:
    """Run one plan, and check its calls."""
    rng = random.Random(seed)
    goal = GOALS[seed % len(GOALS)]
    may_notify = rng.random() < 0.5
    players = {tool.name: _player(tool) for tool in WORLD.values()}
    toolbox = Toolbox([p.tool for p in players.values()], allow=None if may_notify else WORLD.allowed - {"notify"})
    events: list[Event] = []

    result = await dagrun.run(
        goal=goal.goal, planner=planner_of(goal, rng), tools=toolbox, policy=POLICY, on_event=events.append
    )

    assert result.reason or result.status is Status.SUCCEEDED
    calls = Counter({name: len(player.calls) for name, player in players.items() if player.calls})
    attempts = Counter(attempt.tool for step in result.steps.values() for attempt in step.attempts)
    assert calls == attempts, "a call that no step has made"
    assert may_notify or "notify" not in calls
    early = _started_before_the_plan_was_valid(events)
    assert not any(result.steps[id_].attempts[0].tool == "notify" for id_ in early), "an effect before its plan"
    return result.status


def _player(tool: Tool[..., Any]) -> StandIn:
    """Return the tool, with its calls recorded."""
    return StandIn(tool, _result(tool.name))


def _result(name: str) -> Any:
    match name:
        case "load":
            return [1.0, 2.0]
        case "clean":
            return lambda values: values
        case "total" | "mean":
            return 3.0
        case _:
            return "text"


def _started_before_the_plan_was_valid(events: list[Event]) -> list[str]:
    early: list[str] = []
    for event in events:
        if isinstance(event, DraftEnded | ReplanEnded) and event.result == "applied":
            return early
        if isinstance(event, AttemptStarted):
            early.append(event.step)
    return early


def _play_all(seeds: range) -> Counter[Status]:
    counts: Counter[Status] = Counter()
    for seed in seeds:
        try:
            counts[run_virtual(play, seed, backend="trio" if seed % 5 == 0 else "asyncio")] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    return counts


def test_damaged_answers_call_nothing_that_was_not_planned() -> None:
    counts = _play_all(range(60))

    assert counts[Status.SUCCEEDED] >= 10  # texts that are never valid prove nothing
    assert counts[Status.FAILED] >= 10


@pytest.mark.rigs
@pytest.mark.timeout(600)
def test_many_damaged_answers_call_nothing_that_was_not_planned() -> None:
    seeds = choose_seeds(150, 5_000)
    counts = _play_all(seeds)

    assert sum(counts.values()) == len(seeds)
    assert min(counts[Status.SUCCEEDED], counts[Status.FAILED]) >= 0.16 * len(seeds)
