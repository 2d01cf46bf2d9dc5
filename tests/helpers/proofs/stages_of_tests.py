"""Where each test runs: in `make test`, in `make rigs`, or at night only.

`make test` has what runs in its own process, on asyncio. Few tests of the core can end otherwise on trio: those of
cancelling, of threads, of journals in files. Their copies on trio are in `make test`, too. Of the others the copies are
for the night, and a tenth of them for the rigs. What starts processes, a server of PostgreSQL, or Chromium, is a rig.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final
from zlib import crc32

import pytest

SHARE: Final = 10  # of the copies that are for the night, one in so many is a rig
ON_TRIO: Final = re.compile(r"(?<=[\[-])trio(?=[\]-])")
# A test with such an argument asks on which backend it runs, or names both itself.
BACKENDS: Final = frozenset({"anyio_backend", "anyio_backend_name", "backend"})
STARTED: Final = frozenset({"browser", "postgres"})  # fixtures


def choose_stages(items: Sequence[pytest.Item]) -> None:
    """Mark what is a rig or for the night, and what the second Python runs: see `smoke_of`."""
    names = {item.nodeid for item in items}
    second = smoke_of([item for item in items if not is_later(item)])
    for item in items:
        if is_copy(item.nodeid, names) and not shows_backend(item):
            item.add_marker(stage_of_copy(item.nodeid))
        elif starts_something(item):
            item.add_marker("rigs")
    for item in second:
        item.add_marker("smoke")


def smoke_of(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Choose the first case of each function, but of those that start something the first one of each file."""
    quick = first_cases((item for item in items if not starts_something(item)), function_of)
    return [*quick, *first_cases(filter(starts_something, items), file_of)]


def starts_something(item: pytest.Item) -> bool:
    """Tell whether a test starts processes, or a server, or a browser: each costs as much as fifty other tests."""
    needed = STARTED.intersection(getattr(item, "fixturenames", ()))
    return bool(needed) or any(item.get_closest_marker(name) is not None for name in ("browser", "costly"))


def is_copy(name: str, names: Collection[str]) -> bool:
    """Tell whether a case runs on trio what another one runs on asyncio."""
    twin = ON_TRIO.sub("asyncio", name)
    return twin != name and twin in names


def shows_backend(item: pytest.Item) -> bool:
    """Tell whether a test may end otherwise on another backend: it is marked, or asks on which one it runs."""
    if item.get_closest_marker("both_backends") is not None:
        return True
    function = getattr(item, "function", None)
    return function is not None and not BACKENDS.isdisjoint(inspect.signature(function).parameters)


def stage_of_copy(name: str) -> str:
    """Choose a tenth of the copies for `make rigs`, the same ones each time."""
    return "night" if crc32(name.encode()) % SHARE else "rigs"


def by_day_each_once(many: Collection[object], few: Sequence[object]) -> list[object]:
    """Give all pairs, as cases of a test: by day each of *many* once, with *few* in turn; at night the others, too."""
    return [
        pytest.param(one, other, marks=[] if number % len(few) == place else pytest.mark.night)
        for number, one in enumerate(many)
        for place, other in enumerate(few)
    ]


def is_later(item: pytest.Item) -> bool:
    """Tell whether `make test` leaves a case out."""
    return any(item.get_closest_marker(stage) is not None for stage in ("rigs", "night"))


def first_cases(items: Iterable[pytest.Item], group_of: Callable[[pytest.Item], str]) -> list[pytest.Item]:
    """Give the first case of each group."""
    return list({group_of(item): item for item in reversed([*items])}.values())


def function_of(item: pytest.Item) -> str:
    """Name the function of a case."""
    return item.nodeid.partition("[")[0]


def file_of(item: pytest.Item) -> str:
    """Name the file of a case."""
    return item.nodeid.partition("::")[0]


def only_at_night(items: Sequence[pytest.Item]) -> list[str]:
    """Name the functions that no change would run, because all their cases are for the night."""
    by_day = {function_of(item) for item in items if item.get_closest_marker("night") is None}
    return sorted({function_of(item) for item in items} - by_day)
