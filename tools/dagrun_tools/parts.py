"""Finding what the tools need in the data that a step was given."""

from __future__ import annotations

from typing import Any

from dagrun_tools.facts import Chart, Series, Statistics, Table, Trends


class Parts:
    """What is found in the data that a step was given, however it is nested.

    A step that depends on several others gets an object of their outputs, one that depends on a single step just its
    output; a ``for_each`` gives a list. All of that may be mixed.

    Args:
        data: Plain JSON.
    """

    def __init__(self, data: Any) -> None:
        self.tables: list[Table] = []
        self.statistics: list[Statistics] = []
        self.trends: list[Trends] = []
        self.series: list[Series] = []
        self.charts: list[Chart] = []
        self._collect(data)

    def _collect(self, data: Any) -> None:
        match data:
            case {"kind": "table"}:
                self.tables.append(Table.model_validate(data))
            case {"kind": "statistics"}:
                self.statistics.append(Statistics.model_validate(data))
            case {"kind": "trends"}:
                self.trends.append(Trends.model_validate(data))
            case {"kind": "series"}:
                self.series.append(Series.model_validate(data))
            case {"kind": "chart"}:
                self.charts.append(Chart.model_validate(data))
            case dict():
                for value in data.values():
                    self._collect(value)
            case list():
                for value in data:
                    self._collect(value)
            case _:
                pass  # a number or a text beside the parts is no part
