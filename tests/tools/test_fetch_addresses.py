"""Hostile addresses: where a plan could make the web tools connect.

The names have the numbers of the list of hostile inputs. "No connect" is proved by a listening socket that counts.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import httpcore
import httpx
import pytest

from dagrun import ToolError
from dagrun.kernel.decide.classify import classify
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.sources.network.guarded_transport import GuardedBackend, GuardedTransport, NotAllowed
from dagrun.sources.network.network_rules import Address, NetworkRules, is_public
from dagrun_tools.web.fetch import fetch_url
from dagrun_tools.web.http_get import get, read_url
from loopback import trap

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

PUBLIC = ip_address("93.184.215.14")


class Recorder(httpcore.AsyncNetworkBackend):
    """Records the addresses that it is asked to connect to, and never connects."""

    def __init__(self) -> None:
        self.connected: list[tuple[str, int]] = []

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        self.connected.append((host, port))
        raise httpcore.ConnectError("nobody there")


def _names(*answers: list[str]) -> tuple[Callable[[str, int], Any], list[str]]:
    """Return a name server with a script, and the list of its requests."""
    asked: list[str] = []

    async def resolve(host: str, _port: int) -> list[Address]:
        asked.append(host)
        return [ip_address(text) for text in answers[min(len(asked), len(answers)) - 1]]

    return resolve, asked


# Addresses ------------------------------------------------------------------------------------------------------------

LOOPBACK_IN_DISGUISE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "0",
    "0.0.0.0",
    "127。0。0。1",
    "[::1]",
    "[::]",
    "[::ffff:7f00:1]",
    "[::ffff:127.0.0.1]",
    "localhost",
    "localhost.",
    "LOCALHOST",
]


async def test_s66_loopback_is_refused_in_every_spelling() -> None:
    """The address is checked in the form that the system reads, not as text."""
    with trap() as here:
        for host in LOOPBACK_IN_DISGUISE:
            with pytest.raises((ToolError, httpx.ConnectError)) as caught:
                await get(f"http://{host}:{here.port}/", NetworkRules(ports=(here.port,)))
            # dagrun or the system may not know a spelling. An address that both know was checked.
            assert isinstance(caught.value, ToolError) or "cannot be found" in str(caught.value), host
        assert here.connects == 0


async def test_s66_a_user_in_the_url_is_refused() -> None:
    """People take the wrong part for the host, and passwords would end up in the record."""
    with trap() as here:
        rules = NetworkRules(ports=(here.port,), allow=("127.0.0.0/8",))
        for user in ("user@127.0.0.1", "evil.test@127.0.0.1", "user:password@127.0.0.1"):
            with pytest.raises(ToolError, match="user or a password") as caught:
                await get(f"http://{user}:{here.port}/", rules)
            assert "password@" not in str(caught.value)
        assert here.connects == 0


WRAPPED = [
    *("64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "::127.0.0.1", "224.0.0.1", "ff02::1"),
    *("2001:0:5ef5:79fd:0:59d:a0e5:ba1", "2001:db8::1", "fe80::1", "fc00::1", "::", "fec0::1", "3fff::1"),
]
PRIVATE = [
    *("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.1", "192.0.0.192", "198.18.0.1"),
    *("168.63.129.16", "10.1.2.3", "172.31.255.255", "192.168.0.1", "100.64.0.1", "255.255.255.255", "0.0.0.0"),
    *("240.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "127.255.255.254"),
]


async def _is_refused(address: str) -> None:
    assert not is_public(ip_address(address)), address
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(NotAllowed) as caught:
        await get(f"http://{host}/latest/meta-data/", NetworkRules())
    assert classify(caught.value, fetch_url).kind is ErrorKind.PERMISSION


async def test_s67_addresses_that_wrap_others_and_multicast_are_refused() -> None:
    """The standard library calls some of them global, though their packets may end on this machine."""
    for address in WRAPPED:
        await _is_refused(address)


async def test_s68_metadata_and_private_addresses_are_refused() -> None:
    """They hand out the credentials of the machine, or belong to the private network."""
    for address in PRIVATE:
        await _is_refused(address)


def test_s68_public_addresses_are_public() -> None:
    """A guard that refuses the internet would be switched off."""
    addresses = ["93.184.215.14", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"]
    assert [address for address in addresses if not is_public(ip_address(address))] == []


def test_s68_a_zone_is_never_public() -> None:
    """An address with a zone is link-local, whatever its digits are."""
    assert not is_public(ip_address("2606:4700::1111%eth0"))


async def test_s68_a_range_does_not_allow_the_metadata_address_in_it() -> None:
    """The author of a range has hardly thought of the credentials in it; a single address is meant."""
    wide = NetworkRules(allow=("169.254.0.0/16", "fd00::/8", "0.0.0.0/0"))
    assert wide.refusal("h", ip_address("169.254.1.1"), 80) is None
    assert wide.refusal("h", ip_address("169.254.169.254"), 80) is not None
    assert wide.refusal("h", ip_address("fd00:ec2::254"), 80) is not None
    assert NetworkRules(allow=("169.254.169.254",)).refusal("h", ip_address("169.254.169.254"), 80) is None


async def test_s69_the_name_server_is_asked_once_and_the_judged_address_is_the_connected_one() -> None:
    """With two requests, the second answer could be the attacker's."""
    recorder = Recorder()
    resolve, asked = _names([str(PUBLIC)], ["127.0.0.1"])
    backend = GuardedBackend(NetworkRules(), resolve, recorder)

    with pytest.raises(httpcore.ConnectError):
        await backend.connect_tcp("rebind.test", 80)
    assert recorder.connected == [(str(PUBLIC), 80)]
    assert asked == ["rebind.test"]

    with pytest.raises(NotAllowed):  # the next connection is checked again
        await backend.connect_tcp("rebind.test", 80)
    assert recorder.connected == [(str(PUBLIC), 80)]


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        [str(PUBLIC), "127.0.0.1"],
        ["127.0.0.1", str(PUBLIC)],
        [str(PUBLIC), "::ffff:10.0.0.1"],
        ["2606:4700::1111", str(PUBLIC), "169.254.169.254"],
    ],
)
async def test_s69_one_forbidden_address_among_the_answers_is_enough(addresses: list[str]) -> None:
    """If the public address does not answer, the forbidden one would be tried."""
    recorder = Recorder()
    resolve, _ = _names(addresses)
    client = httpx.AsyncClient(
        transport=GuardedTransport(NetworkRules(), GuardedBackend(NetworkRules(), resolve, recorder))
    )
    async with client:
        with pytest.raises(NotAllowed):
            await client.get("http://mixed.test/")
    assert recorder.connected == []


async def test_s69_all_public_addresses_are_tried_in_turn() -> None:
    """A host with one dead address still answers."""
    recorder = Recorder()
    resolve, _ = _names([str(PUBLIC), "2606:4700::1111"])
    with pytest.raises(httpcore.ConnectError):
        await GuardedBackend(NetworkRules(), resolve, recorder).connect_tcp("two.test", 443)
    assert recorder.connected == [(str(PUBLIC), 443), ("2606:4700::1111", 443)]


async def test_s69_sockets_of_other_kinds_are_not_opened() -> None:
    """A socket file has no address to check."""
    with pytest.raises(NotImplementedError):
        await GuardedBackend(NetworkRules()).connect_unix_socket("/run/x.sock")


EXCEPTIONS = [
    ("127.0.0.1:8765", "h", "127.0.0.1", 8765, True),
    ("127.0.0.1:8765", "h", "127.0.0.1", 80, False),
    ("127.0.0.1:8765", "h", "127.0.0.2", 8765, False),
    ("127.0.0.1", "h", "127.0.0.1", 80, True),
    ("127.0.0.1", "h", "127.0.0.1", 8765, False),
    ("127.0.0.1", "h", "::ffff:127.0.0.1", 80, False),
    ("[::1]:8765", "h", "::1", 8765, True),
    ("::1", "h", "::1", 80, True),
    ("10.0.0.0/8", "h", "10.9.8.7", 443, True),
    ("10.0.0.0/8", "h", "11.0.0.1", 6379, False),
    ("wiki.intern", "wiki.intern", "10.0.0.1", 80, True),
    ("wiki.intern", "WIKI.intern.", "10.0.0.1", 80, True),
    ("wiki.intern", "wiki.intern.evil.test", "10.0.0.1", 80, False),
    ("wiki.intern", "evil-wiki.intern", "10.0.0.1", 80, False),
    ("*.intern:9000", "a.b.intern", "10.0.0.1", 9000, True),
    ("*.intern:9000", "intern", "10.0.0.1", 9000, False),
]


def test_an_exception_allows_what_it_names_and_no_more() -> None:
    """A permit for one port of the loopback must not open others."""
    for allow, host, address, port, is_allowed in EXCEPTIONS:
        refusal = NetworkRules(allow=(allow,)).refusal(host, ip_address(address), port)
        assert (refusal is None) is is_allowed, (allow, host, address, port)


def test_a_list_of_hosts_is_all_that_may_be_called() -> None:
    """Reading an address that the caller chooses sends data out."""
    rules = NetworkRules(hosts=("example.org", "*.example.org"), allow=("127.0.0.1:9000",))
    assert rules.refusal("example.org", PUBLIC, 443) is None
    assert rules.refusal("www.example.org", PUBLIC, 443) is None
    assert rules.refusal("example.org.evil.test", PUBLIC, 443) is not None
    assert rules.refusal("example.org", ip_address("10.0.0.1"), 443) is not None
    assert rules.refusal("127.0.0.1", ip_address("127.0.0.1"), 9000) is None


# URLs -----------------------------------------------------------------------------------------------------------------


NO_WEB_ADDRESSES = [
    *("file:///etc/passwd", "FILE:///etc/passwd", "gopher://127.0.0.1:6379/_x", "ftp://example.org/", "ws://a.b/"),
    *("unix:/run/docker.sock", "http+unix://%2Frun%2Fdocker.sock/", "data:text/plain,hi", "javascript:alert(1)"),
    *("example.org", "//example.org/", "", "/", "http:example.org", "http:/example.org", "http://", "http:///x"),
    *("http://example.org/\n", "http://exam\tple.org/", "\nhttp://example.org/", " http://example.org/"),
    *("http://127.0.0.1\\@example.org/", "http://example.org/a b", "http://example.org/\0", "http://a.b/\x7f"),
    *("http://example.org:0/", "http://example.org:99999/"),
    *(
        "http://example.org:-1/",
        "http://example.org:x/",
        "http://[::1",
        "http://xn--/",
        "http://[fe80::1%25lo]/",
        "http://%31.test/",
    ),
    "http://example.org/" + "a" * 10_000,
]


def _is_readable(url: str) -> bool:
    try:
        read_url(url, NetworkRules())
    except ToolError:
        return False
    return True


def test_s71_what_is_not_a_plain_web_address_is_refused() -> None:
    """Only listed schemes are allowed, and texts that programs read differently are refused."""
    assert [url for url in NO_WEB_ADDRESSES if _is_readable(url)] == []
    assert _is_readable("https://www.example.org:8443/a%20b?c=d&e=%2e#f")


async def test_s71_a_port_that_is_not_on_the_list_is_not_even_looked_up() -> None:
    """The name server of an attacker would see the request, and to some servers a line of HTTP is a command."""
    resolve, asked = _names([str(PUBLIC)])
    for port in (22, 25, 6379, 11211):
        with pytest.raises(NotAllowed, match=f"port {port}"):
            await GuardedBackend(NetworkRules(), resolve, Recorder()).connect_tcp("example.org", port)
        with pytest.raises(NotAllowed, match=f"port {port}"):
            await get(f"HTTP://Example.org:{port}/", NetworkRules())
    assert asked == []


def test_s71_schemes_can_be_fewer() -> None:
    """A host program may want https alone."""
    rules = NetworkRules(schemes=("https",))
    assert read_url("HTTPS://Example.org/", rules).host == "example.org"
    with pytest.raises(NotAllowed):
        read_url("http://example.org/", rules)
