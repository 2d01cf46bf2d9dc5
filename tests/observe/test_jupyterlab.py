"""JupyterLab itself: a plan is drawn, and one display follows a run to its end, in both themes.

It is too large to be installed for each change (``pip install jupyterlab``), so without it these tests are skipped;
`test_notebook.py` has the same by the protocol of kernels.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Locator, Page, expect

from browsing import browsing

pytestmark = [
    pytest.mark.rigs,
    pytest.mark.real_time,
    pytest.mark.timeout(180),
    pytest.mark.skipif(find_spec("jupyterlab") is None, reason="needs JupyterLab: pip install jupyterlab"),
]

WAIT: Final = 30_000  # milliseconds
TOKEN: Final = "the-token-of-the-test"
PLAN: Final = """
from pathlib import Path
import anyio, dagrun

@dagrun.tool(effect="read")
async def fetch(region: str) -> str:
    "Fetch the sales of a region; those of the south are there once the file is."
    while region == "south" and not Path("go").exists():
        await anyio.sleep(0.05)
    return region

north, south = fetch.options(id="north").step("north"), fetch.options(id="south").step("south")
plan = dagrun.plan(north, south, goal="The sales of both regions")
plan
"""
RUN: Final = "result = await dagrun.run(plan, show=True)"


class Lab:
    """A JupyterLab on the loopback.

    Args:
        folder: Holds its notebooks, and all that it writes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"

    def start(self) -> subprocess.Popen[bytes]:
        """Start it."""
        places = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
        own = {name: str(self.folder / name.lower()) for name in (*places, "IPYTHONDIR")}
        own |= {"JUPYTER_PATH": f"{sys.prefix}/share/jupyter"}
        options = {
            "ServerApp.port": self.address.rpartition(":")[2],
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.folder,
            "ServerApp.allow_root": True,
            "IdentityProvider.token": TOKEN,
            "LabApp.news_url": "",
            "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        }
        words = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"]
        words += [f"--{name}={value}" for name, value in options.items()]
        with (self.folder / "lab.log").open("wb") as log:
            return subprocess.Popen(words, env={**os.environ, **own}, stdout=log, stderr=log)

    def set_theme(self, theme: str) -> None:
        """Choose a theme for the pages that are opened from now on."""
        folder = self.folder / "jupyterlab_settings_dir/@jupyterlab/apputils-extension"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "themes.jupyterlab-settings").write_text(json.dumps({"theme": theme}))
        (folder / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))

    def add(self, name: str, *cells: str) -> None:
        """Write a notebook."""
        code: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        notebook = {
            "cells": [{**code, "id": f"cell-{n}", "source": text} for n, text in enumerate(cells)],
            "metadata": {"kernelspec": kernel},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (self.folder / name).write_text(json.dumps(notebook))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A JupyterLab."""
    made = Lab(tmp_path)
    process = made.start()
    try:
        yield made
    finally:
        process.terminate()
        process.wait(20)


def opened(page: Page, address: str) -> None:
    """Open a page of a server that has just been started."""
    for _ in range(100):
        try:
            page.goto(address)
            return
        except PlaywrightError as error:
            if "ERR_CONNECTION_REFUSED" not in str(error):
                raise
            page.wait_for_timeout(200)
    pytest.fail("JupyterLab does not answer")


def lightness(element: Locator, name: str) -> float:
    """Return how light the colour of an element is, from 0 to 1."""
    colour = element.evaluate(f"(one) => getComputedStyle(one).{name}")
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 765


def test_a_plan_and_a_run_show_themselves(lab: Lab) -> None:
    """The display of a run changes while its cell is busy: the run ends only after it was seen to go on."""
    with browsing() as pages:
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            lab.set_theme(theme)
            page = pages.open("about:blank")
            page.set_default_timeout(WAIT)
            run = seen_to_end(lab, page, f"{theme.rpartition(' ')[2].lower()}.ipynb")
            expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
            is_dark = theme.endswith("Dark")
            assert (lightness(run, "color") > 0.5) is is_dark
            assert (lightness(run.locator("svg rect").first, "fill") < 0.5) is is_dark
            if folder := os.environ.get("DAGRUN_PICTURES"):
                page.screenshot(path=Path(folder) / f"{theme.replace(' ', '-').lower()}.png")


def seen_to_end(lab: Lab, page: Page, name: str) -> Locator:
    """Run the two cells of a new notebook, and return what the second one shows in the end."""
    go = lab.folder / "go"
    go.unlink(missing_ok=True)
    lab.add(name, PLAN, RUN)
    opened(page, f"{lab.address}/doc/tree/{name}?token={TOKEN}")
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    expect(cells).to_have_count(2, timeout=WAIT)
    run_all(page, cells)
    plan, run = (cells.nth(place).locator(".jp-OutputArea .dagrun-cell") for place in range(2))
    expect(plan.locator("svg").first).to_be_visible(timeout=WAIT)
    expect(plan).to_contain_text("The sales of both regions")
    expect(run).to_contain_text("1 succeeded", timeout=WAIT)
    expect(run).to_contain_text("running")
    go.touch()
    expect(run).to_contain_text("2 succeeded", timeout=WAIT)
    expect(run).not_to_contain_text("running")
    expect(run).to_have_count(1)  # one display, and not one for each frame
    return run


def run_all(page: Page, cells: Locator) -> None:
    """Run all cells: again, if nothing came of it, as what is run before the kernel is there may be lost."""
    for _ in range(3):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        try:
            expect(cells.first.locator(".jp-InputPrompt")).not_to_have_text("[ ]:", timeout=WAIT / 3)
        except AssertionError:
            continue
        return
    pytest.fail("JupyterLab runs no cell")
