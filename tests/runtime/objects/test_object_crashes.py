"""Objects in memory and crashes: whatever is left of the record, what is needed is made again, and no effect twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import dagrun
from dagrun import MemoryJournal, Status
from dagrun.codec import events_of
from dagrun.events import RunEnded, RunReopened, RunSuspended
from objects import CANARY, Thing, Workshop, cut_off, texts_of

pytestmark = pytest.mark.anyio

NAMES = ["a", "b", "c"]


def plan_of(shop: Workshop) -> dagrun.Plan:
    """A list of objects, two for_each over it one after the other, an effect on one object, and an answer."""
    many = shop.make_all.step(names=NAMES)
    passed = shop.pass_on.each(many).step(thing=dagrun.item)
    sent = shop.send.each(passed).step(thing=dagrun.item)
    one = shop.pass_on_in_thread.step(thing=shop.make.step(name="one"))
    last = shop.send.options(id="last").step(thing=one)
    return dagrun.plan(output={"names": shop.names.step(things=passed), "sent": sent, "last": last, "one": one})


async def whole_run() -> list[bytes]:
    """Return the records of a run without a crash."""
    shop, journal = Workshop(), MemoryJournal()
    result = await dagrun.run(plan_of(shop), journal=journal, run_id="one")
    assert result.status is Status.SUCCEEDED
    return await texts_of(journal)


@pytest.mark.real_time
@pytest.mark.rigs
async def test_a_run_is_resumed_after_every_record() -> None:
    """The answer is that of a run without a crash; no element is sent twice, unless nobody knows of the first time."""
    texts = await whole_run()
    met: Counter[str] = Counter()

    for count in range(1, len(texts)):
        shop, journal = Workshop(), await cut_off(texts[:count])
        async with dagrun.resume("one", journal=journal, tools=shop.tools) as run:
            result = await run.result()
        records = await texts_of(journal)
        events = events_of("one", await journal.read("one"))
        assert isinstance(events[-1], RunEnded | RunSuspended)
        assert CANARY not in b"".join(records).decode()
        assert max(Counter(call for call in shop.calls if call.startswith("send")).values(), default=0) <= 1
        reopened = [event for event in events if isinstance(event, RunReopened)]
        assert all("rematerialised" in event.reason for event in reopened)
        met["rematerialised"] += len(reopened)
        if result.status is Status.WAITING:
            met["in doubt"] += 1  # it was being sent when the process ended, and nobody knows whether it was
            continue
        assert result.status is Status.SUCCEEDED, result.reason
        assert result.output["names"] == result.output["sent"] == NAMES
        assert result.output["last"] == result.output["one"].name == "one"
        met["succeeded"] += 1

    assert met["rematerialised"] >= 15
    assert met["succeeded"] >= 15
    assert met["in doubt"] >= 3


class Repairs:
    """Passes the object on in the place of a step that cannot read it."""

    async def revise(self, brief: dagrun.Brief) -> dagrun.Patch:
        """Write."""
        step = dagrun.Step(id="c", tool="pass_on", args={"thing": "${a}"})
        return dagrun.Patch(edits=[dagrun.Replace(id="b", step=step)], reason="another way")


@dagrun.tool(effect="pure")
async def refuse(thing: Thing) -> str:
    """Fail."""
    raise dagrun.ToolError("no")


@pytest.mark.rigs
async def test_a_run_is_resumed_after_every_record_of_a_patch_that_reads_an_object() -> None:
    """When it was applied, the object was there. A planner that is asked after the crash is told to make it again."""
    shop, journal = Workshop(), MemoryJournal()
    made = dagrun.Step(id="a", tool="make", args={"name": "x"})
    plan = dagrun.Plan(steps=[made, dagrun.Step(id="b", tool="refuse", args={"thing": "${a}"})])
    tools = [refuse, *shop.tools]
    await dagrun.run(plan, tools=tools, planner=Repairs(), journal=journal, run_id="one")
    texts = await texts_of(journal)
    met: Counter[Status] = Counter()

    for count in range(1, len(texts)):
        journal = await cut_off(texts[:count])
        past = (await dagrun.replay("one", journal=journal)).graph
        has_failed = any(attempt.outcome is not None for attempt in past.nodes["b"].attempts)
        async with dagrun.resume("one", journal=journal, tools=tools, planner=Repairs()) as run:
            result = await run.result()
        met[result.status] += 1
        if has_failed and "c" not in past.nodes:
            assert (
                "step c reads the output of a, which was released; add a step that computes it again" in result.reason
            )
        else:
            assert result.output.name == "x", count

    assert met == {Status.SUCCEEDED: 8, Status.FAILED: 5}


async def test_what_no_open_step_needs_is_not_made_once_more() -> None:
    """Only the objects that are still to be read are worth a call."""
    shop, journal = Workshop(), MemoryJournal()
    made = shop.make.step(name="read before the crash")
    other = shop.make.options(id="other").step(name="needed")
    plan = dagrun.plan(output=[shop.names.step(things=[made]), shop.send.step(thing=other)])
    policy = dagrun.Policy(approve=[dagrun.ApprovalRule(tool="send")])
    await dagrun.run(plan, journal=journal, run_id="one", policy=policy)
    shop.calls.clear()

    async def yes(question: dagrun.Question) -> dagrun.Answer:
        return dagrun.Answer("approve")

    async with dagrun.resume("one", journal=journal, tools=shop.tools, approver=yes) as run:
        result = await run.result()

    assert result.output == [["read before the crash"], "needed"]
    assert shop.calls == ["make needed", "send needed"]


CHILD = """
import os, signal, sys
import anyio
import dagrun
from dagrun import SQLiteJournal

class Thing:
    def __init__(self, name): self.name = name

@dagrun.tool(effect="pure")
async def make(name: str) -> dagrun.Object[Thing]:
    print("make", name, flush=True)
    return Thing(name)

@dagrun.tool(effect="pure")
async def name_of(thing: Thing) -> str:
    if sys.argv[2] == "start":
        os.kill(os.getpid(), signal.SIGKILL)
    return thing.name

async def main():
    made = make.step(name="a")
    plan = dagrun.plan(output=name_of.step(thing=made))
    journal = SQLiteJournal(sys.argv[1])
    if sys.argv[2] == "start":
        await dagrun.run(plan, journal=journal, run_id="one")
    else:
        async with dagrun.resume("one", journal=journal, tools=[make, name_of]) as run:
            print("answer", (await run.result()).output, flush=True)

anyio.run(main, backend=sys.argv[3])
"""


@pytest.mark.costly
@pytest.mark.real_time
def test_a_killed_process_leaves_no_object_and_the_next_one_makes_it_again(tmp_path: Path, anyio_backend: str) -> None:
    """The object was in the memory of a process that is no more."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)

    def child(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), str(tmp_path / "journal"), what, "asyncio"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ), check=False)

    killed = child("start")
    assert killed.returncode == -9, killed.stderr
    assert killed.stdout == "make a\n"
    resumed = child("resume")
    assert resumed.stdout == "make a\nanswer a\n", resumed.stderr
