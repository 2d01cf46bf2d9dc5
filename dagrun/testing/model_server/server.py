"""`FakeModelServer`: a server on the loopback that plays the APIs of language models."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias, get_args

import anyio.to_thread

from dagrun.extend import Structure
from dagrun.testing.model_server.anthropic_messages import AnthropicDialect
from dagrun.testing.model_server.calls import Api, RecordedCall
from dagrun.testing.model_server.connection import HungUp, ServerConnection, ServerStopped
from dagrun.testing.model_server.listener import Listener, RequestHandler
from dagrun.testing.model_server.player import Player
from dagrun.testing.model_server.schema_rules import schema_faults
from dagrun.testing.model_server.script import Act, Fault, ModelAnswer
from dagrun.testing.model_server.wire import ErrorDialect, OpenAIDialect

Script: TypeAlias = Sequence[Act] | Callable[[RecordedCall], Act]


class FakeModelServer:
    """Serves the wire formats of OpenAI (Responses, Chat Completions) and Anthropic (Messages), from a script.

    It listens on the loopback, in threads, so that it serves clients on asyncio, on trio, and without a loop. Use it
    as a context manager, by ``with`` or ``async with``. It runs in real time, so a test on a virtual clock cannot use
    it.

    Args:
        answers: One act for each call of a model; the last is repeated forever; or a function that gets the
            `RecordedCall` and returns an act, called in a thread of the server. An act is a text, a `ModelAnswer` or
            a `Fault`.
        apis: The APIs of the server; the paths of other APIs answer 404.
        structures: The supported ways to request a structure; others answer 400.
        models: The names of its models; other names answer 404. `None` for any name.
        is_strict: Whether to refuse schemas that the hosted providers refuse in their strict modes, and patterns and
            formats that a server of open models refuses or misreads.
        ignores_schema: Whether to play the Responses API of llama.cpp, which accepts a schema and ignores it: the text
            comes in a code fence after a sentence, and the events lack fields.

    Attributes:
        calls: The calls so far, with their answers. Keys are not kept.

    Raises:
        ValueError: *answers* is empty, or an API or a structure does not exist.
        Exception: At the end of the ``with``: the error that the function *answers* raised. Its call was answered with
            status 500.

    Examples:
        >>> import openai
        >>> from dagrun.testing import FakeModelServer, Fault, ModelAnswer
        >>> script = [Fault.status(429, retry_after=0.1), ModelAnswer("Hello.", tokens_per_second=50, usage=(12, 2))]
        >>> async def main() -> None:
        ...     async with (
        ...         FakeModelServer(script) as server,
        ...         openai.AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=1) as client,
        ...     ):
        ...         response = await client.responses.create(model="any", input="Say hello.")
        ...         assert response.output_text == "Hello."
        ...         assert [call.status for call in server.calls] == [429, 200]
        ...         assert server.calls[-1].prompt == "Say hello."
    """

    def __init__(
        self,
        answers: Script,
        *,
        apis: Collection[Api] = get_args(Api),
        structures: Collection[Structure] = get_args(Structure),
        models: Collection[str] | None = None,
        is_strict: bool = True,
        ignores_schema: bool = False,
    ) -> None:
        if not callable(answers) and (isinstance(answers, str) or not answers):
            raise ValueError("answers: a list of at least one act, or a function that returns one")
        for name, values, known in (("apis", apis, Api), ("structures", structures, Structure)):
            if unknown := set(values) - set(get_args(known)):
                raise ValueError(f"{name}: {', '.join(sorted(unknown))}: there are {', '.join(get_args(known))}")
        self.calls: list[RecordedCall] = []
        self._answers = answers
        self._apis = frozenset(apis)
        self._structures = frozenset(structures)
        self._models = None if models is None else tuple(models)
        self._is_strict = is_strict
        self._ignores_schema = ignores_schema
        self._asked = 0
        self._changed = threading.Condition()
        self._errors: list[Exception] = []
        self._listener: Listener | None = None

    # The server as a resource -----------------------------------------------------------------------------------------

    def __enter__(self) -> FakeModelServer:
        if self._listener is not None:
            raise RuntimeError("this server is running already")
        self._listener = Listener(partial(RequestHandler, self._serve), self._errors)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        errors = tuple(self._errors)
        self._errors.clear()
        if errors and error is None:
            raise errors[0]

    async def __aenter__(self) -> FakeModelServer:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    @property
    def anthropic_url(self) -> str:
        """The ``base_url`` for the client of anthropic.

        Raises:
            RuntimeError: The server is not running.
        """
        if self._listener is None:
            raise RuntimeError("the server runs inside of `with FakeModelServer(...) as server`")
        return f"http://127.0.0.1:{self._listener.server_port}"

    @property
    def base_url(self) -> str:
        """The ``base_url`` for the client of openai.

        Raises:
            RuntimeError: The server is not running.
        """
        return f"{self.anthropic_url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that direct the clients of another process to this server.

        Raises:
            RuntimeError: The server is not running.
        """
        openai = {"OPENAI_BASE_URL": self.base_url, "OPENAI_API_KEY": "none"}
        return openai | {"ANTHROPIC_BASE_URL": self.anthropic_url, "ANTHROPIC_API_KEY": "none"}

    # Waiting for calls ------------------------------------------------------------------------------------------------

    def wait_until_called(self, count: int = 1, seconds: float = 5) -> bool:
        """Wait until *count* calls have arrived; return whether they have. It blocks: see `until_called`."""
        return self._wait(lambda: len(self.calls) >= count, seconds)

    def wait_until_closed(self, call: RecordedCall, seconds: float = 5) -> bool:
        """Wait until a call is over; return whether the client closed it early. It blocks: see `until_closed`."""
        self._wait(lambda: call.ended is not None, seconds)
        return call.was_closed

    async def until_called(self, count: int = 1, seconds: float = 5) -> bool:
        """Wait until *count* calls have arrived; return whether they have."""
        return await anyio.to_thread.run_sync(self.wait_until_called, count, seconds, abandon_on_cancel=True)

    async def until_closed(self, call: RecordedCall, seconds: float = 5) -> bool:
        """Wait until a call is over; return whether the client closed it before everything was sent."""
        return await anyio.to_thread.run_sync(self.wait_until_closed, call, seconds, abandon_on_cancel=True)

    def _wait(self, claim: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(claim, seconds)

    # One request ------------------------------------------------------------------------------------------------------

    def _serve(self, handler: RequestHandler, method: str) -> None:
        request = handler.receive(method)
        with self._changed:
            call = request.as_call(len(self.calls))
            self.calls.append(call)
            self._changed.notify_all()
        try:
            with ServerConnection(handler, handler.stop) as connection:
                self._respond(call, connection, request.problem)
        except HungUp:
            call.was_closed = True
            handler.close_connection = True
        except ServerStopped:
            handler.close_connection = True
        finally:
            with self._changed:
                call.ended = time.monotonic()
                self._changed.notify_all()

    def _respond(self, call: RecordedCall, connection: ServerConnection, problem: tuple[int, str] | None) -> None:
        dialect: ErrorDialect = OpenAIDialect()
        if call.api == "messages" or "anthropic-version" in call.headers:
            dialect = AnthropicDialect()
        player = Player(call, connection, dialect, ignores_schema=self._ignores_schema)
        refusal = self._refusal_of(call, dialect) if problem is None else problem
        if refusal is not None:
            player.refuse(*refusal)
        elif call.api == "models":
            player.send(dialect.models(self._models or ("fake-model",)))
        else:
            self._play(call, player)

    def _refusal_of(self, call: RecordedCall, dialect: ErrorDialect) -> tuple[Any, ...] | None:
        """Return status, message, code and parameter of a refusal; `None` if the server supports the call."""
        if call.api not in self._apis:
            return 404, f"Invalid URL ({call.method} {call.path})"
        if call.api == "models":
            return None
        if self._models is not None and call.model not in self._models:
            return 404, f"The model `{call.model}` does not exist", "model_not_found", "model"
        if call.structure is not None and call.structure not in self._structures:
            message, param = dialect.unsupported(call)
            return 400, message, None, param
        if self._is_strict and call.structure == "schema" and call.schema is not None:
            faults = schema_faults(call.schema, limits_unions=call.api == "messages")
            return (400, f"Invalid schema for the format of the answer: {'; '.join(faults)}") if faults else None
        return None

    def _play(self, call: RecordedCall, player: Player) -> None:
        try:
            act = self._act(call)
        except Exception as error:  # noqa: BLE001 - raised at the end of the `with`
            self._errors.append(error)
            player.refuse(500, f"the script of this server raised {type(error).__name__}")
            return
        player.play(act)

    def _act(self, call: RecordedCall) -> Act:
        if callable(self._answers):
            act = self._answers(call)
        else:
            with self._changed:
                number, self._asked = self._asked, self._asked + 1
            act = self._answers[min(number, len(self._answers) - 1)]
        if not isinstance(act, str | ModelAnswer | Fault):
            raise TypeError(f"an act is a text, a ModelAnswer or a Fault, not {act!r}")
        return act
