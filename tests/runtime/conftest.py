"""Fixtures of the tests of runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from readable_records import records_are_read_again
from replayed_records import must_be_few

# By day, the first record of each test on one backend: that is a thousand of all kinds.
PLAYED = 100 if os.environ.get("DAGRUN_NIGHT") else 1


@pytest.fixture(autouse=True, scope="session")
def _few_misses() -> Iterator[None]:
    """Nearly all records that these tests leave come to the same when they are played."""
    yield
    must_be_few()


@pytest.fixture(autouse=True)
def _good_records(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each record that a test leaves in memory can be read again. What damages some on purpose is marked."""
    if request.node.get_closest_marker("bad_records") is not None:
        yield
        return
    with records_are_read_again(monkeypatch, 0 if "trio" in request.node.name else PLAYED):
        yield
