"""The scratchpad of a planner that goes step by step: an explicit plan, rewritten each turn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagrun.errors import shorten
from dagrun.llm.language_model import Message
from dagrun.llm.quoting import quote
from dagrun.planners.prompts import Prompt

MAX_ITEMS: Final = 50
MAX_ITEM: Final = 300  # characters

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
    """A planner's notes for itself.

    Attributes:
        plan: What is left to do, in order.
    """

    plan: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the scratchpad as text, for the record."""
        return json.dumps({"plan": self.plan}, ensure_ascii=False)


def scratchpad_of(plan: Sequence[str]) -> Scratchpad:
    """Return a scratchpad with the plan of an answer, cut to the allowed length."""
    return Scratchpad(tuple(shorten(" ".join(item.split()), MAX_ITEM) for item in plan[:MAX_ITEMS] if item.strip()))


def scratchpad_from(text: str) -> Scratchpad:
    """Return the scratchpad that `Scratchpad.text` has written; an empty one for any other text."""
    try:
        return Scratchpad(tuple(map(str, json.loads(text)["plan"])))
    except (ValueError, KeyError, TypeError):
        return Scratchpad()


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
