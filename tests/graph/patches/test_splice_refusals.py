"""Patches that are refused: every fault has its code, its place and its sentence, and the graph stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from dagrun import Add, Drop, Event, Patch, Replace, Rewire, State, Step, Toolbox
from dagrun.errors import SpliceRefused
from dagrun.events import PatchRefused
from dagrun.kernel.model.outcome import Recovery
from dagrun.kernel.model.tool import make_tool
from played import Played, snapshot
from replans import nap, start, uses


async def load(path: str = "a.csv") -> dict[str, int]:
    return {"rows": 3}


async def total(rows: int) -> int:
    return rows


async def pay(amount: int = 1) -> list[int]:
    return [amount]


async def forbidden() -> None: ...


READS = [make_tool(function, effect="read") for function in (load, total, forbidden)]
TOOLS = Toolbox(*READS, make_tool(pay, effect="effectful"), allow=("load", "total", "pay"))


def _step(id_: str, tool: str = "load", **fields: Any) -> Step:
    return Step(id=id_, tool=tool, **fields)


@pytest.fixture
def played() -> Played:
    """A run in the middle, with a step in every state that matters, after one splice."""
    steps = [
        _step("done"),
        _step("runs", depends_on=["done"]),
        _step("waits", "total", args={"rows": "${runs.rows}"}),
        _step("last", depends_on=["waits"]),
        _step("pays", "pay"),
        _step("bad"),
        _step("blocked", depends_on=["bad"]),
        _step("skips", on_failure="skip"),
        _step("each", for_each=[1, 2]),
        _step("over", for_each=[1]),
        _step("gone"),
    ]
    played = Played(steps, TOOLS, output="${last.rows}", max_steps=30)
    played.succeed("done", value={"rows": 3})
    played.start("runs", "pays")
    played.fail("bad")
    played.fail("skips", Recovery.SKIP)
    played.expand("each", 1, 2)
    played.succeed("each[0]")
    played.start("each[1]")
    played.splice(Replace(id="gone", step=_step("came")))
    return played


# One fault: the edits, and what is said about them.
ONE: dict[str, tuple[list[Any], str]] = {
    "unknown id": ([Drop(id="wait")], "DR401 edits[0].id: 'wait' is not in the plan; did you mean waits?"),
    "unknown element": ([Drop(id="each[2]")], "DR401 edits[0].id: 'each[2]' is not in the plan; did you mean each[1]?"),
    "id that has left": ([Drop(id="gone")], "DR401 edits[0].id: 'gone' is not in the plan; did you mean done?"),
    "id of a finished step": (
        [Add(step=_step("done"))],
        "DR402 edits[0].step.id: the id done was used in this run before; an id is never used twice, so choose another",
    ),
    "id of a step that has left": (
        [Add(step=_step("gone"))],
        "DR402 edits[0].step.id: the id gone was used in this run before; an id is never used twice, so choose another",
    ),
    "id of the replaced step": (
        [Replace(id="waits", step=_step("waits"))],
        "DR402 edits[0].step.id: the id waits was used in this run before; an id is never used twice, "
        "so choose another",
    ),
    "two new steps of one id": (
        [Add(step=_step("new")), Add(step=_step("new"))],
        "DR402 edits[1].step.id: the id 'new' was used in this run before; an id is never used twice, "
        "so choose another",
    ),
    "id in other letters": (
        [Add(step=_step("Waits"))],
        "DR103 edits[0].step.id: the id Waits differs from waits only in upper and lower case",
    ),
    "id that is none": (
        [Add(step=_step("a b"))],
        "DR101 edits[0].step.id: 'a b' is not a step id: use 1 to 48 of the letters A-Z, a-z, digits, '_' and '-'",
    ),
    "reserved id": ([Add(step=_step("item"))], "DR110 edits[0].step.id: item is reserved: ${item…} stands for the "
                    "element in a step with for_each"),
    "drop of a finished step": (
        [Drop(id="done")],
        "DR403 edits[0].id: step done has succeeded, and a settled step cannot be changed",
    ),
    "replace of a finished step": (
        [Replace(id="done", step=_step("new"))],
        "DR403 edits[0].id: step done has succeeded, and a settled step cannot be changed",
    ),
    "rewire of a failed step": (
        [Rewire(id="bad", depends_on=[])],
        "DR403 edits[0].id: step bad has ended as failed, and a settled step cannot be changed",
    ),
    "drop of a finished element": (
        [Drop(id="each[0]")],
        "DR403 edits[0].id: step each[0] has succeeded, and a settled step cannot be changed",
    ),
    "rewire of a running step": (
        [Rewire(id="runs", args={"path": "b.csv"})],
        "DR404 edits[0].id: step runs has started, and keeps its definition; it can be dropped or replaced",
    ),
    "rewire of an element": (
        [Rewire(id="each[1]", depends_on=[])],
        "DR404 edits[0].id: step each[1] is an element of a for_each, and keeps its definition; it can be dropped or "
        "replaced",
    ),
    "rewire of a for_each that has begun": (
        [Rewire(id="each", depends_on=[])],
        "DR404 edits[0].id: step each has started, and keeps its definition; it can be dropped or replaced",
    ),
    "stop of an effect": (
        [Drop(id="pays")],
        "DR405 edits[0].cancel: step pays runs pay, whose effect cannot be undone; with cancel: true it is stopped "
        "anyway",
    ),
    "dependent left behind": (
        [Drop(id="waits")],
        "DR406 edits[0].id: step last still needs waits, which the patch drops; rewire or drop it too",
    ),
    "new step behind a failure": (
        [Add(step=_step("new", depends_on=["bad"]))],
        "DR407 edits[0].step: step new would wait for bad, which will have no output: it ended as failed",
    ),
    "value of a step that was skipped": (
        [Add(step=_step("new", args={"path": "name: ${skips}"}))],
        "DR407 edits[0].step: step new would wait for skips, which will have no output: it ended as failed",
    ),
    "rewired to a failure": (
        [Rewire(id="last", depends_on=["bad"])],
        "DR407 edits[0]: step last would wait for bad, which will have no output: it ended as failed",
    ),
    "two edits of one step": (
        [Rewire(id="waits", depends_on=["done"]), Drop(id="waits")],
        "DR410 edits[1].id: step waits is edited twice; combine the edits into one",
    ),
    "nothing": ([], "DR414 the patch changes nothing; give at least one edit, or another output"),
    "cycle": (
        [Rewire(id="waits", depends_on=["last"])],
        "DR106 edits: these steps wait for each other: last -> waits -> last",
    ),
    "cycle of new steps": (
        [Add(step=_step("p", depends_on=["q"])), Add(step=_step("q", depends_on=["p"]))],
        "DR106 edits: these steps wait for each other: p -> q -> p",
    ),
    "cycle through a new step": (
        [Add(step=_step("new", depends_on=["last"])), Rewire(id="waits", depends_on=["new"])],
        "DR106 edits: these steps wait for each other: new -> last -> waits -> new",
    ),
    "dependency that is not there": (
        [Add(step=_step("new", depends_on=["Runs"]))],
        "DR104 edits[0].step.depends_on[0]: step new depends on 'Runs', which is not in the plan; did you mean runs?",
    ),
    "dependency on a step that leaves": (
        [Replace(id="last", step=_step("new", depends_on=["last"]))],
        "DR104 edits[0].step.depends_on[0]: step new depends on 'last', which is not in the plan",
    ),
    "dependency on an element": (
        [Add(step=_step("new", depends_on=["each[1]"]))],
        "DR104 edits[0].step.depends_on[0]: step new depends on 'each[1]', which is not in the plan; "
        "did you mean each?",
    ),
    "dependency on itself": (
        [Add(step=_step("new", depends_on=["new"]))],
        "DR105 edits[0].step.depends_on[0]: step new depends on itself",
    ),
    "reference to nothing": (
        [Rewire(id="last", args={"path": "${dome.name}"})],
        "DR302 edits[0].args.path: step last refers to ${dome.name}, which is not in the plan; did you mean done?",
    ),
    "part that the substitute does not give": (
        [Replace(id="runs", step=_step("new", "pay"))],
        "DR303 edits[0] -> waits.args.rows: step waits refers to ${new.rows}, but the output of pay has no rows",
    ),
    "unknown tool": (
        [Add(step=_step("new", "laod"))],
        "DR201 edits[0].step.tool: step new calls 'laod', which is not a known tool; did you mean load?",
    ),
    "foreign tool": (
        [Add(step=_step("new", "forbidden"))],
        "DR202 edits[0].step.tool: step new calls forbidden, which this run does not allow",
    ),
    "argument left out": (
        [Add(step=_step("new", "total"))],
        "DR203 edits[0].step.args: step new leaves out rows, which total requires (a whole number)",
    ),
    "argument of too much": (
        [Rewire(id="last", args={"paths": 1})],
        "DR204 edits[0].args.paths: step last passes paths, which load does not take; did you mean path?",
    ),
    "argument of a wrong type": (
        [Rewire(id="waits", args={"rows": "three"})],
        "DR205 edits[0].args.rows: step waits passes rows to total: it should be a valid integer, got a text of 5 "
        "characters",
    ),
    "element that would have elements": (
        [Replace(id="each[1]", step=_step("new", for_each=[1]))],
        "DR112 edits[0].step.for_each: step new: an element of a for_each cannot have one itself",
    ),
    "element outside of a for_each": (
        [Add(step=_step("new", args={"path": "${item}"}))],
        "DR307 edits[0].step.args.path: step new refers to ${item}, which exists only in args and when of a step with "
        "for_each",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_one_fault_is_named_once(played: Played, name: str) -> None:
    """With its place in the patch, and nothing else besides."""
    edits, sentence = ONE[name]

    assert played.refusal(*edits) == [sentence]


WHOLE: dict[str, tuple[dict[str, Any], str]] = {
    "a revision to come": (
        {"edits": [Add(step=_step("new"))], "base": 2},
        "DR415 base: the patch was made from revision 2, and the plan is at revision 1",
    ),
    "the output dropped": (
        {"edits": [Drop(id="last")]},
        "DR416 edits[0].id: the plan's output refers to last, which the patch drops; give the patch an output of its "
        "own",
    ),
    "an output of nothing": (
        {"edits": [], "output": "${lost}"},
        "DR311 output: the plan's output refers to ${lost}, which is not in the plan; did you mean last?",
    ),
    "an output that leaves": (
        {"edits": [Drop(id="last")], "output": {"all": ["${last}"]}},
        "DR311 output.all[0]: the plan's output refers to ${last}, which is not in the plan",
    ),
    "a part that the substitute of the output does not give": (
        {"edits": [Replace(id="last", step=_step("new", "pay"))]},
        "DR312 output: the plan's output refers to ${new.rows}, but the output of pay has no rows",
    ),
    "too many steps": (
        {"edits": [Add(step=_step(f"n{number}")) for number in range(17)]},
        "DR413 edits: the run would have 31 steps, the ceiling is 30",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_faults_of_the_whole_patch(played: Played, name: str) -> None:
    fields, sentence = WHOLE[name]

    assert played.refusal(*fields.pop("edits"), **fields) == [sentence]


def test_every_fault_is_named_in_the_order_of_the_edits(played: Played) -> None:
    """A planner that mends one at a time would need a call for each."""
    told = played.refusal(
        Add(step=_step("done", "forbidden", depends_on=["nobody"])),
        Rewire(id="last", args={"path": 5, "more": 1}, depends_on=["bad"]),
        Drop(id="pays"),
        Replace(id="runs", step=_step("new", "pay", args={"amount": "much"})),
        Drop(id="lost"),
        Rewire(id="done", depends_on=[]),
        Add(step=_step("p", "unheard", depends_on=["q"])),
        Add(step=_step("q", depends_on=["p"])),
        output="${nobody}",
    )

    assert [line.partition(": ")[0] for line in told] == [
        "DR106 edits",
        "DR402 edits[0].step.id",
        "DR202 edits[0].step.tool",
        "DR104 edits[0].step.depends_on[0]",
        "DR204 edits[1].args.more",
        "DR205 edits[1].args.path",
        "DR407 edits[1]",
        "DR405 edits[2].cancel",
        "DR205 edits[3].step.args.amount",
        "DR303 edits[3] -> waits.args.rows",
        "DR401 edits[4].id",
        "DR403 edits[5].id",
        "DR201 edits[6].step.tool",
        "DR311 output",
    ]


@pytest.mark.rigs
def test_a_hundred_thousand_edits_are_one_problem(played: Played) -> None:
    """Nobody looks at them one by one."""
    edits = [Drop(id=f"x{number}") for number in range(100_000)]

    assert played.refusal(*edits) == ["DR409 edits: the patch has 100000 edits, the ceiling is 1000"]


def test_a_run_that_has_ended_takes_no_patch(played: Played) -> None:
    played.finish()

    assert played.refusal(Add(step=_step("new"))) == ["DR417 the run has ended, or is being stopped"]


def test_an_element_of_a_for_each_that_has_ended_is_as_fixed_as_its_list(played: Played) -> None:
    played.expand("over", 1)
    played.fail("over[0]", Recovery.SKIP)
    played["over"].state = State.SUCCEEDED

    assert played.refusal(Drop(id="over[0]")) == [
        "DR403 edits[0].id: step over has succeeded, and a settled step cannot be changed"
    ]


def test_what_is_no_json_is_refused_and_not_shown(played: Played) -> None:
    """What the host puts in there can be anything at all, and as deep as it likes."""
    deep: list[Any] = []
    for _ in range(2_000):
        deep = [deep]

    for value, code in ((object(), "DR012"), (float("nan"), "DR008"), ("\ud800", "DR013"), (deep, "DR006")):
        for edit in (Add(step=_step("new", args={"path": value})), Rewire(id="last", args={"path": value})):
            [told] = played.refusal(edit)
            assert told.startswith(code), told


@pytest.mark.anyio
async def test_a_refused_splice_raises_and_leaves_no_trace() -> None:
    """But for the event that says so; every problem is in the error."""
    seen: list[Event] = []

    async with start([nap("a", 2.0), uses("b", "a")], None, on_event=seen.append) as run:
        before = snapshot(run._graph)
        with pytest.raises(SpliceRefused) as caught:
            await run.splice(Patch(edits=[Drop(id="a"), Drop(id="c")]))
        with pytest.raises(SpliceRefused):
            run.check(Patch(edits=[Drop(id="a")]))
        assert isinstance(run._graph.rare.pop(), PatchRefused)
        assert snapshot(run._graph) == before
        result = await run.result()

    assert [problem.code for problem in caught.value.problems] == ["DR406", "DR401"]
    [refused] = [event for event in seen if isinstance(event, PatchRefused)]
    assert (refused.origin, refused.problems) == ("host", caught.value.problems)
    assert (result.output, run.plan.revision) == ("a", 0)


@pytest.mark.anyio
async def test_a_splice_comes_too_late_for_a_run_that_has_ended() -> None:
    async with start([nap("a", 1.0)], None) as run:
        await run.result()
        with pytest.raises(SpliceRefused, match="DR417 the run has ended"):
            await run.splice(Patch(edits=[Add(step=nap("b", 1.0))]))
