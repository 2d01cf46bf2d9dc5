"""Named ways round the people of a run: a plan with a guard before a payment, and the patch that takes it away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

import dagrun
from dagrun import (
    Add,
    ApprovalRule,
    Condition,
    Drop,
    Event,
    MemoryJournal,
    Patch,
    Plan,
    Policy,
    Question,
    Replace,
    Rewire,
    Step,
)
from dagrun.kernel.model.tool import AnyTool
from drafts import Writer

Paid = list[tuple[str, int]]
AnyEdit = Add | Drop | Replace | Rewire


def door_tools(paid: Paid) -> list[AnyTool]:
    """The tools of these runs; *paid* is what has been paid."""

    @dagrun.tool(effect="effectful", needs_approval=False)
    async def pay(to: str, amount: int = 10) -> str:
        paid.append((to, amount))
        return "paid"

    @dagrun.tool(effect="read")
    async def check(seconds: float = 0.05) -> str:
        await anyio.sleep(seconds)
        return "alice"

    @dagrun.tool(effect="read")
    async def verify() -> str:
        await anyio.sleep(0.05)
        raise dagrun.ToolError("this account is a fraud")

    @dagrun.tool(effect="pure")
    async def const(value: str) -> str:
        return value

    @dagrun.tool(effect="read")
    async def fails() -> str:
        raise dagrun.ToolError("no")

    @dagrun.tool(effect="read")
    async def look(to: str, amount: int = 10) -> str:
        raise dagrun.ToolError("nobody knows")

    return [pay, check, verify, const, fails, look]


@dataclass(frozen=True, slots=True)
class Door:
    """A way round people.

    Attributes:
        name: What the planner does.
        steps: The plan of the host; a step that fails is added, so that the planner is asked.
        edits: What the planner proposes.
        policy: The limits.
        paid: What may have been paid in the end, although a person says no to everything.
        seconds: What a person thinks before each answer.
        thinks: What the planner thinks.
    """

    name: str
    steps: Sequence[Step]
    edits: Sequence[AnyEdit]
    policy: Policy = field(default_factory=Policy)
    paid: tuple[tuple[str, int], ...] = ()
    seconds: float = 0.0
    thinks: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        paid: What was paid.
        asked: What people were asked about: the kind of each question, and its step.
        codes: Why patches were refused.
        result: How it ended.
    """

    paid: Paid = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)
    result: Any = None


class Proposes:
    """A planner that proposes the same edits each time it is asked."""

    def __init__(self, edits: Sequence[AnyEdit], seconds: float = 0.0) -> None:
        self._patch = Patch(edits=edits, reason="all is well")
        self._seconds = seconds

    async def revise(self, brief: dagrun.Brief) -> Patch:
        """Answer *brief*."""
        await anyio.sleep(self._seconds)
        return self._patch


async def go_through(door: Door, *, says: bool, tools: Sequence[AnyTool] = ()) -> Outcome:
    """Let a planner try *door*, before a person who says the same to everything."""
    outcome = Outcome()

    async def person(question: Question) -> bool:
        outcome.asked.append(f"{question.kind} {question.step}".strip())
        await anyio.sleep(door.seconds)
        return says

    def see(event: Event) -> None:
        if isinstance(event, dagrun.events.PatchRefused):
            outcome.codes.update(problem.code for problem in event.problems)

    outcome.result = await dagrun.run(
        Plan(steps=[*door.steps, Step(id="boom", tool="fails")]),
        tools=[*door_tools(outcome.paid), *tools],
        policy=door.policy,
        planner=Proposes(door.edits, door.thinks),
        approver=person,
        on_event=see,
    )
    return outcome


# The doors ------------------------------------------------------------------------------------------------------------


def pay(id_: str = "pay", to: str = "alice", *, amount: int | None = None, **fields: Any) -> Step:
    """A payment."""
    args: dict[str, Any] = {"to": to} if amount is None else {"to": to, "amount": amount}
    return Step(id=id_, tool="pay", args=args, **fields)


def const(id_: str, value: str = "go", **fields: Any) -> Step:
    """A constant."""
    return Step(id=id_, tool="const", args={"value": value}, **fields)


AFTER: Final = const("gate", pause="after")
BEFORE: Final = const("gate", pause="before")
BEHIND: Final = pay(depends_on=["gate"])
VERIFY: Final = Step(id="verify", tool="verify")
WHO: Final = Step(id="who", tool="check")
FINE: Final = Replace(id="verify", step=const("ok", "fine"))
EFFECTS: Final = Policy(approve_patches="effects")
ALWAYS: Final = Policy(approve_patches="always")
AWAY: Final = Rewire(id="pay", depends_on=[])
RULE: Final = ApprovalRule(tool="pay", when=Condition(ref="args.amount", op=">", value=100))
ALICE: Final = ("alice", 10)
MALLORY: Final = Add(step=pay("pay2", "mallory"))
ONCE_MORE: Final = Add(step=pay("pay2"))
SMALL: Final = tuple(Add(step=pay(f"p{i}", "mallory", amount=100)) for i in range(3))

DOORS: Final = (
    Door("1 no patch that touches it", [AFTER, BEHIND], [Add(step=const("x"))]),
    Door("2 rewire pay away from a step that pauses before", [BEFORE, BEHIND], [AWAY]),
    Door("3 rewire pay away from a step that pauses after", [AFTER, BEHIND], [AWAY]),
    Door("4 drop pay, add it without the gate", [BEFORE, BEHIND], [Drop(id="pay"), MALLORY]),
    Door("5 replace pay that pauses", [pay(pause="before")], [Replace(id="pay", step=MALLORY.step)]),
    Door("6 drop pay that pauses, add another", [pay(pause="before")], [Drop(id="pay"), MALLORY]),
    Door("7 add a second pay beside one that pauses", [pay(pause="before")], [ONCE_MORE]),
    Door("8 replace a doubtful pay by a sure one", [pay(confidence=0.2)], [Replace(id="pay", step=pay("pay2"))]),
    Door("9 drop a doubtful pay, add a sure one", [pay(confidence=0.2)], [Drop(id="pay"), ONCE_MORE]),
    Door(
        "10 split a sum into many below the limit of a rule: a known limit of rules",
        [pay()], SMALL, Policy(approve=[RULE]), paid=(("mallory", 100),) * 3,
    ),
    Door(
        "11 effects: rewire pay",
        [WHO, pay(to="${who}")], [Rewire(id="pay", args={"to": "mallory"})], EFFECTS, (ALICE,),
    ),
    Door(
        "12 effects: replace the read that says who gets the money",
        [WHO, pay(to="${who}")], [Replace(id="who", step=const("who2", "mallory"))], EFFECTS, (ALICE,),
    ),
    Door("13 effects: a constant for the check", [VERIFY, pay(depends_on=["verify"])], [FINE], EFFECTS),
    Door(
        "14 effects: a constant for the check of a condition",
        [VERIFY, pay(when=Condition(ref="verify", op="==", value="fine"))], [FINE], EFFECTS,
    ),
    Door("15 effects: add pay", [pay(pause="before")], [MALLORY], EFFECTS),
    Door("16 always: a constant for the check", [VERIFY, pay(depends_on=["verify"])], [FINE], ALWAYS),
    Door("17 as 3, while the person still thinks", [AFTER, BEHIND], [AWAY], seconds=0.5),
    Door("18 as 2, while the person still thinks", [BEFORE, BEHIND], [AWAY], seconds=0.5),
    Door("19 a gate that does not pause", [BEFORE, BEHIND], [Replace(id="gate", step=const("g2"))]),
    Door(
        "20 add what a person has denied",
        [pay(confidence=0.2)], [Drop(id="pay"), Add(step=pay("pay2", confidence=1.0))],
    ),
)  # fmt: skip

# Found by the rig, and not in the list above.
NEVER: Final = Condition(ref="who", op="==", value="nobody")
G2: Final = {"tool": "const", "args": {"value": "go"}, "pause": "before"}


def gate(**fields: Any) -> Replace:
    """Another gate, which pauses too."""
    return Replace(id="gate", step=Step.model_validate({"id": "g2", **G2, **fields}))


MORE_DOORS: Final = (
    Door("a gate that never applies", [WHO, BEFORE, BEHIND], [gate(when=NEVER)]),
    Door("a gate whose no is skipped", [BEFORE, BEHIND], [gate(on_failure="skip")]),
    Door("a gate whose no gives a default", [BEFORE, BEHIND], [gate(on_failure="default", default="go")]),
    Door(
        "a new pay behind the gate that a person has closed",
        [AFTER, BEHIND], [Replace(id="pay", step=pay("pay2", depends_on=["gate"]))], thinks=0.2,
    ),
    Door(
        "pay in the place of what failed, after a person has closed the gate",
        [AFTER, BEHIND], [Replace(id="boom", step=MALLORY.step)], thinks=0.2,
    ),
    Door(
        "pay as a fallback",
        [BEFORE, BEHIND], [Add(step=Step(id="f", tool="look", args={"to": "mallory"}, fallback="pay"))],
    ),
    Door(
        "pay for each of a list",
        [pay(pause="before")],
        [Add(step=Step(id="f", tool="pay", args={"to": "${item}"}, for_each=["mallory", "bob"]))],
    ),
    Door("re-order gate and pay", [BEFORE, BEHIND], [AWAY, Rewire(id="gate", depends_on=["pay"])]),
)  # fmt: skip

# In more than one go -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Story:
    """A way round people that takes a planner more than one answer, or more than one run.

    Attributes:
        name: What it does.
        steps: The plan of the host; none if the planner writes the first plan.
        scripts: What the planner writes, answer by answer, as for `Writer`.
        paid: What may have been paid in the end.
        pauses: What a person says to pauses; they say yes to plans and patches, and no to calls.
        again: What the planner of a retry writes; none for no retry.
    """

    name: str
    steps: Sequence[Step]
    scripts: Sequence[Sequence[Any]]
    paid: tuple[tuple[str, int], ...] = ()
    pauses: bool = True
    again: Sequence[Any] | None = None


async def tell(story: Story) -> Outcome:
    """Let *story* happen."""
    outcome, failed, journal = Outcome(), list[str](), MemoryJournal()

    @dagrun.tool(effect="read")
    async def odd(context: dagrun.ToolContext) -> str:
        context.surprise("nobody has expected that")
        return "go"

    @dagrun.tool(effect="read")
    async def later() -> str:
        """Find out whom to pay, not at the first time."""
        await anyio.sleep(1)
        if not failed:
            failed.append("once")
            raise dagrun.ToolError("no")
        return "alice"

    async def person(question: Question) -> bool:
        outcome.asked.append(f"{question.kind} {question.step}".strip())
        await anyio.sleep(0.2)
        return question.kind == "patch" or (question.kind == "pause" and story.pauses)

    options: Any = {"tools": [*door_tools(outcome.paid), odd, later], "approver": person, "journal": journal}
    plan = {"plan": Plan(steps=story.steps)} if story.steps else {"goal": "pay"}
    with anyio.fail_after(1_000):
        async with dagrun.start(**plan, run_id="run", planner=Writer(*story.scripts), **options) as run:
            outcome.result = await run.result()
        if story.again is not None:
            async with dagrun.retry("run", planner=Writer(story.again), **options) as run:
                outcome.result = await run.result()
    return outcome


BOOM: Final = Step(id="boom", tool="fails")
WAIT: Final = Step(id="wait", tool="check", args={"seconds": 1})
LATE: Final = Step(id="late", tool="fails", depends_on=["wait"])
SLOW: Final = Step(id="who", tool="check", args={"seconds": 2})
MINE: Final = Replace(id="who", step=const("me", "mallory"))
UNSURE: Final = Patch(edits=(), confidence=0.3)

STORIES: Final = (
    Story(
        "away from a gate that is passed, then one more",
        [BOOM, WAIT, LATE, Step(id="who", tool="check", args={"seconds": 0.6}), AFTER, pay(depends_on=["gate", "who"])],
        [[0.4, Rewire(id="pay", depends_on=["who"])], [MALLORY]],
        paid=(ALICE,),
    ),
    Story(
        "another payee than in the patch that a person has agreed to",
        [BOOM, WAIT, LATE, SLOW], [[pay(to="${who}"), UNSURE], [MINE]],
    ),
    Story(
        "another payee than in the plan that a person has agreed to",
        [], [[WAIT, LATE, SLOW, pay(to="${who}"), UNSURE], [MINE]],
    ),
    Story(
        "another payee than in the plan of the run before",
        [], [[Step(id="who", tool="later"), pay(to="${who}"), BOOM, UNSURE], []], again=[0.2, MINE],
    ),
    Story(
        "one more in a retry, after the one behind a gate has been dropped",
        [BOOM, BEFORE, BEHIND], [[Drop(id="pay")], []], pauses=False, again=[MALLORY],
    ),
    Story(
        "an answer about a step that surprises, while a person looks at it",
        [Step(id="gate", tool="odd", pause="after"), BEHIND], [[const("x")]], pauses=False,
    ),
)  # fmt: skip
