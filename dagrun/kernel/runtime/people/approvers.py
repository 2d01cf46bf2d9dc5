"""Answers without the host: from the approver, or from a tool that knows the effect of its call.

A tool that is asked right after the cut of a call may see nothing yet, because its service is still at work. So a "no"
counts only if the tool was asked at `seconds_until_no_counts` after the cut or later. Before that, the tool is asked
again, after longer and longer pauses; a "yes", and that nobody knows, count at once. Meanwhile the step is held, and
occupies nothing. When the call was cut is on record, so a resumed run continues to wait.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar

import anyio.to_thread
from anyio.abc import TaskGroup

from dagrun.errors import ContractError
from dagrun.kernel.decide.questions import seconds_until_no_counts
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.effect import Applied
from dagrun.kernel.model.question import Answer, Approver, Asked, Question
from dagrun.kernel.model.redaction.redactor import RedactingLogger
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import decode
from dagrun.kernel.runtime.plugin_calls import PluginFailed, call_plugin
from dagrun.kernel.runtime.run_callbacks import RunCallbacks

_SINCE: Final = "seconds_since_cut"  # the parameter of a reconcile function
_FIRST_PAUSE: Final = 1.0  # seconds


async def reconcile(tool: AnyTool, key: str, seconds_since_cut: float) -> Answer | None:
    """Ask *tool* whether the call with the idempotency *key* took effect.

    Returns:
        A yes with the output of the call, a no, or `None` if the tool does not know either.

    Raises:
        ContractError: The reply of the tool is no answer.
        ValueRefused: The output in the reply does not fit the contract of the tool.
    """
    assert tool.reconcile is not None
    more = {_SINCE: seconds_since_cut} if _takes(tool.reconcile, _SINCE) else {}
    if inspect.iscoroutinefunction(tool.reconcile):
        reply: Any = await tool.reconcile(key, **more)
    else:
        reply = await anyio.to_thread.run_sync(partial(tool.reconcile, key, **more), abandon_on_cancel=True)
    by = f"reconcile of {tool.name}"
    match reply:
        case None:
            return None
        case False:
            return Answer("did_not", by=by)
        case Applied() | True:
            value = None if reply is True else reply.value
            return Answer("took_effect", value=decode(tool.output.encode(value, tool.output_limit)), by=by)
        case _:
            raise ContractError(
                f"{by} gives Applied(value) or True, False, or None if it does not know; got {reply!r:.90}"
            )


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-in functions have none
        return False


_LOG: Final = logging.getLogger("dagrun.run")

T = TypeVar("T")


async def _answer_of(approver: Approver, question: Question) -> object:
    """Return the reply of the approver.

    Raises:
        ContractError: It is a plain function, whose work would keep all steps from going on.
    """
    reply = approver(question)
    if not inspect.isawaitable(reply):
        raise ContractError("the approver is a plain function; write it with async def")
    return await reply


class ApproverCalls:
    """Gets answers for one run.

    Args:
        graph: The steps; only read here.
        approver: Is asked each question that no tool can answer; or none.
        grace: Seconds that a call gets to end when it was told to stop.
        context: The context variables that each call starts from.
        now: The clock of the loop.
        up: Returns the idempotency key of a call.
        tasks: The task group of the run.
        seconds_since: Returns the seconds since a time of the run.
    """

    def __init__(
        self,
        *,
        graph: LiveGraph,
        approver: Approver | None,
        grace: float,
        context: Context,
        now: Callable[[], float],
        up: RunCallbacks,
        tasks: TaskGroup,
        seconds_since: Callable[[float], float],
    ) -> None:
        self._graph = graph
        self._approver = approver
        self._grace = grace
        self._context = context
        self._now = now
        self._up = up
        self._tasks = tasks
        self._seconds_since = seconds_since

    def can_say(self, question: Question) -> bool:
        """Whether there is a tool or an approver to ask."""
        return self._approver is not None or self._reconciling(question) is not None

    async def ask(self, question: Question) -> object:
        """Ask the tool that was called, if it can know, and then the approver; return the reply, or `None`.

        Raises:
            PluginFailed: The approver gave no answer.
        """
        reply: object = await self._reconcile(question)
        if reply is None and self._approver is not None:
            reply = await self._call(partial(_answer_of, self._approver, question))
        return reply

    def _reconciling(self, question: Question) -> AnyTool | None:
        """Return the tool that can find out whether the call in question took effect, if there is one."""
        if question.kind is not Asked.EFFECT:
            return None
        node = self._graph.nodes[question.step]
        tool = node.called(node.attempts[-1].tool)
        return tool if tool.reconcile is not None else None

    async def _reconcile(self, question: Question) -> Answer | None:
        tool = self._reconciling(question)
        if tool is None:
            return None
        try:
            return await self._answer_in_time(self._graph.nodes[question.step], tool)
        except PluginFailed as error:
            text = "step %s: reconcile failed, so nobody knows if it took effect: %s"
            log = RedactingLogger(_LOG, self._graph.plan.redactor)
            log.warning(text, question.step, error, exc_info=error.failure.exception)
            return None

    async def _answer_in_time(self, node: Node, tool: AnyTool) -> Answer | None:
        """Ask *tool* about the last call of *node* until its answer counts.

        The cut is the recorded end of the attempt. An attempt that ended with its process has its end on record at the
        moment when the run was resumed: until then, the process may have worked on it.
        """
        key, cut = self._up.key_of(node, tool.name), node.attempts[-1].ended
        assert cut is not None
        until, pause = seconds_until_no_counts(node), _FIRST_PAUSE
        while True:
            since = self._seconds_since(cut)
            answer = await self._call(partial(reconcile, tool, key, since))
            if answer is None or answer.choice != "did_not" or since >= until:
                return answer
            left = until - self._seconds_since(cut)
            await anyio.sleep(max(0.001, min(pause, left)))  # a sleep may end a little early
            pause *= 2

    async def _call(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await call_plugin(
            call,
            tasks=self._tasks,
            name="dagrun approver",
            context=self._context,
            seconds=None,
            grace=self._grace,
            now=self._now,
        )
