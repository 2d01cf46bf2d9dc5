"""Comparisons: every way meets the same cases, under ceilings for all of them, and what was found is kept."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dagrun
from dagrun import (
    Brief,
    FallbackChain,
    Patch,
    Plan,
    Planner,
    Replace,
    RunVariant,
    StaticPlanner,
    Step,
    VariantComparison,
    compare,
)
from dagrun.errors import CasesRefused, ContractError
from dagrun.evaluate.cases.load_cases import CaseHost
from dagrun.evaluate.comparison.compare import Comparing
from dagrun.evaluate.comparison.comparison_text import markdown_of, text_of
from dagrun.kernel.model.planner import Revision
from dagrun.kernel.model.usage import METER
from scripted_model import Said, ScriptedModel

pytestmark = pytest.mark.real_time  # a virtual clock of its own

# Carrying out ---------------------------------------------------------------------------------------------------------

TOOLS = Path(__file__).parent / "golden" / "golden_tools.py"
CASES = """
tools: {tools}
world:
  search: {{takes: 1, return: [a]}}
  notify: sent
cases:
  - {{id: short, goal: Tell ann, expect: {{calls: {{once: [notify]}}}}}}
  - {{id: long, goal: Tell bob, seed: 5, expect: {{calls: {{once: [notify]}}}}}}
  - {{id: planned, plan: {{steps: [{{id: a, tool: search, args: {{query: x}}}}]}}}}
"""
TELL: dict[str, Any] = {"id": "tell", "tool": "notify", "args": {"to": "ann", "text": "x"}}
LOOK: dict[str, Any] = {"id": "look", "tool": "search", "args": {"query": "x"}}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    file = tmp_path / "cases.yaml"
    file.write_text(CASES.format(tools=TOOLS), encoding="utf-8")
    return file


def planner(*steps: dict[str, Any]) -> Callable[[], StaticPlanner]:
    return lambda: StaticPlanner(Plan.model_validate({"steps": steps}))


class Spender:
    """A planner that uses tokens, at a price, and then has a plan."""

    def __init__(self, tokens: int, cost: float | None) -> None:
        self._used = (tokens, cost)

    async def revise(self, brief: Brief) -> Revision:
        meter = METER.get()
        assert meter is not None
        meter.reserve("model", *self._used).settle(*self._used)
        return Plan.model_validate({"steps": [TELL], "confidence": 1})


def test_every_way_meets_every_case_with_the_same_seeds(cases: Path) -> None:
    found = compare(cases, {"two": planner(TELL, {**LOOK, "depends_on": ["tell"]}), "one": planner(TELL)}, runs=3)
    keys = [[(run.case, run.seed) for run in found.of(way)] for way in found.variants]

    assert keys[0] == keys[1]
    assert sorted(keys[0]) == [
        *(("cases.yaml:long", seed) for seed in (5, 6, 7)),
        *(("cases.yaml:short", seed) for seed in (0, 1, 2)),
    ]
    assert (found.is_virtual, found.left_out, found.done) == (True, ("cases.yaml:planned",), 6)
    assert found.figures("two").seconds == pytest.approx(1)
    assert found.figures("one").seconds == pytest.approx(0)


def test_a_way_is_a_planner_or_a_function_or_a_class_that_makes_one(cases: Path) -> None:
    class OfMyOwn:
        async def revise(self, brief: Brief) -> Revision:
            return Plan.model_validate({"steps": [TELL], "confidence": 1})

    ways: dict[str, Any] = {
        "class": OfMyOwn,
        "object": OfMyOwn(),
        "function": planner(TELL),
        "way": RunVariant(planner=OfMyOwn),
    }

    assert all(run.passed for run in compare(cases, ways, runs=1).samples)


def test_ways_take_turns_in_who_begins(cases: Path) -> None:
    begun: list[str] = []

    def noted(name: str) -> Callable[[], StaticPlanner]:
        def make() -> StaticPlanner:
            begun.append(name)
            return planner(TELL)()

        return make

    comparing = Comparing(cases, {"a": noted("a"), "b": noted("b")}, runs=4, only=["short"])
    begun.clear()
    comparing.carry_out()

    assert "".join(begun) == "abbaabba"


def test_a_ceiling_holds_for_all_runs_together(cases: Path) -> None:
    ways = {"a": lambda: Spender(100, 0.25), "b": lambda: Spender(100, 0.25)}
    found = compare(cases, ways, runs=10, max_cost=1.6)

    assert sum(run.cost or 0.0 for run in [*found.samples, *found.unpaired]) <= 1.6
    assert (found.done, len(found.unpaired)) == (3, 1)  # the seventh did not fit, and is no failure of its way
    assert "ceiling of the comparison" in found.stopped
    assert all(run.passed for run in found.samples)
    assert len(compare(cases, ways, runs=10, max_tokens=450).samples) == 4


JUDGES = """
from dagrun import Verdict
from dagrun.errors import OverCeiling
from dagrun.kernel.model.usage import METER

class Judge:
    name = "judge"
    cost = 0.5

    async def review(self, step, outcome):
        charge = METER.get().reserve("judging model", 100, self.cost)
        charge.settle(100, self.cost)
        return Verdict("pass")

class Unpriced(Judge):
    cost = None

class Careless(Judge):
    async def review(self, step, outcome):
        try:
            return await super().review(step, outcome)
        except OverCeiling:
            return Verdict("pass")

class Wrapping(Judge):
    async def review(self, step, outcome):
        try:
            return await super().review(step, outcome)
        except OverCeiling as error:
            raise RuntimeError("judge is away") from error
"""

MARKING = """
import dagrun
from scripted_model import ScriptedModel

def Marking():
    return dagrun.RubricCritic(ScriptedModel(), "It is good.")
"""


def judged(folder: Path, critic: str, **ceilings: Any) -> VariantComparison:
    """Let a critic judge the answers of two ways that use nothing."""
    module = f"judges_of_{folder.name}.py"  # modules are known by their names
    (folder / module).write_text(JUDGES, encoding="utf-8")
    case = one_case(folder, expect={"critic": f"{module}:{critic}"})
    return compare(case, {"a": planner(TELL), "b": planner(TELL)}, runs=10, **ceilings)


@pytest.mark.parametrize("critic", ["Judge", "Careless", "Wrapping"])
@pytest.mark.parametrize("ceilings", [{"max_cost": 2.75}, {"max_tokens": 590}])
def test_a_judge_of_answers_keeps_to_the_ceilings_of_the_comparison(
    tmp_path: Path, critic: str, ceilings: dict[str, Any]
) -> None:
    """What it uses is no figure of a way. A run that it could not judge is not counted, whatever the critic says."""
    found = judged(tmp_path, critic, **ceilings)

    assert (found.judges.tokens, found.judges.cost) == (500, 2.5)
    assert found.as_dict()["judges"] == {"tokens": 500, "cost": 2.5}
    assert (found.done, len(found.unpaired)) == (2, 2)  # the sixth judgement did not fit
    assert "did not suffice for the judge of an answer: ceiling of " in found.stopped
    assert all(run.passed and not run.tokens and not run.cost for run in found.samples)


def test_a_ceiling_of_cost_needs_the_price_of_a_judge(tmp_path: Path) -> None:
    assert judged(tmp_path, "Unpriced", max_cost=1).stopped.startswith("what the judge of case one costs is not known")


def test_a_judge_is_counted_without_a_ceiling(tmp_path: Path) -> None:
    found = judged(tmp_path, "Judge")

    assert (found.stopped, found.judges.tokens, found.judges.cost) == ("", 2_000, 10.0)


class Mending(Spender):
    """A planner that mends what has failed, at the same price."""

    async def revise(self, brief: Brief) -> Revision:
        await super().revise(brief)
        if brief.is_first:
            return Plan.model_validate({"steps": [TELL], "confidence": 1})
        return Patch(edits=[Replace(id="tell", step=Step.model_validate({**TELL, "id": "t2"} | TO_BOB))])


TO_BOB: dict[str, Any] = {"args": {"to": "bob", "text": "x"}}
FAILS_FOR_ANN = {"notify": [{"when": {"to": "ann"}, "raise": {"tool_error": "no"}}, {"return": "sent"}]}


@pytest.mark.parametrize(
    ("make", "ceiling", "done"),
    [
        (lambda: FallbackChain(Spender(100, 0.25), planner({**TELL, **TO_BOB})()), 0.6, 2),  # goes on with a lower rung
        (lambda: Mending(100, 0.25), 1.3, 2),  # ends as failed: there was no room for its repair
    ],
)
def test_a_run_that_the_ceiling_of_all_has_refused_a_call_is_no_fair_run(
    cases: Path, make: Callable[[], Planner], ceiling: float, done: int
) -> None:
    file = cases.with_name("fails.yaml")
    world = {"world": FAILS_FOR_ANN, "expect": {"calls": {"must": ["notify"]}}}
    case = {"id": "one", "goal": "Tell", **(world if ceiling > 1 else {})}
    file.write_text(json.dumps({"tools": str(TOOLS), "world": {"notify": "sent"}, "cases": [case]}), encoding="utf-8")
    found = compare(file, {"dear": make, "free": planner({**TELL, **TO_BOB})}, runs=10, max_cost=ceiling)

    assert "did not suffice for a run" in found.stopped
    assert (found.done, len({run.cost for run in found.of("dear")})) == (done, 1)
    assert found.of("dear")[0].cost
    assert all(run.passed for run in found.samples)


def test_an_agent_that_what_is_left_has_ended_is_no_fair_run(tmp_path: Path) -> None:
    """It may use what is left, so the ceiling of all runs refuses nothing itself."""
    agent = RunVariant(agent=lambda: ScriptedModel(Said(text=json.dumps({"thought": "", "answer": "done"}), cost=1.0)))
    found = compare(one_case(tmp_path), {"agent": agent, "plan": planner(TELL)}, runs=3, max_cost=2.5)

    assert "did not suffice for a run" in found.stopped
    assert found.done == 2
    assert all(run.passed for run in found.samples)


@pytest.mark.parametrize("text", ["ceiling max_cost of 9 is what I say", "ceiling max_tokens of all"])
def test_an_agent_that_speaks_of_a_ceiling_has_failed(tmp_path: Path, text: str) -> None:
    """What ended it is known by the error, and not by what a model or a tool has said."""
    agent = RunVariant(agent=lambda: ScriptedModel(Said(text=json.dumps({"thought": "", "cannot": text}), cost=1.0)))
    found = compare(
        one_case(tmp_path), {"agent": agent, "plan": planner(TELL)}, runs=2, max_cost=9, max_tokens=1_000_000
    )

    assert (found.stopped, found.done) == ("", 2)
    assert {(run.variant, run.passed) for run in found.samples} == {("agent", False), ("plan", True)}


def test_a_ceiling_of_a_policy_is_of_each_run_and_fails_its_way(cases: Path) -> None:
    ways: dict[str, Any] = {
        "poor": RunVariant(planner=lambda: Spender(100, 1.0), policy={"max_cost": 0.5}),
        "rich": lambda: Spender(100, 1.0),
    }
    found = compare(cases, ways, runs=2, max_cost=100)

    assert {run.status for run in found.of("poor")} == {"over_budget"}
    assert (found.stopped, found.done) == ("", 4)
    assert all(run.passed for run in found.of("rich"))


def test_a_ceiling_of_cost_needs_costs_that_are_known(cases: Path) -> None:
    found = compare(cases, {"a": lambda: Spender(100, None), "b": planner(TELL)}, max_cost=1)

    assert found.done == 0
    assert found.stopped == "what variant a costs is not known, so no ceiling can hold it: name prices"


def test_an_interruption_leaves_what_was_found(cases: Path) -> None:
    told = iter(range(5))

    def tell(text: str) -> None:
        if next(told) == 4:
            raise KeyboardInterrupt

    comparing = Comparing(cases, {"a": planner(TELL), "b": planner(TELL)}, only=["short"])
    with pytest.raises(KeyboardInterrupt):
        comparing.carry_out(tell=tell)

    assert comparing.comparison.done == 2
    assert comparing.comparison.as_dict()["pairs"][0]["seconds"]["pairs"] == 2


def test_the_policy_of_a_way_is_laid_over_that_of_the_case(cases: Path) -> None:
    file = cases.with_name("more.yaml")
    file.write_text(cases.read_text(encoding="utf-8") + "policy: {max_steps: 1, timeout: 9}\n", encoding="utf-8")
    both = planner(LOOK, TELL)
    found = compare(file, {"tight": both, "wide": RunVariant(planner=both, policy={"max_steps": 2})}, runs=1)

    assert [run.passed for run in found.samples] == [False, True, False, True]


def test_a_case_keeps_its_own_planner_where_a_way_has_none(cases: Path) -> None:
    (cases.parent / "planner_of_compared_cases.py").write_text(
        "import dagrun\n"
        "def planner():\n"
        f"    return dagrun.StaticPlanner(dagrun.Plan.model_validate({{'steps': [{TELL!r}]}}))\n",
        encoding="utf-8",
    )
    file = cases.with_name("own.yaml")
    text = cases.read_text(encoding="utf-8") + "planner: planner_of_compared_cases.py:planner\n"
    file.write_text(text, encoding="utf-8")
    found = compare(file, {"own": RunVariant(), "two": planner(LOOK, TELL)}, runs=1)

    assert [run.calls for run in found.of("own")] == [1, 1]
    assert [run.calls for run in found.of("two")] == [2, 2]


def test_the_name_of_the_last_release_is_taken_with_a_warning(cases: Path) -> None:
    with pytest.warns(DeprecationWarning, match="ways is now variants") as told:
        found = compare(cases, ways={"a": planner(TELL), "b": planner(TELL)}, runs=1)
    with pytest.warns(DeprecationWarning, match="ways is now variants") as told_again:
        names = found.ways

    assert names == found.variants == ("a", "b")
    assert [each.filename for each in (*told, *told_again)] == [__file__] * 2
    figures = found.as_dict()
    assert list(figures["variants"]) == ["a", "b"]
    assert figures["ways"] == figures["variants"]
    assert {(run["variant"], run["way"]) for run in figures["samples"]} == {("a", "a"), ("b", "b")}
    with pytest.warns(DeprecationWarning, match="way is now variant"):
        assert found.samples[0].way == "a"


def test_variants_by_both_names_are_refused(cases: Path) -> None:
    """One of them would be lost."""
    good = {"a": planner(TELL), "b": planner(TELL)}
    with pytest.raises(ContractError, match="variants and, by its old name, ways"):
        compare(cases, good, ways=good, runs=1)


def refusals() -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    good = planner(TELL)
    yield {"a": good}, {}, "two variants at least"
    yield {"a": good, "b": good}, {"runs": 0}, "runs"
    yield {"a": good, "b": 3}, {}, "is neither"
    yield {"a": good, "b": good}, {"only": ["planned"]}, "no case has a goal"
    yield {"a": good, "b": good}, {"only": ["none"]}, "there is no case none"
    yield (
        {"a": good, "b": RunVariant(planner=good, policy={"max_stps": 1})},
        {},
        "variant b, case cases.yaml:short: its policy",
    )
    yield {"a": good, "b": RunVariant(agent=lambda: 3)}, {}, "variant b"  # type: ignore[arg-type, return-value]
    yield {"a": good, "b": lambda: 3}, {}, "variant b"


@pytest.mark.parametrize(("ways", "options", "text"), list(refusals()))
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    cases: Path, ways: dict[str, Any], options: dict[str, Any], text: str
) -> None:
    with pytest.raises((ContractError, CasesRefused), match=text):
        compare(cases, ways, **options)


def has_model(name: str) -> Any:
    asking = Spender(100, 0.25)
    asking.model = object()  # type: ignore[attr-defined]
    if name == "memory":
        return dagrun.MemoryPlanner(asking, {}, policy=dagrun.Policy.model_validate({"flow": {}}))
    if name == "router":
        route = dagrun.Route("sum", ["zzz"], Plan.model_validate({"steps": [TELL]}), description="Sums up")
        return dagrun.RouterPlanner([route], chooser=dagrun.ModelChooser(ScriptedModel()))
    return asking


@pytest.mark.parametrize("name", ["plain", "memory", "router"])
def test_who_asks_a_model_is_in_real_time(cases: Path, name: str) -> None:
    ways = {"asks": lambda: has_model(name), "static": planner(TELL)}

    assert not Comparing(cases, ways).comparison.is_virtual


@pytest.mark.parametrize("critic", ["Judge", "Marking"])
def test_who_judges_with_a_model_is_announced_and_in_real_time(tmp_path: Path, critic: str) -> None:
    """Whatever the ways ask. A critic of steps is asked by the run, and charged to its way."""
    module = f"marking_of_{tmp_path.name}.py"
    (tmp_path / module).write_text(JUDGES + MARKING, encoding="utf-8")
    ways = {"a": planner(TELL), "b": planner(TELL)}
    judged = Comparing(one_case(tmp_path, expect={"critic": f"{module}:{critic}"}), ways, runs=7)
    reviewed = Comparing(one_case(tmp_path, critics=[f"{module}:{critic}"]), ways, runs=7)
    has_model = critic == "Marking"

    assert (judged.judging, judged.asking, judged.comparison.is_virtual) == (14 * has_model, 0, not has_model)
    assert (reviewed.judging, reviewed.asking, reviewed.comparison.is_virtual) == (0, 14 * has_model, not has_model)


def one_case(folder: Path, **fields: Any) -> Path:
    file = folder / "one.json"
    case = {"id": "one", "goal": "Tell ann", "world": {"notify": "sent"}, **fields}
    file.write_text(json.dumps({"tools": str(TOOLS), "cases": [case]}), encoding="utf-8")
    return file


def test_a_model_that_no_way_asks_costs_no_time(tmp_path: Path) -> None:
    """The case names one, and each way has a planner of its own; nobody is told of a cost either."""
    comparing = Comparing(one_case(tmp_path, model="a-model"), {"a": planner(TELL), "b": planner(LOOK, TELL)})

    assert comparing.comparison.is_virtual
    assert comparing.asking == 0


def test_real_time_alone_is_no_question_to_a_model(tmp_path: Path) -> None:
    host = CaseHost(make_planner=lambda name, model: planner(TELL)())
    ways = {"a": RunVariant(), "b": RunVariant(policy={"max_running": 2})}
    comparing = Comparing(one_case(tmp_path, clock="real"), ways, host=host)

    assert not comparing.comparison.is_virtual
    assert comparing.asking == 0


def test_a_server_is_not_asked_on_a_virtual_clock(tmp_path: Path) -> None:
    """Each run would end by its time limit, which is over at once."""
    asking = dagrun.OpenAIPlanner("a-model", api_key="no-key", base_url="http://127.0.0.1:9/v1")

    with pytest.raises(CasesRefused, match=r"variant asks, case one\.json:one: it asks the server of a model"):
        compare(one_case(tmp_path, clock="virtual"), {"asks": asking, "static": planner(TELL)})


# People ---------------------------------------------------------------------------------------------------------------

PAYING = """
import dagrun

@dagrun.tool(effect="effectful", needs_approval={needs})
async def pay(n: int) -> str:
    "Pay."
    return "real"

@dagrun.tool(effect="effectful")
async def ship(n: int) -> str:
    "Ship."
    return "real"
"""
RULES: dict[str, Any] = {"approve": [{"tool": "pay"}]}


def paid(folder: Path, *, needs: bool = False, **fields: Any) -> VariantComparison:
    """Let an agent and a plan pay, with people around."""
    tools = folder / f"paying_{folder.name}.py"  # modules are known by their names
    tools.write_text(PAYING.format(needs=needs), encoding="utf-8")
    case = {"id": "p", "goal": "Pay 3", "clock": "virtual", "world": {"pay": "ok", "ship": "ok"}, **fields}
    file = folder / "pay.json"
    file.write_text(json.dumps({"tools": str(tools), "cases": [case]}), encoding="utf-8")
    turns = [{"thought": "", "call": {"tool": "pay", "args": {"n": 3}}}, {"thought": "", "answer": "done"}]
    agent = RunVariant(agent=lambda: ScriptedModel(*turns))
    return compare(file, {"agent": agent, "plan": planner({"id": "p", "tool": "pay", "args": {"n": 3}})}, runs=1)


@pytest.mark.parametrize(
    ("fields", "status", "calls"),
    [
        ({"policy": RULES, "people": {"pay": "approve"}}, "succeeded", 1),
        ({"policy": RULES, "people": {"approval": "approve"}}, "succeeded", 1),
        ({"policy": RULES, "people": {"*": "approve"}}, "succeeded", 1),
        ({"policy": RULES, "people": {"pay": [{"choice": "approve", "kind": "approval"}]}}, "succeeded", 1),
        ({"policy": RULES, "people": {"pay": "deny"}}, "failed", 0),
        ({"policy": RULES, "people": {"ship": "approve"}}, "waiting", 0),
        ({"policy": RULES}, "waiting", 0),
        ({"needs": True, "people": {"pay": "approve"}}, "succeeded", 1),
        ({"needs": True, "people": {"approval": "approve", "*": "deny"}}, "succeeded", 1),
        ({"needs": True, "people": {"pay": "approve", "*": "deny"}}, "succeeded", 1),
        (
            {"world": {"pay": {"raise": "dies"}, "ship": "ok"}, "people": {"pay": [{"kind": "effect", "value": "ok"}]}},
            "succeeded",
            1,
        ),
    ],
    ids=str,
)
def test_people_answer_an_agent_as_they_answer_a_plan(
    tmp_path: Path, fields: dict[str, Any], status: str, calls: int
) -> None:
    ran = paid(tmp_path, **fields).samples

    assert [(run.variant, run.status, run.calls) for run in ran] == [("agent", status, calls), ("plan", status, calls)]


@pytest.mark.parametrize(
    ("people", "text"),
    [
        ({"p": "approve"}, "variant agent, case .*: people.p: an agent has no step of this name"),
        ({"pay": "approve", "ship": "deny"}, "has rules for pay, ship, so the run asks once"),
        ({"pay": "approve"}, "has rules for pay, ship, so the run asks once"),
        ({"*": ["approve", "deny"]}, "people who answer differently from call to call cannot"),
    ],
)
def test_people_who_cannot_answer_an_agent_are_refused(tmp_path: Path, people: dict[str, Any], text: str) -> None:
    with pytest.raises(CasesRefused, match=text):
        paid(tmp_path, policy={"approve": [{"tool": "pay"}, {"tool": "ship"}]}, people=people)


def test_a_way_has_a_planner_or_an_agent() -> None:
    with pytest.raises(ContractError, match="not both"):
        RunVariant(planner=planner(TELL), agent=lambda: None)  # type: ignore[arg-type, return-value]


def test_the_text_fits_a_narrow_terminal_and_markdown_keeps_to_its_cells(cases: Path) -> None:
    ways = {name: planner(TELL) for name in ("a|b", "<c>", "d", "e", "f")}
    found = compare(cases, ways, runs=1)

    for width in (60, 80, 120):
        assert max(map(len, text_of(found, width).splitlines())) <= width
    assert text_of(found, 40).count("\nsuccess  ") == 5  # a block for each way
    table = markdown_of(found)
    assert "a&#124;b" in table
    assert "<c>" not in table
    assert repr(found).startswith("<VariantComparison of 5 variants, 2 runs each")


def test_which_intervals_are_wider_is_said(cases: Path) -> None:
    def remark(*names: str) -> str:
        text = text_of(compare(cases, {name: planner(TELL) for name in names}, runs=1), 1_000)
        return next(line for line in text.splitlines() if line.startswith("Brackets"))

    assert remark("a", "b").startswith("Brackets are 95 % intervals. Times")
    three = "Brackets are 95 % intervals in the tables; between two variants, 98.3 % each, so that"
    assert remark("a", "b", "c").startswith(three)


def test_public_names() -> None:
    assert dagrun.compare is compare
    assert dagrun.VariantComparison is VariantComparison
    assert dagrun.RunVariant is RunVariant
