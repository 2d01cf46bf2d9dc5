"""The loop of an agent: turns of its model and calls in alternation, until an answer or a ceiling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dagrun.errors import AgentStopped, ModelError, OverCeiling, ToolError, shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.outcome import Failure
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.usage import METER, Meter
from dagrun.llm.language_model import LanguageModel, Reply, Request, ask
from dagrun.llm.structured_answers import beginning_of, fault_of, json_text, told, why_no_answer
from dagrun.model_tools.agent_calls import AgentCalls, BadAgentCall, CheckedCall
from dagrun.model_tools.agent_turns import Turn, Turns, turns_left


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The parts of an agent that are equal in all its calls.

    Attributes:
        name: The name of its tool.
        model: The model that decides.
        turns: The form of its turns.
        max_steps: The most turns of one call of the tool.
        effect: The effect of its tool.
    """

    name: str
    model: LanguageModel
    turns: Turns
    max_steps: int
    effect: Effect


class AgentLoop:
    """One call of an agent.

    Args:
        agent: The agent.
        context: The context of the step.
        calls: Makes the calls of the agent.
        meter: Charges the calls of the agent's model.
    """

    def __init__(self, agent: Agent, context: ToolContext, calls: AgentCalls, meter: Meter) -> None:
        self._agent = agent
        self._context = context
        self._calls = calls
        self._meter = meter
        # The key and the failure of the last call, if it failed.
        self._failed: tuple[tuple[str, bytes], Failure] | None = None
        self._bad = 0  # unusable turns in a row

    async def run(self, request: Request) -> Any:
        """Run the loop, and return the answer.

        Args:
            request: The first request of the conversation.

        Raises:
            ToolError: There is no answer, and nothing in the world has changed.
            AgentStopped: There is no answer, and something in the world has changed, or may have.
            ModelError: The model failed; raised only for an agent that changes nothing.
        """
        try:
            return await self._run(request)
        except OverCeiling as error:
            raise self._end(str(error)) from error
        except ModelError as error:
            if self._agent.effect.is_free:
                raise  # recovery decides by the status of the error
            raise self._end(error.message, retryable=error.is_transient, retry_after=error.retry_after) from error

    async def _run(self, request: Request) -> Any:
        limit = self._agent.max_steps
        for step in range(limit):
            # In every turn, because a tool that calls models sets a meter of its own.
            METER.set(self._meter)
            reply = await ask(self._agent.model, request)
            try:
                turn, call = self._read(reply, request)
            except ValueError as error:
                text = self._bad_turn(error, reply)
            else:
                if call is None:
                    return self._answer(turn)
                self._context.progress((step + 1) / limit, f"calls {call.tool.name}")
                text = await self._make(call)
            request = told(request, reply.text, f"{text}\n\n{turns_left(limit - step - 1)}")
        raise self._end(f"ceiling of {limit} steps is spent, and there is no answer")

    def _read(self, reply: Reply, request: Request) -> tuple[Turn, CheckedCall | None]:
        if reply.stop == "refused":
            why = f"{why_no_answer(reply, request)}{beginning_of(reply.text)}"
            raise ModelError(f"{self._agent.model.name}: {why}", answer=reply.text)
        if why := why_no_answer(reply, request):
            raise ValueError(f"{why}; be shorter")
        turn = self._agent.turns.read(json_text(reply.text))
        return turn, None if turn.call is None else self._calls.check(turn.call)

    def _bad_turn(self, error: ValueError, reply: Reply) -> str:
        """Return the message about an unusable turn; end the loop at the second in a row."""
        self._bad += 1
        fault = shorten(fault_of(error), 1_000)
        if self._bad > 1:
            why = f"no turn that can be used, {self._bad} times in a row: {fault}{beginning_of(reply.text)}"
            raise self._end(why) from ModelError(why, answer=reply.text)
        what = "That call cannot be made" if isinstance(error, BadAgentCall) else "That does not fit the form"
        return f"{what}: {fault}"

    def _answer(self, turn: Turn) -> Any:
        if turn.cannot is not None:
            raise self._end(f"it cannot be done: {turn.cannot}")
        return turn.answer

    async def _make(self, call: CheckedCall) -> str:
        self._bad = 0
        if self._failed is not None and self._failed[0] == call.key and not self._failed[1].is_transient:
            message = self._failed[1].message
            raise self._end(
                f"no progress: it made the same call of {call.tool.name} again after that had failed: {message}"
            ) from self._failed[1].exception
        report = await self._calls.make(call)
        self._failed = None if report.failure is None else (call.key, report.failure)
        return report.text

    def _end(self, why: str, *, retryable: bool = False, retry_after: float | None = None) -> Exception:
        text = f"{self._agent.name}: {shorten(why, 500)}"
        if self._calls.has_changed:
            return AgentStopped(f"{text}; calls that it has made before stand")
        return ToolError(text, retryable=retryable, retry_after=retry_after)
