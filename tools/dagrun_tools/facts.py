"""The data that the data tools exchange: small facts as JSON, with tables and pictures as artifacts.

The docstrings of these models are part of the tools' JSON Schemas, which planners read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagrun import Artifact

ColumnType = Literal["text", "number", "date", "empty"]
TimeStep = Literal["day", "month"]


class Facts(BaseModel):
    """The base of the tools' outputs: fields added by a newer version do not break an older one."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Cleaning(Facts):
    """The changes that `clean_data` made.

    Attributes:
        rows_before: Rows that came in.
        rows_after: Rows that are left.
        removed_nulls: Rows dropped because something was missing in them.
        removed_duplicates: Rows dropped because an earlier one has the same key.
        fixed: Cells by column whose text was turned into a number or a date of another form.
        unreadable: Cells by column that did not fit the type of their column, and count as missing.
    """

    rows_before: int
    rows_after: int
    removed_nulls: int = 0
    removed_duplicates: int = 0
    fixed: dict[str, int] = Field(default_factory=dict)
    unreadable: dict[str, int] = Field(default_factory=dict)


class Table(Facts):
    """A table: its rows as an artifact (JSON lines, one object a row), and facts about it.

    Attributes:
        table: The rows.
        rows: How many.
        columns: Their names, in order.
        missing: Cells by column that hold nothing, or a word for it such as ``NA``.
        types: Of the columns; empty until `clean_data` has found them.
        units: Of the columns that say theirs, such as ``$``.
        source: The file that it was read from.
        encoding: Of that file.
        delimiter: Of that file.
        notes: What a careful reader should know, in sentences.
        cleaning: What `clean_data` did; `None` until then.
    """

    kind: Literal["table"] = "table"
    table: Artifact
    rows: int
    columns: list[str]
    missing: dict[str, int] = Field(default_factory=dict)
    types: dict[str, ColumnType] = Field(default_factory=dict)
    units: dict[str, str] = Field(default_factory=dict)
    source: str = ""
    encoding: str = ""
    delimiter: str = ""
    notes: list[str] = Field(default_factory=list)
    cleaning: Cleaning | None = None


class Period(Facts):
    """A month or a year.

    Attributes:
        period: Such as ``2025-10`` or ``2025``.
        total: Of the value, in its unit.
        rows: That went into it.
        growth: Percent against the period before; `None` if that is missing, incomplete or zero.
        months: For a year: how many of its months are there.
    """

    period: str
    total: float
    rows: int
    growth: float | None = None
    months: int = 1


class Share(Facts):
    """One product, city, region.

    Attributes:
        name: Of the group.
        total: Of the value, in its unit.
        rows: That went into it.
        percent: Of the grand total.
        months: The totals of the months of `Statistics.months`; `None` where the group has no row.
    """

    name: str
    total: float
    rows: int
    percent: float
    months: list[float | None] = Field(default_factory=list)


class Summary(Facts):
    """The distribution of the value over the rows, in its unit."""

    count: int
    mean: float
    median: float
    minimum: float
    maximum: float
    deviation: float


class Roles(Facts):
    """Which column plays which part.

    Attributes:
        value: What is added up.
        date: A column of dates; or `None`.
        year: A column of years, where there is no column of dates.
        month: A column of months from 1 to 12, beside *year*.
        groups: Columns to break the totals down by.
    """

    value: str
    date: str | None = None
    year: str | None = None
    month: str | None = None
    groups: list[str] = Field(default_factory=list)

    @property
    def has_time(self) -> bool:
        """Whether rows can be put in time."""
        return self.date is not None or (self.year is not None and self.month is not None)


class Statistics(Facts):
    """Totals, shares and growth.

    Attributes:
        table: The rows that they come from.
        source: The file that the rows come from.
        roles: Which column plays which part.
        unit: Of the value: a currency sign or a noun.
        aggregate: How the value of a month comes from its rows.
        step: How fine the time in the rows is; `None` without time.
        rows: That were counted.
        total: Of the value over all rows (their mean, if *aggregate* is that).
        months: In order.
        years: In order; only if there are more than 24 months.
        breakdowns: By column, then largest first.
        summary: The distribution over the rows.
        figures: ``sum``, ``mean`` and ``median`` over the rows, and ``trends``: by how much the value of a month
            changes from month to month (the Theil-Sen slope). Those that were asked for by name.
        cleaning: What `clean_data` did, if the table went through it.
        notes: What a careful reader should know.
    """

    kind: Literal["statistics"] = "statistics"
    table: Artifact
    source: str = ""
    roles: Roles
    types: dict[str, ColumnType] = Field(default_factory=dict)
    columns: list[str] = Field(default_factory=list)
    unit: str = ""
    aggregate: Literal["sum", "mean"] = "sum"
    step: TimeStep | None = None
    rows: int
    total: float
    months: list[Period] = Field(default_factory=list)
    years: list[Period] = Field(default_factory=list)
    breakdowns: dict[str, list[Share]] = Field(default_factory=dict)
    summary: Summary | None = None
    figures: dict[str, float] = Field(default_factory=dict)
    cleaning: Cleaning | None = None
    notes: list[str] = Field(default_factory=list)


class Trend(Facts):
    """Where a series is heading.

    Attributes:
        series: ``total``, or the name of a group.
        direction: ``flat`` if a rise or fall is not told from chance.
        slope: By how much the value of a month changes from month to month, in its unit.
        percent: The same in percent of the usual month.
        confidence: From 0 to 1: how sure it is that there is a trend at all.
        observations: That it rests on.
    """

    series: str
    direction: Literal["rising", "falling", "flat"]
    slope: float
    percent: float | None = None
    confidence: float
    observations: int


class Anomaly(Facts):
    """Neighbouring days or months far from their expected values.

    Attributes:
        series: ``total``, or the name of a group.
        direction: Above what was expected, or below.
        start: The first day or month.
        end: The last one.
        observations: Days or months that stand out.
        actual: The value over these, in its unit.
        expected: What was to be expected over these.
        score: The largest robust z-score, with its sign.
        confidence: From 0 to 1: how sure it is that this is not chance.
    """

    series: str
    direction: Literal["peak", "dip"]
    start: str
    end: str
    observations: int
    actual: float
    expected: float
    score: float
    confidence: float


class Trends(Facts):
    """Trends and anomalies, and how they were found.

    Attributes:
        trends: The total first, then the groups as in the breakdown.
        anomalies: Strongest first.
        more_anomalies: How many weaker ones are left out.
        threshold: The score from which on an observation stands out.
        methods: In words.
    """

    kind: Literal["trends"] = "trends"
    unit: str = ""
    step: TimeStep
    window: str
    sensitivity: str
    threshold: float
    trends: list[Trend]
    anomalies: list[Anomaly]
    more_anomalies: int = 0
    methods: dict[str, str] = Field(default_factory=dict)


class Point(Facts):
    """One value of a series; *period* is a day, a month or a year in ISO form."""

    period: str
    value: float


class Series(Facts):
    """A series from elsewhere, to set beside the statistics.

    Attributes:
        name: For the legend.
        unit: Series of one unit share their axis.
        points: In order of time.
        source: Where it comes from, in a few words.
    """

    kind: Literal["series"] = "series"
    name: Annotated[str, Field(max_length=200)]
    unit: str = ""
    points: list[Point] = Field(default_factory=list)
    source: str = ""


class Chart(Facts):
    """A chart, as a file for people and as artifacts for other tools.

    Attributes:
        title: Above the chart.
        file: The file that was written, relative to the working directory.
        image: That file as an artifact.
        svg: The chart as SVG.
        alt: What it shows, in a sentence.
    """

    kind: Literal["chart"] = "chart"
    title: str
    file: str
    image: Artifact
    svg: Artifact
    alt: str = ""


class Report(Facts):
    """A report.

    Attributes:
        file: The file that was written, relative to the working directory.
        format: ``markdown``, ``html`` or ``csv``.
        report: That file as an artifact.
        sections: That it has.
    """

    kind: Literal["report"] = "report"
    file: str
    format: str
    report: Artifact
    sections: list[str]


class Parts:
    """The facts in the data that a step received, sorted by kind, however deep they are nested.

    A step that depends on several others receives an object of their outputs; a step that depends on one receives its
    output alone; a ``for_each`` makes a list. These forms may be mixed.

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
                pass  # numbers and texts beside the facts are ignored
