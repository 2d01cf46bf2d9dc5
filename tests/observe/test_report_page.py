"""The report page, as a reader meets it: in Chromium, with and without script and style, by mouse and by keyboard."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

import dagrun
from browsing import Pages, axe_faults, browsing, wait_until
from dagrun.observe.report.report import ReportStyle, make_report
from dagrun.observe.state_styles import TIMES
from dagrun.observe.view.document import view_of
from view_runs import Played, at_once, failed, hostile, killed, large, play, revised, rich, slept, waiting, wide

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    """One browser for the module."""
    with browsing() as open_pages:
        yield open_pages


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The browser lives longer than a test."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reports of the module."""
    place = tmp_path_factory.mktemp("reports")
    for run in (rich, large, hostile, failed, waiting, killed, slept, revised, wide):
        (place / f"{run.__name__}.html").write_bytes(make_report(view_of(at_once(run).past)))
    return place


def ready(pages: Pages, path: Path, **options: Any) -> Page:
    page = pages.open(path, **options)
    page.locator("html[data-ready]").wait_for(state="attached")
    return page


def width_of(element: Any) -> float:
    """Return the width of an element, in pixels."""
    return float(element.bounding_box()["width"])


OPENED: Final = [
    *(
        (name, dark, width)
        for name in ("rich", "large", "hostile")
        for dark, width in ((False, 1280), (True, 1280), (False, 390))
    ),
    *((name, False, 1280) for name in ("failed", "waiting", "killed", "slept", "revised", "wide")),
]


@pytest.mark.parametrize(("name", "dark", "width"), OPENED)
def test_page_opens_and_asks_for_nothing(pages: Pages, folder: Path, name: str, dark: bool, width: int) -> None:
    """No error, no word on the console, no request but for the file itself; and it fits into its window."""
    page = ready(pages, folder / f"{name}.html", dark=dark, width=width)
    seen = pages.seen[page]

    assert (seen.console, seen.errors) == ([], [])
    assert [url for url in seen.requests if not url.startswith("data:")] == [page.url]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("*").count() <= 4_000


@pytest.mark.parametrize("width", [1280, 390])
def test_a_reason_without_blanks_keeps_to_the_window(pages: Pages, tmp_path: Path, width: int) -> None:
    """As a condition has none, or an address: it is broken, and the page is no wider for it."""

    @dagrun.tool(effect="read")
    async def fail() -> int:
        raise dagrun.ToolError("x" * 199)

    async def run() -> Played:
        return await play(dagrun.Plan(steps=[dagrun.Step(id="a", tool="fail")]), [fail], run_id="one")

    (tmp_path / "long.html").write_bytes(make_report(view_of(at_once(run).past)))
    page = ready(pages, tmp_path / "long.html", width=width)

    expect(page.locator("#wrong")).to_contain_text("xxx")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_went_wrong_comes_first(pages: Pages, folder: Path) -> None:
    """Above the graph, with the cause, the row of the recovery table, and the substitute."""
    page = ready(pages, folder / "rich.html")
    wrong = page.locator("#wrong")

    assert page.evaluate("wrong.compareDocumentPosition(graph) & Node.DOCUMENT_POSITION_FOLLOWING")
    expect(wrong).to_contain_text("unreachable: this source was switched off")
    expect(wrong).to_contain_text("The planner is asked: unreachable, and a planner can revise")
    expect(wrong.get_by_role("link", name="orders-mirror")).to_be_visible()
    top = page.locator("#run h1").bounding_box()
    assert top is not None
    assert top["y"] + top["height"] < 120


def test_graph_shows_states_and_path(pages: Pages, folder: Path) -> None:
    """By colour and symbol; the path goes from `big` over `scores` to `check`; an edge names both of its steps."""
    page = ready(pages, folder / "rich.html")
    hot = page.locator("svg.dag a.box.hot .name").all_text_contents()

    assert hot == ["big", "clean-big", f"scores {TIMES} 5", "pay", "check"]
    orders, big = (page.locator(f"svg.dag a.box[href='#step-{name}']") for name in ("orders", "big"))
    assert (orders.locator(".sym").text_content(), big.locator(".sym").text_content()) == ("✗", "✓")
    fill = [one.locator("rect").evaluate("one => getComputedStyle(one).fill") for one in (orders, big)]
    assert len(set(fill)) == 2
    assert page.locator("path.edge.hot").count() == 4
    assert page.locator("path.edge title").first.text_content() == "orders was replaced by orders-mirror"


def test_rows_tell_attempts_waits_and_splices(pages: Pages, folder: Path) -> None:
    """`moody` has two bars and a back-off between them; `pay` waits for a person; the mirror begins at the splice."""
    page = ready(pages, folder / "rich.html")

    def row(name: str) -> Any:
        n = page.locator(f"svg.dag a.box[href='#step-{name}']").get_attribute("data-n")
        return page.locator(f"#rows .item[data-n='{n}'] .bars")

    assert [one.get_attribute("class") for one in row("moody").locator(".bar").all()] == ["bar bad", "bar ok"]
    assert row("moody").locator(".w.backoff").count() == 1
    assert row("pay").locator(".w.person").get_attribute("title") == "waited 0.40 s for a person"
    assert row("rates").locator(".w.slot").get_attribute("title") == "waited 0.30 s for a slot (max_running was full)"
    mirror = row("orders-mirror").locator(".bar").bounding_box()
    splice: Any = page.locator("#rows .over .sp").bounding_box()
    assert mirror["x"] >= splice["x"] - 1
    page.locator("a.spl").click()
    expect(page.locator("#revision-1")).to_have_attribute("open", "")


def test_drawer_shows_a_step_and_gives_the_focus_back(pages: Pages, folder: Path) -> None:
    """With the exact arguments; Escape leads back; the address leads to the step again."""
    page = ready(pages, folder / "rich.html")
    page.locator("svg.dag a.box[href='#step-pay']").click()
    expect(page.locator("#step")).to_be_visible()
    expect(page.locator("#step pre").first).to_have_text('{\n  "amount": 15,\n  "to": "ann@example.org"\n}')
    page.keyboard.press("Escape")
    expect(page.locator("#step")).to_be_hidden()
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#step-pay"

    again = ready(pages, folder / "rich.html", fragment="#step-scores[4]")
    expect(again.locator("#step-title")).to_contain_text("scores[4]")
    assert "null" not in (again.locator("#step").text_content() or "")


def test_table_of_ten_thousand_rows(pages: Pages, folder: Path) -> None:
    """To its end by wheel, filtered by text and state, with few elements all the time."""
    page = ready(pages, folder / "large.html")
    rows = page.locator("#rows")
    rows.hover()
    for _ in range(3):
        rows.evaluate("one => one.scrollTop = one.scrollHeight")
    expect(rows.locator(".item").last).to_have_attribute("aria-rowindex", rows.get_attribute("aria-rowcount") or "")
    assert page.locator("*").count() <= 4_000
    page.fill("#filter", "s1234")
    expect(page.locator("#tools [role=status]")).to_have_text("1 of 2,000 steps")
    page.fill("#filter", "")
    page.locator(".chip[data-state=failed]").click()
    expect(page.locator("#tools [role=status]")).to_have_text("20 of 2,000 steps")


@pytest.mark.rigs(seconds=20)
def test_report_of_ten_thousand_steps_opens(pages: Pages, tmp_path: Path) -> None:
    """With few elements, also at the end of its table. `benchmarks/watch.py --browser` measures how long it takes."""
    (tmp_path / "10000.html").write_bytes(make_report(view_of(at_once(lambda: large(10_000)).past)))
    page = ready(pages, tmp_path / "10000.html")
    rows = page.locator("#rows")
    assert page.locator("*").count() <= 4_000
    rows.evaluate("one => one.scrollTop = one.scrollHeight")
    expect(rows.locator(".item").last).to_have_attribute("aria-rowindex", "10001")
    assert page.locator("*").count() <= 4_000


def test_tool_filters_the_table(pages: Pages, folder: Path) -> None:
    """Together with the text and the states."""
    page = ready(pages, folder / "rich.html")
    said = page.locator("#tools [role=status]")
    page.locator("#tool").select_option("fetch")
    expect(said).to_have_text("5 of 18 steps")
    page.locator(".chip[data-state=failed]").click()
    expect(said).to_have_text("1 of 18 steps")
    page.locator("#tool").select_option("")
    expect(said).to_have_text("2 of 18 steps")
    assert ready(pages, folder / "revised.html").locator("#tool").count() == 0


def test_question_mark_shows_the_keys(pages: Pages, folder: Path) -> None:
    """And hides them again; in the filter it is a letter."""
    page = ready(pages, folder / "rich.html")
    expect(page.locator("#keys")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    assert page.get_by_role("button", name="? keys").get_attribute("aria-expanded") == "true"
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_hidden()
    page.locator("#filter").press("?")
    expect(page.locator("#keys")).to_be_hidden()
    expect(page.locator("#filter")).to_have_value("?")


def test_idle_stretch_is_folded_until_somebody_asks(pages: Pages, folder: Path) -> None:
    """Three hours between two bursts: both can be read. A click shows the time as it was, another one folds it."""
    page = ready(pages, folder / "slept.html")
    bar = page.locator("#rows .item .bar").first
    width = width_of(bar)
    fold = page.locator("button.idle")
    expect(fold).to_have_text("⋯ 3 h 04 min ⋯")
    assert width > 100
    assert page.locator(".axisbox span").all_text_contents()[:2] == ["0", "0.2 s"]
    fold.click()
    expect(fold).to_have_count(0)
    assert width_of(bar) < 4
    assert "1 h 30 min" in page.locator(".axisbox span").all_text_contents()
    page.get_by_role("button", name="whole run").click()
    assert width_of(bar) == pytest.approx(width)


def test_range_of_a_folded_axis_is_what_was_dragged_over(pages: Pages, folder: Path) -> None:
    """The burst after the idle stretch, from its first call on."""
    page = ready(pages, folder / "slept.html")
    place: Any = page.locator(".axisbox").bounding_box()
    page.mouse.move(place["x"] + place["width"] * 0.49, place["y"] + 50)
    page.mouse.down()
    page.mouse.move(place["x"] + place["width"] * 0.99, place["y"] + 50, steps=4)
    page.mouse.up()
    bars = page.locator("#rows .item .bar")

    assert bars.count() == 2
    assert width_of(bars.first) > place["width"] * 0.25
    expect(page.get_by_role("button", name="whole run")).to_be_visible()


def test_interrupted_run_has_torn_edges(pages: Pages, folder: Path) -> None:
    """Bars of what ran when the record ends are torn, and the page says how to go on."""
    page = ready(pages, folder / "killed.html")
    torn = page.locator("#rows .bar.torn")

    expect(torn).to_have_count(1)
    assert "polygon" in torn.evaluate("one => getComputedStyle(one).clipPath")
    assert (torn.get_attribute("title") or "").endswith("running: its end is not on record")
    expect(page.locator("#run")).to_contain_text("1 step was running. To go on: dagrun resume killed")
    assert ready(pages, folder / "rich.html").locator(".torn").count() == 0


def test_waiting_run_says_how_it_goes_on(pages: Pages, folder: Path) -> None:
    """With the arguments that are asked about, the commands, and no word of an end."""
    page = ready(pages, folder / "waiting.html")

    expect(page.locator("#open")).to_contain_text("supplier@example.org")
    expect(page.locator("#open")).to_contain_text("dagrun answer waits pay")
    expect(page.locator("#open")).to_contain_text("dagrun resume waits")
    assert ", ended" not in (page.locator("#run").text_content() or "")
    assert page.locator("#rows .w.person").count() == 1


def test_failed_run_says_what_did_not_run(pages: Pages, folder: Path) -> None:
    page = ready(pages, folder / "failed.html")

    expect(page.locator("#wrong")).to_contain_text("connection refused by supplier-2")
    expect(page.locator("#wrong")).to_contain_text("Because of it, 3 steps did not run: sum pay file")


def test_box_of_many_steps_filters_the_table(pages: Pages, folder: Path) -> None:
    """To exactly those that it stands for."""
    page = ready(pages, folder / "large.html")
    box = page.locator("svg.dag a.box[data-many]").first
    count = int(box.get_attribute("data-many") or 0)
    box.click()

    expect(page.locator("#tools [role=status]")).to_have_text(f"{count:,} of 2,000 steps")


def test_keyboard_is_enough(pages: Pages, folder: Path) -> None:
    """Filter, rows, details and back."""
    page = ready(pages, folder / "rich.html")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("clean")
    expect(page.locator("#rows .item")).to_have_count(3)
    page.locator("#rows").focus()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#step")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#step")).to_be_hidden()


def test_elements_unfold(pages: Pages, folder: Path) -> None:
    """A for_each is one row, and one for each element when it is opened."""
    page = ready(pages, folder / "rich.html")
    before = page.locator("#rows .item").count()
    page.locator("#rows .fold").click()

    expect(page.locator("#rows .item")).to_have_count(before + 5)


def test_page_without_script(pages: Pages, folder: Path) -> None:
    """What went wrong, boxes, bars, changes and questions are there."""
    page = pages.open(folder / "rich.html", script=False)

    for place in ("#wrong", "#graph svg.dag", "#time svg.running", "#changes .add", "#questions td", "noscript"):
        assert page.locator(place).first.is_visible(), place
    assert page.locator("svg.running .bar").count() >= 18


class _Jenkins(http.server.SimpleHTTPRequestHandler):
    """Serves files as Jenkins does: without script, and without styles in the page."""

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", "sandbox; default-src 'none'; img-src 'self'; style-src 'self';")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_page_behind_the_header_of_jenkins(pages: Pages, folder: Path) -> None:
    """Neither style nor script: the colours are attributes, so boxes and bars can be seen."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0),
        lambda *args: _Jenkins(*args, directory=str(folder)),
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        page = pages.open(f"http://127.0.0.1:{server.server_port}/rich.html")
        box, bar = page.locator("svg.dag .box rect").first, page.locator("svg.running .bar").first
        assert box.is_visible()
        assert bar.bounding_box() is not None
        fill = [one.evaluate("one => getComputedStyle(one).fill") for one in (box, bar)]
        assert "rgb(0, 0, 0)" not in fill
        page.context.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(pages: Pages, folder: Path, dark: bool) -> None:
    """Names, roles, contrasts, with the drawer open as well."""
    page = ready(pages, folder / "rich.html", dark=dark)
    assert axe_faults(page) == []
    page.locator("svg.dag a.box[href='#step-moody']").click()
    expect(page.locator("#step")).to_be_visible()
    assert axe_faults(page) == []


def test_hostile_texts_stay_texts(pages: Pages, folder: Path) -> None:
    """No planted script runs: in the page, in its drawer, or in an SVG alone; and bidi controls are shown as codes."""
    page = ready(pages, folder / "hostile.html")
    for box in page.locator("svg.dag a.box").all():
        box.click(force=True)
        page.keyboard.press("Escape")
    assert page.evaluate("window.canary") is None
    assert page.locator("img, iframe, object, form").count() == 0
    assert "\u202e" not in (page.text_content("#graph") or "")
    drawing = folder / "hostile.svg"
    drawing.write_bytes(make_report(view_of(at_once(hostile).past), "svg"))
    alone = pages.open(drawing)
    assert alone.evaluate("window.canary") is None
    assert pages.seen[alone].errors == []


def test_revision_slider_shows_the_plan_as_it_was(pages: Pages, folder: Path) -> None:
    """Steps that came later are pale."""
    page = ready(pages, folder / "rich.html")
    mirror = page.locator("svg.dag a.box[href='#step-orders-mirror']")
    page.locator("#revisions input").fill("0")
    expect(mirror).to_have_class("box ok off")
    page.locator("#revisions input").fill("1")
    expect(mirror).to_have_class("box ok")


def test_printed_page_is_short(pages: Pages, folder: Path) -> None:
    """The table becomes the drawing again; nothing is on seven pages."""
    page = ready(pages, folder / "rich.html")

    assert 1 <= page.pdf(format="A4").count(b"/Type /Page\n") <= 6


@pytest.mark.parametrize(
    ("plant", "where"),
    [
        ("console.warn('x')", "console"),
        ("throw new Error('x')", "errors"),
        ("fetch('http://127.0.0.1:9/x').catch(() => 0)", "requests"),
    ],
)
def test_planted_faults_are_found(pages: Pages, folder: Path, tmp_path: Path, plant: str, where: str) -> None:
    """A page that says something, asks for something, or throws is not taken for a good one."""
    text = re.sub(r"script-src &#39;[^ ;]*&#39;;", "script-src 'unsafe-inline';", (folder / "rich.html").read_text())
    text = text.replace("default-src &#39;none&#39;", "default-src *")
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace("</body>", f"<script>{plant}</script></body>"))
    page = pages.open(broken)
    noted = getattr(pages.seen[page], where)
    wait_until(page, lambda: len(noted) > (where == "requests"))


def test_a_page_without_names_is_not_for_everybody(pages: Pages, tmp_path: Path) -> None:
    """Nor is the finder of such faults blind."""
    (tmp_path / "nameless.html").write_text("<html lang=en><title>t</title><main><h1>t</h1><button></button></main>")
    assert axe_faults(pages.open(tmp_path / "nameless.html"))


def test_plan_that_has_not_run_has_a_page(pages: Pages, tmp_path: Path) -> None:
    """Its graph, without times."""
    plan = dagrun.Plan(goal="g", steps=[dagrun.Step(id="a", tool="t"), dagrun.Step(id="b", tool="t", depends_on=["a"])])
    dagrun.report(plan, tmp_path / "plan.html")
    page = ready(pages, tmp_path / "plan.html")

    assert page.locator("svg.dag a.box").count() == 2
    assert page.locator("#time").count() == 0


def test_damage_is_said_at_the_top(pages: Pages, tmp_path: Path) -> None:
    """In red, before anything else."""
    view = view_of(at_once(rich).past)
    (tmp_path / "damaged.html").write_bytes(make_report(view, style=ReportStyle(note="The record is damaged")))
    page = ready(pages, tmp_path / "damaged.html")

    expect(page.locator("main > *").first).to_have_text("The record is damaged")
