"""Ready-made tools: tables, charts, reports, files, the web, and people."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dagrun_tools.asking import ask_user, handoff
    from dagrun_tools.charts import generate_chart
    from dagrun_tools.cleaning import clean_data
    from dagrun_tools.fetch import fetch_json, fetch_url
    from dagrun_tools.files import read_file, write_file
    from dagrun_tools.joining import join
    from dagrun_tools.loading import load_csv
    from dagrun_tools.mapping import map_columns
    from dagrun_tools.reports import write_report
    from dagrun_tools.search import search_web
    from dagrun_tools.settings import configure
    from dagrun_tools.statistics_tool import calculate_stats
    from dagrun_tools.trends_tool import detect_trends

    TOOLS: list[Any]

# The tools and where they live: a worker process that draws a chart has no use for the HTTP library (PEP 562).
_TOOLS: Final = {
    "load_csv": "loading",
    "clean_data": "cleaning",
    "map_columns": "mapping",
    "calculate_stats": "statistics_tool",
    "detect_trends": "trends_tool",
    "generate_chart": "charts",
    "write_report": "reports",
    "read_file": "files",
    "write_file": "files",
    "fetch_url": "fetch",
    "fetch_json": "fetch",
    "search_web": "search",
    "ask_user": "asking",
    "handoff": "asking",
    "join": "joining",
}
_HOMES: Final = {**_TOOLS, "configure": "settings"}

__all__ = [
    "TOOLS",
    "ask_user",
    "calculate_stats",
    "clean_data",
    "configure",
    "detect_trends",
    "fetch_json",
    "fetch_url",
    "generate_chart",
    "handoff",
    "join",
    "load_csv",
    "map_columns",
    "read_file",
    "search_web",
    "write_file",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "TOOLS":
        value: Any = [__getattr__(tool) for tool in _TOOLS]
    elif name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
