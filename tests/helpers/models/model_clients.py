"""Asks a model server through the real clients, by each API, and gives what they understood in one form."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio

from dagrun.testing import FakeModelServer

# A filter for tests that stream: at "[DONE]", or where a stream is left, the clients drop generators that have not
# ended, and trio warns of that.
DROPS_GENERATORS = "ignore:Async generator '(openai|anthropic|httpx2|httpcore2):ResourceWarning"

APIS = ("responses", "chat", "messages")
SCHEMA = {
    "type": "object",
    "properties": {"steps": {"type": "array", "items": {"type": "string"}}},
    "required": ["steps"],
    "additionalProperties": False,
}
_TURN = [{"role": "user", "content": "Plan it."}]
_FUNCTION = {"name": "create_plan", "parameters": SCHEMA, "strict": True}
_NAMED = {"name": "plan", "schema": SCHEMA, "strict": True}
_PLAIN: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "instructions": "You plan.", "input": _TURN},
    "chat": {"model": "m", "messages": [{"role": "system", "content": "You plan."}, *_TURN]},
    "messages": {"model": "m", "system": "You plan.", "messages": _TURN, "max_tokens": 1000},
}
_STRUCTURED: dict[tuple[str, str | None], dict[str, Any]] = {
    ("responses", "schema"): {"text": {"format": {"type": "json_schema", **_NAMED}}},
    ("responses", "json"): {"text": {"format": {"type": "json_object"}}},
    ("responses", "tool"): {
        "tools": [{"type": "function", **_FUNCTION}],
        "tool_choice": {"type": "function", "name": "create_plan"},
    },
    ("chat", "schema"): {"response_format": {"type": "json_schema", "json_schema": _NAMED}},
    ("chat", "json"): {"response_format": {"type": "json_object"}},
    ("chat", "tool"): {
        "tools": [{"type": "function", "function": _FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "create_plan"}},
    },
    ("messages", "schema"): {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ("messages", "tool"): {
        "tools": [{"name": "create_plan", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "create_plan"},
    },
}


@dataclass(frozen=True)
class Said:
    """What a client understood. Arguments of a tool come as text, or, from Messages, as what they stand for."""

    text: Any
    stop: str | None
    usage: tuple[int | None, int | None, int | None] | None  # in, out, cached; as the client counts
    tool: str | None = None


def asked(api: str, structure: str | None = None) -> dict[str, Any]:
    """The arguments of a call."""
    return _PLAIN[api] | _STRUCTURED.get((api, structure), {})


@contextlib.asynccontextmanager
async def client_of(server: FakeModelServer, api: str) -> AsyncIterator[Any]:
    """The real client of an API; it does not try again by itself."""
    import anthropic
    import httpx2
    import openai

    # Most of what a client costs is reading the certificates of the world, which the loopback does not need.
    transport = httpx2.AsyncClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), timeout=60)
    options: Any = {"api_key": "sk-secret", "max_retries": 0, "http_client": transport}
    if api == "messages":
        async with anthropic.AsyncAnthropic(base_url=server.anthropic_url, **options) as claude:
            yield claude
    else:
        async with openai.AsyncOpenAI(base_url=server.base_url, **options) as gpt:
            yield gpt


def stream_of(client: Any, api: str, structure: str | None = None) -> Any:
    """A stream that the client's own helper puts together."""
    if api == "responses":
        return client.responses.stream(**asked(api, structure))
    if api == "chat":
        return client.chat.completions.stream(**asked(api, structure), stream_options={"include_usage": True})
    return client.messages.stream(**asked(api, structure))


async def ask(server: FakeModelServer, api: str, structure: str | None = None, *, streams: bool = True) -> Said:
    """Ask once, and read the answer."""
    async with client_of(server, api) as client:
        if streams:
            return await _streamed(client, api, structure)
        whole = {"responses": "responses", "chat": "chat.completions", "messages": "messages"}[api]
        for name in whole.split("."):
            client = getattr(client, name)
        return _READERS[api](await client.create(**asked(api, structure)))


async def _streamed(client: Any, api: str, structure: str | None) -> Said:
    async with stream_of(client, api, structure) as stream:
        events = [event async for event in stream]
        if api == "responses":
            said = _read_response(events[-1].response)
            deltas = [event for event in events if event.type.endswith((".output_text.delta", "_arguments.delta"))]
            assert not deltas or deltas[-1].snapshot == said.text, "the pieces do not make up the whole"
            return said
        if api == "chat":
            # At "[DONE]" the client drops a generator that has not ended; asyncio closes it in a task of its own.
            await anyio.wait_all_tasks_blocked()
            return _read_completion(stream.current_completion_snapshot)
        return _read_message(await stream.get_final_message())


def _read_response(response: Any) -> Said:
    item = response.output[-1]
    stop = response.incomplete_details.reason if response.incomplete_details else response.status
    usage = response.usage
    counts = usage and (usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens)
    if item.type == "function_call":
        return Said(item.arguments, stop, counts, item.name)
    part = item.content[0]
    if part.type == "refusal":
        return Said(part.refusal, "refusal", counts)
    return Said(part.text, stop, counts)


def _read_completion(completion: Any) -> Said:
    choice, usage = completion.choices[0], completion.usage
    counts = usage and (usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens_details.cached_tokens)
    if choice.message.tool_calls:
        function = choice.message.tool_calls[0].function
        return Said(function.arguments, choice.finish_reason, counts, function.name)
    if choice.message.refusal:
        return Said(choice.message.refusal, "refusal", counts)
    return Said(choice.message.content, choice.finish_reason, counts)


def _read_message(message: Any) -> Said:
    block, usage = message.content[-1], message.usage
    counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens)
    if block.type == "tool_use":
        return Said(block.input, message.stop_reason, counts, block.name)
    return Said(block.text, message.stop_reason, counts)


_READERS = {"responses": _read_response, "chat": _read_completion, "messages": _read_message}
