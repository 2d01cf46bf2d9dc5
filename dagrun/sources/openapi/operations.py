"""Read an operation of an OpenAPI document: its parameters, its body, the schemas of both, its effect.

The rules:

1. Parameters of path, query and headers are arguments by their names, and the body is the argument ``body``. Where two
   have one name, the later one gets its place in front: ``query_id``.
2. Cookies, headers that frame a request, ``Authorization`` and every parameter that a security scheme names are no
   arguments: no plan decides about credentials.
3. A declared ``Idempotency-Key`` is no argument either; it gets the key of the step.
4. The effect follows from the method, unless the document says ``x-dagrun-effect``.
5. What cannot be called is `Unusable`, with the reason; the rest of the document can be used all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import quote

from dagrun.errors import shorten
from dagrun.kernel.model.effect import Effect
from dagrun.sources.openapi.bodies import BODY, JSON_TYPES, Body, read_body, style_of
from dagrun.sources.openapi.document import Document, Raw, Unusable
from dagrun.sources.openapi.wire_forms import STYLES, Parameter, Place

KEY_HEADER: Final = "idempotency-key"

_EFFECTS: Final[Mapping[str, Effect]] = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "QUERY"), Effect.READ),
    **dict.fromkeys(("PUT", "DELETE"), Effect.IDEMPOTENT),
}
# Headers that no plan sets: the specification says to ignore the first three, the others frame the request or prove
# who sends it.
_NOT_FOR_PLANS: Final = frozenset(
    (
        *("accept", "content-type", "authorization"),
        *("cookie", "host", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"),
        *("content-length", "transfer-encoding", "accept-encoding", "content-encoding", "forwarded"),
    )
)
_PREFIXES: Final = ("proxy-", "x-forwarded-", "sec-")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_METHOD: Final = re.compile(r"[A-Z][A-Z-]{0,30}", re.IGNORECASE)
_SENT: Final = "/%:@!$'()*+,;~?"  # characters of a query that stay as the document writes them


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation that can be called.

    Attributes:
        method: The method of HTTP.
        path: The path, with ``{name}`` for parameters.
        query: The parts ``name=value`` of the query that every call sends, encoded.
        description: The description for planners.
        effect: What a call does to the world, as far as method and document say.
        path_parameters: The parameters of the path by name.
        others: The parameters of query and headers.
        key_header: The header that gets the idempotency key; `None` if the document declares none.
        body: The body; `None` if there is none.
        accept: The media types that are asked for.
        security: The security requirements; `None` if the document says nothing.
        arguments: The JSON Schema of the arguments, with references into the document.
        answers: The JSON Schema of what comes back; `None` for anything.
    """

    method: str
    path: str
    query: tuple[str, ...]
    description: str
    effect: Effect
    path_parameters: Mapping[str, Parameter]
    others: tuple[Parameter, ...]
    key_header: str | None
    body: Body | None
    accept: str
    security: Any
    arguments: Raw
    answers: Any


def name_of(method: str, path: str, operation: Raw) -> str:
    """Return the name of an operation: its operationId, or else its method and path."""
    given = operation.get("operationId")
    text = given if isinstance(given, str) and given.strip() else f"{method.lower()} {path}"
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_") or "operation"


def tags_of(operation: Raw) -> list[str]:
    """Return the tags of an operation."""
    tags = operation.get("tags")
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def read_operation(document: Document, method: str, path: str, item: Raw, operation: Raw) -> Operation:
    """Read an operation.

    Raises:
        Unusable: It cannot be called; the message says why, and begins with a verb.
    """
    operation = document.followed(operation)
    if not _METHOD.fullmatch(method):
        raise Unusable("has a method that is none of HTTP")
    # A fragment only tells operations of one path apart, and is never sent.
    path, _, query = path.partition("#")[0].partition("?")
    reader = _Parameters(document, path, query)
    for raw in _merged(document, item.get("parameters", []), operation.get("parameters", [])):
        reader.read(raw)
    body = _read_body(document, operation.get("requestBody"), reader)
    reader.check_path(path)
    responses = operation.get("responses")
    answers, accept = _answers(document, responses if isinstance(responses, Mapping) else {})
    if method.upper() == "HEAD":
        answers = {"type": "null"}  # its answers have headers alone
    return Operation(
        method=method.upper(),
        path=path,
        query=reader.fixed_query,
        description=_words(operation.get("summary"), operation.get("description")),
        effect=_effect(method, operation, has_key=reader.key_header is not None),
        path_parameters=reader.in_path,
        others=tuple(reader.others),
        key_header=reader.key_header,
        body=body,
        accept=accept,
        security=operation.get("security", document.content.get("security")),
        arguments={
            "type": "object",
            "properties": reader.schemas,
            "required": reader.required,
            "additionalProperties": False,
        },
        answers=answers,
    )


def _words(*texts: Any) -> str:
    return shorten(" ".join(" ".join(text.split()) for text in texts if isinstance(text, str)), 2_000)


def _effect(method: str, operation: Raw, *, has_key: bool) -> Effect:
    said = operation.get("x-dagrun-effect")
    if said is not None:
        try:
            return Effect(said)
        except ValueError:
            raise Unusable(f"has x-dagrun-effect {shorten(repr(said), 40)}, not {', '.join(Effect)}") from None
    effect = _EFFECTS.get(method.upper(), Effect.EFFECTFUL)
    return Effect.IDEMPOTENT if has_key and effect is Effect.EFFECTFUL else effect


# Parameters ----------------------------------------------------------------------------------------------------------


def _merged(document: Document, shared: Any, own: Any) -> Iterable[Raw]:
    """Return the parameters of an operation: its own, and the ones of its path with other names or places."""
    found: dict[tuple[str, str], Raw] = {}
    for listed in (shared, own):
        if not isinstance(listed, list):
            raise Unusable("has parameters that are no list")
        for raw in listed:
            parameter = document.followed(raw)
            name, place = parameter.get("name"), parameter.get("in")
            if not isinstance(name, str) or not name or not isinstance(place, str):
                raise Unusable("has a parameter without a name or a place")
            found[name, place] = parameter
    order = ("path", "query", "header")
    return sorted(found.values(), key=lambda raw: order.index(raw["in"]) if raw["in"] in order else len(order))


class _Parameters:
    """Reads the parameters of one operation, after the ones of its path.

    Documents tell operations apart by a query in the path, or write their parameters there: ``?beta=true&page={page}``.
    """

    def __init__(self, document: Document, path: str, query: str) -> None:
        self.in_path: dict[str, Parameter] = {}
        self.others: list[Parameter] = []
        self.key_header: str | None = None
        self.schemas: dict[str, Any] = {}
        self.required: list[str] = []
        self._document = document
        self._template = set(re.findall(r"\{([^{}]*)\}", path))
        self._query = [part.partition("=")[::2] for part in query.split("&") if part]
        self._credentials = _credential_names(document)

    def read(self, raw: Raw) -> None:
        """Read a parameter; one that is not for plans is left out."""
        name, place = raw["name"], raw["in"]
        own = next((key for key, value in self._query if value == f"{{{name}}}"), None)
        if place == "path" and own is not None:
            raw = {**raw, "name": own, "in": "query", "style": "form"}
            name, place = own, "query"
        if place == "cookie" or (place == "path" and name not in self._template):
            return
        if place not in STYLES:
            raise Unusable(f"has a parameter in {shorten(repr(place), 40)}")
        if place == "header":
            if not _HEADER_NAME.fullmatch(name):
                raise Unusable("has a header whose name HTTP does not allow")
            if name.lower() == KEY_HEADER:
                self.key_header = name
                return
            if name.lower() in _NOT_FOR_PLANS or name.lower().startswith(_PREFIXES):
                return
        if (place, name.lower() if place == "header" else name) in self._credentials:
            return
        self._add(raw, name, cast(Place, place))

    def _add(self, raw: Raw, name: str, place: Place) -> None:
        argument = name if name not in self.schemas else f"{place}_{name}"
        if argument in self.schemas:
            raise Unusable(f"has two parameters {shorten(repr(argument), 60)}")
        schema, is_json = self._schema_of(raw)
        style, explode = style_of(raw, place)
        parameter = Parameter(
            argument, name, place, style, explode, allow_reserved=raw.get("allowReserved") is True, is_json=is_json
        )
        if place == "path":
            self.in_path[name] = parameter
        else:
            self.others.append(parameter)
            if place == "query":
                self._query = [part for part in self._query if part[0] != name]
        self.schemas[argument] = _described(schema, raw)
        if place == "path" or raw.get("required") is True:
            self.required.append(argument)

    def _schema_of(self, raw: Raw) -> tuple[Any, bool]:
        """Return the schema of a parameter, and whether it is written as JSON."""
        content = raw.get("content")
        if content is None:
            return raw.get("schema", {}), False
        if not isinstance(content, Mapping) or len(content) != 1:
            raise Unusable("has a parameter whose content is not of one media type")
        [(media_type, media)] = content.items()
        is_json = bool(JSON_TYPES.match(media_type))
        if not is_json and not media_type.startswith("text/"):
            raise Unusable(f"has a parameter of media type {shorten(media_type, 60)}")
        return self._document.followed(media).get("schema", {}), is_json

    @property
    def fixed_query(self) -> tuple[str, ...]:
        """The parts of the query in the path that are no parameters and no place of a credential.

        Raises:
            Unusable: One of them has a parameter that is not declared.
        """
        if missing := [value for key, value in self._query if "{" in value and ("query", key) not in self._credentials]:
            raise Unusable(f"does not declare the parameter {shorten(missing[0], 60)} of its path")
        return tuple(
            f"{quote(name, safe=_SENT)}={quote(value, safe=_SENT)}" if value else quote(name, safe=_SENT)
            for name, value in self._query
            if "{" not in value
        )

    def make_room(self, name: str) -> None:
        """Rename the parameter that has the name of the body."""
        if name not in self.schemas:
            return
        old = self.in_path.get(name) or next(each for each in self.others if each.argument == name)
        new = f"{old.place}_{name}"
        if new in self.schemas:
            raise Unusable(f"has two parameters {shorten(repr(new), 60)}")
        renamed = Parameter(new, old.name, old.place, old.style, old.explode, old.allow_reserved, old.is_json)
        self.in_path = {key: renamed if each is old else each for key, each in self.in_path.items()}
        self.others = [renamed if each is old else each for each in self.others]
        self.schemas = {new if key == name else key: part for key, part in self.schemas.items()}
        self.required = [new if each == name else each for each in self.required]

    def check_path(self, path: str) -> None:
        """Refuse a path with a parameter that is not declared."""
        if missing := self._template - self.in_path.keys():
            raise Unusable(f"does not declare the parameter {shorten(', '.join(sorted(missing)), 60)} of its path")
        if not path.startswith("/") or re.search(r"[{}]", re.sub(r"\{[^{}]*\}", "", path)):
            raise Unusable("has a path that is none")


def _described(schema: Any, raw: Raw) -> Any:
    """Return a schema with the description of the parameter, if it has none of its own."""
    description = raw.get("description")
    if not isinstance(schema, Mapping) or "description" in schema or not isinstance(description, str):
        return schema
    return {**schema, "description": description}


def _credential_names(document: Document) -> set[tuple[str, str]]:
    """Return the places and names of parameters that are credentials."""
    return {
        (str(scheme.get("in")), name.lower() if scheme.get("in") == "header" else name)
        for scheme in security_schemes(document).values()
        if scheme.get("type") == "apiKey" and isinstance(name := scheme.get("name"), str)
    }


def security_schemes(document: Document) -> dict[str, Raw]:
    """Return the security schemes of a document that can be read, by name."""
    components = document.content.get("components")
    schemes = components.get("securitySchemes") if isinstance(components, Mapping) else None
    found: dict[str, Raw] = {}
    for name, scheme in schemes.items() if isinstance(schemes, Mapping) else ():
        try:
            found[name] = document.followed(scheme)
        except Unusable:
            continue
    return found


# The body ------------------------------------------------------------------------------------------------------------


def _read_body(document: Document, raw: Any, reader: _Parameters) -> Body | None:
    """Read the body, and add its argument."""
    if raw is None:
        return None
    described = document.followed(raw)
    is_required = described.get("required") is True
    found = read_body(document, described)
    if found is None:
        if is_required:
            content = described.get("content")
            types = ", ".join(content) if isinstance(content, Mapping) else ""
            raise Unusable(f"has a body of {shorten(types or 'no media type', 80)}")
        return None
    body, schema = found
    reader.make_room(BODY)
    reader.schemas[BODY] = _described(schema, described)
    if is_required:
        reader.required.append(BODY)
    return body


# Answers -------------------------------------------------------------------------------------------------------------


def _answers(document: Document, responses: Raw) -> tuple[Any, str]:
    """Return the schema of the answers of success, with references into the document; and the types to ask for."""
    schemas: list[Any] = []
    types: dict[str, None] = {}
    for code, raw in responses.items():
        if not re.fullmatch(r"2(?:\d\d|XX)", str(code)):
            continue
        content = document.followed(raw).get("content")
        content = content if isinstance(content, Mapping) else {}
        types |= dict.fromkeys(content)
        found = [{"type": "null"}] if str(code) in ("204", "205") else list(_schemas_of(document, content))
        schemas += [schema for schema in found or [None] if schema not in schemas]
    json_types = [each for each in types if JSON_TYPES.match(each)]
    accept = ", ".join((json_types or list(types))[:5])
    is_plain = re.fullmatch(r"[\x20-\x7e]{1,400}", accept) is not None
    if not schemas or None in schemas:
        return None, accept if is_plain else "*/*"
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, accept if is_plain else "*/*"


def _schemas_of(document: Document, content: Raw) -> Iterator[Any]:
    for media_type, media in content.items():
        if JSON_TYPES.match(media_type) and "*" not in media_type:
            yield document.followed(media).get("schema")
        elif media_type.startswith("text/"):
            yield {"type": "string"}
        else:
            yield None
