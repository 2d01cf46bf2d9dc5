"""Keep registered secrets, tokens and personal data out of texts and records, and out of the log records of tools.

There are two rules:

1. The *values* of registered secrets are replaced in everything that leaves the run: events, the record, reports of
   results, briefs, log records, questions.
2. Texts that look like tokens, personal data, and values whose name says that they are secret are replaced wherever
   people or models read them. They are never replaced in a value that is passed to a step, because that would change
   what the run computes.

A secret is not found if it is split (by a line break or an invisible character), reversed, compressed or encrypted.
Log records are redacted before any filter or handler sees them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from dagrun.errors import Problem
from dagrun.kernel.model.outcome import Failure
from dagrun.kernel.model.secrets import (
    MIN_LENGTH,
    NO_SECRETS,
    Personal,
    Secrets,
    is_secret_name,
    without_personal,
    without_tokens,
)
from dagrun.kernel.model.value import Stored, decode, to_json
from dagrun.kernel.model.value import encode as store

Hook: TypeAlias = Callable[[str], str]

HIDDEN: Final = "(hidden: its name says that it is secret)"
UNSHOWN: Final = "[hidden: redact failed]"

# Bytes of the answers of models that an event holds.
MAX_ANSWERS: Final = 64 << 10

# How many short texts without secrets are remembered. A short text is often redacted again, for example the reason why
# a thousand steps are stopped.
_MAX_REMEMBERED: Final = 64
_MAX_LENGTH: Final = 300


class Redactor:
    """Replaces secrets and personal data in everything that one run shows.

    Args:
        secrets: The secrets of the host.
        personal: The kinds of personal data that are replaced.
        hook: A function of the host, called last with each text. If it raises or returns no text, the whole text is
            hidden.
    """

    __slots__ = ("_clean", "_hook", "_personal", "secrets")

    def __init__(
        self, secrets: Secrets = NO_SECRETS, personal: Iterable[Personal] = (), hook: Hook | None = None
    ) -> None:
        self.secrets = secrets
        self._personal = tuple(personal)
        self._hook = hook
        self._clean: set[str] = set()  # texts with nothing to replace

    def add_personal(self, kinds: Iterable[Personal]) -> None:
        """Replace further kinds of personal data from now on."""
        self._personal = tuple(dict.fromkeys((*self._personal, *kinds)))
        self._clean.clear()

    def text(self, text: str) -> str:
        """Return *text* as it may be shown."""
        if len(text) < MIN_LENGTH and self._hook is None:  # most keys and values of data are that short
            return text
        if self._hook is None:
            return text if text in self._clean else self._replace_and_remember(text)
        return self._hooked(self._replaced(text))

    def words(self, text: str) -> str:
        """Return *text* without registered secrets and personal data; texts that only look like a token are kept."""
        shown = without_personal(self.secrets.replaced_in(text), self._personal)
        return shown if self._hook is None else self._hooked(shown)

    def _hooked(self, shown: str) -> str:
        assert self._hook is not None
        try:
            result: object = self._hook(shown)
        except Exception:  # noqa: BLE001  (whatever went wrong, the text must not be shown)
            return UNSHOWN
        return result if isinstance(result, str) else UNSHOWN

    def _replaced(self, text: str) -> str:
        shown = without_tokens(self.secrets.replaced_in(text))
        return without_personal(shown, self._personal) if self._personal else shown

    def _replace_and_remember(self, text: str) -> str:
        """Return *text* as it may be shown, and remember a short text with nothing to replace."""
        shown = self._replaced(text)
        if len(text) <= _MAX_LENGTH and shown == text:
            if len(self._clean) >= _MAX_REMEMBERED:
                self._clean.clear()
            self._clean.add(text)
        return shown

    def value(self, value: Any, *, hides_names: bool = True) -> Any:
        """Return a JSON value as it may be shown: its texts are redacted, and fields with a secret name are hidden.

        Args:
            value: The value.
            hides_names: Whether the latter; not in a JSON Schema, where a name stands for no value.
        """
        match value:
            case str():
                return self.text(value)
            case dict():
                return {
                    self.text(key): HIDDEN
                    if hides_names and is_secret_name(key) and part is not None
                    else self.value(part, hides_names=hides_names)
                    for key, part in value.items()
                }
            case list() | tuple():
                return [self.value(part, hides_names=hides_names) for part in value]
            case bool() | None:
                return value
            case int():
                return value if not self.secrets.found_in(str(value)) else self.secrets.replaced_in(str(value))
            case _:
                return value

    def stored(self, value: Stored) -> Stored:
        """Return a stored value without registered secrets; the rest is kept for the people who decide about it."""
        if not self.secrets.are_hidden or not self.secrets.found_in(to_json(value).decode()):
            return value
        redacted = store(without_secrets(self.secrets, decode(value)))
        return redacted if type(value) is not bytes else to_json(redacted)

    def failure(self, failure: Failure) -> Failure:
        """Return *failure* with redacted texts."""
        missing = failure.missing_input
        facts: dict[str, Any] = {
            "message": self.text(failure.message),
            "error": self.text(failure.error),
            "missing_input": missing and self.text(missing),
            "where": self.text(failure.where),
            "answer": self.answers((failure.answer,))[0] if failure.answer else "",
        }
        if failure.render is not None:
            return replace(failure, **facts, render=partial(_rendered, self, failure.render))
        is_clean = all(getattr(failure, name) == text for name, text in facts.items())
        return failure if is_clean else replace(failure, **facts)

    def answers(self, answers: Sequence[str]) -> tuple[str, ...]:
        """Return answers of models for the record: redacted, and together at most `MAX_ANSWERS` bytes."""
        left, shown = MAX_ANSWERS, []
        for answer in answers:
            data = self.text(answer).encode("utf-8", "backslashreplace")
            if len(data) > left:
                note = f"… ({len(data)} bytes)".encode()
                data = data[: max(0, left - len(note))].decode("utf-8", "ignore").encode() + note[:left]
            left -= len(data)
            shown.append(data.decode("utf-8", "ignore"))
        return tuple(shown)

    def problem(self, problem: Problem) -> Problem:
        """Return *problem* with redacted facts."""
        return replace(problem, facts={name: self.text(fact) for name, fact in problem.facts.items()})


def _rendered(redactor: Redactor, render: Callable[[], str]) -> str:
    return redactor.text(render())


DEFAULT_REDACTOR: Final = Redactor()

# The redactor of the current run, set around tools, planners and critics: the texts that they send to models are
# redacted.
REDACTOR: ContextVar[Redactor] = ContextVar("dagrun redactor", default=DEFAULT_REDACTOR)


def without_secrets(secrets: Secrets, value: Any) -> Any:
    """Return a JSON value in which every registered secret is replaced."""
    match value:
        case str():
            return secrets.replaced_in(value)
        case dict():
            return {secrets.replaced_in(key): without_secrets(secrets, part) for key, part in value.items()}
        case list():
            return [without_secrets(secrets, part) for part in value]
        case int() if not isinstance(value, bool) and secrets.found_in(str(value)):
            return secrets.replaced_in(str(value))
        case _:
            return value


MAX_TEXT: Final = 100_000

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({})))  # the other fields of a record are `extra`
_FORMATTER: Final = logging.Formatter()


class RedactingLogger(logging.Logger):
    """Redacts records and passes them to another logger, whose level, filters and handlers apply.

    Args:
        behind: The other logger.
        redactor: Redacts the records.
    """

    def __init__(self, behind: logging.Logger, redactor: Redactor) -> None:
        super().__init__(behind.name)
        self._behind = behind
        self._redactor = redactor

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  (logging's own name)
        """Whether the other logger accepts records of *level*."""
        return self._behind.isEnabledFor(level)

    def getEffectiveLevel(self) -> int:  # noqa: N802
        """Return the level of the other logger."""
        return self._behind.getEffectiveLevel()

    def handle(self, record: logging.LogRecord) -> None:
        """Redact *record*, and pass it on."""
        self._behind.handle(clean_record(record, self._redactor))


def clean_record(record: logging.LogRecord, redactor: Redactor) -> logging.LogRecord:
    """Redact message, traceback and extra fields of *record*. An exception with secrets is replaced by its text."""
    try:
        message = record.getMessage()
    except Exception as error:  # noqa: BLE001  (a wrong format string must neither fail nor show its arguments)
        message = f"{record.msg!r} cannot be formatted: {type(error).__name__}"
    record.msg, record.args = redactor.text(_cut(message)), None
    if record.exc_info:
        trace = _FORMATTER.formatException(record.exc_info)
        shown = redactor.text(_cut(trace))
        if shown != trace:  # else handlers would show the exception itself
            record.exc_text, record.exc_info = shown, None
    elif record.exc_text:
        record.exc_text = redactor.text(_cut(record.exc_text))
    if record.stack_info:
        record.stack_info = redactor.text(record.stack_info)
    for name in vars(record).keys() - _STANDARD_FIELDS:
        vars(record)[name] = _clean(vars(record)[name], redactor)
    return record


def _cut(text: str) -> str:
    """Cut a text that is too long to read: searching 100 MB for secrets takes seconds, and the loop waits."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"


def _clean(value: Any, redactor: Redactor) -> Any:
    """Redact a field that a tool has added: plain data stays data, any other object becomes text."""
    if isinstance(value, str | dict | list | tuple | int | float | None):
        return redactor.value(value)
    try:
        return redactor.text(repr(value))
    except Exception:  # noqa: BLE001  (the `__repr__` of the object may raise anything)
        return f"a {type(value).__name__}"
