"""Fixtures of every test: both backends, on the virtual clock unless a module says otherwise; and no leaks."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from dagrun.testing import virtual_backend


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both backends on virtual time; tests marked `real_time` get real loops."""
    if request.node.get_closest_marker("real_time") is not None:
        return request.param, {}
    return virtual_backend(request.param)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    """Nothing that a test started outlives it: threads of ours, child processes, descriptors."""
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    files = _open_files()
    yield
    if _open_files() > files:
        gc.collect()  # costs too much to do after every test
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in children]
    assert not left, f"child processes left behind: {left}"
    ours = [t.name for t in threading.enumerate() if t.name.startswith("dagrun")]
    assert not ours, f"threads left behind: {ours}"
    # One descriptor of slack: a library may open a cache for good.
    assert _open_files() <= files + 1, "file descriptors left behind"
