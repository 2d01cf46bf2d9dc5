"""Simulated runs are runs: the engine is the real one, figures are exact where durations are, and luck is shared."""

import asyncio
import dataclasses
import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from math import exp, isinf, log
from random import Random
from statistics import NormalDist
from typing import Annotated, Any

import pytest
from pydantic import SecretStr

import dagrun
from dagrun import Policy, Simulation, Status, simulate
from dagrun.extend import Durations
from folders import python_path


class Client:
    """What a tool gets by its type."""


@dagrun.tool(effect="read")
async def fetch(n: int = 0) -> list[dict[str, Any]]:
    raise AssertionError("no tool is called")


@dagrun.tool(effect="read")
async def look(row: Any) -> dict[str, Any]:
    raise AssertionError("no tool is called")


@dagrun.tool(effect="effectful")
def save(rows: Any = None) -> str:
    raise AssertionError("no tool is called")


@dagrun.tool(effect="effectful", needs_approval=True)
async def pay(n: int = 0) -> str:
    raise AssertionError("no tool is called")


@dagrun.tool(effect="read", cache="run")
async def kept(n: Any = 0) -> Any:
    raise AssertionError("no tool is called")


@dagrun.tool(effect="read")
async def guarded(key: SecretStr, client: Annotated[Client, dagrun.dep]) -> str:
    raise AssertionError("no tool is called")


TOOLS = [fetch, look, save, pay, kept, guarded]


def plan(*steps: Mapping[str, Any]) -> str:
    return json.dumps({"steps": steps})


def calls_of(tool: str, *ids: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": id_, "tool": tool, **fields} for id_ in ids]


def one(simulation: Simulation) -> dagrun.Variant:
    (variant,) = simulation.variants
    return variant


DIAMOND = plan(
    *calls_of("fetch", "a", "b"),
    {"id": "c", "tool": "look", "args": {"row": "${a[0]}"}},
    {"id": "end", "tool": "save", "args": {"rows": ["${b[1].n}", "${c.n}"]}},
)
THREE = plan(*calls_of("fetch", "a", "b", "c"))


# Times ----------------------------------------------------------------------------------------------------------------


def test_a_makespan_is_that_of_the_real_engine() -> None:
    """With constant durations it is the critical path; with one place, the sum."""
    durations = {"fetch": 1, "b": 4.0, "look": 0.5, "save": 2}
    found = simulate(DIAMOND, TOOLS, runs=3, durations=durations, vary={"max_running": [None, 1]})

    free, alone = found.variants
    assert free.makespans == pytest.approx([6, 6, 6])
    assert alone.makespans == pytest.approx([7.5, 7.5, 7.5])
    assert (free.success, free.calls, free.cost) == (1, 12, None)
    assert free.critical == {"b": 3, "end": 3}


@pytest.mark.rigs
@pytest.mark.parametrize(
    ("text", "inverse"),
    [
        ("0.3", lambda u: 0.3),
        ("uniform(1, 3)", lambda u: 1 + 2 * u),
        ("exp(2)", lambda u: -2 * log(1 - u)),
        ("lognorm(0.2,0.8)", lambda u: 0.2 * exp(0.8 * NormalDist().inv_cdf(u))),
    ],
)
def test_durations_have_their_distribution(text: str, inverse: Any) -> None:
    variant = one(simulate(plan(*calls_of("fetch", "a")), TOOLS, runs=2_000, seed=1, durations={"fetch": text}))

    for q in (0.05, 0.5, 0.95):
        low, high = variant.interval(q)
        assert low * 0.97 <= inverse(q) <= high * 1.03
        assert low <= variant.quantile(q) <= high


@pytest.mark.rigs
def test_learned_durations_come_back() -> None:
    random, learned = Random(5), Durations()
    seen = sorted(random.lognormvariate(-1, 0.7) for _ in range(900))
    for seconds in seen:
        learned.add("fetch", seconds)
    found = simulate(plan(*calls_of("fetch", "a")), TOOLS, runs=3_000, learned=learned)

    for q in (0.1, 0.5, 0.95):
        assert one(found).quantile(q) == pytest.approx(seen[int(q * len(seen))], rel=0.08)
    assert found.durations == {"fetch": "learned from 900 calls"}


def test_a_name_counts_before_what_was_learned_and_that_before_an_estimate() -> None:
    learned = Durations()
    for _ in range(5):
        learned.add("fetch", 3.0)
    steps = [*calls_of("fetch", "a", estimate=9.0), *calls_of("look", "b", estimate=2.0, args={"row": {}})]

    found = simulate(plan(*steps), TOOLS, runs=1, learned=learned)
    assert one(found).makespans == pytest.approx([3], rel=0.06)
    assert found.durations == {"fetch": "learned from 5 calls", "b": "2 s"}
    assert "few calls were recorded of fetch (5): their tail is not known" in found.notes

    assert one(simulate(plan(*steps), TOOLS, runs=1, learned=learned, durations={"fetch": 1})).makespans == [2]
    by_id = simulate(plan(*steps), TOOLS, runs=1, durations={"fetch": 1, "a": 7})
    assert one(by_id).makespans == [7]


def test_people_take_their_time() -> None:
    found = simulate(plan(*calls_of("pay", "a")), TOOLS, runs=2, durations={"pay": 1}, people=60)

    assert one(found).makespans == pytest.approx([61, 61])
    assert "people say yes to everything" in found.notes


def test_an_agent_keeps_the_limits_of_the_tools_that_it_calls() -> None:
    agent = dataclasses.replace(dagrun.Toolbox([fetch])["fetch"], name="agent", inner_tools=(look, guarded))
    two = dagrun.check(plan(*calls_of("agent", "a", "b")), [agent], policy=Policy(max_running_by_tool={"look": 1}))

    assert one(simulate(two, runs=1, durations={"agent": 3})).makespans == pytest.approx([6])


# Luck -----------------------------------------------------------------------------------------------------------------

_DRAWN = {"fetch": "exp(1)", "look": "lognorm(1, 1)", "save": "uniform(0, 1)"}


def test_variants_share_their_luck_whatever_order_they_call_in() -> None:
    """Of three independent calls, the run with one place lasts as long as all together, with three as the longest."""
    found = simulate(THREE, TOOLS, runs=50, durations=_DRAWN, vary={"max_running": [1, 2, 3, None]})

    one_place, two, three, free = (variant.makespans for variant in found.variants)
    assert three == pytest.approx(free)
    for alone, pair, all_three in zip(one_place, two, three, strict=True):
        assert all_three <= pair + 1e-9 <= alone + 2e-9
        assert alone < 3 * all_three
    # The sum of three exponential durations says what the third one was, if the two others are known.
    singles = [
        one(simulate(plan(*calls_of("fetch", id_)), TOOLS, runs=50, durations=_DRAWN)).makespans for id_ in "abc"
    ]
    assert [sum(parts) for parts in zip(*singles, strict=True)] == pytest.approx(one_place)


@pytest.mark.rigs
def test_a_second_call_leaves_the_luck_of_all_others_as_it_was() -> None:
    """A hedged run is never slower: its first calls are those of the run without, and the second one only helps."""
    steps = plan(*calls_of("fetch", *(f"f{i}" for i in range(8))))
    found = simulate(steps, TOOLS, runs=300, durations={"fetch": "lognorm(0.1, 1)"}, vary={"hedge": [False, True]})

    off, on = found.variants
    assert on.calls > off.calls == 2_400
    assert all(hedged <= plain + 1e-9 for plain, hedged in zip(off.makespans, on.makespans, strict=True))
    assert on.slower_than(off, 0.5)[1] < 0


def test_draws_differ_by_run_step_attempt_element_and_seed() -> None:
    each = {"id": "e", "tool": "look", "for_each": "${a}", "args": {"row": "${item}"}}
    found = simulate(
        plan(*calls_of("fetch", "a", "b"), each),
        TOOLS,
        runs=50,
        items={"a": 4},
        durations={"a": 0, "b": 0, "look": "exp(1)"},
        vary={"max_running": [None, 1]},
    )
    free, alone = (variant.makespans for variant in found.variants)

    assert len(set(free)) == 50
    assert sum(alone) / sum(free) == pytest.approx(4 / (1 + 1 / 2 + 1 / 3 + 1 / 4), rel=0.25)  # equal draws give 4
    other = simulate(THREE, TOOLS, runs=5, seed=1, durations=_DRAWN)
    assert one(other).makespans != one(simulate(THREE, TOOLS, runs=5, durations=_DRAWN)).makespans


def test_each_attempt_has_luck_of_its_own() -> None:
    """With 3 attempts of which half fail, an eighth of the runs fails; with equal draws it would be a half."""
    policy = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=3, first_delay=0.1))
    found = simulate(
        plan(*calls_of("fetch", "a")), TOOLS, policy=policy, runs=250, durations={"fetch": 1}, failures={"fetch": "0.5"}
    )

    low, high = one(found).success_interval
    assert low < 7 / 8 < high


_PROGRAM = """
import json, sys
sys.path[:0] = ["tests/evaluate"]
import test_simulate
print(json.dumps(test_simulate.figures()))
"""


def figures() -> dict[str, Any]:
    """All figures of a simulation with everything in it, for this process and another one."""
    policy = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=3))
    each = {"id": "e", "tool": "look", "for_each": "${a}", "args": {"row": "${item}"}}
    found = simulate(
        plan(*calls_of("fetch", "a", "b"), each, *calls_of("pay", "p", depends_on=["b"])),
        TOOLS,
        policy=policy,
        runs=40,
        seed=11,
        durations={**_DRAWN, "pay": 1},
        failures={"fetch": "0.2:busy", "look": "0.1:bug"},
        people="exp(5)",
        vary={"max_running": [2, None], "hedge": [False, True]},
    )
    return found.as_dict() | {"all": [variant.makespans for variant in found.variants]}


@pytest.mark.rigs
@pytest.mark.real_time
def test_equal_seeds_give_equal_figures_in_another_process_too() -> None:
    ours = json.loads(json.dumps(figures()))
    environment = {"PYTHONHASHSEED": "77", "PYTHONPATH": python_path()}
    said = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, env=environment, check=True)

    assert json.loads(said.stdout) == ours


def test_a_run_leaves_nothing_for_the_next_one() -> None:
    """Neither the calls of a minute, nor a kept result: each run is the first one of a service."""
    policy = dagrun.Policy(pools={"api": dagrun.PoolLimits(requests_per_minute=20)})
    steps = [{**step, "pool": "api"} for step in calls_of("kept", "a", "b", "c", "d")]
    for n, step in enumerate(steps):
        step["args"] = {"n": n % 2}
    found = one(simulate(plan(*steps), TOOLS, policy=policy, runs=4, durations={"kept": 1}))

    assert found.calls == 4 * 4  # an attempt that shares a result is an attempt
    assert found.makespans == pytest.approx([found.makespans[0]] * 4)


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "status", "calls", "seconds"),
    [
        ("connection", Status.FAILED, 2, 2),
        ("busy", Status.FAILED, 2, 2),
        ("refused", Status.FAILED, 1, 1),
        ("bug", Status.FAILED, 1, 1),
        ("timeout", Status.FAILED, 2, 10),
    ],
)
def test_calls_fail_as_real_ones_do(how: str, status: Status, calls: int, seconds: float) -> None:
    policy = dagrun.Policy(timeout=5.0, retry=dagrun.RetryRule(max_attempts=2, first_delay=0))
    found = one(
        simulate(
            plan(*calls_of("fetch", "a")),
            TOOLS,
            policy=policy,
            runs=2,
            durations={"fetch": 1},
            failures={"fetch": f"1:{how}"},
        )
    )

    assert found.statuses == {status: 2}
    assert found.calls == 2 * calls
    assert found.makespans == pytest.approx([seconds] * 2)


def test_an_effect_whose_call_broke_is_unknown() -> None:
    found = simulate(plan(*calls_of("save", "a")), TOOLS, runs=2, durations={"save": 1}, failures={"save": 1.0})

    assert one(found).statuses == {Status.UNKNOWN: 2}
    assert "no planner is asked: a step that has failed for good is not replanned" in found.notes


def test_failures_are_as_frequent_as_said() -> None:
    found = one(simulate(THREE, TOOLS, runs=600, durations={"fetch": 1}, failures={"fetch": "0.1:refused"}))

    low, high = found.success_interval
    assert low < 0.9**3 < high
    assert high - low < 0.08


# What steps return ----------------------------------------------------------------------------------------------------


def test_an_output_has_what_the_plan_refers_to() -> None:
    steps = plan(
        *calls_of("fetch", "a"),
        {"id": "b", "tool": "look", "for_each": "${a}", "args": {"row": "${item.x[2].y}"}},
        {"id": "c", "tool": "look", "for_each": "${b}", "args": {"row": "${item.z}"}},
        {"id": "end", "tool": "save", "args": {"rows": ["${a[1].q}", "${c}"]}},
    )
    found = one(simulate(steps, TOOLS, runs=2, durations={"fetch": 1, "look": 1, "save": 1}, items={"a": 7}))

    assert found.statuses == {Status.SUCCEEDED: 2}
    assert found.calls == 2 * (1 + 7 + 7 + 1)


def test_a_condition_counts_if_what_it_looks_at_is_given() -> None:
    steps = plan(
        *calls_of("kept", "a"),
        *calls_of("fetch", "b", when={"ref": "a", "op": ">", "value": 5}),
    )
    durations = {"kept": 1, "fetch": 1}

    held = simulate(steps, TOOLS, runs=1, durations=durations)
    assert one(held).calls == 2
    assert "conditions that are taken to hold, as the outputs they look at are not given: b" in held.notes
    for value, calls in ((9, 2), (1, 1)):
        given = simulate(steps, TOOLS, runs=1, durations=durations, outputs={"a": value})
        assert one(given).calls == calls
        assert not any("conditions" in note for note in given.notes)


def test_made_up_arguments_make_no_calls_equal() -> None:
    """A tool that keeps results makes one call of equal ones; what is made up is equal only in the simulation."""
    uses = {"id": "end", "tool": "fetch", "args": {"n": "${b.rows[1]}"}}
    known = plan(*calls_of("kept", "a", "b", args={"n": 1}), uses)
    made_up = plan(
        *calls_of("fetch", "x", "y"),
        {"id": "a", "tool": "kept", "args": {"n": "${x[0].n}"}},
        {"id": "b", "tool": "kept", "args": {"n": "${y[0].n}"}},
    )
    durations = {"fetch": 0, "kept": 1}
    policy = dagrun.Policy(max_running=1)

    assert one(simulate(known, TOOLS, policy=policy, runs=1, durations=durations)).makespans == [1]
    apart = simulate(known, TOOLS, policy=policy, runs=1, durations={"kept": 1, "b": 3, "fetch": 0})
    assert one(apart).makespans == [4]
    assert one(simulate(made_up, TOOLS, policy=policy, runs=1, durations=durations)).makespans == [2]


def test_costs_are_added_up() -> None:
    found = one(simulate(THREE, TOOLS, runs=4, durations={"fetch": 1}, costs={"fetch": 0.5, "b": 2}))

    assert found.cost == pytest.approx(4 * 3)


# Around it ------------------------------------------------------------------------------------------------------------


def test_secrets_and_dependencies_are_not_needed() -> None:
    steps = plan({"id": "a", "tool": "guarded", "args": {"key": {"$secret": "crm"}}})
    checked = dagrun.check(steps, TOOLS, secrets={"crm": dagrun.Secret("k9Xb27Qz81")})

    assert one(simulate(checked, runs=1, durations={"guarded": 1})).success == 1


def test_it_works_where_a_loop_runs() -> None:
    async def main() -> Simulation:
        return simulate(THREE, TOOLS, runs=2, durations={"fetch": 1})

    assert one(asyncio.run(main())).makespans == [1, 1]


@pytest.mark.real_time
def test_simulated_failures_are_not_logged_and_real_ones_are(caplog: pytest.LogCaptureFixture) -> None:
    @dagrun.tool(effect="read")
    async def fail() -> None:
        raise ValueError("this one is real")

    def tell(variant: dagrun.Variant) -> None:
        logging.getLogger("dagrun.run").warning("a host logs")

    with caplog.at_level(logging.DEBUG):
        simulate(THREE, TOOLS, runs=3, durations={"fetch": 1}, failures={"fetch": 1.0}, on_variant=tell)
        assert [record.getMessage() for record in caplog.records if record.name.startswith("dagrun")] == ["a host logs"]
        dagrun.run_sync(plan(*calls_of("fail", "a")), tools=[fail])
    assert "this one is real" in caplog.text


def test_variants_are_compared_run_by_run() -> None:
    """By rank, these two would be equal for sure; by run, each is far from the other."""
    one = dagrun.Variant("one", makespans=[float(n) for n in range(1_000)])
    other = dagrun.Variant("other", makespans=[*reversed(one.makespans)])

    low, high = other.slower_than(one, 0.5)

    assert low < -20
    assert high > 20


def test_json_has_every_figure_and_null_where_nothing_is_bounded() -> None:
    found = simulate(THREE, TOOLS, runs=60, durations=_DRAWN, vary={"max_running": [1, None]})
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))

    first, second = plain["variants"]
    assert isinf(found.variants[0].interval(0.99)[1])
    assert first["makespan"]["p99"]["interval"][1] is None
    assert first["makespan"]["p50"]["value"] == found.variants[0].quantile(0.5)
    assert second["slower_than_first"]["p50"][1] < 0
    assert second["settings"] == {"max_running": None}
    assert sum(first["statuses"].values()) == 60


def test_what_is_not_simulated_is_said() -> None:
    notes = simulate(DIAMOND, TOOLS, runs=1, durations={"fetch": 1, "look": 1, "save": 1}).notes

    assert "no call fails, as no failure rate is given" in notes
    assert "there is a thread or a process for each call that wants one" in notes
    assert any("whatever the load is" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"durations": {}}, "how long fetch takes is not known"),
        ({"durations": {"fetch": "soon"}}, "fetch: a duration is seconds (0.3), uniform(LOW, HIGH)"),
        ({"durations": {"fetch": -1}}, "not '-1'"),
        ({"durations": {"fetch": "uniform(3, 1)"}}, "not 'uniform(3, 1)'"),
        ({"durations": {"fetch": 1, "fetsch": 1}}, "did you mean fetch?"),
        ({"failures": {"fetch": 2}}, "fetch: a failure rate is a part from 0 to 1, not 2"),
        ({"failures": {"fetch": "0.1:often"}}, "calls fail with timeout, connection, busy, refused, bug"),
        ({"failures": {"fetch": "seldom"}}, "0.02:timeout; not 'seldom'"),
        ({"outputs": {"fetch": 1}}, "an output was given for fetch, which is not a step of the plan"),
        ({"items": {"a": -1}}, "a: a number of elements is 0 or more, got -1"),
        ({"costs": {"a": float("nan")}}, "a: the cost of a call is 0 or more, got nan"),
        ({"vary": {"max_runing": [1]}}, "a policy has no field max_runing; did you mean max_running?"),
        ({"vary": {"max_running": 4}}, "a list of values is wanted, got 4"),
        ({"vary": {"max_running": [0]}}, "vary max_running=0: max_running:"),
        ({"vary": {"max_running": range(1, 66)}}, "65 variants are over the limit of 64"),
        ({"vary": {"retry.max_attempts": ["x"]}}, "retry.max_attempts"),
        ({"runs": 0}, "runs is at least 1, got 0"),
        ({"people": "later"}, "not 'later'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(dagrun.errors.ContractError) as caught:
        simulate(THREE, TOOLS, **{"durations": {"fetch": 1}, "runs": 1, **options})

    assert says in str(caught.value)


def test_a_plan_with_problems_is_refused_and_so_is_one_that_a_variant_refuses() -> None:
    with pytest.raises(dagrun.PlanRefused):
        simulate(plan(*calls_of("nobody", "a")), TOOLS)
    with pytest.raises(dagrun.PlanRefused, match="max_steps"):
        simulate(THREE, TOOLS, runs=1, durations={"fetch": 1}, vary={"max_steps": [10, 2]})


def test_variants_are_every_combination_in_order() -> None:
    told: list[str] = []
    vary: dict[str, Sequence[Any]] = {"max_running": [1, None], "retry.max_attempts": [1, 2]}
    found = simulate(THREE, TOOLS, runs=1, durations={"fetch": 1}, vary=vary, on_variant=lambda v: told.append(v.name))

    names = [variant.name for variant in found.variants]
    assert names == told
    assert names[:2] == ["max_running=1, retry.max_attempts=1", "max_running=1, retry.max_attempts=2"]
    assert len(names) == 4
