"""Advice about tools: weaknesses that make a planner choose the wrong tool, or a run misuse it.

A planner knows a tool by its name, its description and its schemas alone, and recovery by what it declares. Each
finding has a code (``DR8..``), a sentence with the reason, and a fix.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dagrun.errors import Problem
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.tool import AnyTool, Toolbox, Tools

MAX_ARGUMENTS: Final = 8
_MAX_NAMED: Final = 5
_FEW_WORDS: Final = 3  # a description of fewer words says nothing

# Words that could be the name of any tool.
_EMPTY: Final = frozenset((
    "a", "action", "agent", "all", "any", "api", "call", "data", "do", "execute", "func", "function", "general",
    "generic", "handle", "helper", "invoke", "item", "job", "main", "manage", "misc", "my", "object", "perform",
    "process", "request", "run", "stuff", "task", "the", "thing", "tool", "use", "util", "utils", "work",
))  # fmt: skip
# Words that are hardly ever a noun in the name of a tool.
_VERBS: Final = frozenset((
    "add", "analyse", "analyze", "classify", "convert", "create", "delete", "edit", "fetch", "get", "infer",
    "read", "remove", "save", "send", "summarise", "summarize", "translate", "write",
))  # fmt: skip
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_VAGUE: Final = re.compile(
    r"\b(?:etc|and so on|and more|various|anything|whatever|stuff|things|all kinds|all sorts|any task"
    r"|general[- ]purpose|misc(?:ellaneous)?)\b",
    re.IGNORECASE,
)
# "Search, edit or infer", "Reads or writes": verbs at the beginning, joined by nothing but commas and "or".
_SEVERAL: Final = re.compile(r"^\W*([a-z]+(?:\s*,\s*[a-z]+)*\s*,?\s+(?:and/)?or\s+[a-z]+)\b", re.IGNORECASE)
_RAISES: Final = re.compile(r"^\s*(?:Raises|Fails|Errors)\b", re.MULTILINE | re.IGNORECASE)


def check_tools(tools: Tools, *, ignore: Iterable[str] = ()) -> tuple[Problem, ...]:
    """Report weaknesses of tools: hard to choose, or unsafe to call.

    Args:
        tools: The tools, as for `dagrun.run`.
        ignore: Codes that are not wanted, such as ``DR810``.

    Returns:
        The findings, by tool; the path of each is the name of its tool, and its `fix` says what to do.
    """
    toolbox = tools if isinstance(tools, Toolbox) else Toolbox(tools)
    unwanted = frozenset(ignore)
    found = [*_of_each(toolbox.values()), *_of_twins(toolbox.values())]
    order = {name: number for number, name in enumerate(toolbox)}
    found.sort(key=lambda problem: (order[problem.path], problem.code))
    return tuple(problem for problem in found if problem.code not in unwanted)


def _of_each(tools: Iterable[AnyTool]) -> Iterator[Problem]:
    for tool in tools:
        for code, facts in (*_of_words(tool), *_of_schemas(tool), *_of_effect(tool)):
            yield Problem(code, tool.name, {"tool": tool.name, **facts})


def _of_twins(tools: Iterable[AnyTool]) -> Iterator[Problem]:
    """Find tools that a planner cannot distinguish."""
    same: dict[str, list[str]] = defaultdict(list)
    for tool in tools:
        if text := " ".join(_words(tool.description)):
            same[text].append(tool.name)
    for names in same.values():
        for name in names[1:]:
            yield Problem("DR814", name, {"tool": name, "other": names[0]})


# Names and descriptions -----------------------------------------------------------------------------------------------


def _of_words(tool: AnyTool) -> Iterator[tuple[str, dict[str, str]]]:
    name, said = _words(tool.name), _words(tool.description)
    if all(word in _EMPTY for word in name):
        yield "DR801", {}
    verbs = [word for word in name if word in _VERBS]
    if len(verbs) > 1 or {"and", "or"} & set(name[1:-1]):
        yield "DR802", {}
    if not said:
        yield "DR803", {"reason": "there is none"}
    elif len(said) < _FEW_WORDS or set(said) <= {*name, "a", "an", "the"}:
        yield "DR803", {"reason": f"“{tool.description}” says no more than the name"}
    if found := _SEVERAL.match(tool.description) or _VAGUE.search(tool.description):
        yield "DR804", {"words": found[0].strip()}


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


# Schemas --------------------------------------------------------------------------------------------------------------


def _of_schemas(tool: AnyTool) -> Iterator[tuple[str, dict[str, str]]]:
    if (kind := untyped(tool.output.schema)) and not tool.output.has_objects:
        yield "DR805", {"kind": kind}
    properties: Mapping[str, Mapping[str, Any]] = tool.arguments.schema.get("properties", {})
    if len(properties) > MAX_ARGUMENTS:
        yield "DR806", {"count": str(len(properties)), "most": str(MAX_ARGUMENTS)}
    if bare := [name for name, schema in properties.items() if not schema.get("description")]:
        yield "DR807", {"arguments": _named(bare)}
    if loose := [name for name, schema in properties.items() if untyped(schema)]:
        yield "DR808", {"arguments": _named(loose)}


def untyped(schema: Mapping[str, Any]) -> str:
    """Return how a schema leaves the type of a value open, in words; an empty text if it does not."""
    said = schema.keys() - {"description", "title", "default", "examples"}
    if not said:
        return "anything"
    if schema.get("type") == "object" and not said - {"type", "additionalProperties"}:
        return "an object of any fields" if schema.get("additionalProperties", True) in (True, {}) else ""
    if schema.get("type") == "array" and not said - {"type", "items"}:
        return "a list of anything" if not schema.get("items") else ""
    return ""


def _named(names: list[str]) -> str:
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


# Effects and failures -------------------------------------------------------------------------------------------------


def _of_effect(tool: AnyTool) -> Iterator[tuple[str, dict[str, str]]]:
    effect = str(tool.effect)
    if not tool.effect_declared:
        yield "DR809", {}
    if tool.effect is not Effect.PURE:
        if tool.timeout is None:
            yield "DR810", {}
        if tool.fallback is None and not _RAISES.search(inspect.getdoc(tool.function) or ""):
            yield "DR811", {}
    if not tool.effect.is_free and tool.needs_approval is None:
        yield "DR812", {"effect": effect}
    if tool.effect is Effect.EFFECTFUL and tool.reconcile is None:
        yield "DR813", {"effect": effect}
    if tool.effect is Effect.IDEMPOTENT and tool.arguments.context is None:
        yield "DR815", {"effect": effect}
