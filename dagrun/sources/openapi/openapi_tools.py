"""`openapi_tools`: the operations of an HTTP service, as a toolbox."""

from __future__ import annotations

import fnmatch
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from dagrun.errors import ContractError, hint, shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.signature import Output, explain
from dagrun.kernel.model.tool import AnyTool, Toolbox
from dagrun.kernel.model.value import MAX_VALUE_BYTES, Stored, encode
from dagrun.sources.foreign_schema import read_schema
from dagrun.sources.network.guarded_transport import shared_transport
from dagrun.sources.network.network_rules import NetworkRules
from dagrun.sources.openapi.document import Document, Raw, Unusable, base_of, own_base, read_document
from dagrun.sources.openapi.operations import Operation, name_of, read_operation, tags_of
from dagrun.sources.openapi.service_calls import Auth, Credentials, OperationCall, Service
from dagrun.sources.schemas import fits_nothing, fitting_name, output_of_read, said_of, tool_of_schemas

MAX_TOOLS: Final = 40  # that a document may give without a word about which are wanted
_LOG: Final = logging.getLogger("dagrun.openapi")
_MOST_TAGS: Final = 30
_TIMEOUT: Final = 60.0


def openapi_tools(
    document: str | Path | Mapping[str, Any],
    *,
    base_url: str | None = None,
    auth: Auth | None = None,
    include: Iterable[str] | None = None,
    effects: Mapping[str, Effect | str] | None = None,
    prefix: str = "",
    network: NetworkRules | Mapping[str, Any] | None = None,
    check_answers: bool = True,
    errors: Literal["unknown", "clean"] = "unknown",
    **options: Any,
) -> ServiceTools:
    """Make a tool of each operation of an HTTP service that an OpenAPI document describes.

    A tool has the name of its operationId, or else of method and path. Parameters of path, query and headers are
    arguments by their names, the body is the argument ``body``; cookies and credentials are none. A file, in a form or
    as the whole body, is an `Artifact` or a text. What comes back is JSON, a text, or for anything else an `Artifact`;
    of 204, null.

    GET, HEAD and OPTIONS only read; PUT and DELETE are idempotent; POST and PATCH are effectful, unless the document
    declares an ``Idempotency-Key``, which gets the key of the step. ``x-dagrun-effect`` in the document says otherwise,
    and *effects* has the last word. An answer 4xx means that nothing has happened, but for 408 and 409; these, 5xx and
    a broken connection leave an effect in doubt.

    Overlapping calls share connections. ``async with tools:`` keeps them open between calls, until the block ends.

    Args:
        document: The path of a document of OpenAPI 3.0, 3.1 or 3.2, in JSON or YAML; or its content. Nothing that it
            refers to is fetched.
        base_url: The address of the service; `None` for the first server of the document.
        auth: A secret, which goes where the document's security scheme says; or secrets by the names of schemes; or a
            function, async or plain, that returns headers and is called for each request.
        include: The operations that are wanted: patterns of names, as for files (``repos_*``), or of tags
            (``tag:issues``). Without it, a document may have 40 operations.
        effects: Effects by the names of operations, or by patterns of names; a name comes before patterns.
        prefix: Text before every name: ``"crm."``.
        network: Where connections may go. Without it, public addresses alone, and the very address that *base_url*
            names, if that is a number or localhost. ``{"allow": ["10.0.0.0/8"]}`` names private ones.
        check_answers: Whether answers are held to the schemas of the document; if not, they may be anything.
        errors: ``clean``: an answer 408, 409 or 5xx means that nothing has happened; ``unknown``: after a call with an
            effect, it may have.
        options: Options of every tool; see `schema_tool`. The *timeout* is 60 seconds unless it is given, and answers
            are *untrusted* (others can write what a service returns) unless that is False.

    Examples:
        >>> tools = openapi_tools(
        ...     {
        ...         "openapi": "3.1.0",
        ...         "servers": [{"url": "https://api.example.com"}],
        ...         "paths": {"/pets/{id}": {"get": {"operationId": "pets/get", "parameters": [
        ...             {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}]}}},
        ...     }
        ... )
        >>> list(tools.values())
        [<Tool pets_get(id), read>]

    Raises:
        ContractError: The document cannot be read, has too many operations, or none that fits; or an option is invalid.
    """
    if isinstance(include, str):
        raise ContractError(f"include is a list of patterns: include=[{include!r}]")
    read = read_document(document)
    said = {name: _read_effect(name, effect) for name, effect in (effects or {}).items()}
    given = _Given(read, None if include is None else tuple(include), said, prefix, check_answers)
    address = base_of(read, base_url)
    rules = _rules_for(address, network, is_named=base_url is not None)
    service = Service(address, rules, Credentials(read, auth), errors == "clean")
    return ServiceTools(list(given.tools(service, {"timeout": _TIMEOUT, "untrusted": True, **options})), rules)


class ServiceTools(Toolbox):
    """The tools of a service; made by `openapi_tools`. In an ``async with`` block, its connections stay open.

    Args:
        tools: The tools.
        rules: Where connections may go.
    """

    def __init__(self, tools: list[AnyTool], rules: NetworkRules) -> None:
        super().__init__(tools)
        self._rules = rules
        self._open = AsyncExitStack()

    async def __aenter__(self) -> ServiceTools:
        """Keep connections open from now on."""
        await self._open.enter_async_context(shared_transport(self._rules))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close them."""
        await self._open.aclose()


@dataclass(frozen=True, slots=True)
class _Found:
    """An operation of the document, not yet read."""

    name: str
    method: str
    path: str
    item: Raw
    operation: Raw


class _Given:
    """The host's options for a document.

    Args:
        document: The document.
        include: Patterns of operations; `None` for all.
        effects: Effects by the names of operations.
        prefix: Text before every name.
        check_answers: Whether answers are held to schemas.
    """

    def __init__(
        self,
        document: Document,
        include: tuple[str, ...] | None,
        effects: dict[str, Effect],
        prefix: str,
        check_answers: bool,
    ) -> None:
        self._document = document
        self._include = include
        self._effects = effects
        self._prefix = prefix
        self._check_answers = check_answers

    def tools(self, service: Service, options: dict[str, Any]) -> Iterator[AnyTool]:
        """Yield the tools; operations that cannot be called are left out, and logged.

        Raises:
            ContractError: There is none, or one that is named cannot be called.
        """
        wanted = self._wanted()
        left_out: dict[str, str] = {}
        made = 0
        for found in wanted:
            try:
                yield self._tool(found, service, options)
                made += 1
            except (Unusable, ContractError) as error:
                if self._include is not None and found.name in self._include:
                    raise ContractError(f"{self._document.origin}: operation {found.name} {error}") from None
                left_out[found.name] = str(error)
        reasons = "; ".join(f"{name} {reason}" for name, reason in list(left_out.items())[:5])
        if not made:
            why = f": {reasons}" if reasons else ""
            raise ContractError(f"{self._document.origin}: it has no operation that can be called{why}")
        if left_out:
            _LOG.warning("%d of %d operations are left out: %s", len(left_out), len(wanted), shorten(reasons, 1_000))

    def _tool(self, found: _Found, service: Service, options: dict[str, Any]) -> AnyTool:
        operation = read_operation(self._document, found.method, found.path, found.item, found.operation)
        described = (found.operation, self._document.followed(found.operation), found.item)
        with_servers = next((part for part in described if part.get("servers")), found.item)
        base = own_base(self._document, with_servers, service.base_url)
        service = service if base == service.base_url else replace(service, base_url=base)
        name = fitting_name(f"{self._prefix}{found.name}")
        effect = said_of(self._effects, found.name) or operation.effect
        content = self._document.content
        what = f"{name}: the arguments"
        arguments = read_schema(operation.arguments, what, content, without="readOnly", is_late=True)
        is_free = operation.answers is None or not self._check_answers
        return tool_of_schemas(
            name,
            OperationCall(service, operation, name, effect).make,
            arguments,
            Output({}, encode) if is_free else LateOutput(lambda: self._output(name, operation)),
            effect=effect,
            description=operation.description or f"{operation.method} {operation.path}",
            options=dict(options),
        )

    def _output(self, name: str, operation: Operation) -> Output:
        """Return the output contract of an operation; any value, if its schema cannot be used."""
        try:
            content = self._document.content
            read = read_schema(operation.answers, f"{name}: the output", content, without="writeOnly", is_late=True)
            return output_of_read(name, read)
        except ContractError as error:
            _LOG.warning("the answers of %s are not checked: %s", name, error)
            return Output({}, encode)

    def _wanted(self) -> list[_Found]:
        """Return the operations that the host wants, each with a name of its own."""
        all_found = list(_named(self._document))
        names = [found.name for found in all_found]
        if unknown := fits_nothing(self._effects, names):
            close = hint(unknown[0], names)
            raise ContractError(f"effects names {shorten(', '.join(unknown))}, which is no operation{close}")
        if self._include is not None:
            return self._included(all_found)
        if len(all_found) > MAX_TOOLS:
            raise ContractError(_too_many(self._document.origin, all_found))
        return all_found

    def _included(self, all_found: list[_Found]) -> list[_Found]:
        chosen: set[str] = set()
        for pattern in self._include or ():
            fitting = [found.name for found in all_found if _fits(found, pattern)]
            if not fitting:
                tags = [f"tag:{tag}" for found in all_found for tag in tags_of(found.operation)]
                known = dict.fromkeys(tags) if pattern.startswith("tag:") else [found.name for found in all_found]
                raise ContractError(f"include {shorten(pattern, 100)} fits no operation{hint(pattern, known)}")
            chosen.update(fitting)
        return [found for found in all_found if found.name in chosen]


def _named(document: Document) -> Iterator[_Found]:
    """Yield the operations; where several have one name, each gets a hash of its method and path."""
    found = [(name_of(method, path, operation), method, path, item, operation)
             for method, path, item, operation in document.operations()]  # fmt: skip
    counts = Counter(name for name, *_ in found)
    for name, method, path, item, operation in found:
        own = name
        if counts[name] > 1:
            own = f"{name}_{sha256(f'{method} {path}'.encode(errors='replace')).hexdigest()[:8]}"
        yield _Found(own, method, path, item, operation)


def _fits(found: _Found, pattern: str) -> bool:
    kind, colon, rest = pattern.partition(":")
    if colon and kind == "tag":
        return any(fnmatch.fnmatchcase(tag, rest) for tag in tags_of(found.operation))
    given = found.operation.get("operationId")
    return fnmatch.fnmatchcase(found.name, pattern) or given == pattern


def _too_many(origin: str, found: list[_Found]) -> str:
    counts = Counter(tag for each in found for tag in tags_of(each.operation) or ("(no tag)",))
    shown = [f"{shorten(tag, 40)} {count}" for tag, count in counts.most_common(_MOST_TAGS)]
    more = f", and {len(counts) - _MOST_TAGS} more" if len(counts) > _MOST_TAGS else ""
    return (
        f"{origin}: it has {len(found)} operations, more than {MAX_TOOLS}; say which are wanted, by include (on the "
        f"command line --include): tag:NAME, or NAMES_*. Its tags, with their counts: {', '.join(shown)}{more}"
    )


def _read_effect(name: str, effect: Effect | str) -> Effect:
    try:
        return Effect(effect)
    except ValueError:
        raise ContractError(f"{name}: effect is one of {', '.join(Effect)}, not {effect!r}") from None


def _rules_for(address: str, network: NetworkRules | Mapping[str, Any] | None, *, is_named: bool) -> NetworkRules:
    """Return rules with the port of the service; a number or localhost that the host has written itself is allowed."""
    try:
        given = NetworkRules.model_validate(network) if isinstance(network, Mapping) else network or NetworkRules()
    except ValidationError as error:
        raise ContractError(f"network: {explain(error)}") from None
    parts = urlsplit(address)
    host = str(parts.hostname)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    rules = given.model_copy(update={"ports": (port,)})
    if is_named and (host == "localhost" or _is_number(host)):
        return rules.allowing(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return rules


def _is_number(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class LateOutput(Output):
    """An output contract whose schema is read on first use: documents have hundreds, and few are needed.

    Args:
        make: Makes the contract.
    """

    __slots__ = ("_made", "_make")
    _made: Output | None
    _make: Callable[[], Output]

    def __init__(self, make: Callable[[], Output]) -> None:
        known = {"spills": False, "hint": Any, "hold": None, "has_frames": False, "has_objects": False}
        late = {"is_direct": True, "encode": self._encode, "_make": make, "_made": None}
        for name, value in (known | late).items():
            object.__setattr__(self, name, value)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the stored value; empty if any value is allowed."""
        return self._whole().schema

    def _encode(self, value: object, limit: int = MAX_VALUE_BYTES) -> Stored:
        return self._whole().encode(value, limit)

    def _whole(self) -> Output:
        made = self._made
        if made is None:
            made = self._make()
            object.__setattr__(self, "_made", made)
        return made
