"""Why a step waited: for a slot, for the end of a back-off, for a person, or for the planner; and the critical path.

A step waits from the instant at which it was *due*: everything that it needs had ended, and it was in the plan. Each
part of the time from then to its first call, and between its calls, belongs to one reason. A time in which a person was
asked belongs to the person, whatever else was the matter; then comes the planner, then a back-off. What is left is the
time in which the step could have run and had no slot; `Slots` says which limit was reached.

The critical path as it happened goes back from the last step to end, over the step that made each one ready.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

from dagrun.kernel.graph.live_graph import LiveGraph, may_start_early
from dagrun.kernel.graph.mapped_steps import elements_for, source_of
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State
from dagrun.observe.view.history import FOREVER, History, ReplanWait, Span, pause_spans, person_spans

REASONS: Final = ("slot", "backoff", "person", "planner")

# Shorter than this, a step waits only for its turn in the loop, in seconds; that needs no explanation.
SHORT: Final = 0.001

_OF_ELEMENTS: Final = "max_parallel of "

_FIRST: Final = (0, 0.0)  # the revision and the time of the steps of the first plan


@dataclass(slots=True)
class Wait:
    """One wait of a step, in seconds since the start of the run.

    Attributes:
        reason: One of `REASONS`.
        start: When it began.
        end: When it ended, or the time of the view.
        limit: The limit that was full, for a slot; empty if the turn of the step had not come.
        lasts: Whether the step still waits.
    """

    reason: str
    start: float
    end: float
    limit: str = ""
    lasts: bool = False


class Slots:
    """The slots of one run. Calls are counted when that is asked for.

    Args:
        graph: The state of the run.
        at: Now, for steps that still run.
    """

    def __init__(self, graph: LiveGraph, at: float) -> None:
        policy = graph.plan.policy
        self._most: dict[str, int] = {
            **{f"tool {name}": limit for name, limit in policy.max_running_by_tool.items()},
        }
        for name, pool in policy.pools.items():
            if pool.max_running is not None:
                self._most[f"pool {name}"] = pool.max_running
        if policy.max_running is not None:
            self._most["max_running"] = policy.max_running
        self._graph = graph
        self._now = at
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    @property
    def has_limits(self) -> bool:
        """Whether the policy limits the steps that run at once."""
        return bool(self._most)

    @cached_property
    def _calls(self) -> dict[str, tuple[list[float], list[float]]]:
        """The starts and the ends of all calls under each limit, in order."""
        calls: dict[str, tuple[list[float], list[float]]] = {}
        for node in self._graph.nodes.values():
            for key in self.limits_of(node) if node.latest is not None else ():
                starts, ends = calls.setdefault(key, ([], []))
                for attempt in node.attempts:
                    starts.append(attempt.started)
                    ends.append(self._now if attempt.ended is None else attempt.ended)
        for starts, ends in calls.values():
            starts.sort()
            ends.sort()
        return calls

    def full(self, node: Node, at: float) -> str:
        """Return the limit of *node* that was reached at a time; empty if none was."""
        for key in self.limits_of(node):
            starts, ends = self._calls.get(key, ((), ()))
            if bisect_right(starts, at) - bisect_left(ends, at) >= self._most[key]:
                return key
        return ""

    def limits_of(self, node: Node) -> Iterator[str]:
        """Yield the limits that count *node*, the narrowest first."""
        parent = node.parent
        if parent is not None and parent.plan.step.max_parallel is not None:
            key = f"{_OF_ELEMENTS}{parent.id}"
            self._most.setdefault(key, parent.plan.step.max_parallel)
            yield key
        if self._most and not node.is_expandable:
            yield from self._limits_of_calls(node)

    def _limits_of_calls(self, node: Node) -> tuple[str, ...]:
        plan = node.plan
        key = (plan.tool, plan.fallback, plan.pool)
        known = self._known.get(key)
        if known is None:
            tools = [tool for tool in (plan.tool, plan.fallback) if tool is not None]
            pools = [f"pool {pool}" for pool in (plan.pool, *(tool.pool for tool in tools)) if pool]
            names = dict.fromkeys((*(f"tool {tool.name}" for tool in tools), *pools, "max_running"))
            known = self._known[key] = tuple(name for name in names if name in self._most)
        return known

    def taken(self, running: Iterable[Node]) -> dict[str, list[int]]:
        """Return, by limit, how many of its slots are taken by *running* steps, and how many there are."""
        taken = Counter(key for node in running for key in self.limits_of(node))
        shown = (key for key in sorted(self._most) if taken[key] or not key.startswith(_OF_ELEMENTS))
        return {key: [taken[key], self._most[key]] for key in shown}


Layer = tuple[str, Sequence[Span]]


def split(start: float, end: float, layers: Sequence[Layer]) -> Iterator[Wait]:
    """Cut a stretch of time into waits: each part belongs to the first layer that covers it, the rest to ``slot``."""
    if start >= end:
        return
    if not layers:
        yield Wait("slot", start, end)
        return
    cuts = {start, end}
    for _, spans in layers:
        cuts.update(at for span in spans for at in (span.start, span.end) if start < at < end)
    points = sorted(cuts)
    last: Wait | None = None
    for begin, stop in pairwise(points):
        reason = next((reason for reason, spans in layers if _covers(spans, begin, stop)), "slot")
        if last is not None and last.reason == reason:
            last.end = stop
            continue
        if last is not None:
            yield last
        last = Wait(reason, begin, stop)
    if last is not None:
        yield last


def _covers(spans: Sequence[Span], start: float, end: float) -> bool:
    return any(span.start <= start and end <= span.end for span in spans)


class Waits:
    """Finds out why the steps of one run waited.

    Args:
        graph: The state of the run.
        history: The facts of its rare events.
        at: The time of the view: what waits then has waited until then.

    Attributes:
        slots: The limits on steps that run at once.
    """

    def __init__(self, graph: LiveGraph, history: History, at: float) -> None:
        self._graph = graph
        self._history = history
        self._at = at
        self._brought = history.origins.brought
        self.slots = Slots(graph, at)
        self._behind = _behind(graph, history.replans)
        # Where neither a person nor the planner was asked, steps wait for slots and back-offs alone.
        planner = [*history.held, *history.frozen, *(replan.at for replan in history.replans)]
        self._is_quiet = not (history.questions or planner)
        self._planner_until = max((span.end for span in planner), default=0.0)
        self._dues: dict[str, float | None] = {}

    def ready_at(self, node: Node) -> float | None:
        """Return when everything that *node* needs was there; `None` if it still is not."""
        due, end = self._due(node), self._history.end_of(node)
        if due is None or node.state in (State.WAITING, State.BLOCKED) or (end is not None and end < due):
            return None
        if self._is_quiet:
            return due
        left = self._at if end is None else end
        ends = [span.end for span in self._planner_spans(node, due) if span.end <= left]
        return max((due, *ends))

    def plain_due(self, node: Node) -> float | None:
        """Return when everything that *node* needs was there, if nothing but a slot can explain a wait since then.

        It takes no look at the calls of the step, which must have had one at most.

        Returns:
            `None` if there may be more to tell, or the step still needs something.
        """
        due = self._looked_up(node)
        if due is None or self._is_quiet:
            return due
        if due < self._planner_until or node.id in self._behind:
            return None
        return None if self._history.questions and self._may_be_asked_about(node) else due

    def _may_be_asked_about(self, node: Node) -> bool:
        """Return whether a person was asked about *node*, or about something before it."""
        about = (node.id, *node.plan.depends_on, *(() if node.parent is None else (node.parent.id,)))
        return any(self._history.asked_about(id_) for id_ in about)

    def of(self, node: Node) -> list[Wait]:
        """Return the waits of *node*, in order."""
        due = self._due(node)
        if self._is_quiet and node.ended is None and not node.earlier and node.state.is_settled:
            call = node.latest
            if call is not None and due is not None and call.started - due < SHORT:
                return []  # it was called once, and at once: most steps of a run that has room for them
        found: list[Wait] = list(self._blocked(node, due))
        if due is None:
            return found
        people = list(person_spans(self._history, node))
        ends = self._history.end_of(node)
        for start, end, delay in self._gaps(node, due, FOREVER if ends is None else ends):
            parts = split(start, end, self._layers(node, start, delay, people))
            found += (wait for wait in map(self._until_now, parts) if self._counts(wait, node))
        for attempt in node.attempts:  # a tool that asks in the middle of its call
            stop = FOREVER if attempt.ended is None else attempt.ended
            found += (
                self._until_now(Wait("person", max(span.start, attempt.started), min(span.end, stop)))
                for span in people
                if max(span.start, attempt.started) < min(span.end, stop)
            )
        return sorted(found, key=lambda wait: wait.start)

    def _until_now(self, wait: Wait) -> Wait:
        """Cut a wait at the time of the view."""
        if wait.end > self._at:
            wait.end, wait.lasts = self._at, True
        return wait

    def _layers(self, node: Node, start: float, delay: float, people: list[Span]) -> list[Layer]:
        """Return the possible reasons for a stretch in which *node* did not run, in the order of precedence."""
        is_first = node.latest is None or start < node.attempts[0].started
        layers: list[Layer] = []
        if asked := [*people, *(pause_spans(self._history, node) if is_first else ())]:
            layers.append(("person", asked))
        if planner := list(self._planner_spans(node, start)):
            layers += self._planner_layers(planner)
        if delay:
            layers.append(("backoff", [Span(start, start + delay)]))
        return layers

    def _planner_layers(self, planner: list[Span]) -> list[Layer]:
        """Return the layers of a planner at work: while a person reviews its patch, the wait is for the person."""
        patches = [asked.open for asked in self._history.asked_about("")]
        looked = [Span(max(p.start, q.start), min(p.end, q.end)) for p in planner for q in patches]
        return [("person", looked), ("planner", planner)] if looked else [("planner", planner)]

    def _counts(self, wait: Wait, node: Node) -> bool:
        """Whether a wait is long enough to report; determine the limit it was for."""
        if wait.start > self._at:
            return False
        if wait.reason != "slot":
            return True
        if wait.lasts:
            return True  # which limit is full changes while it lasts: the facts about the run say that
        if wait.end - wait.start < SHORT:
            return False
        wait.limit = self.slots.full(node, (wait.start + wait.end) / 2)
        return True

    def _due(self, node: Node) -> float | None:
        """Return when all needs of *node* had ended, and it was in the plan; `None` if that was never so."""
        if node.id not in self._dues:
            self._dues[node.id] = self._looked_up(node)
        return self._dues[node.id]

    def _looked_up(self, node: Node) -> float | None:
        at = self._brought.get(node.id, _FIRST)[1]
        if node.parent is not None:
            source = source_of(node)
            end = 0.0 if source is None else self._history.end_of(source)
            return None if end is None else max(at, node.parent.expanded or 0.0, end)
        for need in node.plan.depends_on:
            end = self._end_for(node, self._graph.nodes[need])
            if end is None:
                return None
            at = max(at, end)
        begun = node.attempts[0].started if node.latest is not None else node.expanded
        if begun is not None:
            return min(at, begun)  # a need that was opened again has ended later than the step has begun
        return None if node.state.is_settled and self._was_barred(node) else at

    def _end_for(self, node: Node, need: Node) -> float | None:
        """Return when *node* had its input from *need*: of a for_each perhaps single elements, or their number."""
        elements = elements_for(need, node.plan) if need.children is not None else None
        if elements is None:
            return self._history.end_of(need)
        ends = [self._history.end_of(element) for element in elements]
        return None if None in ends else max((need.expanded or 0.0, *(end for end in ends if end is not None)))

    def _was_barred(self, node: Node) -> bool:
        """Whether a step that never began could not have begun: a step that it needs had not succeeded."""
        needs = (self._graph.nodes[need] for need in node.plan.depends_on)
        return any(
            need.state is not State.SUCCEEDED and (need.children is None or self._graph.blocks(need, node))
            for need in needs
        )

    def _gaps(self, node: Node, due: float, end: float) -> Iterator[tuple[float, float, float]]:
        """Yield the stretches in which *node* did not run, each with its back-off at the beginning."""
        since, delay = due, 0.0
        begins = node.attempts if node.expanded is None else ()
        for attempt in begins:
            yield since, attempt.started, delay
            if attempt.ended is None:
                return
            delay = attempt.decision.delay if attempt.decision is not None else 0.0
            since = self._history.reviewed_after(node.id, attempt.ended)
        if node.expanded is not None:
            yield since, node.expanded, delay
        elif since < end and not node.is_under_review:
            yield since, end, delay

    # People and the planner -------------------------------------------------------------------------------

    def _planner_spans(self, node: Node, since: float) -> Iterator[Span]:
        """Yield the times after *since* in which *node* waited for the planner."""
        history = self._history
        begun = node.attempts[0].started if node.latest is not None else FOREVER
        if since > begun:
            return
        for span in history.held:
            if span.end > since and span.start < begun and not may_start_early(self._graph, node.plan):
                yield span
        yield from (span for span in history.frozen if span.end > since and span.start < begun)
        for wait, _ in self._behind.get(node.id, ()):
            if wait.at.end > since and wait.at.start < begun:
                yield wait.at

    def _blocked(self, node: Node, due: float | None) -> Iterator[Wait]:
        """Yield the waits for the planner that ended before *node* was due: its other dependencies had ended then."""
        for wait, chain in self._behind.get(node.id, ()):
            others = self._latest_end(node, (id_ for id_ in node.plan.depends_on if id_ not in chain))
            if others is None:
                continue  # it waited for another step all the time
            start = max(wait.at.start, others, self._brought.get(node.id, _FIRST)[1])
            until = [end for end in (due, self._history.end_of(node)) if end is not None]
            parts = split(start, min((wait.at.end, *until)), self._planner_layers([wait.at]))
            yield from (self._until_now(part) for part in parts if part.reason != "slot" and part.start <= self._at)

    def _latest_end(self, node: Node, ids: Iterable[str]) -> float | None:
        ends = [self._end_for(node, self._graph.nodes[id_]) for id_ in ids]
        return None if None in ends else max((end for end in ends if end is not None), default=0.0)


def _behind(graph: LiveGraph, replans: Sequence[ReplanWait]) -> dict[str, list[tuple[ReplanWait, frozenset[str]]]]:
    """Return the steps that waited for the planner, by id, with the dependencies concerned.

    Those are the step that the planner was asked about, and all that stand in its place.
    """
    behind: dict[str, list[tuple[ReplanWait, frozenset[str]]]] = {}
    for wait in replans:
        chain: list[str] = []
        at = wait.step
        while at and at in graph.nodes and at not in chain:
            chain.append(at)
            extra = graph.nodes[at].extra
            at = extra.substitute if extra is not None else ""
        for after in {after.id: after for id_ in chain for after in graph.behind(graph.nodes[id_])}:
            behind.setdefault(after, []).append((wait, frozenset(chain)))
    return behind


# The critical path ----------------------------------------------------------------------------------------------------

_SAME = 1e-6  # seconds: times are rounded to microseconds


def path_as_it_went(graph: LiveGraph, history: History) -> list[tuple[Node, float]]:
    """Return the critical path, first step first, each with the time from which its waits are on the path.

    A for_each stands for its last element. A step that a planner has brought was made ready by its splice, and so by
    the step because of which the planner was asked.

    Args:
        graph: The state of the run.
        history: The facts of its rare events.
    """
    path: list[tuple[Node, float]] = []
    at = _last(graph, history)
    seen: set[str] = set()
    while at is not None and at.id not in seen:
        seen.add(at.id)
        before, since = _before(graph, history, at)
        path.append((at, since))
        at = before
    return path[::-1]


def _last(graph: LiveGraph, history: History) -> Node | None:
    """Return the step that ended last, or that was called last, if none has ended."""
    best: tuple[float, Node] | None = None
    for node in graph.nodes.values():
        if node.parent is not None or not node.has_started:
            continue
        end = _end(node, history)
        if end is not None and (best is None or end > best[0] + _SAME):
            best = (end, node)
    return best[1] if best is not None else None


def _end(node: Node, history: History) -> float | None:
    """Return the end of a step that was called, or of its last element; of one that runs, its start."""
    end = history.end_of(node)
    if end is not None or node.latest is None:
        return end
    return node.latest.ended if node.latest.ended is not None else node.latest.started


def _before(graph: LiveGraph, history: History, node: Node) -> tuple[Node | None, float]:
    """Return the step that made *node* ready, and when it did so; of a for_each, its element that ended last."""
    if (source := source_of(last_element(node, history))) is not None and source.parent is not None:
        return source.parent, history.end_of(source) or 0.0
    if node.plan.stream and (read := _read_to_its_end(graph, node, history)) is not None:
        return read
    begun = node.attempts[0].started if node.latest is not None else node.expanded
    limit = FOREVER if begun is None else begun + _SAME
    latest: tuple[float, Node] | None = None
    for id_ in node.plan.depends_on:
        need = graph.nodes[id_]
        end = history.end_of(need)
        if end is not None and end <= limit and need.has_started and (latest is None or end > latest[0] + _SAME):
            latest = (end, need)
    revision, at = history.origins.brought.get(node.id, (0, 0.0))
    cause = graph.nodes.get(history.triggers.get(revision, ""))
    if cause is not None and (latest is None or at > latest[0] + _SAME):
        end = history.end_of(cause)
        return cause, min(at, end) if end is not None else at
    return (latest[1], latest[0]) if latest is not None else (None, 0.0)


def _read_to_its_end(graph: LiveGraph, node: Node, history: History) -> tuple[Node, float] | None:
    """Return the for_each whose elements a call has waited for, one by one, and its end; `None` if it has not."""
    fan = graph.nodes.get(node.plan.stream)
    end = history.end_of(fan) if fan is not None and fan.children else None
    if fan is None or end is None or node.latest is None or end <= node.latest.started + _SAME:
        return None
    return fan, end


def last_element(node: Node, history: History) -> Node:
    """Return the element of a for_each that ended last; any other step itself."""
    return max(node.children, key=lambda child: history.end_of(child) or 0.0) if node.children else node


def element_on_path(path: list[tuple[Node, float]], place: int, history: History) -> Node:
    """Return the element of a for_each on the path that the next one went through, or else that ended last."""
    node = path[place][0]
    for after, _ in path[place + 1 : place + 2]:
        if node.children and after.extra is not None and after.extra.over is node:
            return node.children[element_on_path(path, place + 1, history).index]
    return last_element(node, history)


def gaps_on(
    path: list[tuple[Node, float]], waits: Callable[[Node], list[Wait]], history: History
) -> list[tuple[str, float, Node]]:
    """Return the waits on the path: the reason, the seconds, and the step that waited.

    A wait counts from the instant at which the step before on the path had ended. The time that a planner took before
    it brought a step is counted there, too.
    """
    gaps: list[tuple[str, float, Node]] = []
    brought = history.origins.brought
    for place, (node, since) in enumerate(path):
        parts = waits(node)
        if node.children:
            parts = [*parts, *waits(element_on_path(path, place, history))]
        if node.id in brought:
            until = brought[node.id][1]
            parts = [*(Wait("planner", work.at.start, min(work.at.end, until)) for work in history.planner), *parts]
        for wait in parts:
            seconds = wait.end - max(wait.start, since)
            if seconds > _SAME:
                gaps.append((wait.reason, seconds, node))
    return gaps
