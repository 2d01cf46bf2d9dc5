"""The trust boundary of a plan as a table: each guarded argument, whose data gets into it, the way, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.checks.flow.crossings import Found, crossings
from dagrun.kernel.checks.flow.labels import PLANNED, FlowLabels
from dagrun.kernel.checks.flow.plan_flow import label_plan
from dagrun.kernel.checks.flow.sources import ToolFlow
from dagrun.kernel.model.flow.boundary import Flow
from dagrun.kernel.model.tool import AnyTool

Verdict = Literal["passes", "asks", "refused"]


@dataclass(frozen=True, slots=True)
class FlowRow:
    """The sources of one guarded argument, or of the decision about a call.

    Attributes:
        step: The id of the step.
        tool: The tool that is called: that of the step, or its fallback.
        place: The argument, as ``args.recipient``; ``when`` or ``for_each`` for what decides about the call; ``tool``
            for the calls that an agent makes by itself.
        sources: The names of the sources.
        way: The steps on the way of data that is not accepted; empty if all is.
        verdict: ``passes``, ``asks`` a person before the call, or ``refused``.
        code: The code of the problem; empty if it passes.
    """

    step: str
    tool: str
    place: str
    sources: tuple[str, ...]
    way: str = ""
    verdict: Verdict = "passes"
    code: str = ""


@dataclass(frozen=True, slots=True)
class FlowTable:
    """The trust boundary of one plan.

    Attributes:
        rows: A row for each guarded argument of each step, in plan order.
        endorsed: The tools of the plan that the policy endorses.
        passes_by_endorsement: How many rows pass only because of that.
    """

    rows: tuple[FlowRow, ...]
    endorsed: tuple[str, ...]
    passes_by_endorsement: int

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain JSON."""
        return {
            "rows": [asdict(row) for row in self.rows],
            "endorsed": list(self.endorsed),
            "passes_by_endorsement": self.passes_by_endorsement,
        }


def flow_table(plan: CheckedPlan, flow: Flow) -> FlowTable:
    """Return the flow table of a plan under the trust boundary *flow*."""
    rows = tuple(_rows(plan, flow))
    labels = _labels(plan, flow)
    tools = dict.fromkeys(
        tool.name for checked in plan.steps.values() for tool in _tools(checked) if labels.rules.facts(tool).is_endorsed
    )
    passes = 0
    if tools:
        without = tuple(_rows(plan, flow.model_copy(update={"endorse": ()})))
        stopped = {(row.step, row.tool, row.place) for row in without if row.verdict != "passes"}
        passes = sum((row.step, row.tool, row.place) in stopped for row in rows if row.verdict == "passes")
    return FlowTable(rows, tuple(tools), passes)


def _labels(plan: CheckedPlan, flow: Flow) -> FlowLabels:
    asking = flow.model_copy(update={"otherwise": "ask", "unless": None})
    index = {id_: place for place, id_ in enumerate(plan.steps)}
    return label_plan(asking, list(plan.steps.values()), index, Findings(), is_ordered=plan.is_ordered)


def _rows(plan: CheckedPlan, flow: Flow) -> Iterator[FlowRow]:
    labels = _labels(plan, flow)
    verdict: Verdict = "refused" if flow.otherwise == "refuse" else "asks"
    for id_, checked in plan.steps.items():
        for tool in _tools(checked):
            facts = labels.rules.facts(tool)
            found = {one.place: one for one in crossings(labels, plan.steps.get, id_, checked, tool)}
            for place, sources in _places(labels, checked, tool, facts, found):
                one = found.get(place)
                row = FlowRow(id_, tool.name, place, tuple(labels.rules.names_of(sources)))
                yield row if one is None else _crossed(row, one, verdict)


def _crossed(row: FlowRow, one: Found, verdict: Verdict) -> FlowRow:
    way = one.facts.get("way") or one.facts.get("seen", "")
    return FlowRow(row.step, row.tool, row.place, row.sources, way, verdict, one.code)


def _tools(checked: CheckedStep) -> list[AnyTool]:
    return [tool for tool in (checked.tool, checked.fallback) if tool is not None]


def _places(
    labels: FlowLabels, checked: CheckedStep, tool: AnyTool, facts: ToolFlow, found: Mapping[str, Found]
) -> Iterator[tuple[str, int]]:
    """Yield the checked places of a call, with their sources: each guarded argument, and each violation."""
    names, used = tool.arguments.names, labels.by_argument(checked, checked.items)
    for name in checked.step.args:
        if f"args.{name}" in found or any(guard.takes(names.get(name, name)) for guard in facts.guards):
            yield f"args.{name}", PLANNED.of(name) | used.get(name, 0)
    if facts.control and facts.acts and (checked.step.when is not None or checked.items is not None):
        yield "when" if checked.step.when is not None else "for_each", labels.conditions(checked)
    if facts.inner and "tool" in found:
        yield "tool", labels.whole[checked.step.id]
