"""Where tools may connect. The host program decides by `rules`; a plan cannot change them."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FilePath

Port = Annotated[int, Field(ge=1, le=65535)]
Network = IPv4Network | IPv6Network

_PERMIT = re.compile(r"(?:\[(?P<v6>[^]]+)\]|(?P<plain>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_HOST = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class Permit:
    """An exception from "public addresses only": a range of addresses or a host, at one port or at the usual ports.

    Attributes:
        network: The range of addresses; `None` for a permit of a host.
        host: The name of the host, or ``*.`` and a name; empty for a permit of addresses. The addresses of the host may
            be any.
        port: The port; `None` for the ports of the rules.
    """

    network: Network | None
    host: str
    port: int | None

    def covers(self, host: str, address: Address) -> bool:
        """Whether the permit is for *host*, or for its *address*."""
        if self.network is None:
            return matches(self.host, host)
        if address in METADATA and self.network.num_addresses > 1:
            return False  # the author of a range has hardly thought of the credentials in it
        return address in self.network


@lru_cache
def read_permit(text: str) -> Permit:
    """Parse ``10.0.0.0/8``, ``127.0.0.1:8080``, ``[::1]:8080``, ``wiki.intern`` or ``wiki.intern:8080``.

    Raises:
        ValueError: *text* has none of these forms.
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
        # A misspelt range must be refused, not taken for the name of a host.
        if parts["v6"] or re.fullmatch(r"[0-9./]+", where):
            raise
    return Permit(None, _checked_host(where), port)


def matches(pattern: str, host: str) -> bool:
    """Whether *pattern* names *host*: a pattern is one host, or with ``*.`` in front all hosts below it."""
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
    """Where tools may connect, and how much they may read.

    Attributes:
        schemes: The schemes of URLs.
        ports: The ports at which public hosts may be called.
        hosts: The only public hosts that may be called, such as ``example.org`` or ``*.example.org``; `None` for any.
        allow: Exceptions, which may be called although they are not public, or at another port: addresses, ranges or
            hosts, with a port or without, such as ``127.0.0.1:8080``, ``10.0.0.0/8`` or ``wiki.intern``. The addresses
            at which clouds hand out credentials must be named one by one; no range covers them.
        max_bytes: The most bytes of an answer, decoded.
        deadline: Seconds for one call with all its redirects.
        max_redirects: The most redirects of one call.
        ca_file: Certificates to trust in place of those that come with the HTTP library.
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
        """Return why tools may not connect to *host* at *address* and *port*; `None` if they may."""
        for permit in map(read_permit, self.allow):
            if self._opens(permit, port) and permit.covers(host, address):
                return None
        if port not in self.ports:
            return f"port {port} is not among the allowed ones"
        if self.hosts is not None and not any(matches(pattern, host) for pattern in self.hosts):
            return "it is not among the allowed hosts"
        return None if is_public(address) else f"{address} is not a public address"

    def knows_port(self, port: int) -> bool:
        """Whether any host may be called at *port*."""
        return port in self.ports or any(read_permit(text).port == port for text in self.allow)

    def allowing(self, *permits: str) -> NetworkRules:
        """Return these rules with more exceptions."""
        return NetworkRules.model_validate(dict(self) | {"allow": (*self.allow, *permits)})

    def _opens(self, permit: Permit, port: int) -> bool:
        return port in self.ports if permit.port is None else port == permit.port


_DEFAULT: Final = NetworkRules()

rules: ContextVar[NetworkRules] = ContextVar("dagrun.sources.network.network_rules.rules", default=_DEFAULT)
"""The rules for addresses that tools may reach. A run keeps the rules that were set when it was started."""


Address: TypeAlias = IPv4Address | IPv6Address

# Source: the special-purpose address registries of IANA (RFC 6890 and its successors).
_NOT_PUBLIC_V4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this host
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by carriers
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local, metadata of clouds
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments, metadata of one cloud
            "192.0.2.0/24",  # documentation
            "192.52.193.0/24",  # multicast tunnels
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)

# Only addresses of IANA's global unicast range can be public. It has no loopback, link-local, private or multicast
# addresses, and no addresses that wrap an IPv4 address: mapped, compatible, and both prefixes of NAT64.
_UNICAST_V6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_V6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, among them Teredo, which wraps IPv4 addresses
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which wraps IPv4 addresses
            "3fff::/20",  # documentation
        ),
    )
)

# Addresses that hand out the credentials of a cloud machine. The last one looks public.
METADATA: Final[frozenset[Address]] = frozenset(
    map(ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"))
)


def is_public(address: Address) -> bool:
    """Whether *address* belongs to a host on the public internet."""
    if address in METADATA:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    if address.scope_id is not None:  # only link-local addresses have a zone
        return False
    return address in _UNICAST_V6 and not any(address in network for network in _NOT_PUBLIC_V6)
