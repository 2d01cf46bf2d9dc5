"""`ModelPlanner`: the first plan of a language model as a stream of steps, later changes as patches."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, Unpack, get_args

from dagrun.errors import ContractError
from dagrun.kernel.model.patch import Add, Patch
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.planner import Brief, RevisedBy
from dagrun.kernel.model.policy import PlanLimits
from dagrun.llm.language_model import Form, LanguageModel, Request, must_be_counts, must_be_model
from dagrun.planners.answers.model_answers import read_answer
from dagrun.planners.answers.plan_schemas import patch_schema, toolset_schema
from dagrun.planners.answers.plan_stream import PlanReader
from dagrun.planners.ask_model import LastAnswers, RunawaySteps, pieces_of, text_of, toolbox_of
from dagrun.planners.model_choice import SelectTools, ToolChoice
from dagrun.planners.prompt_examples import Dialect
from dagrun.planners.prompt_texts import Wording, WordingOptions
from dagrun.planners.prompts import Kind, prompt_for
from dagrun.planners.small_models import SmallAnswer

_PLAN_FORM: Final = ("create_plan", "A plan: the steps that reach the goal, or the reason why there is none.")
_PATCH_FORM: Final = ("change_plan", "How the plan changes, or the reason why it cannot.")

# The dialects of numbered calls.
_LINES: Final = ("compiler", "calls")

# The default of servers for small models suits chats, and at that temperature half of the plans go astray. But at none,
# a model gives the refused answer again.
_SMALL_TEMPERATURES: Final[dict[Kind, float]] = {"first": 0.0, "repair": 0.6}

# Problems of an answer that did not end by itself: cut off, too long, or with too many steps.
_BROKEN_OFF: Final = frozenset(("DR005", "DR108", "DR421"))


class ModelPlanner:
    """Plans with a language model. One planner may serve any number of runs at once.

    A first plan is streamed: each step is passed on as soon as its text is complete. If a plan is refused, the model
    gets it back with the problems, and writes a whole new one. Later changes are patches.

    Args:
        model: The language model.
        dialect: The form of first plans. ``json`` has every field of a step. ``lean`` is JSON with only the calls and
            their order, with a third of the prompt, for small models; also asked for once where an answer in ``json``
            broke off. ``compiler`` is for LLMCompiler's lines of calls, which take a third of the tokens. ``calls`` is
            for such lines from models below two billion parameters, with a prompt of a few rules and many examples.
        max_output_tokens: The most tokens of one answer.
        limits: Ceilings of size; an answer is not read beyond them.
        temperature: How random the answers are; `None` for the default of the model; in ``calls``, for 0, and
            for 0.6 after a refusal.
        select_tools: Chooses the tools that the model is told of, where there are many: a function of the goal and the
            contracts of the allowed tools (see `Tool.describe`) that returns names, or a `ToolPicker`; `None` for all.
        wording: *instructions* of the host, *constraints* that every plan keeps, *prompts* in place of those of dagrun,
            *examples*, and the date of *today*; see `Wording`.

    Attributes:
        model: The language model.
        wording: The words of the prompts.
        must_say_confidence: A plan or a patch with effects that comes without a confidence needs a person.

    Raises:
        ContractError: An option is not valid.
    """

    must_say_confidence: Final = True

    def __init__(
        self,
        model: LanguageModel,
        *,
        dialect: Dialect = "json",
        max_output_tokens: int = 4_096,
        limits: PlanLimits | None = None,
        temperature: float | None = None,
        select_tools: SelectTools | None = None,
        **wording: Unpack[WordingOptions],
    ) -> None:
        must_be_model(model, "ModelPlanner")
        if dialect not in get_args(Dialect):
            raise ContractError(f"the dialect is one of {', '.join(get_args(Dialect))}, not {dialect!r}")
        must_be_counts("ModelPlanner", max_output_tokens=max_output_tokens)
        self.model = model
        self._dialect: Dialect = dialect
        self._max_output_tokens = max_output_tokens
        self._limits = PlanLimits() if limits is None else limits
        self.wording = Wording(**wording)
        self._temperature = temperature
        self._tools = ToolChoice(select_tools)
        self._answers = LastAnswers()

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer *brief* with a stream of steps if there is no plan yet, or else with a patch or a whole plan.

        Raises:
            PlanRefused: The answer is not a valid plan; all its valid steps have been passed on already.
            CannotPlan: The model says that the goal cannot be reached, or refuses to plan.
            ModelError: There is no answer, or the answer broke off.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        if not brief.is_first:
            return self._change(brief)
        # The steps of an answer that broke off are in the graph already, and the next answer is compared with them.
        return self._repair(brief) if brief.refused or brief.steps else self._draft(brief)

    async def _draft(self, brief: Brief) -> AsyncGenerator[Add | Patch, None]:
        """Pass on each step of the first plan when it is complete, and at the end the fields of the plan itself."""
        brief = await self._tools.narrowed(brief)
        reader = self._reader(brief)
        passed_on = 0
        async with aclosing(self._read("first", brief, reader)) as closed:
            async for steps in closed:
                for step in steps:
                    passed_on += 1
                    yield Add(step=step)
        plan = reader.close()
        for step in plan.steps[passed_on:]:  # from a last line without a line end
            yield Add(step=step)
        reason = f"planned by {self.model.name}, prompt {self.wording.version}"
        facts: dict[str, Any] = {} if plan.output is None else {"output": plan.output}
        yield Patch(edits=(), confidence=plan.confidence, reason=reason, **facts)

    async def _repair(self, brief: Brief) -> Plan:
        """Return a whole plan to replace a refused one."""
        brief = await self._tools.narrowed(brief)
        reader = self._reader(brief)
        async with aclosing(self._read("repair", brief, reader)) as closed:
            async for _ in closed:
                pass
        return reader.close()

    async def _read(self, kind: Kind, brief: Brief, reader: PlanReader) -> AsyncGenerator[list[Step], None]:
        """Ask for a plan, and yield after each piece the steps that are complete."""
        request = self._request(kind, brief)
        judge = RunawaySteps(_most_steps(brief))
        small = SmallAnswer(toolbox_of(brief).allowed) if self._dialect == "calls" else None
        try:
            async with aclosing(pieces_of(self.model, request)) as pieces:
                async for piece in pieces:
                    steps = reader.feed(piece if small is None else small.feed(piece))
                    judge.feed(steps)
                    yield steps
            if small is not None:
                yield reader.feed(small.end())
        finally:
            self._answers.keep(brief, reader.text)

    async def _change(self, brief: Brief) -> Patch | Plan:
        """Return a patch of the running plan, or a whole plan."""
        brief = await self._tools.narrowed(brief)
        text = await text_of(self.model, self._request("replan", brief), self._limits)
        self._answers.keep(brief, text)
        answer = read_answer(text, toolbox_of(brief), self._limits)
        if isinstance(answer, Plan):
            return answer
        # A model does not decide which revision it has seen, nor whether it is asked again.
        facts = {name: getattr(answer, name) for name in answer.model_fields_set - {"base", "more"}}
        return Patch(**facts)

    def _reader(self, brief: Brief) -> PlanReader:
        # A model that was asked for lines may refuse with an object, or answer with one all the same.
        return PlanReader(toolbox_of(brief), self._limits, dialect="auto" if self._dialect in _LINES else "json")

    def _request(self, kind: Kind, brief: Brief) -> Request:
        dialect = self._dialect_for(kind, brief)
        previous = self._answers.take(brief)
        prompt = prompt_for(
            kind,
            dialect,
            brief,
            wording=self.wording,
            # A model repeats what it reads, and most of a cut-off answer must not be repeated.
            previous="" if _is_broken(brief) else previous,
            max_steps=self._limits.max_steps,
        )
        temperature = _SMALL_TEMPERATURES.get(kind) if dialect == "calls" else None
        temperature = temperature if self._temperature is None else self._temperature
        return prompt.request(self._form(kind, dialect, brief), self._max_output_tokens, temperature)

    def _dialect_for(self, kind: Kind, brief: Brief) -> Dialect:
        """Return the dialect of the answer: a model that could not end its plan is asked for a shorter form."""
        is_broken = kind == "repair" and _is_broken(brief)
        return "lean" if is_broken and self._dialect == "json" else self._dialect

    def _form(self, kind: Kind, dialect: Dialect, brief: Brief) -> Form | None:
        toolbox = toolbox_of(brief)
        if kind == "replan":
            return Form(*_PATCH_FORM, patch_schema(toolbox))
        if dialect in _LINES:
            return None
        return Form(*_PLAN_FORM, toolset_schema(toolbox, "lean" if dialect == "lean" else "full"))


def _is_broken(brief: Brief) -> bool:
    """Whether the last answer did not end by itself."""
    problems = brief.refused[-1].problems if brief.refused else ()
    return any(problem.code in _BROKEN_OFF for problem in problems)


def _most_steps(brief: Brief) -> int | None:
    """Return the most steps of a whole plan: those that may still come, and those that are there already."""
    left = brief.left.get("steps")
    return None if left is None else int(left) + len(brief.steps)
