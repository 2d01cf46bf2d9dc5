"""One goal, one run: what the model said, and what became of it."""

from __future__ import annotations

import time
import tomllib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import dagrun
from dagrun import Event, Planner, Policy, RunResult, State, Status
from dagrun.events import DraftEnded, PatchRefused, ReplanEnded
from dagrun.extend import LanguageModel, Reply, Request
from real_model.goals import TOOLS, Goal, is_held

# That of the demo: only the first plan, and its one repair, are measured.
POLICY: Final = Policy.model_validate(tomllib.loads((Path(__file__).parent / "policy.toml").read_text()))


@dataclass(slots=True)
class Answer:
    """One answer of the model.

    Attributes:
        asked: What it was told, system and messages.
        text: What it has said, as far as that was waited for.
        reply: How that ended; `None` if it broke off.
        seconds: How long it took.
    """

    asked: str
    text: str = ""
    reply: Reply | None = None
    seconds: float = 0.0

    def add(self, piece: str | Reply) -> None:
        """Take in what comes next."""
        if isinstance(piece, Reply):
            self.reply, self.text = piece, piece.text
        else:
            self.text += piece


@dataclass(slots=True)
class Overheard:
    """A model whose answers are kept; else it is as it was."""

    model: LanguageModel
    answers: list[Answer] = field(default_factory=list)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.model.name

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Ask, and keep what is said."""
        turns = "\n".join(f"[{message.role}] {message.text}" for message in request.messages)
        answer = Answer(f"[system] {request.system}\n{turns}")
        self.answers.append(answer)
        began = time.monotonic()
        try:
            async with aclosing(self.model.stream(request)) as pieces:
                async for piece in pieces:
                    answer.add(piece)
                    yield piece
        finally:
            answer.seconds = time.monotonic() - began


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one goal.

    Attributes:
        goal: The goal.
        is_valid_at_once: Whether the checker has taken the first answer as it was.
        is_valid: Whether it has taken the first answer or the repaired one.
        is_useful: Whether the run succeeded, no step of its plan was left out, and its answer comes from a call of
            every tool without which the goal cannot be reached.
        is_right: Whether, besides, the answer holds what it must.
        status: Of the run.
        refused: The codes of what was wrong with each plan that was refused.
        reason: Why the run ended so.
        steps: In the last plan that was taken.
        seconds: The whole run.
        first_step: When the first step started, in seconds since the start of the run; `None` if none did.
        input_tokens: Of all answers together; `None` if the server did not say.
        output_tokens: The same.
        stops: How each answer ended: ``end``, ``length``, ``refused``, or ``broken``.
    """

    goal: str
    is_valid_at_once: bool
    is_valid: bool
    is_useful: bool
    is_right: bool
    status: str
    refused: tuple[tuple[str, ...], ...]
    reason: str
    steps: int
    seconds: float
    first_step: float | None
    input_tokens: int | None
    output_tokens: int | None
    stops: tuple[str, ...]

    @property
    def is_useful_at_once(self) -> bool:
        """Whether it would have been useful without a repair call."""
        return self.is_useful and self.is_valid_at_once


async def measure(goal: Goal, planner: Planner, answers: list[Answer], policy: Policy = POLICY) -> Row:
    """Have *planner* plan for *goal*, run what it plans, and look at what came of it.

    Args:
        goal: What is wanted.
        planner: Who plans.
        answers: Where the answers of its model are put while it works; emptied before.
        policy: The limits.
    """
    answers.clear()
    events: list[Event] = []
    began = time.monotonic()
    result = await dagrun.run(goal=goal.text, planner=planner, tools=TOOLS, policy=policy, on_event=events.append)
    seconds = time.monotonic() - began
    at_once = any(isinstance(event, DraftEnded) and event.result == "applied" for event in events)
    repaired = any(isinstance(event, ReplanEnded) and _is_taken(event, result) for event in events)
    is_useful = (at_once or repaired) and is_reached(goal, result)
    starts = [step.started for step in result.steps.values() if step.started is not None]
    return Row(
        goal=goal.text,
        is_valid_at_once=at_once,
        is_valid=at_once or repaired,
        is_useful=is_useful,
        is_right=is_useful and all(is_held(wanted, result.output) for wanted in goal.holds),
        status=str(result.status),
        refused=tuple(_codes(event) for event in events if _is_refusal(event)),
        reason=result.reason,
        steps=len(result.plan.steps),
        seconds=seconds,
        first_step=min(starts, default=None),
        input_tokens=_sum(answers, lambda reply: reply.usage.input),
        output_tokens=_sum(answers, lambda reply: reply.usage.output),
        stops=tuple("broken" if answer.reply is None else answer.reply.stop for answer in answers),
    )


def is_reached(goal: Goal, result: RunResult) -> bool:
    """Whether a run has done all that its plan says, and its answer comes from every tool that the goal needs."""
    if result.status is not Status.SUCCEEDED or not result.plan.steps:
        return False
    if any(result.steps[id_].state is not State.SUCCEEDED for id_ in result.plan.steps):
        return False
    used = {result.plan.steps[id_].tool for id_ in origins_of(result)}
    return all(used.intersection(need.split("|")) for need in goal.needs)


def origins_of(result: RunResult) -> set[str]:
    """The steps whose outputs are in the answer of a run, and those that they have used, all the way back."""
    plan = dagrun.check(result.plan.current, tools=TOOLS)
    sources = {step.step.id: set(step.value_sources) for step in plan.steps.values()}
    if plan.output is not None:
        found = set(plan.output.sources)
    else:
        found = set(sources) - {id_ for step in plan.steps.values() for id_ in step.depends_on}
    open_ = list(found)
    while open_:
        new = sources.get(open_.pop(), set()) - found
        found |= new
        open_ += new
    return found & set(sources)


def _is_taken(event: ReplanEnded, result: RunResult) -> bool:
    """Whether a repaired plan was taken; one whose steps were there already, and had all succeeded, changes nothing."""
    return event.result == "applied" or (event.result == "unchanged" and result.status is Status.SUCCEEDED)


def _is_refusal(event: Event) -> bool:
    return isinstance(event, PatchRefused) or (isinstance(event, DraftEnded) and event.result == "refused")


def _codes(event: Event) -> tuple[str, ...]:
    problems = event.problems if isinstance(event, PatchRefused | DraftEnded) else ()
    return tuple(sorted({problem.code for problem in problems}))


def _sum(answers: list[Answer], count: Callable[[Reply], int | None]) -> int | None:
    counts = [None if answer.reply is None else count(answer.reply) for answer in answers]
    return None if None in counts or not counts else sum(number for number in counts if number is not None)


def as_dict(row: Row) -> dict[str, Any]:
    """The row as plain JSON."""
    times = {
        "seconds": round(row.seconds, 2),
        "first_step": None if row.first_step is None else round(row.first_step, 2),
    }
    return {name: getattr(row, name) for name in Row.__slots__} | times
