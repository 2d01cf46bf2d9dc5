"""`Worker`: claims submitted runs from a journal, and carries them out in an engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias, Unpack

import anyio

from dagrun.api.engine import Engine
from dagrun.api.options import ResumeOptions, must_fit
from dagrun.api.record_opening import held_run_log, last_opening
from dagrun.codec import events_of
from dagrun.errors import CannotResume, ContractError, JournalFailed, OwnerLost, short_repr, shorten
from dagrun.journal.queue import ClaimedRunLog, QueueStatus, Wanted, standing_after
from dagrun.kernel.model.outcome import Status
from dagrun.kernel.runtime.run import Run
from dagrun.workers.submitting import build_of, queue_of

_LOG: Final = logging.getLogger("dagrun.run")
_MOST_REASON: Final = 2_000  # characters
_STOPS: Final = "its worker stops"
_Tell: TypeAlias = Callable[[QueueStatus | None, Status | None, str], object]
_LONGEST_UNFIT: Final = 1e9  # seconds: a server must be able to count back from now
_PAUSE: Final = 1.0  # seconds before the next try, when the store does not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimEvent:
    """An event about a run that a worker has claimed.

    Attributes:
        run_id: The run.
        standing: ``running`` when it was claimed; later where it stands when the worker lets it go, or `None` if it is
            left to another worker, since this one has lost it.
        status: How the run ended or was suspended; `None` if it did neither.
        reason: Why, in a sentence; empty if there is nothing to say.
        seconds: Seconds since the claim.
    """

    __repr__ = short_repr

    run_id: str
    standing: QueueStatus | None
    status: Status | None = None
    reason: str = ""
    seconds: float = 0.0


class Worker:
    """Claims runs that `submit` has queued, and carries them out; any number of workers may share a journal.

    A run whose worker has ended, or has lost its connection for longer than a lease, is taken over by another worker,
    as `resume` takes over a run: a call with an effect that was cut off is in doubt, and is not made again by itself. A
    worker leaves the runs alone whose tools differ from its own; those that no worker fits for a while become stuck.

    Args:
        engine: Where the runs are carried out, open; its ceilings hold in this process alone.
        pools: The pools that it works for.
        at_once: The most runs at once.
        max_takeovers: How often it lets a run be taken over; after one more, the run is stuck: it probably kills its
            workers. 0 for none, where what a run does to a machine must not be repeated by itself.
        unfit_after: Seconds after which a run with other tools is stuck that was in the queue for so long, while no run
            with its tools and pool was carried out: longer than the deploy of another version takes.
        on_claim: Is called on the loop when a run was claimed, and when the worker lets it go; it must return quickly.
        options: The options of each run, as for `resume`: at least *journal* and *tools*.

    Raises:
        ContractError: The journal takes no submitted runs; or an option is unknown, or makes no sense.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        pools: Sequence[str] = ("default",),
        at_once: int = 20,
        max_takeovers: int = 3,
        unfit_after: float = 3600.0,
        on_claim: Callable[[ClaimEvent], object] | None = None,
        **options: Unpack[ResumeOptions],
    ) -> None:
        must_fit(options, ResumeOptions, "a worker")
        if at_once < 1 or isinstance(pools, str) or not pools:
            raise ContractError("at_once is at least 1, and pools is a list of at least one name")
        if max_takeovers < 0 or not 0 < unfit_after <= _LONGEST_UNFIT:
            raise ContractError(
                f"max_takeovers is at least 0, and unfit_after above 0 and at most {_LONGEST_UNFIT:.0f} s"
            )
        self._engine = engine
        self._options = options
        self._queue = queue_of(options["journal"])
        self._wanted = Wanted(pools=tuple(pools), max_takeovers=max_takeovers, unfit_after=unfit_after)
        self._on_claim = on_claim
        self._room = anyio.Semaphore(at_once)
        self._refused: dict[str, str] = {}  # builds that it does not fit, and what differs
        self._runs: set[Run] = set()
        self._is_stopping = False
        self._looking = anyio.CancelScope()

    def __repr__(self) -> str:
        return f"<Worker for {', '.join(self._wanted.pools)}: {len(self._runs)} runs{', stopping' * self._is_stopping}>"

    async def run(self) -> Self:
        """Claim and carry out runs until `stop` is called, and the runs have been suspended."""
        async with anyio.create_task_group() as tasks:
            with self._looking:
                while not self._is_stopping:
                    await self._room.acquire()
                    tasks.start_soon(self._carry_out, await self._next(), name="dagrun worker")
        return self

    def stop(self) -> None:
        """Claim nothing more, and suspend the runs, which go back into the queue; call it on the loop."""
        self._is_stopping = True
        self._looking.cancel()
        for run in self._runs:
            run.suspend(_STOPS)

    async def _next(self) -> ClaimedRunLog:
        """Wait for the next run."""
        while True:
            wanted = replace(self._wanted, refused=dict(self._refused))
            try:
                run_log = await self._queue.claim(wanted)
                if run_log is not None:
                    return run_log
                await self._queue.wait(wanted)
            except JournalFailed as error:
                _LOG.warning("no run can be claimed now: %s", error)
                await anyio.sleep(_PAUSE)

    async def _carry_out(self, claimed: ClaimedRunLog) -> None:
        began = anyio.current_time()

        async def take() -> ClaimedRunLog:
            return claimed

        def tell(standing: QueueStatus | None, status: Status | None = None, reason: str = "") -> None:
            if self._on_claim is not None:
                seconds, run_id = anyio.current_time() - began, claimed.run_id
                news = ClaimEvent(run_id=run_id, standing=standing, status=status, reason=reason, seconds=seconds)
                self._on_claim(news)

        releases: list[tuple[QueueStatus | None, Status | None, str]] = []
        try:
            async with held_run_log(take):
                tell(QueueStatus.RUNNING)
                standing, reason = standing_after(claimed.lines[-1].text)
                if standing is QueueStatus.ENDED:  # the former worker ended after it
                    releases.append((standing, Status(reason), ""))
                else:
                    await self._resume(claimed, lambda *facts: releases.append(facts))
        finally:
            self._room.release()
            for release in releases:  # only now everybody sees that it stands there
                tell(*release)

    async def _resume(self, run_log: ClaimedRunLog, tell: _Tell) -> None:
        try:
            async with self._engine.resume_held(run_log, self._options) as run:
                await self._watch(run, run_log, tell)
        except OwnerLost as error:
            _LOG.warning("%s", error)
            tell(None, None, str(error))
        except JournalFailed as error:
            _LOG.warning("run %s is left to another worker: %s", run_log.run_id, error)
            tell(None, None, str(error))
        except CannotResume as error:
            tell(*self._refuse(run_log, error))
        except Exception as error:  # noqa: BLE001  (plug-ins may raise anything, and the other runs go on)
            _LOG.exception("run %s cannot be carried out", run_log.run_id)
            reason = shorten(f"{type(error).__name__}: {error}", _MOST_REASON)
            run_log.leave(QueueStatus.STUCK, reason)
            tell(QueueStatus.STUCK, None, reason)

    async def _watch(self, run: Run, run_log: ClaimedRunLog, tell: _Tell) -> None:
        """Wait for the end of a run, or until it is suspended."""
        self._runs.add(run)
        try:
            if self._is_stopping:
                run.suspend(_STOPS)
            result = await run.result()
        finally:
            self._runs.discard(run)
        is_suspended = result.status is Status.CANCELLED and bool(run.graph.unsettled)
        standing = QueueStatus.WAITING if result.status is Status.WAITING else QueueStatus.ENDED
        if is_suspended and result.reason == _STOPS:
            standing = QueueStatus.QUEUED
        elif is_suspended:
            # Another process has ordered it: no worker takes the run up before somebody wants it to go on.
            standing = QueueStatus.WAITING
            run_log.leave(standing, result.reason)
        tell(standing, result.status, result.reason)

    def _refuse(self, run_log: ClaimedRunLog, error: CannotResume) -> tuple[QueueStatus, None, str]:
        """Leave a run with other tools to a worker that fits it; set one aside that no worker could carry out."""
        reason = shorten("; ".join([str(error), *error.differences]), _MOST_REASON)
        build = build_of(last_opening(events_of(run_log.run_id, run_log.lines)))
        if error.differences:
            self._refused[build] = reason
            _LOG.warning("runs like %s are left to another worker: %s", run_log.run_id, reason)
            run_log.leave(QueueStatus.QUEUED, reason, is_untouched=True)
            return QueueStatus.QUEUED, None, reason
        run_log.leave(QueueStatus.STUCK, reason)
        return QueueStatus.STUCK, None, reason
