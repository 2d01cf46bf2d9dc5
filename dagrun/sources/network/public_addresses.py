"""Which addresses belong to the public internet.

The table is our own. `is_global` of `ipaddress` changes between releases of Python, and calls NAT64, 6to4 and multicast
addresses global, although their packets may end on this machine.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

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
