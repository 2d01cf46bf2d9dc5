"""L13 in a browser: people who have logged in to the application that carries the page."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect

import mounted_app
from browsers import browser, visitor
from command_line import environment

__all__ = ["browser"]


@contextmanager
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The application in a process of its own, and its address."""
    words = [sys.executable, mounted_app.__file__]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)
        finally:
            process.kill()


@pytest.mark.real_time
def test_a_browser_opens_its_stream_again_and_again_and_loses_nothing(browser: Browser) -> None:
    """So the application can stop at any time; and the page never says that it has lost the server."""
    with served() as (_, origin), visitor(browser) as ann:
        page = ann.new_page()
        page.goto(f"{origin}/login/ticket-of-ann")
        page.goto(f"{origin}/runs/r/r1")
        watched = "new MutationObserver(() => { window.was ||= !lost.hidden }).observe(lost, { attributes: true })"
        page.evaluate(watched)
        for _ in range(2):
            with page.expect_request(lambda request: "/stream?after=" in request.url, timeout=20_000):
                pass
        page.get_by_role("button", name="Yes, make this call").click()
        expect(page.locator("#head .badge")).to_have_text("✓ succeeded")
        assert not page.evaluate("window.was")


@pytest.mark.real_time
@pytest.mark.rigs
@pytest.mark.timeout(240)
def test_two_people_with_log_ins_of_the_application(browser: Browser) -> None:
    """No token, the cookie of the application; the second one is told who was first (L5)."""
    with served() as (_, origin), visitor(browser) as ann, visitor(browser) as bob:
        pages = []
        for name, person in (("ann", ann), ("bob", bob)):
            page = person.new_page()
            page.goto(f"{origin}/runs/")
            expect(page.locator("h1")).to_contain_text("not authenticated")
            page.goto(f"{origin}/login/ticket-of-{name}")
            page.goto(f"{origin}/runs")
            page.get_by_role("link", name="r1").first.click()
            expect(page.locator("#open [data-question]")).to_be_visible()
            pages.append(page)
        pages[0].get_by_role("button", name="Yes, make this call").click()
        expect(pages[1].locator("#open .question.done")).to_contain_text("approve by ann")
        expect(pages[1].locator("#head .badge")).to_have_text("✓ succeeded")
