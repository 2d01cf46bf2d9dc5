"""Questions of MCP servers in the middle of a call (elicitation), asked of people as the questions of the step.

Which step a question belongs to:

1. Since revision 2026-07-28 a question is a part of the answer to a call, and is handled in the task of the call: a
   context variable says which one.
2. Before that, it comes by itself. If one call is in flight, it belongs to it; of several, nobody can say which one
   means to send a mail, so the question is declined. A call that was cancelled may still be at work, and counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar, Token
from importlib import import_module
from types import TracebackType
from typing import Any, Final

import anyio

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.tool_context import AskPerson, ToolContext
from dagrun.kernel.model.value import encode, to_json
from dagrun.sources.foreign_schema import read_schema
from dagrun.sources.schema_check import SchemaRules

_LOG: Final = logging.getLogger("dagrun.mcp")
_TRIES: Final = 3  # for an answer that fits the form
_TEXT: Final = 1_000  # characters of a question
_YES_OR_NO: Final = {"type": "boolean", "description": "true once you have been there, or will be; false for no"}


class Call:
    """A call in flight; entered around it.

    Args:
        questions: Those of its connection.
        context: The context of the step.
    """

    __slots__ = ("_questions", "_token", "context", "is_answered", "scopes")

    def __init__(self, questions: ServerQuestions, context: ToolContext) -> None:
        self.context = context
        self.is_answered = False
        self.scopes: list[anyio.CancelScope] = []
        self._questions = questions
        self._token: Token[Call | None] | None = None

    def __enter__(self) -> Call:
        self._token = _CALL.set(self)
        self._questions.calls.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _CALL.reset(self._token)
        self._questions.calls.discard(self)
        self._questions.given_up += not self.is_answered
        for scope in self.scopes:  # a question that nobody needs an answer to any more
            scope.cancel()


_CALL: ContextVar[Call | None] = ContextVar("dagrun call of an MCP server", default=None)


class ServerQuestions:
    """The questions of one connection.

    Args:
        server: The name of the server.

    Attributes:
        calls: The calls in flight.
        given_up: How many calls ended without an answer of the server, which may still be at work on them.
    """

    def __init__(self, server: str) -> None:
        self.calls: set[Call] = set()
        self.given_up = 0
        self._server = server

    async def answer(self, _: Any, params: Any) -> Any:
        """Pass the server's question to a person; the callback of the MCP library."""
        call = self._asking()
        ask = None if call is None else call.context.ask_person
        if call is None or ask is None:
            _LOG.warning("MCP server %s asks, and is declined: nobody can say which call is meant", self._server)
            return _result("decline")
        with anyio.CancelScope() as scope:
            call.scopes.append(scope)
            try:
                return await (self._of_address(ask, params) if params.mode == "url" else self._of_form(ask, params))
            finally:
                call.scopes.remove(scope)
        return _result("cancel")

    def _asking(self) -> Call | None:
        """Return the call that a question belongs to; `None` if that is not certain."""
        own = _CALL.get()
        if own in self.calls:
            return own
        return next(iter(self.calls)) if len(self.calls) == 1 and not self.given_up else None

    async def _of_address(self, ask: AskPerson, params: Any) -> Any:
        text = f"MCP server {self._server} asks you to open {shorten(params.url, _TEXT)} yourself: "
        answer = await ask(f"{text}{shorten(params.message, _TEXT)}", _YES_OR_NO, {"address": params.url})
        return _result(_action(answer) if answer is None or answer.value is not False else "decline")

    async def _of_form(self, ask: AskPerson, params: Any) -> Any:
        try:
            rules = SchemaRules(read_schema(params.requested_schema, "the question"))
        except ContractError as error:
            _LOG.warning("MCP server %s asks, and is declined: %s", self._server, error)
            return _result("decline")
        defaults = _defaults(params.requested_schema)
        needs_no_value = set(params.requested_schema.get("required", ())) <= defaults.keys()
        schema = {**params.requested_schema, "type": ["object", "null"] if needs_no_value else "object"}
        text = f"MCP server {self._server} asks: {shorten(params.message, _TEXT)}"
        fault = ""
        for _ in range(_TRIES):
            answer = await ask(f"{text}{fault}", schema, None)
            if answer is None or answer.choice != "approve":
                return _result(_action(answer))
            content = {**defaults, **(answer.value or {})}
            faults = rules.faults(content, len(to_json(encode(content))))
            if not faults:
                return _result("accept", content)
            fault = f" (the last answer does not fit: {shorten('; '.join(map(str, faults)))})"
        return _result("cancel")


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    named = fields.items() if isinstance(fields, Mapping) else ()
    return {name: said["default"] for name, said in named if isinstance(said, Mapping) and "default" in said}


def _action(answer: Answer | None) -> str:
    if answer is None:
        return "cancel"
    return "accept" if answer.choice == "approve" else "decline"


def _result(action: str, content: Mapping[str, Any] | None = None) -> Any:
    return import_module("mcp_types").ElicitResult(action=action, content=None if content is None else dict(content))
