"""Checks of single settings: each yields the faults of a value in words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

# Yields a fault for each part of a value that does not fit: the place of the part in the value, and a sentence.
Check: TypeAlias = Callable[[Any], Iterator[tuple[str, str]]]

# The form of a secret in settings. A path may be anything; but what follows "env:" must be the name of a variable, as a
# user may write the value of the secret there by mistake. The name is as in `dagrun.model.secrets.secret`, which would
# load pydantic; a test compares them.
NAME_PATTERN: Final = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_SECRET: Final = re.compile(rf"{NAME_PATTERN}(=env:[A-Za-z_][A-Za-z0-9_]{{0,199}}|=file:.{{1,1000}})?", re.ASCII)


def text(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a text."""
    if not isinstance(value, str):
        yield "", "input should be a valid string"


def texts(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a list of texts."""
    if not isinstance(value, list):
        yield "", "input should be a valid list"
        return
    for place, part in enumerate(value):
        yield from ((f".{place}", fault) for _, fault in text(part))


def table_of_texts(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a table of texts."""
    if not isinstance(value, dict):
        yield "", "input should be a table"
        return
    for name, part in value.items():
        yield from ((f".{name}", fault) for _, fault in text(part))


def table_of_tables(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a table of tables, whose fields are checked where they are used."""
    if not isinstance(value, dict):
        yield "", "input should be a table"
        return
    for name, part in value.items():
        if not isinstance(part, dict):
            yield f".{name}", "input should be a table"


def text_or_table(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a text or a table."""
    if not isinstance(value, str | dict):
        yield "", "input should be the path of a file, or a table"


def count(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a whole number from 1."""
    if type(value) is not int:
        yield "", "input should be a valid integer"
    elif value < 1:
        yield "", "input should be greater than or equal to 1"


def positive(value: Any) -> Iterator[tuple[str, str]]:
    """Check for a number above 0."""
    if type(value) not in (int, float):
        yield "", "input should be a valid number"
    elif not math.isfinite(value):
        yield "", "input should be a finite number"
    elif value <= 0:
        yield "", "input should be greater than 0"


def one_of(*choices: str) -> Check:
    """Return a check for one of *choices*."""
    *first, last = map(repr, choices)

    def check(value: Any) -> Iterator[tuple[str, str]]:
        if value not in choices:
            yield "", f"input should be {', '.join(first)} or {last}"

    return check


def names_of_secrets(value: Any) -> Iterator[tuple[str, str]]:
    """Check the form of secrets. The fault does not show the text: it may be the secret itself, by mistake."""
    faults = list(texts(value))
    yield from faults
    if not faults and not all(_SECRET.fullmatch(part) for part in value):
        yield (
            "",
            "write NAME=env:VARIABLE, NAME=file:PATH, or NAME for a variable of that name; a value never stands where"
            " others can read it, so change one that you have given so",
        )


def database(value: Any) -> Iterator[tuple[str, str]]:
    """Check for the address of a database. The fault does not show it: there may be a password in it."""
    if not isinstance(value, str):
        yield from text(value)
    elif not value.startswith(("postgresql://", "postgres://")):
        yield (
            "",
            "it must be an address that begins with postgresql://; for records in a folder there is the field runs",
        )


def address(value: Any) -> Iterator[tuple[str, str]]:
    """Refuse an address with a password or a key in it, as ``config show`` and errors show the address."""
    if not isinstance(value, str):
        yield from text(value)
        return
    try:
        parts = urlsplit(value)
    except ValueError as error:
        yield "", f"it is no address: {error}"
        return
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        yield "", "it must be an address that begins with http:// or https://"
    elif parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        yield "", "it must be an address and no more: keys and passwords go into the environment"
