"""The live page in a browser, with runs of real processes: scenarios L1 to L20 that need one."""

from __future__ import annotations

import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, Final

import anyio
import pytest
from playwright.sync_api import Browser, Page, Route, expect

import dagrun
from browsers import SECONDS, browser, tab, visitor
from browsing import wait_until
from command_line import Shell, finished, shell, started
from dagrun import PostgresJournal
from dagrun.journal import anchor
from dagrun.journal.queue import QueueStatus, Wanted
from postgres_schemas import fresh_database
from view_runs import RICH, Mirrors, at_once, rich_tools

__all__ = ["browser", "shell"]
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them"),
]
expect.set_options(timeout=SECONDS)
rig = pytest.mark.rigs  # each starts processes and tabs

TOKEN: Final = "the-token-of-the-tests"
# A call of `slow` goes on once there is a file with the name of its step.
TOOLS: Final = '''
import dagrun, anyio
from pathlib import Path
from typing import Literal

@dagrun.tool(effect="read")
async def slow(context: dagrun.ToolContext, value: int = 1) -> int:
    """Wait."""
    while not (Path(__file__).parent / context.step).exists():
        await anyio.sleep(0.02)
    return value

@dagrun.tool(effect="pure")
async def quick(value: object = 1) -> object:
    """Return the value."""
    return value

@dagrun.tool(effect="effectful", needs_approval=True)
async def pay(amount: int, to: str) -> str:
    """Pay."""
    return f"paid {amount} to {to}"

@dagrun.tool(effect="read")
async def choose(region: Literal["EU", "US"] | None = None) -> str:
    """Choose."""
    if region is None:
        raise dagrun.ToolError("nobody has said which region", missing_input="region")
    return region

@dagrun.tool(effect="read")
async def broken() -> int:
    """Fail."""
    raise dagrun.ToolError("this source was switched off", unreachable=True)

@dagrun.tool(effect="read")
async def chart(context: dagrun.ToolContext) -> dagrun.Artifact:
    """Save a file."""
    return context.artifacts.save("a,b\\n1,2\\n", media_type="text/csv", name="chart.csv")

@dagrun.tool(effect="read")
async def count() -> list[int]:
    """Count."""
    return list(range(10_000))

@dagrun.tool(effect="read")
async def short(value: int) -> int:
    """Take a moment."""
    await anyio.sleep(0.03)
    return value

class Planner:
    async def revise(self, brief):
        step = dagrun.Step(id="mirror", tool="quick", args={"value": 2})
        return dagrun.Patch(edits=[dagrun.Replace(id="broken", step=step)], reason="a mirror has the same rows")

planner = Planner()
'''
SLOW: Final = {"id": "slow", "tool": "slow"}
AFTER: Final = {"id": "after", "tool": "quick", "args": {"value": "${slow}"}}
PAY: Final = {"id": "pay", "tool": "pay", "args": {"amount": 12345678901234567890, "to": "ann@example.org"}}
CHECKS: Final = 'approve = [{tool = "pay", checklist = ["invoice seen", "amount right"]}]\ngrace = 0.2\n'


@pytest.fixture
def scene(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A folder with the tools; servers have the token of the tests."""
    shell.file("page_tools.py", TOOLS)
    shell.file("policy.toml", CHECKS)
    monkeypatch.setenv("DAGRUN_PAGE_TOKEN", TOKEN)
    return shell


def go(scene: Shell, step: str = "slow") -> None:
    """Let a slow step end."""
    scene.file(step, "")


@contextmanager
def running(scene: Shell, *steps: dict[str, Any], args: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """A run of some steps in a process of its own."""
    plan = scene.plan(*steps, goal="Pay the bonus")
    name = () if "--no-journal" in args else ("--run-id", "one")
    words = ("run", plan, "-t", "page_tools", "--policy", "policy.toml", *name, *args)
    scene("config", "trust", "policy.toml")
    with started(scene, *words, DAGRUN_PAGE_TOKEN=TOKEN) as process:
        if "--serve" not in args:
            _wait_until(lambda: (mark := anchor.read(scene.runs / "one" / "anchor")) is not None and mark.seq)
        yield process


def _wait_until(claim: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS / 1000
    while not claim():
        assert time.monotonic() < end
        time.sleep(0.02)


class Told:
    """What a process writes to its standard error, line by line, without ever blocking it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with suppress(ValueError):  # the test is over, and has closed it
            for line in self._process.stderr:
                self.lines.append(line)

    def address(self) -> str:
        """Return the address that the process has printed."""
        line = self.until(lambda line: line.startswith("watch: http"))
        return line.removeprefix("watch: ").strip()

    def until(self, fits: Callable[[str], bool]) -> str:
        """Wait for a line."""
        end = time.monotonic() + SECONDS / 1000
        while time.monotonic() < end:
            found = [line for line in list(self.lines) if fits(line)]
            if found:
                return found[0]
            time.sleep(0.02)
        raise AssertionError("".join(self.lines))


@contextmanager
def serving(scene: Shell, *args: str, port: str = "0") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``dagrun serve`` in a process of its own, and its address."""
    with started(scene, "serve", "--port", port, *args, DAGRUN_PAGE_TOKEN=TOKEN) as process:
        yield process, Told(process).address()


def at_run(address: str, run: str = "one") -> str:
    """Return the address of a run, from that of the list."""
    return address.replace("/#", f"/r/{run}#")


def row(page: Page, step: str) -> Any:
    """Return the row of a step."""
    return page.locator(f'.row:has(.name[title="{step}"])')


# One run with its page ------------------------------------------------------------------------------------------------


def test_the_page_follows_a_run_to_its_end(scene: Shell, browser: Browser) -> None:
    """L1: it is there before the first step ends, changes without being loaded anew, and has the last change."""
    with running(scene, SLOW, AFTER, args=("--serve", "--port", "0")) as process:
        told = Told(process)
        with tab(browser, told.address()) as page:
            expect(page.locator("h1")).to_contain_text("Pay the bonus")
            expect(row(page, "slow")).to_have_class(re.compile("running"))
            expect(row(page, "after")).to_have_class(re.compile("waiting"))
            assert "token" not in page.url
            assert page.title().startswith("▶ 0/2")
            page.evaluate("window.stays = 1")
            go(scene)
            expect(row(page, "after")).to_have_class(re.compile("succeeded"))
            expect(page.locator("#head .badge")).to_have_text("✓ succeeded")
            expect(page).to_have_title(re.compile("^✓ succeeded"))
            assert page.evaluate("window.stays") == 1
            assert page.context.cookies() == []
        assert process.wait(timeout=SECONDS / 1000) == 0
    assert TOKEN not in "".join(line for line in told.lines if "watch:" not in line)


@rig
def test_a_run_without_a_record_has_a_page(scene: Shell, browser: Browser) -> None:
    """Its answers are given by the page, as nobody else is there."""
    with running(scene, PAY, args=("--serve", "--port", "0", "--no-journal")) as process:
        with tab(browser, Told(process).address()) as page:
            page.get_by_role("button", name="No", exact=True).click()
            expect(page.locator("#head .badge")).to_have_text("✗ failed")
        assert process.wait(timeout=SECONDS / 1000) == 1


@rig
def test_a_page_can_stay_open_after_the_end(scene: Shell, browser: Browser) -> None:
    """``--linger``, until Ctrl-C; the exit code is that of the run."""
    go(scene)
    with running(scene, SLOW, args=("--serve", "--port", "0", "--linger")) as process:
        told = Told(process)
        told.until(lambda line: "stays open" in line)
        with tab(browser, told.address()) as page:
            expect(page.locator("#head .badge")).to_have_text("✓ succeeded")
            row(page, "slow").click()
            expect(page.locator("#step")).to_contain_text("slow (read)")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=SECONDS / 1000) == 0


def test_a_call_is_agreed_to_only_when_all_is_ticked(scene: Shell, browser: Browser) -> None:
    """L2: every argument is shown, exactly; the record says who has agreed."""
    with running(scene, PAY, args=("--serve", "--port", "0")) as process:
        with tab(browser, Told(process).address()) as page:
            panel = page.locator("#open .question")
            expect(panel.locator("pre")).to_contain_text('"amount": 12345678901234567890')
            expect(panel).to_contain_text("effectful: changes the world with each call")
            yes = panel.get_by_role("button", name="Yes, make this call")
            expect(yes).to_be_disabled()
            assert not page.evaluate("document.activeElement.matches('button')")
            panel.get_by_label("invoice seen").check()
            expect(yes).to_be_disabled()
            panel.get_by_label("amount right").check()
            panel.get_by_label("note").fill("seen")
            panel.get_by_label("note").press("Enter")
            expect(page).to_have_title(re.compile("^‖ asks: pay"))
            yes.click()
            expect(page.locator("#head .badge")).to_have_text("✓ succeeded")
        assert process.wait(timeout=SECONDS / 1000) == 0
    answered = finished(scene, "inspect", "one", "--export").out.partition('"QuestionAnswered"')[2]
    assert '"note":"seen"' in answered
    assert '"by":""' not in answered.partition("\n")[0]


@rig
@pytest.mark.parametrize(("label", "status"), [("No", "✗ failed"), ("Hand over to people", "! handed to people")])
def test_a_call_is_refused_or_handed_over(scene: Shell, browser: Browser, label: str, status: str) -> None:
    """L3."""
    with running(scene, PAY, args=("--serve", "--port", "0")) as process, tab(browser, Told(process).address()) as page:
        page.get_by_role("button", name=label, exact=True).click()
        expect(page.locator("#head .badge")).to_have_text(status)


@rig
def test_a_missing_value_is_chosen(scene: Shell, browser: Browser) -> None:
    """L3: the field fits the schema, and what does not fit is told by the server."""
    choose = {"id": "which", "tool": "choose"}
    with running(scene, choose, args=("--serve", "--port", "0")) as process:
        with tab(browser, Told(process).address()) as page:
            panel = page.locator("#open .question")
            panel.get_by_role("button", name="Send this value").click()
            expect(panel.locator(".message")).to_have_text("a value is asked for")
            field = panel.locator(".typed :is(select, textarea, input)")
            if field.evaluate("element => element.tagName") == "SELECT":
                field.select_option(label="EU")
            else:
                field.fill("Mars")
                panel.get_by_role("button", name="Send this value").click()
                expect(panel.locator(".message")).to_contain_text("one of")
                field.fill("EU")
            panel.get_by_role("button", name="Send this value").click()
            expect(page.locator("#head .badge")).to_have_text("✓ succeeded")
        assert process.wait(timeout=SECONDS / 1000) == 0


@rig
def test_a_change_of_the_plan_is_shown_before_it_is_agreed_to(scene: Shell, browser: Browser) -> None:
    """L4: the diff; and after it, the change with its reason."""
    scene.file("policy.toml", 'approve_patches = "always"\n')
    broken = {"id": "broken", "tool": "broken"}
    args = ("--serve", "--port", "0", "--planner", "page_tools:planner")
    with running(scene, broken, args=args) as process, tab(browser, Told(process).address()) as page:
        panel = page.locator("#open .question")
        expect(panel.locator(".diff .add").first).to_contain_text("mirror")
        panel.get_by_role("button", name="Yes", exact=True).click()
        expect(page.locator("#head .badge")).to_have_text("✓ succeeded")
        page.locator("#changes summary").click()
        expect(page.locator("#changes")).to_contain_text("a mirror has the same rows")


@rig
def test_the_second_person_is_told_who_was_first(scene: Shell, browser: Browser) -> None:
    """L5, L6: the panel closes, whoever has answered, also a person at another command."""
    scene.file("policy.toml", "")
    with running(scene, PAY, SLOW, args=("--serve", "--port", "0")) as process:
        address = Told(process).address()
        with tab(browser, address) as first, tab(browser, address) as second:
            expect(second.locator("#open [data-question]")).to_be_visible()
            first.get_by_role("button", name="Yes, make this call").click()
            expect(second.locator("#open .question.done")).to_contain_text("approve by")
            expect(second.locator("#open [data-question]")).to_have_count(0)
        go(scene)


@rig
def test_an_answer_from_elsewhere_closes_the_panel(scene: Shell, browser: Browser) -> None:
    """L6."""
    scene.file("policy.toml", "")
    with running(scene, PAY, SLOW, args=("--serve", "--port", "0")) as process:
        with tab(browser, Told(process).address()) as page:
            expect(page.locator("#open [data-question]")).to_be_visible()
            answered = finished(scene, "answer", "one", "pay", "--yes", "--by", "bob")
            assert answered.code == 0, answered.err
            expect(page.locator("#open .question.done")).to_contain_text("approve by bob")
        go(scene)


@rig
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_run_and_its_page(scene: Shell, browser: Browser, how: signal.Signals) -> None:
    """L12: with open streams, as without ``--serve``."""
    with running(scene, SLOW, args=("--serve", "--port", "0")) as process:
        told = Told(process)
        with tab(browser, told.address()) as page:
            expect(row(page, "slow")).to_have_class(re.compile("running"))
            process.send_signal(how)
            assert process.wait(timeout=SECONDS / 1000) == 128 + how
            expect(page.locator("#head .badge")).to_contain_text("interrupted")
    assert "Traceback" not in "".join(told.lines)


def box(page: Page, step: str) -> Any:
    """Return the box of a step in the graph."""
    return page.locator(f'#graph a.box[href="#step-{step}"]')


def test_the_graph_changes_with_the_run(scene: Shell, browser: Browser) -> None:
    """States without a new drawing, steps with one; a click opens the step."""
    broken = {"id": "broken", "tool": "broken", "depends_on": ["slow"]}
    args = ("--serve", "--port", "0", "--planner", "page_tools:planner")
    with running(scene, SLOW, broken, args=args) as process, tab(browser, Told(process).address()) as page:
        expect(box(page, "slow")).to_have_class(re.compile("running"))
        expect(box(page, "slow")).to_have_attribute("aria-label", "slow: slow, running")
        expect(box(page, "broken")).to_have_class(re.compile("waiting"))
        go(scene)
        expect(box(page, "slow")).to_have_class(re.compile("succeeded"))
        expect(box(page, "broken")).to_have_class(re.compile("gone"))
        expect(box(page, "mirror")).to_have_class(re.compile("succeeded"))
        fetched: list[str] = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
        # The first, and others for changes of the plan; the last may come with the end of the stream.
        assert 1 <= sum("graph.svg" in name for name in fetched) <= 3
        box(page, "mirror").click()
        expect(page.locator("#step h2")).to_contain_text("mirror")


def test_a_range_of_the_timeline_is_picked_by_dragging(scene: Shell, browser: Browser) -> None:
    """The bars then are those of the range; a button leads back to the whole."""
    go(scene)
    steps: list[dict[str, Any]] = [SLOW, AFTER, *({"id": f"q{n}", "tool": "quick"} for n in range(3))]
    assert finished(scene, "run", scene.plan(*steps), "-t", "page_tools", "--run-id", "one").code == 0
    with serving(scene) as (_, address), tab(browser, at_run(address)) as page:
        expect(row(page, "slow")).to_be_visible()
        before = page.locator(".axis span").all_text_contents()
        place = page.locator(".axis").bounding_box()
        assert place is not None
        whole = page.get_by_role("button", name="whole run")
        for _ in range(3):
            page.mouse.move(place["x"] + place["width"] * 0.5, place["y"] + 12)
            page.mouse.down()
            page.mouse.move(place["x"] + place["width"] * 0.75, place["y"] + 12)
            expect(page.locator(".axis .band")).to_be_visible()
            page.mouse.up()
            expect(whole).to_be_visible()
            texts = page.locator(".axis span").all_text_contents()
            assert texts != before
            assert len(set(texts)) == len(texts), "no two marks read alike"
        whole.click()
        expect(page.locator(".axis span").first).to_have_text(before[0])
        assert page.locator(".axis span").all_text_contents() == before


@pytest.mark.parametrize("width", [1280, 390])
def test_texts_of_the_axis_stand_apart(scene: Shell, browser: Browser, width: int) -> None:
    """A long pause, a planner at work and times share it: no text covers another one, on a phone neither."""

    async def sleepy(question: dagrun.Question) -> bool:
        await anyio.sleep(3 * 3600 + 240)
        return True

    async def play() -> list[Any]:
        options: Any = {"planner": Mirrors(), "approver": sleepy, "policy": dagrun.Policy(max_running=3)}
        journal = dagrun.MemoryJournal()
        await dagrun.run(RICH, tools=rich_tools(), journal=journal, run_id="rich", **options)
        return await journal.read("rich")

    async def keep(lines: list[Any]) -> None:
        run_log = await dagrun.SQLiteJournal(scene.runs).create("rich")
        for line in lines:
            run_log.append(line.text)
        await run_log.durable()
        await run_log.aclose()

    with ThreadPoolExecutor(1) as thread:  # Playwright has a loop of its own in that of the test
        thread.submit(anyio.run, keep, at_once(play)).result()
    size: Any = {"width": width, "height": 900}
    with serving(scene) as (_, address), tab(browser, at_run(address, "rich"), viewport=size) as page:
        expect(page.locator(".axis .gap")).to_have_text("⋯ 3 h 04 min")
        texts = page.locator(".axis span, .axis .gap").all()
        places = sorted((place["x"], place["x"] + place["width"]) for one in texts if (place := one.bounding_box()))
    assert len(places) >= 2
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places)), places


def test_a_report_and_a_file_are_downloaded(scene: Shell, browser: Browser) -> None:
    """With the token in the header, which a link could not send."""
    steps = [{"id": "chart", "tool": "chart"}]
    assert finished(scene, "run", scene.plan(*steps), "-t", "page_tools", "--run-id", "one").code == 0
    with serving(scene) as (_, address), tab(browser, at_run(address)) as page:
        with page.expect_download() as report:
            page.get_by_role("button", name="Download the report").click()
        assert report.value.suggested_filename == "one.html"
        assert "<!doctype html>" in report.value.path().read_text()
        row(page, "chart").click()
        with page.expect_download() as file:
            page.get_by_role("button", name="chart.csv, 8 bytes").click()
        assert (file.value.suggested_filename, file.value.path().read_text()) == ("chart.csv", "a,b\n1,2\n")


def test_a_hidden_tab_tells_by_its_title(scene: Shell, browser: Browser) -> None:
    """L19: a question is in the title of a tab that nobody looks at, which has no stream, but asks now and then."""
    scene.file("policy.toml", "")
    pay = {**PAY, "depends_on": ["slow"]}
    args = ("--serve", "--port", "0")
    with running(scene, SLOW, pay, args=args) as process, tab(browser, Told(process).address()) as page:
        expect(page).to_have_title(re.compile("^▶ 0/2"))
        polled: list[str] = []
        page.on("request", lambda request: polled.append(request.url) if "/changes" in request.url else None)
        page.evaluate(HIDE)
        go(scene)
        expect(page).to_have_title(re.compile("^‖ asks: pay"))
        assert polled
        process.send_signal(signal.SIGINT)


# A headless browser never hides a tab.
HIDE: Final = """
Object.defineProperty(document, "hidden", { get: () => true });
document.dispatchEvent(new Event("visibilitychange"));
"""
# Long tasks of the page, in milliseconds.
LONG: Final = """
window.long = [];
new PerformanceObserver((list) => window.long.push(...list.getEntries().map((entry) => entry.duration)))
  .observe({ entryTypes: ["longtask"] });
"""


@rig
def test_ten_thousand_steps_can_be_looked_at_while_they_run(scene: Shell, browser: Browser) -> None:
    """L11: no turn of the page takes long, its elements are few, and its memory does not grow with what it has shown.

    The limit is that of the scenario, with room for a slow machine: the page is the only thing that is timed.
    """
    scene.file("policy.toml", "max_running = 20\nmax_fan_out = 20000\nmax_steps = 20000\nmax_attempts = 20000\n")
    steps: list[dict[str, Any]] = [
        {"id": "list", "tool": "count"},
        {"id": "s", "tool": "short", "for_each": "${list}", "args": {"value": "${item}"}},
    ]
    with running(scene, *steps, SLOW, args=("--serve", "--port", "0")) as process:
        with tab(browser, Told(process).address()) as page:
            expect(page.locator("#graph a.box").first).to_be_visible(timeout=SECONDS)
            page.evaluate(LONG)
            for turn in range(20):
                page.locator("#time input").fill(f"s[{turn}")
                page.wait_for_timeout(150)
                page.locator("#time input").fill("")
                page.locator("#rows").evaluate(f"box => {{ box.scrollTop = {turn * 9_000}; }}")
                if not turn:
                    page.locator("#rows").evaluate("box => { box.scrollTop = 0; }")
                    page.locator(".fold").click()
                page.wait_for_timeout(150)
            session = page.context.new_cdp_session(page)
            heap = []
            for _ in range(3):
                page.wait_for_timeout(2_000)
                session.send("HeapProfiler.collectGarbage")
                heap.append(session.send("Runtime.getHeapUsage")["usedSize"])
            longest = max([0, *page.evaluate("window.long")])
            assert page.locator("*").count() < 4_000
        process.send_signal(signal.SIGINT)
    print(f"longest task {longest:.0f} ms, heap {[size // 1_000_000 for size in heap]} MB")
    assert longest < 400
    assert heap[-1] < 1.3 * heap[0] + 5_000_000


# All runs -------------------------------------------------------------------------------------------------------------


@rig
def test_runs_of_other_processes_are_listed_answered_and_stopped(scene: Shell, browser: Browser) -> None:
    """L7: the list, the questions of all runs, an answer, a step, the run; and the same page after a resumption."""
    scene.file("policy.toml", "grace = 0.2\n")
    other = {"id": "other", "tool": "slow"}
    with serving(scene) as (_, address), running(scene, PAY, SLOW, other) as process, tab(browser, address) as page:
        line = page.locator('tr[data-run="one"]')
        expect(line).to_contain_text("running")
        expect(page.locator("#open h2")).to_have_text("Waiting for you (1)")
        page.get_by_role("button", name="Yes, make this call").click()
        expect(page.locator("#open .question")).to_have_count(0)
        line.get_by_role("link").click()
        expect(row(page, "pay")).to_have_class(re.compile("succeeded"))
        row(page, "other").click()
        expect(page.locator("#step h2")).to_contain_text("other")
        cancel = page.locator("#step").get_by_role("button", name="Cancel this step")
        cancel.click()
        page.locator("#step .buttons .cancel").click()
        expect(row(page, "other")).to_have_class(re.compile("cancelled"))
        page.keyboard.press("Escape")
        page.locator("#head .suspend").click()
        page.locator("#head .suspend").click()
        expect(page.locator("#head .badge")).to_contain_text("interrupted")
        expect(page.locator("#head code")).to_contain_text("dagrun resume one")
        assert process.wait(timeout=SECONDS / 1000) == 130
        with started(scene, "resume", "one", "-t", "page_tools") as again:
            expect(page.locator("#head .badge")).to_contain_text("running")
            page.locator("#head .cancel").click()
            page.locator("#head .cancel").click()
            expect(page.locator("#head .badge")).to_contain_text("cancelled")
            assert again.wait(timeout=SECONDS / 1000) == 130


@rig
def test_the_queue_of_workers_is_seen_and_put_right(
    scene: Shell, browser: Browser, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody has, is for whom; what is stuck, why; and a run is put back, and cancelled, without any worker."""
    with fresh_database(postgres) as dsn:
        monkeypatch.setenv("DAGRUN_JOURNAL", dsn)
        _see_the_queue(scene, browser, dsn)


def _see_the_queue(scene: Shell, browser: Browser, dsn: str) -> None:
    for run in ("bad", "first"):
        told = finished(scene, "submit", scene.plan(PAY), "-t", "page_tools", "--run-id", run, "--pool", "mail")
        assert told.code == 0, told.err
    with ThreadPoolExecutor(1) as thread:  # this thread has the loop of the browser
        thread.submit(anyio.run, _set_next_aside, dsn).result()
    with serving(scene) as (_, address), tab(browser, address) as page:
        expect(page.locator('tr[data-run="first"]')).to_contain_text("in the queue")
        expect(page.locator('tr[data-run="first"]')).to_contain_text("pool mail")
        line = page.locator('tr[data-run="bad"]')
        expect(line).to_contain_text("3 workers have ended while at it")
        page.get_by_label("state").select_option("stuck")
        expect(page.locator("tbody tr")).to_have_count(1)
        line.get_by_role("link").click()
        expect(page.locator("#head .badge")).to_contain_text("stuck")
        expect(page.locator("#head")).to_contain_text("pool mail")
        expect(page.locator("#head code")).to_have_count(0)
        for button in ("requeue", "cancel"):
            page.locator(f"#head .{button}").click()
            page.locator(f"#head .{button}").click()
            expect(page.locator("#head .badge")).to_contain_text("in the queue")
        with started(scene, "worker", "-t", "page_tools", "--pool", "mail") as worker:
            expect(page.locator("#head .badge")).to_contain_text("cancelled")
            page.get_by_role("link", name="All runs").click()
            page.get_by_role("button", name="Yes, make this call").click()
            expect(page.locator('tr[data-run="first"]')).to_contain_text("succeeded")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(timeout=SECONDS / 1000) == 0


async def _set_next_aside(dsn: str) -> None:
    """Let the run be stuck that was submitted first."""
    async with PostgresJournal(dsn) as journal:
        run_log = await journal.queue.claim(Wanted(pools=["mail"]))
        assert run_log is not None
        run_log.leave(QueueStatus.STUCK, "3 workers have ended while at it")
        await run_log.aclose()


@rig
def test_a_killed_process_leaves_an_interrupted_run(scene: Shell, browser: Browser) -> None:
    """L8: with the command that resumes it."""
    with serving(scene) as (_, address), running(scene, SLOW) as process, tab(browser, at_run(address)) as page:
        expect(row(page, "slow")).to_have_class(re.compile("running"))
        process.kill()
        process.wait()
        expect(page.locator("#head .badge")).to_contain_text("interrupted")
        expect(page.locator("#head code")).to_contain_text("dagrun resume one")


@rig
def test_a_server_that_comes_back_is_found_again(scene: Shell, browser: Browser) -> None:
    """L9: nothing is missing; L16: meanwhile, the page says how old its news is."""
    with running(scene, SLOW, AFTER) as process:
        with serving(scene) as (server, address):
            page_ = tab(browser, at_run(address))
            page = page_.__enter__()
            expect(row(page, "slow")).to_have_class(re.compile("running"))
            server.kill()
        expect(page.locator("#lost")).to_contain_text("not connected, last news")
        go(scene)
        assert process.wait(timeout=SECONDS / 1000) == 0
        port = re.search(r":(\d+)/", address)
        assert port is not None
        with serving(scene, port=port[1]):
            expect(page.locator("#head .badge")).to_have_text("✓ succeeded")
            expect(row(page, "after")).to_have_class(re.compile("succeeded"))
            expect(page.locator("#lost")).to_be_hidden()
            page_.__exit__(None, None, None)


@rig
def test_a_page_that_was_cut_off_catches_up(scene: Shell, browser: Browser) -> None:
    """L16."""
    with serving(scene) as (_, address), running(scene, SLOW, AFTER), tab(browser, at_run(address)) as page:
        expect(row(page, "slow")).to_have_class(re.compile("running"))
        page.context.set_offline(True)
        page.evaluate("dispatchEvent(new Event('offline'))")
        expect(page.locator("#lost")).to_be_visible(timeout=40_000)
        go(scene)
        page.context.set_offline(False)
        expect(page.locator("#head .badge")).to_have_text("✓ succeeded")
        expect(page.locator("#lost")).to_be_hidden()


@rig
def test_eight_tabs_of_one_person_are_served(scene: Shell, browser: Browser) -> None:
    """L10: a browser opens six connections to a server; hidden tabs need none."""
    with serving(scene) as (_, address), running(scene, SLOW), visitor(browser) as person:
        pages = [person.new_page() for _ in range(8)]
        for page in pages:
            page.goto(at_run(address))
            expect(row(page, "slow")).to_be_visible()
        go(scene)
        pages[0].bring_to_front()
        expect(pages[0].locator("#head .badge")).to_have_text("✓ succeeded")


@rig
def test_only_looking_shows_no_button(scene: Shell, browser: Browser) -> None:
    """L18."""
    scene.file("policy.toml", "")
    with (
        serving(scene, "--read-only") as (_, address),
        running(scene, PAY, SLOW),
        tab(browser, at_run(address)) as page,
    ):
        expect(page.locator("#open .question")).to_contain_text("only looking is allowed here")
        expect(page.locator("#open button, #head button:not(:text-is('Download the report'))")).to_have_count(0)


@rig
def test_who_wants_little_motion_gets_little(scene: Shell, browser: Browser) -> None:
    """L17."""
    with serving(scene) as (_, address), running(scene, SLOW):
        for motion, animation in (("reduce", "none"), ("no-preference", "going")):
            with tab(browser, at_run(address), reduced_motion=motion) as page:
                bar = row(page, "slow").locator(".b.goes")
                expect(bar).to_have_css("animation-name", animation)


@rig
def test_the_steps_can_be_found_by_keys(scene: Shell, browser: Browser) -> None:
    """R7, R9 for the live page: filter, rows, one step, and back."""
    steps: list[dict[str, Any]] = [
        SLOW,
        *({"id": f"quick-{n}", "tool": "quick", "args": {"value": n}} for n in range(30)),
    ]
    with serving(scene) as (_, address), running(scene, *steps), tab(browser, at_run(address)) as page:
        expect(row(page, "slow")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("quick-17")
        expect(page.locator("#rows")).to_have_attribute("aria-rowcount", "1")
        page.locator("h1").click()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("#step h2")).to_contain_text("quick-17")
        expect(page.locator("#step pre").first).to_contain_text('"value":17')
        assert page.url.endswith("#step-quick-17")
        page.keyboard.press("Escape")
        expect(page.locator("#step")).to_be_hidden()


# Safety ---------------------------------------------------------------------------------------------------------------

_FOREIGN: Final = """<!doctype html><title>foreign</title><iframe id=frame src="{address}"></iframe><script>
const told = [];
async function attack(name, path, options) {{
  try {{ const got = await fetch("{origin}" + path, options); told.push(name + " " + got.type + " " + got.status); }}
  catch (error) {{ told.push(name + " failed"); }}
}}
(async () => {{
  const headers = {{ Authorization: "Bearer {token}" }};
  await attack("get", "api/runs", {{}});
  await attack("get with token", "api/runs", {{ headers }});
  const all = {{ ...headers, "Content-Type": "application/json", "X-Dagrun": "1" }};
  await attack("post", "api/runs/one/cancel", {{ method: "POST", body: "{{}}", headers: all }});
  await attack("blind post", "api/runs/one/cancel", {{ method: "POST", body: "{{}}", mode: "no-cors" }});
  document.title = told.join("; ");
}})();
</script>"""


def test_a_foreign_page_can_do_nothing(scene: Shell, browser: Browser) -> None:
    """L15: even if it knew the token; it can neither read nor frame the page, nor cancel a run."""
    with serving(scene) as (_, address), running(scene, SLOW) as process:
        origin = address.partition("#")[0]
        text = _FOREIGN.format(address=address, origin=origin, token=TOKEN).encode()

        class Foreign(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with tab(browser, f"http://localhost:{server.server_port}/") as page:
            told = re.compile("^get failed; get with token failed; post failed; blind post (failed|opaque 0)$")
            expect(page).to_have_title(told)
            frame = page.frames[1]
            assert frame.evaluate("document.body?.innerText ?? ''").find("Runs") < 0
        server.shutdown()
        server.server_close()
        with tab(browser, at_run(address)) as page:
            expect(row(page, "slow")).to_have_class(re.compile("running"))
        assert process.poll() is None


@rig
def test_without_the_token_there_is_a_field_for_it(scene: Shell, browser: Browser) -> None:
    """S7: then it is kept for this tab, and for no other."""
    with serving(scene) as (_, address), running(scene, SLOW), visitor(browser) as person:
        page = person.new_page()
        page.goto(address.partition("#")[0])
        page.get_by_label("The token").fill(TOKEN)
        page.get_by_role("button", name="Look").click()
        expect(page.locator('tr[data-run="one"]')).to_be_visible()
        page.reload()
        expect(page.locator('tr[data-run="one"]')).to_be_visible()
        other = person.new_page()
        other.goto(address.partition("#")[0])
        expect(other.get_by_label("The token")).to_be_visible()
        assert person.cookies() == []


HOSTILE: Final = [
    "<script>window.canary=1</script>",
    "</script><script>window.canary=1</script>",
    "<!--",
    "<img src=x onerror=canary=1>",
    "javascript:canary=1",
    '"onload="canary=1',
    "\u202egnp.exe",
    "\u2028\u2029",
    "x" * 100_000,
    "{{canary}}",
    "${canary}"[1:],
]


def test_texts_of_models_are_only_texts(scene: Shell, browser: Browser) -> None:
    """S10: in goals, ids, arguments, outputs, descriptions and questions."""
    scene.file("policy.toml", "")
    steps = [
        {"id": f"s{n}", "tool": "quick", "args": {"value": text}, "description": text[:900]}
        for n, text in enumerate(HOSTILE)
    ]
    ask = {"id": "ask", "tool": "pay", "args": {"amount": 1, "to": HOSTILE[0]}}
    plan = scene.plan(*steps, ask, goal="".join(HOSTILE[:8]))
    ended = finished(scene, "run", plan, "-t", "page_tools", "--run-id", "one")
    assert ended.code == 5, ended.err
    with serving(scene) as (_, address), tab(browser, address) as page:
        expect(page.locator("#open .question")).to_contain_text("<script>")
        page.goto(at_run(address).partition("#")[0])
        for n in range(len(HOSTILE)):
            page.locator("#time input").fill(f"s{n}")
            row(page, f"s{n}").click()
            expect(page.locator("#step h2")).to_contain_text(f"s{n}")
            expect(page.locator("#step pre").first).to_be_visible()
            page.locator("#step .close").click()
        assert page.evaluate("window.canary") is None
        assert page.locator("img, iframe, object, main script").count() == 0
        width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0, "a long word makes the page wider than the window"


def test_a_reason_without_blanks_keeps_to_the_window(scene: Shell, browser: Browser) -> None:
    """As a condition has none, or an address: on a phone, nobody reads on to the right."""
    failed = {"id": "a", "tool": "quick", "success": {"ref": "a", "op": "==", "value": "y" * 300}}
    assert finished(scene, "run", scene.plan(failed), "-t", "page_tools", "--run-id", "one").code == 1
    with serving(scene) as (_, address):
        for place, about in ((address, ".runs .what"), (at_run(address), "main")):
            with tab(browser, place) as page:
                page.set_viewport_size({"width": 390, "height": 844})
                expect(page.locator(about).first).to_contain_text("yyy")
                assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, about


def test_a_reader_may_type_before_the_first_news(scene: Shell, browser: Browser) -> None:
    """On a slow connection the page is there before the run is; what was typed holds when it comes."""
    scene.file("policy.toml", "")
    steps = [{"id": f"s{n}", "tool": "quick", "args": {"value": "x"}} for n in range(3)]
    assert finished(scene, "run", scene.plan(*steps), "-t", "page_tools", "--run-id", "one").code == 0
    held: list[Route] = []
    with serving(scene) as (_, address), tab(browser, address) as page:
        page.route("**/stream?*", lambda route: held.append(route))
        page.goto(at_run(address).partition("#")[0])
        page.locator("#time input").fill("s1")
        page.locator("#time input").blur()
        page.keyboard.press("j")
        wait_until(page, lambda: held)
        held[0].continue_()
        page.unroute("**/stream?*")
        expect(row(page, "s1")).to_be_visible()
        expect(row(page, "s0")).to_have_count(0)


# The command ----------------------------------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_port_that_is_taken_is_said(scene: Shell) -> None:
    """Without ``--port``, the next one is taken; with it, that is a mistake."""
    with serving(scene) as (_, address):
        port = re.search(r":(\d+)/", address)
        assert port is not None
        refused = finished(scene, "serve", "--port", port[1])
        assert (refused.code, "Address already in use" in refused.err) == (2, True)
        refused = finished(scene, "run", scene.plan(SLOW), "-t", "page_tools", "--serve", "--port", port[1])
        assert refused.code == 2


@pytest.mark.costly
def test_other_machines_need_a_name(scene: Shell) -> None:
    """S1: and are told that there is no TLS."""
    refused = finished(scene, "serve", "--host", "0.0.0.0", "--port", "0")
    assert (refused.code, "--allow-host" in refused.err) == (2, True)
    with started(scene, "serve", "--host", "0.0.0.0", "--port", "0", "--allow-host", "runs.example") as process:
        told = Told(process)
        told.address()
        assert any("no TLS" in line for line in told.lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=SECONDS / 1000) == 0


@pytest.mark.costly
def test_options_of_the_page_need_the_page(scene: Shell) -> None:
    for option in (("--linger",), ("--port", "0"), ("--open",)):
        refused = finished(scene, "run", scene.plan(SLOW), "-t", "page_tools", *option)
        assert (refused.code, "--serve" in refused.err) == (2, True)
    assert os.environ["DAGRUN_PAGE_TOKEN"] == TOKEN
