"""Next steps after a run that did not succeed: open questions, and the commands to resume or retry it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dagrun.cli.records.resume_command import command_again, quoted
from dagrun.errors import shorten, visible
from dagrun.kernel.model.event import Event, QuestionAnswered, QuestionAsked, RunEnded, RunSuspended
from dagrun.kernel.model.outcome import State, Status
from dagrun.kernel.model.question import Asked, Question
from dagrun.kernel.model.toolbox import Toolbox
from dagrun.kernel.runtime.result import RunResult

_MAX_QUESTIONS: Final = 20
_BY_VALUE: Final = (Asked.INPUT, Asked.EFFECT)


class NextSteps:
    """Follows the events of a recorded run, and explains how to resume or retry it.

    Args:
        run_id: The run.
        again: The options of the command that resumes or retries it.
        toolbox: The tools that the run may call.
        where: The options that lead to the record, for the commands that answer questions.
        questions: The questions that were open when the run was resumed.
    """

    def __init__(
        self, run_id: str, again: list[str], toolbox: Toolbox, where: list[str], questions: Iterable[Question] = ()
    ) -> None:
        self._run_id = run_id
        self._again = again
        self._toolbox = toolbox
        self._where = where
        self._open = {question.id: question for question in questions}
        self._is_suspended = False

    def on_event(self, event: Event) -> None:
        """Note an event."""
        match event:
            case QuestionAsked():
                self._open[event.question.id] = event.question
            case QuestionAnswered():
                self._open.pop(event.question, None)
            case RunSuspended() | RunEnded():
                self._is_suspended = isinstance(event, RunSuspended)

    @property
    def report_command(self) -> str:
        """The shell command that writes a page about the run."""
        return quoted(["dagrun", "report", self._run_id, *self._where])

    def verb(self, result: RunResult) -> str:
        """Return the command for the rest of the run, ``resume`` or ``retry``; empty if nothing is left to do."""
        if self._is_suspended or result.status is Status.UNKNOWN:
            return "resume"
        return "retry" if result.has_plan and result.status is not Status.SUCCEEDED else ""

    def as_dict(self, result: RunResult) -> dict[str, Any]:
        """Return the next steps as plain JSON, for programs and for ``run.json``."""
        verb = self.verb(result)
        return {
            "is_resumable": verb == "resume",
            "next_command": command_again(verb, self._run_id, self._again) if verb else None,
            "questions": [question.as_dict() for question in self._open.values()] if self._is_suspended else [],
        }

    def lines(self, result: RunResult) -> list[str]:
        """Return the next steps, a line each. A command is always one line, so that it can be copied."""
        verb = self.verb(result)
        if not verb:
            return []
        command = quoted(command_again(verb, self._run_id, self._again))
        if verb == "retry":
            return ["run again what has not succeeded:", f"  {command}"]
        lines = [f"{step} may have taken effect; resuming settles that" for step in self.cut_off(result)]
        asked = list(self._open.values())
        for question in asked[:_MAX_QUESTIONS]:
            lines.append(f"open: {shorten(question.text)}")
            lines += [f"  why: {shorten(visible(question.why))}"] if question.why else []
            lines.append(f"  {answer_command(self._run_id, question, self._where)}")
        if len(asked) > _MAX_QUESTIONS:
            lines.append(f"… and {len(asked) - _MAX_QUESTIONS} more open questions")
        return [*lines, "resume the run:", f"  {command}"]

    def cut_off(self, result: RunResult) -> list[str]:
        """Return the steps that were cut off during a call with an effect that must not be repeated."""
        if not self._is_suspended:
            return []
        running = [step for step in result.steps.values() if step.state is State.RUNNING and step.attempts]
        return [step.id for step in running if self._may_be_done(step.attempts[-1].tool)]

    def is_in_doubt(self, result: RunResult) -> bool:
        """Whether the effect of a call is unresolved; the exit code shows it, as the caller must act on it."""
        asked = self._is_suspended and any(question.kind is Asked.EFFECT for question in self._open.values())
        return asked or bool(self.cut_off(result))

    def _may_be_done(self, tool: str) -> bool:
        known = self._toolbox.get(tool)
        return known is not None and not known.effect.may_repeat


def answer_command(run_id: str, question: Question, where: Iterable[str] = ()) -> str:
    """Return the shell command that answers *question*."""
    about = question.step or question.id
    if question.kind not in _BY_VALUE:
        return quoted(["dagrun", "answer", run_id, about, *where])
    # Both are placeholders, and harmless if they are pasted into a shell; "took_effect|did_not" would not be.
    value = "VALUE" if question.kind is Asked.INPUT else "took_effect/did_not/unknown"
    return quoted(["dagrun", "answer", run_id, about]) + f" {value}" + "".join(f" {quoted([w])}" for w in where)


def waits_for(questions: Mapping[str, Question] | Iterable[Question]) -> list[str]:
    """Return the steps of the open questions, or the texts of questions without a step."""
    listed = questions.values() if isinstance(questions, Mapping) else questions
    return list(dict.fromkeys(question.step or question.text for question in listed))
