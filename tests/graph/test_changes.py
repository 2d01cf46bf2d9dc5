"""The table of changes, and how the state of a run shows itself in a debugger."""

from __future__ import annotations

from dagrun import Event, Plan, Policy, State, Step, Toolbox
from dagrun.events import DraftStarted, Gap, GoalChanged, Progress
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.graph.changes import CHANGES
from dagrun.kernel.graph.live_graph import build
from dagrun.kernel.graph.step_order import Expected
from dagrun.kernel.model.tool import make_tool
from played import Played


async def work() -> None: ...


TOOLS = Toolbox(make_tool(work, effect="read"))
CHAIN = (Step(id="a", tool="work"), Step(id="b", tool="work"), Step(id="c", tool="work", depends_on=("a", "b")))


def test_each_kind_of_event_has_its_change() -> None:
    """Only what is shown to observers alone changes nothing."""
    assert set(CHANGES) == set(Event.__subclasses__()) - {Progress, Gap}


def test_a_graph_shows_how_many_steps_stand_where() -> None:
    played = Played(CHAIN, TOOLS)
    played.succeed("a")
    played.start("b")

    assert repr(played.graph) == "<LiveGraph: revision 0, 1 succeeded, 1 running, 1 waiting>"


def test_a_graph_shows_what_keeps_it_back() -> None:
    played = Played(CHAIN, TOOLS)
    played.apply(DraftStarted, "the goal", False)
    played.apply(GoalChanged, "another goal")

    assert repr(played.graph) == "<LiveGraph: drafting, frozen, revision 1, 2 blocked, 1 waiting>"


def test_a_graph_shows_how_its_run_has_ended() -> None:
    played = Played(CHAIN, TOOLS)
    played.succeed("a", "b", "c")
    played.finish()

    assert repr(played.graph) == "<LiveGraph: succeeded, revision 0, 3 succeeded>"


def test_a_frontier_shows_what_is_ready() -> None:
    """A step that has settled while it waited is no longer ready, although it lies there still."""
    played = Played(CHAIN, TOOLS)
    assert repr(played.graph.frontier) == "<Frontier: 2 ready>"

    played["a"].state = State.SKIPPED
    assert repr(played.graph.frontier) == "<Frontier: 1 ready>"


def test_a_frontier_shows_its_cap() -> None:
    plan = check_plan(Plan(steps=CHAIN), TOOLS, Policy(max_running=4))
    graph = build(plan, None, None, Expected(plan))
    for node in graph.nodes.values():
        if node.state is State.READY:
            graph.frontier.push(node)
    taken = graph.frontier.take()
    assert taken is not None
    taken.state = State.RUNNING

    assert repr(graph.frontier) == "<Frontier: 1 ready, 1 of 4 slots taken>"
