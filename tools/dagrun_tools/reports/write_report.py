"""`write_report`: the figures, trends and charts of other steps, as a report for people."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from dagrun import ToolContext, ToolError, tool
from dagrun_tools.facts import Chart, Parts, Report
from dagrun_tools.files.data_files import checked_name, write_bytes
from dagrun_tools.reports.document import Document
from dagrun_tools.reports.file_names import announced, slug
from dagrun_tools.reports.formats import to_csv, to_html, to_markdown
from dagrun_tools.reports.sections import SECTIONS, SectionName, TextSection, compose

Format = Literal["markdown", "html", "csv"]

_ENDINGS: Final = {"markdown": (".md", ".markdown"), "html": (".html", ".htm"), "csv": (".csv",)}
_MEDIA: Final = {"markdown": "text/markdown", "html": "text/html", "csv": "text/csv"}


@tool(effect="idempotent", timeout=120)
def write_report(
    context: ToolContext,
    data: dict[str, Any] | list[Any],
    *,
    format: Format = "markdown",
    sections: Annotated[list[SectionName | TextSection] | None, Field(max_length=50)] = None,
    output: Annotated[str, Field(max_length=1000)] = "",
    title: Annotated[str, Field(max_length=200)] = "",
) -> Report:
    """Write a report with summary, figures, trends, charts and recommendations.

    Args:
        context: Of the call.
        data: What `calculate_stats`, `detect_trends` and `generate_chart` give, in an object or a list.
        format: ``markdown``; ``html``, one page with the charts in it; or ``csv``, the tables alone.
        sections: Of ``summary``, ``stats``, ``trends``, ``charts`` and ``recommendations``; all if left out. A section
            of free text is an object with a title and a text.
        output: The file to write; if left out, the file that the step announces as its expected output, or one made of
            the title, or ``report``, with the ending of the format.
        title: Of the report; made up from the data if left out.

    Returns:
        Where the report is.

    Raises:
        ToolError: There is nothing to report, or the file cannot be written.
    """
    parts = Parts(data)
    chosen: list[SectionName | TextSection] = []
    for section in sections or SECTIONS:
        if section not in chosen:
            chosen.append(section)
    has_text = any(isinstance(section, TextSection) for section in chosen)
    if not (parts.statistics or parts.trends or parts.charts or has_text):
        raise ToolError("there is nothing to report in data; pass what calculate_stats, detect_trends, … give")
    unnamed = f"{slug(title, 'report')}{_ENDINGS[format][0]}"
    file = str(checked_name(output or announced(context, _ENDINGS[format]) or unnamed))
    document = compose(parts, chosen, title)
    text = _writers(context, posixpath.dirname(file))[format](document)
    context.check_cancelled()  # a step that was told to stop writes nothing
    data_ = text.encode("utf-8-sig" if format == "csv" else "utf-8")  # spreadsheets need the mark, or guess wrongly
    return Report(
        file=write_bytes(file, data_),
        format=format,
        report=context.artifacts.save(data_, media_type=_MEDIA[format], name=posixpath.basename(file)[-200:]),
        sections=[one.title if isinstance(one, TextSection) else str(one) for one in chosen],
    )


def _writers(context: ToolContext, folder: str) -> dict[str, Callable[[Document], str]]:
    return {
        "markdown": lambda document: to_markdown(document, folder),
        "html": lambda document: to_html(document, lambda chart: _picture(context, chart)),
        "csv": to_csv,
    }


def _picture(context: ToolContext, chart: Chart) -> tuple[str, bytes]:
    try:
        return "image/svg+xml", context.artifacts.path(chart.svg).read_bytes()
    except FileNotFoundError as error:
        raise ToolError(str(error)) from error
