"""Containers of a million entries, made and given back so that other threads get their turn.

What Python does within one call of C keeps all other threads waiting, and so the loop: it must not be about all the
steps of a big plan. That goes for its collector as well, which looks through what is new, whole. So what is to hold a
million entries grows among other objects that are made, and is old when it is big; and what is made is not given back
at the same pace, which would put off the small collections until one of them has all of it to look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 10_000  # entries in one call: a few milliseconds at most


def set_of(entries: Sequence[T]) -> set[T]:
    """A set of *entries*."""
    if len(entries) <= AT_ONCE:
        return set(entries)
    made: set[T] = set()
    for first in range(0, len(entries), AT_ONCE):
        made.update(entries[first : first + AT_ONCE])
    return made


def has_all(held: set[T], entries: Sequence[T]) -> bool:
    """Whether *held* has all *entries*."""
    if len(entries) <= AT_ONCE:
        return held.issuperset(entries)
    return all(held.issuperset(entries[first : first + AT_ONCE]) for first in range(0, len(entries), AT_ONCE))


def let_go(held: dict[Any, Any]) -> None:
    """Empty what nobody needs any more; without it, all of its entries are given back in one go."""
    if len(held) > AT_ONCE:
        while held:
            held.popitem()
