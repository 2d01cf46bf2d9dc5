"""Ways to end a run that damage its record or hide a doubt; each must be noticed by the stops in every turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from dagrun import Event, Status
from dagrun.api.record_opening import held_run_log
from dagrun.events import RunEnded, RunSuspended
from dagrun.extend import RunLog
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.node import Node
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.resume import Resumption


class TellsAfterTheEnd(Record):
    """What comes after the end is added to the record."""

    def _take(self, event: Event, node: Node | None = None) -> None:
        ended, self.ended_at = self.ended_at, None
        super()._take(event, node)
        self.ended_at = ended


class NeverSuspends(Record):
    """A run that is suspended is left without an end, and what its tasks still do is told."""

    def suspend_run(self, status: Status, reason: str) -> None:
        self.deliver()
        self.ended_at = self.zero + self.at()
        for observer in self._observers:
            observer.close()


class EndsInPlaceOfSuspending(Record):
    """A run that is suspended has ended, and nobody can resume it."""

    def suspend_run(self, status: Status, reason: str) -> None:
        self.end_run(status, reason)


class ToleratesDoubts(Record):
    """A doubt about a step that has left the plan is forgotten."""

    def _is_in_doubt(self, node: Node) -> bool:
        return False


class KeepsFromTheJournal(Record):
    """The last event is applied, and not written."""

    def _close(self, event: RunEnded | RunSuspended) -> None:
        keep, self._keep = self._keep, None
        super()._close(event)
        self._keep = keep


class NumbersTwice(Record):
    """An event that is not told uses up a number."""

    def suspend_run(self, status: Status, reason: str) -> None:
        self.next_seq()
        super().suspend_run(status, reason)


@asynccontextmanager
async def drops_the_run_log(take: Callable[[], Awaitable[RunLog]]) -> AsyncIterator[RunLog]:
    """The record is released only where the run has ended by itself."""
    run_log = await take()
    yield run_log
    await run_log.aclose()


class LosesBackOffs(Resumption):
    """A step whose back-off has not ended is neither ready nor waiting."""

    def _line_up(self, ready: list[Node]) -> None:
        self._frontier.refill([node for node in ready if self._delay(node) <= 0])


class AppliesOnlyToTheRecord(Record):
    """The end of the run is written, and the state does not know."""

    def _take(self, event: Event, node: Node | None = None) -> None:
        if isinstance(event, RunSuspended) and self.ended_at is None:
            keep, self._keep = self._keep, None
            if keep is not None:
                keep(event)
            apply(self.graph, RunSuspended(event.seq, event.at, Status.FAILED, ""), node)
            self._keep = keep
            return
        super()._take(event, node)


MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "told after the end": {Record: TellsAfterTheEnd},
    "an end without a suspension": {Record: NeverSuspends},
    "an end in place of a suspension": {Record: EndsInPlaceOfSuspending},
    "a doubt is forgotten with its step": {Record: ToleratesDoubts},
    "the end is not written": {Record: KeepsFromTheJournal},
    "a number is used up": {Record: NumbersTwice},
    "the run log is dropped": {held_run_log: drops_the_run_log},
    "a back-off is lost": {Resumption: LosesBackOffs},
    "the state is not what is written": {Record: AppliesOnlyToTheRecord},
}
