"""`map_columns` renames columns, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import dagrun
from dagrun import ToolError
from dagrun_tools.tables.map_columns import map_columns
from data_steps import Steps, steps_in

TEXT = 'city,homes_sold,volume\nAustin,"1,200",$5\nDallas,NA,$7\n'


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    with steps_in(tmp_path) as made:
        yield made


def test_rows_and_order_stay(steps: Steps) -> None:
    loaded = steps.load(TEXT)
    mapped = map_columns(steps.context, loaded, {"homes_sold": "sales"})

    assert mapped.columns == ["city", "sales", "volume"]
    assert steps.rows(mapped) == [
        {"city": "Austin", "sales": "1,200", "volume": "$5"},
        {"city": "Dallas", "sales": "NA", "volume": "$7"},
    ]
    assert mapped.missing == {"sales": 1}
    assert (mapped.rows, mapped.source) == (loaded.rows, loaded.source)
    assert mapped.notes == ["The column homes_sold is called sales here."]


def test_what_is_known_about_columns_goes_with_them(steps: Steps) -> None:
    """Types, units and the counts of the cleaning keep the names of their columns."""
    mapped = map_columns(steps.context, steps.clean(TEXT), {"homes_sold": "sales", "volume": "value"})
    assert mapped.types == {"city": "text", "sales": "number", "value": "number"}
    assert mapped.units == {"value": "$"}
    assert mapped.cleaning is not None
    assert mapped.cleaning.fixed == {"sales": 1, "value": 2}


def test_two_columns_may_swap(steps: Steps) -> None:
    mapped = map_columns(steps.context, steps.load("a,b\n1,2\n"), {"a": "b", "b": "a"})
    assert steps.rows(mapped) == [{"b": "1", "a": "2"}]


@pytest.mark.parametrize(
    ("mapping", "reason"),
    [
        ({"cities": "city"}, "there is no column cities; there is city, homes_sold, volume"),
        ({"homes_sold": "volume"}, "two columns would be called volume"),
        ({"city": "x", "volume": "x"}, "two columns would be called x"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(steps: Steps, mapping: dict[str, str], reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        map_columns(steps.context, steps.load(TEXT), mapping)


@pytest.mark.parametrize("columns", [{}, {"a": ""}, {"a": 1}, ["a"]])
def test_mapping_that_maps_nothing_is_refused_with_the_plan(columns: object) -> None:
    """It is refused before anything runs."""
    step = dagrun.Step(id="s", tool="map_columns", args={"data": "${input.table}", "columns": columns})
    with pytest.raises(dagrun.PlanRefused):
        dagrun.check(dagrun.Plan(steps=[step]), tools=[map_columns])


def test_it_comes_with_the_package() -> None:
    assert dagrun.Toolbox("dagrun_tools")["map_columns"].effect is dagrun.Effect.PURE
