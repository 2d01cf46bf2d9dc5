"""Order labels against networkx: new edges are placed exactly if they close no cycle, and the cycle is a real one."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun.kernel.graph.step_order import Cycle, Labels

Edge = tuple[str, str]


class Orders:
    """A graph, with labels that are carried on from one change to the next.

    Attributes:
        graph: The steps, and who waits for whom.
        labels: As they stand.
    """

    def __init__(self, kind: type[Labels] = Labels) -> None:
        self._kind = kind
        self.graph: nx.DiGraph[str] = nx.DiGraph()
        self.labels: dict[str, float] = {}

    def place(self, new: list[str], edges: list[Edge]) -> None:
        """Take in new steps and new edges, or raise and stay the same."""
        trial = self.graph.copy()
        trial.add_nodes_from(new)
        trial.add_edges_from(edges)
        # As a patch gives them: for each step that is touched all that it waits for.
        touched = [*new, *dict.fromkeys(after for _, after in edges if after not in new)]
        needs = {id_: list(trial.predecessors(id_)) for id_ in touched}
        labels = self._kind(self.labels, trial.successors)
        labels.place(needs, new)
        self.graph = trial
        self.labels |= labels.changed

    def wrong(self) -> list[Edge]:
        """The edges that go down, or stay level."""
        return [(a, b) for a, b in self.graph.edges if not self.labels[a] < self.labels[b]]


def _waits_round(cycle: list[str], graph: nx.DiGraph[str]) -> bool:
    """Whether each of *cycle* waits for the next, and the last for the first."""
    return len(set(cycle)) == len(cycle) and all(
        graph.has_edge(need, id_) for id_, need in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    )


@st.composite
def _changes(draw: st.DrawFn) -> list[tuple[list[str], list[Edge]]]:
    """Changes of a plan: new steps, and edges between any two steps, in either direction."""
    changes: list[tuple[list[str], list[Edge]]] = []
    known: list[str] = []
    for _ in range(draw(st.integers(1, 12))):
        new = [f"s{len(known) + number}" for number in range(draw(st.integers(0, 4)))]
        known += new
        pairs = st.tuples(st.sampled_from(known), st.sampled_from(known)) if known else st.nothing()
        edges = draw(st.lists(pairs, max_size=5)) if known else []
        changes.append((new, [(a, b) for a, b in edges if a != b]))
    return changes


@given(_changes())
def test_edges_are_placed_exactly_if_they_close_no_cycle(changes: list[tuple[list[str], list[Edge]]]) -> None:
    """Whatever came before; every edge goes up, and a change that is refused leaves all as it was."""
    orders = Orders()
    for new, edges in changes:
        whole = orders.graph.copy()
        whole.add_nodes_from(new)
        whole.add_edges_from(edges)
        before = dict(orders.labels)
        if nx.is_directed_acyclic_graph(whole):
            orders.place(new, edges)
        else:
            with pytest.raises(Cycle) as caught:
                orders.place(new, edges)
            assert _waits_round(caught.value.steps, whole), caught.value.steps
            assert orders.labels == before
            orders.place(new, [])
        assert orders.wrong() == []
        assert orders.labels.keys() == set(orders.graph)


@given(st.permutations(range(15)), st.data())
def test_any_order_of_the_edges_of_an_acyclic_graph_is_placed(order: list[int], data: st.DataObject) -> None:
    """Edge by edge, most of them against the labels that the steps have by then."""
    line = [f"s{number}" for number in order]
    up = [(before, after) for number, before in enumerate(line) for after in line[number + 1 :]]
    orders = Orders()
    orders.place(sorted(line), [])

    for edge in data.draw(st.lists(st.sampled_from(up), max_size=30, unique=True)):
        orders.place([], [edge])
        assert orders.wrong() == []


def test_settled_steps_are_no_obstacle() -> None:
    """They have no edges that count: a step may be put before what has ended long ago."""
    old = {"a": 0.0, "b": 1.0, "c": 2.0}
    labels = Labels(old, {"a": [], "b": ["c"], "c": []}.__getitem__)

    labels.place({"c": ["b"]}, [])

    assert labels.changed == {}


def test_nothing_else_gets_another_label() -> None:
    """The cost is that of what lies in between, and not that of the plan."""
    orders = Orders()
    ids = [f"s{number}" for number in range(1_000)]
    orders.place(ids, list(pairwise(ids)))
    before = dict(orders.labels)

    orders.place(["x", "y"], [("s10", "x"), ("x", "s12"), ("s500", "y")])

    assert [id_ for id_ in before if orders.labels[id_] != before[id_]] == []
    assert 10 < orders.labels["x"] < 12


class Counted(Labels):
    """Counts how often fractions have run out."""

    spreads = 0

    def _spread(self) -> None:
        Counted.spreads += 1
        super()._spread()


@pytest.mark.parametrize("start", [1.0, 1e6, 1e15])
@pytest.mark.parametrize("is_behind", [True, False], ids=["behind the last", "before the last"])
def test_there_is_always_room_between_two_steps(start: float, is_behind: bool) -> None:
    """Two hundred steps are put into the same place, one by one: fractions run out after some fifty."""
    orders = Orders(Counted)
    orders.place(["first", "last", "end"], [("first", "last"), ("last", "end")])
    orders.labels = {"first": start, "last": start + 1, "end": start + 2}
    Counted.spreads, line = 0, ["first", "last", "end"]

    for number in range(200):
        place = len(line) - 2 if is_behind else 1
        line.insert(place, f"x{number}")
        orders.place([line[place]], [(line[place - 1], line[place]), (line[place], line[place + 1])])
        assert orders.wrong() == []

    assert sorted(orders.labels, key=orders.labels.__getitem__) == line
    assert Counted.spreads < 20
    assert Counted.spreads > 0 or is_behind  # then the step after them is moved on first


def test_steps_are_lifted_over_each_other_again_and_again() -> None:
    """Two steps change places two hundred times, while a third stands right behind them: each time in half the room."""
    orders = Orders()
    orders.place(["a", "b", "end"], [("a", "b"), ("b", "end"), ("a", "end")])

    for _ in range(200):
        for before, after in (("b", "a"), ("a", "b")):
            orders.graph.remove_edge(after, before)
            orders.place([], [(before, after)])
            assert orders.wrong() == []
