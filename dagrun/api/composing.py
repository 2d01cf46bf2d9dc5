"""``compose=``: the tool, or the model, that composes the answer of a run from its results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.tool import Tool, make_tool
from dagrun.kernel.model.toolbox import COMPOSE, AnyTool, Toolbox


def with_compose(toolbox: Toolbox, compose: Any) -> Toolbox:
    """Return *toolbox* with the tool that composes the answer.

    Args:
        toolbox: The tools of the run.
        compose: A tool or a function with an argument ``results``, and perhaps ``goal``; or a language model.

    Raises:
        ContractError: It is neither, or has an effect.
    """
    if COMPOSE in toolbox:
        return toolbox
    tool = _tool_of(compose)
    return Toolbox(toolbox, tool, allow={*toolbox.allowed, tool.name})


def _tool_of(compose: Any) -> AnyTool:
    if callable(getattr(compose, "stream", None)) and not isinstance(compose, type):
        from dagrun.model_tools.llm_tool import composing_tool  # here: few runs have a model of their own

        return composing_tool(compose)
    if not isinstance(compose, Tool) and not callable(compose):
        shown = shorten(repr(compose), 100)
        raise ContractError(f"compose is a tool, a function, or a model such as OpenAIModel('gpt-5'); got {shown}")
    try:
        made = compose if isinstance(compose, Tool) else make_tool(compose, name=COMPOSE, effect="read")
    except ContractError as error:
        raise ContractError(f"compose: {error}") from error
    if not made.effect.is_free or made.needs_approval:
        raise ContractError(f"compose={made.name}: what composes an answer only reads; it is {made.effect}")
    if "results" not in made.arguments.names:
        raise ContractError(f"compose={made.name}: it needs an argument results, which gets what the plan answers")
    return replace(made, name=COMPOSE)
