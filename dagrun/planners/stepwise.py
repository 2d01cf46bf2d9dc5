"""`StepwisePlanner`: one step at a time, for goals that cannot be planned ahead; and its scratchpad.

The scratchpad is an explicit plan, which the model rewrites each turn.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, Unpack

from dagrun.errors import CannotPlan, ContractError, shorten
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.patch import Add, Patch, rename_in_step
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.planner import NOTES, Brief, StepView
from dagrun.kernel.model.policy import PlanLimits
from dagrun.kernel.model.question import ASK_PERSON
from dagrun.llm.language_model import Form, LanguageModel, Message, must_be_counts, must_be_model, quote
from dagrun.planners.answers.model_answers import NextStepAnswer, read_next_step
from dagrun.planners.answers.plan_schemas import next_step_schema
from dagrun.planners.ask_model import LastAnswers, text_of, toolbox_of
from dagrun.planners.prompt_texts import Wording, WordingOptions
from dagrun.planners.prompts import Prompt, prompt_for

MAX_ID: Final = 48
_FORM: Final = ("next_step", "The next step, or why there is none.")
_NOTHING: Final = {"type": ["null", "string"], "description": "null: a yes is all that is wanted"}
_FAILED: Final = frozenset((State.FAILED, State.TIMED_OUT, State.UNKNOWN, State.ABANDONED, State.CANCELLED))


class StepwisePlanner:
    """Asks a language model for one step, waits for its result, and asks again: an open-ended loop with limits.

    The model sees the goal, every step with its state, the outputs as far as the policy shows them (most goals need
    ``PlanningRule(brief="full")``), and the remaining budget. The loop ends when the model says that the goal
    is met, that it cannot continue, or that a person is needed. It also ends at *max_steps*, at a ceiling of the run,
    and when the model repeats a failed step with the same arguments. The failure of a step does not fail the run,
    unless the step says otherwise; the model sees it and may try something else.

    With *keeps_plan*, the model also keeps an explicit plan: what is left to do, as a list, which it rewrites each
    turn. That is the middle ground between a whole plan ahead and none. The plan is in the record, and `dagrun inspect`
    shows it.

    Where critics did not pass the output of the last step, the loop stops and asks a person whether to go on
    (*on_failed_review*). If nobody is there, the run is handed to people.

    One planner may serve any number of runs at once.

    Args:
        model: The language model.
        max_steps: The most steps of a run, including the steps that it began with.
        keeps_plan: Whether the model keeps a plan on a scratchpad.
        on_failed_review: ``ask`` a person when critics did not pass the output of the last step, or ``go_on`` and let
            the model see the verdicts.
        max_output_tokens: The most tokens of one answer.
        limits: Ceilings of size; an answer is not read beyond them.
        temperature: How random the answers are; `None` for the default of the model.
        wording: *instructions*, *constraints* and so on, as for `ModelPlanner`.

    Attributes:
        model: The language model.
        wording: The words of the prompts.
        must_say_confidence: A step with an effect that comes without a confidence needs a person.

    Raises:
        ContractError: An option is not valid.
    """

    must_say_confidence: Final = True

    def __init__(
        self,
        model: LanguageModel,
        *,
        max_steps: int = 20,
        keeps_plan: bool = False,
        on_failed_review: Literal["ask", "go_on"] = "ask",
        max_output_tokens: int = 2_048,
        limits: PlanLimits | None = None,
        temperature: float | None = None,
        **wording: Unpack[WordingOptions],
    ) -> None:
        must_be_model(model, "StepwisePlanner")
        must_be_counts("StepwisePlanner", max_steps=max_steps, max_output_tokens=max_output_tokens)
        if on_failed_review not in ("ask", "go_on"):
            raise ContractError(f"on_failed_review is ask or go_on, not {on_failed_review!r}")
        self.model = model
        self._asks_after_review = on_failed_review == "ask"
        self._keeps_plan = keeps_plan
        self._max_steps = max_steps
        self._max_output_tokens = max_output_tokens
        self._limits = PlanLimits() if limits is None else limits
        self.wording = Wording(**wording)
        self._temperature = temperature
        self._answers = LastAnswers()

    async def revise(self, brief: Brief) -> Patch:
        """Return the next step, in a patch that asks for another request; or end the loop.

        Raises:
            PlanRefused: The answer is not a step.
            CannotPlan: The model cannot continue, a person is needed, or the limit of steps is reached.
            ModelError: There is no answer, or the answer broke off.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        done = [view for view in brief.steps.values() if "[" not in view.step.id]  # elements of a for_each do not count
        left = self._max_steps - len(done)
        if self._asks_after_review and done and not brief.refused:
            await _ask_after_review(done[-1])
        answer = await self._ask(brief, max(left, 0))
        self._rewrite(answer)
        if answer.step is None:
            return _end(answer)
        if left <= 0:
            raise CannotPlan(f"the ceiling of {self._max_steps} steps is reached, and the goal is not", kind="ceiling")
        _must_be_progress(answer.step, done)
        step = _as_history(answer, _with_new_id(answer.step, brief.steps))
        return Patch(edits=(Add(step=step),), reason=answer.thought, confidence=answer.confidence, more=True)

    def _rewrite(self, answer: NextStepAnswer) -> None:
        """Put the plan of the answer on the scratchpad."""
        notes = NOTES.get()
        if self._keeps_plan and answer.plan is not None and notes is not None:
            notes.text = _text_of_plan(answer.plan)

    async def _ask(self, brief: Brief, left: int) -> NextStepAnswer:
        toolbox = toolbox_of(brief)
        previous = self._answers.take(brief)
        prompt = prompt_for("next", "json", brief, wording=self.wording, previous=previous, max_steps=left)
        schema = next_step_schema(toolbox)
        if self._keeps_plan:
            prompt, schema = _with_scratchpad(prompt, _plan_in(brief.notes)), _with_plan(schema)
        request = prompt.request(Form(*_FORM, schema), self._max_output_tokens, self._temperature)
        text = await text_of(self.model, request, self._limits)
        self._answers.keep(brief, text)
        return read_next_step(text, toolbox, self._limits)


async def _ask_after_review(last: StepView) -> None:
    """Ask a person whether to continue, if critics did not pass the output of the last step.

    Raises:
        CannotPlan: The person said no, or nobody was there.
    """
    bad = [verdict for verdict in last.verdicts if verdict.result == "fail"]
    if not bad or last.state not in _FAILED:
        return
    why = "; ".join(f"{verdict.critic}: {verdict.reason or 'not passed'}" for verdict in bad)
    ask = ASK_PERSON.get()
    answer = (
        None if ask is None else await ask(f"Step {last.step.id} did not pass its review. Continue?", why, _NOTHING)
    )
    if answer is None:
        raise CannotPlan(f"step {last.step.id} did not pass its review ({why}), and nobody was there to ask", "person")
    if answer.choice != "approve":
        note = f": {shorten(answer.note)}" if answer.note else ""
        raise CannotPlan(f"step {last.step.id} did not pass its review ({why}), and a person said no{note}", "person")


def _end(answer: NextStepAnswer) -> Patch:
    """End the loop: return a last patch if the goal is met, or else raise."""
    reason = answer.reason or answer.thought
    match answer.stop:
        case "needs_person":
            raise CannotPlan(reason or "the model says that a person is needed", kind="person")
        case "cannot":
            raise CannotPlan(reason or "the model says that it cannot go on")
        case _:
            facts: dict[str, Any] = {} if answer.output is None else {"output": answer.output}
            reason = f"goal met: {reason}" if reason else "goal met"
            return Patch(edits=(), reason=reason, confidence=answer.confidence, **facts)


def _must_be_progress(step: Step, done: list[StepView]) -> None:
    """Refuse to repeat the call that has just failed: the world has not changed since."""
    last = done[-1] if done else None
    if last is None or last.state not in _FAILED:
        return
    if _call_of(step) == _call_of(last.step):
        raise CannotPlan(f"no progress: {last.step.id} has failed, and the model wants to make the same call again")


def _call_of(step: Step) -> str:
    # As text: for Python 1, 1.0 and True are equal, but just that difference may have been the fault.
    return json.dumps([step.tool, step.args, step.for_each], sort_keys=True)


def _with_new_id(step: Step, taken: Collection[str]) -> Step:
    """Return *step* with an id that no other step has; models often repeat ids."""
    known = {id_.lower() for id_ in taken}
    name, number = step.id, 2
    while name.lower() in known:
        suffix = f"-{number}"
        name = step.id[: MAX_ID - len(suffix)] + suffix
        number += 1
    if name == step.id:
        return step
    # In the success condition of the step, the old id means this step; everywhere else, an earlier one.
    success = rename_in_step(Step(id=name, tool=step.tool, success=step.success), {step.id: name}).success
    changed: dict[str, Any] = {"id": name} if step.success is None else {"id": name, "success": success}
    return step.model_copy(update=changed)


def _as_history(answer: NextStepAnswer, step: Step) -> Step:
    """Return *step* so that its failure causes no replan, and with the thought of the model as its description."""
    changed: dict[str, Any] = {}
    if step.on_failure is None:
        changed["on_failure"] = "skip"
    if not step.description and answer.thought:
        changed["description"] = shorten(answer.thought, 500)
    return step.model_copy(update=changed)


# The scratchpad ------------------------------------------------------------------------------------------------------

MAX_ITEMS: Final = 50
MAX_ITEM: Final = 300  # characters

_RULES: Final = """\
# The plan on your scratchpad

- "plan" in your answer is what is left to do after "step", as a list of short sentences, in order; [] if nothing is.
- The block "plan" is the list that you wrote last time. Take out what is done, keep the rest word for word, and \
change only what the results have proved wrong.
- "step" is the first item of the list, unless something came in between."""

_PLAN: Final = {
    "type": "array",
    "items": {"type": "string"},
    "description": "What is left to do after this step, in order.",
}


def _text_of_plan(plan: Sequence[str]) -> str:
    """Return the plan of an answer as text, for the record, cut to the allowed length."""
    items = [shorten(" ".join(item.split()), MAX_ITEM) for item in plan[:MAX_ITEMS] if item.strip()]
    return json.dumps({"plan": items}, ensure_ascii=False)


def _plan_in(text: str) -> list[str]:
    """Return the plan that `_text_of_plan` has written; an empty one for any other text."""
    try:
        return list(map(str, json.loads(text)["plan"]))
    except (ValueError, KeyError, TypeError):
        return []


def _with_scratchpad(prompt: Prompt, plan: Sequence[str]) -> Prompt:
    """Return *prompt* with the rules of the scratchpad, and with the plan that is on it."""
    first, *others = prompt.messages
    if plan:
        lines = "\n".join(['<data name="plan">', *map(quote, plan), "</data>"])
        first = Message(first.role, f"{lines}\n\n{first.text}")
    return Prompt(f"{prompt.system}\n\n{_RULES}", (first, *others))


def _with_plan(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a next step with the plan of the scratchpad beside it."""
    properties = {"thought": schema["properties"]["thought"], "plan": _PLAN, **schema["properties"]}
    return {**schema, "properties": properties, "required": list(properties)}
