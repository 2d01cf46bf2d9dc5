"""The connection to a cluster: its address is given and never guessed, and missing parts are reported at once."""

from __future__ import annotations

import logging
import os
import re
import sys
from importlib.util import find_spec
from typing import Any, Final

import anyio
from anyio import to_thread

from dagrun.errors import ContractError, ExecutorFailed, MissingExtra, shorten

_ADDRESS: Final = re.compile(r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})")
_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
_KEEPS_LOCAL: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: Ray takes 127.0.0.1 as it is
_CONNECT_SECONDS: Final = 5.0


def check_address(address: object) -> str:
    """Return *address*, ``HOST:PORT``.

    Raises:
        ContractError: It is something else, or an address that Ray would replace.
        MissingExtra: Ray is not installed.
    """
    if find_spec("ray") is None:
        raise MissingExtra("steps on Ray need its library: pip install 'dagrun-engine[ray]'")
    if not isinstance(address, str) or (parts := _ADDRESS.fullmatch(address)) is None:
        raise ContractError(
            "RayExecutor needs the address of the cluster, HOST:PORT as `ray start --head` has printed it, and looks "
            f"for none by itself; got {address!r:.100}"
        )
    if parts[1] in _LOCAL and not _keeps_local():
        raise ContractError(
            f"Ray would take {parts[1]} for the outer address of this machine: give the address that `ray start "
            f"--head` has printed; or, for nodes on 127.0.0.1 itself, start all programs with {_KEEPS_LOCAL}=0"
        )
    return address


class ClusterConnection:
    """The connection of this process to a cluster. Ray allows one, so a connection of the host itself is used.

    Args:
        address: Of the cluster, checked.
        node_address: Of the node on this machine; `None` lets Ray look for it.
    """

    def __init__(self, address: str, node_address: str | None) -> None:
        self._address = address
        self._node_address = node_address
        self._is_ours = False

    async def open(self) -> Any:
        """Connect, and return the library of Ray.

        Raises:
            ContractError: This process is connected to another cluster.
            ExecutorFailed: The cluster cannot be reached.
        """
        await self._knock()
        try:
            return await to_thread.run_sync(self._connect)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            reason = shorten(f"{type(error).__name__}: {error}", 500)
            raise ExecutorFailed(f"the Ray cluster at {self._address} does not take this process: {reason}") from error

    async def close(self) -> None:
        """Disconnect, if `open` has connected."""
        if self._is_ours:
            import ray

            self._is_ours = False
            with anyio.CancelScope(shield=True):  # it must leave no actor behind
                await to_thread.run_sync(ray.shutdown)

    async def _knock(self) -> None:
        """Check that the address answers: Ray itself would try for a minute."""
        host, _, port = self._address.rpartition(":")
        try:
            with anyio.fail_after(_CONNECT_SECONDS):
                stream = await anyio.connect_tcp(host.strip("[]"), int(port))
        except (OSError, TimeoutError, OverflowError) as error:
            text = f"no Ray cluster answers at {self._address} ({shorten(str(error) or 'no answer', 200)})"
            raise ExecutorFailed(f"{text}; start one with `ray start --head`") from error
        await stream.aclose()

    def _connect(self) -> Any:
        import ray

        if not ray.is_initialized():
            ray.init(
                address=self._address,
                _node_ip_address=self._node_address,
                log_to_driver=False,  # what tools print would get into the output of this program
                logging_level=logging.ERROR,
            )
            self._is_ours = True
        connected = ray.get_runtime_context().gcs_address
        if connected != self._address:
            if self._is_ours:
                ray.shutdown()
                self._is_ours = False
            raise ContractError(f"this process is connected to the Ray cluster at {connected}, not at {self._address}")
        return ray


def _keeps_local() -> bool:
    given = os.environ.get(_KEEPS_LOCAL)
    if given is None:
        return sys.platform in ("darwin", "win32")
    return given.lower() not in ("1", "true")  # as Ray reads it
