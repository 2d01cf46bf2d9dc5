"""What there is for each step of a plan, by id: an index knows where each stands, and many share it.

A dict of a million is long in the making; a list is not.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

from dagrun.graph.wide import MASK, SHIFT, WideDict
from dagrun.model.plan import Step

T = TypeVar("T")
V = TypeVar("V")

_id: Final = attrgetter("id")


class Indexed(Mapping[str, T]):
    """Something by id, of which an index knows already which there are.

    Args:
        index: The ids.
    """

    __slots__ = ("_index",)

    def __init__(self, index: Mapping[str, int]) -> None:
        self._index = index

    def __contains__(self, id_: object) -> bool:
        return id_ in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


class ByPlace(Indexed[T]):
    """Something for each step of a plan.

    Args:
        index: The place of each id.
        steps: By place.
        found: What there is for each, by place.
    """

    __slots__ = ("_found", "_steps")

    def __init__(self, index: Mapping[str, int], steps: Sequence[Step], found: Sequence[T]) -> None:
        super().__init__(index)
        self._steps = steps
        self._found = found

    def __getitem__(self, id_: str) -> T:
        return self._found[self._index[id_]]

    def __iter__(self) -> Iterator[str]:
        # Of these two indices, only a dict has an order; and it is sooner through with it.
        return map(_id, self._steps) if type(self._index) is WideDict else iter(self._index)

    def values(self) -> ValuesView[T]:
        """What there is, in the order of the plan."""
        return _Values(self)

    def items(self) -> ItemsView[str, T]:
        """The same, each with its id."""
        return _Items(self)

    def in_order(self) -> Iterator[T]:
        """Go through what there is, without asking where each id stands."""
        return iter(self._found)

    def growing(self, found: list[V]) -> ById[V]:
        """Something else for each of the steps, by place, to which more can be added."""
        if type(self._index) is WideDict:
            return Growing(self._index, self._steps, found)
        return dict(zip(self, found, strict=True))


class Growing(ByPlace[T]):
    """Something for each step of a big plan, and for what has come later; nothing is ever taken away.

    Args:
        index: The place of each id of the plan.
        steps: By place.
        found: What there is for each, by place.
    """

    __slots__ = ("_later", "_parts")

    _found: list[T]

    def __init__(self, index: WideDict[str, int], steps: Sequence[Step], found: list[T]) -> None:
        super().__init__(index, steps, found)
        self._parts = index.parts
        self._later: dict[str, T] = {}

    def __getitem__(self, id_: str) -> T:
        place = self._parts[hash(id_) >> SHIFT & MASK].get(id_)
        return self._later[id_] if place is None else self._found[place]

    def __setitem__(self, id_: str, value: T) -> None:
        place = self._index.get(id_)
        if place is None:
            self._later[id_] = value
        else:
            self._found[place] = value

    def __contains__(self, id_: object) -> bool:
        return id_ in self._index or id_ in self._later

    def __iter__(self) -> Iterator[str]:
        return chain(super().__iter__(), self._later)

    def __reversed__(self) -> Iterator[str]:
        return chain(reversed(self._later), map(_id, reversed(self._steps)))

    def __len__(self) -> int:
        return len(self._found) + len(self._later)

    def in_order(self) -> Iterator[T]:
        """Go through what there is, what has come later last."""
        return chain(self._found, self._later.values())


ById: TypeAlias = dict[str, T] | Growing[T]


class _Values(ValuesView[T]):
    """Does not ask where each id stands."""

    def __init__(self, mapping: ByPlace[T]) -> None:
        super().__init__(mapping)
        self._by_place = mapping

    def __iter__(self) -> Iterator[T]:
        return self._by_place.in_order()


class _Items(ItemsView[str, T]):
    """The same, with the ids."""

    def __init__(self, mapping: ByPlace[T]) -> None:
        super().__init__(mapping)
        self._by_place = mapping

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return zip(self._by_place, self._by_place.in_order(), strict=True)


def by_id(steps: Mapping[str, object], found: list[T]) -> ById[T]:
    """What was found for each of *steps*, in their order; more can be added to it."""
    return steps.growing(found) if isinstance(steps, ByPlace) else dict(zip(steps, found, strict=True))
