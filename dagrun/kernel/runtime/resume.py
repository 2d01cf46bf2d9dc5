"""Resuming a run: applying the consequences that a crash cut off, and restarting interrupted work.

The state is the fold of the records, and they may break off anywhere: between the end of a step and what follows from
it, for instance. So everything that follows from the state is done again, each in a way that changes nothing if it
had been done already. Nothing here depends on what the earlier process had in memory.
"""

from __future__ import annotations

from anyio.abc import TaskGroup

from dagrun.kernel.decide.recovery import NO_PLAN_NOR_PLANNER, NO_PLANNER
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.fold import lost, restore
from dagrun.kernel.graph.live_graph import PAUSE, REPLAN
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.output_eviction import drop_values
from dagrun.kernel.model.outcome import Recovery, State, Status, TriggerKind
from dagrun.kernel.model.question import Asked, Question
from dagrun.kernel.model.value import Unavailable, is_lost_object
from dagrun.kernel.runtime.planning.coordinator import Coordinator
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.scheduler import Scheduler

_DELAYED = (Recovery.RETRY, Recovery.FALL_BACK)


class Resumption:
    """Brings the parts of one run into the state of its record.

    Args:
        parts: What the parts of the run share; the state has been folded.
        scheduler: Ends the attempts that were cut off, and resumes reviews.
        coordinator: Gets the open requests; `None` if there is no planner.
        tasks: The task group of the run.
        was_over: Whether the run had ended, and is open again: the end of a step that ended it does not do so again.
    """

    def __init__(
        self,
        parts: RunParts,
        scheduler: Scheduler,
        coordinator: Coordinator | None,
        tasks: TaskGroup,
        *,
        was_over: bool = False,
    ) -> None:
        self._graph = parts.graph
        self._record = parts.record
        self._frontier = parts.frontier
        self._people = parts.people
        self._accounts = parts.accounts
        self._ledger = parts.ledger
        self._scheduler = scheduler
        self._coordinator = coordinator
        self._tasks = tasks
        self._was_over = was_over

    def resume(self) -> None:
        """Apply everything that is missing, then release the outputs that are no longer needed."""
        self._make_up()
        drop_values(self._graph)

    def _make_up(self) -> None:
        """Apply everything that is missing; the order matters, as each part builds on the one before."""
        graph, nodes = self._graph, list(self._graph.nodes.values())
        restore(self._ledger, graph)
        if graph.stopping is not None:
            _, reason = graph.stopping
            self._end_run(reason)
            return
        self._close_void_questions()
        asked = list(graph.questions.values())
        for node in nodes:  # all of them first: what follows from one may end the run
            if node.is_in_flight:
                self._scheduler.end_interrupted(node)
            elif node.children is not None:
                self._record.take_over(node)
        self._line_up([node for node in nodes if node.state is State.READY])
        self._get_lost_outputs()
        for node in nodes:
            if graph.stopping is None:
                self._follow_up(node)
        if graph.stopping is None:
            self._begin_again(nodes, asked)

    def _begin_again(self, nodes: list[Node], asked: list[Question]) -> None:
        """Restart the work of critics, people and the planner."""
        for node in nodes:
            if node.is_under_review:
                self._tasks.start_soon(self._scheduler.review_again(node), name="dagrun review")
        if self._graph.saving is not None:
            self._accounts.drop_optional()
        for question in asked:  # questions that were opened just now are being asked already
            if question.id in self._graph.questions:
                self._people.request_answer(question)
        self._go_on_planning()

    def _line_up(self, ready: list[Node]) -> None:
        delays = [(node, self._delay(node)) for node in ready]  # once: a delay may end between two looks at the clock
        self._frontier.refill([node for node, delay in delays if delay <= 0])
        for node, delay in delays:
            if delay > 0:
                self._scheduler.endings.try_again(node, delay)

    def _delay(self, node: Node) -> float:
        """Return the seconds until a step may be tried again."""
        last = node.attempts[-1] if node.attempts else None
        if last is None or last.ended is None or last.decision is None or last.decision.recovery not in _DELAYED:
            return 0.0
        return last.ended + last.decision.delay - self._record.at()

    def _end_run(self, reason: str) -> None:
        """Finish ending a run that was being ended early."""
        graph, record = self._graph, self._record
        self._close_void_questions()
        nodes = list(graph.nodes.values())
        for node in nodes:
            if node.is_in_flight or node.is_under_review:
                self._scheduler.end_interrupted(node, reason)
        unasked = tuple(id_ for id_, why in graph.kept.items() if REPLAN in why and id_ not in graph.triggers)
        if unasked:
            record.end_replan(0, "stopped", reason, unasked)
        for node in nodes:  # a crash may have cut off what followed from their ends
            if not node.state.is_settled:
                self._join(node)
            elif node.id not in graph.kept:
                record.after_end(node)
        self._scheduler.finish.settle_rest(reason)

    def _close_void_questions(self) -> None:
        """Close the questions that nothing waits for: tools and planners ask them again."""
        for question in list(self._graph.questions.values()):
            node = self._graph.nodes[question.step] if question.step else None
            if node is None and question.kind in (Asked.PATCH, Asked.INPUT):
                self._record.answer(question, None, reason="it is asked about anew")
            elif node is not None and type(question.arguments) is Unavailable and not node.state.is_settled:
                reason = "it is asked anew: what it shows is not in the record"
                self._record.answer(question, None, None if node.attempts else State.READY, reason)
            elif node is not None and (node.is_in_flight or self._is_past(node, question.kind)):
                self._record.answer(question, None, reason="no answer is needed now")

    @staticmethod
    def _is_past(node: Node, kind: Asked) -> bool:
        if node.is_gone:  # all that is still asked is whether it took effect
            return node.state is not State.HELD or kind is not Asked.EFFECT
        return node.state.is_settled and kind is not Asked.PAUSE

    def _get_lost_outputs(self) -> None:
        """Reopen the steps without an effect whose output is needed and not in the record."""
        again, hopeless = lost(self._graph)
        if again:
            objects = [id_ for id_ in again if is_lost_object(self._graph.nodes[id_].value)]
            reason = "what they gave is needed, and not in the record"
            if objects:
                reason = f"{reason} (rematerialised, because it is an object in memory: {', '.join(objects)})"
            self._record.reopen(again, reason)
        for id_, source in hopeless:
            node = self._graph.nodes[id_]
            if not node.state.is_settled:
                is_element = node.parent is not None and node.parent.id == source
                reason = (
                    "its element is not in the record" if is_element else f"what {source} gave is not in the record"
                )
                self._record.settle(node, State.SKIPPED, reason, cause=source)

    # What follows from how a step ended -------------------------------------------------------------------

    def _follow_up(self, node: Node) -> None:
        """Apply the consequences of the state of a step again."""
        if node.state is State.HELD:
            if not self._is_asked_about(node):
                self._ask_again(node)
        elif node.state.is_settled:
            self._follow_end(node)
        else:
            self._join(node)

    def _join(self, node: Node) -> None:
        """End a for_each whose elements have all ended."""
        kept = self._graph.kept
        if node.children is not None and not node.missing and not any(child.id in kept for child in node.children):
            self._record.join_elements(node)

    def _is_asked_about(self, node: Node) -> bool:
        return any(question.step == node.id for question in self._graph.questions.values())

    def _ask_again(self, node: Node) -> None:
        outcome = node.attempts[-1].outcome
        assert outcome is not None  # a step that is held before its first attempt has been released
        self._people.hold_after(node, outcome)

    def _follow_end(self, node: Node) -> None:
        why = self._graph.kept.get(node.id, set())
        if REPLAN in why and node.id not in self._graph.triggers:
            self._request_replan(node)
        if PAUSE in why and not self._is_asked_about(node):
            self._people.hold_at_pause(node)
        if not why:
            self._record.after_end(node)
        decision = node.attempts[-1].decision if node.attempts and node.ended is None else None
        if decision is not None and not self._was_over:
            self._record.follow(node, decision)

    def _request_replan(self, node: Node) -> None:
        if self._coordinator is None:  # there is no planner any more
            self._record.end_replan(0, "stopped", NO_PLANNER, (node.id,))
            return
        self._scheduler.endings.request_replan(node)

    # Planning ---------------------------------------------------------------------------------------------

    def _go_on_planning(self) -> None:
        graph, record = self._graph, self._record
        if graph.is_drafting:
            reason = "the process has ended while the plan was written"
            record.end_draft("refused", reason)
        self._seek_first_plan()
        if not graph.triggers:
            return
        if self._coordinator is None:
            record.end_replans("stopped", NO_PLANNER)
        else:
            self._coordinator.wake()

    def _seek_first_plan(self) -> None:
        """Have the plan written that the goal has no plan for, as far as that had come; or end the run without one."""
        graph, record, finish = self._graph, self._record, self._scheduler.finish
        result, reason = graph.draft_end
        if self._coordinator is None and not graph.has_plan and not graph.nodes:
            finish.stop(Status.FAILED, NO_PLAN_NOR_PLANNER)
            return
        if result in ("failed", "denied") and not graph.has_plan:
            finish.stop(Status.FAILED, f"there is no plan: {reason}")
            return
        if GOAL in graph.triggers:
            return
        if result and not graph.has_plan:
            record.want_plan(TriggerKind.GOAL_GIVEN, "the plan is refused")
        elif graph.is_frozen:
            record.want_plan(TriggerKind.GOAL_CHANGED, f"the goal is now: {graph.goal}")
        elif not result and self._coordinator is not None:
            self._coordinator.begin()  # the process has ended before the planner was asked for the first plan
