"""The prompts of planners: the words of `prompt_texts`, put together, and how data is quoted.

These are pure functions from a brief to text. Text of others (descriptions of tools, results, problems) stands in
blocks, as JSON, and nothing inside a block can end it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dagrun.kernel.model.planner import Brief
from dagrun.kernel.model.policy import PlanLimits
from dagrun.llm.language_model import Form, Message, Request, quote
from dagrun.planners.prompt_examples import NEXT_EXAMPLE, PATCH_EXAMPLE, Dialect, Example, renamed
from dagrun.planners.prompt_texts import FACTS, KEEPS_PLAN, PROMPT_VERSION, Wording
from dagrun.planners.signatures import signatures_of
from dagrun.planners.small_models import small_prompt

# What is asked for: the first plan; a new first plan, because the last one was refused; a change of the running plan;
# the next step of a loop.
Kind = Literal["first", "repair", "replan", "next"]

# With the first faults, a model usually fixes the others, too. All of 10,000 would cost more than the plan.
MAX_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt for a model.

    Attributes:
        system: The rules. They are equal for all requests of one kind, so that providers can cache them.
        messages: The request, and the messages before it.
        version: The version of the words.
    """

    system: str
    messages: tuple[Message, ...]
    version: str = PROMPT_VERSION

    def request(self, form: Form | None, max_output_tokens: int, temperature: float | None) -> Request:
        """Return the request with this prompt."""
        return Request(
            system=self.system,
            messages=self.messages,
            form=form,
            max_output_tokens=max_output_tokens,
            temperature=temperature,
        )

    def __str__(self) -> str:
        turns = "\n\n".join(f"--- {message.role} ---\n{message.text}" for message in self.messages)
        return f"--- system (version {self.version}) ---\n{self.system}\n\n{turns}"


# The words -----------------------------------------------------------------------------------------------------------

_JSON_ORDER: Final = 'Name a step in "depends_on" only for an order without data, such as a check before a payment.'
_COMPILER_ORDER: Final = "Steps are numbered for their references, not for their order."

_EXAMPLES_ARE: Final = "# Examples\n\nTheir tools do not exist here."

_WANTED: Final[Mapping[Kind, str]] = {
    "first": "Write the plan.",
    "repair": "Write the plan.",
    "replan": "Say how the plan changes.",
    "next": "Say what is next.",
}

_REFUSED: Final = "Your answer was refused. What is wrong with it:"
_BROKEN_OFF: Final = "Your answer broke off before it was whole."
_WHOLE: Final = """\
Write the whole plan anew, without these faults. Keep the ids of the steps that were right. Steps of the block "steps" \
that run or have succeeded stand in it exactly as they are: they are not done again."""
_ANEW: Final[Mapping[Kind, str]] = {
    "first": _WHOLE,
    "repair": _WHOLE,
    "replan": "Answer again, the whole of it, without these faults.",
    "next": "Answer again, without these faults.",
}

_LINES: Final = (("first", "compiler"), ("repair", "compiler"))
_OURS: Final = Wording()

# A ceiling of this many steps is there to stop floods, and tells a model nothing about a good plan.
_NO_LIMIT: Final = PlanLimits().max_steps


# Putting it together -------------------------------------------------------------------------------------------------


def prompt_for(
    kind: Kind,
    dialect: Dialect,
    brief: Brief,
    *,
    wording: Wording = _OURS,
    previous: str = "",
    max_steps: int | None = None,
) -> Prompt:
    """Write the prompt for a request.

    Args:
        kind: What is asked for.
        dialect: The form of plans. Changes and next steps are JSON in every dialect, because lines of calls cannot
            express them.
        brief: All that the model may know.
        wording: The words, and what the host adds to them.
        previous: The previous answer, if it was refused.
        max_steps: The most steps that may still be planned, unless the brief allows fewer.
    """
    system = _system(kind, dialect, [str(tool["name"]) for tool in brief.tools], wording)
    if dialect == "calls" and kind in ("first", "repair"):
        problems = brief.refused[-1].problems if brief.refused else ()
        turns = small_prompt(brief, wording.examples, problems)
        system = _joined(system, wording.date_of())  # next to the goal, a small model takes it for a value
    else:
        facts = _facts(brief) if dialect != "lean" else []
        turns = _turns(kind, [wording.date_of(), *facts, *_blocks(brief, max_steps)], brief, previous)
    return Prompt(system, turns, wording.version)


def _turns(kind: Kind, parts: Sequence[str], brief: Brief, previous: str) -> tuple[Message, ...]:
    if not brief.refused and kind != "repair":
        return (Message("user", _joined(*parts, _WANTED[kind])),)
    objection = [*_objection(brief), _ANEW[kind]]
    if not previous.strip():  # providers take no empty turns
        return (Message("user", _joined(*parts, *objection)),)
    return (
        Message("user", _joined(*parts, _WANTED[kind])),
        Message("assistant", previous),
        Message("user", _joined(*objection)),
    )


def _system(kind: Kind, dialect: Dialect, taken: Sequence[str], wording: Wording) -> str:
    shown = [_shown(example, dialect) for example in wording.examples if dialect in example.answers]
    match kind, dialect:
        case "next", _:
            names, shown = "next_role data+run tools next strict references", [NEXT_EXAMPLE]
        case "replan", _:
            names, shown = "patch_role data+run tools wide patch+step strict references patch_refusal", [PATCH_EXAMPLE]
        case _, "lean":
            names = "lean"
        case _, "calls":
            names, shown = "calls", []  # its examples are turns
        case _, "compiler":
            names = "role data tools wide compiler refusal"
        case _:
            names = "role data tools wide plan+step strict references refusal"
    order = _COMPILER_ORDER if (kind, dialect) in _LINES else _JSON_ORDER
    texts = ["".join(wording[name] for name in names_.split("+")) for names_ in names.split()]
    parts = [text.replace("{order}", order) for text in texts]
    if said := wording.from_host():
        parts.append(said)
    if shown:
        parts.append(_joined(_EXAMPLES_ARE, *(renamed(text, taken) for text in shown)))
    return _joined(*parts)


def _shown(example: Example, dialect: Dialect) -> str:
    """Write one example: its goal and tools, the answer, and the lesson."""
    calls = signatures_of(tool.describe() for tool in example.tools).tools
    # The full form has the most words, and is for models that read off signatures what these tools do.
    about = [f" {line['description']}" if dialect != "json" else "" for line in calls]
    tools = "\n".join(f"- {line['call']} [{line['effect']}]{text}" for line, text in zip(calls, about, strict=True))
    return f"Goal: {example.goal}\nTools:\n{tools}\nAnswer:\n{example.answers[dialect]}\nNote: {example.lesson}"


def _blocks(brief: Brief, max_steps: int | None) -> list[str]:
    """Quote the brief, block by block; the goal comes last, next to the request."""
    shown = brief.as_dict()
    left = dict(brief.left)
    if max_steps is not None:
        left["steps"] = min(left.get("steps", max_steps), max_steps)
    if left.get("steps", 0) >= _NO_LIMIT:
        del left["steps"]
    results = [{"id": id_, "output": output} for id_, output in brief.results.items()]
    # A first plan needs no reason.
    happened = [] if brief.is_first else shown["triggers"]
    blocks = {
        "inputs": [] if brief.inputs in (None, {}) else [brief.inputs],
        "steps": shown["steps"],
        "results": results,
        "output": [] if brief.output is None else [brief.output],
        "happened": happened,
        "past": [{key: text for key, text in past.items() if text} for past in shown["past"]],
        "before": [{key: text for key, text in before.items() if text} for before in shown["before"]],
        "left": [left] if left else [],
    }
    signatures = signatures_of(shown["tools"])
    tools = [_lines("tools", signatures.tools)]
    if signatures.types:
        tools.append(_lines("types", [f"{name} = {type_}" for name, type_ in signatures.types.items()]))
    return [*tools, *(_lines(name, values) for name, values in blocks.items() if values), _lines("goal", [brief.goal])]


def _facts(brief: Brief) -> list[str]:
    """Explain the rare fields in the descriptions of tools and of the run, if there are any."""
    said = [f'"{name}": {text}.' for name, text in FACTS.items() if any(name in tool for tool in brief.tools)]
    tools = [f"Of tools: {' '.join(said)}"] if said else []
    return [*tools, KEEPS_PLAN] if brief.keeps_plan else tools


def _objection(brief: Brief) -> list[str]:
    """List the problems of the last answer."""
    problems = brief.refused[-1].problems if brief.refused else ()
    shown: list[Any] = [{"at": problem.path, "problem": problem.sentence} for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > len(shown):
        shown.append(f"… and {len(problems) - len(shown)} more")
    return [_REFUSED, _lines("problems", shown)] if shown else [_BROKEN_OFF]


def _lines(name: str, values: Iterable[Any]) -> str:
    """Quote several JSON values in one named block, one on each line."""
    return "\n".join([f'<data name="{name}">', *map(quote, values), "</data>"])


def _joined(*parts: str) -> str:
    return "\n\n".join(parts)
