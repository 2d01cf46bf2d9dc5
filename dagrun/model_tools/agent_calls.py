"""The calls of an agent: arguments checked, the tool called, and its output written for the model."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from pydantic import BaseModel, ConfigDict, ValidationError

from dagrun.errors import AgentStopped, ToolError, ValueRefused, ValueTooLarge, hint, shorten
from dagrun.executors.threads import ThreadExecutor
from dagrun.kernel.decide.classify import classify
from dagrun.kernel.decide.exception_text import drop_frames
from dagrun.kernel.model.contracts.received import ReceivedArguments
from dagrun.kernel.model.contracts.spilling import spill
from dagrun.kernel.model.executor import StillRunning, ToolCall
from dagrun.kernel.model.outcome import Failure
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.tool import AnyTool, Toolbox
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.value import Stored, decode, encode
from dagrun.llm.language_model import block
from dagrun.model_tools.llm_tool import ContractMeter

# Seconds in which a plain function must end after it was told to stop; then its step is abandoned.
GRACE: Final = 1.0


class AgentCall(BaseModel):
    """A call that an agent wants to make."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tool: str
    args: dict[str, Any] = {}


class BadAgentCall(ValueError):
    """A call that cannot be made; the message is for the model."""


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A call that can be made.

    Attributes:
        tool: The tool.
        data: Its arguments as JSON text with sorted keys. Two calls are equal if their tools and texts are.
        arguments: Its arguments as keyword arguments.
    """

    tool: AnyTool
    data: bytes
    arguments: dict[str, Any]

    @property
    def received(self) -> ReceivedArguments:
        """The values that the tool receives."""
        return self.tool.arguments.received(self.data, self.arguments)

    @property
    def key(self) -> tuple[str, bytes]:
        """The key of the call; equal calls have equal keys."""
        return self.tool.name, self.data


@dataclass(frozen=True, slots=True)
class CallReport:
    """The result of a call, in the form for the model.

    Attributes:
        text: The output or the failure, quoted.
        failure: Why the call failed; `None` if it succeeded.
    """

    text: str
    failure: Failure | None = None


@dataclass(slots=True)
class _ReportedUsage:
    """The usage that a call has reported; a call without a report is charged at its worst case."""

    tokens: int | None = field(default=None)
    cost: float | None = field(default=None)

    def add(self, facts: Mapping[str, Any]) -> None:
        self.tokens = (self.tokens or 0) + facts["tokens"]
        self.cost = self.cost if facts["cost"] is None else (self.cost or 0.0) + facts["cost"]


class AgentCalls:
    """Makes the calls of one agent in one attempt of its step.

    Args:
        toolbox: The tools of the agent.
        context: The context of the step.
        meter: Charges the usage of the tools, and the usage of the agent's model.
        is_costed: Whether there is a ceiling of cost.
        max_shown: The most characters of one output that the model sees.

    Attributes:
        has_changed: Whether a call has changed the world, or may have.
    """

    def __init__(
        self, toolbox: Toolbox, context: ToolContext, meter: ContractMeter, *, is_costed: bool, max_shown: int
    ) -> None:
        self.has_changed = False
        self._toolbox = toolbox
        self._context = context
        self._meter = meter
        self._free = 0.0 if is_costed else None
        self._max_shown = max_shown
        self._threads = ThreadExecutor(max_threads=1, max_stuck=1)

    def check(self, call: AgentCall) -> CheckedCall:
        """Check a call.

        Raises:
            BadAgentCall: There is no such tool, or the arguments do not fit it.
        """
        if call.tool not in self._toolbox.allowed:
            name = shorten(call.tool, 64)
            raise BadAgentCall(f"there is no tool {name!r}{hint(call.tool, self._toolbox.allowed)}")
        tool = self._toolbox[call.tool]
        try:
            plain = decode(encode(call.args, self._context.limits.arguments))
            data = json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()
            return CheckedCall(tool, data, tool.arguments.parse(data))
        except ValidationError as error:
            raise BadAgentCall(f"{tool.name}: {explain(error)}") from error
        except ValueTooLarge as error:
            text = f"{tool.name}: the arguments: {error} (max_argument_bytes of the policy)"
            raise BadAgentCall(text) from error
        except ValueRefused as error:
            raise BadAgentCall(f"{tool.name}: {error}") from error

    async def make(self, call: CheckedCall) -> CallReport:
        """Make a call.

        Raises:
            AgentStopped: The call failed, and may have taken effect.
            OverCeiling: The call does not fit under a ceiling of the agent, and was not made.
            StillRunning: The call was told to stop, and did not.
        """
        tool = call.tool
        try:
            crossing = (self._context.inner_asks or {}).get(tool.name)
            if tool.needs_approval or (crossing is not None and not crossing.is_excused(call.received.forms)):
                await self._approve(call, "" if crossing is None else crossing.reason)
        except ToolError as error:
            return self._failed(classify(error, tool), tool)
        # Outside of the `try` below: a full ceiling is not a failure of the call.
        worst_cost = self._free if tool.max_cost is None else tool.max_cost
        charge = self._meter.reserve(tool.name, tool.max_tokens or 0, worst_cost)
        usage = _ReportedUsage()
        try:
            result = await self._carry_out(call, usage)
        except StillRunning:
            raise
        except Exception as error:
            failure = classify(error, tool)
            if not tool.effect.is_free and not failure.nothing_happened:
                raise AgentStopped(f"its call of {tool.name} may have taken effect: {failure.message}") from error
            return self._failed(failure, tool)
        finally:
            charge.settle(usage.tokens, usage.cost)
        self.has_changed = self.has_changed or not tool.effect.is_free
        try:
            value = self._store(tool, result)
        except ValueRefused as error:
            return self._failed(classify(error, tool), tool)
        return CallReport(block("output", decode(value), self._max_shown))

    def _failed(self, failure: Failure, tool: AnyTool) -> CallReport:
        """Report a failure to the model, and in the log to the author of the tool; the agent may continue."""
        self._context.logger.debug("its call of %s failed: %s", tool.name, failure.message, exc_info=failure.exception)
        drop_frames(failure.exception)
        return CallReport(block("failure", {"kind": str(failure.kind), "message": failure.message}), failure)

    async def _approve(self, call: CheckedCall, why: str) -> None:
        """Ask a person for approval here, because the policy of the run does not see the calls of an agent."""
        about = {"tool": call.tool.name, "args": decode(call.received.shown)} | ({"why": why} if why else {})
        await self._context.ask(f"May the agent of step {self._context.step} call {call.tool.name}?", about=about)

    async def _carry_out(self, call: CheckedCall, usage: _ReportedUsage) -> object:
        tool, most = call.tool, self._context.limits.most_of(call.tool)
        limit = math.inf if tool.timeout is None else self._context.clock() + tool.timeout
        arguments = dict(call.arguments)
        if tool.arguments.context is not None:
            arguments[tool.arguments.context] = self._context_of(call, usage, limit)
        arguments |= self._context.provider.fill(tool.arguments.deps, tool.arguments.optional_deps)
        with anyio.CancelScope(deadline=limit) as scope:
            if tool.is_async:
                result = await tool.function(**arguments)
            else:
                job = ToolCall(tool, call.data, arguments, lambda: self._context, GRACE, most)
                result = await self._threads.call(job)
        if scope.cancel_called:  # also if the function has returned a value: it came too late
            raise TimeoutError(f"{tool.name} took longer than {tool.timeout:g} s")
        return result

    def _store(self, tool: AnyTool, result: object) -> Stored:
        try:
            value = tool.output.encode(result, self._context.limits.most_of(tool))
        except ValueRefused:
            if inspect.iscoroutine(result):
                result.close()  # it will never be awaited, and would warn about that much later
            raise
        if not self._context.limits.spills(tool):
            return value
        return spill(value, tool, self._context.artifacts, f"{self._context.step}.{tool.name}")

    def _context_of(self, call: CheckedCall, usage: _ReportedUsage, limit: float) -> ToolContext:
        outer, kind = self._context, call.tool.arguments.context_deps

        def report(kind: str, facts: Mapping[str, Any]) -> None:
            if kind == "usage":
                usage.add(facts)
            else:
                outer.report(kind, facts)

        # Each call has a key of its own: with the key of the step, a service would take two calls for one. Equal calls
        # have equal keys, also in another attempt of the step.
        text = b"\0".join((outer.idempotency_key.encode(), call.tool.name.encode(), call.data))
        return dataclasses.replace(
            outer,
            idempotency_key=hashlib.sha256(text).hexdigest()[:32],
            deadline=min((d for d in (outer.deadline, limit) if d is not None and d < math.inf), default=None),
            report=report,
            stop=threading.Event(),  # of this call alone: the calls after it must not be stopped
            ask_person=outer.ask_person if call.tool.is_async else None,
            deps=outer.provider.given if kind is None else outer.provider.find(kind, call.tool.arguments.context or ""),
        )
