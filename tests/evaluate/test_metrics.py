"""Metrics of recorded runs, computed by hand: what happened in each run is known to the second and the token."""

from __future__ import annotations

import json
from collections.abc import Iterable

import anyio
import pytest

import dagrun
from dagrun import (
    Answer,
    Brief,
    Drop,
    Metrics,
    Patch,
    Plan,
    Replace,
    RetryRule,
    RuleCritic,
    Step,
    ToolContext,
    ToolError,
    Verdict,
)
from dagrun.errors import ContractError
from dagrun.evaluate.metrics import definitions
from dagrun.evaluate.metrics.metrics import compared, measure, measured_run
from dagrun.evaluate.metrics.metrics_text import change_of
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.usage import METER
from dagrun.observe.run_summary import Calls, RunSummary
from dagrun.testing import Takes
from hedge_tools import HEDGED, known
from persons import Person
from persons import pay as pay_tool
from recorded_runs import Recorded, changed, cut_after
from replans import Thinker
from small_tools import scripted, toolset

pytestmark = pytest.mark.anyio

AT_ONCE = RetryRule(max_attempts=2, first_delay=0)


def nap(id_: str, seconds: float, *after: str) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds}, depends_on=after)


def measured(*runs: RunSummary, by: str = "") -> Metrics:
    return measure(runs, by=by)


def value(runs: RunSummary | Iterable[RunSummary], name: str) -> float | None:
    return measure([runs] if isinstance(runs, RunSummary) else runs).total[name].value


async def test_plain_run() -> None:
    """A diamond without its end: 1 s, then 2 s and 3 s beside each other."""
    recorded = Recorded()
    await recorded.run("r", nap("a", 1), nap("b", 2, "a"), nap("c", 3, "a"))
    run = await recorded.figures("r")

    assert (run.steps, run.attempts, run.status) == (3, 3, "succeeded")
    assert run.makespan == pytest.approx(4)
    assert run.critical_path == pytest.approx(4)
    assert run.tools["nap"].seconds == pytest.approx([1, 2, 3])
    assert value(run, "overhead_p50") == pytest.approx(0)
    assert value(run, "recovery_success") is None, "nothing was to be recovered"
    assert value(run, "question_wait") is None
    assert value(run, "planner_share_p50") == 0


async def test_what_the_plan_does_not_explain_is_overhead() -> None:
    """Two calls of 2 s that have to share one place take 4 s; the longest chain is 2 s."""
    recorded = Recorded()
    await recorded.run("r", nap("a", 2), nap("b", 2), max_running=1)

    assert value(await recorded.figures("r"), "overhead_p50") == pytest.approx(2)


async def test_failed_and_retried_runs() -> None:
    """Of three runs, one fails; of the two in which a call failed, one succeeds all the same. Of 4 calls, 2 succeed."""
    recorded = Recorded()
    flaky = scripted("flaky", ConnectionError("gone"), "there")
    await recorded.run("good", nap("a", 1))
    await recorded.run("bad", Step(id="x", tool="fail"))
    await recorded.run("again", Step(id="x", tool="flaky", retry=AT_ONCE), tools=[flaky])
    runs = [await recorded.figures(name) for name in ("good", "bad", "again")]

    assert value(runs, "task_success") == pytest.approx(2 / 3)
    assert value(runs, "recovery_success") == pytest.approx(1 / 2)
    assert value(runs, "tool_success") == pytest.approx(2 / 4)
    total = measured(*runs).total["task_success"]
    assert total.of == 3
    assert (total.low, total.high) == pytest.approx((0.2077, 0.9385), abs=1e-3), "the interval of Wilson"


async def test_replanned_run() -> None:
    """The planner thinks for 2 s of the 4 s of the run; its first patch is refused."""
    recorded = Recorded()
    good = Patch(edits=[Replace(id="x", step=nap("y", 1))])
    planner = Thinker(Patch(edits=[Drop(id="nobody")]), good, seconds=1)
    await recorded.run("r", nap("a", 1), Step(id="x", tool="fail", depends_on=["a"]), planner=planner)
    run = await recorded.figures("r")

    assert run.status == "succeeded"
    assert (run.steps, run.replans, run.refused) == (2, 1, 1)
    assert run.makespan == pytest.approx(4)
    assert run.planning == pytest.approx(2)
    assert value(run, "planner_share_p50") == pytest.approx(2 / 4)
    assert value(run, "recovery_success") == 1
    assert run.planners == ["rules"], "no model was asked"


async def test_hedged_runs() -> None:
    """One second call wins, and the first one, which it stops, is no failure; the other second call loses."""
    recorded = Recorded()
    for name, first, second in (("won", 100, 1), ("lost", 9, 100)):
        looks = scripted("look", Takes(first, "first"), Takes(second, "second"))
        await recorded.run(name, Step(id="a", tool="look"), tools=[looks], durations=known(), hedge=HEDGED)
    runs = [await recorded.figures(name) for name in ("won", "lost")]

    assert value(runs, "hedges_won") == 1 / 2
    assert value(runs, "tool_success") == 1
    assert [(run.attempts, run.tools["look"].hedged) for run in runs] == [(1, 1), (1, 1)]
    assert not any(run.had_trouble for run in runs)


async def test_answers_of_people() -> None:
    """A plain yes changes nothing; a no and a value do. And nobody had asked before the goal was changed."""
    recorded = Recorded()
    for name, says in (("yes", True), ("no", False)):
        person = Person(Answer("approve" if says else "deny"), seconds=3)
        await recorded.run(name, Step(id="pay", tool="pay", args={"value": 1}), tools=[pay_tool(5)], approver=person)
    yes, no = [await recorded.figures(name) for name in ("yes", "no")]

    assert (yes.questions, yes.answered, yes.changed) == (1, 1, 0)
    assert (no.questions, no.answered, no.changed) == (1, 1, 1)
    assert value([yes, no], "escalation_precision") == 1 / 2
    assert value([yes, no], "escalation_recall") == 1
    assert value([yes, no], "questions") == 1
    assert value([yes, no], "question_wait") == pytest.approx(3)


async def test_what_people_change_unasked_counts_against_the_recall() -> None:
    recorded = Recorded()
    plan = Plan(steps=[nap("a", 9)])
    async with dagrun.start(plan, tools=toolset(), journal=recorded.journal, run_id="r") as run:
        await anyio.sleep(1)
        await run.splice(Patch(edits=[dagrun.Add(step=nap("b", 1))]))
        run.cancel(reason="enough")
        await run.result()
    figures = await recorded.figures("r")

    assert figures.unasked == 2, "the splice of the host, and the end"
    assert value(figures, "escalation_recall") == 0
    assert figures.status == "cancelled"
    assert value(figures, "tool_success") is None, "what is told to stop is no failure"


async def test_waiting_run_and_its_answer_a_day_later() -> None:
    """Nobody is there, so the run is suspended; people wait by the time of day, and the makespan does not grow."""
    recorded = Recorded()
    step, tools = Step(id="pay", tool="pay", args={"value": 1}), [pay_tool(5)]
    await recorded.run("r", nap("a", 2), step, tools=tools)
    waiting = await recorded.figures("r")

    assert (waiting.has_ended, waiting.is_suspended, waiting.questions, waiting.answered) == (False, True, 1, 0)
    assert value(waiting, "task_success") is None
    assert value(waiting, "runs") == 1
    assert value(waiting, "ended_runs") == 0

    async with dagrun.resume("r", tools=toolset(*tools), journal=recorded.journal, approver=Person(True)) as run:
        await run.result()
    lines = await recorded.lines("r")
    began = measured_run("r", lines).began
    ended = measured_run("r", changed(lines, "RunResumed", wall_time=began + 86_400))
    assert ended.status == "succeeded"
    assert ended.waits == [pytest.approx(86_400 - 2, abs=3)]
    assert ended.makespan == pytest.approx(2, abs=1)


async def _spends(context: ToolContext, tokens: int, cost: float | None = None) -> str:
    context.report_usage(tokens=tokens, cost=cost)
    return "done"


SPENDS = make_tool(_spends, name="spends", effect="read")


async def test_cost_of_a_success_has_the_failures_in_it() -> None:
    """0.5 + 0.25 for one success; a failure costs, too."""
    recorded = Recorded()
    spend = Step(id="a", tool="spends", args={"tokens": 100, "cost": 0.5})
    await recorded.run("good", spend, tools=[SPENDS])
    less = Step(id="a", tool="spends", args={"tokens": 50, "cost": 0.25})
    await recorded.run("bad", less, Step(id="b", tool="fail", depends_on=["a"]), tools=[SPENDS])
    runs = [await recorded.figures(name) for name in ("good", "bad")]

    assert value(runs, "cost") == pytest.approx(0.75)
    assert value(runs, "cost_per_success") == pytest.approx(0.75)
    assert value(runs, "tokens_per_success") == 150
    assert value(runs[1], "cost_per_success") is None, "there is no success"


async def test_unknown_cost_stays_unknown() -> None:
    """Tokens without a price make the sum unknown; what is known of it is a lower bound, and no estimate."""
    recorded = Recorded()
    known_one = Step(id="a", tool="spends", args={"tokens": 100, "cost": 0.5})
    await recorded.run("priced", known_one, tools=[SPENDS])
    await recorded.run("unpriced", Step(id="a", tool="spends", args={"tokens": 7}), tools=[SPENDS])
    runs = [await recorded.figures(name) for name in ("priced", "unpriced")]
    total = measured(*runs).total

    assert (total["cost"].value, total["cost"].low) == (None, 0.5)
    assert (total["cost_per_success"].value, total["cost_per_success"].low) == (None, 0.25)
    assert total["tokens"].value == 107
    by_tool = measured(*runs, by="tool").groups[0]
    assert (by_tool.name, by_tool["cost"].value, by_tool["calls"].value) == ("spends", None, 2)


class OneCall:
    """A planner that asks a model once, which uses 60 tokens at a cost of 0.125."""

    async def revise(self, brief: Brief) -> Plan:
        METER.get().reserve("one model", 100, 1.0).settle(60, 0.125)
        return Plan(steps=[nap("a", 1)])


async def test_killed_while_a_model_was_asked() -> None:
    """What the model has cost is on no record, so no cost of this run is known."""
    recorded = Recorded()
    await recorded.run("r", goal="do it", planner=OneCall())
    lines = await recorded.lines("r")
    whole, cut = measured_run("r", lines), measured_run("r", cut_after(lines, "ModelReserved"))

    assert (whole.use.tokens, whole.use.known_cost, whole.use.is_cost_known) == (60, 0.125, True)
    assert whole.planners == ["one model"]
    assert whole.providers["one model"].tokens == 60
    assert (cut.has_ended, cut.use.is_cost_known) == (False, False)
    assert measured_run("r", cut_after(lines, "PlannerAsked")).use.is_cost_known, "no model was called yet"


async def test_killed_in_a_call_that_may_have_cost() -> None:
    """The tool says that it uses tokens, and its call has no end on record."""
    recorded = Recorded()
    billed = make_tool(_spends, name="spends", effect="read", max_tokens=500, max_cost=1.0)
    spend = Step(id="a", tool="spends", args={"tokens": 100, "cost": 0.5})
    await recorded.run("r", spend, tools=[billed])
    cut = measured_run("r", cut_after(await recorded.lines("r"), "AttemptStarted"))

    assert (cut.attempts, cut.use.is_cost_known) == (1, False)
    assert not cut.tools["spends"].is_cost_known


async def test_critics_that_do_not_agree() -> None:
    """Two critics look at two outputs; they disagree on one, which fails: the call is no success."""
    recorded = Recorded()
    strict = RuleCritic("strict", lambda output: Verdict("fail" if output == 2 else "pass", reason="too much"))
    kind = RuleCritic("kind", lambda _: Verdict("pass"))
    steps = [Step(id=f"s{n}", tool="echo", args={"value": n}) for n in (1, 2)]
    await recorded.run("r", *steps, critics=[strict, kind])
    run = await recorded.figures("r")

    assert (run.reviews, run.disagreements) == (2, 1)
    assert value(run, "critic_disagreement") == 1 / 2
    assert value(run, "tool_success") == 1 / 2
    assert run.had_trouble

    await recorded.run("alone", *steps, critics=[kind])
    assert (await recorded.figures("alone")).reviews == 0, "one critic has nobody to agree with"


async def test_a_tool_error_is_trouble_even_if_the_plan_tolerates_it() -> None:
    recorded = Recorded()
    step = Step(id="x", tool="flaky", on_failure="default", default=0, retry=RetryRule(max_attempts=1))
    await recorded.run("r", step, tools=[scripted("flaky", ToolError("no"))])

    assert value(await recorded.figures("r"), "recovery_success") == 1


# Groups ---------------------------------------------------------------------------------------------------------------


async def test_groups_by_plan_take_plans_for_other_values_together() -> None:
    recorded = Recorded()
    await recorded.run("one", nap("a", 1), nap("b", 2, "a"), labels={"team": "shop"})
    await recorded.run("two", nap("first", 3), nap("second", 4, "first"), labels={"team": "shop"})
    await recorded.run("other", nap("a", 1), nap("b", 2), labels={"team": ["a", "b"]})
    runs = [await recorded.figures(name) for name in ("one", "two", "other")]

    assert sorted(group["runs"].value or 0 for group in measured(*runs, by="plan").groups) == [1, 2]
    assert [group.name for group in measured(*runs, by="label:team").groups] == ["a b", "shop"]
    assert [group.name for group in measured(*runs, by="label:none").groups] == ["(none)"]


def test_groups_by_time_are_in_utc() -> None:
    """2026-01-01 is a Thursday, so it belongs to week 1; the last days of 2027 to week 52."""
    runs = [RunSummary("a", began=1_767_225_600.0), RunSummary("b", began=1_830_211_200.0)]

    assert [group.name for group in measured(*runs, by="week").groups] == ["2026-W01", "2027-W52"]
    assert [group.name for group in measured(*runs, by="day").groups] == ["2026-01-01", "2027-12-31"]


@pytest.mark.parametrize("by", ["label", "label:", "nobody", "runs"])
def test_a_grouping_that_there_is_not(by: str) -> None:
    with pytest.raises(ContractError, match="grouped by tool"):
        measure([], by=by)


def test_times_bound_what_counts() -> None:
    """The first instant belongs to it, the last one does not."""
    runs = [RunSummary(str(at), began=at) for at in (1.0, 2.0, 3.0)]

    assert [run.run_id for run in measure(runs, since=2.0, until=3.0).runs] == ["2.0"]
    before, since = compared(runs, 2.0)
    assert (before["runs"].value, since["runs"].value) == (1, 2)


def test_percentiles_are_values_that_were_seen() -> None:
    runs = [RunSummary(str(n), status="succeeded", makespan=float(n), critical_path=0.0) for n in range(1, 101)]
    total = measure(runs).total

    assert [total[f"makespan_p{q}"].value for q in (50, 95, 99)] == [50, 95, 99]
    assert total["makespan_p50"].of == 100
    assert (total["makespan_p50"].low, total["makespan_p50"].high) == (40, 60)

    few = measure(runs[:2]).total["makespan_p99"]
    assert (few.value, few.high) == (2, None), "two values bound no such quantile from above"
    json.dumps(measure(runs[:2]).as_dict(), allow_nan=False)


def test_calls_of_providers() -> None:
    """A model has no success on record, so none is claimed; a pool joins its tools."""
    run = RunSummary("r", providers={"gpt": Calls(ended=2, seconds=[1.0, 3.0], tokens=9, known_cost=0.5)})
    (group,) = measured(run, by="provider").groups

    assert group["call_success"].value is None
    assert (group["calls"].value, group["tokens"].value, group["cost"].value) == (2, 9, 0.5)


async def test_public_function() -> None:
    recorded = Recorded()
    await recorded.run("r", nap("a", 1))
    found = await dagrun.metrics(journal=recorded.journal, by="tool")

    assert found.total["task_success"].value == 1
    assert [group.name for group in found.groups] == ["nap"]
    assert (await dagrun.metrics(journal=recorded.journal, until=0.0)).total["runs"].value == 0
    with pytest.raises(ContractError, match="grouped by"):
        await dagrun.metrics(journal=recorded.journal, by="anything")


@pytest.mark.parametrize(
    ("before", "since", "change"),
    [
        ([1.0] * 3, [2.0] * 3, "x 2.00 (too few to tell)"),
        ([1.0] * 40, [2.0] * 3, "x 2.00 (too few to tell)"),
        ([1.0] * 40, [2.0] * 40, "x 2.00"),
        ([1.0, 3.0] * 20, [1.0, 3.1] * 20, "x 1.00 (may be chance)"),
    ],
)
async def test_a_change_of_a_quantile_says_whether_it_may_be_chance(
    before: list[float], since: list[float], change: str
) -> None:
    """An interval that is missing is no interval that excludes chance."""
    one, other = (definitions._quantile(0.5, values) for values in (before, since))
    assert change_of(one, other, "seconds") == change


async def test_ends_that_there_are_tell_quantiles_apart() -> None:
    """The p95 of 40 runs has a lower end alone; that of 20 faster ones before it has none, so nothing is known."""
    slow, fast = (definitions._quantile(0.95, [value] * 100) for value in (2.0, 1.0))
    assert None not in (fast.low, fast.high, slow.low, slow.high)
    few = definitions._quantile(0.95, [2.0] * 60)
    assert (few.low, few.high) == (2.0, None)
    assert change_of(fast, few, "seconds") == "x 2.00"
    assert change_of(few, fast, "seconds") == "x 0.50"
    assert change_of(few, few, "seconds") == "x 1.00 (too few to tell)"


async def test_what_has_no_interval_gets_no_verdict() -> None:
    mean, rate = definitions._mean([1.0, 2.0]), definitions._rate([(1, 2)])
    assert change_of(mean, definitions._mean([3.0]), "count") == "x 2.00"
    assert change_of(rate, definitions._rate([(2, 2)]), "ratio") == "+50.0 points (may be chance)"
