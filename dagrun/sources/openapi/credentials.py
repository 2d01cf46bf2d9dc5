"""Credentials for a service: from the host alone, added to each request where the document requires it.

A secret goes to the place that a security scheme of the document names: a header or a parameter of the query. Flows in
which tokens are fetched and renewed are the host's: it gives a function that returns headers.
"""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote

from dagrun.errors import ContractError, ToolError, shorten
from dagrun.kernel.model.secrets.secret import AnySecret, Secrets
from dagrun.sources.openapi.document import Document, Raw
from dagrun.sources.openapi.operations import Operation, security_schemes

Headers: TypeAlias = Mapping[str, str]
Auth: TypeAlias = AnySecret | Secrets | Mapping[str, AnySecret] | Callable[[], Headers | Awaitable[Headers]]

ANY_SCHEME: Final = "auth"  # the name of a secret that is for whatever scheme the document has
_BEARER: Final[Raw] = {"type": "http", "scheme": "bearer"}
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_TOKENS: Final = ("oauth2", "openIdConnect")


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
            ToolError: The function of the host failed, or what is to be sent fits into no header. Nothing was sent.
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
        are_texts = isinstance(headers, Mapping) and all(
            isinstance(text, str) for text in (*headers, *headers.values())
        )
        if not are_texts:
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
            return kind in _TOKENS
