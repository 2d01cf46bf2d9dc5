"""The brief: what a planner is told, as far as the policy allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagrun.decide.views import excerpt_of, shape_of
from dagrun.graph.answers import GOAL
from dagrun.graph.handles import with_handles
from dagrun.graph.live import LiveGraph
from dagrun.model.brief import Brief, Refusal, StepView, Trigger
from dagrun.model.outcome import ErrorKind, State
from dagrun.model.redaction import without
from dagrun.model.value import Stored


def make_brief(
    graph: LiveGraph,
    run_id: str,
    triggers: Sequence[Trigger],
    refused: Sequence[Refusal],
    left: Mapping[str, float],
) -> Brief:
    """Tell a planner how things stand.

    Args:
        graph: The run.
        run_id: Its name.
        triggers: Why the planner is asked.
        refused: Patches that were refused, and why.
        left: What is left of the ceilings.
    """
    redactor = graph.plan.redactor
    toolbox = with_handles(graph.plan.toolbox, graph.plan.secrets)
    nodes = [node for node in graph.nodes.values() if not node.is_gone and (node.parent is None or _is_odd(node.state))]
    return Brief(
        run_id=run_id,
        goal=redactor.text(graph.goal),
        revision=graph.revision,
        triggers=tuple(_shown(trigger, graph) for trigger in triggers),
        steps={
            node.id: StepView(node.plan.step, node.state, len(node.attempts), node.state is State.BLOCKED)
            for node in nodes
        },
        results={node.id: _view(node.value, graph) for node in nodes if node.state is State.SUCCEEDED},
        inputs=_view(graph.inputs, graph),
        output=graph.revisions[-1].output if graph.revisions else graph.plan.plan.output,
        tools=tuple(toolbox[name].describe() for name in toolbox if name in toolbox.allowed),
        left=dict(left),
        refused=tuple(refused),
        number=graph.replans,
        past=tuple(past.result for past in graph.replanned),
        toolbox=toolbox,
    )


def _is_odd(state: State) -> bool:
    """Whether an element of a for_each is worth mentioning by itself."""
    return state.is_settled and state is not State.SUCCEEDED


def _shown(trigger: Trigger, graph: LiveGraph) -> Trigger:
    if graph.plan.policy.brief == "full":
        return trigger
    return replace(trigger, reason=_own_words(trigger, graph))


def _own_words(trigger: Trigger, graph: LiveGraph) -> str:
    """The reason, as far as it comes from the host or the plan: what a tool says may be meant for the planner."""
    if trigger.step == GOAL or trigger.error_kind is ErrorKind.SUCCESS_CONDITION:
        return trigger.reason
    extra = graph.nodes[trigger.step].extra
    critics = [verdict.critic for verdict in extra.verdicts if verdict.result != "pass"] if extra is not None else []
    return f"not passed by {', '.join(critics)}" if critics else ""


def _view(stored: Stored, graph: LiveGraph) -> Any:
    policy, redactor = graph.plan.policy, graph.plan.redactor
    if policy.brief == "full":
        return excerpt_of(stored, policy.max_brief_bytes, redactor)
    return without(redactor.secrets, shape_of(stored))  # keys are shown, and one may be a secret
