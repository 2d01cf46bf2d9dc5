"""The scratchpad of a planner that goes step by step: an explicit plan, rewritten each turn, and measured for drift."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

from dagrun.errors import shorten
from dagrun.llm.language_model import Message
from dagrun.llm.quoting import quote
from dagrun.planners.prompts import Prompt

MAX_ITEMS: Final = 50
MAX_ITEM: Final = 300  # characters
_ALIKE: Final = 0.8  # how alike two items are that say the same in other words, as difflib measures it

_RULES: Final = """\
# The plan on your scratchpad

- "plan" in your answer is what is left to do after "step", as a list of short sentences, in order; [] if nothing is.
- The block "plan" is the list that you wrote last time. Take out what is done, keep the rest word for word, and \
change only what the results have proved wrong.
- "step" is the first item of the list, unless something came in between."""

_PLAN: Final = {
    "type": "array",
    "items": {"type": "string"},
    "description": "What is left to do after this step, in order.",
}


@dataclass(frozen=True, slots=True)
class Scratchpad:
    """What a planner has written down for itself.

    Attributes:
        plan: What is left to do, in order.
        drifts: How much each rewriting has changed the plan, from 0 (kept, but for what is done) to 1, newest last.
    """

    plan: tuple[str, ...] = ()
    drifts: tuple[float, ...] = ()

    @property
    def drift(self) -> float:
        """How much the last rewriting has changed the plan."""
        return self.drifts[-1] if self.drifts else 0.0

    def rewritten(self, plan: Sequence[str]) -> Scratchpad:
        """Return the scratchpad with a new plan; the first plan is no change."""
        items = tuple(shorten(" ".join(item.split()), MAX_ITEM) for item in plan[:MAX_ITEMS] if item.strip())
        if not self.plan:
            return Scratchpad(items, self.drifts)
        return Scratchpad(items, (*self.drifts, drift_between(self.plan, items))[-MAX_ITEMS:])

    def text(self) -> str:
        """Return the scratchpad as text, for the record."""
        return json.dumps({"plan": self.plan, "drifts": [round(drift, 3) for drift in self.drifts]}, ensure_ascii=False)


def scratchpad_from(text: str) -> Scratchpad:
    """Return the scratchpad that `Scratchpad.text` has written; an empty one for any other text."""
    try:
        read: Any = json.loads(text)
        return Scratchpad(tuple(map(str, read["plan"])), tuple(map(float, read["drifts"])))
    except (ValueError, KeyError, TypeError):
        return Scratchpad()


def drift_between(before: Sequence[str], after: Sequence[str]) -> float:
    """Measure how much a plan was changed, besides that what is done was taken out at its beginning.

    Args:
        before: The items that were left to do.
        after: The items that are left now.

    Returns:
        From 0, if the rest of *before* was kept in order, to 1, if nothing of it is left. Items that say the same in
        slightly other words count as kept.
    """
    kept = _longest_common(before, after)
    done = next((place for place, item in enumerate(before) if after and _same(item, after[0])), len(before))
    longest = max(len(before) - done, len(after))
    return 1 - kept / longest if longest else 0.0


def _longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for left in one:
        diagonal = 0
        for place, right in enumerate(other, start=1):
            above = row[place]
            row[place] = diagonal + 1 if _same(left, right) else max(above, row[place - 1])
            diagonal = above
    return row[-1]


def _same(one: str, other: str) -> bool:
    left, right = one.casefold().strip(" ."), other.casefold().strip(" .")
    return left == right or SequenceMatcher(None, left, right).ratio() >= _ALIKE


def with_scratchpad(prompt: Prompt, pad: Scratchpad) -> Prompt:
    """Return *prompt* with the rules of the scratchpad, and with the plan that is on it."""
    if not pad.plan:
        return Prompt(f"{prompt.system}\n\n{_RULES}", prompt.messages)
    lines = "\n".join(['<data name="plan">', *map(quote, pad.plan), "</data>"])
    first = prompt.messages[0]
    messages = (Message(first.role, f"{lines}\n\n{first.text}"), *prompt.messages[1:])
    return Prompt(f"{prompt.system}\n\n{_RULES}", messages)


def with_plan(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a next step with the plan of the scratchpad beside it."""
    properties = {"thought": schema["properties"]["thought"], "plan": _PLAN, **schema["properties"]}
    return {**schema, "properties": properties, "required": list(properties)}
