"""What follows from the answer of a person."""

from __future__ import annotations

from dagrun.decide.recovery import surely_nothing_happened
from dagrun.errors import shorten
from dagrun.graph.node import Node
from dagrun.model.outcome import ErrorKind, Failure, State
from dagrun.model.question import Answer, Asked, Question
from dagrun.model.value import encode
from dagrun.runtime.record.record import Record


class Replies:
    """Does what an answer means for the step that was asked about.

    Args:
        record: Makes the changes.
    """

    def __init__(self, record: Record) -> None:
        self._record = record

    def follow(self, question: Question, answer: Answer | None, reason: str) -> None:
        """Close *question* with *answer*; `None` if there is none, for *reason*."""
        record, yes = self._record, answer is not None and answer.choice == "approve"
        if not question.step:
            record.answer(question, answer, None, reason)
            return
        node = self._record.graph.nodes[question.step]
        if node.state.is_settled:  # what it gave is looked at before what depends on it starts
            if not yes:
                record.deny_dependents(node, reason or _no(answer, f"a person stopped the run after {node.id}"))
            record.answer(question, answer, None, reason)
        elif question.kind is Asked.EFFECT:
            self._settle_effect(question, answer, node, reason)
        elif yes or (question.kind is Asked.PERMISSION and _may_fall_back(node)):
            record.answer(question, answer, State.READY, reason)
        else:
            record.answer(question, answer, None, reason)
            self._do_without(question, answer, node, reason)

    def _do_without(self, question: Question, answer: Answer | None, node: Node, reason: str) -> None:
        """Let a step end that has not got what it asked for."""
        if question.kind in (Asked.APPROVAL, Asked.PAUSE):
            self._refuse(node, answer, reason)
        else:
            self._give_up(node)

    def _refuse(self, node: Node, answer: Answer | None, reason: str) -> None:
        """Let a step end that nobody agreed to."""
        if answer is None:
            self._record.settle(node, State.SKIPPED, reason)
            return
        failure = Failure(ErrorKind.DENIED, reason or _no(answer, "a person said no"), nothing_happened=True)
        self._record.fail_unstarted(node, failure)

    def _settle_effect(self, question: Question, answer: Answer | None, node: Node, reason: str) -> None:
        """A person says whether a call took effect, or nobody knows."""
        match answer.choice if answer is not None else None:
            case "approve":
                self._record.answer(question, answer, None, reason)
                value = encode(answer.value if answer is not None else None)
                self._record.settle(node, State.SUCCEEDED, "a person knows that it took effect", value=value)
            case "deny":
                self._record.answer(question, answer, State.READY, reason)
            case _:
                self._record.answer(question, answer, None, reason)
                self._give_up(node)

    def _give_up(self, node: Node) -> None:
        """Let a step fail as its last attempt did."""
        outcome = node.attempts[-1].outcome
        assert outcome is not None
        assert outcome.failure is not None
        self._record.fail_unstarted(node, outcome.failure, outcome.state)


def _no(answer: Answer | None, text: str) -> str:
    return f"{text}: {shorten(answer.note)}" if answer is not None and answer.note else text


def _may_fall_back(node: Node) -> bool:
    outcome = node.attempts[-1].outcome
    has_one = node.plan.fallback is not None and not node.on_fallback
    sure = outcome is not None and not node.is_in_doubt and surely_nothing_happened(outcome, node.tool.effect)
    return has_one and sure
