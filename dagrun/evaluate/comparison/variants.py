"""A variant of a comparison: a planner, or one agent that calls the tools itself; and its own part of the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from pydantic import ValidationError

from dagrun import (
    Answer,
    AnthropicModel,
    Asked,
    Budget,
    OpenAIModel,
    Plan,
    Planner,
    Policy,
    Question,
    Toolbox,
    agent_tool,
)
from dagrun.errors import CasesRefused, ContractError, OverCeiling
from dagrun.evaluate.cases.case_file import Case, Expectation, PersonReply
from dagrun.evaluate.cases.load_cases import ReadyCase, models_of
from dagrun.evaluate.cases.stand_in_world import CaseWorld
from dagrun.evaluate.cases.trial import CaseRun, approver_of, carry_out
from dagrun.extend import AnyTool, Approver, LanguageModel, must_be_model, must_be_planner
from dagrun.records import decode_or_reason
from dagrun.texts import explain, short_repr

_AGENT: Final = "agent"
MAX_TURNS: Final = 20  # of an agent, as many as `StepwisePlanner` takes steps


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVariant:
    """A variant of a comparison: how it carries a goal out.

    Attributes:
        planner: The planner, or a function without parameters that makes one for each run; `None` for the planner that
            the case names, or else the host's.
        agent: In place of a planner: the language model of one agent that is given the goal and all tools, and makes
            one call after another until it has an answer (`agent_tool`).
        policy: Fields of the policy that this variant has of its own; they are laid over the policy of the case
            (`Policy.with_fields`).

    Raises:
        ContractError: It has both a planner and an agent, or one of them is none.
    """

    __repr__ = short_repr

    planner: Planner | Callable[[], Planner] | None = None
    agent: LanguageModel | Callable[[], LanguageModel] | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.planner is not None and self.agent is not None:
            raise ContractError("a variant has a planner or an agent, not both")
        if not (self.planner is None or hasattr(self.planner, "revise") or callable(self.planner)):
            raise ContractError(f"the planner of a variant is a planner, or makes one: {self.planner!r} is neither")
        if self.policy:
            with suppress(ValidationError):  # what does not fit is said of each case, once they are known
                present = Policy.model_validate(self.policy).model_dump(exclude_unset=True)
                object.__setattr__(self, "policy", present)

    @property
    def has_own(self) -> bool:
        """Whether it has a planner or an agent of its own, and does not use the planner of the case."""
        return self.planner is not None or self.agent is not None

    def make_planner(self) -> Planner | None:
        """Return the planner of a run; `None` if the case names it, or there is none."""
        if self.planner is None:
            return None
        made: Any = _made(self.planner, "revise")
        must_be_planner(made, "what the planner of a variant makes")
        return made  # type: ignore[no-any-return]

    def make_agent(self) -> LanguageModel:
        """Return the model of the agent of a run."""
        made: Any = _made(self.agent, "stream")
        must_be_model(made, "what the agent of a variant makes")
        return made  # type: ignore[no-any-return]

    def asks_models(self, ready: ReadyCase) -> bool:
        """Whether it asks a language model to carry out a case."""
        return any(True for _ in self._models(ready))

    def needs_real_time(self, ready: ReadyCase) -> bool:
        """Whether it cannot carry a case out on a virtual clock, real tools apart."""
        return self.asks_models(ready) or not (self.has_own or ready.is_virtual)

    def _models(self, ready: ReadyCase) -> Iterator[object]:
        """Yield the models that it asks to carry a case out."""
        if self.agent is not None:
            yield self.make_agent()
        else:
            planner = ready.means.make_planner(ready.world()) if self.planner is None else self.make_planner()
            yield from models_of(planner)
        for critic in ready.means.critics:
            yield from models_of(critic)

    def policy_for(self, ready: ReadyCase) -> Policy:
        """Return the policy of a case with the fields that this variant has of its own.

        Raises:
            CasesRefused: The fields do not fit.
        """
        if not self.policy:
            return ready.means.policy
        try:
            return ready.means.policy.with_fields(self.policy)
        except ValidationError as error:
            raise CasesRefused([f"its policy: {explain(error)}"]) from None

    def check(self, ready: ReadyCase) -> None:
        """Make everything that a run of a case needs, and run nothing.

        Raises:
            CasesRefused: The variant cannot carry the case out.
        """
        policy = self.policy_for(ready)
        people = None if self.agent is None else ready.case.people
        if people is not None and (faults := list(faults_of_people(people, ready.tools, policy))):
            raise CasesRefused(faults)
        try:
            if self.agent is not None:
                _agent(self, ready, ready.world().toolbox(), Policy())
            elif self.planner is not None:
                self.make_planner()
            elif ready.means.make_planner(ready.world()) is None:
                raise ContractError("neither the variant nor the case has a planner")
            servers = (OpenAIModel, AnthropicModel)
            if ready.case.clock == "virtual" and any(isinstance(model, servers) for model in self._models(ready)):
                raise ContractError("it asks the server of a model, which knows no virtual clock; leave out `clock`")
        except ContractError as error:
            raise CasesRefused([str(error)]) from error

    async def carry_out(self, ready: ReadyCase, seed: int, budget: Budget | None) -> CaseRun:
        """Carry a case out once, in a new world.

        Args:
            ready: The case.
            seed: The seed of the run.
            budget: Ceilings that hold for this run and others together.
        """
        world = ready.world()
        means = replace(ready.means, policy=self.policy_for(ready))
        if self.agent is None:
            if self.planner is not None:
                means = replace(means, make_planner=lambda world: self.make_planner())
            return await carry_out(means, world, seed, budget=budget)
        agent = _agent(self, ready, world.toolbox(), means.policy, budget)
        means = replace(means, plan=_task(ready.case), make_planner=lambda world: None)
        people = ready.case.people
        asked = {} if people is None else {"approver": people_of_agent(people, world, means.policy)}
        return await carry_out(means, world, seed, budget=budget, tools=[agent], goal=None, **asked)

    def is_cut(self, ready: ReadyCase, trial: CaseRun, left: Mapping[str, float]) -> bool:
        """Whether an agent was ended by the rest of a budget, not by a ceiling of its own.

        An agent may use what is left, so that it is ended before the budget has anything to refuse.

        Args:
            ready: The case.
            trial: The run.
            left: The budget that was left before it, by the names of fields of a policy.
        """
        policy = self.policy_for(ready)
        lower = [name for name, most in left.items() if most <= (getattr(policy, name) or inf)]
        return self.agent is not None and _ceiling_that_ended(trial) in lower


def _ceiling_that_ended(trial: CaseRun) -> str:
    """Return the ceiling that has ended the agent of a run, as an option of `agent_tool`; empty if none has.

    It is what the agent itself was refused: a tool of the agent that reaches a ceiling of its own raises another error.
    """
    step = None if trial.result is None else trial.result.steps.get(_AGENT)
    failure = None if step is None else step.failure
    cause = None if failure is None or failure.exception is None else failure.exception.__cause__
    return cause.ceiling if isinstance(cause, OverCeiling) else ""


def _made(given: Any, method: str) -> Any:
    """Return an object with a method; else the result of calling a function or class."""
    return given if hasattr(given, method) and not isinstance(given, type) else given()


def _agent(
    variant: RunVariant, ready: ReadyCase, tools: Toolbox, policy: Policy, budget: Budget | None = None
) -> AnyTool:
    """Return the agent of a variant, limited by the policy and the budget."""
    left = {} if budget is None else budget.left_for_policy()
    return agent_tool(
        variant.make_agent(),
        tools,
        name=_AGENT,
        output=_answer_type(ready.case.expect),
        max_steps=MAX_TURNS,
        max_tokens=_lower(policy.max_tokens, left.get("max_tokens")),
        max_cost=_lower(policy.max_cost, left.get("max_cost")),
        allow_effects=any(not tools[name].effect.is_free for name in tools.allowed),
    )


def _answer_type(expected: Expectation) -> Any:
    """Return the type of answer that a case expects: a plan's output implies it, and an agent must be given it."""
    answer = expected.output if "output" in expected.model_fields_set else expected.contains
    kinds = {bool: bool, int: int | float, float: int | float, str: str, list: list[Any], dict: dict[str, Any]}
    named = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}
    schema = (expected.output_schema or {}).get("type")
    kind = type(answer) if answer is not None else named.get(schema) if isinstance(schema, str) else None
    return kinds.get(kind, Any) if kind is not None else Any


def _lower(one: Any, other: Any) -> Any:
    return min((most for most in (one, other) if most is not None), default=None)


def _task(case: Case) -> Plan:
    """Return the plan of an agent: one step, which is all that the goal asks for."""
    arguments: dict[str, Any] = {"task": case.goal}
    if case.inputs:
        arguments["inputs"] = {name: f"${{input.{name}}}" for name in case.inputs}
    return Plan.model_validate({"goal": case.goal, "steps": [{"id": _AGENT, "tool": _AGENT, "args": arguments}]})


_FOR_ALL: Final = frozenset(("*", *map(str, Asked)))  # names of replies that are of no step and no tool


def people_of_agent(replies: Mapping[str, Sequence[PersonReply]], world: CaseWorld, policy: Policy) -> Approver:
    """Return the person of a case, for the run of one agent in its world.

    A run asks about the step of the agent. What the question is about is a call that the agent wants to make or has
    made, and the reply to the tool of that call answers it.

    Args:
        replies: The replies of the case; `faults_of_people` finds nothing wrong with them.
        world: The world of the run.
        policy: Its policy.
    """
    answer = approver_of(replies)
    ruled = _ruled(world.tools, policy)

    async def answer_inner(question: Question) -> Answer | bool | None:
        if not question.tool:
            return await answer(question)  # it is about the answer or the whole run
        asked = decode_or_reason(question.arguments)
        if question.kind is Asked.INPUT and _is_call(asked, world.tools):
            # The agent asks itself whether it may make a call.
            call: dict[str, Any] = {"tool": asked["tool"], "kind": Asked.APPROVAL}
        elif question.kind is Asked.APPROVAL:
            call = {"tool": ruled[0]} if ruled else {}  # the replies to others are the same
        else:
            call = {"tool": world.calls[-1].tool.name} if world.calls else {}  # an agent makes one after another
        return await answer(replace(question, step="", **call))

    return answer_inner


def faults_of_people(replies: Mapping[str, Sequence[PersonReply]], tools: Toolbox, policy: Policy) -> Iterator[str]:
    """Yield why the people of a case cannot answer an agent as they answer a plan.

    Args:
        replies: The replies of the case.
        tools: The tools of the case, which become the agent's.
        policy: The policy of its run.
    """
    for name in replies:
        if name not in tools and name not in _FOR_ALL:
            yield f"people.{name}: an agent has no step of this name; let people answer by the tool, or by *"
    ruled = _ruled(tools, policy)
    found = [list(_replies_to(replies, name)) for name in ruled]
    if any(len(one) > 1 or one != found[0] for one in found):
        yield (
            f"people: approve of its policy has rules for {', '.join(ruled)}, so the run asks once about all calls of"
            " an agent; people who answer differently from call to call cannot. Let the tools need approval instead"
        )


def _ruled(tools: Toolbox, policy: Policy) -> list[str]:
    """Return the tools with policy rules that ask about the whole call of an agent, as the check does."""
    named = {rule.tool for rule in policy.approve}
    allowed = sorted(tools.allowed)
    return [name for name in allowed if not tools[name].effect.is_free and named & {name, "*"}]


def _replies_to(replies: Mapping[str, Sequence[PersonReply]], tool: str) -> Iterator[PersonReply]:
    """Yield the replies to questions whether a tool may be called."""
    name = next((name for name in (tool, str(Asked.APPROVAL), "*") if name in replies), "")
    yield from (one for one in replies.get(name, ()) if one.kind in (None, Asked.APPROVAL))


def _is_call(asked: Any, tools: Toolbox) -> bool:
    return isinstance(asked, dict) and asked.get("tool") in tools and "args" in asked
