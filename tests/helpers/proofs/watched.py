"""Parts of a run that watch themselves while they do their work: they check every rule at every transition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun import Answer, Asked, Event, State
from dagrun.events import (
    GoalChanged,
    QuestionAnswered,
    QuestionAsked,
    ReplanEnded,
    ReplanRequested,
    ReplanStarted,
    Spliced,
)
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Cap, Node
from dagrun.kernel.graph.patches.check_patch import Splicer
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.model.value import decode
from random_cases import Definition
from rules import may_happen, miscounted
from splice_book import Book
from splice_rules import Before, Check, WatchedSplicer, before_splice, wrongly_spliced

MAX_EVENTS: Final = 5_000  # no case needs so many: a run that makes more would go on for ever


class Runaway(Exception):
    """A run makes events without end."""


@dataclass
class Watch:
    """What happened in a simulation, and every rule that was broken.

    Attributes:
        broken: The rules, in words.
        frontiers: All that were made.
        taken_under: How many steps were taken and not given back, by cap.
        counts: What was exercised, by name.
        is_interrupted: Whether the code around a run was cancelled. The alarms of the run end with that: a step that
            will not stop is then dropped the next time that it suspends, which may be after its grace period.
    """

    broken: list[str] = field(default_factory=list)
    frontiers: list[WatchedFrontier] = field(default_factory=list)
    taken_under: Counter[Cap] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    is_interrupted: bool = False

    def parts(self, replacements: Mapping[Any, Any]) -> dict[Any, Any]:
        """Replacements that watch: those given, or else the parts themselves."""
        graph, frontier = replacements.get(LiveGraph, LiveGraph), replacements.get(Frontier, Frontier)
        splicer = replacements.get(Splicer, Splicer)
        change = replacements.get(apply, apply)

        def watching(graph: LiveGraph, event: Event, node: Node | None = None) -> None:
            if isinstance(graph, WatchedGraph):
                graph.watch_change(event, lambda: change(graph, event, node))
            else:
                change(graph, event, node)

        watched = {
            apply: watching,
            LiveGraph: type("AnyWatchedGraph", (WatchedGraph, graph), {"watch": self}),
            Frontier: type("AnyWatchedFrontier", (WatchedFrontier, frontier), {"watch": self}),
            Splicer: type("AnyWatchedSplicer", (WatchedSplicer, splicer), {"watch": self}),
        }
        return dict(replacements) | watched


class WatchedGraph(LiveGraph):
    """Checks each event before it is applied, and itself afterwards.

    Attributes:
        applied: Every event so far.
        book: The plan as it should stand.
        last_check: The last patch that was found right.
        open: The steps about which the planner is to be asked, or is being asked; an empty id stands for the goal.
        prints: The fingerprint of each failure that the planner was to be asked about, by step.
        seen: Those that it was asked about.
        asked: What each request is about that the planner is thinking about, by its number.
        done: How every step that has settled had settled.
        questions_about: The calls that a person was asked about, by question: step, its definition, its arguments.
        approved: Those to which a person has said yes.
    """

    watch: Watch

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.applied: list[Event] = []
        self.book = Book(self.plan.plan)
        self.last_check: Check | None = None
        self.open: set[str] = set()
        self.prints: dict[str, str] = {}
        self.seen: set[str] = set()
        self.asked: dict[int, tuple[str, ...]] = {}
        self.done: dict[str, tuple[Any, ...]] = {}
        self.questions_about: dict[str, tuple[str, Definition, Any]] = {}
        self.approved: list[tuple[str, Definition, Any]] = []

    def watch_change(self, event: Event, apply_event: Callable[[], None]) -> None:
        """Apply an event, and compare the state before and after it with the rules."""
        wrong = [f"{problem}, by {event}" for problem in may_happen(self, self.applied, event)]
        before: Before | None = None
        if isinstance(event, Spliced):
            before, more = before_splice(self, event)
            wrong += more
        apply_event()
        self.applied.append(event)
        if before is not None:
            self.book.turn(before.change)
            wrong += [f"{problem}, after {event}" for problem in wrongly_spliced(self, before)]
        self._note(event)
        wrong += [f"{problem}, after {event}" for problem in (*miscounted(self), *self._undone())]
        self.watch.broken += wrong[:20]
        if len(self.applied) > MAX_EVENTS:
            raise Runaway

    def _note(self, event: Event) -> None:
        match event:
            case GoalChanged():
                self.book.touched.append(set())
                self.book.carried.append(set())
            case ReplanRequested():
                self.open.add(event.trigger.step)
                self.prints[event.trigger.step] = event.trigger.fingerprint
            case ReplanStarted():
                self.asked[event.number] = event.steps
            case QuestionAsked(question=question) if question.kind is Asked.APPROVAL:
                call = (question.step, self.book.definition(self.nodes[question.step]), decode(question.arguments))
                self.questions_about[question.id] = call
            case QuestionAnswered(answer=Answer(choice="approve")) if event.question in self.questions_about:
                self.approved.append(self.questions_about[event.question])
            case ReplanEnded():
                self.open.difference_update(event.steps)
                self.seen.update(event.fingerprints)
                self.asked.pop(event.number, None)

    def _undone(self) -> Iterator[str]:
        """What has settled is done: it keeps its state, its value, its calls and its definition."""
        for id_, node in self.nodes.items():
            if node.state.is_settled:
                value = None if self.releasing is not None else node.value  # it may be gone by now
                end = (node.state, value, len(node.attempts), node.plan)
                if self.done.setdefault(id_, end) != end:
                    yield f"{node} had settled as {self.done[id_][0]}, and has changed since"
            elif id_ in self.done:
                yield f"{node} had settled as {self.done[id_][0]}"


class WatchedFrontier(Frontier):
    """Checks that each step is taken once and given back once, and that the counts of its caps are right."""

    watch: Watch

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.taken: list[Node] = []
        self.taken_back: list[Node] = []  # on their way to a worker, who gives their slots back when it begins
        self.watch.frontiers.append(self)

    def take(self) -> Node | None:
        node = super().take()
        if node is not None:
            if node in self.taken or node.state is not State.READY:
                self.watch.broken.append(f"{node} was taken while it ran, or was not ready")
            self.taken.append(node)
            self._count(node, 1)
        return node

    def withdraw(self, nodes: Collection[Node]) -> None:
        super().withdraw(nodes)
        for node in set(nodes).intersection(self.taken):
            self.taken.remove(node)
            self.taken_back.append(node)

    def release(self, node: Node) -> None:
        if node not in self.taken and node not in self.taken_back:
            self.watch.broken.append(f"{node} was given back and had not been taken")
        else:
            (self.taken_back if node in self.taken_back else self.taken).remove(node)
            self._count(node, -1, is_settled=False)
        super().release(node)
        self._compare(node)

    def _caps(self, node: Node) -> list[Cap]:
        if self.priorities is None:
            return []
        return [*node.caps, self._total] if self._total is not None else list(node.caps)

    def _count(self, node: Node, change: int, *, is_settled: bool = True) -> None:
        for cap in self._caps(node):
            self.watch.taken_under[cap] += change
        if is_settled:
            self._compare(node)

    def _compare(self, node: Node) -> None:
        for cap in self._caps(node):
            if cap.used != self.watch.taken_under[cap]:
                self.watch.broken.append(f"a cap counts {cap.used}, but {self.watch.taken_under[cap]} were taken")
            if cap.used > cap.limit:
                self.watch.broken.append(f"{cap.used} run under a cap of {cap.limit}")
