"""The tests of the live page are worth what they catch: planted faults, each of which one of them must notice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import test_feeds
import test_guard
from dagrun.observe.view.live_view import LiveView
from dagrun.serve import guard
from dagrun.serve.feeds import Feed
from dagrun.serve.guard import Guard
from page_client import RUN

pytestmark = [pytest.mark.rigs, pytest.mark.anyio]


def _cursor_off_by_one(patch: pytest.MonkeyPatch) -> None:
    changes = Feed.changes
    patch.setattr(Feed, "changes", lambda self, after: changes(self, after + 1))


def _delta_loses_a_step(patch: pytest.MonkeyPatch) -> None:
    changes = LiveView.changes

    def less(self: LiveView, after: int, at: float | None = None) -> dict[str, Any]:
        told = changes(self, after, at)
        told["steps"] = dict(list(told["steps"].items())[1:])
        return told

    patch.setattr(LiveView, "changes", less)


def _token_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guard, "compare_digest", lambda sent, token: True)


def _host_is_looked_at_for_the_first_page_alone(patch: pytest.MonkeyPatch) -> None:
    refusal = Guard._refusal

    def careless(self: Guard, scope: dict[str, Any]) -> Any:
        named = scope if scope["path"] == "/" else {**scope, "headers": [(b"host", b"127.0.0.1"), *scope["headers"]]}
        return refusal(self, named)

    patch.setattr(Guard, "_refusal", careless)


def _foreign_pages_may_post(patch: pytest.MonkeyPatch) -> None:
    refusal = Guard._refusal

    def careless(self: Guard, scope: dict[str, Any]) -> Any:
        kept = [(name, value) for name, value in scope["headers"] if name != b"sec-fetch-site"]
        return refusal(self, {**scope, "headers": kept})

    patch.setattr(Guard, "_refusal", careless)


FAULTS: dict[Callable[[pytest.MonkeyPatch], None], Callable[[], Awaitable[None]]] = {
    _cursor_off_by_one: lambda: test_feeds.test_a_stream_leads_to_the_view_of_the_end(True),
    _delta_loses_a_step: lambda: test_feeds.test_a_stream_leads_to_the_view_of_the_end(True),
    _token_is_not_compared: lambda: test_guard.test_nothing_is_told_without_the_token("GET", "/api/runs", "Bearer x"),
    _host_is_looked_at_for_the_first_page_alone: lambda: test_guard.test_another_name_is_refused_on_every_path(
        "GET", f"/api/runs/{RUN}", "evil.example"
    ),
    _foreign_pages_may_post: lambda: test_guard.test_a_foreign_page_can_change_nothing(
        {"sec-fetch-site": "cross-site"}, 403, "cancel"
    ),
}


@pytest.mark.parametrize("plant", FAULTS, ids=[fault.__name__.strip("_") for fault in FAULTS])
async def test_a_planted_fault_is_noticed(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    check = FAULTS[plant]
    await check()  # without the fault, it passes
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with pytest.raises((AssertionError, BaseExceptionGroup)):
            await check()
