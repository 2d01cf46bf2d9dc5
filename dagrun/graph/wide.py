"""Dicts and sets of very many ids, in parts of which none ever grows by much in one call.

What Python does within one call of C keeps all other threads waiting, and so the loop. A dict of 700,000 entries that
takes one more copies all of them, into 30 MB of memory that the system has still to find: a tenth of a second on some
machines. A part of one is done in a millisecond. In return a lookup is a call of Python, several times as dear, which
plans of the usual sizes are spared: they have dicts and sets.

The collector of Python works within one call, too, and looks through what is new, whole. So what is to hold a million
entries grows among other objects that are made, and is old when it is big; and what is made is not given back at the
same pace, which would put off the small collections until one of them has all of it to look at.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

AT_ONCE: Final = 10_000  # entries in one call: a few milliseconds at most
MANY: Final = 100_000  # entries: up to here no dict or set grows by more than 10 MB at once
_PARTS: Final = 64
# Which part of the hash says where an entry is: not the one by which that part finds its own places.
SHIFT: Final = 40
MASK: Final = _PARTS - 1


class WideDict(Mapping[K, V]):
    """What a dict is to those who add to it and never take anything away; in no order.

    Args:
        entries: Its first ones.
    """

    __slots__ = ("parts",)

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self.parts: list[dict[K, V]] = [{} for _ in range(_PARTS)]
        self.update((entries or {}).items())

    def __getitem__(self, key: K) -> V:
        return self.parts[hash(key) >> SHIFT & MASK][key]

    def __setitem__(self, key: K, value: V) -> None:
        self.parts[hash(key) >> SHIFT & MASK][key] = value

    def __contains__(self, key: object) -> bool:
        return key in self.parts[hash(key) >> SHIFT & MASK]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def has_all(self, keys: Iterable[K]) -> bool:
        """Whether it has all of *keys*; without a call for each."""
        parts = self.parts
        for key in keys:  # noqa: SIM110 - most steps ask for one, and for that a generator costs too much
            if key not in parts[hash(key) >> SHIFT & MASK]:
                return False
        return True

    def setdefault(self, key: K, default: V) -> V:
        """The value of *key*, which is *default* from now on if there was none."""
        return self.parts[hash(key) >> SHIFT & MASK].setdefault(key, default)

    def update(self, pairs: Iterable[tuple[K, V]]) -> None:
        """Add what is in *pairs*."""
        parts = self.parts
        for key, value in pairs:
            parts[hash(key) >> SHIFT & MASK][key] = value


class WideSet(Set[K]):
    """What a set is to those who add to it and never take anything away; in no order.

    Args:
        entries: Its first ones.
    """

    __slots__ = ("_parts",)

    def __init__(self, entries: Iterable[K] = ()) -> None:
        self._parts = parts = [set[K]() for _ in range(_PARTS)]
        for entry in entries:
            parts[hash(entry) >> SHIFT & MASK].add(entry)

    def add(self, entry: K) -> None:
        """Have *entry* in it."""
        self._parts[hash(entry) >> SHIFT & MASK].add(entry)

    def __contains__(self, entry: object) -> bool:
        return entry in self._parts[hash(entry) >> SHIFT & MASK]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return sum(map(len, self._parts))


AnyDict: TypeAlias = dict[K, V] | WideDict[K, V]
AnySet: TypeAlias = set[K] | WideSet[K]


def dict_for(count: int) -> AnyDict[Any, Any]:
    """An empty dict that is to have *count* entries."""
    return {} if count <= MANY else WideDict()


def with_room(held: AnyDict[K, V]) -> AnyDict[K, V]:
    """A dict with the entries of *held* for one entry more: itself, but where that is one too many for it."""
    return WideDict(held) if len(held) == MANY and type(held) is dict else held


def set_for(count: int) -> AnySet[Any]:
    """An empty set that is to have *count* entries."""
    return set() if count <= MANY else WideSet()


def set_of(entries: tuple[K, ...]) -> AnySet[K]:
    """A set of *entries*."""
    return set(entries) if len(entries) <= MANY else WideSet(entries)
