"""Reports: in every format, text from data stays text."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from dagrun import ToolError
from dagrun_tools.analysis.calculate_stats import calculate_stats
from dagrun_tools.analysis.detect_trends import detect_trends
from dagrun_tools.reports.formats import escape_markdown, safe_cell
from dagrun_tools.reports.generate_chart import generate_chart
from dagrun_tools.reports.sections import TextSection
from dagrun_tools.reports.write_report import write_report
from data_steps import Steps, plain, steps_in, warm_up

HOSTILE = (
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "![x](http://evil.test/?q=1)",
    "[click](javascript:alert(1))",
    "a | b\nc",
    "# heading",
    "- item",
    "1. item",
    "*bold* _soft_ `code` ~gone~",
    "&lt;b&gt; &amp;",
    "http://evil.test www.evil.test a@evil.test <http://evil.test>",
    "\u202ereversed\x07\x1b[2J",
)


@pytest.fixture(scope="module", autouse=True)
def _fonts() -> None:
    warm_up()


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    with steps_in(tmp_path) as made:
        yield made


def hostile_parts(steps: Steps) -> dict[str, Any]:
    """Return statistics, trends and a chart whose names all try to become markup."""
    target = io.StringIO()
    writer = csv.writer(target)
    writer.writerow(["date", "<b>pro|duct</b>", "revenue"])
    for number, name in enumerate(HOSTILE):
        writer.writerows([f"2025-{month:02d}-01", name, 100 + number] for month in (1, 2))
    stats = calculate_stats(steps.context, steps.clean(target.getvalue()))
    chart = generate_chart(steps.context, plain(stats), title="<i>![x](http://evil.test)", output="a_(b)[c].png")
    return {"s": plain(stats), "t": plain(detect_trends(steps.context, stats)), "c": plain(chart)}


def report(steps: Steps, data: Any, **options: Any) -> str:
    """Return the text of a report."""
    return (steps.root / write_report(steps.context, data, **options).file).read_text("utf-8")


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_no_markup_but_its_own(steps: Steps) -> None:
    """S82: there is no script, no handler and no link except to sections, and names are shown unchanged."""
    page = _Page(report(steps, hostile_parts(steps), format="html"))
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "iframe", "object", "link", "b", "i", "form", "base"})
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert all(a["href"] is not None and a["href"].startswith("#s") for tag, a in page.tags if tag == "a")
    assert "<script>alert(1)</script>" in page.text


def test_a_page_loads_nothing_and_says_so_to_the_browser(steps: Steps) -> None:
    """Pictures are embedded; the policy forbids everything else, scripts above all."""
    text = report(steps, hostile_parts(steps), format="html")
    page = _Page(text)
    sources = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    assert sources
    assert all(source is not None and source.startswith("data:image/svg+xml;base64,") for source in sources)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert not re.search(r"url\(|@import", text)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_every_picture_and_every_table_is_named_for_those_who_cannot_see(steps: Steps) -> None:
    """Each table has a caption, each picture a text, and the page a language."""
    page = _Page(report(steps, hostile_parts(steps), format="html"))
    tags = [tag for tag, _ in page.tags]
    assert tags.count("caption") == tags.count("table") > 0
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")
    assert dict(page.tags)["html"] == {"lang": "en"}


@pytest.mark.parametrize("preset", ["commonmark", "js-default"])
def test_markdown_renders_names_as_text(steps: Steps, preset: str) -> None:
    """S83: the rendered page has only the elements of the report, and its only picture is the chart."""
    text = report(steps, hostile_parts(steps), format="markdown")
    page = _Page(MarkdownIt(preset).render(text))
    allowed = {"h1", "h2", "p", "ul", "li", "strong", "img", "table", "thead", "tbody", "tr", "th", "td"}
    assert {tag for tag, _ in page.tags} <= allowed
    assert [a["src"] for tag, a in page.tags if tag == "img"] == ["a_%28b%29%5Bc%5D.png"]


def test_rows_of_markdown_tables_have_as_many_cells_as_their_headers(steps: Steps) -> None:
    """A pipe or a line break in a name must not move the figures into other columns."""
    text = report(steps, hostile_parts(steps), format="markdown")
    html = MarkdownIt("js-default").render(text)
    for table in re.findall(r"<table>.*?</table>", html, re.DOTALL):
        rows = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
        assert len({len(re.findall(r"<t[hd]", row)) for row in rows}) == 1
        assert all(re.sub(r"<[^>]+>", "", row).strip() for row in rows)


@pytest.mark.parametrize("text", HOSTILE)
def test_escaped_text_reads_as_it_was(text: str) -> None:
    """A reader sees the text unchanged, except that control characters become spaces."""
    shown = _Page(MarkdownIt("js-default").render(escape_markdown(text))).text.strip()
    assert shown == " ".join("".join(c if c.isprintable() else " " for c in text).split())


def test_figures_stay_legible_in_the_source_of_markdown() -> None:
    """Markdown is often read unrendered."""
    for text in ("+11.7 %", "41.6 %", "sales_q4_2025.csv", "\u22123", "$1,234.50", "15 to 24 December 2025"):
        assert escape_markdown(text) == text


@pytest.mark.parametrize("text", ["=HYPERLINK(1)", "+cmd|x", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1"])
def test_cells_that_could_be_formulas_become_texts(text: str) -> None:
    """S81: a spreadsheet would run text that begins like this."""
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["+11.7 %", "-3", "\u22123", "+$618.33", "Widget A", "", "1=2"])
def test_figures_and_plain_texts_are_left_alone(text: str) -> None:
    """A guard that spoils figures would be turned off."""
    assert safe_cell(text) == text


def test_a_spreadsheet_holds_the_tables_and_no_formula(steps: Steps) -> None:
    """This holds for every cell of the file."""
    text = "date,product,revenue\n" + "".join(f"2025-0{m}-01,{n},5\n" for m in (1, 2) for n in ("=1+1", "@x", "+y"))
    data = plain(calculate_stats(steps.context, steps.clean(text)))
    rows = list(csv.reader(io.StringIO(report(steps, data, format="csv").removeprefix("\ufeff"))))
    assert ["January 2025", "15", "\u2013", "3"] in rows
    cells = [cell for row in rows for cell in row]
    assert {"'=1+1", "'@x", "'+y"} <= set(cells)
    assert not [cell for cell in cells if cell[:1] in ("=", "@", "\t")]


def test_sections_come_in_the_order_asked_for_and_say_if_they_are_empty(steps: Steps) -> None:
    """A heading with nothing below looks like a fault."""
    text = report(steps, plain(steps.sales()), sections=["charts", "summary"])
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Charts", "## Summary"]
    assert "There is nothing to say here." in text


def test_a_report_links_its_charts_from_where_it_is(steps: Steps) -> None:
    """Report and charts may be in different folders."""
    stats = plain(steps.sales())
    chart = plain(generate_chart(steps.context, stats, output="charts/a.png"))
    assert "](../charts/a.png)" in report(steps, [stats, chart], output="texts/report.md")


def test_nothing_to_report_is_said_in_a_sentence(steps: Steps) -> None:
    """An empty report would be taken for a result."""
    with pytest.raises(ToolError, match="nothing to report"):
        write_report(steps.context, {"a": [1, {"b": None}]})


def test_sections_of_free_text_stand_where_the_plan_wants_them(steps: Steps) -> None:
    """Paragraphs and lists; whatever looks like markup is text, in every format."""
    text = "The *quarter* had <b>three</b> products.\n\n- one [link](http://x.y)\n- two\n\nThe end."
    sections: list[Any] = ["summary", TextSection(title="Back # ground", text=text), "charts"]
    report = write_report(steps.context, plain(steps.sales()), sections=sections, output="a.md")
    shown = (steps.root / "a.md").read_text("utf-8")

    assert report.sections == ["summary", "Back # ground", "charts"]
    assert [line for line in shown.splitlines() if line.startswith("## ")][1] == "## Back # ground"
    rendered = MarkdownIt("commonmark").render(shown)
    assert "The *quarter* had &lt;b&gt;three&lt;/b&gt; products." in rendered
    assert "<li>two</li>" in rendered
    assert "href" not in rendered
    write_report(steps.context, plain(steps.sales()), sections=sections, format="html", output="a.html")
    page = (steps.root / "a.html").read_text("utf-8")
    assert "&lt;b&gt;three&lt;/b&gt;" in page
    assert "<b>three" not in page


def test_free_text_alone_is_a_report(steps: Steps) -> None:
    """A plan may write what a model has found."""
    report = write_report(steps.context, {}, sections=[TextSection(title="Found", text="Nothing.")], title="A: Note")
    assert report.file == "a_note.md"
    assert "## Found\n\nNothing." in (steps.root / "a_note.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("expected", "title", "file"),
    [
        ("q4_report.html", "", "q4_report.html"),
        ("The report, saved as out/q4.htm", "Sales", "out/q4.htm"),
        ("a.md", "Q4 2025: Sales", "q4_2025_sales.html"),
        ("", "", "report.html"),
    ],
)
def test_the_step_announces_the_report(steps: Steps, expected: str, title: str, file: str) -> None:
    """Else it is named after its title; a file of another format is none."""
    context = dataclasses.replace(steps.context, expected_output=expected)
    assert write_report(context, plain(steps.sales()), format="html", title=title).file == file
