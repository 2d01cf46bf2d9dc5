"""For testing pipelines: a virtual clock, stand-ins for tools, and a server that plays the APIs of language models.

On the virtual clock a timeout of an hour costs nothing and a makespan is exact. Threads, processes and sockets live
in real time: test those, and whatever talks to a `FakeModelServer`, on a real loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagrun.testing.model_server import FakeModelServer
    from dagrun.testing.record import Call
    from dagrun.testing.script import Answer, Fault
    from dagrun.testing.stand_ins import StandIn, Takes
    from dagrun.testing.virtual import VirtualClockLoop, run_virtual, virtual_backend

# The public names and where they live: who needs the clock does not pay for the server (PEP 562).
_HOMES = {
    "Answer": "dagrun.testing.script",
    "Call": "dagrun.testing.record",
    "FakeModelServer": "dagrun.testing.model_server",
    "Fault": "dagrun.testing.script",
    "StandIn": "dagrun.testing.stand_ins",
    "Takes": "dagrun.testing.stand_ins",
    "VirtualClockLoop": "dagrun.testing.virtual",
    "run_virtual": "dagrun.testing.virtual",
    "virtual_backend": "dagrun.testing.virtual",
}

__all__ = [
    "Answer",
    "Call",
    "FakeModelServer",
    "Fault",
    "StandIn",
    "Takes",
    "VirtualClockLoop",
    "run_virtual",
    "virtual_backend",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
