"""A run in one line, when it is over."""

from __future__ import annotations

from dagrun.errors import shorten
from dagrun.model.outcome import Recovery, Status
from dagrun.runtime.result import RunResult


def summarise(result: RunResult) -> str:
    """Say in one line how a run ended; it holds no control characters.

    Args:
        result: Of the run.
    """
    facts = [f"{result.makespan:.2f} s", *_counts(result)]
    if result.status is Status.SUCCEEDED:
        facts.append(f"{result.parallelism:.1f} at once on average")
        facts.append(f"critical path {result.critical_path:.2f} s")
    reason = shorten(result.reason, 1_000)
    return f"{result.status}: {reason} ({', '.join(facts)})"


def count_recoveries(result: RunResult) -> tuple[int, int]:
    """How many attempts were made again, and how many steps went over to their fallback."""
    decisions = [a.decision.recovery for step in result.steps.values() for a in step.attempts if a.decision]
    return decisions.count(Recovery.RETRY), decisions.count(Recovery.FALL_BACK)


def _counts(result: RunResult) -> list[str]:
    retries, fallbacks = count_recoveries(result)
    return [
        *([f"{retries} {'retry' if retries == 1 else 'retries'}"] if retries else []),
        *([f"{fallbacks} fallback{'s' * (fallbacks != 1)}"] if fallbacks else []),
        *([f"{result.replans} replan{'s' * (result.replans != 1)}"] if result.replans else []),
    ]
