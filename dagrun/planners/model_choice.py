"""A model, or the host, chooses: the tools that a planner is told of, or a route by its description."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict

from dagrun.errors import ContractError, ModelError
from dagrun.kernel.model.planner import Brief
from dagrun.kernel.model.tool import Toolbox
from dagrun.kernel.model.usage import note_prompt
from dagrun.llm.language_model import (
    DATA_RULE,
    Form,
    LanguageModel,
    Message,
    Request,
    block,
    must_be_counts,
    must_be_model,
)
from dagrun.llm.strict_schemas import closed
from dagrun.llm.structured_answers import ask_in_form

if TYPE_CHECKING:
    from dagrun.planners.host_plans import Route

SelectTools: TypeAlias = Callable[
    [str, Sequence[Mapping[str, Any]]],
    Iterable[str] | Awaitable[Iterable[str]],
]

_MAX_RUNS: Final = 200  # a planner may live for months
_UNKNOWN_TOOL: Final = "DR201"

_SYSTEM: Final = f"""\
You choose tools for a planner. Of the tools that you are given, name those that a plan for the goal may call, and no \
others: at most {{most}}. If in doubt about one, name it. The block "goal" says what is wanted.

{DATA_RULE}"""


class ToolPicker:
    """Picks the tools for a goal with one call of a model, which reads a sentence about each; for *select_tools*.

    Args:
        model: The model; a cheap one will do.
        most: The most tools that it picks. If there are no more than these, the model is not asked.
        max_output_tokens: The most tokens of its answer.

    Raises:
        ContractError: An option is not valid.
    """

    def __init__(self, model: LanguageModel, *, most: int = 12, max_output_tokens: int = 512) -> None:
        must_be_model(model, "ToolPicker")
        must_be_counts("ToolPicker", most=most, max_output_tokens=max_output_tokens)
        self.model = model
        self._most = most
        self._max_output_tokens = max_output_tokens

    async def __call__(self, goal: str, tools: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        """Return the names of the tools that the model has picked; all of them if its answer is of no use."""
        names = [str(tool["name"]) for tool in tools]
        if len(names) <= self._most:
            return names
        about = [{"name": tool["name"], "description": _sentence(str(tool["description"]))} for tool in tools]
        schema = closed({"tools": {"type": "array", "items": {"type": "string", "enum": names}}})
        request = Request(
            system=_SYSTEM.replace("{most}", str(self._most)),
            messages=(Message("user", f"{block('tools', about)}\n\n{block('goal', goal)}\n\nWhich tools?"),),
            form=Form("pick_tools", "The names of the tools.", schema),
            max_output_tokens=self._max_output_tokens,
            temperature=None,
        )
        note_prompt("tools", _SYSTEM)
        try:
            picked = await ask_in_form(self.model, request, _names, tries=1)
        except ModelError as error:
            if error.is_transient:
                raise
            return names  # no choice is no reason to have no plan
        known = [name for name in dict.fromkeys(picked) if name in names]
        return known[: self._most] or names


class ToolChoice:
    """Narrows briefs to the tools that the host, or its picker, selects; once for each run and goal.

    Args:
        select: The function of the host; `None` for all tools.
    """

    __slots__ = ("_chosen", "_select")

    def __init__(self, select: SelectTools | None) -> None:
        if select is not None and not callable(select):
            raise ContractError(f"select_tools is a function of the goal and the tools, not {select!r}")
        self._select = select
        self._chosen: dict[tuple[str, str], frozenset[str]] = {}

    async def narrowed(self, brief: Brief) -> Brief:
        """Return *brief* with the selected tools, and those that its steps call; all of them if a plan wanted others.

        Raises:
            ContractError: The function has selected a tool that is not there, or something that is no name.
        """
        if self._select is None or brief.toolbox is None or _wants_others(brief):
            return brief
        key = (brief.run_id, brief.goal)
        chosen = self._chosen.get(key)
        if chosen is None:
            chosen = self._chosen[key] = await self._ask(brief)
            if len(self._chosen) > _MAX_RUNS:
                del self._chosen[next(iter(self._chosen))]
        kept = chosen | {view.step.tool for view in brief.steps.values()}
        allowed = [name for name in brief.toolbox.allowed if name in kept]
        toolbox = Toolbox(list(brief.toolbox.values()), allow=allowed)
        return replace(brief, tools=tuple(tool for tool in brief.tools if tool["name"] in kept), toolbox=toolbox)

    async def _ask(self, brief: Brief) -> frozenset[str]:
        assert self._select is not None
        names = self._select(brief.goal, brief.tools)
        if inspect.isawaitable(names):
            names = await names
        known = {str(tool["name"]) for tool in brief.tools}
        names = [names] if isinstance(names, str) else list(names)
        if not all(isinstance(name, str) for name in names):
            raise ContractError(f"select_tools returns names of tools, not {names!r}")
        if unknown := sorted(set(names) - known):
            raise ContractError(f"select_tools has returned {', '.join(unknown)}, which the run does not have")
        return frozenset(names)


def _wants_others(brief: Brief) -> bool:
    """Whether the last plan was refused because it calls tools that were not selected, or none was enough."""
    problems = brief.refused[-1].problems if brief.refused else ()
    return any(problem.code == _UNKNOWN_TOOL for problem in problems)


def _names(text: str) -> list[str]:
    """Return the names in an answer.

    Raises:
        ValueError: There are none.
    """
    answer = json.loads(text)
    names = answer.get("tools") if isinstance(answer, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError('it should be an object with a list of names: {"tools": ["a", "b"]}')
    return names


def _sentence(description: str) -> str:
    first = " ".join(description.partition("\n\n")[0].split())
    return first if len(first) <= 160 else f"{first[:159]}…"


# Routes --------------------------------------------------------------------------------------------------------------

_NONE: Final = "none"
_RULES: Final = """\
You sort requests. You are given a request and the sorts of task that there are, each with its name. Answer with the \
name of the one that the request asks for, all of it and nothing else; or with "none" if none fits or you are not sure.

Answer with one JSON object and nothing else: {"route": "…"}"""


class _Choice(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    route: str


class ModelChooser:
    """Picks the route for a goal with one short call of a model, for ``RouterPlanner(…, chooser=…)``.

    The model sees the goal and, for each route, its name, its words and its description. It never sees the inputs.

    Args:
        model: The language model; a small one will do.
        max_output_tokens: The most tokens of its answer.

    Raises:
        ContractError: An option is not valid.
    """

    __slots__ = ("_max_output_tokens", "model")

    def __init__(self, model: LanguageModel, *, max_output_tokens: int = 64) -> None:
        must_be_model(model, "ModelChooser")
        must_be_counts("ModelChooser", max_output_tokens=max_output_tokens)
        self.model = model
        self._max_output_tokens = max_output_tokens

    async def __call__(self, goal: str, inputs: Any, routes: Sequence[Route]) -> str | None:
        """Return the name of the route; `None` if the model reports that none fits.

        Raises:
            ModelError: There is no answer.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        names = [route.name for route in routes]
        shown = [{"name": r.name, "words": list(r.words), "description": r.description} for r in routes]
        request = Request(
            system=f"{_RULES}\n\n{DATA_RULE}",
            messages=(Message("user", f"{block('routes', shown)}\n\n{block('request', goal)}"),),
            form=Form("route", "The sort of task.", closed({"route": {"type": "string", "enum": [*names, _NONE]}})),
            max_output_tokens=self._max_output_tokens,
            temperature=0.0,
        )

        def read(text: str) -> _Choice:
            choice = _Choice.model_validate_json(text)
            if choice.route not in (*names, _NONE):
                raise ValueError(f'"route" is one of {", ".join([*names, _NONE])}')
            return choice

        note_prompt("route", request.system)
        picked = (await ask_in_form(self.model, request, read)).route
        return picked if picked in names else None
