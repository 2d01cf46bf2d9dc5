"""Layout and condensing: laws that hold for every graph, and bounds on the work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun.observe.html import Markup, escape, join, tag
from dagrun.observe.picture.condense import condense
from dagrun.observe.picture.layout import Edge, lay_out, reduced
from dagrun.observe.picture.timeline_svg import TimeScale, downsampled, idle_stretches, running_at_once
from dagrun.observe.state_styles import cut_to, text_width


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    """Graphs without circles, their boxes in any order."""
    count = draw(st.integers(1, 25))
    order = draw(st.permutations(range(count)))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=60))
    return count, [(order[min(a, b)], order[max(a, b)]) for a, b in pairs if a != b]


@given(graphs())
def test_edges_go_right_and_boxes_do_not_overlap(graph: tuple[int, list[Edge]]) -> None:
    """Whatever the graph; and equal input gives equal output."""
    count, edges = graph
    layout = lay_out(count, edges)

    for (a, b), bends in layout.routes:
        columns = [layout.places[a][0], *(x for x, _ in bends), layout.places[b][0]]
        assert columns == sorted(set(columns))
    for a in range(count):
        for b in range(a):
            (x, y), (other_x, other_y) = layout.places[a], layout.places[b]
            assert abs(x - other_x) > 1e-6 or abs(y - other_y) > 1 - 1e-6
    assert lay_out(count, edges) == layout
    assert all(0 <= x < layout.columns and 0 <= y < layout.rows for x, y in layout.places)


@given(graphs())
def test_reduction_keeps_every_path_and_no_shortcut(graph: tuple[int, list[Edge]]) -> None:
    """What was reachable is reachable, and each edge that is left is the only way."""
    count, edges = graph
    kept = reduced(count, list(dict.fromkeys(edges)))

    assert reach(count, kept) == reach(count, edges)
    for edge in kept:
        assert edge[1] not in reach(count, [other for other in kept if other != edge])[edge[0]]


def reach(count: int, edges: list[Edge]) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(count)]
    for _ in range(count):
        for a, b in edges:
            found[a] |= {b} | found[b]
    return found


def test_circles_are_left_out() -> None:
    """A plan that is not checked may have one; its drawing has not."""
    layout = lay_out(4, [(0, 1), (1, 2), (2, 1), (3, 3)])

    assert [edge for edge, _ in layout.routes] == []
    assert len(layout.places) == 4


SHAPES: dict[str, tuple[int, list[Edge]]] = {
    "dense": (150, [(a, b) for a in range(150) for b in range(a + 1, 150)]),
    "bipartite": (200, [(a, 100 + b) for a in range(100) for b in range(100)]),
    "chain": (10_000, [(a, a + 1) for a in range(9_999)]),
    "fan": (1_000, [(0, a) for a in range(1, 1_000)]),
    "loose": (300, []),
    "ladder": (2_000, [(max(0, a - random.Random(a).randrange(1, 60)), a) for a in range(1, 2_000) for _ in (0, 1)]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_work_is_bounded(name: str) -> None:
    """A record from elsewhere can hang nobody: seconds of this processor, and far fewer than the bound."""
    count, edges = SHAPES[name]
    begun = time.process_time()
    lay_out(count, edges)

    assert time.process_time() - begun < 5


def step(n: int, needs: list[int], tool: str = "t", **more: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("parent", "children", "gone", "substitute", "started", "ended"))
    facts = {"n": n, "id": f"s{n}", "tool": tool, "needs": needs, "state": "succeeded", "on_path": False, "revision": 0}
    return {**nothing, **facts, **more}


@pytest.mark.parametrize("shape", ["chain", "fan", "random", "loose"])
@pytest.mark.parametrize("most", [1, 7, 300])
def test_condensed_graphs_have_no_circle_and_not_too_many_boxes(shape: str, most: int) -> None:
    """Every step is in exactly one box, and the boxes can be laid out."""
    chance = random.Random(3)
    shapes: dict[str, Callable[[int], list[int]]] = {
        "chain": lambda n: [n - 1] if n else [],
        "fan": lambda n: [0] if n else [],
        "random": lambda n: sorted({chance.randrange(n) for _ in range(2)}) if n else [],
        "loose": lambda n: [],
    }
    needs = shapes[shape]
    steps = [step(n, needs(n), tool=f"t{n % 3}") for n in range(1_200)]
    drawing = condense({"steps": steps, "path": []}, most)

    assert len(drawing.boxes) <= most
    assert sorted(n for box in drawing.boxes for n in box.steps) == list(range(1_200))
    assert len(reduced(len(drawing.boxes), drawing.edges)) >= (1 if drawing.edges else 0)
    layout = lay_out(len(drawing.boxes), drawing.edges)
    assert len(layout.routes) + layout.left_out == len(drawing.edges)


def test_alike_steps_share_a_box_above_the_limit_alone() -> None:
    """Same tool, and equally far from the start."""
    steps = [step(0, []), *(step(n, [0], tool="work") for n in range(1, 20)), step(20, list(range(1, 20)))]
    view = {"steps": steps, "path": [0, 3, 20]}

    assert len(condense(view, 300).boxes) == 21
    small = condense(view, 5)
    assert [len(box.steps) for box in small.boxes] == [1, 19, 1]
    assert small.path == {(0, 1), (1, 2)}


def test_a_graph_of_many_layers_is_a_row_of_twelve_boxes() -> None:
    """Each holds about as many layers as the others, and leads to the next; 60 steps have a box each."""
    steps = [step(n, [n - 1] if n else [], tool=f"t{n % 7}") for n in range(1_000)]
    steps.append(step(1_000, [0], tool="left", gone=2))
    row = condense({"steps": steps, "path": []})

    assert [len(box.steps) for box in row.boxes] == [84, 83, 83] * 4
    assert row.edges == [(n, n + 1) for n in range(11)]
    assert (row.steps, row.gone, row.boxes[0].label, row.boxes[0].tool) == (1_000, 1, "steps \u00d7 84", "7 tools")
    assert len(condense({"steps": steps[:60], "path": []}).boxes) == 60
    assert len(condense({"steps": steps[:61], "path": []}).boxes) == 12


def test_steps_that_left_the_plan_are_drawn_where_all_fit() -> None:
    """With an edge to the step that took their place."""
    steps = [step(0, [], gone=1, substitute=1), step(1, []), step(2, [1])]
    drawing = condense({"steps": steps, "path": []})

    assert (len(drawing.boxes), drawing.edges, drawing.replaced, drawing.gone) == (3, [(1, 2)], [(0, 1)], 0)


def test_html_escapes_by_type() -> None:
    """Texts always, in elements and attributes; markup never; and what misleads becomes a code."""
    assert tag("p", "<b>", tag("i", "x"), title="'\"&") == '<p title="&#39;&quot;&amp;">&lt;b&gt;<i>x</i></p>'
    assert escape("a\u202eb\x00") == "a\\u202eb\\u0000"
    assert isinstance(join("a", Markup("<i>"), None), Markup)
    assert join("<", Markup("<i>")) == "&lt;<i>"


@given(st.text(max_size=200), st.floats(20, 200))
def test_cut_texts_fit(text: str, width: float) -> None:
    """By width, not by characters."""
    assert text_width(cut_to(text, width, 12), 12) <= max(width, 12)


@given(st.floats(1e-4, 1e6), st.integers(2, 12))
def test_axis_has_round_figures(length: float, most: int) -> None:
    """At most so many, from 0 on, within the run."""
    marks = list(TimeScale(length, []).ticks(most))

    assert (marks[0].at, marks[0].text) == (0, "0")
    assert len(marks) <= most + 1
    assert marks[-1].at <= length * 1.000001


@given(st.lists(st.floats(0.01, 1e5), min_size=2, max_size=9), st.data())
def test_folded_axis_keeps_the_order_of_times(lengths: list[float], data: st.DataObject) -> None:
    """From 0 to 1, and the longer of two busy stretches is drawn longer; a folded one takes 4 % of all busy time."""
    edges = [0.0, *accumulate(lengths)]
    folds = [(edges[n], edges[n + 1]) for n in range(1, len(lengths), 2)]
    scale = TimeScale(edges[-1], folds)
    busy = sum(lengths[::2])
    times = sorted(data.draw(st.lists(st.floats(0, edges[-1]), min_size=2, max_size=6)))

    assert scale(0) == 0
    assert scale(edges[-1]) == pytest.approx(1)
    assert [scale(at) for at in times] == sorted(scale(at) for at in times)
    for start, end in folds:
        assert scale(end) - scale(start) == pytest.approx(0.04 / (1 + 0.04 * len(folds)))
    for start, length in zip(edges[:-1:2], lengths[::2], strict=True):
        assert scale(start + length) - scale(start) == pytest.approx(length / busy / (1 + 0.04 * len(folds)))


def test_only_long_idle_stretches_are_folded() -> None:
    """Work of the planner is work; a wait for a person is none; and what never ran has nothing to fold."""

    def view(at: float, calls: list[tuple[float, float | None]], planner: list[tuple[float, float]]) -> dict[str, Any]:
        steps = [{"attempts": [{"started": start, "ended": end} for start, end in calls]}]
        return {"at": at, "steps": steps, "planner": [{"started": start, "ended": end} for start, end in planner]}

    assert idle_stretches(view(100, [(0, 10), (60, 100)], [])) == [(10, 60)]
    assert idle_stretches(view(100, [(0, 10), (50, 100)], [])) == []
    assert idle_stretches(view(100, [(0, 10), (35, 40), (65, 100)], [])) == [(10, 35), (40, 65)]
    assert idle_stretches(view(100, [(0, 10), (60, 100)], [(10, 45)])) == []
    assert idle_stretches(view(100, [(0, 10), (25, None)], [])) == []
    assert idle_stretches(view(100, [(0, 10)], [])) == [(10, 100)]
    assert idle_stretches(view(100, [], [])) == []


def test_thinned_curve_keeps_its_peaks_and_is_empty_where_nothing_ran() -> None:
    """Ten thousand calls in two bursts, with a pause between them that is too short to be folded."""
    calls = [(n * 0.01, n * 0.01 + 0.05) for n in range(5000)] + [
        (60 + n * 0.008, 60.03 + n * 0.008) for n in range(5000)
    ]
    attempts = [{"started": start, "ended": end} for start, end in calls]
    whole = running_at_once({"at": 100.03, "steps": [{"attempts": attempts}]})

    thin = downsampled(whole, TimeScale(100.03, []), 600)

    def value(at: float) -> int:
        return [value for when, value in thin if when <= at][-1]

    assert len(whole) > 10_000 >= 1_200 >= len(thin)
    assert max(value for _, value in thin) == max(value for _, value in whole)
    assert [value(at) for at in (51, 55, 59)] == [0, 0, 0]
    assert (value(25) > 0, value(80) > 0, thin[-1][1]) == (True, True, 0)
