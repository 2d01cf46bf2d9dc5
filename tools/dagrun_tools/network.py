"""Where tools may connect to. The host program decides, by `rules`; a plan has no say in it."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FilePath

from dagrun_tools.addresses import METADATA, Address, is_public

Port = Annotated[int, Field(ge=1, le=65535)]
Network = IPv4Network | IPv6Network

_PERMIT = re.compile(r"(?:\[(?P<v6>[^]]+)\]|(?P<plain>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_HOST = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class Permit:
    """An exception from "public addresses only": some addresses, or a host by name, at one port or at the usual ones.

    Attributes:
        network: The addresses, if it is about addresses.
        host: The name, or ``*.`` and a name, if it is about a host, whatever address that has.
        port: The port; `None` for those of the rules.
    """

    network: Network | None
    host: str
    port: int | None

    def covers(self, host: str, address: Address) -> bool:
        """Whether it is about *host*, or about the *address* that the host has."""
        if self.network is None:
            return matches(self.host, host)
        if address in METADATA and self.network.num_addresses > 1:
            return False  # who allows a range has hardly thought of the credentials in it
        return address in self.network


@lru_cache
def read_permit(text: str) -> Permit:
    """Read ``10.0.0.0/8``, ``127.0.0.1:8080``, ``[::1]:8080``, ``wiki.intern`` or ``wiki.intern:8080``.

    Raises:
        ValueError: It is none of these.
    """
    bare_v6 = text.count(":") > 1 and not text.startswith("[")
    parts = _PERMIT.fullmatch(f"[{text}]" if bare_v6 else text)
    if parts is None:
        raise ValueError(f"{text!r} is no address, range or host, with or without a port")
    port = int(parts["port"]) if parts["port"] else None
    if port is not None and not 1 <= port <= 65535:
        raise ValueError(f"{text!r} names a port that does not exist")
    where = parts["v6"] or parts["plain"]
    try:
        return Permit(ip_network(where), "", port)
    except ValueError:
        # A misspelt range must not be taken for a host that nobody ever asks for.
        if parts["v6"] or re.fullmatch(r"[0-9./]+", where):
            raise
    return Permit(None, _checked_host(where), port)


def matches(pattern: str, host: str) -> bool:
    """Whether *host* is what *pattern* names: one host, or with ``*.`` in front all below it."""
    host = host.lower().removesuffix(".")
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _checked_host(text: str) -> str:
    host = text.lower().removesuffix(".")
    if not _HOST.fullmatch(host):
        raise ValueError(f"{text!r} is no host name; write names of other scripts in their xn-- form")
    return host


def _checked_permit(text: str) -> str:
    read_permit(text)
    return text


class NetworkRules(BaseModel):
    """Where tools may connect to, and how much they take from there.

    Attributes:
        schemes: Of URLs.
        ports: Where public hosts may be called.
        hosts: The only public hosts that may be called, such as ``example.org`` or ``*.example.org``; `None` for any.
        allow: What may be called though it is not public, or at another port: addresses, ranges or hosts, with a port
            or without, such as ``127.0.0.1:8080``, ``10.0.0.0/8`` or ``wiki.intern``. Addresses where clouds hand
            out credentials must be named one by one; no range covers them.
        max_bytes: Of an answer, decoded.
        deadline: Seconds for one call, redirects counted.
        max_redirects: Of one call.
        ca_file: Certificates to trust instead of those that come with the HTTP library.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    schemes: Annotated[tuple[Literal["http", "https"], ...], Field(strict=False)] = ("http", "https")
    ports: Annotated[tuple[Port, ...], Field(strict=False)] = (80, 443, 8080, 8443)
    hosts: Annotated[tuple[Annotated[str, AfterValidator(_checked_host)], ...] | None, Field(strict=False)] = None
    allow: Annotated[tuple[Annotated[str, AfterValidator(_checked_permit)], ...], Field(strict=False)] = ()
    max_bytes: Annotated[int, Field(ge=1)] = 10 << 20
    deadline: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30.0
    max_redirects: Annotated[int, Field(ge=0, le=20)] = 5
    ca_file: Annotated[FilePath | None, Field(strict=False)] = None

    def refusal(self, host: str, address: Address, port: int) -> str | None:
        """Say why nobody may connect to *host* at *address* and *port*; `None` if one may."""
        for permit in map(read_permit, self.allow):
            if self._opens(permit, port) and permit.covers(host, address):
                return None
        if port not in self.ports:
            return f"port {port} is not among the allowed ones"
        if self.hosts is not None and not any(matches(pattern, host) for pattern in self.hosts):
            return "it is not among the allowed hosts"
        return None if is_public(address) else f"{address} is not a public address"

    def knows_port(self, port: int) -> bool:
        """Whether any host at all may be called at *port*."""
        return port in self.ports or any(read_permit(text).port == port for text in self.allow)

    def allowing(self, *permits: str) -> NetworkRules:
        """The same rules with more exceptions."""
        return NetworkRules.model_validate(dict(self) | {"allow": (*self.allow, *permits)})

    def _opens(self, permit: Permit, port: int) -> bool:
        return port in self.ports if permit.port is None else port == permit.port


_DEFAULT: Final = NetworkRules()

# A context variable, so that runs beside each other may have different rules: a run keeps what it was started with.
rules: ContextVar[NetworkRules] = ContextVar("dagrun_tools.network.rules", default=_DEFAULT)
