"""The features of a server: tried best first, lowered when the server refuses, and remembered."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from dagrun.llm.anthropic_messages import MESSAGES
from dagrun.llm.api_format import AnswerFormat, Api
from dagrun.llm.call_errors import CallError
from dagrun.llm.language_model import Form, Structure
from dagrun.llm.openai_apis import CHAT, RESPONSES
from dagrun.llm.strict_schemas import count_unions

ApiName: TypeAlias = Literal["responses", "chat", "messages"]

APIS: Final[dict[ApiName, Api]] = {"responses": RESPONSES, "chat": CHAT, "messages": MESSAGES}

# The answer formats for a structure that the host has chosen. `prompt` is for servers without a JSON mode: the prompt
# asks for JSON in any case.
_FORCED: Final[dict[Structure, tuple[AnswerFormat, ...]]] = {
    "schema": ("schema",),
    "tool": ("tool",),
    "json": ("json", "prompt"),
}

# Words in a refusal that show that an answer format is refused.
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
# Refusals of the model, whatever is asked of it.
_NO_MODEL: Final = re.compile(
    r"model_not_found|(invalid|unknown|no such) model|\bmodel\b.{0,80}?(not (be )?found|does(n't| not) exist)",
    re.I | re.S,
)
# Refusals that every other answer format would meet as well.
_ELSEWHERE: Final = re.compile(
    r"context.{0,20}(length|size|window)|too (long|many tokens)|content_policy|invalid_api_key|billing"
    r"|insufficient_quota",
    re.I,
)
# Refusals of a turn of the model without its reasoning.
_WANTS_REASONING: Final = re.compile(r"reasoning_content|`?thinking`? block|expected `thinking`", re.I)
_MAX_UNIONS: Final = 16  # Anthropic takes no more places for values of several types in a schema; a tool has no limit
_NO_API: Final = frozenset((404, 405, 501))
_REFUSALS: Final = frozenset((400, 422))
_CLUMSY_REFUSALS: Final = frozenset((500, 501))


@dataclass(frozen=True, slots=True)
class ServerFeatures:
    """The features of a server that calls use.

    Attributes:
        api: The API.
        answer_format: How answers get their structure.
        without: Options that are not sent.
        returns_reasoning: Whether the reasoning of the model is sent back with its turns.
    """

    api: ApiName
    answer_format: AnswerFormat
    without: frozenset[str] = frozenset()
    returns_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class FeatureChoice:
    """The features that the host allows.

    Attributes:
        apis: The APIs, the preferred one first.
        structure: How answers get their structure; ``auto`` for the best way that the server supports.
        without: Options that are never sent.
    """

    apis: tuple[ApiName, ...]
    structure: Structure | Literal["auto"] = "auto"
    without: frozenset[str] = frozenset()

    def first(self) -> ServerFeatures:
        """Return the features to try first."""
        return self._best(self.apis[0])

    def format_for(self, features: ServerFeatures, form: Form) -> AnswerFormat:
        """Return the answer format of one call: the one in *features*, unless the provider would refuse the form."""
        is_messages = features.api == "messages" and features.answer_format == "schema" and self.structure == "auto"
        return "tool" if is_messages and count_unions(form.schema) > _MAX_UNIONS else features.answer_format

    def in_words(self, features: ServerFeatures) -> ServerFeatures | None:
        """Return the features with the form of answers in the prompt, for a server that ignores it elsewhere.

        `None` if the host allows no such format, or it is the one in *features*.
        """
        words = [name for name in self._formats(features.api) if name in {"json", "prompt"}]
        return replace(features, answer_format=words[0]) if words and features.answer_format not in words else None

    def has_more(self, features: ServerFeatures) -> bool:
        """Return whether another API can be tried."""
        return features.api != self.apis[-1]

    def next(
        self, features: ServerFeatures, error: CallError, *, options: frozenset[str], has_form: bool, is_proven: bool
    ) -> ServerFeatures | None:
        """Return the features to try after a refusal; `None` if others would not help. No features are tried twice.

        Args:
            features: The feature that was tried.
            error: The refusal.
            options: The fields of the body that was refused.
            has_form: Whether the answer was to have a form.
            is_proven: Whether this answer format has worked with this server before.
        """
        if self._is_no_api(features, error):
            return self._best(self.apis[self.apis.index(features.api) + 1])
        if error.status in _REFUSALS and not features.returns_reasoning and _WANTS_REASONING.search(error.text):
            return replace(features, returns_reasoning=True)
        for option in sorted(APIS[features.api].options & options):
            if re.search(rf"\b{option}\b", error.text) and _UNKNOWN.search(error.text):
                return replace(features, without=features.without | {option})
        formats = self._formats(features.api)
        below = formats[formats.index(features.answer_format) + 1 :]
        if has_form and below and _is_about_format(features.answer_format, error, is_proven=is_proven):
            return replace(features, answer_format=below[0])
        return None

    def _best(self, api: ApiName) -> ServerFeatures:
        return ServerFeatures(api, self._formats(api)[0], self.without)

    def _formats(self, api: ApiName) -> tuple[AnswerFormat, ...]:
        formats = APIS[api].answer_formats
        if self.structure == "auto":
            return formats
        return tuple(each for each in _FORCED[self.structure] if each in formats)

    def _is_no_api(self, features: ServerFeatures, error: CallError) -> bool:
        is_unknown = error.is_foreign or (error.status in _NO_API and not _NO_MODEL.search(error.text))
        return is_unknown and self.has_more(features)


def _is_about_format(answer_format: AnswerFormat, error: CallError, *, is_proven: bool) -> bool:
    if error.status is not None and error.status not in _REFUSALS | _CLUMSY_REFUSALS:
        return False
    if _ELSEWHERE.search(error.text) or _NO_MODEL.search(error.text):
        return False
    if _WORDS[answer_format].search(error.text) is not None or error.status == 501:
        return not error.is_transient or error.status in _CLUMSY_REFUSALS
    # Many servers say only that a field is wrong. If the format has worked before, the refusal is about something else.
    return error.status in _REFUSALS and not is_proven
