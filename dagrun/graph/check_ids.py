"""The ids of a plan: well-formed, different, and not reserved."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Final

from dagrun.graph.findings import Findings
from dagrun.graph.wide import AT_ONCE, AnyDict, dict_for, set_for
from dagrun.model.plan import Step
from dagrun.model.reference import ID_PATTERN, RESERVED

# ASCII only: Cyrillic look-alikes and other forms of the same letter never get in.
_ID: Final = re.compile(ID_PATTERN, re.ASCII)
_IDS: Final = re.compile(f"(?:{ID_PATTERN}\n)*+{ID_PATTERN}", re.ASCII)


def check_ids(steps: Sequence[Step], findings: Findings) -> AnyDict[str, int]:
    """Check the ids of *steps*.

    Returns:
        The place of each id, of its first use if it was taken twice.
    """
    index = _index_of(steps)
    return index if index is not None else _look_closely(steps, findings)


def _index_of(steps: Sequence[Step]) -> AnyDict[str, int] | None:
    """The place of each id; `None` if there is anything wrong with any, as hardly ever is."""
    index: AnyDict[str, int] = dict_for(len(steps))
    has_capitals = False
    for first in range(0, len(steps), AT_ONCE):
        ids = [step.id for step in steps[first : first + AT_ONCE]]
        text = "\n".join(ids)
        if text.count("\n") != len(ids) - 1 or _IDS.fullmatch(text) is None:
            return None
        has_capitals = has_capitals or text.lower() != text
        index.update(zip(ids, range(first, first + len(ids)), strict=True))
    # Files and people do not always tell `Load` from `load`.
    known: Container[str] = index
    count = len(index)
    if has_capitals:
        known = folded = set_for(count)
        for id_ in index:
            folded.add(id_.lower())
        count = len(folded)
    return index if count == len(steps) and not any(id_ in known for id_ in RESERVED) else None


def _look_closely(steps: Sequence[Step], findings: Findings) -> AnyDict[str, int]:
    index: AnyDict[str, int] = dict_for(len(steps))
    folded: AnyDict[str, str] = dict_for(len(steps))
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
        if folded.setdefault(id_.lower(), id_) != id_:
            findings.add("DR103", number, "id", id=id_, other=folded[id_.lower()])
    return index
