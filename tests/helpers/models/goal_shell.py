"""The commands that ask a model, as tests use them: with a server of their own that plays it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from dagrun.testing import FakeModelServer, ModelAnswer
from dagrun.testing.model_server.script import Act

KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
SECRET = "sk-do-not-show-this-to-anybody-0123456789"

ONE = {"id": "one", "tool": "add", "args": {"a": 1}}
TWO = {"id": "two", "tool": "add", "args": {"a": "${one}", "b": 5}}


def written(*steps: Mapping[str, Any], output: str | None = None, confidence: float = 0.9, **more: Any) -> str:
    """What a model writes for a plan."""
    return json.dumps({"steps": steps, "output": output, "confidence": confidence, **more})


GOOD = ModelAnswer(written(ONE, TWO, output="two"))
BAD = ModelAnswer(written({"id": "x", "tool": "nope", "args": {}}))


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, *acts: Act, **options: Any) -> Iterator[FakeModelServer]:
    """A server that plays *acts*, and the environment that sends commands there."""
    with FakeModelServer(acts, **options) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        monkeypatch.setenv("DAGRUN_MODEL", "model-one")
        yield server


def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's keys, and no server."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
