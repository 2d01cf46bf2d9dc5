"""The people of a case for an agent: they answer by the tool that the agent wants to call, as they do for a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dagrun.checks.checked_plan import EVERY_TOOL
from dagrun.evaluate.cases.case_file import PersonReply
from dagrun.evaluate.cases.stand_in_world import CaseWorld
from dagrun.evaluate.cases.trial import approver_of
from dagrun.model.policy import Policy
from dagrun.model.question import Answer, Approver, Asked, Question
from dagrun.model.toolbox import Toolbox
from dagrun.model.value import decode_or_reason

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
        tools: The tools of the case, which become those of the agent.
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
    return [name for name in allowed if not tools[name].effect.is_free and named & {name, EVERY_TOOL}]


def _replies_to(replies: Mapping[str, Sequence[PersonReply]], tool: str) -> Iterator[PersonReply]:
    """Yield the replies to questions whether a tool may be called."""
    name = next((name for name in (tool, str(Asked.APPROVAL), "*") if name in replies), "")
    yield from (one for one in replies.get(name, ()) if one.kind in (None, Asked.APPROVAL))


def _is_call(asked: Any, tools: Toolbox) -> bool:
    return isinstance(asked, dict) and asked.get("tool") in tools and "args" in asked
