"""Full collections of Python's cyclic collector, put off while big plans are checked, built and run.

A full collection looks at every object of the process, and stops all of it meanwhile: with a million steps for seconds,
several times over. All that it could find in the plans and runs that it is put off for is alive. It is put off by as
much as these take, and no further: whoever leaves more garbage behind gets a full collection as before. The small
collections of what is new go on as always.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 2_000  # steps; below that a full collection is short
_OBJECTS: Final = 50  # that a step takes, from its check to its end, and as many again for what its tool keeps

_lock: Final = threading.Lock()
_held: list[int] = []  # the steps of each plan that is at work now
_before = (0, 0, 0)  # the thresholds that the host has set
_ours = (0, 0, 0)


@contextmanager
def full_collections_put_off(steps: int) -> Iterator[None]:
    """Put off full collections for the body, if it is about many steps.

    Args:
        steps: How many.
    """
    if steps < MANY or not gc.isenabled():
        yield
        return
    _change(steps, is_over=False)
    try:
        yield
    finally:
        _change(steps, is_over=True)


def _change(steps: int, *, is_over: bool) -> None:
    global _before, _ours  # noqa: PLW0603 - the thresholds belong to the process, and so does what is known of them
    with _lock:
        now = gc.get_threshold()
        if not _held or now != _ours:  # the host has set them meanwhile: that is what holds from then on
            _before = now
        if is_over:
            _held.remove(steps)
        else:
            _held.append(steps)
        young, middle, old = _before
        room = sum(_held) * _OBJECTS // max(1, young * middle)
        _ours = (young, middle, old + room)
        gc.set_threshold(*_ours)
