"""Decisions, answers and costs in words, as `dagrun.observe.chronicle` tells them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dagrun.model.event import AttemptEnded, Reviewed
from dagrun.model.outcome import Decision, Failure, Outcome, Recovery
from dagrun.model.question import Answer
from dagrun.model.usage import ModelUse
from dagrun.observe.spending import spending_words

_WORDS: Final[Mapping[Recovery, str]] = MappingProxyType(
    {
        Recovery.RETRY: "tried again",
        Recovery.FALL_BACK: "the fallback takes over",
        Recovery.REVIEW: "critics look at it",
        Recovery.REPLAN: "the planner is asked",
        Recovery.ASK: "a person is asked",
        Recovery.ESCALATE: "the run is handed to people",
        Recovery.DEFAULT: "the default stands in",
        Recovery.SKIP: "skipped, as its author wants it",
        Recovery.GIVE_UP: "given up",
        Recovery.STOP: "the run is stopped",
        Recovery.PROCEED: "goes on",
    }
)
_CHOICES: Final[Mapping[str, str]] = MappingProxyType({"approve": "yes", "deny": "no", "escalate": "escalate"})


def why(event: AttemptEnded | Reviewed) -> list[str]:
    """What went wrong, what is done about it, and which row of the recovery table says so."""
    outcome = event.outcome
    return [*_failure(outcome.failure), *_surprise(outcome), _decision(event.decision), _spent_by(outcome)]


def _failure(failure: Failure | None) -> list[str]:
    if failure is None:
        return []
    error = f" ({failure.error})" if failure.error else ""
    return [f"{failure.kind}: {failure.message}{error}"]


def _surprise(outcome: Outcome) -> list[str]:
    return [f"surprising: {outcome.surprise}"] if outcome.surprise else []


def _decision(decision: Decision) -> str:
    if decision.recovery is Recovery.PROCEED and not decision.reason:
        return ""
    delay = f" in {decision.delay:.1f} s" if decision.delay else ""
    return f"{_WORDS[decision.recovery]}{delay}{': ' if decision.reason else ''}{decision.reason}"


def _spent_by(outcome: Outcome) -> str:
    return spent(outcome.tokens, outcome.cost)


def spent(tokens: int, cost: float | None) -> str:
    """What a call has used of models; empty if nothing."""
    used = ModelUse()
    used.add(tokens, cost)
    return ", ".join(spending_words(used))


def answer_words(answer: Answer) -> str:
    """What a person has said, who it was, and why."""
    by = f" by {answer.by}" if answer.by else ""
    ticked = f", ticked: {'; '.join(answer.ticked)}" if answer.ticked else ""
    return f"{_CHOICES.get(answer.choice, answer.choice)}{by}{ticked}{': ' if answer.note else ''}{answer.note}"


def counted(number: int, word: str) -> str:
    """A number of things, with its plural."""
    return f"{number} {word}{'s' * (number != 1)}"
