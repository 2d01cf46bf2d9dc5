"""Bodies of requests: their description in a document, and how they are written.

A document often offers several forms; the first of these is taken: JSON, a form with files, a form, text, one file. A
file is an `Artifact` of the run, or a text. A field of a form is a file if its schema says so (``format: binary``, or a
``contentMediaType`` alone), or if its encoding names a media type that is neither JSON nor text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias, cast

import anyio.to_thread
from pydantic import ValidationError

from dagrun.errors import ToolError, shorten
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.value import SHA256_PATTERN, Artifact
from dagrun.sources.openapi.document import Document, Raw, Unusable
from dagrun.sources.openapi.wire_forms import STYLES, Parameter, Place, form_text, part_text

BODY: Final = "body"
JSON_TYPES: Final = re.compile(r"(?:application|text)/(?:[a-z0-9.+_-]+\+)?json\b|\*/\*|application/\*", re.IGNORECASE)
MAX_SENT: Final = 64 << 20  # bytes of one body, which is put together in memory

_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+(?:;[\x20-\x7e]*)?", re.IGNORECASE)
_A_FILE: Final = "A file: what a step has returned as one, or a text."
_MOST_COMPOSED: Final = 8  # levels of allOf
_ESCAPES: Final = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})

# As the schema of a parameter of the type `Artifact | str`; outputs that are too large become artifacts by it, too.
FILE: Final[Mapping[str, Any]] = {
    "anyOf": [
        {
            "type": "object",
            "title": "Artifact",
            "properties": {
                "sha256": {"type": "string", "pattern": SHA256_PATTERN},
                "media_type": {"type": "string"},
                "name": {"type": "string"},
                "size": {"type": "integer"},
            },
            "required": ["sha256"],
            "additionalProperties": False,
        },
        {"type": "string"},
    ]
}

BodyForm: TypeAlias = Literal["json", "form", "multipart", "text", "file"]


@dataclass(frozen=True, slots=True)
class Body:
    """The body of requests.

    Attributes:
        form: How it is written.
        media_type: What the header says; of a file, ``image/*`` stands for the type of the artifact.
        encodings: How fields of a form are written that the document says something about.
        files: The fields of a form with files that are files, or lists of them.
        part_types: The media types of fields of a form with files, as far as the document says them.
    """

    form: BodyForm
    media_type: str
    encodings: Mapping[str, Parameter] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    part_types: Mapping[str, str] = field(default_factory=dict)


# Read ----------------------------------------------------------------------------------------------------------------


def read_body(document: Document, described: Raw) -> tuple[Body, Any] | None:
    """Return the body of an operation, and the JSON Schema of its argument; `None` for a body of no type that is known.

    Raises:
        Unusable: A part of it cannot be used.
    """
    content = described.get("content")
    types = list(content) if isinstance(content, Mapping) else []
    for form, media_type in _forms(types):
        media = document.followed(cast(Raw, content)[media_type])
        schema = media.get("schema", {})
        match form:
            case "json":
                return Body(form, "application/json" if "*" in media_type else media_type), schema
            case "form":
                return Body(form, media_type, _encodings(media.get("encoding"))), schema
            case "multipart":
                part_types = _part_types(media.get("encoding"))
                schema, files = _with_files(document, schema, part_types, 0)
                if files or not any(other == "form" for other, _ in _forms(types)):
                    return Body(form, media_type, files=frozenset(files), part_types=part_types), schema
            case "text":
                return Body(form, media_type), {"type": "string"}
            case "file":
                return Body(form, media_type), _file_schema(described, [])
    return None


def _forms(types: list[str]) -> Iterator[tuple[BodyForm, str]]:
    yield from (("json", each) for each in types if JSON_TYPES.match(each))
    yield from (("multipart", each) for each in types if each.lower().startswith(_MULTIPART))
    yield from (("form", each) for each in types if each.lower().startswith(_FORM))
    yield from (("text", each) for each in types if each.lower().startswith("text/"))
    yield from (
        ("file", each)
        for each in types
        if _MEDIA_TYPE.fullmatch(each.replace("/*", "/any")) and not each.lower().startswith("multipart/")
    )


def style_of(raw: Raw, place: Place) -> tuple[str, bool]:
    """Return the style of a parameter or a field, and whether it is exploded.

    Raises:
        Unusable: The style is not one of the place.
    """
    style = raw.get("style", STYLES[place][0])
    if style not in STYLES[place]:
        raise Unusable(f"has a parameter of style {shorten(repr(style), 40)} in {place}")
    explode = raw.get("explode")
    return style, explode if isinstance(explode, bool) else style == "form"


def _encodings(raw: Any) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for name, encoding in raw.items() if isinstance(raw, Mapping) else ():
        if not isinstance(encoding, Mapping):
            continue
        is_json = bool(JSON_TYPES.match(str(encoding.get("contentType", "")))) and "style" not in encoding
        if is_json or encoding.keys() & {"style", "explode", "allowReserved"}:
            style, explode = style_of(encoding, "query")
            reserved = encoding.get("allowReserved") is True
            found[name] = Parameter(name, name, "query", style, explode, reserved, is_json)
    return found


def _part_types(raw: Any) -> dict[str, str]:
    """Return the media type of each field, if the document names one alone, without a star."""
    found: dict[str, str] = {}
    for name, encoding in raw.items() if isinstance(raw, Mapping) else ():
        said = encoding.get("contentType") if isinstance(encoding, Mapping) else None
        if isinstance(said, str) and said.strip():
            found[name] = said.strip() if "," not in said and _MEDIA_TYPE.fullmatch(said.strip()) else "*/*"
    return found


def _with_files(
    document: Document, schema: Any, part_types: Mapping[str, str], depth: int
) -> tuple[dict[str, Any], set[str]]:
    """Return a schema whose fields that are files take files, and the names of these fields."""
    read = dict(document.followed(schema if schema is not True else {}))
    files: set[str] = set()
    if isinstance(properties := read.get("properties"), Mapping):
        found = {name: _as_file(document, part, part_types.get(name, "")) for name, part in properties.items()}
        files = {name for name, part in found.items() if part is not None}
        read["properties"] = {name: found[name] or part for name, part in properties.items()}
    if isinstance(parts := read.get("allOf"), list) and depth < _MOST_COMPOSED:
        made = [_with_files(document, part, part_types, depth + 1) for part in parts]
        read["allOf"] = [part for part, _ in made]
        files |= {name for _, names in made for name in names}
    if "properties" not in read and "allOf" not in read and read.get("type", "object") != "object":
        raise Unusable("has a form with files that is no object")
    return read, files


def _as_file(document: Document, schema: Any, part_type: str) -> dict[str, Any] | None:
    """Return the schema of a field that is a file, or a list of files, or may be one; `None` for any other."""
    if not isinstance(schema, Mapping):
        return None
    read = document.followed(schema)
    for name in ("anyOf", "oneOf"):
        branches = read.get(name)
        made = [_as_file(document, part, part_type) for part in branches] if isinstance(branches, list) else []
        if branches and any(part is not None for part in made):
            return {**read, name: [one or part for one, part in zip(made, branches, strict=True)]}
    if read.get("type") == "array" and (items := _as_file(document, read.get("items"), part_type)) is not None:
        return {**read, "items": items}
    types = read.get("type", "string")
    types = {types} if isinstance(types, str) else set(types) if isinstance(types, list) else set()
    is_raw = "contentMediaType" in read and "contentEncoding" not in read
    is_other = bool(part_type) and not JSON_TYPES.match(part_type.replace("*/*", "x/x")) and part_type[:5] != "text/"
    if "enum" in read or not types <= {"string", "null"} or not (read.get("format") == "binary" or is_raw or is_other):
        return None
    null = [{"type": "null"}] if "null" in types or read.get("nullable") is True else []
    return _file_schema(read, null)


def _file_schema(described: Raw, also: list[Any]) -> dict[str, Any]:
    words = described.get("description")
    return {"anyOf": [*FILE["anyOf"], *also], "description": words if isinstance(words, str) else _A_FILE}


# Write ---------------------------------------------------------------------------------------------------------------


async def written(body: Body, value: Any, context: ToolContext) -> tuple[bytes, str]:
    """Return the body of a request, and its media type.

    Raises:
        ToolError: The value does not fit, a file of it is missing, or it is too large.
    """
    match body.form:
        case "json":
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            return text.encode(), body.media_type
        case "text":
            return str(value).encode(), body.media_type
        case "file":
            # In a thread: an artifact is a file.
            content, named, _ = await anyio.to_thread.run_sync(lambda: _file(value, BODY, context))
            if "*" not in body.media_type:
                return content, body.media_type
            if not named:
                raise ToolError(f"{BODY} is a text, and {body.media_type} is wanted: an artifact has a media type")
            return content, _media_type(named)
        case _ if not isinstance(value, dict):
            raise ToolError(f"{BODY} is a form, so it must be an object")
        case "form":
            return form_text(value, body.encodings).encode(), body.media_type
        case "multipart":
            return await anyio.to_thread.run_sync(lambda: _multipart(body, value, context))


def _file(value: Any, name: str, context: ToolContext) -> tuple[bytes, str, str]:
    """Return the content of a file, its media type and its name; the last two are empty for a text."""
    if isinstance(value, str):
        return value.encode(), "", ""
    try:
        artifact = Artifact.model_validate(value)
        path = context.artifacts.path(artifact)
        _must_fit(path.stat().st_size)
        return path.read_bytes(), artifact.media_type, artifact.name
    except ValidationError:
        raise ToolError(f"{name} is a file: pass an artifact of this run, or a text") from None
    except OSError as error:
        raise ToolError(f"{name}: the file cannot be read: {error.strerror or error}") from error


def _must_fit(size: int) -> None:
    if size > MAX_SENT:
        raise ToolError(f"the request would have {size} bytes, the ceiling is {MAX_SENT}")


def _multipart(body: Body, fields: Mapping[str, Any], context: ToolContext) -> tuple[bytes, str]:
    """Return the parts of a form. The boundary is a hash of all of them, so no file can hold it."""
    parts: list[bytes] = []
    size = 0
    for name, value in fields.items():
        is_whole = not isinstance(value, list) or JSON_TYPES.match(_said(body, name))
        for one in [value] if is_whole else value:
            if one is not None:
                part = _part(body, name, one, context)
                size += sum(map(len, part))
                _must_fit(size)
                parts.append(b"\r\n".join(part))
    boundary = sha256(b"\0".join(parts)).hexdigest()
    line = f"--{boundary}".encode()
    sent = b"".join(line + b"\r\n" + part + b"\r\n" for part in parts) + line + b"--\r\n"
    return sent, f"{_MULTIPART}; boundary={boundary}"


def _part(body: Body, name: str, value: Any, context: ToolContext) -> tuple[bytes, ...]:
    """Return the header lines of a part, an empty line, and its content."""
    said = _said(body, name)
    shown = name.translate(_ESCAPES)
    if name in body.files:
        content, media_type, file_name = _file(value, f"{BODY}.{name}", context)
        wanted = said or media_type or "text/plain; charset=utf-8"
        file = (file_name or name).translate(_ESCAPES)
        where = f'Content-Disposition: form-data; name="{shown}"; filename="{file}"'
    else:
        is_json = isinstance(value, dict | list) or bool(said and JSON_TYPES.match(said))
        content = (json.dumps(value, ensure_ascii=False) if is_json else part_text(value)).encode()
        wanted = said or ("application/json" if is_json else "")
        where = f'Content-Disposition: form-data; name="{shown}"'
    return where.encode(), *([f"Content-Type: {_media_type(wanted)}".encode()] if wanted else []), b"", content


def _said(body: Body, name: str) -> str:
    return body.part_types.get(name, "").replace("*/*", "")


def _media_type(text: str) -> str:
    """Return a valid media type; an artifact may contain any text there, and a line break would add a header."""
    return text if _MEDIA_TYPE.fullmatch(text) else "application/octet-stream"
