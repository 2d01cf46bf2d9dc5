"""Fixtures of every test: both backends, on the virtual clock unless a module says otherwise; and no leaks."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

from dagrun.testing import virtual_backend

# Few examples in everyday runs; the big numbers are for the night. No deadline: what a case takes says more about the
# machine, and what else it does, than about the code.
settings.register_profile("dagrun", max_examples=1000 if os.environ.get("DAGRUN_NIGHT") else 40, deadline=None)
settings.load_profile("dagrun")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both backends on virtual time; tests marked `real_time` get real loops."""
    if request.node.get_closest_marker("real_time") is not None:
        return request.param, {}
    return virtual_backend(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests that start processes, the variant on trio is a rig: each start costs half a second of CPU."""
    for item in items:
        if item.get_closest_marker("costly") is not None and "trio" in item.name:
            item.add_marker(pytest.mark.rigs)


def _children() -> set[int]:
    """The ids of the child processes; asked before and after every test, so without a walk over all processes."""
    lists = list(Path("/proc/self/task").glob("*/children"))
    if not lists:
        return {child.pid for child in psutil.Process().children()}
    found: set[int] = set()
    for file in lists:
        with suppress(OSError):  # a thread that has ended meanwhile
            found.update(map(int, file.read_text().split()))
    return found


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """Nothing that a test started outlives it: threads of ours, child processes, descriptors."""
    children = _children()
    files = _open_files()
    yield
    if _open_files() > files:
        gc.collect()  # costs too much to do after every test
    left = _children() - children
    assert not left, f"child processes left behind: {[psutil.Process(pid) for pid in left if psutil.pid_exists(pid)]}"
    ours = [t.name for t in threading.enumerate() if t.name.startswith("dagrun")]
    assert not ours, f"threads left behind: {ours}"
    # One descriptor of slack: a library may open a cache for good.
    assert _open_files() <= files + 1, "file descriptors left behind"
