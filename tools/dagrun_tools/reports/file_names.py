"""The file that a chart or a report is written to, if the arguments name none."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dagrun import ToolContext


def announced(context: ToolContext, endings: Iterable[str]) -> str:
    """Return the file that a step announces as its expected output, such as ``q4.png`` in "a chart, q4.png".

    Args:
        context: Of the call.
        endings: Those that the file may have, such as ``.png``.

    Returns:
        The name; empty if there is none, or if there are several.
    """
    ends = "|".join(re.escape(ending) for ending in endings)
    found = re.findall(rf"(?i)(?<![\w./\\-])\w[\w./-]{{0,100}}?(?:{ends})(?![\w/.-]*\w)", context.expected_output)
    return found[0] if len(set(found)) == 1 else ""


def slug(text: str, otherwise: str = "chart") -> str:
    """Return a file name made from *text*, without an ending; *otherwise* if no part of it is usable."""
    return re.sub(r"[^a-z0-9]+", "_", text.casefold()).strip("_")[:60] or otherwise
