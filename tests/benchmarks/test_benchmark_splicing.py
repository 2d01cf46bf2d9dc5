"""The benchmark of splices measures what it says. How long anything takes, no test claims."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

import splicing
from dagrun import State
from splicing import Patches, Row, graph_of, measure_graph, measure_run, place_of, plan_of


def _row(**changes: Any) -> Row:
    facts = {"shape": "chain", "steps": 1_000, "where": "early", "limit": None, "patches": 3, "must": 0.5}
    return Row(**{**facts, "check": 1.0, "apply": 0.4, "slowest": 0.5, "whole": 2.0, **changes})


@pytest.mark.parametrize("shape", splicing.GRAPHS)
@pytest.mark.parametrize("where", splicing.WHERE)
@pytest.mark.parametrize("limit", [None, 2])
def test_every_patch_has_ten_edits_of_all_sorts_and_fits(shape: str, where: str, limit: int | None) -> None:
    """A patch that does less, or is refused, is fast."""
    graph = graph_of(plan_of(shape, 200, limit), 10)
    patches = Patches(place_of(graph, where, 7), lambda id_: graph.nodes[id_].plan.depends_on)
    patches.first()

    patch = patches.next()
    assert Counter(edit.op for edit in patch.edits) == {"add": 3, "replace": 3, "rewire": 2, "drop": 2}
    assert len(patch.edits) == splicing.EDITS
    checks, applied = measure_graph(plan_of(shape, 200, limit), where, 4)
    assert len(checks) == len(applied) == 4


def test_part_of_the_plan_has_been_carried_out() -> None:
    """Early is right behind that, and late is at the other end."""
    graph = graph_of(plan_of("chain", 100, None), 20)

    assert sum(node.state is State.SUCCEEDED for node in graph.nodes.values()) == 20
    assert place_of(graph, "early", 3) == ["s20", "s21", "s22"]
    assert place_of(graph, "late", 3) == ["s97", "s98", "s99"]


@pytest.mark.parametrize("where", splicing.WHERE)
def test_a_live_run_takes_the_same_patches(where: str) -> None:
    """It would raise if an observer had missed one."""
    assert len(anyio.run(measure_run, plan_of("random3", 200, None), where, 4)) == 4


def test_only_apply_has_a_must_and_only_without_a_limit() -> None:
    assert _row().passed
    assert not _row(apply=0.6).passed
    assert _row(apply=9.0, must=None).passed
    assert splicing.measure_row("chain", 100, "early", None, 3).must is None
    assert splicing.MUSTS == {1_000: 0.5, 10_000: 2.0}


def test_of_the_biggest_plans_one_shape_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """To make them takes most of the time; `make bench-runs` has three minutes for everything."""
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(splicing, "measure_row", lambda *facts: asked.append(facts))

    list(splicing.measure(splicing.SIZES, splicing.MANY))

    big = [facts for facts in asked if facts[1] == splicing.BIG]
    assert {(facts[0], facts[4]) for facts in big} == {("random3", splicing.FEW)}
    assert len(big) == 4
    assert Counter(facts[0] for facts in asked) == {"chain": 8, "layered": 8, "random3": 12}


def test_results_are_kept_with_their_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the gate says by the exit code whether a must was missed."""
    monkeypatch.setattr(splicing, "measure", lambda sizes, count: iter([_row(), _row(apply=0.7)]))

    assert splicing.main(["--out", str(tmp_path), "--gate"]) == 1
    assert splicing.main(["--out", str(tmp_path)]) == 0

    kept = json.loads((tmp_path / "splicing.json").read_text())
    assert [row["passed"] for row in kept["splices"]] == [True, False]
    assert kept["python"].startswith("CPython")
