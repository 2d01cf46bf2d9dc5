"""The benchmark of planning: its models take the published times, its plans are sound, and its must can be missed."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

import anyio
import pytest
from matplotlib.figure import Figure

import dagrun
import planning
from dagrun import read_plan
from planning import GOALS, MOVIES, Goal, Row


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """Let matplotlib open its fonts, which it keeps open, before anybody counts open files."""
    figure = Figure()
    figure.suptitle("10", fontsize=10)
    figure.subplots()
    figure.savefig(BytesIO(), format="png")
    figure.savefig(BytesIO(), format="svg")


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.data_set)
def test_the_loop_takes_what_was_published(goal: Goal) -> None:
    """The turns and the steps, one after another."""
    turns = [act.delay for act in planning.answers_of(goal, "loop", 1.0)]
    steps = [goal.seconds(id_) for id_ in list(goal.plan)[:-1]]
    assert sum(turns) + sum(steps) == pytest.approx(goal.loop)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.data_set)
def test_all_planners_give_the_plan_of_the_data_set(goal: Goal) -> None:
    known = planning.known_plan(goal)
    written = read_plan(planning.plan_text(goal), toolbox=dagrun.Toolbox(planning.make_tools(goal, 1.0)))
    assert [step.tool for step in written.steps] == [step.tool for step in known.steps]
    assert [len(step.args.get("of", ())) for step in written.steps] == [len(needs) for needs in goal.plan.values()]
    assert [len(step.args.get("of", ())) for step in known.steps] == [len(needs) for needs in goal.plan.values()]


def test_the_plan_takes_what_was_published() -> None:
    [act] = planning.answers_of(MOVIES, "streamed", 1.0)
    assert act.tokens_per_second is not None
    assert len(act.pieces) / act.tokens_per_second == pytest.approx(planning.PLANNED)
    assert MOVIES.slowness == pytest.approx(1)
    assert MOVIES.seconds("choose") == pytest.approx(1.62)


@pytest.mark.real_time
@pytest.mark.parametrize("way", planning.WAYS)
@pytest.mark.rigs
def test_each_way_waits_for_its_models(way: str) -> None:
    """At a fiftieth of the time: no way is faster than its tools and what it needs of its model."""
    took = anyio.run(planning.measure_one, GOALS[0], way, 0.02)
    least = {"loop": 7.12, "plan, then run": 0.4 + 1.13 + 1.62, "streamed": 1.13 + 1.62, "route": 1.13 + 1.62}
    assert took >= least[way]


@pytest.mark.parametrize(("seconds", "code"), [(5.0, 0), (6.0, 1)])
def test_the_must_can_be_missed(seconds: float, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def measure(count: int, pace: float) -> list[Row]:
        took = {"loop": 20.47, "plan, then run": 6.0, "streamed": seconds, "route": 3.0}
        return [Row(MOVIES.data_set, way, s, 20.47 / s, MOVIES.published) for way, s in took.items()]

    monkeypatch.setattr(planning, "measure", measure)
    assert planning.main(["--quick", "--gate", "--out", str(tmp_path)]) == code
    written = json.loads((tmp_path / "planning.json").read_text())
    assert {row["way"] for row in written["planning"]} == planning.WAYS.keys()
    assert (tmp_path / "planning.png").stat().st_size > 1_000
