"""The results that an engine keeps for equal calls, and the calls under way that others may join.

One cache serves all runs of an engine, in any thread, so its changes are under a lock. A call under way can be joined
only in the loop that makes it. Neither arguments nor secrets are kept: a key holds a keyed hash of them.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from anyio.lowlevel import EventLoopToken
from pydantic_core import from_json

from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Stored, to_json

if TYPE_CHECKING:
    from dagrun.features.shared_calls.single_flight import SingleFlightCall

ENTRY_BYTES: Final = 500  # that an entry takes besides its value
_ARTIFACT: Final = re.compile(rb'"sha256":"[0-9a-f]{64}"')


class _Same:
    """An object of the host in a cache key: equal only to itself, and kept alive, so that its `id` is not reused."""

    __slots__ = ("_thing",)

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._thing is self._thing

    def __hash__(self) -> int:
        return id(self._thing)


class Key(NamedTuple):
    """The key of a call; equal calls have equal keys.

    Attributes:
        tool: The tool itself: two tools of one name are not one.
        run: The run in which the result may be used; empty for every run of the engine.
        digest: A keyed hash of the arguments.
        things: The dependencies that the call gets, if other runs may use the result.
        is_second: Whether it is a second call beside a slow one.
    """

    tool: AnyTool
    run: str
    digest: bytes
    things: tuple[_Same, ...] = ()
    is_second: bool = False


@dataclass(slots=True)
class Entry:
    """A kept result.

    Attributes:
        value: The result.
        size: The bytes that it counts for.
        run_id: The run that made the call.
        step: The step that made it.
        attempt: Its attempt.
        at: The end of the call, on the clock of the loop.
        loop: The loop.
        wall: The same end on the monotonic clock, for other loops.
    """

    value: Stored
    size: int
    run_id: str
    step: str
    attempt: int
    at: float
    loop: EventLoopToken
    wall: float


class ResultCache:
    """Keeps results for equal calls: the last ones used, up to a number of bytes.

    Args:
        max_bytes: The most bytes that all results take together; a result of over a quarter of that is not kept.

    Attributes:
        under_way: The calls that can be joined, by loop and key.
    """

    def __init__(self, max_bytes: int) -> None:
        self.under_way: dict[tuple[EventLoopToken, Key], SingleFlightCall] = {}
        self._most = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._lock = threading.Lock()
        self._salt = token_bytes(32)

    def __repr__(self) -> str:
        return f"<ResultCache: {len(self._entries)} results, {self._bytes} of {self._most} bytes>"

    def digest(self, data: bytes, more: Iterable[bytes] = ()) -> bytes:
        """Return the keyed hash of arguments; the order of their names does not count."""
        made = blake2b(key=self._salt, digest_size=32)
        made.update(json.dumps(from_json(data), sort_keys=True, ensure_ascii=False).encode("utf-8", "backslashreplace"))
        for text in more:
            made.update(b"\0%d\0" % len(text))
            made.update(text)
        return made.digest()

    def get(self, key: Key, loop: EventLoopToken, now: float) -> Entry | None:
        """Return the kept result of a call; `None` if there is none that is new enough."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            kept = key.tool.cache
            age = now - entry.at if entry.loop == loop else time.monotonic() - entry.wall
            if isinstance(kept, int | float) and age >= kept:
                self._remove(key)
                return None
            self._entries.move_to_end(key)
            return entry

    def put(self, key: Key, entry: Entry) -> None:
        """Keep a result; those that were not used for longest make room for it."""
        with self._lock:
            self._remove(key)
            if entry.size * 4 > self._most:
                return
            self._entries[key] = entry
            self._bytes += entry.size
            while self._bytes > self._most:
                self._remove(next(iter(self._entries)))

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop the results of these calls."""
        with self._lock:
            for key in keys:
                self._remove(key)

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


def size_of(value: Stored) -> int:
    """Return the bytes that a result counts for."""
    return sys.getsizeof(value) + ENTRY_BYTES


def names_artifact(value: Stored) -> bool:
    """Whether a result names an artifact, which lies in the folder of its run and is of no use to another."""
    return type(value) is bytes and _ARTIFACT.search(to_json(value)) is not None


def same(things: Sequence[Any]) -> tuple[_Same, ...]:
    """Return objects of the host as parts of a key."""
    return tuple(map(_Same, things))
