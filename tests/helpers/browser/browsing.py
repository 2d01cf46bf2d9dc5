"""A browser for tests: the Chromium of the system, driven by Playwright. Without one such tests are skipped, not in CI.

A test takes the fixture `pages` and gets a `Pages`; every page that it opens notes what it says on its console, its
errors, and its requests.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return the path of Chromium; skip the test where there is none, and fail it in CI, which installs it."""
    found = os.environ.get("DAGRUN_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail("CI needs Chromium: apt-get install chromium")
    pytest.skip("no Chromium here: apt-get install chromium, or name one by DAGRUN_TEST_CHROMIUM")


@dataclass
class Seen:
    """What a page has said and asked for."""

    console: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Pages:
    """Opens pages in one browser."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.seen: dict[Page, Seen] = {}

    def open(
        self,
        target: str | Path,
        *,
        fragment: str = "",
        width: int = 1280,
        dark: bool = False,
        script: bool = True,
        **options: Any,
    ) -> Page:
        """Open a file or an address, in a context of its own."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
            **options,
        )
        page = context.new_page()
        page.set_default_timeout(10_000)
        seen = self.seen[page] = Seen()
        page.on("console", lambda message: seen.console.append(message.text))
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        address = target.absolute().as_uri() if isinstance(target, Path) else target
        page.goto(address + fragment)
        return page


@contextmanager
def browsing() -> Iterator[Pages]:
    """Start a browser, and close it with all its pages."""
    with sync_playwright() as playwright:
        # Root has no sandbox to give away, and CI often is root; a small /dev/shm would end large pages.
        arguments = ["--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        arguments += ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
        try:
            yield Pages(browser)
        finally:
            browser.close()


def wait_until(page: Page, happened: Callable[[], object]) -> None:
    """Let the page go on until `happened()` is true. How soon that is, is no matter: a machine may be busy."""
    for _ in range(2_000):
        if happened():
            return
        page.wait_for_timeout(10)
    raise AssertionError("it has not happened in 20 seconds")


def axe_faults(page: Page) -> list[str]:
    """Return the serious and critical findings of axe."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    bad = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    return [f"{rule['id']}: {node['html'][:200]}" for rule in bad for node in rule["nodes"][:3]]
