"""Secrets of the host: registered by name, named in plans by handles, handed to tools, and stored nowhere.

A plan says ``{"$secret": "api"}`` where a tool has a parameter of type `pydantic.SecretStr`. The value takes the place
of the handle inside the attempt; neither the plan nor the record ever holds it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr
from pydantic_core import CoreSchema, core_schema

from dagrun.errors import ContractError, shorten
from dagrun.model.secrets.encodings import SecretFinder
from dagrun.model.value import describe

KEY: Final = "$secret"
NAME_PATTERN: Final = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
MIN_LENGTH: Final = 6
MAX_LENGTH: Final = 16_384

_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_MIN_DIFFERENT: Final = 3
_MIN_DIGITS: Final = 12  # fewer are a date, an amount, a number of an order
_HANDLE_TEXT: Final = "A handle: the name of a secret. Never a secret itself, nor a reference."

# They stand in every other text, which nobody could read any more.
_WORDS: Final = frozenset(
    (
        "boolean",
        "default",
        "example",
        "integer",
        "number",
        "object",
        "password",
        "secret",
        "string",
        "succeeded",
        "undefined",
        "unknown",
    )
)


class Handle:
    """What stands in the arguments of a plan in place of a secret: ``{"$secret": "api"}``, as a dict."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A closed object with one field."""
        name = core_schema.str_schema(pattern=f"^{NAME_PATTERN}$", strict=True)
        return core_schema.typed_dict_schema(
            {KEY: core_schema.typed_dict_field(name, required=True)}, extra_behavior="forbid", strict=True
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The same for planners."""
        return handle_schema()


def handle_schema(names: Iterable[str] = ()) -> dict[str, Any]:
    """The JSON Schema of a handle.

    Args:
        names: Those that it may say; none for any name.
    """
    known = sorted(names)
    which = {"enum": known} if known else {"pattern": f"^{NAME_PATTERN}$"}
    return {
        "type": "object",
        "properties": {KEY: {"type": "string", "description": _HANDLE_TEXT, **which}},
        "required": [KEY],
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """A secret that stands in an environment variable."""

    variable: str


def env(variable: str) -> FromEnvironment:
    """A secret that stands in an environment variable; it is read when the run is started.

    Args:
        variable: Its name.
    """
    return FromEnvironment(variable)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, and who may have it.

    Attributes:
        value: The text; or where it stands, see `env`.
        tools: The names of the tools that may get it; `None` for all that the run allows.
    """

    value: str | SecretStr | FromEnvironment = field(repr=False)
    tools: tuple[str, ...] | None = None


AnySecret: TypeAlias = str | SecretStr | FromEnvironment | Secret


class Secrets(Mapping[str, frozenset[str] | None]):
    """The secrets of a host, by name. As a mapping, it tells of each name which tools may have it: `None` for all.

    The values come out in one way only, by `reveal`. They are in no `repr`, and nothing of it can be pickled.

    Args:
        given: By name.

    Attributes:
        are_unknown: Whether handles of any name pass a check: the plan comes from a record, and nothing is run.

    Raises:
        ContractError: A name or a value that cannot be used, or an environment variable that is not set.
    """

    __slots__ = ("_disguises", "_tools", "_values", "are_unknown")

    def __init__(self, given: Mapping[str, AnySecret] | None = None) -> None:
        if not isinstance(given, Mapping | None):
            raise ContractError(f'secrets are given by name: secrets={{"api": …}}; got {type(given).__name__}')
        self.are_unknown = False
        self._values: dict[str, SecretStr] = {}
        self._tools: dict[str, frozenset[str] | None] = {}
        for name, secret in (given or {}).items():
            self._register(name, secret if isinstance(secret, Secret) else Secret(secret))
        values = {name: value.get_secret_value() for name, value in self._values.items()}
        self._disguises = SecretFinder(values) if values else None

    @classmethod
    def named(cls, names: Iterable[str]) -> Secrets:
        """Names without values: enough to check a plan, and no more.

        Raises:
            ContractError: A name that is none.
        """
        made = cls()
        for name in names:
            _check_name(name)
            made._tools[name] = None
        return made

    @classmethod
    def unknown(cls) -> Secrets:
        """None at all, for plans that were checked before, with secrets that are not here."""
        made = cls()
        made.are_unknown = True
        return made

    def _register(self, name: str, secret: Secret) -> None:
        _check_name(name)
        if isinstance(secret.tools, str):
            raise ContractError(f"secret {name}: tools is a tuple of names of tools, not one of them")
        value = _value_of(name, secret.value)
        if fault := _fault_of(value.get_secret_value()):
            raise ContractError(f"secret {name}: {fault}")
        self._values[name] = value
        self._tools[name] = None if secret.tools is None else frozenset(secret.tools)

    @property
    def missing(self) -> list[str]:
        """The names without a value."""
        return [name for name in self._tools if name not in self._values]

    def may_have(self, tool: str, name: str) -> bool:
        """Whether a tool may get the secret of a name, if there is one."""
        tools = self._tools.get(name)
        return name in self._tools and (tools is None or tool in tools)

    def names_for(self, tool: str) -> list[str]:
        """The names of those that a tool may get."""
        return [name for name in self._tools if self.may_have(tool, name)]

    def reveal(self, tool: str, name: str) -> SecretStr:
        """The value, for a call of *tool*.

        Raises:
            LookupError: There is none, or the tool may not have it.
        """
        if name not in self._values:
            raise LookupError(f"the host has registered no secret {shorten(name, 64)}")
        if not self.may_have(tool, name):
            raise LookupError(f"{tool} may not have the secret {name}")
        return self._values[name]

    @property
    def are_hidden(self) -> bool:
        """Whether there is any value to look for."""
        return self._disguises is not None

    def found_in(self, text: str) -> str:
        """The name of a secret whose value stands in *text*, in any form that is known; empty if none does."""
        return "" if self._disguises is None else self._disguises.find(text)

    def replaced_in(self, text: str) -> str:
        """*text* with ``[secret:name]`` in place of every value."""
        return text if self._disguises is None else self._disguises.replace(text)

    def __getitem__(self, name: str) -> frozenset[str] | None:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    # By identity: nobody is to find out a value by comparing.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self._tools)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled; register them anew where they are needed")


def secrets_from(given: Secrets | Mapping[str, AnySecret] | None) -> Secrets:
    """The secrets that *given* stand for.

    Raises:
        ContractError: They cannot be used.
    """
    if isinstance(given, Secrets):
        return given
    return Secrets(given) if given else NO_SECRETS


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = describe(name) if not isinstance(name, str) else repr(shorten(name, 80))
        raise ContractError(f"{shown} is not a name of a secret: a letter, then letters, digits, '_', '-', at most 64")


def _value_of(name: str, value: object) -> SecretStr:
    match value:
        case SecretStr():
            return value
        case str():
            return SecretStr(value)
        case FromEnvironment():
            if (found := os.environ.get(value.variable)) is None:
                # What looks like no name of a variable may be the secret itself: a shell has put it there.
                which = value.variable if _VARIABLE.fullmatch(value.variable) else "that it names"
                raise ContractError(f"secret {name}: the environment variable {which} is not set")
            return SecretStr(found)
        case _:
            wanted = "a text, a SecretStr, a Secret, or env(…)"
            raise ContractError(f"secret {name}: it must be {wanted}; got {type(value).__name__}")


def _fault_of(value: str) -> str:
    """Why *value* cannot be kept out of texts: it would be found everywhere, or nowhere. It is not shown."""
    if len(value) < MIN_LENGTH:
        return f"its value has {len(value)} characters; what is shorter than {MIN_LENGTH} stands in too many texts"
    if len(value) > MAX_LENGTH:
        return f"its value has {len(value)} characters, the ceiling is {MAX_LENGTH}"
    if value != value.strip():
        return "its value begins or ends with white space, which gets lost on the way"
    if value.lower() in _WORDS or len(set(value)) < _MIN_DIFFERENT:
        return "its value is a word that stands in too many texts"
    if len(value) < _MIN_DIGITS and not any(char.isalpha() for char in value):
        return f"its value has no letters; what is shorter than {_MIN_DIGITS} and has none stands in too many texts"
    if not value.isascii() and any(0xD800 <= ord(char) <= 0xDFFF for char in value):
        return "its value holds half a character (a lone surrogate)"
    return ""


NO_SECRETS: Final = Secrets()
