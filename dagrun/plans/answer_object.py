"""The one object in the answer of a model that is meant: parsed, with the prose and the fences around it left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dagrun.errors import PlanRefused, Problem
from dagrun.model.policy import PlanLimits
from dagrun.plans.json_reader import parse_json
from dagrun.plans.json_stream import JsonScanner
from dagrun.plans.plan_fields import wrong_type
from dagrun.plans.read_plan import max_plan_depth, sorted_problems


def count_bytes(text: str, limits: PlanLimits, before: int = 0) -> int:
    """Count the bytes of a text, before anything else is done with what may be 59 MB.

    Args:
        text: What has come.
        limits: With the ceiling.
        before: Bytes that came before it.

    Returns:
        The bytes with those of *text*.

    Raises:
        PlanRefused: There are too many.
    """
    limit = limits.max_bytes
    size = before + len(text)
    if size <= limit and not text.isascii():
        # Half a character is found when all is read, and told then.
        size = before + len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        # Not how many there are: that would depend on the size of the pieces.
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
        text: All that the scanner was fed.
        scanner: With what it has found.
        limits: Ceilings of size.
        known: Problems of parts of the object, which count if the whole cannot be parsed.
        what: What is looked for, in words.

    Returns:
        Plain JSON with marks, as from `parse_json`; and problems.

    Raises:
        PlanRefused: There is no such object, or it is no JSON.
    """
    start, end = scanner.start, scanner.end
    if start < 0:
        raise PlanRefused([wrong_type("", what, text)])
    if end < 0:
        reason = f"its object, the one at character {start + 1}, is never closed"
        raise PlanRefused(sorted_problems([Problem("DR421", "", {"reason": reason}), *known]))
    # Blanks in place of what stands before it, so that lines and columns are those of the text.
    before = re.sub(r"[^\n]", " ", text[:start])
    try:
        tree = parse_json(before + text[start:end], max_plan_depth(limits))
    except PlanRefused as refusal:
        raise PlanRefused(sorted_problems([*refusal.problems, *known])) from None
    if not scanner.is_repeated:
        return tree, []
    return tree, [Problem("DR009", "", {"expected": what, "found": "two of them"})]
