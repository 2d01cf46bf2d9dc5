"""The ids of a plan: well-formed, different, and not reserved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dagrun.graph.findings import Findings
from dagrun.model.plan import Step
from dagrun.model.reference import ID_PATTERN, RESERVED

# ASCII only: Cyrillic look-alikes and other forms of the same letter never get in.
_ID: Final = re.compile(ID_PATTERN, re.ASCII)
_AT_ONCE: Final = 100_000  # meanwhile no other thread gets a turn
_IDS: Final = re.compile(f"(?:{ID_PATTERN}\n)*+{ID_PATTERN}", re.ASCII)


def check_ids(steps: Sequence[Step], findings: Findings) -> dict[str, int]:
    """Check the ids of *steps*.

    Returns:
        The place of each id, of its first use if it was taken twice.
    """
    ids = [step.id for step in steps]
    if len(ids) <= _AT_ONCE and _are_fine(ids):
        return dict(zip(ids, range(len(ids)), strict=True))
    index: dict[str, int] = {}
    folded: dict[str, str] = {}
    for number, step in enumerate(steps):
        id_ = step.id
        if not _ID.fullmatch(id_):  # never `match` with "$", which lets a line break through
            findings.add("DR101", number, "id", id=repr(id_[:200]))
        elif id_ in RESERVED:
            findings.add("DR110", number, "id", id=id_, meaning=RESERVED[id_])
        if id_ in index:
            findings.add("DR102", number, "id", id=id_, first=f"steps[{index[id_]}]")
            continue
        index[id_] = number
        # Files and people do not always tell `Load` from `load`.
        if folded.setdefault(id_.lower(), id_) != id_:
            findings.add("DR103", number, "id", id=id_, other=folded[id_.lower()])
    return index


def _are_fine(ids: list[str]) -> bool:
    """Whether there is nothing wrong with any of *ids*, as is nearly always so: found out in a few calls."""
    text = "\n".join(ids)
    if text.count("\n") != len(ids) - 1 or _IDS.fullmatch(text) is None:
        return False
    folded = set(text.lower().split("\n"))
    return len(folded) == len(ids) and folded.isdisjoint(RESERVED)
