"""The test helpers for users: a clock that jumps, and stand-ins that keep the contract."""

from __future__ import annotations

import anyio
import pytest

import dagrun
from dagrun.errors import ContractError
from dagrun.testing import StandIn, Takes, run_virtual


@dagrun.tool(effect="read")
def load(path: str) -> list[int]:
    """The real tool, which no test may call."""
    raise AssertionError("the real tool was called")


@dagrun.tool(effect="pure")
def total(values: list[int]) -> int:
    """Add up."""
    raise AssertionError("the real tool was called")


PLAN = dagrun.Plan(
    steps=[
        dagrun.Step(id="load", tool="load", args={"path": "x"}, timeout=3600),
        dagrun.Step(id="total", tool="total", args={"values": "${load}"}),
    ]
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_hour_costs_nothing_and_the_makespan_is_exact(backend: str) -> None:
    """A test of a timeout must not take as long as the timeout."""
    slow = StandIn(load, Takes(3599, [1, 2]))
    adds = StandIn(total, Takes(1, sum))

    async def main() -> dagrun.RunResult:
        return await dagrun.run(PLAN, tools=[slow.tool, StandIn(total, lambda values: sum(values)).tool])

    result = run_virtual(main, backend=backend)
    assert (result.status, result.output) == ("succeeded", 3)
    assert result.makespan == pytest.approx(3599)
    assert slow.calls == [{"path": "x"}]
    assert not adds.calls


def test_a_stand_in_plays_its_acts_in_order_and_the_last_for_ever() -> None:
    """A flaky service, in one line."""
    flaky = StandIn(load, TimeoutError(), ConnectionError(), [1])

    async def main() -> list[object]:
        results: list[object] = []
        for _ in range(4):
            try:
                results.append(await flaky.tool(path="x"))
            except OSError as error:
                results.append(type(error))
        return results

    assert run_virtual(main) == [TimeoutError, ConnectionError, [1], [1]]


def test_a_stand_in_is_held_to_the_contract_of_its_tool() -> None:
    """A test that passes with values that the real tool may not return proves nothing."""
    wrong = StandIn(load, "not a list")

    async def main() -> dagrun.RunResult:
        return await dagrun.run(PLAN, tools=[wrong.tool, StandIn(total, 0).tool])

    result = run_virtual(main)
    assert result.steps["load"].failure is not None
    assert result.steps["load"].failure.kind == "bad_output"


def test_a_stand_in_without_an_act_is_a_mistake() -> None:
    """It could not play anything."""
    with pytest.raises(ContractError, match="no act"):
        StandIn(load)


def test_the_virtual_loop_still_waits_for_threads() -> None:
    """Without a timer to jump to, only a real thread can wake the loop."""

    async def main() -> int:
        return await anyio.to_thread.run_sync(lambda: 7)

    assert run_virtual(main) == 7


def test_only_known_backends_have_a_virtual_clock() -> None:
    """The error is a clear sentence and not a KeyError."""
    with pytest.raises(ContractError, match="asyncio or trio"):
        run_virtual(anyio.sleep, 1, backend="curio")


def test_timers_run_also_after_a_year() -> None:
    """From half a year on, the next float is more than a nanosecond away."""

    async def wait() -> float:
        for seconds in (3e7, 1.0, 0.1, 1e-9, 1e9, 1.0):
            await anyio.sleep(seconds)
        return anyio.current_time()

    assert run_virtual(wait) == pytest.approx(1e9 + 3e7 + 2.1)
