"""Make the pictures of the report from the product: screenshots of its page in Chromium.

    make pictures

Three small ones are in docs/pictures; all of them, to be looked at, are in build/pictures: light, dark and on a phone,
of the run in which everything happens, of 1,000 and of 10,000 steps, and of runs that failed, that wait for a person,
that were killed, that slept for hours, and whose plan was changed fifty times; and cells of a notebook in both themes.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path
from typing import Final

from playwright.sync_api import FloatRect, Page

from browsing import browsing
from dagrun.observe.report.report import make_report
from dagrun.observe.view.document import view_of
from view_runs import Played, at_once, failed, killed, large, revised, rich, slept, waiting

ROOT: Final = Path(__file__).resolve().parents[2]
ALL: Final = ROOT / "build" / "pictures"
SMALL: Final = ROOT / "docs" / "pictures"
# The colours of a notebook, as JupyterLab has them.
DARK: Final = {"layout-color0": "#111", "layout-color2": "#333", "ui-font-color0": "#fff", "ui-font-color2": "#aaa"}
THEMES: Final = {
    "light": "",
    "dark": "background:#111;" + "".join(f"--jp-{key}:{value};" for key, value in DARK.items()),
}
LOOKS: Final = (("light", False, 1280), ("dark", True, 1280), ("phone", False, 390))


def main() -> int:
    """Write the pages, and take the pictures."""
    ALL.mkdir(parents=True, exist_ok=True)
    runs: dict[str, Callable[[], Awaitable[Played]]] = {
        "rich": rich,
        "1000": lambda: large(1_000),
        "10000": lambda: large(10_000),
        **{run.__name__: run for run in (failed, waiting, killed, slept)},
        "revised": revised,
    }
    for name, run in runs.items():
        played = at_once(run)
        (ALL / f"{name}.html").write_bytes(make_report(view_of(played.past)))
        for theme, colours in THEMES.items():
            cell = played.past._repr_mimebundle_()["text/html"]
            body = f'<body data-jp-theme-light={theme == "light"!s} style="{colours}">'.lower()
            (ALL / f"{name}-cell-{theme}.html").write_text(f"<!doctype html><meta charset=utf-8>{body}{cell}")
    with browsing() as pages:
        for name, (look, dark, width) in product(runs, LOOKS):
            page = pages.open(ALL / f"{name}.html", dark=dark, width=width)
            page.locator("html[data-ready]").wait_for(state="attached")
            page.screenshot(path=ALL / f"{name}-{look}.png", full_page=True)
            if name == "rich" and look != "phone":
                _take_middle(page, SMALL / f"report-{look}.png")
        for name, theme in product(runs, THEMES):
            page = pages.open(ALL / f"{name}-cell-{theme}.html", width=1000)
            page.screenshot(path=ALL / f"{name}-cell-{theme}.png", full_page=True)
            if (name, theme) == ("rich", "light"):
                page.locator(".dagrun-cell").screenshot(path=SMALL / "notebook.png")
    sys.stdout.write(f"{ALL}\n")
    return 0


def _take_middle(page: Page, path: Path) -> None:
    """Take the graph and the time, without what changes from run to run."""
    graph, rows = page.locator("#graph").bounding_box(), page.locator("#rows").bounding_box()
    assert graph is not None
    assert rows is not None
    height = rows["y"] + rows["height"] + 8 - graph["y"]
    clip = FloatRect(x=graph["x"] - 12, y=graph["y"], width=graph["width"] + 24, height=height)
    page.screenshot(path=path, full_page=True, clip=clip)


if __name__ == "__main__":
    sys.exit(main())
