"""What is measured: complete runs of dagrun, with a subscriber that gets, and keeps, every event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import anyio.lowlevel
from pydantic import TypeAdapter
from typing_extensions import TypedDict

import dagrun
from dagrun import CheckedPlan, Event
from shapes import Dependencies


@dagrun.tool(effect="pure")
async def noop() -> None:
    """End at once."""


@dagrun.tool(effect="pure")
async def suspend() -> None:
    """Let the loop come by once."""
    await anyio.lowlevel.checkpoint()


@dagrun.tool(effect="pure")
async def wait() -> None:
    """Wait for a timer."""
    await anyio.sleep(0.003)


class Parcel(TypedDict):
    """A small JSON object, as tools hand them on."""

    id: str
    title: str
    total: float
    tags: list[str]
    is_open: bool


PARCEL: Final[Parcel] = {
    "id": "p-1",
    "title": "Harbour dues, third quarter",
    "total": 1204.5,
    "tags": ["harbour", "dues"],
    "is_open": True,
}


@dagrun.tool(effect="pure")
async def hand_on(parcels: list[Parcel]) -> Parcel:
    """Give the first of what the steps before gave, or a new one."""
    return parcels[0] if parcels else PARCEL


# The work of a step, by the name of its case.
STEPS: Final[Mapping[str, dagrun.Tool[..., Any]]] = {
    "no-op": noop,
    "suspending": suspend,
    "burst": wait,
    "by reference": hand_on,
}


async def bare_noop(id_: str, values: Mapping[str, object]) -> None:
    """End at once."""


async def bare_suspend(id_: str, values: Mapping[str, object]) -> None:
    """Let the loop come by once."""
    await anyio.lowlevel.checkpoint()


async def bare_wait(id_: str, values: Mapping[str, object]) -> None:
    """Wait for a timer."""
    await anyio.sleep(0.003)


_PARCELS: Final = TypeAdapter(list[Parcel])


async def bare_hand_on(id_: str, values: Mapping[str, object]) -> Parcel:
    """Check what the steps before gave, and give the first of it, or a new one."""
    parcels = _PARCELS.validate_python(list(values.values()), strict=True)
    return parcels[0] if parcels else PARCEL


# The same work for the baseline, which hands over values by itself.
BARE: Final[Mapping[str, Callable[[str, dict[str, object]], Awaitable[object]]]] = {
    "no-op": bare_noop,
    "suspending": bare_suspend,
    "burst": bare_wait,
    "by reference": bare_hand_on,
}


def planned(shape: Dependencies, tool: dagrun.Tool[..., Any]) -> dagrun.Plan:
    """Make a plan of *shape* whose steps all call *tool*; what `hand_on` takes, it refers to."""
    if tool is not hand_on:
        return dagrun.Plan(steps=[dagrun.Step(id=i, tool=tool.name, depends_on=before) for i, before in shape.items()])
    arguments = {i: {"parcels": [f"${{{one}}}" for one in before]} for i, before in shape.items()}
    return dagrun.Plan(steps=[dagrun.Step(id=i, tool=tool.name, args=arguments[i]) for i in shape])


def checked_plan(shape: Dependencies, tool: dagrun.Tool[..., Any]) -> CheckedPlan:
    """Check the plan of *shape* whose steps all call *tool*."""
    return dagrun.check(planned(shape, tool), [tool])


async def run(plan: CheckedPlan) -> None:
    """Run *plan*, and make sure that nothing was left out: a start and an end for each step, and two for the run."""
    log: list[Event] = []
    async with dagrun.start(plan, on_event=log.append) as running:
        result = await running.result()
    if result.status != "succeeded" or len(log) != 2 * len(plan.steps) + 2:
        raise AssertionError(f"{result.status} ({result.reason}) after {len(log)} events of {len(plan.steps)} steps")
