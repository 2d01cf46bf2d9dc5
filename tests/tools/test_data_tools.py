"""Loading, cleaning and adding up real files, which are less tidy than examples."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from dagrun import ToolError
from dagrun_tools.analysis.baseline import window_of
from dagrun_tools.analysis.calculate_stats import calculate_stats
from dagrun_tools.analysis.detect_trends import TrendConfig, detect_trends
from dagrun_tools.files import data_files
from dagrun_tools.tables import load_csv as load_csv_module
from dagrun_tools.tables.cells import parse_date, parse_number
from dagrun_tools.tables.clean_data import CleanOptions, clean_data
from dagrun_tools.tables.load_csv import load_csv
from data_steps import Steps, steps_in


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    with steps_in(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("text", "decimal", "expected"),
    [
        ("$1,234.50", ".", 1234.5),
        ("US$ 12", ".", 12),
        ("(1,200)", ".", -1200),
        ("-$3.20", ".", -3.2),
        ("\u22125", ".", -5),
        ("12.5 %", ".", 12.5),
        ("1e3", ".", 1000.0),
        ("1.234,50 €", ",", 1234.5),
        ("1 234,5", ",", 1234.5),
        ("12,34,5", ".", None),
        ("T00001", ".", None),
        ("1e999", ".", None),
        (".", ".", None),
        ("٣", ".", None),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, decimal: str, expected: float | None) -> None:
    """A cell that is not wholly a number stays a text: a half-read number is worse than none."""
    assert parse_number(text, decimal) == expected


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        ("2025-10-01", "iso", "2025-10-01"),
        ("2025-10-01T00:00:00", "iso", "2025-10-01"),
        ("2025-10-01 12:30", "iso", "2025-10-01T12:30:00"),
        ("31/12/2025", "%d/%m/%Y", "2025-12-31"),
        ("Dec 2025", "%b %Y", "2025-12"),
        ("2025-02-30", "iso", None),
        ("20251001", "iso", None),
    ],
)
def test_dates_become_iso_dates(text: str, form: str, expected: str | None) -> None:
    """Eight digits are a number, not a date."""
    assert parse_date(text, form) == expected


@pytest.mark.parametrize(
    "data",
    [
        "naïve;1,5\nzoë;2,5\n".encode("cp1252"),
        "naïve;1,5\nzoë;2,5\n".encode("utf-8-sig"),
        "naïve;1,5\nzoë;2,5\n".encode("utf-16"),
    ],
)
def test_encoding_delimiter_and_decimal_comma_are_detected(steps: Steps, data: bytes) -> None:
    """Spreadsheets in half of the world write semicolons and decimal commas."""
    encoding = "utf-16" if data[:2] == b"\xff\xfe" else "utf-8-sig" if data[:3] == b"\xef\xbb\xbf" else "cp1252"
    text = data.decode(encoding)
    cleaned = steps.clean(("name;price\n" + text).encode(encoding))
    assert cleaned.delimiter == ";"
    assert [(row["name"], row["price"]) for row in steps.rows(cleaned)] == [("naïve", 1.5), ("zoë", 2.5)]


def test_a_gzipped_file_reads_like_a_plain_one(steps: Steps) -> None:
    """Also a file of several members, which appending to a compressed file makes."""
    whole = steps.load(gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n"), "data.csv.gz")
    assert steps.rows(whole) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


def test_a_decompression_bomb_is_stopped_at_the_ceiling(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of zeros packs into a kilobyte; the ceiling counts the unpacked bytes."""
    monkeypatch.setattr(load_csv_module, "MAX_BYTES", 10_000)
    with pytest.raises(ToolError, match="ceiling"):
        steps.load(gzip.compress(b"a" * 1_000_000), "bomb.csv.gz")


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "empty"), (b"\n\n", "empty"), (b"\x89PNG\0\0", "not text"), (b"\x1f\x8bbroken", "broken")],
)
def test_what_is_no_table_is_refused_in_one_sentence(steps: Steps, data: bytes, reason: str) -> None:
    """A picture by mistake is the most common hostile input."""
    with pytest.raises(ToolError, match=reason):
        steps.load(data)


@pytest.mark.parametrize("name", ["../secret.csv", "/etc/passwd", "a/../../b.csv", "..\\b.csv", "", "x\0y"])
def test_files_outside_the_folder_are_neither_read_nor_written(steps: Steps, name: str) -> None:
    """A plan is untrusted, and so is every file name in it."""
    with pytest.raises(ToolError):
        load_csv(steps.context, name)
    with pytest.raises(ToolError):
        data_files.write_bytes(name, b"x")


def test_files_are_also_looked_for_where_the_command_line_says(
    steps: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an output folder, the data is still in the folder of the user."""
    other = tmp_path / "before"
    other.mkdir()
    (other / "there.csv").write_text("a\n1\n")
    with pytest.raises(ToolError, match=r"there\.csv"):
        load_csv(steps.context, "there.csv")
    monkeypatch.setenv(data_files.READ_FROM, str(other))
    assert load_csv(steps.context, "there.csv").rows == 1


def test_headers_are_made_different_and_ragged_rows_told(steps: Steps) -> None:
    """Two columns of one name must not overwrite each other, and lost cells are reported."""
    table = steps.load("a,a,\n1,2,3\n4\n5,6,7,8\n")
    assert table.columns == ["a", "a_2", "column_3"]
    assert [row["a"] for row in steps.rows(table)] == ["1", "4", "5"]
    assert table.missing == {"a_2": 1, "column_3": 1}
    assert "1 rows have more cells" in table.notes[0]


def test_nulls_are_removed_before_repeats_and_both_are_counted(steps: Steps) -> None:
    """Of two equal keys, the row without a value must not be the one that is kept."""
    cleaned = steps.clean("id,v\n1,\n1,5\n1,5\n2,NA\n3,7\n", removeNulls=True, deduplicateBy="id")
    assert [row["v"] for row in steps.rows(cleaned)] == [5, 7]
    assert cleaned.cleaning is not None
    assert (cleaned.cleaning.removed_nulls, cleaned.cleaning.removed_duplicates) == (2, 1)


def test_nothing_is_removed_unless_it_is_asked_for(steps: Steps) -> None:
    """The default fixes types and keeps every row."""
    cleaned = steps.clean("id,v\n1,\n1,\n")
    assert cleaned.rows == 2
    assert cleaned.missing == {"v": 2}


def test_a_list_of_columns_limits_what_counts_as_incomplete(steps: Steps) -> None:
    """Of fourteen columns, only two may matter."""
    assert steps.clean("a,b\n1,\n,2\n3,4\n", remove_nulls=["a"]).rows == 2


def test_a_cell_that_does_not_fit_its_column_is_missing_and_counted(steps: Steps) -> None:
    """One typo must neither turn a thousand numbers into texts nor vanish."""
    numbers = "".join(f"{n}\n" for n in range(99))
    cleaned = steps.clean(f"v\n{numbers}oops\n")
    assert cleaned.types == {"v": "number"}
    assert cleaned.cleaning is not None
    assert cleaned.cleaning.unreadable == {"v": 1}


def test_codes_with_leading_zeros_stay_texts(steps: Steps) -> None:
    """The post code 01067 is not the number 1067."""
    assert steps.rows(steps.clean("zip\n01067\n99999\n"))[0]["zip"] == "01067"


def test_dates_that_read_two_ways_take_the_way_of_fewer_months_and_say_so(steps: Steps) -> None:
    """3/4, 3/5 and 3/6 are days of March, not one day in each of three months."""
    cleaned = steps.clean("date,v\n03/04/2025,1\n03/05/2025,2\n03/06/2025,3\n")
    assert steps.rows(cleaned)[0]["date"] == "2025-03-04"
    assert "two ways" in cleaned.notes[0]


def test_unknown_columns_are_named_with_those_that_exist(steps: Steps) -> None:
    """The planner reads this sentence and has to find the right name in it."""
    table = steps.load("id,v\n1,2\n")
    with pytest.raises(ToolError, match=r"no column nope; there is id, v"):
        clean_data(steps.context, table, CleanOptions(deduplicate_by="nope"))
    with pytest.raises(ToolError, match="did you mean v"):
        calculate_stats(steps.context, table, value="vv")


def test_columns_are_found_by_themselves_in_the_housing_data(steps: Steps) -> None:
    """Its time is in two columns, and its column `date` holds fractions of years."""
    table = load_csv(steps.context, "sample:texas_housing_sales")
    assert table.rows == 8602
    assert table.missing == {"sales": 568, "volume": 568, "median": 616, "listings": 1424, "inventory": 1467}
    stats = calculate_stats(steps.context, table)
    assert (stats.roles.value, stats.roles.year, stats.roles.month, stats.roles.date) == (
        "sales",
        "year",
        "month",
        None,
    )
    assert stats.roles.groups == ["city"]
    assert len(stats.breakdowns["city"]) == 46
    assert len(stats.months) == 187
    assert stats.years[-1].months == 7
    assert stats.years[-1].growth is None
    assert stats.rows == 8602 - 568


def test_growth_is_left_out_after_a_gap_and_after_zero(steps: Steps) -> None:
    """Growth from zero is undefined, and March does not follow January."""
    text = "date,city,sales\n2025-01-01,a,10\n2025-03-01,a,0\n2025-04-01,a,5\n2025-05-01,a,10\n"
    stats = calculate_stats(steps.context, steps.clean(text), group_by=["city"])
    assert [(m.period, m.growth) for m in stats.months] == [
        ("2025-01", None),
        ("2025-03", None),
        ("2025-04", None),
        ("2025-05", 100.0),
    ]


def test_without_dates_there_are_shares_but_no_months(steps: Steps) -> None:
    """A table without time can still be added up."""
    stats = calculate_stats(steps.context, steps.clean("city,sales\na,1\nb,3\na,2\nb,4\n"))
    assert stats.months == []
    assert {share.name: share.percent for share in stats.breakdowns["city"]} == {"b": 70.0, "a": 30.0}
    with pytest.raises(ToolError, match="no column of dates"):
        calculate_stats(steps.context, steps.clean("city,sales\na,1\nb,3\n"), metrics=["monthly_totals"])


def test_figures_are_asked_for_by_their_usual_names(steps: Steps) -> None:
    """Planners write sum, mean, median and trends; a plan can refer to each of them."""
    rows = "date,sales\n2025-01-01,1\n2025-01-02,2\n2025-02-01,9\n2025-03-01,12\n"
    table = steps.clean(rows)

    named = calculate_stats(steps.context, table, metrics=["mean", "median"])
    assert (named.figures, named.months) == ({"mean": 6.0, "median": 5.5}, [])
    assert named.summary is not None
    everything = calculate_stats(steps.context, table)
    assert everything.figures == {"sum": 24.0, "mean": 6.0, "median": 5.5, "trends": 4.5}
    trends = calculate_stats(steps.context, table, metrics=["trends"])
    assert trends.figures == {"trends": 4.5}  # 3, 9, 12 in three months: the median of 6, 3 and 4.5
    assert [month.growth is None for month in trends.months] == [True, False, False]
    assert calculate_stats(steps.context, table, metrics=["summary"]).figures == {}
    with pytest.raises(ToolError, match="no column of dates"):
        calculate_stats(steps.context, steps.clean("city,sales\na,1\nb,3\n"), metrics=["trends"])


@pytest.mark.parametrize(
    ("window", "same", "other"),
    [
        ("3months", ("2025-01-31", "2025-03-01"), "2025-04-01"),
        ("3 months", ("2025-10-01", "2025-12-31"), "2025-09-30"),
        ("quarterly", ("2025-04", "2025-06"), "2025-07"),
        ("1month", ("2025-02-01", "2025-02-28"), "2025-03-01"),
        ("monthly", ("2025-02-01", "2025-02-28"), "2025-01-31"),
        ("weekly", ("2025-12-29", "2026-01-04"), "2026-01-05"),
        ("1week", ("2025-12-29", "2026-01-04"), "2025-12-28"),
        ("yearly", ("2025-01-01", "2025-12-31"), "2026-01-01"),
        ("2years", ("2024-01-01", "2025-12-31"), "2026-01-01"),
        ("14 days", ("2025-12-29", "2025-12-29"), "2026-03-01"),
        ("7days", ("2025-10", "2025-10"), "2025-11"),
    ],
)
def test_windows_are_named_or_counted(window: str, same: tuple[str, str], other: str) -> None:
    """A quarter is three months, from January; weeks begin on Mondays; months are never cut."""
    assert window_of(same[0], window) == window_of(same[1], window) != window_of(other, window)


@pytest.mark.parametrize("window", ["3month s", "0months", "months", "3 quarters", "1000days", "-1day", ""])
def test_other_windows_are_refused(window: str) -> None:
    """By the schema, so before anything runs."""
    with pytest.raises(ValidationError):
        TrendConfig.model_validate({"window": window})


def test_a_window_of_three_months_is_used(steps: Steps) -> None:
    """And the report says so."""
    trends = detect_trends(steps.context, steps.sales(), TrendConfig(window="3months"))
    assert trends.window == "3months"
    assert trends.methods["expected"] == "median of the 3-month window"
