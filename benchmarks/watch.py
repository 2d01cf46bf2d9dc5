"""What a report costs: CPU seconds beyond the replay of the record, and bytes, for 1,000 and 10,000 steps.

    python benchmarks/watch.py [--browser]

The budgets are 0.25 s and 0.5 MB for 1,000 steps, and 1.5 s and 2 MB for 10,000. ``--browser`` also opens each report
in Chromium: seconds from the navigation to the page that can be used (budgets: 1 s and 1.5 s), its elements (4,000),
and the time from a key in the filter to the rows that it leaves (50 and 100 ms).
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

import dagrun
from dagrun import MemoryJournal, Plan, Policy, Step, tool
from dagrun.observe.report.report import make_report
from dagrun.observe.view.document import view_of
from dagrun.testing import virtual_backend

BUDGETS: Final = {1_000: (0.25, 500_000), 10_000: (1.5, 2_000_000)}
OPENED: Final = {1_000: (1.0, 50.0), 10_000: (1.5, 100.0)}
MOST_ELEMENTS: Final = 4_000

# The filter draws at once, so the time of its event is the time to the rows, but for the painting after it.
KEYSTROKE: Final = """() => {
    const filter = document.getElementById('filter'), began = performance.now();
    filter.value = 's77'; filter.dispatchEvent(new Event('input'));
    document.getElementById('rows').getBoundingClientRect();
    return performance.now() - began;
}"""


async def played(count: int) -> tuple[Any, float]:
    """Return a run read back from its record, and the CPU seconds that reading it took."""

    @tool(effect="read")
    async def fetch(number: int, after: Any = None) -> dict[str, int]:
        """Fetch something."""
        await anyio.sleep(0.01 * (number % 17 + 1))
        return {"number": number}

    steps = [
        Step(id=f"s{n}", tool="fetch", args={"number": n, "after": [f"${{s{max(0, n - 37)}}}"] if n > 99 else []})
        for n in range(count)
    ]
    journal = MemoryJournal()
    policy = Policy(max_running=50)
    await dagrun.run(Plan(steps=steps), tools=[fetch], journal=journal, run_id="r", policy=policy)
    begun = time.process_time()
    past = await dagrun.replay("r", journal=journal)
    return past, time.process_time() - begun


def opened(count: int, report: bytes) -> bool:
    """Open a report in Chromium, print what that takes, and return whether it is within the budgets."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder, "run.html")
        file.write_bytes(report)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(file.as_uri())  # the first page of a browser also starts its processes
        page.goto("about:blank")
        page.goto(file.as_uri())
        page.locator("html[data-ready]").wait_for(state="attached")
        seconds = page.evaluate("+document.documentElement.dataset.ready") / 1000
        elements, stroke = page.locator("*").count(), page.evaluate(KEYSTROKE)
        browser.close()
    print(f"{'':>12}  opens in {seconds:.2f} s  {elements:,} elements  filters in {stroke:.0f} ms")
    return bool(seconds <= OPENED[count][0] and elements <= MOST_ELEMENTS and stroke <= OPENED[count][1])


def main() -> int:
    """Measure, and compare with the budgets."""
    backend, options = virtual_backend("asyncio")
    is_good, with_browser = True, "--browser" in sys.argv[1:]
    for count, (seconds, most) in BUDGETS.items():
        past, replay = anyio.run(played, count, backend=backend, backend_options=options)
        begun = time.process_time()
        report = make_report(view_of(past))
        took, size = time.process_time() - begun, len(report)
        is_good = is_good and took <= seconds and size <= most
        print(f"{count:>6,} steps  replay {replay:.2f} s  view and page {took:.2f} s  {size:,} bytes")
        is_good = (not with_browser or opened(count, report)) and is_good
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
