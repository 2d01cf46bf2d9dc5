"""Runs that a worker could not open are tried again less and less often, however many there are."""

from __future__ import annotations

import pytest

from dagrun.journal import queue
from dagrun.journal.queue import ClaimBackoff


class Clock:
    """The clock of the queue, which a test sets forward."""

    now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(queue, "time", clock)
    return clock


def test_many_runs_are_put_off_as_one_is(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no number of them beyond which all are tried all the time."""
    monkeypatch.setattr(queue, "_MOST_KNOWN", 3)
    entries, put_offs = [(number, 0) for number in range(6)], ClaimBackoff()
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        for entry in entries:
            put_offs.add(entry)
        assert put_offs.left() == dict.fromkeys(entries, pytest.approx(pause))
        clock.now += pause
        assert put_offs.left() == {}


def test_a_run_that_has_left_the_queue_is_forgotten(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have opened those that were not tried again; one that was opened here is tried at once later."""
    monkeypatch.setattr(queue, "_MOST_KNOWN", 3)
    put_offs = ClaimBackoff()
    for number in range(6):
        put_offs.add((number, 0))
    clock.now += 120
    put_offs.add((7, 0))
    assert len(put_offs._tried) == 1
    put_offs.forget((7, 0))
    put_offs.add((7, 0))
    assert put_offs.left() == {(7, 0): pytest.approx(1)}
