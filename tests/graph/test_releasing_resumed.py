"""Runs that release outputs and go on from their records: what is read back is there for as long as it is needed."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Add, MemoryJournal, Patch, Plan, Policy, RunResult, Status, Step
from dagrun.api.retrying import TakenOver
from dagrun.errors import CannotResume, SpliceRefused
from dagrun.kernel.graph.fold import state_hash
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.value import RELEASED
from replans import fails, nap
from small_tools import ONCE, states, toolset

pytestmark = pytest.mark.anyio

RELEASE: Final = Policy(release_outputs=True)
RUN: Final = "run"
FROM_A: Final = b'["from a"]'


def echo(id_: str, value: Any, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="echo", args={"value": value}, depends_on=after, **fields)


async def begin(journal: MemoryJournal, steps: Sequence[Step], policy: Policy = RELEASE, **options: Any) -> RunResult:
    """Begin a run, and suspend it after a second, if it has not ended before."""
    plan = Plan(steps=steps, output=options.pop("output", None))
    facts = {"tools": toolset(), "policy": policy, "journal": journal, "run_id": RUN, **options}
    async with dagrun.start(plan, **facts) as run:
        await anyio.sleep(1)
        run.suspend()
        return await run.result()


HALF: Final = (echo("a", ["from a"]), echo("b", ["${a}"]), nap("slow", 5.0, "b"), echo("c", ["${b}"], "slow"))


async def test_a_run_goes_on_with_what_it_needs_and_lets_the_rest_go() -> None:
    """All values are in the record; what had been released is so again, what is to be read is there."""
    journal = MemoryJournal()
    before = await begin(journal, HALF)

    async with dagrun.resume(RUN, journal=journal, tools=toolset()) as run:
        at_once = {id_: node.value for id_, node in run._graph.nodes.items()}
        lines = list(run._assembly._setup.run_log.lines) if run._assembly._setup.run_log is not None else None
        result = await run.result()
        gc.collect()
        read = [outcome for outcome in gc.get_objects() if type(outcome) is Outcome and outcome.value == FROM_A]

    assert read == []  # of the records that were read back
    assert before.steps["a"].stored is RELEASED
    assert at_once["a"] is RELEASED
    assert at_once["b"] == b'[["from a"]]'
    assert lines == []
    assert result.output == [[["from a"]]]
    assert result.steps["b"].stored is RELEASED
    assert (await dagrun.replay(RUN, journal=journal)).hash == state_hash(run._assembly.parts.graph)


async def test_it_refuses_what_it_would_have_refused_before() -> None:
    """A run must not change its mind because its process was another one."""
    journal = MemoryJournal()
    await begin(journal, HALF)

    async with dagrun.resume(RUN, journal=journal, tools=toolset()) as run:
        with pytest.raises(SpliceRefused, match="DR423"):
            await run.splice(Patch(edits=[Add(step=echo("new", "${a}"))]))
        await run.result()


async def deed(of: Any = None) -> str:
    """Fail in a way that leaves open whether it has taken effect, the first time."""
    CALLS.append(of)
    if len(CALLS) == 1:
        raise ConnectionResetError("gone")
    return "done"


CALLS: list[Any] = []


async def test_a_call_in_doubt_has_its_arguments_when_it_is_made_again() -> None:
    """The run was over, and nobody needed them any more."""
    CALLS.clear()
    journal = MemoryJournal()
    tools = [*toolset(), make_tool(deed, effect="idempotent")]
    doubtful = Step(id="deed", tool="deed", args={"of": "${a}"}, retry=ONCE)
    steps = [echo("a", ["from a"]), doubtful, echo("last", ["${b}", "${deed}"]), echo("b", ["${a}"])]

    before = await begin(journal, steps, tools=tools)
    async with dagrun.resume(RUN, journal=journal, tools=tools) as run:
        result = await run.result()

    assert before.status is Status.UNKNOWN
    assert [before.steps[id_].stored for id_ in ("a", "b")] == [RELEASED, RELEASED]
    assert CALLS == [["from a"], ["from a"]]
    assert result.output == [[["from a"]], "done"]
    assert [result.steps[id_].stored for id_ in ("a", "b")] == [RELEASED, RELEASED]


async def test_what_no_record_has_is_made_again_from_what_was_released() -> None:
    """The step that only looks is called once more, and what it reads is in the record."""
    calls: list[Any] = []

    async def secret(of: Any) -> dict[str, str]:
        calls.append(of)
        return {"secret": "nobody's business"}

    tools = [*toolset(), make_tool(secret, effect="read")]
    hidden = Step(id="hidden", tool="secret", args={"of": "${a}"})
    steps = [echo("a", ["from a"]), hidden, nap("slow", 5.0, "hidden"), echo("last", "${hidden.secret}", "slow")]
    journal = MemoryJournal()

    before = await begin(journal, steps, Policy(release_outputs=True, unrecorded=("secret",)), tools=tools)
    async with dagrun.resume(RUN, journal=journal, tools=tools) as run:
        result = await run.result()

    assert before.steps["a"].stored is RELEASED
    assert calls == [["from a"], ["from a"]]
    assert result.output == "nobody's business"


async def test_another_policy_is_a_difference_and_both_ways_work() -> None:
    """With it, what went before may have patches that it would not have let pass."""
    for was, now in ((Policy(), RELEASE), (RELEASE, Policy())):
        journal = MemoryJournal()
        await begin(journal, HALF, was)

        with pytest.raises(CannotResume, match="release_outputs was"):
            async with dagrun.resume(RUN, journal=journal, tools=toolset(), policy=now):
                pass
        options: Any = {"tools": toolset(), "policy": now, "allow_differences": True}
        async with dagrun.resume(RUN, journal=journal, **options) as run:
            result = await run.result()

        assert result.output == [[["from a"]]]
        assert (result.steps["a"].stored is RELEASED) is now.release_outputs


async def test_a_patch_from_before_the_policy_holds() -> None:
    """It reads what would have been gone: it was spliced when nothing was."""
    journal = MemoryJournal()
    plan = Plan(steps=[*HALF, nap("other", 9.0)])
    async with dagrun.start(plan, tools=toolset(), journal=journal, run_id=RUN) as run:
        await anyio.sleep(1)
        await run.splice(Patch(edits=[Add(step=echo("new", "${a}", "other"))]))
        run.suspend()
        await run.result()

    options: Any = {"tools": toolset(), "policy": RELEASE, "allow_differences": True}
    async with dagrun.resume(RUN, journal=journal, **options) as run:
        result = await run.result()

    assert result.output == {"c": [[["from a"]]], "new": ["from a"]}
    assert result.steps["a"].stored is RELEASED


async def test_what_has_failed_is_done_again_with_what_was_released() -> None:
    """The new run takes everything over from the record, and releases it in its turn."""
    journal = MemoryJournal()
    steps = [echo("a", ["from a"]), echo("b", ["${a}"]), fails("bad", "b"), echo("c", ["${b}"], "bad")]
    before = await begin(journal, steps, output="${c}")
    good = make_tool(mends, name="fail", effect="read")
    tools = [tool for tool in toolset() if tool.name != "fail"]

    async with dagrun.retry(RUN, journal=journal, tools=[*tools, good], new_id="again") as run:
        result = await run.result()
        held = [taken.values for taken in gc.get_objects() if type(taken) is TakenOver]

    assert held == [{}]
    assert states(before)["bad"] == "failed"
    assert [before.steps[id_].stored for id_ in "ab"] == [RELEASED, RELEASED]
    assert result.output == [[["from a"]]]
    assert [result.steps[id_].stored for id_ in "ab"] == [RELEASED, RELEASED]
    assert (await dagrun.replay("again", journal=journal)).steps["b"].output == [["from a"]]


async def mends(message: str = "no") -> Any:
    """Do nothing."""
