"""A planner that asks a language model: the first plan as a stream of steps, later changes as patches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final, get_args

from dagrun.errors import ContractError
from dagrun.llm.language_model import Form, LanguageModel, Request, must_be_counts, must_be_model
from dagrun.model.patch import Add, Patch
from dagrun.model.plan import Plan, Step
from dagrun.model.planner import Brief, RevisedBy
from dagrun.model.policy import PlanLimits
from dagrun.planners.ask_model import Answers, pieces_of, text_of, toolbox_of
from dagrun.planners.prompt_examples import EXAMPLES, Dialect, Example
from dagrun.planners.prompts import PROMPT_VERSION, Kind, Prompt, prompt_for
from dagrun.plans.model_answers import read_answer
from dagrun.plans.plan_schemas import patch_schema, toolset_schema
from dagrun.plans.plan_stream import PlanReader

_PLAN_FORM: Final = ("create_plan", "A plan: the steps that reach the goal, or the reason why there is none.")
_PATCH_FORM: Final = ("change_plan", "How the plan changes, or the reason why it cannot.")


class ModelPlanner:
    """Asks a language model. One may serve any number of runs at once.

    A first plan is streamed: each step is handed on as soon as it has closed. When a plan was refused, the model gets
    it back with what is wrong, and writes the whole anew; later changes are patches.

    Args:
        model: Who is asked.
        dialect: How first plans are written: ``json``, or ``compiler`` for LLMCompiler's lines of calls, which small
            models find easier, and which take a third of the tokens.
        max_output_tokens: The longest answer.
        limits: Ceilings of size; what goes beyond them is not waited for.
        examples: Goals and good answers, for the prompt; half of its length, so `()` may be what a small model needs.
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
        dialect: Dialect = "json",
        max_output_tokens: int = 4_096,
        limits: PlanLimits | None = None,
        examples: Sequence[Example] = EXAMPLES,
        temperature: float | None = None,
    ) -> None:
        must_be_model(model, "ModelPlanner")
        if dialect not in get_args(Dialect):
            raise ContractError(f"the dialect is one of {', '.join(get_args(Dialect))}, not {dialect!r}")
        must_be_counts("ModelPlanner", max_output_tokens=max_output_tokens)
        self.model = model
        self._dialect: Dialect = dialect
        self._max_output_tokens = max_output_tokens
        self._limits = PlanLimits() if limits is None else limits
        self._examples = tuple(examples)
        self._temperature = temperature
        self._answers = Answers()

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer *brief*: with a stream of steps if there is no plan yet, else with a patch or a whole plan.

        Raises:
            PlanRefused: The answer is no plan; every valid step of it has been handed on before.
            CannotPlan: The model says that there is no way, or does not want to.
            ModelError: There is no answer, or it broke off.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        if not brief.is_first:
            return self._change(brief)
        # What has come of an answer that broke off is in the graph already: the next one is compared with that.
        return self._again(brief) if brief.refused or brief.steps else self._draft(brief)

    async def _draft(self, brief: Brief) -> AsyncGenerator[Add | Patch, None]:
        """Hand on each step of the first plan as it closes, and at the end what the plan says of itself."""
        reader = self._reader(brief)
        handed_on = 0
        async with aclosing(self._read("first", brief, reader)) as closed:
            async for steps in closed:
                for step in steps:
                    handed_on += 1
                    yield Add(step=step)
        plan = reader.close()
        for step in plan.steps[handed_on:]:  # from a last line without an end
            yield Add(step=step)
        reason = f"planned by {self.model.name}, prompt {PROMPT_VERSION}"
        facts: dict[str, Any] = {} if plan.output is None else {"output": plan.output}
        yield Patch(edits=(), confidence=plan.confidence, reason=reason, **facts)

    async def _again(self, brief: Brief) -> Plan:
        """Get a whole plan in place of one that was refused."""
        reader = self._reader(brief)
        async with aclosing(self._read("repair", brief, reader)) as closed:
            async for _ in closed:
                pass
        return reader.close()

    async def _read(self, kind: Kind, brief: Brief, reader: PlanReader) -> AsyncGenerator[list[Step], None]:
        """Ask for a plan, and give what has closed with each piece of it."""
        request = self._request(kind, brief)
        try:
            async with aclosing(pieces_of(self.model, request)) as pieces:
                async for piece in pieces:
                    yield reader.feed(piece)
        finally:
            self._answers.keep(brief, reader.text)

    async def _change(self, brief: Brief) -> Patch | Plan:
        """Get a patch of the plan that is being carried out."""
        text = await text_of(self.model, self._request("replan", brief), self._limits)
        self._answers.keep(brief, text)
        answer = read_answer(text, toolbox_of(brief), self._limits)
        if isinstance(answer, Plan):
            return answer
        # What it looked at, and whether it is asked again, is not for a model to say.
        facts = {name: getattr(answer, name) for name in answer.model_fields_set - {"base", "more"}}
        return Patch(**facts)

    def _reader(self, brief: Brief) -> PlanReader:
        # Who was asked for lines may refuse with an object, or answer with one all the same.
        return PlanReader(toolbox_of(brief), self._limits, dialect="json" if self._dialect == "json" else "auto")

    def _request(self, kind: Kind, brief: Brief) -> Request:
        prompt = prompt_for(
            kind,
            self._dialect,
            brief,
            examples=self._examples,
            previous=self._answers.take(brief),
            max_steps=self._limits.max_steps,
        )
        return self._request_of(prompt, self._form(kind, brief))

    def _form(self, kind: Kind, brief: Brief) -> Form | None:
        toolbox = toolbox_of(brief)
        if kind == "replan":
            return Form(*_PATCH_FORM, patch_schema(toolbox))
        return None if self._dialect == "compiler" else Form(*_PLAN_FORM, toolset_schema(toolbox))

    def _request_of(self, prompt: Prompt, form: Form | None) -> Request:
        return Request(
            system=prompt.system,
            messages=prompt.messages,
            form=form,
            max_output_tokens=self._max_output_tokens,
            temperature=self._temperature,
        )
