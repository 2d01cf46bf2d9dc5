"""The calls that an agent makes: its arguments checked, the tool called, what comes of it as text for the model."""

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
from pydantic import ValidationError

from dagrun.decide.classify import classify
from dagrun.errors import AgentStopped, ToolError, ValueRefused, shorten
from dagrun.executors.threads import ThreadExecutor
from dagrun.llm.quoting import block
from dagrun.model.executor import StillRunning, ToolCall
from dagrun.model.outcome import Failure
from dagrun.model.signature import explain
from dagrun.model.tool_context import ToolContext
from dagrun.model.toolbox import AnyTool, Toolbox, hint
from dagrun.model.value import Stored, decode, encode
from dagrun.model_tools.agent_turns import AgentCall
from dagrun.model_tools.usage_contract import ContractMeter
from dagrun.plans.read_plan import drop_nulls

# Seconds that a plain function gets to end when it was told to stop; then its step is abandoned.
GRACE: Final = 1.0


class BadAgentCall(ValueError):
    """A call that cannot be made as it stands; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A call that can be made.

    Attributes:
        tool: The tool.
        data: Its arguments as JSON text with sorted keys: two calls are the same if tool and text are.
        arguments: The same as keyword arguments.
    """

    tool: AnyTool
    data: bytes
    arguments: dict[str, Any]

    @property
    def key(self) -> tuple[str, bytes]:
        """What it has in common with every call that is the same."""
        return self.tool.name, self.data


@dataclass(frozen=True, slots=True)
class Told:
    """What the model is told of a call.

    Attributes:
        text: A quotation.
        failure: Why it failed; `None` if it gave something.
    """

    text: str
    failure: Failure | None = None


@dataclass(slots=True)
class _Use:
    """What a call has reported; a tool that says nothing is charged at its worst."""

    tokens: int | None = field(default=None)
    cost: float | None = field(default=None)

    def add(self, facts: Mapping[str, Any]) -> None:
        self.tokens = (self.tokens or 0) + facts["tokens"]
        self.cost = self.cost if facts["cost"] is None else (self.cost or 0.0) + facts["cost"]


class Calls:
    """Makes the calls of one agent in one attempt of its step.

    Args:
        toolbox: Its tools.
        context: Of the step.
        meter: What its tools use is charged here, like the calls of its model.
        is_costed: Whether there is a ceiling of cost.
        max_shown: Characters of one output that the model is shown.

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

    def check(self, call: AgentCall) -> Checked:
        """Check a call.

        Raises:
            BadCall: There is no such tool, or it takes no such arguments.
        """
        if call.tool not in self._toolbox.allowed:
            name = shorten(call.tool, 64)
            raise BadAgentCall(f"there is no tool {name!r}{hint(call.tool, self._toolbox.allowed)}")
        tool = self._toolbox[call.tool]
        tree: dict[str, Any] = {"tool": call.tool, "args": call.args}
        drop_nulls({"steps": [tree]}, self._toolbox)
        try:
            plain = decode(encode(tree["args"]))
            data = json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()
            return Checked(tool, data, tool.arguments.parse(data))
        except ValidationError as error:
            raise BadAgentCall(f"{tool.name}: {explain(error)}") from error
        except ValueRefused as error:
            raise BadAgentCall(f"{tool.name}: {error}") from error

    async def make(self, call: Checked) -> Told:
        """Make a call.

        Raises:
            AgentStopped: It failed, and may have taken effect.
            OverCeiling: It does not fit under a ceiling of the agent; it was not made.
            StillRunning: It was told to stop, and would not.
        """
        tool = call.tool
        try:
            if tool.needs_approval:
                await self._approve(call)
        except ToolError as error:
            return _failed(classify(error, tool))
        # Outside of what is caught below: that there is no room is not the failure of a call.
        worst_cost = self._free if tool.max_cost is None else tool.max_cost
        charge = self._meter.reserve(tool.name, tool.max_tokens or 0, worst_cost)
        use = _Use()
        try:
            result = await self._carry_out(call, use)
        except StillRunning:
            raise
        except Exception as error:
            failure = classify(error, tool)
            if not tool.effect.is_free and not failure.nothing_happened:
                raise AgentStopped(f"its call of {tool.name} may have taken effect: {failure.message}") from error
            return _failed(failure)
        finally:
            charge.settle(use.tokens, use.cost)
        self.has_changed = self.has_changed or not tool.effect.is_free
        try:
            value = _store(tool, result)
        except ValueRefused as error:
            return _failed(classify(error, tool))
        return Told(block("output", decode(value), self._max_shown))

    async def _approve(self, call: Checked) -> None:
        """Ask a person, where the tool says so: its calls are the agent's, and no policy of the run sees them."""
        about = {"tool": call.tool.name, "args": decode(call.data)}
        await self._context.ask(f"May the agent of step {self._context.step} call {call.tool.name}?", about=about)

    async def _carry_out(self, call: Checked, use: _Use) -> object:
        tool = call.tool
        limit = math.inf if tool.timeout is None else self._context.clock() + tool.timeout
        arguments = dict(call.arguments)
        if tool.arguments.context is not None:
            arguments[tool.arguments.context] = self._context_of(call, use, limit)
        with anyio.CancelScope(deadline=limit) as scope:
            if tool.is_async:
                result = await tool.function(**arguments)
            else:
                job = ToolCall(tool, call.data, arguments, lambda: self._context, GRACE, tool.output_limit)
                result = await self._threads.call(job)
        if scope.cancel_called:  # also if it has given something all the same: that came too late
            raise TimeoutError(f"{tool.name} took longer than {tool.timeout:g} s")
        return result

    def _context_of(self, call: Checked, use: _Use, limit: float) -> ToolContext:
        outer = self._context

        def report(kind: str, facts: Mapping[str, Any]) -> None:
            if kind == "usage":
                use.add(facts)
            else:
                outer.report(kind, facts)

        # A key for each call: with that of the step, a service would take two calls for one. The same call has the
        # same key, also in another attempt of the step.
        text = b"\0".join((outer.idempotency_key.encode(), call.tool.name.encode(), call.data))
        return dataclasses.replace(
            outer,
            idempotency_key=hashlib.sha256(text).hexdigest()[:32],
            deadline=min((d for d in (outer.deadline, limit) if d is not None and d < math.inf), default=None),
            report=report,
            stop=threading.Event(),  # its own: to stop one call is not to stop those after it
            ask_person=outer.ask_person if call.tool.is_async else None,
        )


def _store(tool: AnyTool, result: object) -> Stored:
    try:
        return tool.output.encode(result, tool.output_limit)
    except ValueRefused:
        if inspect.iscoroutine(result):
            result.close()  # nobody will await it, and it would complain about that much later
        raise


def _failed(failure: Failure) -> Told:
    return Told(block("failure", {"kind": str(failure.kind), "message": failure.message}), failure)
