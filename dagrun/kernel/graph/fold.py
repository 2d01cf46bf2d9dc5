"""Fold a record: compute the state of a run from its recorded events, without calling anything.

When the run is resumed, some work is repeated: unresolved effects, and needed outputs that are lost. It is found here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dagrun.errors import JournalDamaged
from dagrun.kernel.graph.changes import apply_recorded
from dagrun.kernel.graph.ledger import Ledger, ModelCall
from dagrun.kernel.graph.live_graph import OF_ANOTHER, LiveGraph
from dagrun.kernel.graph.mapped_steps import source_of
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.output_eviction import as_released, keep_values
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.model.event import Event, Spliced
from dagrun.kernel.model.outcome import Attempt, ErrorKind, State, Status
from dagrun.kernel.model.patch import Patch
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Stored, Unavailable, decode_or_reason, is_lost_object

if TYPE_CHECKING:
    from dagrun.kernel.graph.patches.check_patch import Origin, Splicer

_ORIGINS: Final[dict[str, Origin]] = {"host": "host", "planner": "planner"}


def fold(graph: LiveGraph, recorded: Iterable[Event], run_id: str) -> None:
    """Apply the *recorded* events to *graph*, the state of a run that has not begun.

    The graph then has all values of the record; those that the run has released are only marked.

    Raises:
        JournalDamaged: An event does not fit the events before it.
    """
    from dagrun.kernel.graph.patches.check_patch import Splicer  # here: most runs read no record

    splicer, frontier = Splicer(graph, is_folding=True), graph.frontier
    keep_values(graph)
    graph.frontier = _Nowhere(priorities=frontier.priorities)
    try:
        _fold(graph, splicer, recorded, run_id)
    finally:
        frontier.priorities = graph.frontier.priorities
        graph.frontier = frontier


class _Nowhere(Frontier):
    """A frontier that keeps nothing: while a record is folded, no step is taken, and one becomes ready many times."""

    __slots__ = ()

    def push(self, node: Node) -> None:
        """Ignore *node*."""


def _fold(graph: LiveGraph, splicer: Splicer, recorded: Iterable[Event], run_id: str) -> None:
    for event in recorded:
        if graph.status is not None and type(event).__name__ not in _AFTER_END:
            raise JournalDamaged(run_id, event.seq, f"the run had ended, and {type(event).__name__} comes after that")
        try:
            why = apply_recorded(graph, _with_patch(event, splicer) if isinstance(event, Spliced) else event)
        except JournalDamaged:
            raise
        except Exception as error:
            # Each record is well-formed by itself; an event that cannot be applied was not written by a run.
            what = f"{type(event).__name__} does not follow from what was recorded before it"
            raise JournalDamaged(run_id, event.seq, f"{what}: {type(error).__name__}: {error}") from error
        if why:
            raise JournalDamaged(run_id, event.seq, why)


_AFTER_END: Final = frozenset(("RunResumed", "RunReopened"))


def _with_patch(event: Spliced, splicer: Splicer) -> Spliced:
    """Return *event* with its `CheckedPatch`, from the check that the patch has passed before."""
    facts: dict[str, Any] = {"output": event.output} if event.changes_output else {}
    checked, problems = splicer.check(Patch(edits=event.edits, **facts), _ORIGINS[event.origin])
    if checked is None:
        raise ValueError("; ".join(str(problem) for problem in problems if not problem.is_advice))
    return replace(event, checked=checked)


def state_of(graph: LiveGraph) -> dict[str, Any]:
    """Return the whole state of a run as plain JSON: equal for equal events, on every machine."""
    seen = as_released(graph)
    return {
        "status": None if graph.status is None else str(graph.status),
        "reason": graph.reason,
        "goal": graph.goal,
        "unsettled": graph.unsettled,
        "revisions": [[r.number, r.origin, r.reason, r.goal, str(r.consequence)] for r in graph.revisions],
        "kept": {id_: sorted(why) for id_, why in sorted(graph.kept.items())},
        "triggers": [trigger.as_dict() | {"fingerprint": trigger.fingerprint} for trigger in graph.triggers.values()],
        "questions": [question.as_dict() for question in graph.questions.values()],
        "replanned": [[past.result, list(past.fingerprints), past.signature] for past in graph.replanned],
        "asking": {str(number): list(steps) for number, steps in graph.asking.items()},
        "replans": graph.replans,
        "planner_calls": graph.planner_calls,
        "model_calls": [
            [number, asked.tokens, asked.cost, *([] if told is None else [told.tokens, told.cost])]
            for number, (asked, told) in graph.model_calls.items()
        ],
        "models": [graph.models.tokens, graph.models.known_cost, graph.models.unpriced],
        "warnings": list(graph.warnings),
        "guarded_tools": dict(sorted(graph.guarded_tools.items())),
        "elements": {id_: decode_or_reason(value) for id_, value in sorted(graph.elements.items())},
        "withheld": None if graph.withheld is None else [str(graph.withheld[0]), graph.withheld[1]],
        "stopping": None if graph.stopping is None else [str(graph.stopping[0]), graph.stopping[1]],
        "draft_end": list(graph.draft_end),
        "flags": [graph.is_frozen, graph.is_drafting, graph.wants_more, graph.has_plan, graph.saving is not None],
        "steps": {id_: _node_state(node, partial(seen, node)) for id_, node in graph.nodes.items()},
    }


def state_hash(graph: LiveGraph) -> str:
    """Return a hash of `state_of`, in hex."""
    text = json.dumps(state_of(graph), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _node_state(node: Node, seen: Callable[[Stored], Stored]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "state": str(node.state),
        "missing": node.missing,
        "value": decode_or_reason(seen(node.value)),
        "tolerated": node.is_tolerated,
        "on_fallback": node.on_fallback,
        "reason": node.reason,
        "successors": sorted(after.id for after in node.successors),
        "children": None if node.children is None else [child.id for child in node.children],
        "attempts": [_attempt_state(attempt, seen) for attempt in node.attempts],
    }
    if node.extra is not None:
        extra = node.extra
        if extra.over is not None:
            shown["over"] = extra.over.id
        shown["extra"] = {
            "root": extra.root,
            "frozen": extra.frozen.id if extra.frozen is not None else "",
            "substitute": extra.substitute,
            "is_gone": extra.is_gone,
            "generation": extra.generation,
            "approved": extra.approved,
            "is_passed": extra.is_passed,
            "is_closed": extra.is_closed,
            "is_agreed": extra.is_agreed,
            "guards": extra.guards,
            "given": {name: decode_or_reason(value) for name, value in extra.given.items()},
            "verdicts": [verdict.as_dict() for verdict in extra.verdicts],
            "counts": [extra.forgiven, extra.cleared, extra.applied, extra.asked],
            "held": [extra.held, extra.held_since],
            "told": [content for content, _ in extra.told],
        }
    return shown


def _attempt_state(attempt: Attempt, seen: Callable[[Stored], Stored]) -> list[Any]:
    outcome, decision = attempt.outcome, attempt.decision
    shown: list[Any] = [attempt.number, attempt.tool, attempt.started, attempt.ended]
    if outcome is not None:
        failure = outcome.failure.as_dict() if outcome.failure is not None else None
        value = decode_or_reason(seen(outcome.value))
        shown += [str(outcome.state), value, failure, outcome.tokens, outcome.cost, outcome.surprise]
    if decision is not None:
        shown += [str(decision.recovery), decision.reason, decision.delay]
    if (hedge := attempt.hedge) is not None:
        shown.append([hedge.started, hedge.ended, hedge.has_won, hedge.tokens, hedge.cost, hedge.fault])
    return shown


def in_doubt(graph: LiveGraph) -> list[str]:
    """Return the unresolved steps of a run that ended as unknown, and all steps that were skipped because of them."""
    if graph.status is not Status.UNKNOWN:
        return []
    ids = set[str]()
    for node in doubtful(graph):
        ids.add(node.id)
        ids.update(behind.id for behind in _skipped_behind(graph, node))
    return [id_ for id_ in graph.nodes if id_ in ids]


def doubtful(graph: LiveGraph) -> list[Node]:
    """Return the settled steps with an unresolved effect, also those that have left the plan."""
    unknown = (node for node in graph.nodes.values() if node.state is State.UNKNOWN)
    return [node for node in unknown if not node.is_gone or leaves_effect_unresolved(graph, node)]


def leaves_effect_unresolved(graph: LiveGraph, node: Node) -> bool:
    """Whether a step that has left the plan still has an unresolved effect.

    Only the same call, made again with the same key, settles that: whatever else a planner has put in its place
    says nothing about the effect.
    """
    at: Node | None = node
    while at is not None:
        substitute = at.extra.substitute if at.extra is not None else ""
        at = graph.nodes[substitute] if substitute else at.parent
        if substitute and at is not None and at.state is State.SUCCEEDED and _has_repeated(at, node):
            return False
    return True


def _has_repeated(node: Node, before: Node) -> bool:
    """Whether a step has repeated the call of an unresolved step: the check allows no other call with an effect."""
    tool = _last_tool(node)
    return tool is _last_tool(before) and tool.effect.may_repeat and _has_returned(node)


def _last_tool(node: Node) -> AnyTool:
    return node.called(node.latest.tool) if node.latest is not None else node.plan.tool


def _has_returned(node: Node) -> bool:
    """Whether the call of a step has returned, or a person knows that it took effect; of a for_each, every call.

    A step can succeed without: by a default, or because what has failed is left out.
    """
    if node.children is not None:
        return bool(node.children) and all(map(_has_returned, node.children))
    outcome = node.latest.outcome if node.latest is not None else None
    if outcome is not None and outcome.has_returned:
        return True
    return node.state is State.SUCCEEDED and node.ended is not None and not node.ended.is_default


def _skipped_behind(graph: LiveGraph, cause: Node) -> Iterator[Node]:
    """Yield the steps that were skipped because of *cause*, directly or not."""
    seen, behind = {cause.id}, [cause]
    while behind:
        node = behind.pop()
        for after in graph.behind(node):
            if after.id not in seen and _was_skipped(after):
                # With an element, its for_each: it gets its list of outputs again.
                family = [after] if after.parent is None or not after.parent.state.is_settled else [after, after.parent]
                new = [part for part in family if part.id not in seen]
                seen.update(part.id for part in new)
                behind += new
                yield from new


def _was_skipped(node: Node) -> bool:
    """Whether a step was skipped because of another: before its call, or during it, on reaching an element."""
    return node.state is State.SKIPPED and not node.is_gone and (not node.has_started or bool(node.plan.stream))


def lost(graph: LiveGraph) -> tuple[list[str], list[tuple[str, str]]]:
    """Find the outputs that steps still need and that are not in the record.

    Returns:
        The steps that may be called again, because their tools change nothing; and pairs of a step that cannot run
        and the step whose output it needs, which is no longer available. For an element of a for_each that is itself
        not in the record, that is the for_each.
    """
    again: dict[str, Node] = {}
    hopeless: list[tuple[str, str]] = []
    wanting = [node for node in graph.nodes.values() if _needs_values(node)]

    def repeat(nodes: Iterable[Node]) -> None:
        new = [node for node in nodes if node.id not in again]
        again.update((node.id, node) for node in new)
        wanting.extend(new)  # their own arguments may need lost outputs, too

    for node in _answering(graph):
        if isinstance(node.value, Unavailable):
            repeat(_calls_again(node))
    for node in graph.nodes.values():
        if node.children is not None and not node.state.is_settled and not node.is_gone:
            repeat(_elements_again(node))  # else the end of the last one could not join their outputs
    while wanting:
        node = wanting.pop()
        for source in _lost_sources(graph, node):
            calls = _calls_again(source) if source.id not in again else [source]
            repeat(calls)
            if not calls:
                hopeless.append((node.id, source.id))
    return [node.id for node in graph.nodes.values() if node.id in again], hopeless


def _calls_again(node: Node) -> list[Node]:
    """Return the steps to open again to have the lost output of *node*; none if it is not available again.

    The output of a for_each is that of its elements: those whose output is lost are called again, and joined again.
    """
    if node.children is None:
        return [node] if _may_be_called_again(node) else []
    if not isinstance(node.value, Unavailable):
        return []  # not its output is lost, but one of its elements
    elements = _elements_again(node)
    return [node, *elements] if len(elements) == len(_lost_elements(node)) else []


def _elements_again(node: Node) -> list[Node]:
    """Return the elements of a for_each whose output is lost and that may be called again."""
    return [child for child in _lost_elements(node) if _may_be_called_again(child)]


def _lost_elements(node: Node) -> list[Node]:
    return [child for child in node.children or () if isinstance(child.value, Unavailable) and not child.is_gone]


def _may_be_called_again(node: Node) -> bool:
    # An element that was an object in memory comes with its list again; see `_lost_sources`.
    # Once the fallback was called, it is `node.tool`: the step may have changed the world, whatever its own tool does.
    has_item = type(node.item) is not Unavailable or node.item is OF_ANOTHER or is_lost_object(node.item)
    return node.tool.effect.is_free and has_item


def _answering(graph: LiveGraph) -> Iterator[Node]:
    """Yield the steps whose outputs are the answer of the run."""
    if graph.output is None:
        yield from graph.sinks()
    else:
        yield from (graph.nodes[id_] for id_ in graph.output.sources if id_ in graph.nodes)


def _needs_values(node: Node) -> bool:
    return not node.state.is_settled and not node.is_gone and node.children is None


def _lost_sources(graph: LiveGraph, node: Node) -> Iterator[Node]:
    """Yield the steps whose lost output a step needs; for an element that is lost itself, its for_each.

    For an element that was an object in memory, these are the steps that its list comes from.
    """
    comes_again = is_lost_object(node.item)
    if node.item is OF_ANOTHER:
        source = source_of(node)
        if source is not None and isinstance(source.value, Unavailable):
            yield source
    elif type(node.item) is Unavailable and node.parent is not None and not comes_again:
        yield node.parent
        return
    needed = node.plan.value_sources
    if node.is_defined_by_parent and node.plan.items is not None and not comes_again:  # it has its element
        needed -= frozenset(node.plan.items.sources) - frozenset(node.plan.args.sources)
    for id_ in sorted(needed):
        source = graph.nodes.get(id_)
        if source is not None and isinstance(source.value, Unavailable):
            yield source


def open_frames(graph: LiveGraph, opened: Callable[[Stored], Stored]) -> None:
    """Load the frames of a resumed run that are stored as files.

    Args:
        graph: The state.
        opened: Returns a value with its frames; `Unavailable` if their files are gone.
    """
    for node in graph.nodes.values():
        if _gives_frames(node):
            node.value = opened(node.value)
        if node.parent is not None and type(node.item) is bytes and _comes_from_frames(graph, node.parent):
            node.item = opened(node.item)
    for id_, value in graph.elements.items():
        if _gives_frames(graph.nodes[id_.partition("[")[0]]):
            graph.elements[id_] = opened(value)


def _gives_frames(node: Node) -> bool:
    tools = (node.plan.tool, node.plan.fallback)
    return any(tool is not None and tool.output.has_frames for tool in tools)


def _comes_from_frames(graph: LiveGraph, parent: Node) -> bool:
    sources = parent.plan.items.sources if parent.plan.items is not None else ()
    return any(graph.nodes[id_].plan.tool.output.has_frames for id_ in sources if id_ in graph.nodes)


def restore(ledger: Ledger, graph: LiveGraph) -> None:
    """Charge *ledger* with all that the recorded calls of a run have used."""
    ledger.count_planner(graph.replans, graph.planner_calls)
    if not ledger.binds_attempts:
        return
    for node in graph.nodes.values():
        for attempt in node.attempts:
            outcome = attempt.outcome
            tool = node.called(attempt.tool)
            if tool.is_metered:  # the calls of its models are charged below
                ledger.charge(tool, 0, 0.0, is_reported=True)
                continue
            tokens, cost = (0, None) if outcome is None else (outcome.tokens, outcome.cost)
            ledger.charge(tool, tokens, cost, is_reported=_has_reported(attempt))
            if (hedge := attempt.hedge) is not None:
                known = bool(hedge.tokens) or hedge.cost is not None
                ledger.charge(node.called(attempt.tool), hedge.tokens, hedge.cost, is_reported=known)
    for asked, told in graph.model_calls.values():
        call = ModelCall(asked.who, asked.tokens, asked.cost)
        used = None if told is None else told.tokens
        paid = None if told is None else told.cost
        ledger.charge(call, used or 0, paid, is_reported=used is not None or paid is not None)


def _has_reported(attempt: Attempt) -> bool:
    """Whether the recorded usage of a call is all of it; else its worst case is charged."""
    outcome = attempt.outcome
    if outcome is None:
        return False
    if outcome.failure is not None and outcome.failure.kind is ErrorKind.BAD_ARGUMENTS:
        return True  # the tool was not called
    return bool(outcome.tokens) or outcome.cost is not None
