"""``compose=``: the tool, or the model, that composes the answer of a run from its results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dagrun.errors import ContractError, ModelError, shorten
from dagrun.llm.language_model import AnswerStream, LanguageModel, Message, Reply, Request
from dagrun.llm.quoting import DATA_RULE, block
from dagrun.model.tool import Tool, make_tool
from dagrun.model.tool_context import ToolContext
from dagrun.model.toolbox import COMPOSE, AnyTool, Toolbox
from dagrun.model.usage import METER, RUN_METER

_RULES: Final = """\
You write the answer to a request from the results of a program that has carried it out. Use nothing but the results: \
make up no facts, and say what is missing. Answer in the language of the request, in plain words, without a greeting, \
and without a word about the program."""

_MAX_TOKENS: Final = 4_096


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
        return _asking(compose)
    if not isinstance(compose, Tool) and not callable(compose):
        shown = shorten(repr(compose), 100)
        raise ContractError(f"compose is a tool, a function, or a model such as OpenAIModel('gpt-5'); got {shown}")
    try:
        made: AnyTool = compose if isinstance(compose, Tool) else make_tool(compose, name=COMPOSE, effect="read")
    except ContractError as error:
        raise ContractError(f"compose: {error}") from error
    if not made.effect.is_free or made.needs_approval:
        raise ContractError(f"compose={made.name}: what composes an answer only reads; it is {made.effect}")
    if "results" not in made.arguments.names:
        raise ContractError(f"compose={made.name}: it needs an argument results, which gets what the plan answers")
    return replace(made, name=COMPOSE)


def _asking(model: LanguageModel) -> AnyTool:
    async def compose_answer(results: Any, ctx: ToolContext, goal: str = "") -> str:
        """Write the answer to the goal from the results."""
        request = Request(
            system=f"{_RULES}\n\n{DATA_RULE}",
            messages=(Message("user", f"{block('results', results)}\n\n{block('request', goal)}"),),
            max_output_tokens=_MAX_TOKENS,
        )
        METER.set(RUN_METER.get()())
        parts = list[str]()
        async with AnswerStream(model, request) as asked:
            async for piece in asked.stream:
                if isinstance(piece, Reply):
                    ctx.report_usage(tokens=piece.usage.total or 0, cost=piece.cost)
                    return _whole(piece, "".join(parts), model)
                parts.append(piece)
                ctx.stream(piece)
        raise ModelError(f"{model.name}: the answer has no end")

    return replace(make_tool(compose_answer, name=COMPOSE, effect="read"), is_metered=True)


def _whole(reply: Reply, text: str, model: LanguageModel) -> str:
    if reply.stop != "end":
        why = f"cut off at {_MAX_TOKENS} tokens" if reply.stop == "length" else "refused"
        raise ModelError(f"{model.name}: the answer was {why}", answer=reply.text)
    return reply.text or text
