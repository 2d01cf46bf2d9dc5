"""The golden task that stands beside each learned route: it passes as written, and fails with a harmful route."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import dagrun
from dagrun import Answer, Artifact, Condition, Flow, MemoryJournal, Plan, Policy, Step, ToolContext
from dagrun.evaluate.cases.case_file import read_file
from dagrun.evaluate.cases.evaluation import CaseResult, evaluate
from dagrun.evaluate.cases.load_cases import CaseHost
from dagrun.evaluate.cases.recorded_case import playable_events
from dagrun.evaluate.learning.learn_routes import learn_routes, planned_run
from dagrun.evaluate.learning.route_cases import route_case
from dagrun.plans.plan_text import as_yaml
from dagrun.testing import run_virtual
from replans import Thinker

pytestmark = pytest.mark.real_time  # a virtual clock of its own

called: list[str] = []


@dagrun.tool(effect="read")
async def get_order(order: int, detail: str = "all") -> dict[str, Any]:
    """Look an order up."""
    called.append("get_order")
    return {
        "order": order,
        "total": 30.0,
        "items": ["a", "b"],
        "token": "tok-123",
        "note": "sk-proj-" + "a1B2c3D4e5" * 4,
    }


@dagrun.tool(effect="read")
async def weigh(item: str) -> float:
    """Weigh an item."""
    called.append("weigh")
    return {"a": 1.5, "b": 2.5}[item]


@dagrun.tool(effect="effectful", needs_approval=True)
async def pay_back(order: int, total: float, stamp: str = "") -> str:
    """Pay back."""
    called.append("pay_back")
    return f"paid {total}"


@dagrun.tool(effect="effectful", needs_approval=True)
async def pay_out(order: int, total: float, stamp: str = "") -> str:
    """Pay somebody else."""
    called.append("pay_out")
    return f"paid {total}"


@dagrun.tool(effect="read")
async def save(context: ToolContext) -> Artifact:
    """Return a file."""
    return context.artifacts.save("text", media_type="text/plain", name="a.txt")


@dagrun.tool(effect="read")
async def size(file: Artifact) -> int:
    """Return the size of a file."""
    return file.size


TOOLS = [get_order, weigh, pay_back, pay_out, save, size]
POLICY = Policy(flow=Flow(), max_steps=40)


def refund(order: int) -> Plan:
    small = Condition(ref="${look.total}", op="<", value=100)
    return Plan(
        steps=[
            Step(id="look", tool="get_order", args={"order": order}),
            Step(id="weigh", tool="weigh", for_each="${look.items}", args={"item": "${item}"}),
            Step(
                id="pay",
                tool="pay_back",
                args={"order": order, "total": "${look.total}", "stamp": "${look.token}"},
                depends_on=["weigh"],
                when=small,
            ),
        ],
        output={"paid": "${pay}", "weights": "${weigh}", "note": "${look.note}"},
    )


async def yes(question: Any) -> Answer:
    return Answer("approve")


def learn(folder: Path, goal: str = "Refund order 17", plan: Plan | None = None, **options: Any) -> str:
    """Record a run for *goal*, and write its route with the golden task; return the text of the latter."""
    journal = MemoryJournal()

    async def record() -> Any:
        planner = Thinker(plan or refund(17))
        given = {"policy": POLICY, "approver": yes, **options}
        await dagrun.run(goal=goal, planner=planner, tools=TOOLS, journal=journal, run_id="one", **given)
        return await journal.read("one")

    lines = run_virtual(record)
    run = planned_run("one", lines)
    assert not isinstance(run, str), run
    (route,) = learn_routes([run]).routes
    text = route_case(route, run, playable_events("one", lines), "r.json")
    (folder / "r.json").write_text(route.model_dump_json(), encoding="utf-8")
    (folder / "r.yaml").write_text(text, encoding="utf-8")
    called.clear()
    return text


def result_of(folder: Path, tools: Sequence[Any] = TOOLS) -> CaseResult:
    """Carry out the golden task in a folder, as ``dagrun eval`` does."""
    (result,) = evaluate([folder], host=CaseHost(tools=lambda: dagrun.Toolbox(list(tools)))).files[0].cases
    return result


def test_what_was_written_passes_and_calls_nothing(tmp_path: Path) -> None:
    """Each value of the run is there, but for those that are secret; they are hidden wherever they went."""
    text = learn(tmp_path)
    result = result_of(tmp_path)

    assert result.misses == []
    assert result.ready.is_virtual
    assert result.trials[0].planner_calls == 0
    assert called == []
    assert "tok-123" not in text
    assert "sk-proj-a1B2" not in text


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        route = json.loads((folder / "r.json").read_text())
        change(route)
        (folder / "r.json").write_text(json.dumps(route))

    return edit


def step(route: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = route["plan"]["steps"][number]
    return found


PAY_AGAIN = {"id": "more", "tool": "pay_back", "args": {"order": 1, "total": 9.0}, "depends_on": ["pay"]}


@pytest.mark.parametrize(
    ("change", "miss"),
    [
        (lambda route: step(route, 2)["args"].update(order=4711), "plan: step pay.args.order is 4711, not 17"),
        (lambda route: step(route, 2)["args"].update(total=1e6), "plan: step pay.args.total is 1000000.0"),
        (lambda route: step(route, 2).update(tool="pay_out"), 'plan: step pay.tool is "pay_out", not "pay_back"'),
        (lambda route: step(route, 2).pop("when"), "plan: step pay.when is missing"),
        (lambda route: step(route, 2).pop("depends_on"), "plan: step pay.depends_on is missing"),
        (lambda route: route["plan"]["steps"].append(PAY_AGAIN), "it has a step more, a call of pay_back"),
        (lambda route: route["plan"].pop("output"), "output of the plan is null"),
        (lambda route: route.update(goals=["Refund {order}"]), "status is error, not succeeded (no route fits"),
    ],
)
def test_a_harmful_change_of_the_route_is_seen(tmp_path: Path, change: Callable[[Any], Any], miss: str) -> None:
    learn(tmp_path)
    changed(change)(tmp_path)
    result = result_of(tmp_path)

    assert any(miss in said for said in result.misses), result.misses
    assert called == []


def test_a_tool_that_has_changed_is_seen(tmp_path: Path) -> None:
    """What the stand-in returns must fit what the tool returns today."""
    learn(tmp_path)

    @dagrun.tool(effect="read")
    async def weigh(item: str) -> str:
        """Weigh an item, in words."""
        return item

    with pytest.raises(dagrun.DagrunError, match=r"world.weigh\[0\].return"):
        result_of(tmp_path, [get_order, weigh, pay_back, pay_out])


def test_a_step_that_failed_in_the_run_fails_in_the_case(tmp_path: Path) -> None:
    """Its default stands in, as in the run."""
    plan = Plan(
        steps=[*refund(17).steps, Step(id="odd", tool="weigh", args={"item": "?"}, on_failure="default", default=0.5)]
    )
    assert "raise: " in learn(tmp_path, plan=plan)
    assert result_of(tmp_path).misses == []


def test_a_file_that_a_step_returned_stays_a_name(tmp_path: Path) -> None:
    """No stand-in opens it."""
    steps = [Step(id="save", tool="save"), Step(id="size", tool="size", args={"file": "${save}"})]
    assert "text/plain" in learn(tmp_path, "Save it 17 times", Plan(steps=steps))
    assert result_of(tmp_path).misses == []


@pytest.mark.parametrize(
    "goal", ["Refund: order 17 # now", "- 17", "1e5 and 17", '"17" \\ "x"', "Rück 17 \u2028 und 🙂"]
)
def test_texts_of_all_kinds_come_back_as_they_were(tmp_path: Path, goal: str) -> None:
    odd = [
        "1e5",
        "no",
        "~",
        "2026-01-02",
        "a: b",
        "# x",
        "",
        " x ",
        "x\n\n  y\n",
        "\t",
        "1_000",
        "0x1f",
        "null",
        "true",
        "-",
    ]
    case = {"id": "odd", "goal": goal, "world": {"t": {"return": [*odd, {"nested": odd}, 1e300, -0.5, 10**20, None]}}}
    path = tmp_path / "odd.yaml"
    path.write_text(as_yaml({"cases": [case]}, open_levels=3), encoding="utf-8")
    (found,) = read_file(path).cases

    assert found.goal == goal
    assert found.world["t"][0].returns == case["world"]["t"]["return"]  # type: ignore[index]


def test_the_fields_of_routes_and_plans_are_looked_at_before_anything_runs(tmp_path: Path) -> None:
    learn(tmp_path)
    text = (tmp_path / "r.yaml").read_text()
    for old, new, fault in (
        ("routes: r.json", "routes: none.json", "there is no folder of routes .*, and no file"),
        ("routes: r.json", "routes: r.json\n    planner: a:b", "routes need neither a planner nor a model"),
        ("{id: look,", "{no_id: look,", "plan: DR011 steps"),
    ):
        assert old in text
        (tmp_path / "r.yaml").write_text(text.replace(old, new, 1))
        with pytest.raises(dagrun.DagrunError, match=fault):
            result_of(tmp_path)
