"""Questions of a tool in the middle of a call: until the answer, its step is held, without a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.event import StepResumed
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.value import encode, to_json
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.run_parts import RunParts


class AskFromTool:
    """Passes questions of tools to people.

    Args:
        parts: What the parts of the run share.
    """

    def __init__(self, parts: RunParts) -> None:
        self._frontier = parts.frontier
        self._record = parts.record
        self._people = parts.people
        self._up = parts.up

    async def ask(self, live: LiveAttempt, text: str, schema: Mapping[str, Any] | None, about: Any) -> Answer | None:
        """Ask for a running tool, and wait for the answer and for a place to continue; `None` if there is no answer.

        Raises:
            ValueRefused: *about* or *schema* is not JSON.
        """
        encode([text, schema])
        shown = b"" if about is None else to_json(encode(about))
        rare = live.make_rare()
        if rare.asking is None:
            rare.asking = anyio.Lock()
        if rare.told is None:
            rare.told = list(live.node.extra.told) if live.node.extra is not None else []
        async with rare.asking:  # a tool with tasks of its own may want to ask two questions at once
            answer = await self._ask(live, text, None if schema is None else dict(schema), shown)
        if live.scope.is_told:
            await checkpoint()  # here it is cancelled
        return answer

    async def _ask(self, live: LiveAttempt, text: str, schema: Mapping[str, Any] | None, about: bytes) -> Answer | None:
        with self._up.clock_stopped(live):
            try:
                return await self._people.ask_inside(
                    live.node,
                    text,
                    schema,
                    about,
                    told=live.make_rare().told or [],
                    on_open=partial(self._hold, live),
                    goes_on=lambda: live.asked is None,
                    is_let_go=lambda: live.is_let_go,
                )
            finally:
                await self.wait_for_place(live)

    @staticmethod
    async def wait_for_place(live: LiveAttempt) -> None:
        """Wait until it has a place again; also if the tool waits no longer: it must not continue without one."""
        rare = live.make_rare()
        if live.asked is None and not rare.has_place and rare.resume is not None:
            with anyio.CancelScope(shield=True):
                await rare.resume.wait()

    def _hold(self, live: LiveAttempt) -> None:
        rare = live.make_rare()
        rare.resume = anyio.Event()
        rare.has_place = False
        self._frontier.release(live.node)
        self._up.nudge()

    def resume(self, live: LiveAttempt, node: Node) -> None:
        """Continue a step that has a place again: its question was answered, or the element is there it has waited for.

        Args:
            live: Its attempt.
            node: The step; or what has stood in line for it, while it was running.
        """
        rare = live.make_rare()
        rare.has_place = True
        if node is live.node:
            self._record.emit(StepResumed(self._record.next_seq(), self._record.at(), node.id))
        if rare.resume is not None:
            rare.resume.set()
