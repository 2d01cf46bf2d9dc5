"""`LiveView`: the view of a running run, and its changes since a given event.

It holds no events and no buffers, only the number of the last change of each step. So any number of readers can be
served, each from its own cursor, and a reader that comes back after an hour gets all missed changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from dagrun import events
from dagrun.events import AttemptEnded, AttemptStarted, Event, Progress, Reviewed, StepSettled
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.figures import RunFigures
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State
from dagrun.observe.view.document import changing_facts, document, last_time, question_views, shape_number
from dagrun.observe.view.history import History
from dagrun.observe.view.revisions import planner_views, revision_views
from dagrun.observe.view.shape import RunView, StepFacts
from dagrun.observe.view.steps import PlainRows, StepWriter, Values, ValueWriter
from dagrun.observe.view.waits import Slots, Waits, path_as_it_went


class LiveView:
    """Follows one run, by its events and its graph.

    It is an observer: pass it to `Run.watch`, or call `on_event` with each event, after the graph has changed. It may
    begin at any time; what was before, it reads from the graph.

    Args:
        graph: The state of the run, which this object only reads.
        owner: The process that carries out the run, in words.

    Attributes:
        seq: The number of the last event.
        is_alive: Whether a process carries out the run; set it where that is known.
        owner: That process, in words.
    """

    def __init__(self, graph: LiveGraph, owner: str = "") -> None:
        self.is_alive = True
        self._graph = graph
        self.owner = owner
        self._history = History(graph)
        self._history.read()
        self.seq = self._history.seq
        self._changed: dict[str, int] = dict.fromkeys(graph.nodes, self.seq)  # in the order of the changes
        self._known: list[int] = [self.seq] * len(graph.nodes)  # by number of step: when it came
        self._number = {id_: n for n, id_ in enumerate(graph.nodes)}
        # Steps that wait for their next attempt: their wait gets another reason at an instant that has no event.
        self._backing_off = {id_ for id_, node in graph.nodes.items() if _is_backing_off(node)}
        self._progress: dict[str, list[Any]] = {}
        self._reported: dict[str, int] = {}
        self._figures = RunFigures(graph)
        self._told = self.seq  # up to which event the sums are; no reader knows of later ones
        self._facts: dict[str, tuple[int, Any]] = {}
        self._at: float | None = None
        self._questions = self._planner = self.seq
        self._replanned = self.seq  # when needs of steps have changed last

    # As an observer ---------------------------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Note the possible changes of an event."""
        self.take((event,))

    def take(self, batch: Sequence[Event]) -> None:
        """Take some events. This is in the path of each step of a run that is looked at, and calls little."""
        changed = self._changed
        for event in batch:
            kind, self._at = type(event), event.at
            if kind is AttemptStarted:
                self.seq = event.seq
                if changed.get(event.step, -1) <= self._told:  # type: ignore[attr-defined]
                    self._mark(event.step)  # type: ignore[attr-defined]
            elif kind is AttemptEnded or kind is StepSettled or kind is Reviewed:
                self.seq = event.seq
                if kind is not StepSettled and event.decision.delay:  # type: ignore[attr-defined]
                    self._backing_off.add(event.step)  # type: ignore[attr-defined]
                if self._progress:
                    self._progress.pop(event.step, None)  # type: ignore[attr-defined]
                self._mark_around(event.step, State.WAITING)  # type: ignore[attr-defined]
            elif kind is Progress:
                self._progress[event.step] = [event.fraction, event.message]  # type: ignore[attr-defined]
                self._reported[event.step] = event.seq  # type: ignore[attr-defined]
            else:
                self.seq = event.seq
                self._on_rare(event)

    def close(self) -> None:
        """Note that no more events will come."""

    def _mark(self, step: str) -> None:
        changed = self._changed
        seq = changed.get(step, -1)
        if seq > self._told:
            return  # nobody knows of the change before this one, so both are told at once
        if seq >= 0:
            del changed[step]  # so that it stands at the end
        changed[step] = self.seq

    def _mark_around(self, step: str, but: State | None = None) -> None:
        """Mark a step that may have settled, and those whose state depends on it.

        Args:
            step: The step.
            but: A state in which there is nothing new about those: after the end of a call, what still waits for others
                has waited before.
        """
        if self._changed.get(step, -1) <= self._told:
            self._mark(step)
        node = self._graph.nodes[step]
        if node.parent is not None:
            self._mark(node.parent.id)
        elif not node.successors:
            return
        for after in self._graph.behind(node):
            if after.state is not but:
                self._mark(after.id)

    def _on_rare(self, event: Event) -> None:
        match event:
            case events.QuestionAsked():
                self._questions = self.seq
                self._mark_asked(event.question.step)
            case events.QuestionAnswered():
                self._questions = self.seq
                self._mark_asked(event.step)
            case events.Spliced():
                self._replanned = self.seq
                did = event.consequence
                touched = (*did.added, *did.dropped, *did.replaced, *did.rewired, *did.superseded, *did.unblocked)
                self._mark_with_elements(touched)
            case events.ReplanEnded():
                self._planner = self.seq
                self._mark_unsettled()
                self._mark_all(self._graph.nodes if GOAL in event.steps else event.steps)
            case events.ReplanRequested():
                self._mark_unsettled()
                self._mark_all([event.trigger.step])
            case events.StepExpanded() | events.StepResumed() | events.Hedged() | events.HedgeEnded():
                self._mark_all([event.step])
            case events.PlannerCalled() | events.DraftStarted() | events.ReplanStarted():
                self._planner = self.seq
            case events.ModelReserved() | events.ModelCharged() | events.PlannerAsked() | events.CeilingNear():
                pass
            case _:  # the run begins, pauses, or ends; a draft is complete; the goal is another one
                self._planner = self.seq
                self._mark_unsettled()
                self._mark_all(event.steps if isinstance(event, events.RunReopened) else ())

    def _mark_all(self, steps: Iterable[str]) -> None:
        for step in list(steps):
            if step in self._graph.nodes:
                self._mark_around(step)

    def _mark_asked(self, step: str) -> None:
        """Mark the steps that wait for an answer: a step and its elements, or all steps that wait for a patch."""
        if not step:
            self._mark_unsettled()
        else:
            self._mark_with_elements([step])

    def _mark_with_elements(self, steps: Iterable[str]) -> None:
        nodes = self._graph.nodes
        known = [nodes[id_] for id_ in steps if id_ in nodes]
        self._mark_all(part.id for node in known for part in (node, *(node.children or ())))

    def _mark_unsettled(self) -> None:
        self._mark_all(id_ for id_, node in self._graph.nodes.items() if not node.state.is_settled)

    # For readers ------------------------------------------------------------------------------------------

    def document(self, values: Values = "none", at: float | None = None) -> RunView:
        """Return the whole view; see `view_of`.

        Args:
            values: How much is shown of each value.
            at: The time in the run, for what still runs and waits; `None` for the time of the last event.
        """
        self._sync()
        return document(
            self._graph,
            history=self._history,
            figures=self._figures,
            at=self._time(at),
            seq=self.seq,
            values=values,
            is_alive=self.is_alive,
            owner=self.owner,
            progress=self._progress,
        )

    def step(self, n: int, values: Values = "full", at: float | None = None) -> StepFacts:
        """Return one step with its arguments and its output.

        Raises:
            LookupError: There is no such step.
        """
        self._sync()
        if not 0 <= n < len(self._known):
            raise LookupError(f"there is no step number {n}")
        node = next(islice(self._graph.nodes.values(), n, None))
        return self._writer(Waits(self._graph, self._history, self._time(at))).step(
            node, ValueWriter(self._graph, values)
        )

    def shape(self, *, with_path: bool = False) -> dict[str, Any]:
        """Return the part of the view that a drawing of the graph needs, which costs less than the whole.

        Args:
            with_path: Whether the critical path is in it, too; that takes a look at all that ran.
        """
        self._sync()
        nodes, number = self._graph.nodes, self._number
        writer = self._writer(self._waits(None))
        steps = [
            {
                "n": n,
                "id": node.id,
                "tool": node.plan.step.tool,
                "parent": None if node.parent is None else number[node.parent.id],
                **writer.shape(node),
            }
            for n, node in enumerate(nodes.values())
        ]
        path = [number[node.id] for node, _ in path_as_it_went(self._graph, self._history)] if with_path else []
        for n in path:
            steps[n]["on_path"] = True
        return {"steps": steps, "path": path}

    def changes(self, after: int, at: float | None = None) -> dict[str, Any]:
        """Return the changes since the event number *after*, for a reader that has the view of that event.

        Args:
            after: The `seq` of the view, or of the last changes, that the reader has.
            at: As for `document`.

        Returns:
            ``seq`` and ``at``; ``run``, the facts about the run that have changed (always ``state``, ``owner`` and
            ``makespan``); ``added``, new steps as a whole, without values; ``steps``, by number as text, the fields of
            older steps that may have changed; ``plain``, the same of steps of which there is nothing to say but when,
            see `PlainRows`; ``graph``, as in the view; ``questions`` and ``planner``, whole lists, if they have
            changed, else empty; ``revisions``, the new ones; ``progress``, by number, the last report of running tools.
            The critical path is in the view alone.
        """
        self._sync()
        now = self._time(at)
        nodes, number, known = self._graph.nodes, self._number, self._known
        waits = self._waits(now)
        writer = self._writer(waits)
        self._backing_off = {id_ for id_ in self._backing_off if _is_backing_off(nodes[id_])}
        late = sorted(self._backing_off.difference(self._since(after))) if self._backing_off else ()
        changed = [id_ for id_ in chain(self._since(after), late) if known[number[id_]] <= after]
        plain = PlainRows(self._graph, waits, number, self._progress)
        if after >= self._replanned:  # what a row does not say is as it was
            changed = plain.take(changed)
        none = ValueWriter(self._graph, "none")
        first = bisect_right(known, after)
        added = [writer.step(node, none) for node in list(nodes.values())[first:]] if first < len(nodes) else []
        redactor = self._graph.plan.redactor
        return {
            "seq": self.seq,
            "at": round(now, 6),
            "run": self._facts_since(after, now),
            "steps": {str(number[id_]): writer.changing(nodes[id_]) for id_ in reversed(changed)},
            "plain": plain.groups(),
            "added": added,
            "graph": shape_number(self._graph),
            "questions": question_views(self._graph, self._history) if self._questions > after else [],
            "planner": planner_views(self._history, redactor) if self._planner > after else [],
            "revisions": self._revisions_since(after),
            "progress": {
                str(number[id_]): report
                for id_, report in self._progress.items()
                if self._reported[id_] >= after and id_ in number
            },
        }

    def _since(self, after: int) -> Iterable[str]:
        """Yield the steps that have changed after an event, the last ones first."""
        for id_, seq in reversed(self._changed.items()):
            if seq <= after:
                return
            yield id_

    def _waits(self, at: float | None) -> Waits:
        return Waits(self._graph, self._history, self._time(at))

    def _writer(self, waits: Waits) -> StepWriter:
        writer = StepWriter(self._graph.plan.redactor, self._history, waits, self._number)
        writer.progress = self._progress
        return writer

    def _time(self, at: float | None) -> float:
        if self._history.ended is not None:
            return self._history.ended
        known = last_time(self._graph, self._history) if self._at is None else self._at
        return known if at is None else max(at, known)

    def _sync(self) -> None:
        """Add the events since the last read."""
        self._history.read()
        nodes, first = self._graph.nodes, len(self._known)
        new = list(nodes)[first:] if len(nodes) > first else []
        for id_ in new:
            self._number[id_] = len(self._known)
            self._known.append(self.seq)
        self._figures.take(chain(self._since(self._told), new))
        self._told = self.seq

    def _facts_since(self, after: int, at: float) -> dict[str, Any]:
        """Return the facts about the run that have changed after an event."""
        owner, slots = self.owner, Slots(self._graph, at)
        facts = changing_facts(
            self._graph, self._history, self._figures, slots, at, is_alive=self.is_alive, owner=owner
        )
        for name, fact in facts.items():
            if name not in self._facts or self._facts[name][1] != fact:
                self._facts[name] = (self.seq, fact)
        always = ("state", "stand", "owner", "makespan")  # these change without an event
        return {name: fact for name, (seq, fact) in self._facts.items() if seq > after or name in always}

    def _revisions_since(self, after: int) -> list[Any]:
        """Return the changes of the plan after an event."""
        changes = [e for e in self._graph.rare if isinstance(e, events.Spliced | events.GoalChanged)]
        known = {number: event.seq for number, event in enumerate(changes, 1)}
        if not any(seq > after for seq in known.values()):
            return []
        views = revision_views(self._graph, self._history, self._number)
        return [view for view in views if known.get(view["number"], self.seq) > after]


def _is_backing_off(node: Node) -> bool:
    """Return whether a step waits for its next attempt."""
    latest = node.latest
    return (
        node.state is State.READY and latest is not None and latest.decision is not None and latest.decision.delay > 0
    )
