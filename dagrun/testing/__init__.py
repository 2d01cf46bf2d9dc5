"""Test helpers: a virtual clock, stubs for tools, and a server for the APIs of language models.

In: a plan under test, with its tools, models or journal replaced. Out: exact times, and the calls that were made.

- `virtual_clock.py`: a timeout of an hour costs nothing, and a makespan is exact.
- `stand_ins.py`: a tool with the same contract and a script in place of its function.
- `rehearsal.py`: what a call of a tool leaves if it is cut off.
- `golden_tasks.py`: cases in YAML as parameters of a pytest test.
- `model_server`: a `FakeModelServer` that plays model APIs; `journal_suite`: the conformance tests of journals.

Open `stand_ins.py` first. Threads, processes and sockets run in real time: test them, and everything that talks to a
`FakeModelServer`, on a real loop. Only `dagrun.evaluate` and the command line import this package; a run never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagrun._lazy import lazy_names

if TYPE_CHECKING:
    from dagrun.testing.golden_tasks import GoldenTask, cases
    from dagrun.testing.model_server.calls import RecordedCall
    from dagrun.testing.model_server.script import Fault, ModelAnswer
    from dagrun.testing.model_server.server import FakeModelServer
    from dagrun.testing.rehearsal import Rehearsal, rehearse_cancel
    from dagrun.testing.stand_ins import StandIn, Takes
    from dagrun.testing.virtual_clock import VirtualClockLoop, run_virtual, virtual_backend

# The public names by module. Each is imported on first use: the clock needs no server.
_NAMES = {
    "dagrun.testing.golden_tasks": "GoldenTask cases",
    "dagrun.testing.model_server.calls": "RecordedCall",
    "dagrun.testing.model_server.script": "Fault ModelAnswer",
    "dagrun.testing.model_server.server": "FakeModelServer",
    "dagrun.testing.rehearsal": "Rehearsal rehearse_cancel",
    "dagrun.testing.stand_ins": "StandIn Takes",
    "dagrun.testing.virtual_clock": "VirtualClockLoop run_virtual virtual_backend",
}

# Names of 0.1, kept for one more release. `dagrun.Answer` is the answer of a person.
_FORMER_NAMES = {"Answer": "ModelAnswer", "Call": "RecordedCall"}

__all__ = [
    "FakeModelServer",
    "Fault",
    "GoldenTask",
    "ModelAnswer",
    "RecordedCall",
    "Rehearsal",
    "StandIn",
    "Takes",
    "VirtualClockLoop",
    "cases",
    "rehearse_cancel",
    "run_virtual",
    "virtual_backend",
]
_get = lazy_names(__name__, _NAMES)


def __getattr__(name: str) -> Any:
    return _get(_FORMER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
