"""The benchmark of whole jobs: both sides do the same, and its musts can be missed."""

from __future__ import annotations

import pytest

import check
import command
import whole
from whole import Row

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("shape", whole.MUSTS)
async def test_a_job_has_the_outputs_of_its_bare_tasks(shape: str) -> None:
    graph, seconds = whole.graph_of(shape, 30), dict[str, list[float]]()

    assert await whole.whole(graph, seconds) == await whole.bare(graph)
    assert tuple(seconds) == whole.PARTS


@pytest.mark.parametrize("shape", whole.MUSTS)
def test_no_step_has_the_shape_of_another(shape: str) -> None:
    """A step takes outputs under the ids of their steps, so that even equal numbers of them differ."""
    taken = [tuple(needs) for needs in whole.graph_of(shape, 300).values() if len(needs) > 1]
    assert len(set(taken)) > 0.9 * len(taken) > 50


def test_a_row_over_a_must_is_missed() -> None:
    assert Row("near", 100, 2.0, 0.1, 0.8, 1.0, 0.1).passed
    assert not Row("near", 100, 2.1, 0.1, 0.8, 1.1, 0.1).passed
    assert Row("random3", 100, 2.1, 0.1, 0.8, 1.1, 0.1).passed
    assert "MISSED" in whole.line_of(Row("random3", 100, 2.0, 0.1, 0.9, 0.9, 0.1))


def test_the_whole_and_its_check_are_watched() -> None:
    """Both were recorded, so that a regression of one turns the pipeline red."""
    watched = [one for one in check.watched() if one.file == "whole"]

    assert [one.field for one in watched] == ["whole", "check"]
    assert all(one.recorded(command.RESULTS) is not None for one in watched)
