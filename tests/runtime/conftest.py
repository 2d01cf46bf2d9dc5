"""Fixtures of the tests of runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from readable_records import records_are_read_again


@pytest.fixture(autouse=True)
def _good_records(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each record that a test leaves in memory can be read again. What damages some on purpose is marked."""
    if request.node.get_closest_marker("bad_records") is not None:
        yield
        return
    with records_are_read_again(monkeypatch):
        yield
