"""A world that people guard: tools that change it, and one log of calls, questions, answers and documents.

The log has one clock of its own, so that it is known what came before what: all that the oracle of the rig looks at.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from typing_extensions import TypedDict

from dagrun import Event, Question, State, Toolbox, ToolContext, ToolError, agent_tool, tool
from dagrun.events import AttemptEnded, PatchRefused, Spliced, StepSettled
from dagrun.extend import Reply, Request, ToolCall, Usage
from random_cases import Definition

BANK: Final = "bank"  # the pool of those that pay
SECONDS: Final = 0.2  # of every call that changes the world
APPROVED: Final = frozenset(("sign",))  # their tool says that a person has to agree to each call
BANNED: Final = "wire"
VAULT: Final = "vault"  # for a process of its own, which no run here has
AGENT: Final = "agent"
ELSEWHERE: Final = "elsewhere"  # an executor of the host, and a pool that no policy names
INSIDE: Final[Mapping[str, str]] = {"pay": "pay", "post": "pay", "sign": "sign"}  # what an agent calls in their place


@dataclass(slots=True)
class Effect:
    """A call that has changed the world, as the tool itself saw it.

    Attributes:
        seq: When it was entered, on the clock of the log.
        step: The id of the step.
        tool: The tool.
        args: Its arguments.
        began: When it was entered, in seconds.
        ended: When it was over.
    """

    seq: int
    step: str
    tool: str
    args: dict[str, Any]
    began: float
    ended: float = float("inf")


@dataclass(slots=True)
class Asked:
    """A question, and what came of it.

    Attributes:
        seq: When it was asked, on the clock of the log.
        question: The question.
        said: What the person said; `None` for nothing.
        answered: When that was, on the clock of the log; never, if the question was taken back before.
    """

    seq: int
    question: Question
    said: bool | None = None
    answered: int | None = None

    def is_yes_before(self, seq: int) -> bool:
        """Whether a person had said yes to it by then."""
        return self.said is True and self.answered is not None and self.answered < seq


@dataclass(slots=True)
class Document:
    """A plan or a patch that a planner has written.

    Attributes:
        seq: When the planner was asked for it, on the clock of the log.
        form: ``first``, ``repair``, ``patch``, ``plan`` or ``stream``.
        steps: The steps that it defines, by id.
        confidence: How sure its author is of the whole; known when it is written.
        attacks: What it tries, each with the number of the target.
        text: The document as JSON, for people.
    """

    seq: int
    form: str
    steps: dict[str, Definition] = field(default_factory=dict)
    confidence: float | None = None
    attacks: tuple[tuple[str, int], ...] = ()
    text: Any = None

    @property
    def is_first(self) -> bool:
        """Whether it is about the first plan."""
        return self.form in ("first", "repair")


@dataclass(slots=True)
class World:
    """The log.

    Attributes:
        effects: Every call of a tool that changes the world.
        asked: Every question.
        documents: What planners wrote.
        splices: The edits that were carried out, each with when that was.
        refused: The codes for which documents were refused.
        succeeded: When each step succeeded.
        calls: How often tools that change nothing were called.
        fault: A fault of the planner itself, which the rig must not have; empty for none.
    """

    effects: list[Effect] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    splices: list[tuple[int, Spliced]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    succeeded: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    fault: str = ""
    _now: int = 0

    def tick(self) -> int:
        """The next instant."""
        self._now += 1
        return self._now

    def see(self, event: Event) -> None:
        """Note what an observer of a run is shown."""
        match event:
            case Spliced():
                self.splices.append((self.tick(), event))
            case PatchRefused(problems=problems):
                self.refused += [problem.code for problem in problems]
            case AttemptEnded(step=step, state=State.SUCCEEDED) | StepSettled(step=step, state=State.SUCCEEDED):
                self.succeeded.setdefault(step, self.tick())


WORLD: ContextVar[World] = ContextVar("WORLD")


class Elsewhere:
    """An executor of the host that does what coroutines do."""

    def call(self, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Make *call*."""
        found: Coroutine[Any, Any, object] = call.tool.function(**call.arguments)
        return found

    async def aclose(self) -> None:
        """Nothing to let go of."""


# Tools ----------------------------------------------------------------------------------------------------------------


class Given(TypedDict):
    """What every tool gives."""

    text: str


async def _change(name: str, to: str, amount: int, step: str) -> Given:
    world = WORLD.get()
    effect = Effect(world.tick(), step, name, {"to": to, "amount": amount}, anyio.current_time())
    world.effects.append(effect)
    try:
        await anyio.sleep(SECONDS)
    finally:
        effect.ended = anyio.current_time()
    return {"text": f"{name} {to} {amount}"}


async def _look(text: str, seconds: float) -> Given:
    WORLD.get().calls += 1
    await anyio.sleep(seconds)
    return {"text": text}


@tool(effect="effectful", needs_approval=False, pool=BANK)
async def pay(to: str, amount: int, context: ToolContext) -> Given:
    """Pay."""
    return await _change("pay", to, amount, context.step)


@tool(effect="idempotent", needs_approval=False, pool=BANK)
async def post(to: str, amount: int, context: ToolContext) -> Given:
    """Pay in a way that the same key pays once."""
    return await _change("post", to, amount, context.step)


@tool(effect="effectful", needs_approval=True)
async def sign(to: str, amount: int, context: ToolContext) -> Given:
    """Sign; a person has to agree each time."""
    return await _change("sign", to, amount, context.step)


@tool(effect="effectful", needs_approval=False)
async def wire(to: str, amount: int, context: ToolContext) -> Given:
    """Pay in a way that no run may."""
    return await _change("wire", to, amount, context.step)


@tool(effect="effectful", needs_approval=False, executor="process")
async def vault(to: str, amount: int) -> Given:
    """Pay, in a process of its own."""
    return await _change(VAULT, to, amount, "a step that names another executor")


@tool(effect="read")
async def lookup(to: str, amount: int) -> Given:
    """Look whether it was paid already: nobody knows, so that the fallback has to do."""
    raise ToolError(f"nobody knows of {amount} to {to}")


@tool(effect="read")
async def look(text: str, seconds: float) -> Given:
    """Look something up."""
    return await _look(text, seconds)


@tool(effect="read")
async def verify(text: str, seconds: float) -> Given:
    """Look something up, and find that it is wrong."""
    await _look(text, seconds)
    raise ToolError("this account is a fraud")


@tool(effect="pure")
async def const(text: str) -> Given:
    """Give a text."""
    return await _look(text, 0)


@tool(effect="pure")
async def odd(text: str, context: ToolContext) -> Given:
    """Give a text that surprises: the planner is asked, and a person, too, if the step pauses after it."""
    context.surprise("nobody has expected that")
    return await _look(text, 0)


class Obedient:
    """The model of an agent: it makes the one call that its task names, and then answers.

    Args:
        answer: The answer.
    """

    name = "obedient"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Say the next turn."""
        turn: dict[str, Any] = {"thought": "next", "call": None, "answer": None, "cannot": None}
        if len(request.messages) > 1:
            turn["answer"] = self._answer
        else:
            name, to, amount = request.messages[0].text.removeprefix("Task: ").split()[:3]
            turn["call"] = {"tool": name, "args": {"to": to, "amount": int(amount)}}
        yield Reply(text=json.dumps(turn), stop="end", usage=Usage(), cost=None, model=self.name)


AGENT_TOOLS: Final = Toolbox(pay, sign)
agent = agent_tool(
    Obedient({"text": "done"}),
    AGENT_TOOLS,
    name=AGENT,
    output=Given,
    allow_effects=True,
    max_tokens=None,
    needs_approval=False,
)
_ALLOWED: Final = ("pay", "post", "sign", "lookup", "look", "verify", "const", "odd", VAULT, AGENT)
TOOLS: Final = Toolbox(pay, post, sign, wire, vault, lookup, look, verify, const, odd, agent, allow=_ALLOWED)
