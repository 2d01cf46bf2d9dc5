"""Which texts are hidden because of a pattern or the name of their field, and which are not."""

from __future__ import annotations

import json

import pytest

import dagrun
from dagrun import Event, Plan, Policy, Step
from dagrun.codec import encode_event
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR, HIDDEN
from dagrun.kernel.model.secrets import Personal, is_secret_name, without_personal, without_tokens

pytestmark = pytest.mark.anyio


# What looks like a secret --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    [
        "sk-proj-abcdefghijklmnop1234",
        "sk-ant-api03-abcdefghijklmnop",
        "sk_live_4eC39HqLyjWDarjtT1",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        "glpat-abcdefghij0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdefghij",
        "AIza" + "b" * 35,
        "ya29.a0AfH6SMBabcdefghijklmnop",
        "hf_" + "a1B2" * 8,
        "npm_" + "a1B2" * 9,
        "pypi-" + "AgEIcHlwaS5vcmc" * 3,
        "SG." + "a" * 22 + "." + "b" * 43,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_123",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\nMIIabc+/=\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_well_known_tokens_are_hidden(token: str) -> None:
    assert without_tokens(f'it is "{token}", see there') == 'it is "[token]", see there'
    assert without_tokens(token) == "[token]"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://user:pa55word@db/x", "postgres://[token]@db/x"),
        ("GET /x?api_key=abc123&b=1", "GET /x?api_key=[token]&b=1"),
        ('{"password": "hunter2x"}', '{"password": "[token]"}'),
        ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [token]"),
        ("sent bearer abcdef0123456789 to it", "sent bearer [token] to it"),
        ("DB_PASSWORD=hunter2x and more", "DB_PASSWORD=[token] and more"),
        ("Set-Cookie: sid=abc1234; Path=/", "Set-Cookie: [token]; Path=/"),
    ],
)
def test_values_behind_secret_names_are_hidden_in_texts(text: str, shown: str) -> None:
    assert without_tokens(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "password: input should be a valid string",
        "token: field required",
        "the author: Jane Doe, 2024",
        "tokens=512, cost=0.25",
        "https://example.com:8080/a?b=c@d",
        "a sk-8 board, task-list-of-things-to-do-today",
        "a bearer of good news, a basic understanding",
        "key: value1",
        "2026-11-22T10:00:00Z took 1.25 s",
    ],
)
def test_plain_words_stay(text: str) -> None:
    """Messages must stay readable."""
    assert without_tokens(text) == text


@pytest.mark.parametrize("name", ["X-Api-Key", "secretKey", "access_key", "sessionid", "sid", "AUTH_TOKEN", "cookies"])
def test_names_of_fields_that_are_hidden(name: str) -> None:
    assert is_secret_name(name)
    assert DEFAULT_REDACTOR.value({"a": [{name: {"deep": 1}}]}) == {"a": [{name: HIDDEN}]}


@pytest.mark.parametrize("name", ["key", "keys", "primary_key", "tokens", "author", "residence", "side", "passenger"])
def test_names_of_fields_that_are_shown(name: str) -> None:
    """A "key" is mostly the key of a row; "tokens" are the usage of a model."""
    assert DEFAULT_REDACTOR.value({name: 1}) == {name: 1}


# Personal data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("to jane.doe+x@mail.example.com, please", "to [email], please"),
        ("call +49 30 1234567 now", "call [phone] now"),
        ("call (555) 123-4567 now", "call [phone] now"),
        ("call 0151 23456789 now", "call [phone] now"),
        ("IBAN DE89 3704 0044 0532 0130 00.", "IBAN [iban]."),
        ("GB82WEST12345698765432", "[iban]"),
        ("card 4111 1111 1111 1111 and 4111111111111111", "card [card] and [card]"),
    ],
)
def test_personal_data_is_hidden_where_the_policy_says_so(text: str, shown: str) -> None:
    assert without_personal(text, ("email", "iban", "card", "phone")) == shown
    assert without_personal(text, ()) == text


EVERY: tuple[Personal, ...] = ("email", "phone", "iban", "card")


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",  # wrong Luhn checksum
        "DE89 3704 0044 0532 0130 01",  # wrong check digits
        "0.123456789 and 1234567890123",
        "2026-11-22 10:00:00",
        "v1.2.3-4567, 192.168.100.200",
        "user@localhost",
    ],
)
def test_what_only_looks_personal_stays(text: str) -> None:
    assert without_personal(text, ("email", "iban", "card") if " 0044 " in text else EVERY) == text


async def test_personal_data_stays_in_values_and_leaves_messages() -> None:
    """A step that writes to a person needs the address; a report does not."""
    address = "jane@mail.example.com"

    @dagrun.tool(effect="read")
    async def find() -> str:
        return address

    @dagrun.tool(effect="read")
    async def write(to: str) -> str:
        raise dagrun.ToolError(f"{to} is {'known' if to == address else 'wrong'}")

    events: list[Event] = []
    steps = (Step(id="find", tool="find"), Step(id="write", tool="write", args={"to": "${find}"}))
    policy = Policy(redact=("email",))
    result = await dagrun.run(Plan(steps=steps), tools=[find, write], policy=policy, on_event=events.append)

    assert result.steps["write"].reason == "[email] is known"
    assert result.steps["find"].output == address
    assert address not in json.dumps(result.as_dict())
    assert any(address in encode_event(event).decode() for event in events)  # the value is in the record
