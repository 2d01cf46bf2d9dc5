"""Make the pictures of the live page from the product: screenshots of runs that go on, in Chromium.

    make pictures

Two small ones are in docs/pictures; all of them, to be looked at, are in build/pictures: light, dark and on a phone, of
a run that waits for a person, of the same run after its plan was changed, of a plan with a change to agree to, of 1,000
steps in the middle, and of the list.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import anyio
import uvicorn
from playwright.sync_api import FloatRect, Page

import dagrun
from browsing import Pages, browsing
from dagrun import Plan, Policy, Step, tool
from view_runs import RICH, Mirrors, rich_tools

ROOT: Final = Path(__file__).resolve().parents[2]
ALL: Final = ROOT / "build" / "pictures"
SMALL: Final = ROOT / "docs" / "pictures"
LOOKS: Final = (("light", False, 1280), ("dark", True, 1280), ("phone", False, 390))
SCENES: Final = (("rich", "waiting"), ("asked", "asked"), ("many", "many"), ("", "list"))
TOKEN: Final = "the-token-of-the-pictures"
STEPS: Final = 1_000
DONE: Final = 640  # of them, when the picture is taken


class Runs:
    """The runs of the pictures, in a server in a thread of its own."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._is_over = threading.Event()
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def serve(self) -> None:
        """Carry out the runs, and serve their page, until `end` is called."""
        anyio.run(self._serve)

    def end(self) -> None:
        """End."""
        self._is_over.set()

    async def _serve(self) -> None:
        page = dagrun.web(token=TOKEN)
        asked = Policy(max_running=3, approve_patches="always")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._carry_out, page, "rich", RICH, rich_tools(), Policy(max_running=3))
            tasks.start_soon(self._carry_out, page, "asked", RICH, rich_tools(), asked)
            tasks.start_soon(self._carry_out, page, "many", many(), many_tools(), Policy(max_running=40))
            server = uvicorn.Server(uvicorn.Config(page, log_level="warning", lifespan="off"))
            tasks.start_soon(server.serve, [self._socket])
            await anyio.to_thread.run_sync(self._is_over.wait)
            page.close()
            server.should_exit = True
            tasks.cancel_scope.cancel()

    async def _carry_out(self, page: Any, name: str, plan: Plan, tools: list[Any], policy: Policy) -> None:
        options: dict[str, Any] = {"approver": page.approver, "planner": Mirrors(), "policy": policy, "seed": 3}
        async with dagrun.start(plan, tools=tools, run_id=name, **options) as run:
            page.watch(run)
            await run.result()


def many() -> Plan:
    """Return a plan of many steps in layers, with some that fail."""
    steps = []
    for n in range(STEPS):
        layer, place = divmod(n, 100)
        needs = [f"s{(layer - 1) * 100 + (place + k) % 100}" for k in (0, 7)] if layer else []
        name = ("fetch", "parse", "clean", "rate", "store")[layer % 5]
        steps.append(Step(id=f"s{n}", tool=name, args={"number": n}, depends_on=needs, on_failure="default", default=0))
    return Plan(goal="Rate the thousand offers of the week", steps=steps)


def many_tools() -> list[Any]:
    """Return the tools of `many`: they wait at the step that the picture is to show."""

    async def work(number: int) -> int:
        """Work on one of many."""
        await anyio.sleep(0.004 * (number % 17 + 1))
        if number % 97 == 96:
            raise dagrun.ToolError("the offer was withdrawn")
        if number > DONE:
            await anyio.sleep_forever()
        return number

    return [tool(effect="read", name=name)(work) for name in ("fetch", "parse", "clean", "rate", "store")]


@contextmanager
def serving() -> Iterator[Runs]:
    """Carry out the runs in a thread."""
    runs = Runs()
    thread = threading.Thread(target=runs.serve)
    thread.start()
    try:
        yield runs
    finally:
        runs.end()
        thread.join()


def opened(pages: Pages, address: str, run: str, *, dark: bool = False, width: int = 1280) -> Page:
    """Open the page of a run, or with no name the list."""
    page = pages.open(f"{address}/{f'r/{run}' if run else ''}", fragment=f"#token={TOKEN}", dark=dark, width=width)
    if run:
        page.locator("#graph svg").wait_for()
        page.wait_for_timeout(500)
    else:
        page.locator("tr[data-run]").first.wait_for()
    return page


def main() -> int:
    """Take the pictures."""
    ALL.mkdir(parents=True, exist_ok=True)
    with serving() as runs, browsing() as pages:
        _all_ready(pages, runs.address)
        for (look, dark, width), (run, name) in product(LOOKS, SCENES):
            page = opened(pages, runs.address, run, dark=dark, width=width)
            page.screenshot(path=ALL / f"live-{name}-{look}.png", full_page=True)
            if name == "waiting" and look != "phone":
                _take_top(page, SMALL / f"live-{look}.png")
        page = opened(pages, runs.address, "rich")
        page.get_by_role("button", name="Yes, make this call").click()
        page.locator("#head .badge", has_text="succeeded").wait_for()
        for look, dark, width in LOOKS:
            page = opened(pages, runs.address, "rich", dark=dark, width=width)
            page.locator("#changes summary").click()
            page.locator("#changes .diff").wait_for()
            page.screenshot(path=ALL / f"live-replanned-{look}.png", full_page=True)
    sys.stdout.write(f"{ALL}\n")
    return 0


def _all_ready(pages: Pages, address: str) -> None:
    """Wait until each run is where its picture is to show it."""
    for run in ("rich", "asked"):
        page = opened(pages, address, run)
        page.locator("#open .question").wait_for()
    page = opened(pages, address, "many")
    page.locator("#head .progress").wait_for()
    page.wait_for_timeout(3_000)


def _take_top(page: Page, path: Path) -> None:
    """Take the page from its head to its table, without what changes from run to run."""
    rows = page.locator("#rows").bounding_box()
    assert rows is not None
    clip = FloatRect(x=0, y=0, width=1280, height=rows["y"] + rows["height"] + 8)
    page.screenshot(path=path, full_page=True, clip=clip)


if __name__ == "__main__":
    sys.exit(main())
