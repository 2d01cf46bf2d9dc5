"""Runs that are recorded in memory, and their records cut or shifted in time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import dagrun
from dagrun import MemoryJournal, Plan, Policy, RunResult, Step
from dagrun.evaluate.metrics.metrics import measured_run
from dagrun.kernel.model.journal import Line
from dagrun.observe.run_summary import RunSummary
from small_tools import toolset

NAMES = ("planner", "approver", "critics", "durations", "labels", "inputs", "goal")


class Recorded:
    """A journal in memory, and the short way to record a run in it."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()

    async def run(self, run_id: str, *steps: Step, tools: Sequence[Any] = (), **options: Any) -> RunResult:
        """Carry out *steps*, or a goal; what is no option of `dagrun.run` belongs to the policy."""
        known = {name: options.pop(name) for name in NAMES if name in options}
        plan = None if "goal" in known else Plan(steps=steps)
        return await dagrun.run(
            plan, tools=toolset(*tools), policy=Policy(**options), journal=self.journal, run_id=run_id, **known
        )

    async def lines(self, run_id: str) -> list[Line]:
        """The record of a run."""
        return await self.journal.read(run_id)

    async def figures(self, run_id: str) -> RunSummary:
        """The figures of a run."""
        return measured_run(run_id, await self.lines(run_id))


def cut_after(lines: Sequence[Line], event: str) -> list[Line]:
    """The record up to the first event of a kind: what is left if the process is killed there."""
    kinds = [json.loads(line.text)["event"] for line in lines]
    return list(lines[: kinds.index(event) + 1])


def changed(lines: Sequence[Line], event: str, **fields: Any) -> list[Line]:
    """The record with other fields in each event of a kind."""
    made = []
    for line in lines:
        facts = json.loads(line.text)
        text = json.dumps(facts | fields, separators=(",", ":")).encode() if facts["event"] == event else line.text
        made.append(Line(line.seq, text, line.digest))
    return made


def lines_of(texts: Sequence[bytes]) -> list[Line]:
    """Return records as the lines of a journal, without digests."""
    return [Line(number, text, "") for number, text in enumerate(texts, 1)]
