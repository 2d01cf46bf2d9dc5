"""What the models behind all interfaces share: dialect, metering, and the way from events to a reply."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from dagrun.errors import ContractError
from dagrun.llm.api_format import AnswerFormat, ApiRequest, Reader
from dagrun.llm.call_errors import CallError
from dagrun.llm.event_stream import exchange
from dagrun.llm.http_clients import Clients
from dagrun.llm.language_model import Reply, Request, Structure, Usage
from dagrun.llm.prices import PriceTable
from dagrun.llm.server_features import APIS, FeatureChoice, ServerFeatures
from dagrun.model.redaction.redactor import REDACTOR
from dagrun.model.usage import METER

# What providers put around the messages: names of roles, the frame of a tool. Tokens; generous.
_OVERHEAD: Final = 1_000

_STRUCTURES: Final[dict[AnswerFormat, Structure]] = {
    "schema": "schema",
    "tool": "tool",
    "json": "json",
    "prompt": "json",
}


class HttpModel:
    """A model behind HTTP; a base for those of the providers.

    ``async with model:`` keeps the connections from one call to the next; without it, they are closed with the last of
    the calls that overlap. Both are safe on any number of event loops.

    Args:
        name: As its provider calls it.
        clients: Where clients come from.
        choice: What may be spoken with the server.
        prices: What it costs.
        sold_by: Where to look for prices that are not in the table: see `PriceTable.cost`.
        max_seconds: The longest call.
        secret: Never shown in an error.
    """

    def __init__(
        self,
        name: str,
        *,
        clients: Clients,
        choice: FeatureChoice,
        prices: PriceTable,
        sold_by: Mapping[str, str],
        max_seconds: float,
        secret: str,
    ) -> None:
        self.name = name
        self._clients = clients
        self._choice = choice
        self._prices = prices
        self._sold_by = sold_by
        self._max_seconds = max_seconds
        self._secret = secret
        self._dialect = choice.first()
        self._proven: set[tuple[str, AnswerFormat]] = set()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def __aenter__(self) -> Self:
        self._clients.take()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._clients.give_back()

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Ask, and yield the pieces of the answer as they come; and, last, a `Reply`.

        A server that refuses the way in which it is asked is asked in another one, at once: see `dialect`. Nothing
        else is tried again. Nobody vouches that an answer keeps to its form; some servers ignore it.

        Raises:
            ModelError: There is no answer, or it broke off.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        request = _cleaned(request)
        dialect, has_begun = self._dialect, False
        while True:
            call = self._call(request, dialect)
            try:
                async for piece in call:
                    has_begun = has_begun or self._learn(dialect, request)
                    yield piece
                return
            except CallError as fault:
                lower = None if has_begun else self._lower(dialect, fault, request)
                if lower is None:
                    # Not chained: what the libraries say may hold the whole body, and the key.
                    raise fault.error(self.name, self._secret) from None
                dialect = lower
            finally:
                await call.aclose()

    async def _call(self, request: Request, dialect: ServerFeatures) -> AsyncGenerator[str | Reply, None]:
        """Make one call in one dialect."""
        asking = self._asking(request, dialect)
        api = APIS[dialect.api]
        body, reader = api.body(asking), api.reader(asking.way, self._choice.has_more(dialect))
        async with (
            self._metered(body, request, reader),
            self._clients.lend() as client,
            exchange(partial(client.post, api.path, body), self._max_seconds) as events,
        ):
            if not events.is_stream:
                raise CallError(
                    "its answer is no stream of events (is the address of the server right?)", is_foreign=True
                )
            while not reader.is_over and (event := await events.next_event()) is not None:
                if piece := reader.take(event):
                    yield piece
            if piece := reader.finish():
                yield piece
            events.is_over = True
        yield self._reply(reader, asking.way)

    def _asking(self, request: Request, dialect: ServerFeatures) -> ApiRequest:
        way = dialect.way if request.form is not None else None
        return ApiRequest(model=self.name, request=request, way=way, without=dialect.without)

    @asynccontextmanager
    async def _metered(self, body: dict[str, Any], request: Request, reader: Reader) -> AsyncGenerator[None]:
        # A token has at least one byte.
        told = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")) + _OVERHEAD
        worst = Usage(told, request.max_output_tokens)
        charge = METER.get().reserve(self.name, worst.total, self._cost(worst))
        is_free = False
        try:
            yield
        except CallError as fault:
            is_free = fault.is_free
            raise
        finally:
            if is_free:
                charge.settle(0, 0.0)
            else:
                charge.settle(reader.usage.total, self._cost(reader.usage))

    def _cost(self, usage: Usage) -> float | None:
        return self._prices.cost(self.name, usage, **self._sold_by)

    def _reply(self, reader: Reader, way: AnswerFormat | None) -> Reply:
        return Reply(
            text=reader.text,
            stop=reader.stop or "end",
            usage=reader.usage,
            cost=self._cost(reader.usage),
            model=reader.model or self.name,
            structure=None if way is None else _STRUCTURES[way],
        )

    def _learn(self, dialect: ServerFeatures, request: Request) -> bool:
        """Remember what has worked. What a call without a form says about ways to structure is nothing."""
        if request.form is None:
            dialect = replace(dialect, way=self._dialect.way)
        else:
            self._proven.add((dialect.api, dialect.way))
        self._dialect = dialect
        return True

    def _lower(self, dialect: ServerFeatures, fault: CallError, request: Request) -> ServerFeatures | None:
        return self._choice.next(
            dialect,
            fault,
            options=frozenset(APIS[dialect.api].body(self._asking(request, dialect))),
            has_form=request.form is not None,
            is_proven=(dialect.api, dialect.way) in self._proven,
        )


def _cleaned(request: Request) -> Request:
    """*request* without the secrets of the run, which may have come with the outputs of tools."""
    secrets = REDACTOR.get().secrets
    if not secrets.are_hidden:
        return request
    messages = tuple(replace(message, text=secrets.replaced_in(message.text)) for message in request.messages)
    return replace(request, system=secrets.replaced_in(request.system), messages=messages)


def checked_options(name: str, *, base_url: str | None, structure: str, timeout: float, max_seconds: float) -> None:
    """Refuse options that make no sense.

    Raises:
        ContractError: One does not.
    """
    if not name or not isinstance(name, str):
        raise ContractError(f"name is what the provider calls the model, not {name!r}")
    if structure not in {"auto", "schema", "tool", "json"}:
        raise ContractError(f"structure is one of auto, schema, tool, json, not {structure!r}")
    for option, value in (("timeout", timeout), ("max_seconds", max_seconds)):
        if not 0 < value < math.inf:
            raise ContractError(f"{option} is a number of seconds above 0, not {value!r}")
    if base_url is not None and urlsplit(base_url).scheme not in {"http", "https"}:
        raise ContractError("base_url is an address that begins with http:// or https://")
