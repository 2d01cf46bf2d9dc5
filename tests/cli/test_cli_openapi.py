"""`--openapi` and `[openapi.NAME]`: services as sources of tools, wherever tools are named."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from command_line import Shell, command, shell
from dagrun.cli.records.resume_command import options_again
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.user_errors import BadInput
from loopback import Request, Server, answer, serving

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

KEY = "s3cret-value-17"
ITEM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PLAN = [
    {"id": "lamp", "tool": "shop.items_get", "args": {"id": 3}},
    {"id": "copy", "tool": "shop.items_make", "args": {"body": {"name": "copy of ${lamp.name}"}}},
]


def api() -> dict[str, Any]:
    json_of = {"application/json": {"schema": ITEM}}
    found = {"200": {"description": "ok", "content": json_of}}
    ident = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    get = {"operationId": "items/get", "tags": ["items"], "parameters": [ident], "responses": found}
    make = {"operationId": "items/make", "requestBody": {"required": True, "content": json_of}, "responses": found}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "paths": {"/items/{id}": {"get": get}, "/items": {"post": make}},
        "components": {"securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
        "security": [{"key": []}],
    }


@pytest.fixture
def shop(shell: Shell) -> Iterator[Server]:
    """The service, and its document in the folder of the shell."""
    shell.file("shop.json", json.dumps(api()))

    def handler(request: Request, connection: socket.socket) -> None:
        made = request.body or b'{"name": "lamp"}'
        connection.sendall(answer(made, content_type="application/json"))

    with serving(handler) as server:
        yield server


def test_a_plan_runs_on_a_service_of_the_settings(shell: Shell, shop: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Address, secret, effects and a pool in one table; the secret is shown nowhere."""
    monkeypatch.setenv("SHOP_KEY", KEY)
    shell.file(
        "dagrun.toml",
        f'secrets = ["shop=env:SHOP_KEY"]\n[openapi.shop]\nfile = "shop.json"\nbase_url = "{shop.url}/v1"\n'
        'secret = "shop"\neffects = { items_make = "idempotent" }\ntimeout = 5\n',
    )
    refused = shell("run", shell.plan(*PLAN))
    assert "openapi = " in refused.err
    assert "it would send requests, and secrets of yours, to the addresses of these services" in refused.err
    assert shell("config", "trust").code == 0
    ended = shell("run", shell.plan(*PLAN))
    assert (ended.code, json.loads(ended.out)) == (0, {"name": "copy of lamp"}), ended.err
    assert [(each.target, each.headers["x-key"]) for each in shop.requests] == [
        ("/v1/items/3", KEY),
        ("/v1/items", KEY),
    ]
    assert KEY not in ended.err + ended.out
    listed = shell("tools")
    assert "shop.items_make  idempotent" in listed.out
    monkeypatch.delenv("SHOP_KEY")
    assert shell("tools").out == listed.out  # nothing is called, so nothing is wanted
    missing = shell("run", shell.plan(*PLAN))
    assert (missing.code, "SHOP_KEY is not set" in missing.err) == (2, True)


def test_a_document_on_the_command_line(shell: Shell, shop: Server) -> None:
    """With a name, an address and a choice; the commands that only look take it, too."""
    given = ["--openapi", "shop=shop.json", "--openapi-url", shop.url]
    ended = shell("run", shell.plan(*PLAN), *given)
    assert (ended.code, json.loads(ended.out)) == (0, {"name": "copy of lamp"}), ended.err
    assert shell("check", shell.plan(*PLAN), *given).code == 0
    chosen = shell("check", shell.plan(*PLAN), *given, "--include", "tag:items")
    assert (chosen.code, "shop.items_make" in chosen.out + chosen.err) == (3, True)
    plain = shell("tools", "--json", "--openapi", "shop.json", "--openapi-url", shop.url)
    assert [tool["name"] for tool in json.loads(plain.out)["tools"]] == ["items_get", "items_make"]
    both = shell("tools", *given, "--tools", "cli_tools")
    assert "shop.items_get" in both.out
    assert "needs_a_person" in both.out


def test_a_run_is_resumed_with_the_services_that_it_began_with(shell: Shell, shop: Server) -> None:
    """They are on record as the options that named them; here a person is asked in between."""
    given = ["--openapi", "shop=shop.json", "--openapi-url", shop.url]
    steps = [PLAN[0], {**PLAN[1], "pause": "before"}]
    waiting = shell("run", shell.plan(*steps), *given, "--run-id", "one")
    assert waiting.code == 5
    for word in given:
        assert word in waiting.err
    assert shell("answer", "one", "copy", "--yes").code == 0
    ended = shell("resume", "one")
    assert (ended.code, json.loads(ended.out)) == (0, {"name": "copy of lamp"}), ended.err
    assert [each.method for each in shop.requests] == ["GET", "POST"]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ('[openapi.shop]\nbase_url = "https://a.example"', "openapi.shop: file: field required"),
        ('[openapi.shop]\nfile = "shop.json"\nbase_ulr = "x"', "openapi.shop: unknown field base_ulr"),
        ('[openapi.shop]\nfile = "none.json"', "none.json: it cannot be read"),
        ('[openapi.shop]\nfile = "shop.json"', "names no server; give base_url"),
        ('[openapi.shop]\nfile = "shop.json"\nbase_url = "https://a.example"\nsecret = "k"', "there is no secret k"),
        ('openapi = "shop.json"', "openapi: input should be a table"),
        ('[openapi]\nfile = "shop.json"', "openapi.file: input should be a table"),
    ],
)
def test_what_is_wrong_with_a_table_is_said_in_a_line(shell: Shell, shop: Server, table: str, reason: str) -> None:
    """With the name of the table."""
    shell.file("dagrun.toml", table)
    shell("config", "trust")
    ended = shell("tools")
    assert (ended.code, reason in ended.err) == (2, True), ended.err
    assert ended.err.count("\n") <= 2


def test_options_that_belong_to_no_document_are_refused(shell: Shell) -> None:
    """A forgotten --openapi is no silent nothing."""
    for options, reason in (
        (["--include", "a"], "--include is for a document: name it by --openapi FILE"),
        (["--openapi-url", "http://a"], "--openapi-url is for a document"),
        (["--openapi", "a=b", "--openapi", "a=c"], "--openapi a is given twice"),
        (["--openapi", "a", "--openapi", "c", "--openapi-url", "http://a"], "--openapi-url is for one document"),
    ):
        ended = shell("tools", *options)
        assert (ended.code, reason in ended.err) == (2, True), ended.err


def test_the_options_of_a_resumption_name_the_services_again() -> None:
    """Only those of the command line: settings are found again."""
    flags = {"openapi": ("shop=a.json", "b.json"), "include": ("tag:x",), "critics": (), "compose": None}
    again = options_again(configure(flags), None, flags)
    assert again[2:] == ["--openapi", "shop=a.json", "--openapi", "b.json", "--include", "tag:x"]
    with pytest.raises(BadInput, match="is for a document"):
        configure({"include": ("a",)})
    assert command("tools")
