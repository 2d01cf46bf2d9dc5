"""What must become of a step: worked out from its script and from how the steps before it ended, without a schedule."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from acts import GRACE, LAST_WORDS, Act, act_of, given
from dagrun import State
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.value import decode

assert LAST_WORDS < GRACE

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z0-9_-]+)(?:\.([a-z]+))?\}")

# What a tool does when it is not cut short: transient, vouched that nothing happened.
_FAILS: Final[Mapping[str, tuple[bool, bool]]] = {
    "is busy": (True, True),
    "refuses": (False, True),
    "loses the line": (True, False),
    "breaks": (False, False),
    "exits": (False, False),
    "cancels itself": (False, False),
    "leaves a scope open": (False, False),
}


def disagreements(graph: LiveGraph) -> Iterator[str]:
    """Say which steps of a calm run ended otherwise than they should have.

    What a patch has taken out is a fact like the weather; everything else follows from it, and from the definitions
    that the steps have in the end.
    """
    for node in graph.planned():
        wanted = _wanted(graph, node)
        if (node.state, decode(node.value)) not in wanted:
            yield f"{node} gave {decode(node.value)}, but should have ended as {wanted}"
        for child in node.children or ():
            end = _of_element(graph, child)
            if not child.is_gone and (child.state, decode(child.value)) != end:
                yield f"{child} gave {decode(child.value)}, but should have ended as {end}"


def _wanted(graph: LiveGraph, node: Node) -> list[tuple[State, Any]]:
    """How a step may end; more than one way only where it is open which of two bad steps reaches it first."""
    needs = [graph.nodes[id_] for id_ in node.plan.depends_on]
    bad = [n for n in needs if n.state is not State.SUCCEEDED]
    if any(not n.is_tolerated or n.id in node.plan.value_sources for n in bad):
        return [(State.SKIPPED, None)]
    condition = node.plan.step.when
    if condition is not None and not _given(graph, condition.reference.step)["value"] > condition.value:
        return [(State.SKIPPED, None)]
    if node.children is None:
        return [_by_script(graph, node)]
    return _joined(node, [(child, _of_element(graph, child)) for child in node.children])


def _of_element(graph: LiveGraph, child: Node) -> tuple[State, Any]:
    if child.is_gone:
        return child.state, None
    assert child.parent is not None
    if child.plan is not child.parent.plan:  # a substitute, which may wait for other steps than its parent does
        return _wanted(graph, child)[0]
    return _by_script(graph, child)


def _given(graph: LiveGraph, step: str) -> Any:
    return decode(graph.nodes[step].value)


def _joined(node: Node, ends: list[tuple[Node, tuple[State, Any]]]) -> list[tuple[State, Any]]:
    bad = [(child, state) for child, (state, _) in ends if state is not State.SUCCEEDED]
    # A failure is left out by order of the step; an effect in doubt is nothing that a plan can leave out.
    worst = [state for child, state in bad if not _is_left_out(child, state)]
    if not worst:
        return [(State.SUCCEEDED, [value for _, (_, value) in ends])]
    return [(State.UNKNOWN if State.UNKNOWN in worst else worst[0], None)]


def _is_left_out(child: Node, state: State) -> bool:
    if state is State.SKIPPED:  # a substitute that has waited for another step
        return child.is_tolerated
    return state is not State.UNKNOWN and (child.is_gone or child.plan.step.on_failure == "skip")


def filled(value: Any, graph: LiveGraph) -> Any:
    """Fill the references in an argument, in the simplest way: the ids of steps, and at most one key."""
    match value:
        case str():
            whole = _REFERENCE.fullmatch(value)
            if whole is not None:
                return _part(graph, *whole.groups())
            return _REFERENCE.sub(lambda match: str(_part(graph, *match.groups())), value)
        case {"$step": str(step), "path": str(path)}:
            return _part(graph, step, path)
        case list():
            return [filled(part, graph) for part in value]
        case _:
            return value


def _part(graph: LiveGraph, step: str, path: str | None) -> Any:
    value = _given(graph, step)
    return value[path] if path and value is not None else value


def _by_script(graph: LiveGraph, node: Node) -> tuple[State, Any]:
    """Play the acts of a step through: attempts of the tool, then of its fallback."""
    step, plan = node.plan.step, node.plan
    acts: list[Act] = step.args["acts"]
    item = int(decode(node.item)) if node.parent is not None else 0
    number, state, in_doubt = 0, State.FAILED, False
    for tool in (plan.tool, plan.fallback):
        if tool is None:
            break
        may_repeat, is_free, made, vouched = tool.effect.may_repeat, tool.effect.is_free, 0, False
        while True:
            number, made = number + 1, made + 1
            act = act_of(acts, number, item)
            state, is_transient, vouched = _attempt(act, plan.timeout, is_free=is_free)
            if state is State.SUCCEEDED and step.success is not None and not act["gives"] < step.success.value:
                state, in_doubt = State.FAILED, False  # it has returned, so its effect is known
            if state is State.SUCCEEDED:
                return state, given(act, filled(step.args.get("feed"), graph), item)
            in_doubt |= state is State.UNKNOWN  # until an attempt succeeds, whatever a later one vouches for
            again = is_transient and made < _most(node) and (may_repeat or vouched)
            if not again:
                break
        if in_doubt or not (is_free or vouched):
            break
    if in_doubt:
        return State.UNKNOWN, None
    if step.on_failure == "default":
        return State.SUCCEEDED, step.default
    return state, None


def _most(node: Node) -> int:
    rule = node.plan.step.retry
    return 2 if rule is None else rule.max_attempts


def _attempt(act: Act, timeout: float | None, *, is_free: bool) -> tuple[State, bool, bool]:
    """How one attempt ends, whether it is transient, and whether surely nothing happened."""
    does = act["does"]
    in_doubt = State.FAILED if is_free else State.UNKNOWN
    if timeout is not None and (does in ("hangs", "will not stop") or act["seconds"] > timeout):
        if not is_free:
            return State.UNKNOWN, does != "will not stop", False
        return (State.ABANDONED, False, False) if does == "will not stop" else (State.TIMED_OUT, True, False)
    if does not in _FAILS:
        return State.SUCCEEDED, False, False
    is_transient, vouched = _FAILS[does]
    return (State.FAILED if vouched else in_doubt), is_transient, vouched
