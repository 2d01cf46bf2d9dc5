"""Models of both providers in front of a server that plays theirs, for the tests of `dagrun.llm`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dagrun import AnthropicModel, OpenAIModel
from dagrun.errors import OverCeiling
from dagrun.extend import Form, LanguageModel, Message, Reply, Request
from dagrun.kernel.model.usage import METER, Charge
from dagrun.llm.http_model import HttpModel
from dagrun.llm.prices import PriceTable
from dagrun.testing import FakeModelServer, Fault

Speaks: TypeAlias = Literal["responses", "chat", "messages"]
EVERYBODY: tuple[Speaks, ...] = ("responses", "chat", "messages")

FORM = Form(
    "create_plan",
    "A plan with a number in it.",
    {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    },
)
HELLO = Request(system="Be kind.", messages=(Message("user", "Say hello."),))
PLAN = Request(system="You plan.", messages=(Message("user", "Grüß Gott."),), form=FORM, max_output_tokens=500)

# A model that no list of prices has, so that a cost is one of these, or nothing.
NAME = "model-of-tests"
PRICES = PriceTable({NAME: {"input_per_mtok": 2.0, "output_per_mtok": 10.0, "cached_per_mtok": 1.0}})


def model_at(server: FakeModelServer, speaks: Speaks | Literal["openai"], **options: Any) -> HttpModel:
    """The model of *server* that *speaks* this interface; ``openai``: whichever of its two the server has."""
    given: dict[str, Any] = {"api_key": "secret-key-of-tests", "prices": PRICES, **options}
    if speaks == "messages":
        return AnthropicModel(NAME, base_url=server.anthropic_url, **given)
    api: Any = "auto" if speaks == "openai" else speaks
    return OpenAIModel(NAME, base_url=server.base_url, api=api, **given)


def sse_page(*events: object) -> Fault:
    """A stream of these events, whatever was asked."""
    lines = [f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events]
    return Fault.page("".join(lines), "text/event-stream")


def chat_page(*deltas: object) -> Fault:
    """A stream of Chat Completions with these deltas, and a good end."""
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return sse_page(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]")


async def said_by(model: LanguageModel, request: Request) -> tuple[list[str], Reply]:
    """The pieces of an answer, and its end."""
    pieces: list[str] = []
    stream = model.stream(request)
    try:
        async for piece in stream:
            if isinstance(piece, Reply):
                return pieces, piece
            pieces.append(piece)
    finally:
        await stream.aclose()
    raise AssertionError("a stream without a Reply")


@dataclass
class Till:
    """A meter that writes down what it is told.

    Attributes:
        reserved: Who, tokens and cost, for each call.
        settled: Tokens and cost, for each call that is over.
        room: The tokens that one call may take.
    """

    reserved: list[tuple[str, int | None, float | None]] = field(default_factory=list)
    settled: list[tuple[int | None, float | None]] = field(default_factory=list)
    room: float = float("inf")

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        if tokens is None or tokens > self.room:
            raise OverCeiling("there is no room")
        self.reserved.append((who, tokens, cost))
        return self

    def settle(self, tokens: int | None, cost: float | None) -> None:
        self.settled.append((tokens, cost))


@contextmanager
def metered(room: float = float("inf")) -> Iterator[Till]:
    """Charge the calls of the block to a till."""
    till = Till(room=room)
    token = METER.set(till)
    try:
        yield till
    finally:
        METER.reset(token)
    assert len(till.reserved) == len(till.settled), "a call was never settled, or twice"
