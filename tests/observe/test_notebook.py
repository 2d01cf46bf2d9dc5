"""Notebooks: what objects show of themselves, a run that is shown until its end, and real kernels."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

import dagrun
from browsing import axe_faults, browsing
from dagrun import Plan, Policy, Step, tool
from dagrun.errors import ContractError
from dagrun.observe.report import live_cell
from dagrun.observe.report.cell import MAX_BYTES, bundle_of
from dagrun.observe.report.live_cell import MAX_DRAWN
from executed_notebook import executed, shown
from folders import ROOT
from small_tools import ONCE, scripted, toolset
from view_runs import (
    GUARDED,
    LEAKS,
    LEAKY,
    RICH,
    at_once,
    hostile,
    killed,
    large,
    leaky_tools,
    play,
    rich,
    rich_tools,
    waiting,
)

NAP: Final = Plan(goal="sleep", steps=[Step(id="a", tool="nap", args={"seconds": 5.0})])


class Screen:
    """Notes the frames that it is shown, and when."""

    is_updated = True

    def __init__(self, is_broken: bool = False) -> None:
        self.frames: list[tuple[float, dict[str, str]]] = []
        self.is_broken = is_broken

    def put(self, frame: dict[str, str]) -> None:
        self.frames.append((anyio.current_time(), frame))
        if self.is_broken:
            raise OSError("the socket of the kernel is gone")

    @property
    def last(self) -> str:
        return self.frames[-1][1]["text/html"]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A notebook."""
    found = Screen()
    monkeypatch.setattr(live_cell, "screen", lambda: found)
    return found


# What objects show ----------------------------------------------------------------------------------------------------


def test_objects_show_text_and_html() -> None:
    """The text is that of `repr`, for places that take no HTML; the HTML has the graph, and what needs a look."""
    played = at_once(rich)
    checked = dagrun.check(RICH, tools=rich_tools(), policy=Policy(max_running=3))
    expected: list[tuple[Any, tuple[str, ...]]] = [
        (RICH, ("not run yet", RICH.goal, ">clean-moody<", "12 steps")),
        (checked, ("not run yet", "max_running 3", "DR911", ">clean-moody<")),
        (played.result, ("succeeded", "this source was switched off", "replaced by orders-mirror", ">planner<")),
        (played.past, ("succeeded", "0.40 s for a person", "Answer", "audit")),
        (played.result.plan.diff(), ("1 added, 1 removed, 1 changed", "orders-mirror")),
    ]
    for source, words in expected:
        bundle = source._repr_mimebundle_(include=None, exclude=None)
        assert bundle.keys() == {"text/plain", "text/html"}
        assert bundle["text/plain"] == repr(source)
        assert [word for word in words if word not in bundle["text/html"]] == []


def test_runs_that_have_not_ended_say_how_they_go_on() -> None:
    """By the commands for that, with the arguments that are asked about."""
    cut_off, waits = (bundle_of(at_once(run).past)["text/html"] for run in (killed, waiting))

    assert "1 step was running. To go on: <code>dagrun resume killed</code>" in cut_off
    assert "<code>dagrun answer waits pay</code>" in waits
    assert "supplier@example.org" in waits
    assert "Then: <code>dagrun resume waits</code>" in waits


def test_plan_shows_the_problems_of_its_shape() -> None:
    """Its tools and inputs are not known, so nothing is said about them."""
    steps = [Step(id="a", tool="t", args={"x": "${input.y}"}), Step(id="b", tool="t", depends_on=["a", "zz"])]
    shown = bundle_of(Plan(steps=steps))["text/html"]

    assert "&#39;zz&#39;, which is not in the plan" in shown
    assert "known tool" not in shown
    assert "no such input" not in shown


def test_cells_load_nothing_and_run_nothing() -> None:
    """No script, no link, no place with a name that another cell may have, and styles for this cell alone."""
    shown = bundle_of(at_once(rich).result)["text/html"]
    rules = re.findall(r"[^{}]+(?={)", re.search("<style>(.*)</style>", shown)[1])  # type: ignore[index]

    for word in ("<script", "<a ", "href=", " src=", " id=", "url(", "@import"):
        assert word not in shown
    assert [rule for rule in rules if any(".dagrun-cell" not in part for part in rule.split(","))] == []


@pytest.mark.rigs
def test_cell_of_ten_thousand_steps_is_small() -> None:
    """A notebook keeps what it has shown."""
    bundle = bundle_of(at_once(lambda: large(10_000)).result)

    assert 50_000 < len(bundle["text/html"].encode()) <= MAX_BYTES
    assert len(bundle["text/plain"]) < 3_000


@pytest.mark.rigs
def test_cell_of_long_texts_is_small() -> None:
    """Whatever models write, in every place of a cell."""

    @tool(effect="read")
    async def fail(text: str) -> str:
        """Fail at length."""
        raise dagrun.ToolError("öä" * 5_000)

    steps = [
        Step(
            id=f"{n:03}" + "x" * 45, tool="fail", args={"text": "y" * 9_000}, on_failure="skip", description="z" * 5_000
        )
        for n in range(400)
    ]
    played = at_once(lambda: play(Plan(steps=steps, goal="g" * 9_000), [fail], run_id="long"))

    assert len(bundle_of(played.result)["text/html"].encode()) <= MAX_BYTES
    assert len(bundle_of(Plan(steps=steps))["text/html"].encode()) <= MAX_BYTES


def test_secrets_are_in_no_cell() -> None:
    """A registered secret and what the policy redacts: in arguments, outputs, failures, questions and the answer."""

    @tool(effect="effectful", needs_approval=True)
    async def pay(text: str) -> str:
        """Pay."""
        return text

    steps = (*LEAKY, Step(id="pay", tool="pay", args={"text": "${read.text}"}))
    waits = at_once(lambda: play(Plan(steps=steps), [*leaky_tools(), pay], **GUARDED))
    done = at_once(lambda: play(Plan(steps=LEAKY, output="read"), leaky_tools(), **GUARDED))

    assert "dagrun answer" in bundle_of(waits.past)["text/html"]
    assert "Answer" in bundle_of(done.result)["text/html"]
    for source in (waits.past, waits.result, done.past, done.result):
        shown = json.dumps(bundle_of(source))
        assert [word for word in LEAKS if word in shown] == []


@pytest.mark.browser
def test_hostile_texts_stay_texts_and_axe_is_content(tmp_path: Path) -> None:
    """Nothing that was planted runs, in light and in dark, and nothing is asked for."""
    played = at_once(hostile)
    cells = [bundle_of(one)["text/html"] for one in (played.result, played.past, at_once(rich).result)]
    page = tmp_path / "cells.html"
    head = "<!doctype html><html lang=en><meta charset=utf-8><title>t</title><link rel=icon href=data:,>"
    with browsing() as pages:
        for theme in ("true", "false"):
            dark = "--jp-layout-color0:#111;--jp-ui-font-color0:#fff;--jp-ui-font-color2:#aaa;--jp-layout-color2:#333"
            body = f'<body data-jp-theme-light={theme} style="{dark if theme == "false" else ""}"><main><h1>n</h1>'
            page.write_text(f"{head}{body}{''.join(cells)}</main>", encoding="utf-8")
            seen = pages.open(page, dark=theme == "false")
            seen.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
            assert seen.evaluate("window.canary") is None
            assert seen.locator(".dagrun-cell").count() == len(cells)
            assert pages.seen[seen].requests == [seen.url, "data:,"] or pages.seen[seen].requests == [seen.url]
            assert axe_faults(seen) == []


# A run until its end --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_shown_run_has_at_most_four_frames_a_second(screen: Screen) -> None:
    """And its last frame is the end, although the one before was a moment ago."""
    steps = [
        Step(id=f"s{n}", tool="nap", args={"seconds": 0.01}, depends_on=[f"s{n - 1}"] * (n > 0)) for n in range(200)
    ]
    began = anyio.current_time()
    result = await dagrun.run(Plan(steps=steps), tools=toolset(), show=True)
    times = [at - began for at, _ in screen.frames]

    assert 3 <= len(times) <= 10
    assert all(after - before >= 0.249 for before, after in pairwise(times[:-1]))
    assert times[-1] == pytest.approx(result.makespan)
    assert "✓ succeeded" in screen.last
    assert "▶ running" in screen.frames[0][1]["text/html"]


@pytest.mark.anyio
async def test_quiet_run_is_drawn_rarely(screen: Screen) -> None:
    """Its running bars grow: every second at first, and then with each sixtieth of the time that it has taken."""
    await dagrun.run(Plan(steps=[Step(id="a", tool="nap", args={"seconds": 36_000.0})]), tools=toolset(), show=True)

    assert 60 <= len(screen.frames) <= 600


@pytest.mark.anyio
async def test_show_takes_a_run_that_goes_on_and_one_that_has_ended(screen: Screen) -> None:
    """At once, although nothing happens; and the frame of the end stays."""
    async with dagrun.start(NAP, tools=toolset()) as run:
        await anyio.sleep(2)
        dagrun.show(run)
        await anyio.sleep(0.5)
        assert "2.00 s so far" in screen.frames[0][1]["text/html"]
    count = len(screen.frames)
    dagrun.show(run)

    assert "succeeded" in screen.frames[count - 1][1]["text/html"]
    assert len(screen.frames) == count + 1


@pytest.mark.anyio
async def test_frame_names_the_line_that_answers(screen: Screen) -> None:
    """With the exact arguments."""
    pay = scripted("pay", 1, effect="effectful", needs_approval=True)
    plan = Plan(steps=[Step(id="pay", tool="pay", args={})])
    async with dagrun.start(plan, tools=toolset(pay), attended=True, show=True) as run:
        await anyio.sleep(1)
        (question,) = run.pending
        assert f"await run.answer(&#39;{question.id}&#39;, True)" in screen.last
        await run.answer(question, True)
        result = await run.result()

    assert result.status == "succeeded"
    assert "await run.answer" not in screen.last


@pytest.mark.anyio
async def test_large_run_is_counted_and_drawn_at_its_end(screen: Screen) -> None:
    """A drawing of many steps would hold up the loop."""
    steps = [Step(id=f"s{n}", tool="nap", args={"seconds": 1.0}) for n in range(MAX_DRAWN + 1)]
    await dagrun.run(Plan(steps=steps), tools=toolset(), policy=Policy(max_running=500), show=True)

    assert all("<svg" not in frame["text/html"] for _, frame in screen.frames[:-1])
    assert "▶ running 500" in screen.frames[1][1]["text/html"]
    assert "and 488 more" in screen.frames[1][1]["text/html"]
    assert "<svg" in screen.last


@pytest.mark.anyio
async def test_display_that_breaks_hurts_no_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and given up."""
    broken = Screen(is_broken=True)
    monkeypatch.setattr(live_cell, "screen", lambda: broken)
    with caplog.at_level(logging.ERROR, "dagrun.observers"):
        result = await dagrun.run(NAP, tools=toolset(), show=True)

    assert result.status == "succeeded"
    assert len(broken.frames) == len([r for r in caplog.records if "no longer shown" in r.getMessage()]) == 1


@pytest.mark.anyio
async def test_run_that_is_left_is_shown_as_cancelled(screen: Screen) -> None:
    """Whatever ends it, the last frame says so."""

    async def leaves() -> None:
        async with dagrun.start(NAP, tools=toolset(), show=True):
            await anyio.sleep(1)
            raise RuntimeError("leave")

    with pytest.raises(RuntimeError, match="leave"):
        await leaves()
    assert "cancelled" in screen.last


@pytest.mark.real_time
@pytest.mark.anyio
async def test_run_is_shown_only_from_its_loop(screen: Screen) -> None:
    async with dagrun.start(NAP, tools=toolset()) as run:
        with pytest.raises(ContractError, match="a run is shown in its loop"):
            await anyio.to_thread.run_sync(dagrun.show, run)
        run.cancel()

    assert screen.frames == []


@pytest.mark.anyio
async def test_resumed_and_retried_runs_can_be_shown(screen: Screen) -> None:
    journal = dagrun.MemoryJournal()
    bad = scripted("bad", ValueError("no"), 1)
    steps = [Step(id="a", tool="nap", args={"seconds": 2.0}), Step(id="b", tool="bad", depends_on=["a"], retry=ONCE)]
    options: dict[str, Any] = {"tools": toolset(bad), "journal": journal}
    async with dagrun.start(Plan(steps=steps), **options, run_id="r") as run:
        await anyio.sleep(1)
        run.suspend()
        await run.result()
    assert screen.frames == []
    async with dagrun.resume("r", **options, show=True) as run:
        assert (await run.result()).status == "failed"
    assert "✗ failed" in screen.last
    async with dagrun.retry("r", **options, show=True) as run:
        await run.result()
    assert "✓ succeeded" in screen.last


# Outside of a notebook ------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_outside_of_a_notebook_the_text_comes_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr: stdout belongs to the program. It costs no alarm and no drawing."""
    await dagrun.run(NAP, tools=toolset(), run_id="r", show=True)
    dagrun.show(NAP)
    shown = capsys.readouterr()

    assert shown.out == ""
    assert shown.err.startswith("Run r succeeded: 1 succeeded\n  a  succeeded     5.000 s\n<Plan of 1 step")


@pytest.mark.parametrize("wrong", [7, "run", {"a": 1}])
def test_what_cannot_be_shown_is_refused(wrong: Any, screen: Screen) -> None:
    with pytest.raises(ContractError):
        dagrun.show(wrong)


@pytest.mark.real_time
@pytest.mark.costly
def test_ipython_is_never_imported() -> None:
    """Only looked for."""
    code = "import sys, dagrun; dagrun.show(dagrun.Plan(steps=[])); print('IPython' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ended.stdout == "False\n"
    assert "Plan of 0 steps" in ended.stderr


# Real kernels ---------------------------------------------------------------------------------------------------------

NOTEBOOKS: Final = {
    "watch_a_run": {1: "not run yet", 3: "max_attempts 10", 5: "✓ succeeded", 6: "30", 8: "doctype"},
    "watch_a_repair": {2: "replaced by orders-mirror", 4: "1 added, 1 removed, 1 changed"},
    "answer_in_a_notebook": {2: "await run.answer(", 3: "[40]", 5: "paid 40"},
}


@pytest.mark.real_time
@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.costly
def test_notebook_shows_what_it_says(name: str) -> None:
    """Each cell of the examples, in a kernel of its own, without a fault; they are kept without outputs."""
    path = ROOT / "docs" / "examples" / f"{name}.ipynb"
    assert [cell["outputs"] for cell in json.loads(path.read_text())["cells"] if cell.get("outputs")] == []
    notebook = executed(path)

    for place, word in NOTEBOOKS[name].items():
        assert word in shown(notebook, place)


def test_every_notebook_is_tested_and_on_the_page_of_examples() -> None:
    folder = ROOT / "docs" / "examples"
    index = (folder / "index.md").read_text(encoding="utf-8")

    assert {path.stem for path in folder.glob("*.ipynb")} == NOTEBOOKS.keys()
    assert set(re.findall(r"\((\w+)\.ipynb\)", index)) == NOTEBOOKS.keys()


STOPPED: Final = """
import anyio, dagrun
@dagrun.tool(effect="read")
async def nap(seconds: float) -> None:
    "Sleep."
    await anyio.sleep(seconds)
plan = dagrun.Plan(steps=[dagrun.Step(id="a", tool="nap", args={"seconds": 35.0})])
"""


@pytest.mark.real_time
@pytest.mark.parametrize("call", ["await dagrun.run", "dagrun.run_sync"])
@pytest.mark.costly
def test_interrupted_kernel_cancels_the_run_and_the_frame_says_so(call: str, tmp_path: Path) -> None:
    """The stop button of a notebook."""
    code = f"{STOPPED}{call}(plan, tools=[nap], show=True)"
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "c",
        "metadata": {},
        "source": code,
        "outputs": [],
        "execution_count": None,
    }
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    path = tmp_path / "stopped.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    notebook = executed(path, stop=True)

    assert "⊗ cancelled" in shown(notebook, 0, "display_data")
    assert notebook["cells"][0]["outputs"][-1]["output_type"] == "error"
