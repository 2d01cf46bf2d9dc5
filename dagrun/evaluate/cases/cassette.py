"""`Cassette`: the world of a recorded run, in which the run can be carried out again without calling anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from dagrun.api.checking import toolbox_of
from dagrun.api.engine import Engine
from dagrun.api.running import run
from dagrun.checks.tool_contracts import recorded_toolbox
from dagrun.evaluate.cases.case_file import Case
from dagrun.evaluate.cases.host_deeds import run_with_host
from dagrun.evaluate.cases.planner_replies import PlayedPlanner
from dagrun.evaluate.cases.recorded_case import playable_events, recorded_case
from dagrun.evaluate.cases.stand_in_world import CaseWorld, StandInCall, scripts_of
from dagrun.evaluate.cases.trial import Means, letters_of
from dagrun.model.event import Event, RunResumed, RunStarted
from dagrun.model.journal import Journal
from dagrun.model.plan import Plan
from dagrun.model.planner import Planner
from dagrun.model.policy import Policy
from dagrun.model.redaction.redactor import Hook
from dagrun.model.toolbox import AnyTool, Toolbox
from dagrun.model.value import encode
from dagrun.runtime.result import RunResult


class Cassette:
    """Stand-ins for everything that a recorded run has heard from: tools, planner, critics and people.

    A call is found by its tool and its arguments, then by its step and its attempt. One that is not on the cassette
    fails, and the failure shows the nearest one that is. Calls take as long as on record, so use a virtual clock
    (`dagrun.testing.run_virtual`). A cassette is for one run.

    Args:
        case: The run as a golden task.
        tools: The tools, whose contracts hold. None of them is called.

    Attributes:
        case: The run as a golden task; it expects what came of the run.

    Examples:
        What yesterday's run would have come to with today's limits::

            cassette = await dagrun.Cassette.from_journal("20261125-0915-ab12", journal=journal, tools=TOOLS)
            result = await cassette.run(policy=dagrun.Policy(last_resort="escalate"))
            assert cassette.strange == []
    """

    def __init__(self, case: Case, tools: Toolbox) -> None:
        self.case = case
        self._world = CaseWorld(tools, scripts_of(case), (), case.reconcile)
        self._means = Means(
            case=case,
            plan=None if case.plan is None else Plan.model_validate(case.plan),
            policy=Policy.model_validate(case.policy or {}),
            make_planner=self._planner,
        )

    def __repr__(self) -> str:
        return f"<Cassette {self.case.id}: {len(self.case.world)} tools>"

    @classmethod
    async def from_journal(
        cls, run_id: str, *, journal: Journal, tools: Any = None, redact: Hook | None = None
    ) -> Cassette:
        """Make a cassette of a run that has ended.

        Args:
            run_id: The run.
            journal: The journal that has the record.
            tools: The tools of today, as for `dagrun.run`; `None` for the contracts on record, without the types that
                a record does not have.
            redact: The function with which the run was redacted, as for `dagrun.run`; it is not on record.

        Raises:
            CasesRefused: The run has not ended, or cannot be carried out again; every reason is in the error.
            RunNotFound: The journal has no such run.
            UnknownTool: A tool that the run has called is not among *tools*.
            JournalDamaged: The record is not what was written.
        """
        recorded = playable_events(run_id, await journal.read(run_id))
        toolbox = recorded_tools(recorded) if tools is None else toolbox_of(tools)
        return cls(Case.model_validate(recorded_case(run_id, recorded, toolbox, redact=redact)), toolbox)

    async def run(self, **options: Any) -> RunResult:
        """Carry the run out again.

        Args:
            options: Options of `dagrun.run` in place of those on record, such as another *policy*, *planner* or *plan*.

        Raises:
            PlanRefused: The plan does not pass the check: of another policy, say.
        """
        given = {"seed": self.case.seed, **self._means.options(self._world), "tools": self.toolbox(), **options}
        plan, on_event = given.pop("plan", self._means.plan), given.pop("on_event", None)
        if not (self.case.host or self.case.letters):
            return await run(plan, on_event=on_event, **given)
        given["letters"] = letters_of(self.case)
        async with Engine(durations=given.pop("durations", None)) as engine:
            return await run_with_host(plan, self.case.host, self._world.strange, on_event or _ignore, engine, **given)

    def toolbox(self) -> Toolbox:
        """Return the stand-ins of the tools, for a run of one's own."""
        return self._world.toolbox()

    @property
    def calls(self) -> Sequence[StandInCall]:
        """The calls that were made so far."""
        return self._world.calls

    @property
    def strange(self) -> Sequence[str]:
        """The calls and requests to the planner that are not on the cassette, a sentence each."""
        return self._world.strange

    def _planner(self, world: CaseWorld) -> Planner | None:
        replies = self.case.planner
        return PlayedPlanner(replies, world.strange) if isinstance(replies, list) else None


def _ignore(event: Event) -> None:
    """Do nothing with an event."""


def recorded_tools(recorded: Sequence[Event]) -> Toolbox:
    """Return tools of the contracts on record, that can return any plain JSON."""
    openings = [event.opening for event in recorded if isinstance(event, RunStarted | RunResumed) and event.opening]
    tools = recorded_toolbox(openings[-1])
    return Toolbox([_with_plain_output(tool) for tool in tools.values()], allow=tools.allowed)


def _with_plain_output(tool: AnyTool) -> AnyTool:
    return dataclasses.replace(tool, output=dataclasses.replace(tool.output, encode=encode))
