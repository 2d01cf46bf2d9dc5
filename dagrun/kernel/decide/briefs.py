"""Write the brief for a planner: the state of the run, as far as the policy lets it be shown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dagrun.errors import shorten
from dagrun.kernel.checks.checked_plan import EVERY_TOOL
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.flow.boundary import names
from dagrun.kernel.model.outcome import ErrorKind, State
from dagrun.kernel.model.planner import Brief, EarlierPlanner, PastRequest, Refusal, StepView, Trigger
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR, Redactor, without_secrets
from dagrun.kernel.model.reference import Reference
from dagrun.kernel.model.secrets import KEY, Secrets, handle_schema
from dagrun.kernel.model.tool import COMPOSE, AnyTool, Toolbox
from dagrun.kernel.model.value import Stored, Unavailable, decode, decode_or_reason, to_json

MAX_KEYS: Final = 50
MAX_PARTS: Final = 200  # of one view; 50 keys at each of six levels would be too many to read
MAX_VIEW_DEPTH: Final = 6
MAX_REASON: Final = 500  # characters of one reason: enough to act on, and too few to drown the rest

# A key may be data, too. A key that could be a sentence is counted, not shown.
_NAME: Final = re.compile(r"[\w.-]{1,40}")


def shape_of(stored: Stored, known: Collection[str] | None = None) -> Any:
    """Describe a value by its types, sizes and keys, without its content.

    An object becomes an object of shapes, a list the shape of its first element and its length, a text its length. A
    number or a truth value becomes the name of its type, because figures are results. Keys that look like sentences,
    and keys beyond the first few, are counted. For a value that is no longer available, the reason is given.

    Args:
        stored: The value.
        known: The only keys that are shown, because they are no text of the value's author; `None` for all. Any other
            key is counted, with those beyond the first few.
    """
    if isinstance(stored, Unavailable):
        return decode_or_reason(stored)
    return _Shaper(known).shape(decode(stored), 0)


def known_keys(graph: LiveGraph) -> set[str]:
    """Return the keys that the host or the plan has named: in the output schemas of the tools, and in references."""
    keys: set[str] = set()
    for tool in graph.plan.toolbox.values():
        keys.update(_properties(tool.output.schema))
    for reference in _references(graph):
        keys.update(part for part in reference.path if isinstance(part, str))
    return keys


def _known_inputs(graph: LiveGraph, known: set[str]) -> set[str] | None:
    """Return the keys of the inputs that are shown; all, if the host has written them."""
    flow = graph.plan.policy.flow
    if flow is None or not flow.inputs:
        return None
    inputs = decode(graph.inputs)
    return known | (inputs.keys() if isinstance(inputs, dict) else set())


def _references(graph: LiveGraph) -> Iterator[Reference]:
    """Yield every reference of the plan as it stands."""
    plans = [node.plan for node in graph.planned()]
    templates = [template for plan in plans for template in (plan.args, plan.items)]
    for template in (*templates, graph.output):
        yield from template.references if template is not None else ()
    for plan in plans:
        for condition in (plan.step.when, plan.step.success):
            yield from (leaf.reference for leaf in (condition.leaves() if condition is not None else ()))


def _properties(schema: Any) -> Iterator[str]:
    """Yield every name of a property in a JSON Schema."""
    if isinstance(schema, Mapping):
        named = schema.get("properties")
        if isinstance(named, Mapping):
            yield from named
        for part in schema.values():
            yield from _properties(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _properties(part)


class _Shaper:
    """Describes one value.

    Args:
        known: The only keys that are shown; `None` for all.
    """

    def __init__(self, known: Collection[str] | None) -> None:
        self._known = known
        self._left = MAX_PARTS

    def shape(self, value: Any, depth: int) -> Any:
        """Describe a part of the value, *depth* levels deep in it."""
        match value:
            case list() | dict() if depth >= MAX_VIEW_DEPTH:
                return "list" if isinstance(value, list) else "object"
            case list():
                first = {"first": self.shape(value[0], depth + 1)} if value else {}
                return {"list of": len(value), **first}
            case dict():
                return self._shape_of_object(value, depth)
            case _:
                return _scalar(value)

    def _shape_of_object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, part in value.items():
            if len(shown) >= MAX_KEYS or self._left <= 0:
                break
            if _NAME.fullmatch(key) and (self._known is None or key in self._known):
                self._left -= 1
                shown[key] = self.shape(part, depth + 1)
        others = len(value) - len(shown)
        return {**shown, "(other keys)": others} if others else shown


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case _:
            return f"text of {len(value)} characters"


def excerpt_of(stored: Stored, limit: int, redactor: Redactor = DEFAULT_REDACTOR) -> Any:
    """Return a value with fields of secret names hidden; one of more than *limit* bytes as its shape."""
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
    *,
    request: int = 0,
) -> Brief:
    """Make the brief of a request to a planner.

    Args:
        graph: The state of the run.
        run_id: The id of the run.
        triggers: The reasons for the request.
        refused: The patches that were refused, and why.
        left: The amounts that are left of the ceilings, by name.
        request: The number of the request; 0 for the first plan, or for the next steps of it.
    """
    redactor = graph.plan.redactor
    toolbox = with_secret_names(_for_plans(graph.plan.toolbox), graph.plan.secrets)
    known = known_keys(graph)
    nodes = [node for node in graph.nodes.values() if not node.is_gone and (node.parent is None or _is_odd(node.state))]
    return Brief(
        run_id=run_id,
        goal=redactor.text(graph.goal),
        revision=graph.revision,
        triggers=tuple(_shown(trigger, graph) for trigger in triggers),
        steps={node.id: _step_view(node, graph) for node in nodes},
        results={node.id: _view(node.value, graph, known) for node in nodes if node.state is State.SUCCEEDED},
        inputs=_view(graph.inputs, graph, _known_inputs(graph, known)),
        output=graph.written_output,
        tools=tuple(_contract(toolbox[name], graph) for name in toolbox if name in toolbox.allowed),
        left=dict(left),
        refused=tuple(refused),
        number=graph.replans,
        past=tuple(PastRequest(past.result, _text(past.reason, graph)) for past in graph.replanned),
        before=tuple(
            EarlierPlanner(p.planner, p.why, _text(p.reason, graph)) for p in graph.handed_on.get(request, ())
        ),
        keeps_plan=graph.has_plan and graph.plan.policy.freeze_plan,
        notes=graph.planner_notes,
        raw_inputs=decode_or_reason(graph.inputs),
        toolbox=toolbox,
    )


def _contract(tool: AnyTool, graph: LiveGraph) -> dict[str, Any]:
    """Return the contract of a tool, with the rules and the experience of this run that a good plan considers."""
    policy, seconds = graph.plan.policy, graph.expected.learned.get(tool.name)
    pool = policy.pools.get(tool.pool or "")
    most = None if pool is None else pool.max_running
    asks = "always" if tool.needs_approval else "sometimes" if _has_rule(tool, policy) else None
    facts = {
        "approval": asks,
        "fallback": tool.fallback,
        "seconds": None if seconds is None else float(f"{seconds:.2g}"),
        "pool": tool.pool if most is None else f"{tool.pool}, {most} at once",
        **_boundary(tool, policy),
    }
    return {**tool.describe(), **{name: fact for name, fact in facts.items() if fact is not None}}


def _boundary(tool: AnyTool, policy: Policy) -> dict[str, Any]:
    """Return the facts of the trust boundary that a planner needs: the sources of a tool, and its guarded arguments."""
    flow = policy.flow
    if flow is None:
        return {}
    parts = list(tool.untrusted) if isinstance(tool.untrusted, tuple) else tool.untrusted
    return {
        "untrusted": names(flow.untrusted, tool.name) or parts or None,
        "guarded": sorted(tool.arguments.guarded) or None,
    }


def _has_rule(tool: AnyTool, policy: Policy) -> bool:
    return any(rule.tool in (tool.name, EVERY_TOOL) for rule in policy.approve)


def _for_plans(toolbox: Toolbox) -> Toolbox:
    """Return the tools without the one that composes the answer, which is not for plans."""
    if COMPOSE not in toolbox:
        return toolbox
    others = [tool for name, tool in toolbox.items() if name != COMPOSE]
    return Toolbox(others, allow=toolbox.allowed - {COMPOSE})


def _is_odd(state: State) -> bool:
    """Whether an element of a for_each in this state is listed by itself."""
    return state.is_settled and state is not State.SUCCEEDED


def _step_view(node: Node, graph: LiveGraph) -> StepView:
    """Return a step with its state, and with the failure of its last attempt."""
    is_frozen = node.state is State.BLOCKED
    view = StepView(node.plan.step, node.state, len(node.attempts), is_frozen)
    outcome = node.latest.outcome if node.latest is not None else None
    failure = outcome.failure if outcome is not None else None
    verdicts = node.extra.verdicts if node.extra is not None else ()
    odd = tuple(_shown_verdict(verdict, graph) for verdict in verdicts if verdict.result != "pass")
    reason = "" if node.state is State.SUCCEEDED else _text(node.reason, graph)
    if failure is not None and node.state is not State.SUCCEEDED:
        view = replace(view, error=failure.error, error_kind=failure.kind)
    return replace(view, reason=reason, verdicts=odd) if reason or odd else view


def _shown_verdict(verdict: Verdict, graph: LiveGraph) -> Verdict:
    return Verdict(verdict.result, verdict.score, _text(verdict.reason, graph), verdict.critic)


def _text(text: str, graph: LiveGraph) -> str:
    """Return a text of a tool, a critic or a model as far as the policy lets a planner see it."""
    if graph.plan.policy.planning.brief == "structural":
        return ""
    return shorten(graph.plan.redactor.text(text), MAX_REASON)


def _shown(trigger: Trigger, graph: LiveGraph) -> Trigger:
    if graph.plan.policy.planning.brief == "structural":
        return replace(trigger, reason=_own_words(trigger, graph))
    return trigger


def _own_words(trigger: Trigger, graph: LiveGraph) -> str:
    """Return the reason without texts of tools, which may try to instruct the planner."""
    if trigger.step == GOAL or trigger.error_kind is ErrorKind.SUCCESS_CONDITION:
        return trigger.reason
    extra = graph.nodes[trigger.step].extra
    critics = [verdict.critic for verdict in extra.verdicts if verdict.result != "pass"] if extra is not None else []
    return f"not passed by {', '.join(critics)}" if critics else ""


def _view(stored: Stored, graph: LiveGraph, known: Collection[str] | None = None) -> Any:
    policy, redactor = graph.plan.policy, graph.plan.redactor
    if policy.planning.brief == "full":
        return excerpt_of(stored, policy.planning.max_brief_bytes, redactor)
    return without_secrets(redactor.secrets, shape_of(stored, known))  # keys are shown, and a key may be a secret


def with_secret_names(toolbox: Toolbox, secrets: Secrets) -> Toolbox:
    """Return *toolbox* with the names of *secrets* in the schemas of its tools; unchanged if no tool takes secrets."""
    if not secrets or not any(tool.arguments.secrets for tool in toolbox.values()):
        return toolbox
    tools = [_tool_with_names(tool, secrets.names_for(tool.name)) for tool in toolbox.values()]
    return Toolbox(tools, allow=toolbox.allowed)


def _tool_with_names(tool: AnyTool, names: Sequence[str]) -> AnyTool:
    if not tool.arguments.secrets or not names:
        return tool
    arguments = tool.arguments
    properties = {
        name: _with_names(schema, names) if arguments.names.get(name, name) in arguments.secrets else schema
        for name, schema in arguments.schema["properties"].items()
    }
    return replace(tool, arguments=replace(arguments, schema={**arguments.schema, "properties": properties}))


def _with_names(schema: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a handle, or of an optional handle, with the names that it may contain."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_with_names(part, names) for part in schema["anyOf"]]}
    return {**schema, **handle_schema(names)} if KEY in schema.get("properties", {}) else schema
