"""Whole runs on virtual time, from synchronous code: by seed, with watched parts, and with parts replaced."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, TypeVar

import trio
from trio._core import _run as trio_run

from dagrun.testing import run_virtual

T = TypeVar("T")

Replacements = Mapping[Any, Any]
"""Classes and functions of dagrun, and what stands in for them."""


@contextmanager
def replaced(replacements: Replacements) -> Iterator[None]:
    """Put something else in the place of classes and functions, in every module of dagrun that has imported them.

    That is how a test gets at the parts that a run makes for itself: the product has no switch for it.
    """
    places = {original: _places_of(original) for original in replacements}
    missing = [original for original, found in places.items() if not found]
    assert not missing, f"nobody uses {missing}"
    try:
        for original, other in replacements.items():
            for module, name in places[original]:
                setattr(module, name, other)
        yield
    finally:
        for original, found in places.items():
            for module, name in found:
                setattr(module, name, original)


_PLACES: Final[dict[tuple[int, int], list[tuple[ModuleType, str]]]] = {}


def _places_of(original: Any) -> list[tuple[ModuleType, str]]:
    """Every name in a module of dagrun by which *original* goes. Looking through all of them takes milliseconds."""
    key = len(sys.modules), id(original)
    if key not in _PLACES:
        modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "dagrun"]
        every = ((module, name, value) for module in modules for name, value in list(vars(module).items()))
        _PLACES[key] = [(module, name) for module, name, value in every if value is original]
    return _PLACES[key]


@contextmanager
def seeded_schedule(seed: int) -> Iterator[None]:
    """Let *seed* alone choose in which order trio runs what can run; by default that order is different each time.

    Trio has no public way to do this; its own tests, and those of pytest-trio, do it like this.
    """
    was = trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    state = trio_run._r.getstate()
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_run._r.seed(seed)
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = was  # type: ignore[misc]
        trio_run._r.setstate(state)


def simulate(function: Callable[[], Awaitable[T]], seed: int) -> T:
    """Run *function* on trio's virtual clock, in the order of tasks that *seed* chooses."""
    with seeded_schedule(seed):
        return run_virtual(function, backend="trio")


def tasks_alive() -> int:
    """How many tasks there are in the running trio loop, its own included."""
    return trio.lowlevel.current_statistics().tasks_living
