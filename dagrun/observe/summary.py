"""A finished run in one line, its warnings, and the usage of its models."""

from __future__ import annotations

from typing import Final

from dagrun.errors import shorten
from dagrun.model.outcome import Recovery, Status
from dagrun.model.usage import ModelUse
from dagrun.runtime.result import RunResult

MAX_WARNINGS: Final = 20


def summarise(result: RunResult) -> str:
    """Write in one line how a run ended, without control characters.

    Args:
        result: The result of the run.
    """
    facts = [f"{result.makespan:.2f} s", *_counts(result)]
    if result.status is Status.SUCCEEDED:
        facts.append(f"{result.parallelism:.1f} at once on average")
        facts.append(f"critical path {result.critical_path:.2f} s")
    facts += spending_words(result.used)
    problems = len(result.problems)
    # The reason names only the first few problems; the caller shows all of them.
    reason = f"the plan has {problems} problem{'s' * (problems != 1)}" if problems else shorten(result.reason, 1_000)
    return f"{result.status}: {reason} ({', '.join(facts)})"


def warnings_of(result: RunResult) -> list[str]:
    """Return the first warnings of a run, one line each, without control characters.

    Args:
        result: The result of the run.
    """
    lines = [shorten(warning, 1_000) for warning in result.warnings[:MAX_WARNINGS]]
    more = len(result.warnings) - len(lines)
    return lines + [f"… and {more} more"] * bool(more)


def count_recoveries(result: RunResult) -> tuple[int, int]:
    """Count the attempts that were repeated, and the steps that used their fallback."""
    decisions = [a.decision.recovery for step in result.steps.values() for a in step.attempts if a.decision]
    return decisions.count(Recovery.RETRY), decisions.count(Recovery.FALL_BACK)


def spending_words(use: ModelUse) -> list[str]:
    """Describe the usage of models, in up to two phrases. Usage without a known price is never called free."""
    tokens = [f"{use.tokens:,} token{'s' * (use.tokens != 1)}"] if use.tokens else []
    if use.unpriced and not use.known_cost:
        return [*tokens, "cost unknown"]
    if use.tokens or use.known_cost:
        return [*tokens, f"cost {'at least ' * bool(use.unpriced)}{_amount(use.known_cost)}"]
    return []


def _counts(result: RunResult) -> list[str]:
    retries, fallbacks = count_recoveries(result)
    return [
        *([f"{retries} {'retry' if retries == 1 else 'retries'}"] if retries else []),
        *([f"{fallbacks} fallback{'s' * (fallbacks != 1)}"] if fallbacks else []),
        *([f"{result.replans} replan{'s' * (result.replans != 1)}"] if result.replans else []),
    ]


def _amount(cost: float) -> str:
    if 0 < cost < 1e-6:
        return "less than 0.000001"
    shown = f"{cost:,.4f}" if cost >= 0.01 else f"{cost:.6f}"
    return shown.rstrip("0").rstrip(".")
