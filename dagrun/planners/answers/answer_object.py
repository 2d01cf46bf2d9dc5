"""Find the JSON object in a model's answer, ignoring prose and code fences, and parse it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dagrun.errors import PlanRefused, Problem
from dagrun.model.policy import PlanLimits
from dagrun.planners.answers.json_stream import JsonScanner
from dagrun.plans.json_reader import parse_json
from dagrun.plans.plan_fields import wrong_type
from dagrun.plans.read_plan import max_plan_depth, sorted_problems


def count_bytes(text: str, limits: PlanLimits, before: int = 0) -> int:
    """Count the bytes of an answer before it is read: it may be 59 MB long.

    Args:
        text: The next piece of the answer.
        limits: The limits, for ``max_bytes``.
        before: The bytes of all pieces before.

    Returns:
        The bytes of all pieces so far.

    Raises:
        PlanRefused: There are too many bytes.
    """
    limit = limits.max_bytes
    size = before + len(text)
    if size <= limit and not text.isascii():
        # A lone surrogate is no error here: it is reported when the whole answer is read.
        size = before + len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        # Without the exact number, which would depend on the size of the pieces.
        raise PlanRefused([Problem("DR005", "", {"size": f"more than {limit}", "limit": str(limit)})])
    return size


def parse_object(
    text: str,
    scanner: JsonScanner,
    limits: PlanLimits,
    known: Iterable[Problem] = (),
    what: str = "an object with steps",
) -> tuple[Any, list[Problem]]:
    """Parse the object that *scanner* has found.

    Args:
        text: The whole text that the scanner has read.
        scanner: The scanner.
        limits: Limits of size.
        known: Problems of parts of the object, which are raised if the whole object cannot be parsed.
        what: A description of the object, for messages.

    Returns:
        Plain JSON with marks, as from `parse_json`; and problems.

    Raises:
        PlanRefused: There is no such object, or it is not JSON.
    """
    start, end = scanner.start, scanner.end
    if start < 0:
        raise PlanRefused([wrong_type("", what, text)])
    if end < 0:
        reason = f"its object, the one at character {start + 1}, is never closed"
        raise PlanRefused(sorted_problems([Problem("DR421", "", {"reason": reason}), *known]))
    # With blanks in place of the text before it, so that lines and columns in messages are right.
    before = re.sub(r"[^\n]", " ", text[:start])
    try:
        tree = parse_json(before + text[start:end], max_plan_depth(limits))
    except PlanRefused as refusal:
        raise PlanRefused(sorted_problems([*refusal.problems, *known])) from None
    if not scanner.is_repeated:
        return tree, []
    return tree, [Problem("DR009", "", {"expected": what, "found": "two of them"})]
