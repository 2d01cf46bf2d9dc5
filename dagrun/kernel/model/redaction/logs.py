"""Redact the log records of tools, before any filter or handler sees them."""

from __future__ import annotations

import logging
from typing import Any, Final

from dagrun.kernel.model.redaction.redactor import Redactor

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
