"""Words about a run that lists and pages share: its purpose, and when it began."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dagrun.cli.records.resume_command import label
from dagrun.observe.run_standing import Standing


def what(standing: Standing, labels: Mapping[str, Any]) -> str:
    """Return the purpose of a run: its goal, or the command that began it.

    Args:
        standing: Where the run stands.
        labels: The labels that it was opened with; empty if its record cannot be read.
    """
    if standing.goal or not labels:
        return standing.goal or "-"
    return " ".join(label(labels, "command")[1:]) or "a plan"


def when(seconds: float) -> str:
    """Return a time as text, in the local time zone; "-" if it is no time."""
    try:
        return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # a record may hold any number
        return "-"
