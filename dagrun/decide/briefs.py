"""The brief: what a planner is told, as far as the policy allows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dagrun.graph.changes import GOAL
from dagrun.graph.live_graph import LiveGraph
from dagrun.model.outcome import ErrorKind, State
from dagrun.model.planner import Brief, Refusal, StepView, Trigger
from dagrun.model.redaction.redactor import DEFAULT_REDACTOR, Redactor, without_secrets
from dagrun.model.value import Stored, Unavailable, decode, decode_or_reason, to_json
from dagrun.plans.plan_schemas import with_secret_names

MAX_KEYS: Final = 50
MAX_PARTS: Final = 200  # of one view; 50 keys at each of six levels would be more than anybody reads
MAX_VIEW_DEPTH: Final = 6

# A key may be data too. One that could be a sentence is counted, not shown.
_NAME: Final = re.compile(r"[\w.-]{1,40}")


def shape_of(stored: Stored) -> Any:
    """Describe a value by its types, sizes and keys, without a word of what it says.

    An object becomes an object of shapes, a list the shape of its first element and its length, a text its length; a
    number or a truth value stands as its type, because figures are results. Keys that look like sentences, and those
    beyond the first few, are counted. Of a value that is not there any more, it is said why.
    """
    if isinstance(stored, Unavailable):
        return decode_or_reason(stored)
    return _shape(decode(stored), 0, [MAX_PARTS])


def _shape(value: Any, depth: int, left: list[int]) -> Any:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return f"text of {len(value)} characters"
        case _ if depth >= MAX_VIEW_DEPTH:
            return "list" if isinstance(value, list) else "object"
        case list():
            return {"list of": len(value), "first": _shape(value[0], depth + 1, left)} if value else {"list of": 0}
        case _:
            return _shape_of_object(value, depth, left)


def _shape_of_object(value: dict[str, Any], depth: int, left: list[int]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for key, part in value.items():
        if len(shown) >= MAX_KEYS or left[0] <= 0:
            break
        if _NAME.fullmatch(key):
            left[0] -= 1
            shown[key] = _shape(part, depth + 1, left)
    others = len(value) - len(shown)
    return {**shown, "(other keys)": others} if others else shown


def excerpt_of(stored: Stored, limit: int, redactor: Redactor = DEFAULT_REDACTOR) -> Any:
    """Give a value as it may be shown, fields with secret names hidden; one of over *limit* bytes as its shape."""
    if isinstance(stored, Unavailable):
        return decode_or_reason(stored)
    if len(to_json(stored)) > limit:
        return {"too large to show": shape_of(stored)}
    return redactor.value(decode(stored))


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
    toolbox = with_secret_names(graph.plan.toolbox, graph.plan.secrets)
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
    return without_secrets(redactor.secrets, shape_of(stored))  # keys are shown, and one may be a secret
