"""Find tokens of well-known services, keys and personal data by patterns.

No pattern here comes from a user. Each takes a time that is linear in the length of the text: a part that may be long
begins at the beginning of a word, and can match in one way only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal

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
