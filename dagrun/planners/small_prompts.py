"""The prompt of the dialect ``calls``: a few rules, examples as turns of a conversation, and the tools in a line each.

Models below two billion parameters do not follow pages of rules, and copy what they read. They do well what they have
seen done: tools, a goal, and the few calls that reach it. So each example is a whole turn with tools of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dagrun.errors import Problem
from dagrun.llm.language_model import Message
from dagrun.llm.quoting import quote_line
from dagrun.model.planner import Brief
from dagrun.planners.prompt_examples import PREFIX, Example, renamed
from dagrun.planners.signatures import signatures_of

_WANTED: Final = "Write only the calls that this goal needs."
_MAX_PROBLEMS: Final = 3
_NUMBERED: Final = re.compile(r"\$\{(\d+)(?:-r\d+)?\}")


def small_prompt(brief: Brief, examples: Sequence[Example], problems: Sequence[Problem]) -> tuple[Message, ...]:
    """Return the turns of the prompt.

    Args:
        brief: All that the model may know.
        examples: Goals and good answers; those with an answer in ``calls`` become turns.
        problems: The problems of an answer that was refused. The answer itself is not shown: it would be copied.
    """
    taken = {str(tool["name"]) for tool in brief.tools}
    turns: list[Message] = []
    for example in examples:
        if "calls" in example.answers:
            contracts = [tool.describe() for tool in example.tools]
            asked = _request(contracts, example.goal, "")
            turns.append(Message("user", _shown(asked, example, taken)))
            turns.append(Message("assistant", _shown(example.answers["calls"], example, taken)))
    # In the form in which the model writes references.
    faults = ["- " + _NUMBERED.sub(r"$\1", problem.sentence) for problem in problems[:_MAX_PROBLEMS]]
    more = "\n".join(["Another answer was refused:", *_block("problems", faults)]) if faults else ""
    return (*turns, Message("user", _request(brief.tools, brief.goal, more)))


def _request(tools: Sequence[Mapping[str, Any]], goal: str, more: str) -> str:
    signatures = signatures_of(tools)
    lines = [f"{line['call']}: {_purpose(line['description'])}" for line in signatures.tools]
    types = [f"{name} = {type_}" for name, type_ in signatures.types.items()]
    parts = [_block("tools", lines), *([_block("types", types)] if types else []), _block("goal", [goal])]
    return "\n\n".join(["\n".join(part) for part in parts] + ([more] if more else []) + [_WANTED])


def _block(name: str, lines: Sequence[str]) -> list[str]:
    return [f'<data name="{name}">', *map(quote_line, lines), "</data>"]


def _purpose(description: str) -> str:
    return description.partition("\n\n")[0]


def _shown(text: str, example: Example, taken: set[str]) -> str:
    """Return a text of an example with plain names of its tools, unless the user has tools of those names.

    A small model that reads the prefix writes it in front of every tool.
    """
    plain = {tool.name.removeprefix(PREFIX) for tool in example.tools}
    return renamed(text, sorted(taken)) if plain & taken else text.replace(PREFIX, "")
