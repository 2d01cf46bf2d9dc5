"""What must become of a step: worked out from its script and from how the steps before it ended, without a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from acts import GRACE, LAST_WORDS, Act, act_of, given
from dagrun.graph.live import LiveGraph, Node
from dagrun.model.outcome import State
from dagrun.model.value import decode

assert LAST_WORDS < GRACE

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
    """Say which steps of a calm run ended otherwise than they should have."""
    for node in graph.planned():
        wanted = _wanted(graph, node)
        if (node.state, decode(node.value)) not in wanted:
            yield f"{node} gave {decode(node.value)}, but should have ended as {wanted}"
        for child in node.children or ():
            end = _by_script(child)
            if (child.state, decode(child.value)) != end:
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
        return [_by_script(node)]
    return _joined(node, [_by_script(child) for child in node.children])


def _given(graph: LiveGraph, step: str) -> Any:
    return decode(graph.nodes[step].value)


def _joined(node: Node, ends: list[tuple[State, Any]]) -> list[tuple[State, Any]]:
    bad = [state for state, _ in ends if state is not State.SUCCEEDED]
    # A failure is left out by order of the step; an effect in doubt is nothing that a plan can leave out.
    worst = [state for state in bad if node.plan.step.on_failure != "skip" or state is State.UNKNOWN]
    if not worst:
        return [(State.SUCCEEDED, [value for _, value in ends])]
    return [(State.UNKNOWN if State.UNKNOWN in bad else worst[0], None)]


def _by_script(node: Node) -> tuple[State, Any]:
    """Play the acts of a step through: attempts of the tool, then of its fallback."""
    step, plan = node.plan.step, node.plan
    acts: list[Act] = step.args["acts"]
    item = int(decode(node.item)) if node.parent is not None else 0
    number, state = 0, State.FAILED
    for tool in (plan.tool, plan.fallback):
        if tool is None:
            break
        may_repeat, is_free, made, vouched = tool.effect.may_repeat, tool.effect.is_free, 0, False
        while True:
            number, made = number + 1, made + 1
            act = act_of(acts, number, item)
            state, is_transient, vouched = _attempt(act, plan.timeout, is_free=is_free)
            if state is State.SUCCEEDED and step.success is not None and not act["gives"] < step.success.value:
                state = State.FAILED
            if state is State.SUCCEEDED:
                return state, given(act)
            again = is_transient and made < _most(node) and (may_repeat or vouched)
            if not again:
                break
        if not (is_free or vouched):
            break
    if step.on_failure == "default" and state is not State.UNKNOWN:
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
