"""How to talk to a server: what it understands is found out by its refusals, and remembered."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from dagrun.llm.anthropic_messages import MESSAGES
from dagrun.llm.api_format import AnswerFormat, Api
from dagrun.llm.call_errors import CallError
from dagrun.llm.language_model import Structure
from dagrun.llm.openai_chat import CHAT
from dagrun.llm.openai_responses import RESPONSES

ApiName: TypeAlias = Literal["responses", "chat", "messages"]

APIS: Final[dict[ApiName, Api]] = {"responses": RESPONSES, "chat": CHAT, "messages": MESSAGES}

# The ways of a host that has chosen one. Where JSON is not to be had, the prompt has asked for it in any case.
_FORCED: Final[dict[Structure, tuple[AnswerFormat, ...]]] = {
    "schema": ("schema",),
    "tool": ("tool",),
    "json": ("json", "prompt"),
}

# Words in a refusal that tell what is refused.
_WORDS: Final[dict[AnswerFormat, re.Pattern[str]]] = {
    "schema": re.compile(
        r"schema|response_?format|text\.format|output_(config|format)|structured|grammar|strict", re.I
    ),
    "tool": re.compile(r"\btools?\b|tool_choice|function", re.I),
    "json": re.compile(r"json|response_?format|text\.format", re.I),
    "prompt": re.compile(r"(?!)"),
}
_UNKNOWN: Final = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|deprecated|extra|instead|not (be )?(supported|permitted|allowed)"
    r"|does(n't| not) (support|take|accept)",
    re.I,
)
# Refusals that another way of asking would meet as well.
_ELSEWHERE: Final = re.compile(
    r"context.{0,20}(length|size|window)|too (long|many tokens)|model_not_found|content_policy|invalid_api_key|billing"
    r"|insufficient_quota",
    re.I,
)
_NO_API: Final = frozenset((404, 405, 501))
_REFUSALS: Final = frozenset((400, 422))
_CLUMSY_REFUSALS: Final = frozenset((500, 501))


@dataclass(frozen=True, slots=True)
class ServerFeatures:
    """What is spoken with a server.

    Attributes:
        api: The interface.
        way: How answers get their structure.
        without: Options that are not sent.
    """

    api: ApiName
    way: AnswerFormat
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FeatureChoice:
    """What the host allows.

    Attributes:
        apis: The interfaces, the preferred one first.
        structure: The way to get structure; ``auto`` for the best that the server has.
        without: Options that are not sent from the beginning.
    """

    apis: tuple[ApiName, ...]
    structure: Structure | Literal["auto"] = "auto"
    without: frozenset[str] = frozenset()

    def first(self) -> ServerFeatures:
        """What is tried first."""
        return self._begin(self.apis[0])

    def has_more(self, dialect: ServerFeatures) -> bool:
        """Whether there is another interface that can be tried."""
        return dialect.api != self.apis[-1]

    def next(
        self, dialect: ServerFeatures, fault: CallError, *, options: frozenset[str], has_form: bool, is_proven: bool
    ) -> ServerFeatures | None:
        """What to try after a refusal; `None` if that was no matter of the dialect. Each one is tried once at most.

        Args:
            dialect: What has been tried.
            fault: The refusal.
            options: What was in the body.
            has_form: Whether structure was asked for.
            is_proven: Whether this way of asking for it has worked with this server before.
        """
        if self._is_no_api(dialect, fault):
            return self._begin(self.apis[self.apis.index(dialect.api) + 1])
        for option in sorted(APIS[dialect.api].options & options):
            if re.search(rf"\b{option}\b", fault.text) and _UNKNOWN.search(fault.text):
                return replace(dialect, without=dialect.without | {option})
        ways = self._ways(dialect.api)
        below = ways[ways.index(dialect.way) + 1 :]
        if has_form and below and _is_about_way(dialect.way, fault, is_proven=is_proven):
            return replace(dialect, way=below[0])
        return None

    def _begin(self, api: ApiName) -> ServerFeatures:
        return ServerFeatures(api, self._ways(api)[0], self.without)

    def _ways(self, api: ApiName) -> tuple[AnswerFormat, ...]:
        ways = APIS[api].ways
        if self.structure == "auto":
            return ways
        return tuple(way for way in _FORCED[self.structure] if way in ways)

    def _is_no_api(self, dialect: ServerFeatures, fault: CallError) -> bool:
        is_unknown = fault.is_foreign or (fault.status in _NO_API and fault.code != "model_not_found")
        return is_unknown and self.has_more(dialect)


def _is_about_way(way: AnswerFormat, fault: CallError, *, is_proven: bool) -> bool:
    if fault.status is not None and fault.status not in _REFUSALS | _CLUMSY_REFUSALS:
        return False
    if _ELSEWHERE.search(fault.text):
        return False
    if _WORDS[way].search(fault.text) is not None or fault.status == 501:
        return not fault.is_transient or fault.status in _CLUMSY_REFUSALS
    # Many servers say no more than that a field is wrong. Once the way has worked, it is something else.
    return fault.status in _REFUSALS and not is_proven
