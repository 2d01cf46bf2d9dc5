"""Call an operation of an HTTP service, and derive the state of an effect from its answer.

| answer | without an effect | with an effect |
| --- | --- | --- |
| 2xx | the output | the output |
| 408, 409, 5xx, a connection that broke | failed; 408, 5xx and the connection are tried again | in doubt |
| 429 | tried again, after the time that the service says | the same: nothing has happened |
| other 4xx; no connection | failed | failed: nothing has happened |
| a redirect within the service | followed, for GET and HEAD; 307 and 308 always | |
| another redirect | failed | 307, 308: nothing has happened; others: in doubt |

The address is the host's. No parameter and no redirect leads to another scheme, host or port.

Credentials come from the host alone, and are added to each request where the document requires them. A secret goes to
the place that a security scheme of the document names: a header or a parameter of the query. Flows in which tokens are
fetched and renewed are the host's: it gives a function that returns headers.
"""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote, urljoin, urlsplit

import anyio
import httpx
from pydantic_core import from_json

from dagrun._version import __version__
from dagrun.errors import ContractError, ToolError, first_lines, shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.secrets import AnySecret, Secrets
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.sources.network.guarded_transport import CLOSE_SECONDS, ServerAnswer, read_answer, shared_transport
from dagrun.sources.network.network_rules import NetworkRules
from dagrun.sources.openapi.bodies import BODY, written
from dagrun.sources.openapi.document import Document, Raw
from dagrun.sources.openapi.operations import Operation, security_schemes
from dagrun.sources.openapi.wire_forms import Parameter, filled_path, header_text, query_parts, target_of

Headers: TypeAlias = Mapping[str, str]
Auth: TypeAlias = AnySecret | Secrets | Mapping[str, AnySecret] | Callable[[], Headers | Awaitable[Headers]]

ANY_SCHEME: Final = "auth"  # the name of a secret that is for whatever scheme the document has
_BEARER: Final[Raw] = {"type": "http", "scheme": "bearer"}
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True)
class Proof:
    """The additions to one request.

    Attributes:
        headers: Headers by name.
        query: Parts ``name=value`` of the query, encoded.
    """

    headers: Headers
    query: tuple[str, ...] = ()


class Credentials:
    """The credentials for one service.

    Args:
        document: Its document, with the security schemes.
        auth: A secret; or secrets by the names of the schemes; or a function that returns headers; or nothing.

    Raises:
        ContractError: A secret cannot be used, or no scheme of the document takes one.
    """

    def __init__(self, document: Document, auth: Auth | None) -> None:
        self._schemes = security_schemes(document)
        self._function = auth if callable(auth) else None
        self._is_for_any = not isinstance(auth, Mapping) or (isinstance(auth, Secrets) and ANY_SCHEME in auth)
        if auth is None or self._function is not None:
            self.secrets = Secrets()
        elif isinstance(auth, Mapping):
            if not self._is_for_any and (unknown := auth.keys() - self._schemes.keys()):
                known = ", ".join(self._schemes) or "none"
                raise ContractError(f"auth names {shorten(', '.join(unknown))}; the document has the schemes: {known}")
            self.secrets = auth if isinstance(auth, Secrets) else Secrets(auth)
        else:
            self.secrets = Secrets({ANY_SCHEME: cast(AnySecret, auth)})

    async def proof_for(self, operation: Operation, tool: str) -> Proof:
        """Return the additions to a request.

        Args:
            operation: The operation that is called.
            tool: The name of the tool, which a secret may be kept from.

        Raises:
            ToolError: The function of the host failed, or a value fits into no header. Nothing was sent.
        """
        needs = operation.security
        if needs == []:  # said in so many words: no credentials
            return Proof({})
        if self._function is not None:
            return _checked(Proof(await self._from_host()))
        return _checked(self._of_schemes(needs, tool)) if self.secrets else Proof({})

    async def _from_host(self) -> Headers:
        assert self._function is not None
        try:
            made = self._function()
            headers: Any = await made if inspect.isawaitable(made) else made
        except ToolError:
            raise
        except Exception as error:  # before anything was sent, so nothing has happened
            text = f"the function auth failed: {type(error).__name__}: {shorten(str(error))}"
            raise ToolError(text, retryable=isinstance(error, OSError)) from error
        texts = (*headers, *headers.values()) if isinstance(headers, Mapping) else (None,)
        if not all(isinstance(text, str) for text in texts):
            raise ToolError(f"the function auth must return headers by name, and returned a {type(headers).__name__}")
        return cast(Headers, headers)

    def _of_schemes(self, needs: Any, tool: str) -> Proof:
        """Fill in the first alternative of the security requirements that the secrets are enough for."""
        if needs is None:
            return self._filled([_BEARER], [ANY_SCHEME], tool) if self._is_for_any else Proof({})
        for alternative in needs if isinstance(needs, list) else ():
            names = list(alternative) if isinstance(alternative, Mapping) else []
            schemes = [self._schemes.get(name) for name in names]
            keys = [ANY_SCHEME] * len(names) if self._is_for_any else names
            may_have = all(self.secrets.may_have(tool, key) for key in keys)
            is_filled = all(scheme is not None and _takes_secret(scheme) for scheme in schemes)
            if names and may_have and is_filled and not (self._is_for_any and len(names) > 1):
                return self._filled(cast(list[Raw], schemes), keys, tool)
        return Proof({})

    def _filled(self, schemes: list[Raw], keys: list[str], tool: str) -> Proof:
        headers: dict[str, str] = {}
        query: list[str] = []
        for scheme, key in zip(schemes, keys, strict=True):
            if not self.secrets.may_have(tool, key):
                continue
            try:
                value = self.secrets.reveal(tool, key).get_secret_value()
            except LookupError as error:
                raise ToolError(f"the secret for {key} has no value here", permission=True) from error
            name = str(scheme.get("name", ""))
            match scheme.get("type"), scheme.get("in"):
                case "apiKey", "query":
                    query.append(f"{quote(name, safe='')}={quote(value, safe='')}")
                case "apiKey", "cookie":
                    headers["cookie"] = f"{name}={quote(value, safe='')}"
                case "apiKey", _:
                    headers[name] = value
                case "http", _ if str(scheme.get("scheme")).lower() == "basic":
                    headers["authorization"] = f"Basic {base64.b64encode(value.encode()).decode()}"
                case _:
                    headers["authorization"] = f"Bearer {value}"
        return Proof(headers, tuple(query))


def _checked(proof: Proof) -> Proof:
    """Return a proof if HTTP allows its headers. The error shows none: the libraries below would show the secret."""
    for name, value in proof.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ToolError(f"the credentials for {shorten(name, 60)} have a character that no header may have")
    return proof


def _takes_secret(scheme: Raw) -> bool:
    """Whether one secret is all that a scheme needs."""
    match scheme.get("type"):
        case "apiKey":
            return isinstance(scheme.get("name"), str) and scheme.get("in") in ("header", "query", "cookie")
        case "http":
            return str(scheme.get("scheme")).lower() in ("bearer", "basic")
        case kind:
            return kind in ("oauth2", "openIdConnect")


_AGENT: Final = f"dagrun/{__version__}"
_FOLLOWED: Final = frozenset((301, 302, 303, 307, 308))
_SAME_METHOD: Final = frozenset((307, 308))  # the service has done nothing, and wants the same request elsewhere
_IN_DOUBT: Final = frozenset((408, 409))
_MOST_ERROR_BYTES: Final = 64 << 10
_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class ServiceError(Exception):
    """A service has answered so that a call with an effect may have taken it.

    Attributes:
        status_code: The status of the answer.
        headers: Its headers.
    """

    def __init__(self, message: str, status_code: int, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Service:
    """One service.

    Attributes:
        base_url: Its address, without a slash at the end.
        rules: Where connections may go.
        credentials: What proves who is calling.
        is_clean: Whether an answer that is an error means that nothing has happened.
    """

    base_url: str
    rules: NetworkRules
    credentials: Credentials
    is_clean: bool = False

    @property
    def host(self) -> str:
        """The host, for messages."""
        return str(urlsplit(self.base_url).hostname)


class OperationCall:
    """Calls one operation.

    Args:
        service: The service.
        operation: The operation.
        tool: The name of the tool.
        effect: What a call does to the world.
    """

    def __init__(self, service: Service, operation: Operation, tool: str, effect: Effect) -> None:
        self._service = service
        self._operation = operation
        self._tool = tool
        self._has_effect = not effect.is_free

    async def make(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Make the call, and return its output.

        Raises:
            ToolError: It failed, and nothing has happened.
            ServiceError: It failed, and an effect may have taken place.
            ConnectionError: The service cannot be reached, or the connection was lost.
        """
        operation, service = self._operation, self._service
        path = filled_path(operation.path, operation.path_parameters, arguments)
        query, headers = _parts_of(operation.others, arguments)
        content, media_type = None, ""
        if operation.body is not None and BODY in arguments:
            content, media_type = await written(operation.body, arguments[BODY], context)
        proof = await service.credentials.proof_for(operation, self._tool)
        proved = {name.lower(): value for name, value in proof.headers.items()}
        headers = self._headers(media_type, context) | headers | proved
        url = service.base_url + target_of(path, [*operation.query, *query, *proof.query])
        async with shared_transport(service.rules) as transport:
            response = await self._answered(transport, url, headers, content)
            try:
                return await self._output(response, context)
            finally:
                await _close(response)

    def _headers(self, media_type: str, context: ToolContext) -> dict[str, str]:
        operation = self._operation
        made = {"user-agent": _AGENT, "accept": operation.accept or "*/*", "accept-encoding": "identity"}
        if media_type:
            made["content-type"] = media_type
        if operation.key_header is not None:
            made[operation.key_header] = context.idempotency_key
        return made

    async def _answered(
        self, transport: httpx.AsyncBaseTransport, url: str, headers: dict[str, str], content: bytes | None
    ) -> httpx.Response:
        """Send the request, and again wherever the service redirects within itself."""
        method = self._operation.method
        for _ in range(self._service.rules.max_redirects + 1):
            response = await self._sent(transport, httpx.Request(method, _url(url), headers=headers, content=content))
            status = response.status_code
            location = response.headers.get("location")
            if status not in _FOLLOWED or location is None:
                return response
            await _close(response)
            is_followed = status in _SAME_METHOD or method in ("GET", "HEAD")
            target = urljoin(url, quote(location, safe=_PRINTABLE))
            if not is_followed or _origin(target) != _origin(url):
                where = "to another host" if is_followed else "after a call that it may have carried out"
                text = f"{self._service.host} answered {status}, and redirects {where}"
                is_done = self._has_effect and status not in _SAME_METHOD
                raise ServiceError(text, status, response.headers) if is_done else ToolError(text)
            url = target
        raise ToolError(f"{self._service.host} redirects more than {self._service.rules.max_redirects} times")

    async def _sent(self, transport: httpx.AsyncBaseTransport, request: httpx.Request) -> httpx.Response:
        try:
            return await transport.handle_async_request(request)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            text = f"{self._service.host} cannot be reached: {_said(error)}"
            raise (ToolError(text, retryable=True) if self._has_effect else ConnectionError(text)) from error
        except httpx.LocalProtocolError:  # its text may show a secret
            raise ToolError("this is no request that HTTP allows, so it was not sent") from None
        except httpx.TransportError as error:
            raise self._lost(error) from error

    def _lost(self, error: httpx.TransportError) -> ConnectionError:
        return ConnectionError(f"the connection to {self._service.host} was lost: {_said(error)}")

    async def _output(self, response: httpx.Response, context: ToolContext) -> Any:
        status = response.status_code
        limit = self._service.rules.max_bytes if response.is_success else _MOST_ERROR_BYTES
        try:
            answer = await read_answer(response, limit)
        except httpx.TransportError as error:
            if response.is_success:
                raise self._lost(error) from error
            answer = ServerAnswer("", status, "", None, b"")  # the status says what there is to know
        except ToolError as error:
            if response.is_success and self._has_effect:
                raise ServiceError(f"the call was carried out, but {error.message}", status, {}) from error
            if response.is_success:
                raise
            answer = ServerAnswer("", status, "", None, b"")
        if not response.is_success:
            raise self._refused(answer, response)
        return await self._read(answer, context)

    def _refused(self, answer: ServerAnswer, response: httpx.Response) -> Exception:
        """Return the error for a status that is none of success."""
        status, service = answer.status, self._service
        said = first_lines(service.credentials.secrets.replaced_in(_text(answer)), 3, 300)
        phrase = httpx.codes.get_reason_phrase(status)
        text = f"{service.host} answered {status} {phrase}".rstrip() + (f": {said}" if said else "")
        if status == 429:
            return ToolError(text, retryable=True, retry_after=_retry_after(response.headers))
        if 400 <= status < 500 and status not in _IN_DOUBT:
            return ToolError(text, permission=status in (401, 403))
        if service.is_clean and self._has_effect:
            is_busy = status >= 500 or status == 408
            return ToolError(text, retryable=is_busy, retry_after=_retry_after(response.headers) if is_busy else None)
        return ServiceError(text, status, response.headers)

    async def _read(self, answer: ServerAnswer, context: ToolContext) -> Any:
        """Return the output of a success: JSON, a text, or a file."""
        if answer.status in (204, 205) or not answer.body:
            return None
        kind = answer.media_type
        secrets = self._service.credentials.secrets
        if kind.endswith(("/json", "+json")):
            try:
                return from_json(secrets.replaced_in(_text(answer)) if secrets else answer.body, allow_inf_nan=False)
            except ValueError as error:
                text = f"{self._service.host} answered with something that is not JSON: {error}"
                raise (ServiceError(text, answer.status, {}) if self._has_effect else ToolError(text)) from error
        if kind.startswith("text/"):
            return secrets.replaced_in(_text(answer))
        # In a thread: an artifact is a file.
        return await anyio.to_thread.run_sync(lambda: context.artifacts.save(answer.body, media_type=kind))


# Requests ------------------------------------------------------------------------------------------------------------


def _parts_of(parameters: tuple[Parameter, ...], arguments: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the parts of the query, and the headers, that arguments become."""
    query: list[str] = []
    headers: dict[str, str] = {}
    for parameter in parameters:
        value = arguments.get(parameter.argument)
        if parameter.place == "query":
            query += query_parts(parameter, value)
        elif (text := header_text(parameter, value)) is not None:
            headers[parameter.name.lower()] = text
    return query, headers


def _url(url: str) -> httpx.URL:
    """Return a URL whose path and query are sent unchanged."""
    parts = urlsplit(url)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return httpx.URL(
        scheme=parts.scheme, host=parts.hostname or "", port=parts.port, raw_path=target.encode("ascii", "replace")
    )


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", None, None


def _said(error: Exception) -> str:
    return shorten(str(error)) or type(error).__name__


async def _close(response: httpx.Response) -> None:
    with anyio.move_on_after(CLOSE_SECONDS, shield=True):
        await response.aclose()


# Answers -------------------------------------------------------------------------------------------------------------


def _text(answer: ServerAnswer) -> str:
    try:
        return answer.body.decode(answer.charset or "utf-8", errors="replace")
    except LookupError:
        return answer.body.decode(errors="replace")


def _retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds that a service asks to wait. A date is relative to the answer's date: its clock, not ours."""
    said = headers.get("retry-after", "")
    try:
        seconds = float(said)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(said) - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None
