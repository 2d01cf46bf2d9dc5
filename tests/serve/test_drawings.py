"""Drawings, reports and files on the page: what they show, what they are made of, and how large they may be (S14)."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import anyio
import pytest

import dagrun
from dagrun import MemoryJournal, Plan, Policy, Step, ToolContext, tool
from dagrun.observe.picture.condense import DEFAULT_BOXES
from dagrun.observe.picture.graph_svg import MOST_EDGES, draw_graph
from dagrun.observe.state_styles import COLOURS, DARK_COLOURS, RUNS, STATES
from dagrun.serve import drawings, feeds
from dagrun.serve.files import FOLDER, looks_script, looks_sheet
from page_client import RUN, Client, page_of
from view_runs import RICH, Mirrors, rich_tools

pytestmark = pytest.mark.anyio
SVG = "{http://www.w3.org/2000/svg}"


async def nobody(_: object) -> None:
    """Answer nothing."""
    await anyio.sleep_forever()


async def agree(_: object) -> bool:
    """Agree to everything."""
    return True


def boxes(svg: bytes) -> dict[str, dict[str, str]]:
    """Return the attributes of each box, by the name of its step."""
    found = (box.attrib for box in ElementTree.fromstring(svg).iter(f"{SVG}a"))
    return {box["href"].removeprefix("#step-"): dict(box) for box in found}


# The graph -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_inside", [True, False])
async def test_the_graph_follows_the_plan(is_inside: bool) -> None:
    """Also that of a run on record; the critical path is outlined when the run is over."""
    journal = MemoryJournal()

    async def approve(_: object) -> bool:
        await anyio.sleep(0.4)
        return True

    options: dict[str, Any] = {"planner": Mirrors(), "approver": approve, "policy": Policy(max_running=3)}
    async with dagrun.start(RICH, tools=rich_tools(), journal=journal, run_id=RUN, **options) as run:
        client = Client(page_of(journal, *([run] if is_inside else [])))
        await anyio.sleep(0.2)
        first = await client.get(f"/api/runs/{RUN}/graph.svg")
        assert first.headers["content-type"] == "image/svg+xml"
        assert boxes(first.content).keys() == {step.id for step in RICH.steps}
        assert not any("hot" in box["class"].split() for box in boxes(first.content).values())
        await run.result()
        await anyio.sleep(2)
        last = boxes((await client.get(f"/api/runs/{RUN}/graph.svg")).content)
    assert last.keys() == {step.id for step in RICH.steps} | {"orders-mirror"}
    assert (last["orders"]["data-gone"], last["orders-mirror"]["data-rev"]) == ("1", "1")
    assert {id_ for id_, box in last.items() if "hot" in box["class"].split()} >= {"big", "scores", "pay", "check"}


async def test_a_drawing_is_made_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    """States are painted by the page: so steps that start and end cost the server no drawing."""
    drawn: list[int] = []
    draw = drawings.graph_svg

    def counted(view: Any) -> bytes:
        drawn.append(len(view["steps"]))
        return draw(view)

    monkeypatch.setattr("dagrun.serve.feeds.graph_svg", counted)
    steps = [Step(id=f"s{n}", tool="wait", depends_on=[f"s{n - 1}"] if n else []) for n in range(5)]
    # No times: a virtual clock runs on while a thread draws.
    gates = [anyio.Event() for _ in steps]

    @tool(effect="pure")
    async def wait(context: ToolContext) -> None:
        """Wait."""
        await gates[int(context.step[1:])].wait()

    async with dagrun.start(Plan(steps=steps), tools=[wait], run_id=RUN) as run:
        client = Client(page_of(None, run))
        for gate in gates:
            await client.get(f"/api/runs/{RUN}/graph.svg")
            assert drawn == [5]
            gate.set()
            await anyio.lowlevel.checkpoint()
        await run.result()
        await client.get(f"/api/runs/{RUN}/graph.svg")
    assert drawn == [5, 5]  # once more, with the critical path


async def test_a_change_of_the_plan_is_drawn_before_it_is_agreed_to() -> None:
    """L4: what goes is dashed, what comes is marked, and the rest is where it was."""
    options: dict[str, Any] = {"planner": Mirrors(), "approver": nobody}
    policy = Policy(approve_patches="always")
    async with dagrun.start(RICH, tools=rich_tools(), run_id=RUN, policy=policy, **options) as run:
        while not any(question.kind == "patch" for question in run.pending):
            await anyio.sleep(0.1)
        client = Client(page_of(None, run))
        question = next(question for question in run.pending if question.kind == "patch")
        url = f"/api/runs/{RUN}/questions/{question.id}"
        before, after = [boxes((await client.get(f"{url}/{side}.svg")).content) for side in ("before", "after")]
        assert (await client.get(f"{url}/beside.svg")).status_code == 404
        assert (await client.get(f"/api/runs/{RUN}/questions/unknown/after.svg")).status_code == 404
        others = [other for other in run.pending if other.kind != "patch"]
        for other in others:
            assert (await client.get(f"/api/runs/{RUN}/questions/{other.id}/after.svg")).status_code == 404
        run.cancel()
    names = {step.id for step in RICH.steps}
    assert before.keys() == names
    assert after.keys() == (names - {"orders"}) | {"orders-mirror"}
    assert {id_ for id_, box in before.items() if "data-gone" in box} == {"orders", "clean-orders"}
    assert {id_ for id_, box in after.items() if "data-rev" in box} == {"orders-mirror", "clean-orders"}


# S14: nothing that stands in a record can hang a server ---------------------------------------------------------------


def view_of_shape(count: int, edges: list[tuple[int, int]]) -> dict[str, Any]:
    """Return what a drawing needs of a run of one tool for each step."""
    needs: dict[int, list[int]] = {}
    for before, after in edges:
        needs.setdefault(after, []).append(before)
    steps = [
        {
            **dict.fromkeys(("parent", "children", "gone", "substitute", "started", "ended")),
            "n": n,
            "id": f"s{n}",
            "tool": f"t{n}",
            "state": "ready",
            "needs": needs.get(n, []),
            "revision": 0,
            "on_path": False,
        }
        for n in range(count)
    ]
    return {"steps": steps, "path": []}


def layers(count: int, width: int) -> list[tuple[int, int]]:
    """Return all edges between neighbouring layers."""
    return [
        (layer * width + a, (layer + 1) * width + b)
        for layer in range(count - 1)
        for a in range(width)
        for b in range(width)
    ]


@pytest.mark.parametrize(
    ("count", "edges"),
    [
        (300, layers(2, 150)),
        (300, layers(3, 100)),
        (240, [(a, b) for a in range(240) for b in range(a + 1, 240)]),
        (20_000, [(n, n + 1) for n in range(19_999)]),
        (20_000, [(0, n) for n in range(1, 20_000)]),
        (20_000, []),
        (2_000, layers(20, 100)),
        (400, [(n, m) for n in range(400) for m in range(n + 1, 400) if n * m % 7 == 3]),
    ],
    ids=["two layers", "three layers", "dense", "chain", "fan", "loose", "many layers", "strange"],
)
def test_no_graph_is_too_large_to_be_drawn(count: int, edges: list[tuple[int, int]]) -> None:
    """Boxes and edges are bounded, whatever there is, and so are the bytes; `lay_out` is bounded by those two."""
    picture = draw_graph(view_of_shape(count, edges))
    assert picture.markup.count("<a ") <= DEFAULT_BOXES
    assert picture.markup.count("<path ") <= MOST_EDGES
    assert len(picture.markup) < 1_500_000


@pytest.mark.parametrize(("limit", "what"), [("MOST_STEPS", "steps"), ("MOST_REVISIONS", "changes of the plan")])
async def test_a_run_that_is_too_large_is_refused_with_a_sentence(
    limit: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every route that would look at all of it; the list still has it."""
    journal = MemoryJournal()
    options: dict[str, Any] = {"planner": Mirrors(), "approver": agree, "journal": journal}
    await dagrun.run(RICH, tools=rich_tools(), run_id=RUN, **options)
    client = Client(page_of(journal))
    cursor = (await client.get(f"/api/runs/{RUN}")).json()["cursor"]
    monkeypatch.setattr(feeds, limit, 0)
    for path in ("", f"/changes?after={cursor}", "/graph.svg", "/report.html"):
        answer = await client.get(f"/api/runs/{RUN}{path}")
        assert (path, answer.status_code) == (path, 413)
        assert what in answer.json()["error"]
    async with client.stream() as events:
        name, _, data = await events.next()
        assert (name, what in data["error"]) == ("fault", True)
    assert [run["run_id"] for run in (await client.get("/api/runs")).json()["runs"]] == [RUN]


async def test_a_view_of_too_many_bytes_and_a_record_that_is_too_long_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = MemoryJournal()
    plan = Plan(goal="x" * 5_000, steps=[Step(id="a", tool="quick")])

    @tool(effect="pure")
    async def quick() -> int:
        """Return at once."""
        return 1

    await dagrun.run(plan, tools=[quick], run_id=RUN, journal=journal)
    with monkeypatch.context() as patch:
        patch.setattr(feeds, "MOST_BYTES", 5_000)
        assert (await Client(page_of(journal)).get(f"/api/runs/{RUN}")).status_code == 413
    monkeypatch.setattr(feeds, "MOST_RECORDS", 2)
    answer = await Client(page_of(journal)).get(f"/api/runs/{RUN}/changes")
    assert (answer.status_code, "records" in answer.json()["error"]) == (413, True)


@pytest.mark.rigs
@pytest.mark.real_time  # a virtual clock runs on while a thread works
async def test_the_view_of_a_large_run_on_record_is_made_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is the same as without one, also as the beginning of a stream."""
    journal = MemoryJournal()
    options: dict[str, Any] = {"planner": Mirrors(), "approver": agree, "journal": journal}
    await dagrun.run(RICH, tools=rich_tools(), run_id=RUN, **options)
    small = (await Client(page_of(journal)).get(f"/api/runs/{RUN}")).json()
    monkeypatch.setattr(feeds, "IN_A_THREAD", 1)
    client = Client(page_of(journal))
    large = (await client.get(f"/api/runs/{RUN}")).json()
    assert {**large, "cursor": ""} == {**small, "cursor": ""}
    async with client.stream() as events:
        name, cursor, data = await events.next()
        assert (name, cursor, data) == ("snapshot", large["cursor"], large)


# Reports and files ---------------------------------------------------------------------------------------------------


@tool(effect="read")
async def chart(context: ToolContext, text: str) -> dict[str, Any]:
    """Save a file, and return it in the middle of other data."""
    saved = context.artifacts.save(text, media_type="text/html", name="../evil\r\n.html")
    return {"files": [saved.model_dump()], "note": "one file"}


async def test_a_report_is_a_download() -> None:
    journal = MemoryJournal()
    await dagrun.run(
        Plan(steps=[Step(id="a", tool="chart", args={"text": "x"})]), tools=[chart], run_id=RUN, journal=journal
    )
    answer = await Client(page_of(journal)).get(f"/api/runs/{RUN}/report.html")
    assert answer.headers["content-disposition"] == f'attachment; filename="{RUN}.html"'
    assert answer.text.startswith("<!doctype html>")
    assert 'id="view"' in answer.text


async def test_files_are_downloads_and_only_those_that_the_run_names() -> None:
    """S9: by their hash, which an output has; no path, and no name of a file that merely lies there."""
    page = "<script>canary=1</script>"
    plan = Plan(steps=[Step(id="a", tool="chart", args={"text": page})])
    async with dagrun.start(plan, tools=[chart], run_id=RUN) as run:
        await run.result()
        client = Client(page_of(None, run))
        step = (await client.get(f"/api/runs/{RUN}/steps/0")).json()
        (file,) = step["artifacts"]
        assert (file["media"], file["bytes"]) == ("text/html", len(page))
        answer = await client.get(f"/api/runs/{RUN}/artifacts/{file['sha256']}")
        assert (answer.status_code, answer.text) == (200, page)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        other = run.artifacts.save("lies there, and no output names it")
        (run.artifacts.folder / "plain").write_text("x")
        for name in (other.sha256, "plain", "..%2Fplain", "0" * 64, file["sha256"][:12]):
            assert (await client.get(f"/api/runs/{RUN}/artifacts/{name}")).status_code == 404


async def test_files_of_a_run_with_personal_data_stay_where_they_are() -> None:
    """S11: nothing can be taken out of them."""
    plan = Plan(steps=[Step(id="a", tool="chart", args={"text": "ann@example.org"})])
    async with dagrun.start(plan, tools=[chart], run_id=RUN, policy=Policy(redact=["email"])) as run:
        await run.result()
        client = Client(page_of(None, run))
        (file,) = (await client.get(f"/api/runs/{RUN}/steps/0")).json()["artifacts"]
        answer = await client.get(f"/api/runs/{RUN}/artifacts/{file['sha256']}")
        assert (answer.status_code, "personal data" in answer.text) == (403, True)


# One source of looks -------------------------------------------------------------------------------------------------


async def test_states_look_alike_on_the_page_and_everywhere_else() -> None:
    """The page has no table of its own: symbols, words and colours are written from `dagrun.observe.state_styles`."""
    client = Client(page_of(MemoryJournal()))
    script, sheet = [(await client.get(f"/static/looks.{kind}")).text for kind in ("js", "css")]
    assert (script, sheet) == (looks_script(), looks_sheet())
    for name, look in {**STATES, **RUNS}.items():
        assert re.search(rf'"{name}": \["{re.escape(look.symbol)}", "{look.word}", "{look.kind}"\]', script), name
    for kind, (line, area) in [*COLOURS.items(), *DARK_COLOURS.items()]:
        assert f"--{kind}:{line};--{kind}-fill:{area};" in sheet
    own = "".join(path.read_text() for path in FOLDER.iterdir())
    assert not any(look.symbol in own for look in STATES.values() if look.symbol not in "·?‖▶✓")
    assert "#156d2d" not in own
