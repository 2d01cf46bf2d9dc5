"""A planner for what nobody can plan ahead: one step at a time, from what the steps before have given."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

from dagrun.errors import CannotPlan, shorten
from dagrun.llm.language_model import Form, LanguageModel, Request, must_be_counts, must_be_model
from dagrun.model.outcome import State
from dagrun.model.patch import Add, Patch, rename_in_step
from dagrun.model.plan import Step
from dagrun.model.planner import Brief, StepView
from dagrun.model.policy import PlanLimits
from dagrun.planners.ask_model import Answers, text_of, toolbox_of
from dagrun.planners.prompts import prompt_for
from dagrun.plans.model_answers import NextStepAnswer, read_next_step
from dagrun.plans.plan_schemas import next_step_schema

MAX_ID: Final = 48
_FORM: Final = ("next_step", "The next step, or why there is none.")
_FAILED: Final = frozenset((State.FAILED, State.TIMED_OUT, State.UNKNOWN, State.ABANDONED, State.CANCELLED))


class StepwisePlanner:
    """Asks a language model for one step, has it carried out, and asks again: the open-ended loop, with its limits.

    The model sees the goal, every step with its state, what they gave as far as the policy shows it (for most goals
    that must be ``brief="full"``), and what is left of the ceilings. The loop ends when it says that the goal is met,
    that it cannot go on, or that a person is needed; and at *max_steps*, at a ceiling of the run, or when a step that
    has failed comes once more with the same arguments. A step that fails is history, unless it says otherwise; the
    model sees it and may try something else.

    One planner may serve any number of runs at once.

    Args:
        model: Who is asked.
        max_steps: The most steps of a run, those that it began with counted.
        max_output_tokens: The longest answer.
        limits: Ceilings of size; what goes beyond them is not waited for.
        temperature: How much chance there is in answers; `None` for what the model does by itself.

    Attributes:
        model: Who is asked.

    Raises:
        ContractError: An option is not what it should be.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        max_steps: int = 20,
        max_output_tokens: int = 2_048,
        limits: PlanLimits | None = None,
        temperature: float | None = None,
    ) -> None:
        must_be_model(model, "StepwisePlanner")
        must_be_counts("StepwisePlanner", max_steps=max_steps, max_output_tokens=max_output_tokens)
        self.model = model
        self._max_steps = max_steps
        self._max_output_tokens = max_output_tokens
        self._limits = PlanLimits() if limits is None else limits
        self._temperature = temperature
        self._answers = Answers()

    async def revise(self, brief: Brief) -> Patch:
        """Give the next step, and ask to be asked again; or end the loop.

        Raises:
            PlanRefused: The answer is no step.
            CannotPlan: The model cannot go on, a person is needed, or the limit of steps is reached.
            ModelError: There is no answer, or it broke off.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        done = [view for view in brief.steps.values() if "[" not in view.step.id]  # elements of for_each are no steps
        left = self._max_steps - len(done)
        said = await self._ask(brief, max(left, 0))
        if said.step is None:
            return _end(said)
        if left <= 0:
            raise CannotPlan(f"the ceiling of {self._max_steps} steps is reached, and the goal is not", kind="ceiling")
        _must_be_progress(said.step, done)
        step = _as_history(said, _fresh(said.step, brief.steps))
        return Patch(edits=(Add(step=step),), reason=said.thought, confidence=said.confidence, more=True)

    async def _ask(self, brief: Brief, left: int) -> NextStepAnswer:
        toolbox = toolbox_of(brief)
        prompt = prompt_for("next", "json", brief, previous=self._answers.take(brief), max_steps=left)
        request = Request(
            system=prompt.system,
            messages=prompt.messages,
            form=Form(*_FORM, next_step_schema(toolbox)),
            max_output_tokens=self._max_output_tokens,
            temperature=self._temperature,
        )
        text = await text_of(self.model, request, self._limits)
        self._answers.keep(brief, text)
        return read_next_step(text, toolbox, self._limits)


def _end(said: NextStepAnswer) -> Patch:
    """The end of the loop, as the model wants it."""
    reason = said.reason or said.thought
    match said.stop:
        case "needs_person":
            raise CannotPlan(reason or "the model says that a person is needed", kind="person")
        case "cannot":
            raise CannotPlan(reason or "the model says that it cannot go on")
        case _:
            facts: dict[str, Any] = {} if said.output is None else {"output": said.output}
            reason = f"goal met: {reason}" if reason else "goal met"
            return Patch(edits=(), reason=reason, confidence=said.confidence, **facts)


def _must_be_progress(step: Step, done: list[StepView]) -> None:
    """Refuse the very call that has just failed: the world has not changed, and nothing else has been tried."""
    last = done[-1] if done else None
    if last is None or last.state not in _FAILED:
        return
    if _call_of(step) == _call_of(last.step):
        raise CannotPlan(f"no progress: {last.step.id} has failed, and the model wants to make the same call again")


def _call_of(step: Step) -> str:
    # As text: Python takes 1, 1.0 and True for equal, and it may be just that which was wrong.
    return json.dumps([step.tool, step.args, step.for_each], sort_keys=True)


def _fresh(step: Step, taken: Collection[str]) -> Step:
    """Give a step an id that no other has; models like to repeat theirs."""
    known = {id_.lower() for id_ in taken}
    name, number = step.id, 2
    while name.lower() in known:
        suffix = f"-{number}"
        name = step.id[: MAX_ID - len(suffix)] + suffix
        number += 1
    if name == step.id:
        return step
    # In its own success condition the id means the step itself; everywhere else the one before.
    success = rename_in_step(Step(id=name, tool=step.tool, success=step.success), {step.id: name}).success
    changed: dict[str, Any] = {"id": name} if step.success is None else {"id": name, "success": success}
    return step.model_copy(update=changed)


def _as_history(said: NextStepAnswer, step: Step) -> Step:
    """Let a failure of the step be history rather than a replan, and keep the thought for the calls that follow."""
    changed: dict[str, Any] = {}
    if step.on_failure is None:
        changed["on_failure"] = "skip"
    if not step.description and said.thought:
        changed["description"] = shorten(said.thought, 500)
    return step.model_copy(update=changed)
