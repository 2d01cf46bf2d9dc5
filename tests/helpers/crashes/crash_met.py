"""What is going on in a run at an instant, by name: a rig must know what its crashes have hit."""

from __future__ import annotations

from collections.abc import Iterator

from dagrun import State, Status
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node


def going_on(graph: LiveGraph) -> Iterator[str]:
    """What is going on in a run, by name."""
    yield from _about_the_run(graph)
    for question in graph.questions.values():
        yield f"{question.kind} open"
    for node in graph.nodes.values():
        yield from _about_a_call(node) if node.is_in_flight else _about_a_step(node)


def _about_the_run(graph: LiveGraph) -> Iterator[str]:
    is_refused = not graph.is_drafting and graph.draft_end[0] == "refused" and not graph.has_plan
    facts = {
        "stopping": graph.stopping is not None and graph.status is None,
        "suspended": graph.status is Status.WAITING,
        "over": graph.status not in (None, Status.WAITING),
        "replan requested": bool(graph.triggers),
        "planner asked": bool(graph.asking),
        "draft open": graph.is_drafting,
        "draft refused": is_refused,
        "frozen": graph.is_frozen and not graph.is_drafting,
        "paused after": any("pause" in why for why in graph.kept.values()),
        "saving": graph.saving is not None,
    }
    yield from (name for name, holds in facts.items() if holds)


def _about_a_call(node: Node) -> Iterator[str]:
    effect = node.called(node.attempts[-1].tool).effect
    yield f"{'free' if effect.is_free else effect} in flight"
    facts = {
        "gone and in flight": node.is_gone,
        "asks inside": node.state is State.HELD,
        "fallback in flight": node.on_fallback,
        "again in flight": len(node.attempts) > 1,
    }
    yield from (name for name, holds in facts.items() if holds)


def _about_a_step(node: Node) -> Iterator[str]:
    children = node.children if node.children is not None and not node.state.is_settled else None
    facts = {
        "under review": node.is_under_review,
        "back-off": node.state is State.READY and bool(node.attempts),
        "ready": node.state is State.READY and not node.attempts,
        "held": node.state is State.HELD,
        "in doubt": node.state is State.UNKNOWN,
        "for_each open": children is not None and node.missing in (0, len(children)),
        "for_each half done": children is not None and 0 < node.missing < len(children),
    }
    yield from (name for name, holds in facts.items() if holds)
