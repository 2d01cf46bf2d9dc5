"""Tools that let a secret slip in every way there is; and the forms in which it shows up."""

from __future__ import annotations

import base64
import json
import logging
import os
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
from pydantic import BaseModel, SecretStr

import dagrun

VALUE = 'kv/Canary+9 "z\\q"é&'
BYTES = VALUE.encode()

FORMS = {
    "exact": VALUE,
    "url": quote(VALUE, safe=""),
    "url path": quote(VALUE),
    "url lower": "".join(f"%{ord(c):02x}" if c in '/+ "\\&' else quote(c).lower() if c == "é" else c for c in VALUE),
    "form": quote_plus(VALUE),
    "base64": base64.b64encode(BYTES).decode(),
    "base64 after one": base64.b64encode(b"u" + BYTES).decode(),
    "base64 after two": base64.b64encode(b"u:" + BYTES).decode(),
    "base64 for urls": base64.urlsafe_b64encode(BYTES).decode(),
    "hex": BYTES.hex(),
    "hex upper": BYTES.hex().upper(),
    "json": json.dumps(VALUE)[1:-1],
    "json unicode": json.dumps(VALUE, ensure_ascii=False)[1:-1],
    "json in json": json.dumps(json.dumps(VALUE))[3:-3],
    "repr": repr(VALUE)[1:-1],
}

# What is left of each form wherever it shows up: the edges of base64 belong to what is around it, too, and JSON
# escapes what is escaped already.
TRACES = ("Canary", "anary%", base64.b64encode(BYTES).decode()[:12], base64.b64encode(b"u" + BYTES).decode()[4:16],
          base64.b64encode(b"u:" + BYTES).decode()[4:16], BYTES.hex()[:12], BYTES.hex().upper()[:12])  # fmt: skip


def traces_in(text: str) -> list[str]:
    """What stands of the secret in *text*, in whatever form."""
    return [trace for trace in TRACES if trace in text]


class Account(BaseModel):
    """Something with a rule that a secret breaks."""

    number: int


def _validate(text: str) -> None:
    Account.model_validate({"number": text})


def _request(text: str) -> None:
    request = httpx.Request("GET", f"https://api.test/x?key={quote(text, safe='')}", headers={"X-Key": quote(text)})
    httpx.Response(404, request=request).raise_for_status()


def _group(text: str) -> None:
    raise ExceptionGroup(text, [ValueError(text), KeyError(text)])


def _chained(text: str) -> None:
    try:
        raise KeyError(text)
    except KeyError as error:
        raise RuntimeError(f"because of {text}") from error


RAISES: dict[str, Any] = {
    "validation": _validate,
    "request": _request,
    "group": _group,
    "chained": _chained,
}


def _raise(how: str, text: str) -> None:
    match how:
        case "value":
            raise ValueError(text, {"token": text})
        case "tool":
            raise dagrun.ToolError(f"refused: {text}")
        case "cut":
            raise dagrun.ToolError("x" * 292 + text)
        case "missing":
            raise dagrun.ToolError("I need it", missing_input=text)
        case "name":
            raise type(f"E{text}", (Exception,), {})
        case "exit":
            raise SystemExit(text)
        case _:
            RAISES[how](text)


WAYS = ("value", "tool", "cut", "missing", "name", "exit", *RAISES)


def value_of(form: str) -> str:
    """The secret in a form, as a tool has it that was given none by its plan."""
    return FORMS[form]


@dagrun.tool(effect="effectful", needs_approval=False, timeout=30)
async def pays() -> str:
    """Change the world, and give the secret away."""
    return f"paid with {VALUE}"


@dagrun.tool(effect="read", timeout=30)
async def gives(form: str) -> Any:
    """Return the secret, deep inside."""
    text = value_of(form)
    return {"rows": [{"note": f"it is {text}."}], text: 1, "plain": "x"}


@dagrun.tool(effect="read", timeout=30)
async def says(form: str, context: dagrun.ToolContext) -> str:
    """Log it, print it, and tell how far it is."""
    text = value_of(form)
    log = context.logger
    log.warning("argument %s", text)
    log.warning("message %s" % text)  # noqa: UP031
    log.warning("extra", extra={"header": {"x": [text]}, "thing": Account.model_construct(number=text)})  # type: ignore[arg-type]
    log.warning("wrong %d", text)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("with its trace")
    logging.getLogger("dagrun.tool").debug("nobody listens")
    print(f"printed {text}")
    context.progress(0.5, f"at {text}")
    context.surprise(f"surprised by {text}")
    return "said"


@dagrun.tool(effect="read", timeout=30)
async def fails(form: str, how: str) -> str:
    """Fail with it."""
    _raise(how, value_of(form))
    return "failed"


@dagrun.tool(effect="read", timeout=30)
async def asks(form: str, context: dagrun.ToolContext) -> str:
    """Ask a person about it."""
    text = value_of(form)
    answer = await context.ask(f"Is {text} right?", about={"key": [text]})
    return str(answer is not None)


@dagrun.tool(effect="read", timeout=30)
async def takes(value: Any = None) -> str:
    """Take a value from another step."""
    return str(traces_in(json.dumps(value)) != [])


@dagrun.tool(effect="read", timeout=30)
async def crashes(key: SecretStr | None = None) -> str:
    """Fail, from the command line."""
    raise ValueError(f"with {os.environ.get('CANARY', '')}")


TOOLS = [pays, gives, says, fails, asks, takes, crashes]


@dagrun.tool(effect="read", timeout=30)
async def prints(text: str) -> dict[str, str]:
    """Print a text, and return it under two names."""
    print(text)
    return {"note": text, "password": text}


TOOLS.append(prints)
