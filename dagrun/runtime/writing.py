"""Writing a run down: what the runtime wants of a journal, in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dagrun.errors import JournalFailed, ValueRefused
from dagrun.graph.live import LiveGraph
from dagrun.graph.unrecorded import for_record
from dagrun.model.codec import encode
from dagrun.model.event import Event
from dagrun.model.journal import Tape
from dagrun.model.redaction import written
from dagrun.model.secret import NO_SECRETS, Secrets
from dagrun.runtime.upcalls import Upcalls


class Writer:
    """Writes the events of one run onto its tape.

    Args:
        tape: Of the run.
        graph: The state that the events have changed.
        up: Is told when an event cannot be written, because it holds what no JSON can say, or because the one before it
            is missing.
        secrets: Those of the host: none of them is written.

    Attributes:
        tape: The same.
    """

    def __init__(self, tape: Tape, graph: LiveGraph, up: Upcalls, secrets: Secrets = NO_SECRETS) -> None:
        self._graph = graph
        self._unrecorded = frozenset(graph.plan.policy.unrecorded)
        self._is_over = False
        self._last: int | None = None
        self.tape = tape
        self._up = up
        self.flush: Callable[[], None] = tape.flush
        self._append = tape.append
        self._text_of = partial(written, secrets=secrets) if secrets.are_hidden else encode

    def keep(self, event: Event) -> None:
        """Write *event* down; its number is that of its record."""
        if self._is_over:
            return  # a record with a hole in it would be a damaged one
        if self._last is not None and event.seq != self._last + 1:
            self._give_up(f"a change before {type(event).__name__} {event.seq} was cut off by an error")
            return
        self._last = event.seq
        if self._unrecorded:
            event = for_record(event, self._graph, self._unrecorded)
        try:
            text = self._text_of(event)
        except ValueRefused as error:
            self._give_up(f"{type(event).__name__} {event.seq} cannot be written: {error}")
        else:
            self._append(text)

    def _give_up(self, reason: str) -> None:
        self._is_over = True
        self._up.failed(JournalFailed(reason))
