"""Ready-made tools for plans: tables, charts, reports, files, the web, and people.

In: the arguments of a step. Out: small facts as JSON, tables and pictures as artifacts, and files below one folder.
Open `facts.py` first: it holds what the tools for data hand to each other.

- `tables` loads, cleans and renames; `analysis` adds up and finds trends; `reports` draws and writes.
- `files` reads and writes below one folder; `web` fetches and searches; `flow` asks people and joins outputs.
- `code` runs code that a plan brings in a sandbox. It is off unless the host adds `run_code` by name.
- `settings.py` has `configure`, by which the host program limits the tools; `demo` is the command ``dagrun demo``.

The tools stand on the public names of dagrun, as the tools of any user do. They never import the engine, and no tool
calls another. A tool is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dagrun_tools.analysis.calculate_stats import calculate_stats
    from dagrun_tools.analysis.detect_trends import detect_trends
    from dagrun_tools.code.run_code import run_code
    from dagrun_tools.files.file_tools import read_file, write_file
    from dagrun_tools.flow import ask_user, handoff, join
    from dagrun_tools.reports.generate_chart import generate_chart
    from dagrun_tools.reports.write_report import write_report
    from dagrun_tools.settings import configure
    from dagrun_tools.tables.clean_data import clean_data
    from dagrun_tools.tables.load_csv import load_csv
    from dagrun_tools.tables.map_columns import map_columns
    from dagrun_tools.web.fetch import fetch_json, fetch_url
    from dagrun_tools.web.search_web import search_web

    TOOLS: list[Any]

# The tools and their modules. Each is imported when it is first used (PEP 562): a worker process that draws a chart
# does not load the HTTP library.
_TOOLS: Final = {
    "load_csv": "tables.load_csv",
    "clean_data": "tables.clean_data",
    "map_columns": "tables.map_columns",
    "calculate_stats": "analysis.calculate_stats",
    "detect_trends": "analysis.detect_trends",
    "generate_chart": "reports.generate_chart",
    "write_report": "reports.write_report",
    "read_file": "files.file_tools",
    "write_file": "files.file_tools",
    "fetch_url": "web.fetch",
    "fetch_json": "web.fetch",
    "search_web": "web.search_web",
    "ask_user": "flow",
    "handoff": "flow",
    "join": "flow",
}
# Not among the ready-made tools: a host that wants it adds it by name.
_HOMES: Final = {**_TOOLS, "run_code": "code.run_code", "configure": "settings"}

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
    "run_code",
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
