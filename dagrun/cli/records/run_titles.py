"""Words about a run that lists and pages share: its purpose, and when it began."""

from __future__ import annotations

from datetime import datetime

from dagrun.cli.records.resume_command import label
from dagrun.observe.run_standing import RunOverview


def what(standing: RunOverview) -> str:
    """Return the purpose of a run: its goal, or the command that began it."""
    if standing.goal or not standing.labels:
        return standing.goal or "-"
    return " ".join(label(standing.labels, "command")[1:]) or "a plan"


def when(seconds: float) -> str:
    """Return a time as text, in the local time zone; "-" if it is no time."""
    try:
        return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # a record may hold any number
        return "-"
