"""Log records of tools, without what must not be seen: cleaned before any filter or handler gets hold of them."""

from __future__ import annotations

import logging
from typing import Any, Final

from dagrun.model.redaction.redactor import Redactor

MAX_TEXT: Final = 100_000

_OWN: Final = frozenset(vars(logging.makeLogRecord({})))  # what every record has; all else was given as extra
_FORMATTER: Final = logging.Formatter()


class RedactingLogger(logging.Logger):
    """Hands records on to another logger, whose level, filters and handlers hold.

    Args:
        behind: That logger.
        redactor: Cleans the records.
    """

    def __init__(self, behind: logging.Logger, redactor: Redactor) -> None:
        super().__init__(behind.name)
        self._behind = behind
        self._redactor = redactor

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  (logging's own name)
        """Whether the logger behind it wants records of *level*."""
        return self._behind.isEnabledFor(level)

    def getEffectiveLevel(self) -> int:  # noqa: N802
        """The level of the logger behind it."""
        return self._behind.getEffectiveLevel()

    def handle(self, record: logging.LogRecord) -> None:
        """Clean *record*, and hand it on."""
        self._behind.handle(clean_record(record, self._redactor))


def clean_record(record: logging.LogRecord, redactor: Redactor) -> logging.LogRecord:
    """Clean *record*: message, traceback and extra fields. An exception that must not be seen is text from then on."""
    try:
        message = record.getMessage()
    except Exception as error:  # noqa: BLE001  (a wrong format string is no reason to fail, nor to show its arguments)
        message = f"{record.msg!r} cannot be formatted: {type(error).__name__}"
    record.msg, record.args = redactor.text(_cut(message)), None
    if record.exc_info:
        trace = _cut(_FORMATTER.formatException(record.exc_info))
        shown = redactor.text(trace)
        if shown != trace:  # handlers would show the exception itself
            record.exc_text, record.exc_info = shown, None
    if record.stack_info:
        record.stack_info = redactor.text(record.stack_info)
    for name in vars(record).keys() - _OWN:
        vars(record)[name] = _clean(vars(record)[name], redactor)
    return record


def _cut(text: str) -> str:
    """Cut what nobody reads: to look for secrets in 100 MB takes seconds, and the loop waits."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"


def _clean(value: Any, redactor: Redactor) -> Any:
    """A field that a tool has added: plain data stays data, anything else becomes its text."""
    if isinstance(value, str | dict | list | tuple | int | float | None):
        return redactor.value(value)
    try:
        return redactor.text(repr(value))
    except Exception:  # noqa: BLE001  (its own method raises that)
        return f"a {type(value).__name__}"
