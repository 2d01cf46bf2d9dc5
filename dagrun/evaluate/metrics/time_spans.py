"""Times as people write them: ``7d`` for seven days ago, ``2026-11-20`` for a day, or a time of ISO 8601."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from dagrun.errors import ContractError, shorten

_AGO: Final = re.compile(r"(\d{1,6})\s*(m|h|d|w)")
_SECONDS: Final = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def read_time(text: str, now: float) -> float:
    """Return the time that *text* names, in seconds since 1970.

    Args:
        text: How long ago (``30m``, ``12h``, ``7d``, ``4w``), a day (``2026-11-20``, its beginning), or a time of
            ISO 8601. What names no zone is in UTC.
        now: The time of day, in seconds since 1970.

    Raises:
        ContractError: *text* is no such time.
    """
    if found := _AGO.fullmatch(text.strip()):
        return now - int(found.group(1)) * _SECONDS[found.group(2)]
    try:
        time = datetime.fromisoformat(text.strip())
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ContractError(
            f"{shorten(repr(text), 60)} is no time: write how long ago (30m, 12h, 7d, 4w), a day (2026-11-20), or a"
            " time (2026-11-20T08:30)"
        ) from None


def shown_time(at: float) -> str:
    """Return a time in UTC as people read it; the time of day only if it is not midnight."""
    time = datetime.fromtimestamp(at, UTC)
    return f"{time:%Y-%m-%d}" if not (time.hour or time.minute or time.second) else f"{time:%Y-%m-%d %H:%M} UTC"
