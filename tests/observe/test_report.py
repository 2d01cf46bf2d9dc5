"""Reports in all forms: equal bytes for equal runs, within their budgets, without secrets, and harmless as text."""

from __future__ import annotations

import gzip
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Plan, Problem, Step, tool
from dagrun.errors import ContractError
from dagrun.observe.report.report import FORMS, ReportStyle, form_of, make_report
from dagrun.observe.report.sections import open_questions
from dagrun.observe.view.document import plan_view, view_of
from dagrun.observe.view.steps import shortened
from view_runs import (
    EVIL,
    GUARDED,
    LEAKS,
    LEAKY,
    at_once,
    hostile,
    killed,
    large,
    leaky_tools,
    play,
    rich,
    shop_plan,
    shop_tools,
    slept,
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.rigs
def test_equal_runs_give_equal_bytes(form: str) -> None:
    """There is no clock and no chance in a report."""
    played = at_once(rich)
    first, second = (make_report(view_of(played.past), form) for _ in range(2))

    assert first == second
    assert make_report(view_of(played.result), form) == first


def test_run_json_gives_the_same_page() -> None:
    """It has full values, which are cut as those of a record are."""
    played = at_once(rich)
    kept = json.loads(json.dumps({"view": view_of(played.result, values="full")}))

    assert make_report(shortened(view_of(kept), "short")) == make_report(view_of(played.past))


def test_a_question_about_an_effect_says_what_its_answer_may_be() -> None:
    """As the command line does: nobody guesses what VALUE such a question wants."""
    asked = {"answered_at": None, "step": "pay", "id": "q1", "text": "Did it?", "why": "", "arguments": None}
    questions = [{**asked, "kind": kind} for kind in ("effect", "input", "approval")]

    page = str(open_questions({"run": {"id": "r1", "state": "waiting"}, "questions": questions}))
    assert re.findall(r"dagrun (?:answer|approve) r1 pay[A-Za-z_/ ]*", page) == [
        "dagrun answer r1 pay took_effect/did_not/unknown",
        "dagrun answer r1 pay VALUE",
        "dagrun answer r1 pay",
    ]


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_a_plan_that_has_not_run_has_not_gone_wrong(form: str) -> None:
    """What its check has found is no failure, and it comes from no record."""
    problems = [Problem("DR201", "steps[0].tool", {"step": "a", "tool": "'t'", "hint": ""})]
    problems += [Problem("DR911", "steps[0]", {"step": "a", "tool": "t"})]
    page = make_report(plan_view(Plan(steps=[Step(id="a", tool="t")]), problems), form).decode()
    seen = re.sub(r"<style>.*?</style>|<script.*?</script>|<[^>]*>", "", page, flags=re.DOTALL)

    assert "What the check found" in seen
    assert re.search(r"Advice: DR911|A plan that has not run|not run yet: a plan", seen)
    for word in ("went wrong", "Warning", "failed: DR201", "from record", "0 ms", "run ``"):
        assert word not in seen, word


@pytest.mark.parametrize("length", [3, 60, 300])
def test_the_heading_of_a_picture_fits_into_it(length: int) -> None:
    """It is in full where there is room, and its cut shows; the title of the picture has all of it."""
    goal = "Save all rows and look. " * (length // 24) + "Go!"
    drawn = make_report(plan_view(Plan(steps=[Step(id="a", tool="t")], goal=goal)), "svg").decode()
    heading, *_ = re.findall(r'<text [^>]*font-weight="bold"[^>]*>(.*?)</text>', drawn)
    (width,) = re.findall(r'<svg [^>]*? width="([\d.]+)"', drawn)

    assert len(heading) * 9.5 <= float(width) <= 640
    assert heading.endswith(("Go!", "…"))
    assert goal in drawn


@pytest.mark.parametrize(
    ("needs", "told"),
    [
        (["a", "b"], "1 edge that follows from others is not drawn."),
        (["a", "b", "z"], "2 edges that follow from others are not drawn."),
    ],
)
def test_the_graph_says_which_edges_are_missing(needs: list[str], told: str) -> None:
    steps = [Step(id="z", tool="t"), Step(id="a", tool="t", depends_on=["z"]), Step(id="b", tool="t", depends_on=["a"])]
    plan = Plan(steps=[*steps, Step(id="c", tool="t", depends_on=needs)])

    assert told in make_report(plan_view(plan)).decode()


@pytest.mark.rigs
def test_sizes_keep_to_the_budget() -> None:
    """22 steps in 80 KB, 2,000 in half a megabyte."""
    assert len(make_report(view_of(at_once(rich).past))) <= 80_000
    assert len(make_report(view_of(at_once(large).past))) <= 500_000


def test_ceilings_have_no_more_digits_than_anybody_reads() -> None:
    """Large ones as they are, small ones to four places."""
    view = view_of(at_once(rich).past)
    figures = (("max_seconds", 2.24984, 90.0), ("max_cost", 0.123456, 5.0), ("max_tokens", 1_234_567, 2_000_000))
    view["run"]["ceilings"] = [{"name": n, "used": used, "limit": most} for n, used, most in figures]

    page = make_report(view).decode()

    assert all(
        f"<li>{line}<" in page
        for line in ("seconds: 2.25 s of 1 min 30 s", "cost: 0.1235 of 5", "tokens: 1,234,567 of 2,000,000")
    )


def test_script_is_small_and_makes_texts_only() -> None:
    """Texts come from models: they never become markup."""
    folder = files("dagrun.observe.report")
    script = folder.joinpath("report.js").read_text("utf-8")

    page = make_report(view_of(at_once(rich).past)).decode()
    embedded = page.rpartition("<script>")[2].partition("</script>")[0]
    assert len(embedded.encode()) <= 21_900
    assert len(gzip.compress(embedded.encode(), mtime=0)) <= 7_800
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "srcdoc"):
        assert word not in script
    assert "url(" not in folder.joinpath("report.css").read_text("utf-8")


def test_drawing_of_an_interrupted_run_is_torn() -> None:
    """Its end is not known: the right edge of the bar is torn, and nothing else is."""
    shown = make_report(view_of(at_once(killed).past), "svg").decode()
    (torn,) = re.findall(r'<path class="bar run torn" d="M[^l]*(l[^H]*)H', shown)

    assert torn == "l-4 2.5l4 2.5l-4 2.5l4 2.5"
    assert "bookcase, call 1: 0.40 s, running: its end is not on record" in shown
    assert "torn" not in make_report(view_of(at_once(rich).past), "svg").decode()


def test_drawing_folds_what_was_idle() -> None:
    """Three hours in which nothing ran take 4 % of the axis, and say so."""
    shown = make_report(view_of(at_once(slept).past), "svg").decode()
    x, width = map(float, re.findall(r'<rect class="idle" x="([\d.]+)" y="66" width="([\d.]+)"', shown)[0])

    assert "⋯ 3 h 04 min ⋯" in shown
    assert (x - 190) / (1180 - 190 - 12) == pytest.approx(0.5 / 1.1 / 1.04, abs=0.01)
    assert width / (1180 - 190 - 12) == pytest.approx(0.04 / 1.04, abs=0.001)
    assert ">+0.4 s<" in shown


def test_ceilings_are_written_for_people() -> None:
    """Seconds as everywhere else, not with the digits of a clock."""

    async def agree(question: dagrun.Question) -> bool:
        await anyio.sleep(1.23456)
        return True

    limits = dagrun.Policy(max_seconds=90, max_cost=0.5)
    played = at_once(lambda: play(shop_plan("chair", goal="Order"), shop_tools(), policy=limits, approver=agree))
    shown = make_report(view_of(played.past), "html").decode()

    assert "seconds: 2.23 s of 1 min 30 s<" in shown
    assert "cost: 0 of 0.5<" in shown


@pytest.mark.parametrize("form", ["html", "svg"])
def test_hostile_texts_are_escaped(form: str) -> None:
    """Outside of the script of the page there is no element that was planted."""
    text = make_report(view_of(at_once(hostile).past), form).decode()

    assert "<script>canary" not in text
    assert "<img" not in text
    assert not re.search(r"<[^>]* on(load|error|mouseover)=", text)
    assert "\u202e" not in text
    assert "\x00" not in text


def test_hostile_markdown_is_text() -> None:
    """No picture that is fetched, no link, no tag, no mention."""
    text = make_report(view_of(at_once(hostile).past), "markdown").decode()

    assert "<script" not in text
    assert "<img" not in text
    assert not re.search(r"(?<!\\)\]\(", text)
    assert EVIL[0] not in text


@pytest.mark.parametrize("form", [form for form in FORMS if form != "png"])
def test_secrets_are_in_no_form(form: str) -> None:
    """A registered secret, a card number, and a field with the name of a secret."""
    played = at_once(lambda: play(Plan(steps=LEAKY), leaky_tools(), **GUARDED))

    text = make_report(view_of(played.result, values="full"), form).decode()
    assert [word for word in LEAKS if word in text] == []


def test_png_is_a_picture() -> None:
    """Twice as fine as a screen."""
    pytest.importorskip("resvg_py")
    assert make_report(view_of(at_once(rich).past), "png", ReportStyle(is_dark=True)).startswith(b"\x89PNG")


def test_results_records_and_plans_write_reports(tmp_path: Path) -> None:
    """As text, or into a file whose ending says the form."""
    played = at_once(rich)

    assert played.result.report() == played.past.report()
    assert played.result.report(tmp_path / "run.svg") == str(tmp_path / "run.svg")
    assert (tmp_path / "run.svg").read_text().startswith("<svg")
    assert "```mermaid" in played.result.report(format="markdown")
    plan = Plan(goal="g", steps=[Step(id="a", tool="nap", args={}), Step(id="b", tool="nap", depends_on=["a"])])

    @tool(effect="read")
    async def nap() -> None:
        """Sleep."""

    assert dagrun.check(plan, tools=[nap]).report().startswith("<!doctype html>")
    assert "not run yet" in dagrun.report(plan)


@pytest.mark.parametrize("wrong", [7, "run", {"a": 1}])
def test_what_is_no_run_has_no_report(wrong: Any) -> None:
    """And the error says what has."""
    with pytest.raises(ContractError):
        dagrun.report(wrong)


def test_form_of_a_file_is_that_of_its_ending() -> None:
    """Whatever the case."""
    names = ["a.html", "a.SVG", "a.json", "a.md", "a.txt"]

    assert [form_of(name) for name in names] == ["html", "svg", "json", "markdown", ""]
