"""Who changes plans in a simulation: a host that tries valid and spoilt patches, a planner that answers anything."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio

from dagrun import Add, Asked, Brief, Drop, Patch, Plan, Question, Replace, Rewire, Run, Step
from dagrun.errors import SpliceRefused
from random_cases import GRID
from splice_book import renamed
from splice_cases import Maker
from splice_faults import Spoiler, spoil_whole
from splice_model import change_of
from splice_rules import portrait
from watched import Watch, WatchedGraph

SPOILT: Final = 0.5  # of the patches of the host are tried with a fault in them first


def graph_of(run: Run) -> WatchedGraph:
    """The live graph of a run that is watched."""
    assert isinstance(run._graph, WatchedGraph)
    return run._graph


def is_ending(run: Run) -> bool:
    """Whether the run is over, or is being stopped."""
    return run.has_ended or run._scheduler.finish.is_closing


def try_patches(run: Run, seed: int, watch: Watch) -> None:
    """Make a valid patch; in half of the cases put one fault into it and see it refused; then have the valid one."""
    graph, rng = graph_of(run), random.Random(f"patch {seed} {len(graph_of(run).applied)}")
    if is_ending(run):
        _refused(run, Patch(edits=[Drop(id="s0")]), "run that ends", "DR417", watch)
        return
    run._record.backlog.finish()  # where few steps are settled in a turn: a check of the patch would have it done
    maker = Maker(graph, rng)
    patch = maker.make()
    if patch is None or change_of(graph, graph.book, patch, "host", None).faults:
        watch.counts["no patch" if patch is None else "discarded"] += 1
        return
    if rng.random() < SPOILT:
        found = Spoiler(maker, patch).spoil() if rng.random() < 0.8 else spoil_whole(maker, patch)
        position = len(graph.applied)
        if found is not None:
            _refused(run, *found, watch)
        if len(graph.applied) > position + 1 or is_ending(run):
            return  # an observer has changed the plan meanwhile, or stopped the run
    consequence = run.check(patch) if rng.random() < 0.2 else None
    try:
        done = _finish(run.splice(patch))
    except SpliceRefused as error:
        watch.broken.append(f"a valid patch was refused: {error}: {patch.model_dump_json(exclude_unset=True)}")
        return
    watch.counts["valid patches"] += 1
    watch.counts.update(f"valid {edit.op}" for edit in patch.edits)
    if consequence is not None and done != consequence:
        watch.broken.append(f"run.check said {consequence}, and run.splice did {done}")


async def splice_late(run: Run, seed: int, watch: Watch) -> None:
    """Make a patch, think it over while the plan may change, and hand it in: whether it still fits, the model says."""
    graph, rng = graph_of(run), random.Random(f"late patch {seed}")
    patch = Maker(graph, rng).make()
    if patch is None:
        return
    patch = patch.model_copy(update={"base": graph.revision})
    await anyio.sleep(rng.choice((0, 1, 1, 2)) * GRID)
    revision = graph.revision
    try:
        await run.splice(patch)
    except SpliceRefused:
        watch.counts["late patches refused"] += 1
    else:
        watch.counts["late patches" if revision == patch.base else "late patches on a changed plan"] += 1


def _refused(run: Run, patch: Patch, name: str, codes: str, watch: Watch) -> None:
    graph = graph_of(run)
    before, position = portrait(graph), len(graph.applied)
    told = f"{name}: {patch.model_dump_json(exclude_unset=True)[:1_000]}"
    try:
        _finish(run.splice(patch))
    except SpliceRefused as error:
        found = {problem.code for problem in error.problems}
        watch.counts[f"spoilt: {name}"] += 1
        if not found.intersection(codes.split()):
            watch.broken.append(f"a patch was refused for {found}, and not for {codes}: {told}")
    else:
        watch.broken.append(f"a spoilt patch was accepted: {told}")
    if len(graph.applied) - position <= 1 and portrait(graph) != before:  # an observer may have spliced meanwhile
        watch.broken.append(f"a refused patch has left a trace: {told}")


def _finish(call: Any) -> Any:
    """Run a coroutine that never waits, where nobody can."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a splice must not wait for anything")


class RandomApprover:
    """Somebody who is asked, thinks for a while, and says yes, no, or nothing.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._asked = 0

    async def __call__(self, question: Question) -> bool | None:
        """Answer *question*; what an effect has come to, nobody knows."""
        self._asked += 1
        rng = random.Random(f"approver {self._seed} {self._asked}")
        await anyio.sleep(rng.choice((0, 0, 1, 2, 5)) * GRID)
        return rng.choice((True, True, True, True, False, None)) if question.kind is Asked.APPROVAL else None


class RandomPlanner:
    """Thinks for a while, and answers in every way that there is: well, badly, late, or not at all.

    Args:
        seed: Decides everything.
        watch: Where it says what is wrong.

    Attributes:
        run: The run that asks it.
    """

    def __init__(self, seed: int, watch: Watch) -> None:
        self.run: Run | None = None
        self._seed = seed
        self._watch = watch
        self._thinking: set[str] = set()
        self._calls = 0

    def revise(self, brief: Brief) -> Any:
        """Answer a brief."""
        self._calls += 1
        rng = random.Random(f"planner {self._seed} {self._calls}")
        return self._stream(brief, rng) if rng.random() < 0.15 else self._revise(brief, rng)

    async def _stream(self, brief: Brief, rng: random.Random) -> AsyncIterator[Add | Drop | Replace | Rewire]:
        patch = self._patch(brief, rng)
        for edit in patch.edits if patch is not None else ():
            await anyio.sleep(rng.choice((0, 1)) * GRID)
            yield edit

    async def _revise(self, brief: Brief, rng: random.Random) -> Any:
        about = {trigger.step for trigger in brief.triggers}
        if not about.isdisjoint(self._thinking):
            self._watch.broken.append(f"the planner is asked twice at once about {about}")
        self._thinking |= about
        try:
            early = self._answer(brief, rng) if rng.random() < 0.6 else None
            await anyio.sleep(rng.choice((0, 1, 1, 2, 3)) * GRID)
            return self._answer(brief, rng) if early is None else early
        finally:
            self._thinking -= about

    def _answer(self, brief: Brief, rng: random.Random) -> Any:
        match rng.randrange(20):
            case 0:
                return None
            case 1:
                raise ValueError("no idea")
            case 2:
                return "do something else"
            case 3 | 4:
                return self._spoilt(brief, rng)
            case 5 | 6 | 7:
                return self._whole_plan(brief, rng)
            case _:
                return self._patch(brief, rng)

    def _maker(self, rng: random.Random) -> Maker:
        assert self.run is not None
        return Maker(graph_of(self.run), rng, "planner")

    def _patch(self, brief: Brief, rng: random.Random) -> Patch | None:
        return self._maker(rng).make([trigger.step for trigger in brief.triggers if trigger.step])

    def _spoilt(self, brief: Brief, rng: random.Random) -> Patch | None:
        maker = self._maker(rng)
        patch = maker.make()
        found = Spoiler(maker, patch).spoil() if patch is not None else None
        return patch if found is None else found[0]

    def _whole_plan(self, brief: Brief, rng: random.Random) -> Plan:
        """The plan as it would be after a patch, written out; what is replaced keeps its id, as people would write."""
        maker = self._maker(rng)
        maker.make([trigger.step for trigger in brief.triggers if trigger.step])
        old = {new: id_ for id_, new in maker.replaced.items() if rng.random() < 0.8}
        steps = [renamed(step, old) | {"id": old.get(id_, id_)} for id_, step in maker.plan.items()]
        for step in steps:
            if step["id"] in maker.replaced:
                step.pop("success", None)  # it speaks of the new id
        return Plan(steps=list(map(Step.model_validate, steps)), output=renamed({"args": maker.output}, old)["args"])
