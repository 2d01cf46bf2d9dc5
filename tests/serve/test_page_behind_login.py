"""L13 in a browser: people who have logged in to the application that carries the page."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from playwright.sync_api import Browser, expect

import mounted_app
from browsers import browser, visitor
from command_line import environment

__all__ = ["browser"]


@pytest.mark.real_time
@pytest.mark.rigs
@pytest.mark.timeout(240)
def test_two_people_with_log_ins_of_the_application(browser: Browser) -> None:
    """No token, the cookie of the application; the second one is told who was first (L5)."""
    words = [sys.executable, mounted_app.__file__]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        origin = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        with visitor(browser) as ann, visitor(browser) as bob:
            pages = []
            for name, person in (("ann", ann), ("bob", bob)):
                page = person.new_page()
                page.goto(f"{origin}/runs/")
                expect(page.locator("h1")).to_contain_text("who are you?")
                page.goto(f"{origin}/login/ticket-of-{name}")
                page.goto(f"{origin}/runs")
                page.get_by_role("link", name="r1").first.click()
                expect(page.locator("#open [data-question]")).to_be_visible()
                pages.append(page)
            pages[0].get_by_role("button", name="Yes, make this call").click()
            expect(pages[1].locator("#open .question.done")).to_contain_text("approve by ann")
            expect(pages[1].locator("#head .badge")).to_have_text("✓ succeeded")
        process.send_signal(signal.SIGINT)
        process.wait(timeout=20)
