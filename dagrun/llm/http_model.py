"""A model behind HTTP: one call from request to reply, metered; the base of the providers' models."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, TypedDict
from urllib.parse import urlsplit

from dagrun.errors import ContractError
from dagrun.kernel.model.redaction.redactor import REDACTOR
from dagrun.kernel.model.tracing import TRACER, ModelSpan
from dagrun.kernel.model.usage import METER
from dagrun.llm.api_format import AnswerFormat, ApiRequest, Reader
from dagrun.llm.call_errors import CallError, no_stream
from dagrun.llm.event_stream import exchange
from dagrun.llm.http_clients import Clients, HttpAnswer
from dagrun.llm.language_model import Message, Reply, Request, Structure, Usage
from dagrun.llm.prices import Prices, PriceTable
from dagrun.llm.server_features import APIS, FeatureChoice, ServerFeatures

# What providers add to the messages: the names of roles, the frame of a tool. In tokens; generous.
_OVERHEAD: Final = 1_000

_LOG: Final = logging.getLogger("dagrun.llm")

_PLAIN: Final = re.compile(r"[A-Za-z \n]")

_STRUCTURES: Final[dict[AnswerFormat, Structure]] = {
    "schema": "schema",
    "tool": "tool",
    "json": "json",
    "prompt": "json",
}


# The features of servers of this process that ignored the form of an answer, by provider, address, model and choice.
_IGNORED: Final[dict[tuple[str, str, str, FeatureChoice], ServerFeatures]] = {}


class HttpOptions(TypedDict, total=False):
    """The options that the models of all providers take.

    Attributes:
        base_url: The address of the server; by default, the environment's, or else the provider's own.
        structure: How an answer gets its form: ``schema`` (strict JSON by a schema), ``tool`` (the arguments of a tool
            that must be called), ``json`` (JSON, with the schema in the prompt only); ``auto``, the default, for the
            first of them that the server supports.
        timeout: The longest silence of the server, in seconds; 120 by default.
        max_seconds: The longest call, in seconds; 600 by default.
        prices: The prices of models; by default those of ``genai-prices``, if it is installed.
        api_key: The key, from the host program, never from a plan; by default the environment's.
        http_client: A client of the host, for proxies and the like: an ``AsyncClient`` of httpx2 (`OpenAIModel` takes
            one of httpx, too), for one event loop. The host closes it.
    """

    base_url: str | None
    structure: Structure | Literal["auto"]
    timeout: float
    max_seconds: float
    prices: PriceTable | Prices | None
    api_key: str | None
    http_client: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The name of a model and its `HttpOptions`, checked, with their defaults.

    Raises:
        ContractError: An option is invalid.
    """

    name: str
    base_url: str | None = None
    structure: Structure | Literal["auto"] = "auto"
    timeout: float = 120.0
    max_seconds: float = 600.0
    prices: PriceTable | Prices | None = None
    api_key: str | None = field(default=None, repr=False)
    http_client: Any = None

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ContractError(f"name is what the provider calls the model, not {self.name!r}")
        if self.structure not in {"auto", "schema", "tool", "json"}:
            raise ContractError(f"structure is one of auto, schema, tool, json, not {self.structure!r}")
        for option, value in (("timeout", self.timeout), ("max_seconds", self.max_seconds)):
            if not 0 < value < math.inf:
                raise ContractError(f"{option} is a number of seconds above 0, not {value!r}")
        if self.base_url is not None and urlsplit(self.base_url).scheme not in {"http", "https"}:
            raise ContractError("base_url is an address that begins with http:// or https://")


class HttpModel:
    """A model behind HTTP; the base of the providers' models.

    ``async with model:`` keeps the connections from one call to the next; without it, they are closed with the last of
    the calls that overlap. Both are safe on any number of event loops.

    Args:
        settings: The options of the host.
        provider: The provider's name in ``genai-prices``.
        clients: Lends the HTTP clients.
        choice: The features of the server that may be used.
        secret: Never shown in an error.
    """

    def __init__(
        self, settings: HttpSettings, provider: str, *, clients: Clients, choice: FeatureChoice, secret: str
    ) -> None:
        self.name = settings.name
        self._clients = clients
        self._choice = choice
        self._prices = settings.prices if isinstance(settings.prices, PriceTable) else PriceTable(settings.prices)
        self._provider = provider
        self._address = settings.base_url or ""
        self._sold_by = {"provider": provider} if settings.base_url is None else {"url": settings.base_url}
        self._max_seconds = settings.max_seconds
        self._secret = secret
        self._features = _IGNORED.get(self._key) or choice.first()
        self._proven: set[tuple[str, AnswerFormat]] = set()  # APIs with the answer formats that have worked

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def _key(self) -> tuple[str, str, str, FeatureChoice]:
        return self._provider, self._address, self.name, self._choice

    async def __aenter__(self) -> Self:
        self._clients.take()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._clients.give_back()

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Ask, and yield the pieces of the answer as they come; and, last, a `Reply`.

        A server that refuses a feature is asked again at once without it: see `server_features`. Nothing else is tried
        again. The answer is not checked against its form, which some servers ignore: if it is no JSON at all, the form
        is put in words from the next call on.

        Raises:
            ModelError: There is no answer, or it broke off.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        request = _without_secrets(request)
        features, has_begun = self._features, False
        while True:
            call = self._call(request, features)
            try:
                async for piece in call:
                    has_begun = has_begun or self._learn(features, request)
                    yield piece
                return
            except CallError as error:
                lower = None if has_begun else self._lower(features, error, request)
                if lower is None:
                    # Not chained: an error of a library may hold the whole body, and the key.
                    raise error.error(self.name, self._secret) from None
                features = lower
            finally:
                await call.aclose()

    async def _call(self, request: Request, features: ServerFeatures) -> AsyncGenerator[str | Reply, None]:
        """Make one call with the given features."""
        api_request = self._api_request(request, features)
        api = APIS[features.api]
        body = api.body(api_request)
        tool = "" if request.form is None else request.form.name
        reader = api.reader(api_request.answer_format, self._choice.has_more(features), tool)
        async with (
            self._metered(body, request, reader) as span,
            self._clients.lend() as client,
            exchange(_inside(span, partial(client.post, api.path, body)), self._max_seconds) as events,
        ):
            while not reader.is_over and (event := await events.next_event()) is not None:
                if piece := reader.take(event):
                    yield piece
            if not events.is_stream and reader.stop is None:
                raise no_stream()
            if piece := reader.finish():
                yield piece
            events.is_over = True
        reply = self._reply(reader, request)
        self._note_ignored(features, reply)
        yield reply

    def _api_request(self, request: Request, features: ServerFeatures) -> ApiRequest:
        answer_format = None if request.form is None else self._choice.format_for(features, request.form)
        return ApiRequest(
            model=self.name,
            request=request,
            answer_format=answer_format,
            without=features.without,
            returns_reasoning=features.returns_reasoning,
        )

    @asynccontextmanager
    async def _metered(
        self, body: dict[str, Any], request: Request, reader: Reader
    ) -> AsyncGenerator[ModelSpan | None]:
        """Reserve the worst case of the call, and settle its usage; trace it in a traced run."""
        worst = Usage(_most_tokens(json.dumps(body, ensure_ascii=False)) + _OVERHEAD, request.max_output_tokens)
        charge = METER.get().reserve(self.name, worst.total, self._cost(worst))
        tracer = TRACER.get()()
        span = None if tracer is None else tracer.begin_model_call(self._provider, self.name, self._address)
        is_free, fault = False, ""
        try:
            yield span
        except CallError as error:
            is_free, fault = error.is_free, error.code or str(error.status or "") or type(error).__name__
            raise
        finally:
            if span is not None:
                span.end(model=reader.model, stop=reader.stop or "", tokens=asdict(reader.usage), error=fault)
            if is_free:
                charge.settle(0, 0.0)
            else:
                charge.settle(reader.usage.total, self._cost(reader.usage))

    def _cost(self, usage: Usage) -> float | None:
        return self._prices.cost(self.name, usage, **self._sold_by)

    def _reply(self, reader: Reader, request: Request) -> Reply:
        stop = reader.stop or "end"
        if reader.usage.output == request.max_output_tokens and not reader.text.rstrip().endswith("}"):
            stop = "length" if stop == "end" else stop  # some servers call a cut answer complete
        return Reply(
            text=reader.text,
            stop=stop,
            reasoning=reader.reasoning,
            usage=reader.usage,
            cost=self._cost(reader.usage),
            model=reader.model or self.name,
            structure=None if reader.answer_format is None else _STRUCTURES[reader.answer_format],
        )

    def _learn(self, features: ServerFeatures, request: Request) -> bool:
        """Remember features that have worked. A call without a form proves nothing about answer formats."""
        if request.form is None:
            features = replace(features, answer_format=self._features.answer_format)
        else:
            self._proven.add((features.api, features.answer_format))
        self._features = features
        return True

    def _note_ignored(self, features: ServerFeatures, reply: Reply) -> None:
        """Remember, and say once, that the server ignored the form of an answer that is no JSON at all."""
        is_ignored = reply.structure in {"schema", "tool"} and reply.stop != "refused" and reply.text.strip()
        if not is_ignored or "{" in reply.text:
            return
        lower = self._choice.in_words(features)
        self._features = lower or features
        if _IGNORED.get(self._key) != self._features:
            _IGNORED[self._key] = self._features
            then = "structure='json' would put it in words" if lower is None else "from now on, it is put in words"
            _LOG.warning(
                "%s: the server seems to ignore the form of answers (%s); %s", self.name, reply.structure, then
            )

    def _lower(self, features: ServerFeatures, error: CallError, request: Request) -> ServerFeatures | None:
        return self._choice.next(
            features,
            error,
            options=frozenset(APIS[features.api].body(self._api_request(request, features))),
            has_form=request.form is not None,
            is_proven=(features.api, features.answer_format) in self._proven,
        )


def _inside(span: ModelSpan | None, post: Callable[[], Awaitable[HttpAnswer]]) -> Callable[[], Awaitable[HttpAnswer]]:
    """Return *post* inside the span of the call, so that the spans of an HTTP client nest."""
    return post if span is None else partial(span.around, post)


def _most_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for three letters or blanks, one for any other character.

    English has four characters a token. Figures, punctuation, and letters of other scripts have between one and three.
    """
    plain = len(_PLAIN.findall(text))
    return len(text) - plain + math.ceil(plain / 3)


def _without_secrets(request: Request) -> Request:
    """Return *request* without the secrets of the run, which outputs of tools may have brought into it."""
    secrets = REDACTOR.get().secrets
    if not secrets.are_hidden:
        return request

    def is_clean(thought: Mapping[str, Any]) -> bool:
        return not any(isinstance(text, str) and secrets.replaced_in(text) != text for text in thought.values())

    messages = tuple(
        # Reasoning is signed as it is: it is left out where it holds a secret.
        Message(message.role, secrets.replaced_in(message.text), tuple(filter(is_clean, message.reasoning)))
        for message in request.messages
    )
    return replace(request, system=secrets.replaced_in(request.system), messages=messages)
