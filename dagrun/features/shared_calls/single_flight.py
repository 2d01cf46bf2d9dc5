"""`SingleFlightCall`: one call that several attempts wait for, in a task of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from dagrun.kernel.model.executor import StillRunning
from dagrun.kernel.model.outcome import Outcome, State
from dagrun.kernel.runtime.backend import is_being_cancelled
from dagrun.kernel.runtime.live_attempt import LiveAttempt

NOBODY: Final = "no step waits for it"


def _nothing() -> None:
    pass


class SingleFlightCall:
    """A call that several attempts share. Each member waits, or leaves; the last one to leave cancels it.

    Args:
        live: The slot of the call itself. Its node is the step that began it.
        grace: Seconds that it may take to end when it is told to stop.
        run_id: The run that it belongs to.

    Attributes:
        live: The same.
        run_id: The same.
        step: The step that began it.
        attempt: The attempt of that step.
        members: The slots of the attempts that wait, the longest first.
        on_join: Called with each slot that joins; `None` for nothing.
        close: Keeps newcomers away; may be called more than once.
        is_launched: Whether it has a task.
        outcome: How it ended; `None` while it runs, and if it was stopped.
    """

    __slots__ = (
        "_ended",
        "_grace",
        "_is_left_behind",
        "attempt",
        "close",
        "is_launched",
        "live",
        "members",
        "on_join",
        "outcome",
        "run_id",
        "step",
    )

    def __init__(self, live: LiveAttempt, grace: float, run_id: str) -> None:
        self.live = live
        self.run_id = run_id
        self.step = live.node.id
        self.attempt = len(live.node.attempts)
        self.members: list[LiveAttempt] = []
        self.on_join: Callable[[LiveAttempt], object] | None = None
        self.close: Callable[[], object] = _nothing
        self.is_launched = False
        self.outcome: Outcome | None = None
        self._is_left_behind = False
        self._grace = grace
        self._ended = anyio.Event()

    @property
    def is_wanted(self) -> bool:
        """Whether any attempt waits for it whose end is not on record."""
        return any(map(_is_payable, self.members))

    def join(self, member: LiveAttempt) -> None:
        """Add an attempt, which waits from now on."""
        self.members.append(member)
        if self.on_join is not None:
            self.on_join(member)

    def _settle(self) -> None:
        """Mark members without usage of their own; a call without a report counts at its worst case."""
        rare = self.live.make_rare()
        if rare.is_batch and not rare.has_reported:
            return
        for member in self.members[0 if rare.has_reported else 1 :]:
            member.make_rare().has_reported = True

    async def wait(self, member: LiveAttempt) -> Outcome | None:
        """Wait for the end of the call on behalf of *member*, which has joined; return its outcome.

        Raises:
            StillRunning: The attempt was the last, was told to stop, and the call has not ended.
        """
        try:
            await self._ended.wait()
        except GeneratorExit:  # the runtime has dropped this coroutine, so it must not await any more
            self._leave(member)
            raise
        except anyio.get_cancelled_exc_class():
            if self._leave(member):
                with anyio.move_on_after(self._grace, shield=True):
                    await self._ended.wait()
                if self._is_left_behind or not self._ended.is_set():
                    raise StillRunning(
                        f"{self.live.tool.name} still runs, {self._grace:g} s after it was told to stop"
                    ) from None
            raise
        return self.outcome

    def _leave(self, member: LiveAttempt) -> bool:
        """Take an attempt away; stop the call and return `True` if it was the last."""
        if self._ended.is_set():
            return False
        if member.asked is State.TIMED_OUT:
            self.close()  # its next attempt does not join the call that it was tired of
        if len(self.members) > 1:
            self.members.remove(member)
            member.make_rare().has_reported = True  # another is charged
            return False
        self.stop(NOBODY)
        return True

    def stop(self, reason: str) -> None:
        """Cancel the call."""
        self.close()
        self.live.tell_to_stop(State.CANCELLED, reason, self._grace)
        if not self.is_launched:
            self.close, self.live.call = _nothing, None
            self.live.make_rare().common = None
            self._ended.set()

    def charge(self, tokens: int, cost: float | None) -> None:
        """Charge new usage of the call at once: a waiting member may be gone when it ends.

        It is charged to the attempt that waits for it longest; that of a batch in equal shares.
        """
        rare = self.live.make_rare()
        rare.has_reported = True
        paying = [member for member in self.members if _is_payable(member)]
        if not rare.is_batch:
            del paying[1:]
        for number, member in enumerate(paying):
            share, rest = divmod(tokens, len(paying))
            _charge(member, share + rest * (number == 0), None if cost is None else cost / len(paying))

    def end(self, outcome: Outcome | None) -> Outcome | None:
        """End the call, and release its members.

        Args:
            outcome: How it ended; `None` if it was cancelled.

        Returns:
            The outcome, as the members get it; `None` if the call was told to stop.
        """
        live = self.live
        self.close()
        self.close = _nothing  # it leads back here
        live.make_rare().common = None
        live.is_done, live.call = True, None  # the call leads back to the live
        self._is_left_behind = outcome is not None and outcome.state is State.ABANDONED
        if live.asked is None and not is_being_cancelled():  # else it may have swallowed that
            self.outcome = outcome
        self._settle()
        if live.rare is not None and live.rare.surprise:
            for member in self.members:
                member.make_rare().surprise = live.rare.surprise
        self._ended.set()
        return self.outcome


def _is_payable(live: LiveAttempt) -> bool:
    """Whether a charge to *live* would be recorded: its end, or the end of a member behind it, is not."""
    common = None if live.rare is None else live.rare.common
    return not live.is_done and (common is None or any(map(_is_payable, common.members)))


def _charge(live: LiveAttempt, tokens: int, cost: float | None) -> None:
    rare = live.make_rare()
    if rare.common is not None:  # a call of a batch for which several attempts wait
        rare.common.charge(tokens, cost)
        return
    rare.has_reported = True
    live.tokens += tokens
    if cost is not None:
        live.cost = (live.cost or 0.0) + cost
