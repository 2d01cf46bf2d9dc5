"""Two nodes of a Ray cluster on 127.0.0.1, for tests, measurements and the demo: started here, and always ended.

Every address is given. The variables of the environment are set before Ray is imported: no statistics of use, and
127.0.0.1 is taken as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psutil

HOST: Final = "127.0.0.1"
ENVIRONMENT: Final = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_STORE_BYTES: Final = 80 << 20  # of the object store of a node


class Nodes:
    """The nodes: one with the services of the cluster, where the run is, and any number of others."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster: Any = Cluster()
        self._home = self._add()
        self.others: list[Any] = []

    @property
    def address(self) -> str:
        """The address of the cluster."""
        return str(self._cluster.address)

    def add(self) -> Any:
        """Start another node."""
        node = self._add()
        self.others.append(node)
        return node

    def freeze(self, node: Any) -> list[psutil.Process]:
        """Stop all processes of a node, without a word to anyone, as when its power or its network is cut."""
        processes = self._processes_of(node)
        for process in processes:
            process.suspend()
        return processes

    def remove(self, node: Any) -> None:
        """Kill all processes of a node."""
        for process in self._processes_of(node):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.others.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        """End all nodes."""
        for node in list(self.others):
            self.remove(node)
        children = psutil.Process().children(recursive=True)
        self._cluster.shutdown()
        for child in children:  # what a killed node has left behind
            with suppress(psutil.NoSuchProcess):
                if "ray" in " ".join(child.cmdline()):
                    child.kill()

    def _add(self) -> Any:
        return self._cluster.add_node(
            num_cpus=4,
            object_store_memory=_STORE_BYTES,
            node_ip_address=HOST,
            include_dashboard=False,
            include_log_monitor=False,
        )

    def _processes_of(self, node: Any) -> list[psutil.Process]:
        found = []
        for started in node.all_processes.values():
            for one in started:
                with suppress(psutil.NoSuchProcess):
                    process = psutil.Process(one.process.pid)
                    found += [process, *process.children(recursive=True)]
        return found


@contextmanager
def two_nodes() -> Iterator[Nodes]:
    """Start two nodes, whose workers can import what this process can."""
    os.environ.update(ENVIRONMENT)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(str(entry) for entry in sys.path if entry)
    try:
        nodes = Nodes()
        try:
            nodes.add()
            yield nodes
        finally:
            nodes.close()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
