"""Planners without a model: each run gets the written answers, and the rules find the template."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from dagrun import (
    Brief,
    DagrunError,
    Patch,
    Plan,
    Planner,
    Replace,
    Route,
    RouterPlanner,
    StaticPlanner,
    Step,
    Trigger,
    TriggerKind,
)
from dagrun.errors import ContractError, NoRoute
from dagrun.planners.host_plans import MAX_KEPT

pytestmark = pytest.mark.anyio

FAILED = TriggerKind.FAILED


def _patch(name: str) -> Patch:
    return Patch(edits=[Replace(id="load", step=Step(id=name, tool="load"))])


def _plan(name: str, goal: str = "") -> Plan:
    return Plan(steps=[Step(id=name, tool="load", args={"region": "${input.region}"})], goal=goal)


A, B, C = _patch("a"), _patch("b"), _patch("c")
SALES, STOCK = _plan("sales"), _plan("stock")


def _brief(
    *triggers: tuple[str, TriggerKind], run: str = "one", goal: str = "", kind: TriggerKind = FAILED, inputs: Any = None
) -> Brief:
    given = triggers or (("load", kind),)
    return Brief(
        run_id=run,
        goal=goal,
        revision=0,
        triggers=tuple(Trigger(kind, step, "it failed") for step, kind in given),
        steps={},
        results={},
        inputs=inputs,
    )


# Given patches ----------------------------------------------------------------------------------------------


async def test_a_list_is_handed_out_in_order_and_then_there_is_nothing() -> None:
    """`None` in the list means "leave the plan as it is", and uses up one request."""
    planner = StaticPlanner(patches=[A, None, SALES])

    assert [await planner.revise(_brief()) for _ in range(5)] == [A, None, SALES, None, None]


async def test_each_run_gets_the_whole_list() -> None:
    """One planner serves the runs of a service, at the same time and one after another."""
    planner = StaticPlanner(patches=[A, B])

    got = [await planner.revise(_brief(run=run)) for run in ("one", "two", "one", "two", "one", "three")]

    assert got == [A, A, B, B, None, A]


async def test_each_run_gets_every_entry_of_a_mapping() -> None:
    planner = StaticPlanner(patches={"load": A})

    assert [await planner.revise(_brief(run=run)) for run in ("one", "two", "one", "two")] == [A, A, None, None]


async def test_the_step_comes_before_the_kind_and_the_kind_before_anything() -> None:
    """Each entry is used once, so a repeated failure gets the next best one."""
    planner = StaticPlanner(patches={"*": C, "failed": B, "load": A})

    assert [await planner.revise(_brief()) for _ in range(4)] == [A, B, C, None]


async def test_the_first_trigger_that_has_an_entry_wins() -> None:
    planner = StaticPlanner(patches={"send": A, TriggerKind.SURPRISE: B})
    brief = _brief(("load", FAILED), ("clean", TriggerKind.SURPRISE), ("send", FAILED))

    assert [await planner.revise(brief) for _ in range(3)] == [B, A, None]


async def test_an_element_is_found_by_its_own_id_first_and_then_by_that_of_its_step() -> None:
    planner = StaticPlanner(patches={"load": B, "load[2]": A})

    assert [await planner.revise(_brief(("load[2]", FAILED))) for _ in range(2)] == [A, B]


async def test_a_function_gets_the_brief() -> None:
    planner = StaticPlanner(patches=lambda brief: A if brief.triggers[0].step == "load" else None)

    assert [await planner.revise(_brief((step, FAILED))) for step in ("load", "send")] == [A, None]


async def test_what_the_caller_does_to_its_list_later_changes_nothing() -> None:
    listed, mapped = [A], {"load": A}
    planners = [StaticPlanner(patches=listed), StaticPlanner(patches=mapped)]
    listed.clear()
    mapped.clear()

    assert [await planner.revise(_brief()) for planner in planners] == [A, A]


@pytest.mark.parametrize("patches", [[A, B], {"load": A, "*": B}], ids=["list", "mapping"])
async def test_the_memory_of_runs_is_bounded_and_those_in_use_are_kept(patches: Any) -> None:
    """A service makes runs for ever; a run may start over only after 10,000 others have asked."""
    planner = StaticPlanner(patches=patches)
    await planner.revise(_brief(run="old"))
    await planner.revise(_brief(run="used"))
    for number in range(MAX_KEPT - 2):
        await planner.revise(_brief(run=str(number)))
    await planner.revise(_brief(run="used"))
    await planner.revise(_brief(run="new"))
    await planner.revise(_brief(run="another"))

    assert await planner.revise(_brief(run="used")) is None  # got both answers, and is remembered
    assert await planner.revise(_brief(run="old")) == A  # forgotten


async def _not_plain(*_: Any) -> None:
    """An async function where a plain one belongs."""


class _CalledAsync:
    async def __call__(self, *_: Any) -> None:
        """Act like an async function."""


@pytest.mark.parametrize(
    ("patches", "said"),
    [
        ([A, "drop load"], "patches[1] must be a Patch or a Plan, got str"),
        ({"load": None}, "patches['load'] must be a Patch or a Plan, got NoneType"),
        (A, "got Patch"),
        (_not_plain, "not an async one"),
        (_CalledAsync(), "not an async one"),
    ],
)
def test_patches_of_another_kind_are_refused_when_the_planner_is_made(patches: Any, said: str) -> None:
    """In the middle of a run it would be too late."""
    with pytest.raises(ContractError, match=re.escape(said)):
        StaticPlanner(patches=patches)


def test_the_given_plan_comes_out_with_the_goal_if_it_has_none() -> None:
    assert StaticPlanner(SALES).plan() is SALES
    assert StaticPlanner(SALES).plan("sell more").goal == "sell more"
    assert StaticPlanner(SALES).plan("sell more").steps == SALES.steps
    assert StaticPlanner(_plan("sales", goal="its own")).plan("sell more").goal == "its own"


def test_a_planner_without_a_plan_says_so() -> None:
    with pytest.raises(ContractError, match="has no plan"):
        StaticPlanner(patches=[A]).plan()
    with pytest.raises(ContractError, match="must be a Plan, got dict"):
        StaticPlanner({"steps": []})  # type: ignore[arg-type]


# Routes: which one ------------------------------------------------------------------------------------------


def _router(*words: list[str] | Callable[[str, Any], bool], default: bool = False) -> RouterPlanner:
    """Return routes called r0, r1, …, with these words or functions."""
    routes = [Route(f"r{number}", matches, _plan(f"s{number}")) for number, matches in enumerate(words)]
    return RouterPlanner(routes, Route("other", (), _plan("other")) if default else None)


@pytest.mark.parametrize(
    ("goal", "word"),
    [
        ("Show the SALES of May", "sales"),
        ("sales", "Sales"),
        ("(sales)", "sales"),
        ("the sales\n  report, please", "Sales Report"),
        ("Grüße aus der STRASSE", "straße"),
        ("un cafe\u0301", "caf\u00e9"),
        ("port it to c++ now", "C++"),
    ],
)
def test_words_are_found_as_people_write_them(goal: str, word: str) -> None:
    """Upper or lower case, spaces, and the two ways to write an accent make no difference."""
    assert _router([word]).choose(goal).name == "r0"


@pytest.mark.parametrize(
    ("goal", "word"),
    [
        ("wholesales", "sales"),
        ("salesman", "sales"),
        ("sales_2025", "sales"),
        ("report of sales", "sales report"),
        ("sales-report", "sales report"),
        ("abc", "a.c"),
        ("plan abc", "plan a.c"),
        ("", "sales"),
    ],
)
def test_only_whole_words_and_phrases_in_a_row_are_found(goal: str, word: str) -> None:
    """A word is not a pattern: a dot is a dot."""
    with pytest.raises(NoRoute):
        _router([word]).choose(goal)


@pytest.mark.parametrize(
    ("routes", "chosen"),
    [
        ([["sales"], ["stock"]], "r0"),
        ([["stock"], ["sales", "stock"]], "r1"),
        ([["sales"], ["stock of may"]], "r1"),  # a phrase counts as many words as it has
        ([["sales", "stock"], ["may", "of"]], "r0"),  # equal: the order decides
        ([["sales", "Sales", "SALES"], ["stock", "may"]], "r1"),  # a word counts once
        ([["stock", "stock of", "of"], ["sales", "stock", "may"]], "r1"),  # inside of a phrase, too
    ],
)
def test_the_route_that_recognises_the_most_words_wins(routes: list[list[str]], chosen: str) -> None:
    assert _router(*routes).choose("sales and stock of May").name == chosen


def test_a_word_that_comes_twice_in_the_goal_counts_once() -> None:
    assert _router(["sales"], ["stock", "may"]).choose("sales sales sales stock may").name == "r1"


def test_a_function_comes_before_words_and_sees_the_inputs() -> None:
    """A function can examine more than words can."""
    router = _router(
        ["sales", "stock"], lambda goal, inputs: inputs == {"n": 1}, lambda goal, inputs: goal.endswith("stock")
    )

    assert router.choose("sales stock", {"n": 1}).name == "r1"
    assert router.choose("sales stock", {"n": 2}).name == "r2"
    assert router.choose("sales stock.", {"n": 2}).name == "r0"


def test_no_route_tells_the_sentence_of_a_route_that_a_function_decides_about() -> None:
    """A learned route has its goals there: they are what the user may say."""
    plan = Plan(steps=[Step(id="a", tool="t")])
    route = Route("refund", lambda goal, inputs: False, plan, description="Refund order {order}")
    with pytest.raises(NoRoute, match=r"refund: Refund order \{order\}"):
        RouterPlanner([route]).plan("the weather")


def test_the_default_is_taken_only_when_nothing_fits() -> None:
    router = _router(["sales"], default=True)

    assert [router.choose(goal).name for goal in ("sales", "weather")] == ["r0", "other"]


def test_no_route_says_what_there_is() -> None:
    """A user of a service reads this error."""
    with pytest.raises(NoRoute) as caught:
        _router(["sales", "revenue by region"], lambda goal, inputs: False).plan("the weather\x1b[2J")

    assert str(caught.value).splitlines() == [
        r"no route fits the goal 'the weather\x1b[2J'; name one in the goal, or give a default route:",
        "r0: sales, revenue by region",
        "r1: decided by a function",
    ]
    assert caught.value.routes == {"r0": ("sales", "revenue by region"), "r1": ()}
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert isinstance(caught.value, DagrunError)


def test_an_endless_goal_makes_no_endless_error() -> None:
    with pytest.raises(NoRoute) as caught:
        RouterPlanner([Route(f"r{n}", ["x" * 999], SALES) for n in range(999)]).choose("y" * 100_000)

    assert len(str(caught.value)) < 5_000


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Route("r", "sales", SALES), "route r: matches must be a list of words or phrases, got one text"),
        (lambda: Route("r", ["sales", " "], SALES), "route r: matches has ' '"),
        (lambda: Route("r", [1], SALES), "route r: matches has 1"),  # type: ignore[list-item]
        (lambda: Route("r", {"sales"}, SALES), "got set"),  # type: ignore[arg-type]
        (lambda: Route("r", _not_plain, SALES), "route r: matches"),  # type: ignore[arg-type]
        (lambda: Route("r", ["sales"], _not_plain), "not an async one"),  # type: ignore[arg-type]
        (lambda: Route("r", ["sales"], {"steps": []}), "got dict"),  # type: ignore[arg-type]
        (lambda: RouterPlanner([]), "needs a route, or a default"),
        (lambda: RouterPlanner([Route("r", ["a"], SALES), Route("r", ["b"], SALES)]), "same name: r, r"),
        (lambda: RouterPlanner([Route("r", ["a"], SALES)], Route("r", (), SALES)), "same name: r, r"),
        (lambda: RouterPlanner([Route("r", ["a"], SALES, [1])]), "patches[0]"),  # type: ignore[list-item]
    ],
)
def test_routes_that_make_no_sense_are_refused_when_they_are_made(make: Callable[[], object], said: str) -> None:
    """An async function would always be true, and a text would be a list of letters."""
    with pytest.raises(ContractError, match=re.escape(said)):
        make()


# Routes: their plans ----------------------------------------------------------------------------------------


def test_the_template_comes_out_with_the_goal_and_its_references_to_inputs() -> None:
    """The run resolves them, so the text of an input never becomes part of the plan."""
    plan = RouterPlanner([Route("sales", ["sales"], SALES)]).plan("sales", {"region": "${load}"})

    assert (plan.goal, plan.steps[0].args) == ("sales", {"region": "${input.region}"})


def test_a_function_makes_the_plan_of_goal_and_inputs() -> None:
    route = Route("sales", ["sales"], lambda goal, inputs: _plan(f"load_{inputs}", goal=goal.upper()))

    plan = RouterPlanner([route]).plan("sales", 7)

    assert (plan.goal, plan.steps[0].id) == ("SALES", "load_7")


def test_a_function_that_gives_no_plan_is_named() -> None:
    route = Route("sales", ["sales"], lambda goal, inputs: None)  # type: ignore[arg-type, return-value]

    with pytest.raises(ContractError, match="route sales: its function gave NoneType"):
        RouterPlanner([route]).plan("sales")


# Routes: changes --------------------------------------------------------------------------------------------


async def test_a_changed_goal_is_answered_with_the_plan_of_its_route() -> None:
    router = RouterPlanner([Route("sales", ["sales"], SALES, [A]), Route("stock", ["stock"], STOCK, [B])])
    router.plan("sales")
    brief = _brief(("load", FAILED), ("", TriggerKind.GOAL_CHANGED), goal="stock")

    assert await router.revise(brief) == STOCK.model_copy(update={"goal": "stock"})
    assert await router.revise(_brief(goal="stock")) == B  # from then on its patches count


async def test_a_changed_goal_that_nothing_fits_is_an_error() -> None:
    """The coordinator turns it into a failed replan with this message."""
    with pytest.raises(NoRoute, match="no route fits the goal 'weather'"):
        await _router(["sales"]).revise(_brief(("", TriggerKind.GOAL_CHANGED), goal="weather"))


async def test_any_other_trigger_gets_the_patches_of_the_route_for_each_run_anew() -> None:
    router = RouterPlanner([Route("sales", ["sales"], SALES, {"load": A}), Route("stock", ["stock"], STOCK, [B, C])])

    got = [
        await router.revise(_brief(goal=goal, run=run))
        for goal, run in (("sales", "1"), ("sales", "1"), ("sales", "2"), ("stock", "3"), ("stock", "3"), ("tea", "4"))
    ]

    assert got == [A, None, A, B, C, None]


async def test_the_patches_of_the_default_count_too() -> None:
    router = RouterPlanner([Route("sales", ["sales"], SALES)], Route("other", (), STOCK, [A]))
    also = Route("stock", ["stock"], STOCK, [B])

    assert await router.revise(_brief(goal="weather")) == A
    assert await RouterPlanner([also], also).revise(_brief(goal="weather")) == B


async def test_the_patches_are_those_of_the_plan_that_was_given_whatever_chose_it() -> None:
    """A brief shows the goal of the template and not the goal of the user, and perhaps only the shape of the inputs."""
    by_inputs = Route("csv", lambda goal, inputs: inputs["format"] == "csv", SALES, [A])
    own_goal = Route("stock", ["stock"], _plan("stock", goal="Count everything"), [B])
    router = RouterPlanner([by_inputs, own_goal])

    first = router.plan("tables", {"format": "csv"})
    second = router.plan("stock", {"format": "xml"})

    shape = {"format": "a text of 3 characters"}
    assert await router.revise(_brief(run="1", goal=first.goal, inputs=shape)) == A
    assert await router.revise(_brief(run="2", goal=second.goal, inputs=shape)) == B


async def test_functions_never_see_the_inputs_of_a_brief() -> None:
    """The brief may show only a shape, and a plan made from "a text of 3 characters" would be silently wrong."""
    seen: list[Any] = []

    def plan(goal: str, inputs: Any) -> Plan:
        seen.append(inputs)
        return SALES

    def fits(goal: str, inputs: Any) -> bool:
        seen.append(inputs)
        return True

    brief = _brief(("", TriggerKind.GOAL_CHANGED), goal="sales", inputs={"region": "a text of 3 characters"})
    await RouterPlanner([Route("sales", fits, plan)]).revise(brief)

    assert seen == [None, None]


def test_both_are_planners() -> None:
    """For the type checker: this assignment is the test."""
    planners: list[Planner] = [StaticPlanner(), RouterPlanner([Route("sales", ["sales"], SALES)])]

    assert len(planners) == 2
