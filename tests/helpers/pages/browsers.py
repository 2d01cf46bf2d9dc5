"""A browser for tests: Debian's Chromium, driven by Playwright, and pages that say what went wrong in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from browsing import chromium

SECONDS: Final = 45_000  # milliseconds; nothing takes so long, unless it hangs


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a module. It has an event loop, so no other test of the module may have one."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def tab(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """Open an address in a context of its own; fail if a script fails in it."""
    with visitor(browser, **options) as context:
        page = context.new_page()
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(address)
        yield page
        assert faults == [], faults


@contextmanager
def visitor(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """A person with a browser of their own."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(SECONDS)
    try:
        yield context
    finally:
        context.close()
