"""Secrets of the host: registered by name, named by handles in plans, passed to tools, never stored.

A plan says ``{"$secret": "api"}`` where a tool has a parameter of type `pydantic.SecretStr`. Inside the attempt, the
value takes the place of the handle; neither the plan nor the record ever holds it.
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
from dagrun.kernel.model.secrets.encodings import SecretFinder
from dagrun.kernel.model.value import describe

KEY: Final = "$secret"
NAME_PATTERN: Final = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
MIN_LENGTH: Final = 6
MAX_LENGTH: Final = 16_384

_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_MIN_DIFFERENT: Final = 3
_MIN_DIGITS: Final = 12  # a shorter number may be a date, an amount or an order number
_HANDLE_TEXT: Final = "A handle: the name of a secret. Never a secret itself, nor a reference."

# Values that are refused as secrets: these words are in so many texts that the texts would become unreadable.
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
    """The type of a handle, a reference to a secret in a plan: a dict ``{"$secret": "api"}``."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a closed object with one field."""
        name = core_schema.str_schema(pattern=f"^{NAME_PATTERN}$", strict=True)
        return core_schema.typed_dict_schema(
            {KEY: core_schema.typed_dict_field(name, required=True)}, extra_behavior="forbid", strict=True
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema of a handle, for planners."""
        return handle_schema()


def handle_schema(names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of a handle.

    Args:
        names: The names that it may contain; if empty, any name.
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
    """A secret that is read from an environment variable."""

    variable: str


def env(variable: str) -> FromEnvironment:
    """Read a secret from an environment variable when the run is started.

    Args:
        variable: The name of the environment variable.
    """
    return FromEnvironment(variable)


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, and the tools that may get it.

    Attributes:
        value: The text, or the environment variable that it is read from; see `env`.
        tools: The names of the tools that may get it; `None` for all that the run allows.
    """

    value: str | SecretStr | FromEnvironment = field(repr=False)
    tools: tuple[str, ...] | None = None


AnySecret: TypeAlias = str | SecretStr | FromEnvironment | Secret


class Secrets(Mapping[str, frozenset[str] | None]):
    """The secrets of a host; as a mapping: from each name to the tools that may get the secret, `None` for all.

    The only way to get a value is `reveal`. The values are in no `repr`, and the object cannot be pickled.

    Args:
        given: The secrets by name.

    Attributes:
        are_hidden: Whether there are values to hide.
        are_unknown: Whether handles of any name pass a check, because the plan comes from a record and nothing is run.

    Raises:
        ContractError: A name or a value is invalid, or an environment variable is not set.
    """

    __slots__ = ("_finder", "_tools", "_values", "are_hidden", "are_unknown")

    def __init__(self, given: Mapping[str, AnySecret] | None = None) -> None:
        if not isinstance(given, Mapping | None):
            raise ContractError(f'secrets are given by name: secrets={{"api": …}}; got {type(given).__name__}')
        self.are_unknown = False
        self._values: dict[str, SecretStr] = {}
        self._tools: dict[str, frozenset[str] | None] = {}
        for name, secret in (given or {}).items():
            self._register(name, secret if isinstance(secret, Secret) else Secret(secret))
        values = {name: value.get_secret_value() for name, value in self._values.items()}
        self._finder = SecretFinder(values) if values else None
        self.are_hidden = self._finder is not None

    @classmethod
    def named(cls, names: Iterable[str]) -> Secrets:
        """Make secrets with names, but without values: enough to check a plan.

        Raises:
            ContractError: A name is invalid.
        """
        secrets = cls()
        for name in names:
            _check_name(name)
            secrets._tools[name] = None
        return secrets

    @classmethod
    def unknown(cls) -> Secrets:
        """Make the secrets for a plan that was checked before, with secrets that are not available here."""
        secrets = cls()
        secrets.are_unknown = True
        return secrets

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
        """Whether there is a secret called *name* that *tool* may get."""
        tools = self._tools.get(name)
        return name in self._tools and (tools is None or tool in tools)

    def names_for(self, tool: str) -> list[str]:
        """Return the names of the secrets that a tool may get."""
        return [name for name in self._tools if self.may_have(tool, name)]

    def reveal(self, tool: str, name: str) -> SecretStr:
        """Return the value of a secret for a call of *tool*.

        Raises:
            LookupError: There is no such secret, or the tool may not get it.
        """
        if name not in self._values:
            raise LookupError(f"the host has registered no secret {shorten(name, 64)}")
        if not self.may_have(tool, name):
            raise LookupError(f"{tool} may not have the secret {name}")
        return self._values[name]

    def found_in(self, text: str) -> str:
        """Return the name of a secret whose value is in *text*, in any known encoding; empty if there is none."""
        return "" if self._finder is None else self._finder.find(text)

    def replaced_in(self, text: str) -> str:
        """Return *text* with ``[secret:name]`` for every value."""
        return text if self._finder is None else self._finder.replace(text)

    def __getitem__(self, name: str) -> frozenset[str] | None:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    # By identity, so that a value cannot be found out by comparing.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return shorten(f"Secrets({', '.join(self._tools)})", 1200)

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled; register them again where they are needed")


def secrets_from(given: Secrets | Mapping[str, AnySecret] | None) -> Secrets:
    """Return *given* as `Secrets`.

    Raises:
        ContractError: A name or a value is invalid.
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
            if (text := os.environ.get(value.variable)) is None:
                # If it does not look like the name of a variable, it may be the secret itself, put in by a shell.
                which = value.variable if _VARIABLE.fullmatch(value.variable) else "that it names"
                raise ContractError(f"secret {name}: the environment variable {which} is not set")
            return SecretStr(text)
        case _:
            wanted = "a text, a SecretStr, a Secret, or env(…)"
            raise ContractError(f"secret {name}: it must be {wanted}; got {type(value).__name__}")


def _fault_of(value: str) -> str:
    """Return why *value* cannot be hidden, without showing it: it would match too many texts, or none."""
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
