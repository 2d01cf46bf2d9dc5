"""Failure rates learned from records: the numbers of the metrics, by kind, and played as often."""

from __future__ import annotations

from collections import Counter

import pytest

import dagrun
from dagrun import Plan, Policy, RetryRule, Step, ToolError, Verdict, simulate
from dagrun.evaluate.simulation.call_models import FailureModel
from dagrun.kernel.model.outcome import Outcome
from recorded_runs import Recorded
from small_tools import scripted, toolset

pytestmark = pytest.mark.anyio

FAULTS = [
    TimeoutError("late"),
    ConnectionError("gone"),
    ConnectionError("gone"),
    ToolError("no"),
    ToolError("busy", retryable=True),
    KeyError("bug"),
]


class Strict:
    """A critic that does not pass the word bad."""

    name = "strict"

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        return Verdict("pass" if outcome.output != "bad" else "fail", reason="it is bad")


async def recorded() -> Recorded:
    """Runs of one step each: of 20 calls, 6 fail in their tool, and one is not passed by the critic."""
    runs = Recorded()
    flaky = scripted("flaky", *FAULTS, "bad", *["good"] * 13)
    for number in range(20):
        step = Step(id="a", tool="flaky", args={"value": number})
        options = {"critics": [Strict()], "retry": RetryRule(max_attempts=1)}
        await runs.run(f"r{number:02}", step, tools=[flaky], **options)
    return runs


async def test_rates_are_those_of_the_metrics_and_kinds_those_of_the_failures() -> None:
    runs = await recorded()
    rates = await dagrun.failure_rates(journal=runs.journal)
    (group,) = (await dagrun.metrics(journal=runs.journal, by="tool")).groups

    assert set(rates) == {"flaky"}
    assert rates["flaky"].calls == 20
    assert 1 - rates["flaky"].total == pytest.approx(group.figures["call_success"].value)
    kinds = Counter(rates["flaky"].drawn((n + 0.5) / 20) for n in range(20))
    assert kinds == {"": 13, "connection": 2, "refused": 2, "timeout": 1, "busy": 1, "bug": 1}
    assert str(rates["flaky"]).startswith("7 of 20 recorded calls (")
    for part in ("connection 2", "refused 2", "timeout 1", "busy 1", "bug 1"):
        assert part in str(rates["flaky"])
    assert await dagrun.failure_rates(journal=runs.journal, until=0.0) == {}


@pytest.mark.rigs
async def test_tools_without_a_rule_of_their_own_fail_as_recorded() -> None:
    learned = {
        "flaky": FailureModel(0.2, "refused", (("bug", 0.1),), calls=340),
        "other tool": FailureModel(1.0, calls=9),  # of other plans
    }
    tools = toolset(scripted("flaky", "x"), scripted("steady", "x"))
    steps = [Step(id=id_, tool=tool, args={"value": 1}) for id_, tool in (("a", "flaky"), ("b", "steady"))]
    options = {"durations": {"flaky": 1, "steady": 1}, "runs": 600, "policy": Policy(retry=RetryRule(max_attempts=1))}
    found = simulate(Plan(steps=steps), tools, learned_failures=learned, **options)  # type: ignore[arg-type]

    low, high = found.variants[0].success_interval
    assert low < 0.7 < high
    assert found.failures == {"flaky": "102 of 340 recorded calls (refused 68, bug 34)"}
    assert found.as_dict()["failures"] == dict(found.failures)
    assert "calls of steady never fail, as nothing says how often" in found.notes
    own = simulate(Plan(steps=steps), tools, learned_failures=learned, failures={"flaky": 0, "b": 0}, **options)  # type: ignore[arg-type]
    assert own.variants[0].success == 1
    assert own.failures == {"flaky": "0:connection", "b": "0:connection"}


async def test_a_recorded_tool_that_never_failed_is_known_not_to() -> None:
    runs = Recorded()
    await runs.run("r", Step(id="a", tool="echo", args={"value": 1}))
    rates = await dagrun.failure_rates(journal=runs.journal)

    assert str(rates["echo"]) == "0 of 1 recorded calls"
    found = simulate(
        Plan(steps=[Step(id="a", tool="echo", args={"value": 1})]),
        toolset(),
        runs=2,
        durations={"echo": 1},
        learned_failures=rates,
    )
    assert not any("fail" in note for note in found.notes)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"rate": 0.6, "others": (("bug", 0.6),)}, "at most 1 together, not 1.2"),
        ({"rate": 0.1, "others": (("gone", 0.1),)}, "not with 'gone'"),
        ({"rate": 0.1, "others": (("bug", -0.1),)}, "a part from 0 to 1"),
    ],
)
async def test_rates_that_cannot_be(model: dict[str, object], why: str) -> None:
    with pytest.raises(dagrun.DagrunError, match=why):
        FailureModel(**model)  # type: ignore[arg-type]
