"""Read an OpenAPI document, and follow its references inside it. Nothing is fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from dagrun.errors import ContractError, PlanRefused, shorten
from dagrun.plans.yaml_reader import parse_yaml
from dagrun.sources.foreign_schema import part_at

MAX_BYTES: Final = 64 << 20
_MAX_YAML_DEPTH: Final = 100
_MAX_HOPS: Final = 20
_VERSION: Final = re.compile(r"3\.[012](?:\.|$)")
_METHODS: Final = ("get", "head", "options", "query", "put", "delete", "post", "patch")
# Printable ASCII without quotes, braces, query and fragment, and without ``..``, which leads up from a path.
_PLAIN_URL: Final = re.compile(r"(?!.*/(?:\.|%2[eE]){1,2}(?:/|$))[!$-;=@-\[\]-z|~]+")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9a-f:.]{2,45}", re.IGNORECASE)

Raw = Mapping[str, Any]


class Unusable(ValueError):
    """A part of the document cannot be used; the message has the reason."""


class Document:
    """An OpenAPI document.

    Args:
        content: The document as plain JSON.
        origin: Where it comes from, for people.

    Raises:
        ContractError: It is no document of OpenAPI 3.
    """

    def __init__(self, content: Raw, origin: str) -> None:
        self.content = content
        self.origin = origin
        if "swagger" in content:
            raise ContractError(f"{origin}: it is of Swagger 2.0; convert it to OpenAPI 3")
        version = content.get("openapi")
        if not isinstance(version, str) or not _VERSION.match(version):
            found = "it says no version" if version is None else f"its version is {shorten(repr(version), 40)}"
            raise ContractError(f"{origin}: {found}; documents of OpenAPI 3.0, 3.1 and 3.2 can be read")
        if not isinstance(content.get("paths", {}), Mapping):
            raise ContractError(f"{origin}: its paths are no object")

    def followed(self, part: Any) -> Raw:
        """Return an object of the document, with references followed.

        Raises:
            Unusable: It is no object, or a reference leads elsewhere, nowhere, or in a circle.
        """
        for _ in range(_MAX_HOPS):
            if not isinstance(part, Mapping):
                raise Unusable("has a part that is no object")
            target = part.get("$ref")
            if target is None:
                return part
            part = self._at(target)
        raise Unusable("refers to itself")

    def _at(self, target: Any) -> Any:
        if not isinstance(target, str) or not target.startswith("#/"):
            raise Unusable(f"refers to {shorten(repr(target), 60)}, which is elsewhere, and nothing is fetched")
        try:
            return part_at(self.content, target)
        except LookupError:
            raise Unusable(f"refers to {shorten(repr(target), 60)}, which is not in the document") from None

    def operations(self) -> Iterator[tuple[str, str, Raw, Raw]]:
        """Yield the method, the path, the path item and the operation of each operation.

        An operation that is no object, or a path item that leads elsewhere, is yielded as an empty one.
        """
        for path, item in self.content.get("paths", {}).items():
            if not isinstance(item, Mapping) or str(path).startswith("x-"):
                continue
            try:
                merged = {**self.followed(item), **{key: part for key, part in item.items() if key != "$ref"}}
            except Unusable:
                merged = {"get": item}  # whose reference is found faulty again when the operation is read
            more = merged.get("additionalOperations")
            for method in _METHODS:
                if isinstance(operation := merged.get(method), Mapping):
                    yield method.upper(), str(path), merged, operation
            for method, operation in more.items() if isinstance(more, Mapping) else ():
                if isinstance(operation, Mapping):
                    yield str(method), str(path), merged, operation


def read_document(source: str | Path | Raw) -> Document:
    """Read a document.

    Args:
        source: The path of a file of JSON or YAML; or the content of one.

    Raises:
        ContractError: The file cannot be read, or is no document of OpenAPI 3.
    """
    if isinstance(source, Mapping):
        return Document(source, "the OpenAPI document")
    origin = shorten(str(source), 200)
    if isinstance(source, str) and "://" in source:
        raise ContractError(f"{origin}: nothing is fetched; download the document, and give its path")
    path = Path(source).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ContractError(f"{origin}: it cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ContractError(f"{origin}: it is larger than the ceiling of {MAX_BYTES} bytes")
    content = _parsed(data, origin, is_yaml=path.suffix.lower() in (".yaml", ".yml"))
    if not isinstance(content, Mapping):
        raise ContractError(f"{origin}: it is no object")
    return Document(content, origin)


def _parsed(data: bytes, origin: str, *, is_yaml: bool) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ContractError(f"{origin}: byte {error.start} is not UTF-8") from None
    if is_yaml:
        try:
            content, problems = parse_yaml(text, _MAX_YAML_DEPTH, is_plan=False)
        except PlanRefused as refused:
            content, problems = None, list(refused.problems)
        if problems:
            said = problems[0]
            raise ContractError(f"{origin}: {said.facts['reason'] if said.code == 'DR004' else said.sentence}")
        return content
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        advice = "; a document in YAML is called .yaml" if text.lstrip()[:7] == "openapi" else ""
        raise ContractError(f"{origin}: it is no JSON: {shorten(str(error))}{advice}") from None


# The address ---------------------------------------------------------------------------------------------------------


def base_of(document: Document, base_url: str | None) -> str:
    """Return the address of the service: the host's, or else the first server of the document.

    Raises:
        ContractError: There is none, or it cannot be called.
    """
    url = base_url if base_url is not None else next(_server_urls(document.content), "")
    if not url:
        raise ContractError(
            f"{document.origin}: it names no server; give base_url (on the command line --openapi-url), such as 'https://…'"
        )
    what = "base_url" if base_url is not None else f"{document.origin}: its server"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ContractError(f"{what} is {shorten(repr(url), 100)}, which is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ContractError(f"{what} is {shorten(repr(url), 100)}; give base_url='https://…'")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ContractError(f"{what} may have a host, a port and a path, and no user, query or fragment")
    if not _HOST.fullmatch(parts.hostname) or port == 0 or any(c <= " " or c in "\x7f\\{}" for c in url):
        raise ContractError(f"{what} is {shorten(repr(url), 100)}, which names no host that can be called")
    return url.rstrip("/")


def own_base(document: Document, described: Raw, base_url: str) -> str:
    """Return the address of an operation, or of a path, that may name servers of its own.

    The host has named *base_url* alone, so no other origin is called, and no path outside of the prefix that *base_url*
    has before the document's own path: other paths of a gateway are other services. A server that is also the first one
    of the document stands for *base_url*.

    Raises:
        Unusable: Its servers are elsewhere, or no URLs.
    """
    if not (urls := list(_server_urls(described))):
        return base_url
    root = next(_server_urls(document.content), "").rstrip("/") or "/"
    # The home of the document: what relative addresses start from.
    home = f"{base_url.removesuffix(root) if re.match('/[^/]', root) else base_url}/"
    try:
        own = [urljoin(home, url).rstrip("/") for url in urls]
        first = urljoin(home, root).rstrip("/")
        prefix = base_url.removesuffix(f"/{urlsplit(root).path.strip('/')}")
    except ValueError:
        raise Unusable("has a server that is no URL") from None
    if base_url in own or first.partition(":")[2] in (url.partition(":")[2] for url in own):
        return base_url
    origin = urlsplit(base_url)[:2]
    for url in own:
        is_below = urlsplit(url)[:2] == origin and f"{url}/".startswith(f"{prefix}/")
        if is_below and _PLAIN_URL.fullmatch(url):
            return url
    raise Unusable(f"has a server of its own: make a tool of it apart, with base_url={shorten(own[0], 100)!r}")


def _server_urls(described: Raw) -> Iterator[str]:
    """Yield the addresses of servers, with the defaults of their variables."""
    servers = described.get("servers")
    for server in servers if isinstance(servers, list) else ():
        url = server.get("url") if isinstance(server, Mapping) else None
        if not isinstance(url, str):
            continue
        variables = server.get("variables")
        for name, variable in variables.items() if isinstance(variables, Mapping) else ():
            if isinstance(variable, Mapping):
                url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
        yield url
