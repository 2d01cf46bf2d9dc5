"""Second calls under limits and ceilings: none that does not fit, none that is not counted, and nothing kept."""

from __future__ import annotations

from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Budget, Engine, Plan, Policy, PoolLimits, Status, Step
from dagrun.events import CeilingNear, Hedged
from dagrun.kernel.graph.live_graph import build
from dagrun.kernel.graph.node import Cap
from dagrun.kernel.graph.step_order import Expected
from hedge_tools import HEDGED, PATIENCE, Act, Alive, Looker, kept, known, nap, play, started, step
from small_tools import near

pytestmark = pytest.mark.anyio

SLOW: Final = Act(100.0, "slow")
QUICK: Final = Act(0.5, "quick")


def _each(count: int, **fields: Any) -> Step:
    return Step(id="each", tool="look", args={"value": "${item}"}, for_each=list(range(count)), **fields)


# What runs at once ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [
        {"max_running": 1},
        {"max_running_by_tool": {"look": 1}},
        {"pools": {"web": PoolLimits(max_running=1)}},
        {"max_running": 5, "max_running_by_tool": {"look": 1}},
    ],
)
async def test_where_there_is_no_place_there_is_no_second_call(limits: dict[str, Any]) -> None:
    """A limit is there for the other side; that the run would be faster without it is no news."""
    pool = {"pool": "web"} if "pools" in limits else {}
    look = Looker(Act(5.0), QUICK)
    played = await play(step(**pool), tools=[look], **limits)
    assert (played.hedged, look.alive.most, played.result.makespan) == ([], 1, near(5.0))


@pytest.mark.parametrize(
    "limits", [{"max_running": 2}, {"max_running_by_tool": {"look": 2}}, {"pools": {"web": PoolLimits(max_running=2)}}]
)
async def test_where_there_is_one_there_is(limits: dict[str, Any]) -> None:
    """It takes a place of every limit under which its step runs."""
    pool = {"pool": "web"} if "pools" in limits else {}
    look = Looker(SLOW, QUICK)
    async with started(step(**pool), tools=[look], **limits) as played:
        await anyio.sleep(PATIENCE + 0.1)
        assembly = played.run._assembly
        caps = [
            *assembly.parts.graph.nodes["slow"].caps,
            *([assembly.parts.frontier._total] if assembly.parts.frontier._total else []),
        ]
        assert [cap.used for cap in caps] == [2]
    assert (played.hedged, look.alive.most) == (["slow"], 2)


async def test_the_width_of_a_list_counts_second_calls() -> None:
    """Whoever says that three elements may be asked for at once means calls."""
    for width, hedged in ((3, 0), (5, 2), (9, 3)):
        look = Looker(Act(5.0))
        played = await play(_each(3, max_parallel=width), tools=[look])
        assert (len(played.hedged), look.alive.most) == (hedged, 3 + hedged)


async def test_a_place_that_others_hold_is_waited_for() -> None:
    """It is looked at again, and there may be room then."""
    look = Looker(SLOW, QUICK)
    played = await play(step(), nap("other", 1.5, estimate=0.1), tools=[look], max_running=2)
    assert played.hedged == ["slow"]
    assert played.result.makespan == near(2 * PATIENCE + 0.5)


async def test_the_loser_has_its_place_until_it_has_unwound() -> None:
    """The other side is still busy with it: one of the two that come next waits for that."""
    alive = Alive()
    look = Looker(Act(100.0, unwinds=0.5), QUICK, alive=alive)
    find = Looker(Act(1.0), name="find", alive=alive)
    after = [step(f"after{i}", "find", "slow") for i in range(2)]
    played = await play(step(), *after, tools=[look, find], max_running=2)

    assert alive.most == 2
    assert [played.attempt(f"after{i}").started for i in range(2)] == [near(PATIENCE + 0.5), near(PATIENCE + 1.0)]


async def test_the_second_call_has_its_place_until_it_has_unwound() -> None:
    """The same, if it is the one that has lost."""
    alive = Alive()
    look = Looker(Act(2.0), Act(100.0, unwinds=0.5), alive=alive)
    find = Looker(Act(1.0), name="find", alive=alive)
    after = [step(f"after{i}", "find", "slow") for i in range(2)]
    played = await play(step(), *after, tools=[look, find], max_running=2)

    assert alive.most == 2
    assert [played.attempt(f"after{i}").started for i in range(2)] == [near(2.0), near(2.5)]


async def test_a_second_call_that_has_failed_keeps_no_step_waiting() -> None:
    """Its place is free as soon as the step has ended; and its step does not end because of it."""
    alive = Alive()
    look = Looker(Act(4.0), Act(0.5, ValueError("no")), alive=alive)
    find = Looker(Act(1.0), name="find", alive=alive)
    played = await play(
        step(), nap("short", 1.2, estimate=0.1), step("after", "find", "short", estimate=0.1),
        tools=[look, find], max_running=3,
    )  # fmt: skip
    assert played.hedged == ["slow"]
    assert played.attempt("after").started == near(1.2)
    assert played.result.makespan == near(4.0)


async def test_many_slow_steps_never_exceed_the_limit() -> None:
    """Whatever wins, fails or is stopped, and however long that takes."""
    acts = [
        Act(9.0, unwinds=0.4), Act(0.5), Act(3.0), Act(0.7, ValueError("no")), Act(0.2), Act(2.0, unwinds=0.9), Act(0.1)
    ]  # fmt: skip
    by_step = {f"s{i}": [acts[(i + k * 3) % 7] for k in range(4)] for i in range(30)}
    look = Looker(by_step=by_step)
    steps = [step(f"s{i}", "look", *([f"s{i - 7}"] if i >= 7 else [])) for i in range(30)]
    for limit in (2, 3, 7):
        look = Looker(by_step=by_step)
        hedge = HEDGED.model_copy(update={"max_share": 1.0})
        played = await play(*steps, tools=[look], max_running=limit, hedge=hedge)
        assert look.alive.most <= limit
        assert played.hedged


async def test_a_place_that_is_promised_is_for_a_step_that_is_ready() -> None:
    """A run that stood in line for a shared place has a step for it; a second call must not go before that."""
    shared = Cap(1)
    plan = dagrun.check(Plan(steps=[step()]), [Looker(QUICK).tool])
    graph = build(plan, None, shared, Expected(plan))
    node, frontier = graph.nodes["slow"], graph.frontier
    assert frontier.has_more_room(node)

    shared.promised.add(frontier)

    assert shared.free_for(frontier) == 1
    assert not frontier.has_more_room(node)


# Providers ----------------------------------------------------------------------------------------------------------


async def test_a_rate_counts_second_calls() -> None:
    """One call in ten seconds: the second one waits for them, and whoever comes then waits for it."""
    look = Looker(SLOW, QUICK)
    rate = {"pools": {"web": dagrun.PoolLimits(requests_per_minute=6)}}
    played = await play(step(pool="web"), tools=[look], **rate)

    [hedged] = [event for event in played.events if isinstance(event, Hedged)]
    assert 10 < hedged.at < 20
    assert played.result.makespan == near(hedged.at + 0.5)


async def test_a_second_call_that_is_refused_shows_the_width_of_its_provider() -> None:
    """The steps that come later keep to it, and are not refused one after another."""
    alive = Alive()

    async def busy(context: Any) -> str:
        if alive.now > 1:
            raise dagrun.ToolError("429", retryable=True, retry_after=1.0)
        await anyio.sleep(2)
        return "done"

    look = Looker(Act(4.0), Act(0.0, busy), alive=alive)
    later = [Step(id=f"later{n}", tool="look", depends_on=("slow",)) for n in range(6)]
    played = await play(step(), *later, tools=[look])

    assert played.result.status is Status.SUCCEEDED
    assert look.ends.count("failed") <= 2  # and a probe, whether it takes more by now
    assert kept(played.run) == []


async def test_a_full_provider_gets_no_second_calls() -> None:
    """It takes four at once, and every fifth call hangs: refused second calls would help nobody."""
    alive, refused = Alive(), 0

    async def four(context: Any) -> str:
        nonlocal refused
        if alive.now > 4:
            refused += 1
            raise dagrun.ToolError("429", retryable=True, retry_after=1.0)
        hangs = int(context.step[1:]) % 5 == 0 and sum(call.step == context.step for call in look.calls) <= 2
        await anyio.sleep(30.0 if hangs else 1.0)
        return "done"

    look = Looker(Act(0.0, four), alive=alive)
    played = await play(*(Step(id=f"c{n}", tool="look") for n in range(60)), tools=[look])

    assert played.result.status is Status.SUCCEEDED
    assert refused <= 4  # the first wave, and probes
    assert played.result.makespan <= 1.15 * (12 * 30 + 48) / 4
    assert kept(played.run) == []


# Ceilings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "hedged"),
    [
        ({"max_attempts": 1}, False),
        ({"max_attempts": 2}, True),
        ({"max_calls_by_tool": {"look": 1}}, False),
        ({"max_calls_by_tool": {"look": 2}}, True),
        ({"max_tokens": 199}, False),
        ({"max_tokens": 200}, True),
        ({"max_cost": 0.99}, False),
        ({"max_cost": 1.0}, True),
    ],
)
async def test_a_second_call_must_fit_under_every_ceiling(limits: dict[str, Any], hedged: bool) -> None:
    """At its worst, beside the first at its worst; if it does not, the step goes on alone."""
    look = Looker(Act(5.0, "first"), QUICK, max_tokens=100, max_cost=0.5)
    played = await play(step(), tools=[look], **limits)

    assert bool(played.hedged) is hedged
    assert played.result.status is Status.SUCCEEDED
    (used,) = [value for name, value in played.spent.items() if name not in ("replans", "planner calls")]
    assert used == (1 + hedged) * {"max_tokens": 100, "max_cost": 0.5}.get(next(iter(limits)), 1)


async def test_both_calls_are_charged_what_they_have_reported() -> None:
    """And both are in what the run says it has used."""
    look = Looker(Act(100.0, tokens=30), Act(0.5, "quick", tokens=40), max_tokens=100)
    played = await play(step(), tools=[look], max_tokens=1000)

    assert played.spent["tokens"] == 70
    assert (played.result.used.tokens, played.result.tokens, played.result.as_dict()["tokens"]) == (70, 70, 70)
    outcome = played.attempt().outcome
    assert outcome is not None
    assert (outcome.tokens, played.hedge().tokens) == (30, 40)


async def test_a_loser_is_charged_what_it_has_reported() -> None:
    """It was called, whatever came of it; what it reports when it is told to stop comes too late."""
    look = Looker(Act(2.0, "first", tokens=30), Act(50.0, tokens=40, late_tokens=10), max_tokens=100)
    played = await play(step(), tools=[look], max_tokens=1000)

    assert played.spent["tokens"] == 70
    assert played.result.used.tokens == 70


async def test_a_call_that_reports_nothing_is_charged_at_its_worst() -> None:
    """Nobody knows what the other side makes of a call that is stopped."""
    look = Looker(SLOW, Act(0.5, tokens=40), max_tokens=100)
    played = await play(step(), tools=[look], max_tokens=1000)
    assert played.spent["tokens"] == 140


@pytest.mark.parametrize(("most", "hedged"), [(3, []), (4, ["slow"])])
async def test_a_second_call_leaves_room_for_the_steps_that_are_left(most: int, hedged: list[str]) -> None:
    """It may make a run faster; it must not be what ends one as over_budget that would have succeeded without it."""
    look = Looker(QUICK, by_step={"slow": [Act(9.0), QUICK]})
    steps = [step(), step("second", "look", "slow"), step("third", "look", "second")]
    played = await play(*steps, tools=[look], max_calls_by_tool={"look": most})

    assert played.hedged == hedged
    assert played.result.status is Status.SUCCEEDED


@pytest.mark.parametrize(("most", "hedged"), [(4, []), (5, ["slow"])])
async def test_a_second_call_leaves_room_for_elements_that_are_not_known_yet(most: int, hedged: list[str]) -> None:
    """The list has three elements; as long as nobody knows that, it may have as many as the policy allows."""
    look = Looker(QUICK, by_step={"slow": [Act(9.0, [1, 2, 3]), Act(0.5, [1, 2, 3])]})
    each = Step(id="each", tool="look", args={"value": "${item}"}, for_each="${slow}")
    played = await play(step(), each, tools=[look], max_calls_by_tool={"look": most}, max_fan_out=3)

    assert played.hedged == hedged
    assert played.result.status is Status.SUCCEEDED


async def test_a_second_call_may_bring_a_ceiling_near() -> None:
    """It is noticed as soon as it is charged, before the end of the attempt is on record."""
    look = Looker(Act(100.0, tokens=50), Act(0.5, tokens=40), max_tokens=50)
    extra = step("extra", "look", "slow", optional=True)
    played = await play(step(), extra, tools=[look], max_tokens=150, warn_at=0.5)

    assert [event.used for event in played.of(CeilingNear)] == [90.0]
    assert str(played.result.steps["extra"].state) == "skipped"
    assert played.result.status is Status.SUCCEEDED


# Several runs ---------------------------------------------------------------------------------------------------------


async def _several(engine: Engine, count: int, alive: Alive, *acts: Act, **options: Any) -> list[Any]:
    found: list[Any] = []

    async def one() -> None:
        look = Looker(*acts, alive=alive, max_tokens=100)
        steps = [step(), step("next", "look", "slow")]
        found.append(await play(*steps, tools=[look], engine=engine, **options))

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return found


async def test_a_limit_of_an_engine_holds_for_all_its_runs() -> None:
    """Second calls take places that all runs share, and give every one of them back."""
    for limit in (2, 3, 4):
        alive = Alive()
        async with Engine(max_running=limit, durations=known()) as engine:
            acts = (Act(30.0, unwinds=0.5), Act(0.5), Act(1.0), Act(20.0), Act(0.2, ValueError("no")))
            played = await _several(engine, 3, alive, *acts)
            assert alive.most <= limit
            assert engine._shared.cap is not None
            assert (engine._shared.cap.used, engine._shared.cap.promised) == (0, set())
            assert limit < 4 or any(run.hedged for run in played)

            after = Alive()
            many = [step(f"s{i}") for i in range(limit)]
            await play(*many, tools=[Looker(Act(0.5), alive=after)], engine=engine)
            assert after.most == limit


async def test_a_run_that_ends_before_its_loser_gives_the_place_back_after_it() -> None:
    """Its result is there, and the place is not: another run must wait until the call is over."""
    alive = Alive()
    look = Looker(Act(100.0, unwinds=0.6), QUICK, alive=alive)
    began: list[float] = []
    async with Engine(max_running=2, durations=known()) as engine, anyio.create_task_group() as tasks:

        async def other() -> None:
            await anyio.sleep(PATIENCE + 0.6)
            find = Looker(Act(1.0), name="find", alive=alive)
            await play(step("a", "find"), step("b", "find"), tools=[find], engine=engine)
            began.extend(call.began for call in find.calls)

        zero = anyio.current_time()
        tasks.start_soon(other)
        await play(step(), tools=[look], engine=engine)
    assert alive.most == 2
    assert [time - zero for time in began] == [near(PATIENCE + 0.6), near(PATIENCE + 1.1)]


@pytest.mark.parametrize("tokens", [100, 200, 300, 400, 1000])
async def test_a_budget_that_runs_share_counts_second_calls(tokens: int) -> None:
    """At their worst, as all calls; and nothing stays reserved."""
    budget = Budget(max_tokens=tokens)
    async with Engine(budget=budget, durations=known()) as engine:
        acts = (
            Act(30.0, tokens=10),
            Act(0.5, tokens=20),
            Act(1.0, tokens=0, gives=ValueError("no")),
            Act(0.3, tokens=5),
        )
        played = await _several(engine, 3, Alive(), *acts)

    assert [run.result.status for run in played].count(Status.SUCCEEDED) <= 3
    assert not budget.open
    assert not budget.waiting
    assert budget.used()["tokens of all runs"] <= tokens
    assert all(account.reserved == 0 for account in budget.ceilings.accounts)
    if tokens == 1000:
        assert sum(run.result.used.tokens for run in played) == budget.used()["tokens of all runs"]


# Their share ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "most"), [(0.1, 9), (0.01, 4), (0.5, 33)])
async def test_where_everything_has_become_slow_few_get_a_second_call(share: float, most: int) -> None:
    """Twice the calls would make it slower still: three, and a share of the calls, rounded up."""
    look = Looker(Act(10.0))
    hedge = HEDGED.model_copy(update={"max_share": share})
    played = await play(_each(60), tools=[look], hedge=hedge)

    assert len(played.hedged) == most
    assert len(look.calls) == 60 + most
    assert played.result.makespan == near(10.0)


async def test_each_tool_has_a_share_of_its_own() -> None:
    """That one has become slow is nothing to the others."""
    looks = [Looker(Act(10.0)), Looker(Act(10.0), name="find")]
    steps = [step(f"{tool}{i}", tool) for tool in ("look", "find") for i in range(10)]
    await play(*steps, tools=looks, durations=known("look", "find"))
    assert [len(look.calls) for look in looks] == [14, 14]


async def test_the_share_is_one_of_all_runs_of_an_engine() -> None:
    """A service makes many small runs, of which each would have its three."""
    async with Engine(durations=known()) as engine:
        hedged = [len((await play(step(), tools=[Looker(Act(10.0))], engine=engine)).hedged) for _ in range(10)]
    assert hedged == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]


async def test_a_policy_that_is_read_from_json_is_the_same() -> None:
    """The rule is part of the record of a run."""
    policy = Policy(hedge=HEDGED.model_copy(update={"tools": ("look",), "max_share": 0.5}))
    assert Policy.model_validate_json(policy.model_dump_json()) == policy
    for wrong in ({"quantile": 1.0}, {"quantile": 0.4}, {"max_share": 0}, {"min_calls": 0}, {"often": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Policy.model_validate({"hedge": wrong})
