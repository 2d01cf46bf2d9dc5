"""The secrets of the host, and how secrets and personal data are found in texts.

A secret is registered by name, named by handles in plans, passed to tools, and never stored. A plan says
``{"$secret": "api"}`` where a tool has a parameter of type `pydantic.SecretStr`. Inside the attempt, the value takes
the place of the handle; neither the plan nor the record ever holds it. No value is ever part of a `repr`, a pickle, a
comparison or a message.

1. Registered values are found in texts plain, or encoded as in URLs, JSON, Python, HTML, base64 and hex. A secret is
   not found if it is split (by a line break or an invisible character), reversed, compressed or encrypted.
   `_exact_forms` lists the encodings that give one fixed text (base64, hex and so on). For the others, each encoder may
   escape whichever characters it likes, and may do so several times; so each character of the secret becomes a pattern
   of everything that may stand for it (`_char_pattern`).
2. Tokens of well-known services, keys and personal data that were never registered are found by patterns. No pattern
   comes from a user. Each takes a time that is linear in the length of the text: a part that may be long begins at the
   beginning of a word, and can match in one way only.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, Literal, NoReturn, TypeAlias
from urllib.parse import quote, quote_plus

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, SecretStr
from pydantic_core import CoreSchema, core_schema

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.value import describe

MIN_CUT: Final = 4  # the least characters of a secret that are hidden at the end of a text that was cut inside it

# The mark that `shorten` leaves where it has cut a text.
_CUT: Final = re.compile(r"… \(\d+ characters\)")
_UNESCAPED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PART: Final = re.compile(r"\\+|[^\\]")
_SHORT: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v"}
_URLSAFE: Final = str.maketrans("+/", "-_")


class SecretFinder:
    """Finds secrets in all their encodings, in one pass whose time is linear in the length of the text.

    Args:
        values: The secrets by name; each has `MIN_CUT` characters or more.
    """

    __slots__ = ("_names", "_pattern", "_prefixes")

    def __init__(self, values: Mapping[str, str]) -> None:
        # If one secret is the beginning of another, the longer one counts: else its rest would stay in the text.
        ordered = sorted(values.items(), key=lambda item: -len(item[1]))
        self._names = [(name, re.compile("|".join(_patterns_of(value)))) for name, value in ordered]
        # Groups would tell which secret was found, but make every search eight times as slow.
        self._pattern = re.compile(_join_by_first(part for _, value in ordered for part in _patterns_of(value)))
        self._prefixes = [(name, form) for name, value in ordered for form in _exact_forms(value)]

    def find(self, text: str) -> str:
        """Return the name of a secret in *text*; empty if there is none."""
        match = self._pattern.search(text)
        return "" if match is None else self._name(match)

    def replace(self, text: str) -> str:
        """Return *text* with ``[secret:name]`` for each secret, also for the rest of one that was cut off."""
        shown = self._pattern.sub(lambda match: f"[secret:{self._name(match)}]", text)
        if "… (" not in shown:
            return shown
        parts: list[str] = []
        at = 0
        for cut in _CUT.finditer(shown):
            parts += (self._replace_cut_end(shown[at : cut.start()]), cut.group())
            at = cut.end()
        return "".join((*parts, shown[at:]))

    def _name(self, match: re.Match[str]) -> str:
        return next(name for name, pattern in self._names if pattern.fullmatch(match.group()))

    def _replace_cut_end(self, text: str) -> str:
        """Replace the beginning of a secret at the end of *text*."""
        for name, form in self._prefixes:
            for size in range(min(len(form), len(text)), MIN_CUT - 1, -1):
                if text.endswith(form[:size]):
                    return f"{text[:-size]}[secret:{name}]"
        return text


def _join_by_first(patterns: Iterable[str]) -> str:
    """Join *patterns* into one, grouped by their first character, so that few of them are tried at each place."""
    groups: dict[str, list[str]] = {}
    for pattern in patterns:
        first = pattern[: 2 if pattern[0] == "\\" else 1]
        groups.setdefault(first, []).append(pattern[len(first) :])
    return "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in groups.items())


def _patterns_of(value: str) -> list[str]:
    """Return patterns of all encodings; each begins with a plain character, so most of a text is skipped quickly."""
    first, *others = _PART.findall(value)
    rest = "".join(map(_char_pattern, others))
    escaped = [start + rest for start in _first_char_patterns(first)]  # URLs, JSON and so on
    exact = [re.escape(form) for form in _exact_forms(value)]
    return list(dict.fromkeys(exact + escaped))


def _exact_forms(value: str) -> list[str]:
    """Return the encodings of *value* that are fixed texts."""
    data = value.encode()
    forms = [value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1], data.hex(), data.hex().upper()]
    for shift in range(3):
        # Without the characters at the edges: they depend on the bytes before and after the value, too.
        encoded = base64.b64encode(bytes(shift) + data).decode()
        inside = encoded[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]
        forms += (inside, inside.translate(_URLSAFE))
    return list(dict.fromkeys(forms))


def _char_pattern(part: str) -> str:
    """Return a pattern of every encoding of a part of a secret: one character, or a run of backslashes."""
    if part in _UNESCAPED:
        return re.escape(part)
    # Atomic: if a part can match in two ways, the number of ways to match the whole would double with each part.
    return f"(?>{_backslashes(0, part)}{_after_backslashes(part)})"


def _first_char_patterns(part: str) -> list[str]:
    """Return patterns of every encoding of the first part; each begins with a plain character."""
    if part in _UNESCAPED:
        return [re.escape(part)]
    escaped = [slash + _backslashes(1, part) + _after_backslashes(part) for slash in (r"\\", _percent("\\"))]
    return escaped if part[0] == "\\" else [*escaped, _percent(part), *_entities(part), re.escape(part)]


def _backslashes(already: int, part: str) -> str:
    """Return a pattern of backslashes: the part's own, and those added by repeated escaping."""
    own = len(part) if part[0] == "\\" else 0
    return rf"(?:\\|{_percent(chr(92))}){{{max(0, own - already)},{16 * max(1, own)}}}+"


@lru_cache(maxsize=1024)
def _after_backslashes(part: str) -> str:
    """Return a pattern of everything that may follow the backslashes."""
    if part[0] == "\\":
        return ""
    return f"(?:{'|'.join((_percent(part), *_entities(part), *_escapes(part)))})"


def _percent(part: str) -> str:
    return "".join(_hex("%(?:25){0,3}", byte, 2) for byte in part.encode())


def _entities(char: str) -> Iterator[str]:
    """Yield patterns of the character as HTML and web forms write it."""
    if char == "&":
        yield "&(?:amp;){1,3}+"
    elif (written := html.escape(char)) != char:
        yield f"&(?:amp;){{0,2}}{written[1:]}"
    if char == " ":
        yield from (r"\+", _percent("+"))


def _escapes(char: str) -> Iterator[str]:
    """Yield patterns of the characters that may follow a backslash."""
    yield re.escape(char)
    if char in _SHORT:
        yield _SHORT[char]
    units = char.encode("utf-16-be")  # JSON writes a character beyond four hex digits as two surrogates
    yield r"\\{1,16}+".join(_hex("u", int.from_bytes(units[at : at + 2], "big"), 4) for at in range(0, len(units), 2))
    yield r"\\{1,16}+".join(_hex("x", byte, 2) for byte in char.encode())  # bytes in Python
    if ord(char) < 0x100:
        yield _hex("x", ord(char), 2)
    else:
        yield _hex("U", ord(char), 8)


def _hex(mark: str, number: int, digits: int) -> str:
    """Return a pattern of *mark* and a hexadecimal number in either case."""
    return mark + "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in f"{number:0{digits}x}")


Personal = Literal["email", "phone", "iban", "card"]

# The names of fields that hold secrets, whatever the value looks like. "key" alone is mostly no secret.
_NAMES: Final = (
    r"pass(?:word|phrase|wd|code)|(?:^|[_-])pass$|pwd|secret|token(?!s)"
    r"|(?:api|access|account|encryption|master|private|secret|service|shared|signing|ssh)[_-]?key"
    r"|auth(?!or(?!i))|bearer|credential|cookie|session[_-]?id|(?:^|[_-])sid$"
)
_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)

# Pairs: a part of every such token, which is quick to search for, and the pattern of the token.
_TOKENS: Final = tuple(
    (mark, re.compile(rf"(?<![A-Za-z0-9_-]){pattern}"))
    for mark, pattern in (
        ("sk-", r"sk-[A-Za-z0-9_-]{16,512}"),  # OpenAI, Anthropic
        ("k_live_", r"[rsp]k_live_[A-Za-z0-9]{10,512}"),  # Stripe
        ("k_test_", r"[rsp]k_test_[A-Za-z0-9]{10,512}"),
        ("gh", r"gh[oprsu]_[A-Za-z0-9]{20,512}"),  # GitHub
        ("github_pat_", r"github_pat_[A-Za-z0-9_]{20,512}"),
        ("glpat-", r"glpat-[A-Za-z0-9_-]{16,512}"),  # GitLab
        ("AKIA", r"AKIA[A-Z0-9]{16}(?![A-Z0-9])"),  # AWS
        ("ASIA", r"ASIA[A-Z0-9]{16}(?![A-Z0-9])"),
        ("xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,512}"),  # Slack
        ("xapp-", r"xapp-[A-Za-z0-9-]{10,512}"),
        ("AIza", r"AIza[A-Za-z0-9_-]{35}"),  # Google
        ("ya29.", r"ya29\.[A-Za-z0-9_-]{20,1024}"),
        ("hf_", r"hf_[A-Za-z0-9]{20,512}"),  # Hugging Face
        ("npm_", r"npm_[A-Za-z0-9]{30,512}"),
        ("pypi-", r"pypi-[A-Za-z0-9_-]{30,1024}"),
        ("SG.", r"SG\.[A-Za-z0-9_-]{16,128}\.[A-Za-z0-9_-]{16,256}"),  # SendGrid
        ("eyJ", r"eyJ[A-Za-z0-9_-]{5,8192}\.[A-Za-z0-9_-]{5,8192}\.[A-Za-z0-9_-]{0,8192}"),  # JSON web tokens
        ("AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{40,80}"),
    )
)
_KEY_BLOCK: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*+"
    r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?"
)
_IN_ADDRESS: Final = re.compile(r"(?<=://)[^\s/@:?#]{0,256}:[^\s/@?#]{1,512}(?=@)")
_SCHEME: Final = re.compile(
    r"(?<![A-Za-z0-9])((?:bearer|basic|digest|token)[ \t]{1,4})(?=[^\s]{0,64}[0-9=])[A-Za-z0-9._~+/-]{8,8192}={0,2}",
    re.IGNORECASE,
)
# name=value and "name": "value". A colon also occurs in sentences, so a value after it must contain a digit.
_PAIR: Final = re.compile(
    r"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]{1,64})([\"']?[ \t]{0,2}=[ \t]{0,2}[\"']?|[\"'][ \t]{0,2}:[ \t]{0,2}[\"']"
    r"|[ \t]{0,2}:[ \t]{0,2}(?=[^\s\"',;&]{0,64}[0-9]))((?:(?:bearer|basic|digest)[ \t]{1,4})?[^\s\"',;&]{4,4096})",
    re.IGNORECASE,
)

_NAME_MARKS: Final = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "auth",
    "bearer",
    "credential",
    "cookie",
    "session",
    "sid=",
)
_SCHEME_MARKS: Final = ("bearer", "basic", "digest", "token")

_EMAIL: Final = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
_HINT: Final = re.compile(r"@|\d[\d ()/.A-Z-]{5}")  # a text without a match holds none of the four kinds
_PHONE: Final = re.compile(
    r"(?<![\w.,+])(?:\+|00|\(?0)[1-9(][\d ()/.-]{5,20}\d(?!\w)|(?<![\w.,+-])\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}(?!\w)"
)
_IBAN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}(?![A-Za-z0-9])")
_CARD: Final = re.compile(r"(?<![\d.,])\d(?:[ -]?\d){12,18}(?![\d])")


def is_secret_name(name: str) -> bool:
    """Whether the name of a field marks its value as secret."""
    return _SECRET_NAME.search(name) is not None


def without_tokens(text: str) -> str:
    """Return *text* with ``[token]`` for tokens, passwords in addresses, and private keys."""
    for mark, pattern in _TOKENS:
        if mark in text:
            text = pattern.sub("[token]", text)
    if "-----BEGIN" in text:
        text = _KEY_BLOCK.sub("[token]", text)
    if "://" in text:
        text = _IN_ADDRESS.sub("[token]", text)
    lower = text.lower()
    if ("=" in text or ":" in text) and any(mark in lower for mark in _NAME_MARKS):
        text = _PAIR.sub(_without_value, text)
    return _SCHEME.sub(r"\1[token]", text) if any(mark in lower for mark in _SCHEME_MARKS) else text


def _without_value(pair: re.Match[str]) -> str:
    name, sign, value = pair.groups()
    if not is_secret_name(name) or value.startswith("["):
        return pair.group()
    return f"{name}{sign}[token]"


def without_personal(text: str, kinds: tuple[Personal, ...]) -> str:
    """Return *text* with ``[email]`` and other marks for personal data of these kinds."""
    for kind in kinds if _HINT.search(text) is not None else ():
        pattern, is_valid = _PERSONAL[kind]
        text = pattern.sub(partial(_hide, kind, is_valid), text)
    return text


def _hide(kind: str, is_valid: Callable[[str], bool], match: re.Match[str]) -> str:
    return f"[{kind}]" if is_valid(match.group()) else match.group()


def _digits(text: str) -> list[int]:
    return [int(char) for char in text if char in "0123456789"]


def _is_phone(text: str) -> bool:
    return 7 <= len(_digits(text)) <= 15


def _is_card(text: str) -> bool:
    """Whether the number passes the Luhn check."""
    digits = _digits(text)[::-1]
    return sum(digits[::2]) % 10 == -sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2]) % 10


def _is_iban(text: str) -> bool:
    """Whether the check digits of ISO 7064 are right."""
    plain = text.replace(" ", "")
    return int("".join(str(int(char, 36)) for char in plain[4:] + plain[:4])) % 97 == 1


_PERSONAL: Final[Mapping[str, tuple[re.Pattern[str], Callable[[str], bool]]]] = {
    "email": (_EMAIL, lambda _: True),
    "phone": (_PHONE, _is_phone),
    "iban": (_IBAN, _is_iban),
    "card": (_CARD, _is_card),
}


KEY: Final = "$secret"
KEY_TEXT: Final = f'"{KEY}"'.encode()
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
