"""Places in messages: the file and the line of an exception change with every edit of a test."""

from __future__ import annotations

import re
from typing import TypeVar

T = TypeVar("T")

_PLACE = re.compile(r" \([\w.<>/-]+:\d+\)")


def unplaced(text: str) -> str:
    """Return *text* without the places where exceptions were raised."""
    return _PLACE.sub("", text)
