"""Where each test runs: in `make test`, in `make rigs`, or at night only.

Nearly all tests of the core run on asyncio and on trio. Few can end otherwise on the one than on the other: those of
cancelling, of threads, of journals in files. Their copies on trio are in `make test`. Of the others the copies are for
the night, and a tenth of them for the rigs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final
from zlib import crc32

import pytest

SHARE: Final = 10  # of the copies that are for the night, one in so many is a rig
ON_TRIO: Final = re.compile(r"(?<=[\[-])trio(?=[\]-])")
BACKENDS: Final = frozenset(
    {"anyio_backend", "anyio_backend_name", "backend"}
)  # a test with such an argument asks for its own


def choose_stages(items: Sequence[pytest.Item]) -> None:
    """Mark what is a rig or for the night, and of each function the first case that is neither as `smoke`."""
    names = {item.nodeid for item in items}
    for item in items:
        if is_copy(item.nodeid, names) and not shows_backend(item):
            item.add_marker(stage_of_copy(item.nodeid))
        elif item.get_closest_marker("costly") is not None and ON_TRIO.search(item.nodeid):
            item.add_marker("rigs")
    for item in first_cases(item for item in items if not is_later(item)):
        item.add_marker("smoke")


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


def is_later(item: pytest.Item) -> bool:
    """Tell whether `make test` leaves a case out."""
    return any(item.get_closest_marker(stage) is not None for stage in ("rigs", "night"))


def first_cases(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Give the first case of each function."""
    return list({function_of(item): item for item in reversed([*items])}.values())


def function_of(item: pytest.Item) -> str:
    """Name the function of a case."""
    return item.nodeid.partition("[")[0]


def only_at_night(items: Sequence[pytest.Item]) -> list[str]:
    """Name the functions that no change would run, because all their cases are for the night."""
    by_day = {function_of(item) for item in items if item.get_closest_marker("night") is None}
    return sorted({function_of(item) for item in items} - by_day)
