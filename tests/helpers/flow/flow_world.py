"""A small world with a trust boundary: files that anybody writes, a bank, a page of the web; and planners by script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import dagrun
from dagrun import Add, Brief, Flow, Patch, Plan, Policy, Question, Replace, RunResult, Step, ToolError
from dagrun.kernel.model.tool import AnyTool


def step(id_: str, tool: str, /, **args: Any) -> dict[str, Any]:
    """A step as it is written in a plan."""
    return {"id": id_, "tool": tool, "args": args}


def plan_of(*steps: dict[str, Any]) -> Plan:
    """A plan of these steps."""
    return Plan.model_validate({"steps": list(steps)})


def add(id_: str, tool: str, /, **args: Any) -> Add:
    """An edit that adds a step."""
    return Add(step=Step.model_validate(step(id_, tool, **args)))


def replace(old: str, new: dict[str, Any]) -> Replace:
    """An edit that puts a step in the place of another."""
    return Replace(id=old, step=Step.model_validate(new))


@dataclass(slots=True)
class World:
    """What happens, and the tools that make it happen.

    Attributes:
        paid: Whom money was sent to.
        fetched: The addresses that were fetched.
        asked: The questions that a person was asked.
        says: What that person answers.
        broken: Tools that fail, by name, with the text of their error; each fails once.
    """

    paid: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
    says: bool = True
    broken: dict[str, str] = field(default_factory=dict)

    async def person(self, question: Question) -> bool:
        """Answer a question."""
        self.asked.append(question)
        return self.says

    def _breaks(self, tool: str) -> None:
        if tool in self.broken:
            raise ToolError(self.broken.pop(tool))

    @property
    def tools(self) -> list[AnyTool]:
        """The tools of this world."""

        @dagrun.tool(effect="read", untrusted=True)
        async def read_file(path: str) -> str:
            """Read a file, which anybody may have written."""
            self._breaks("read_file")
            return f"text of {path}"

        @dagrun.tool(effect="pure")
        async def extract(text: str) -> str:
            """Find an account in a text."""
            self._breaks("extract")
            return text.rsplit(" ", 1)[-1]

        @dagrun.tool(effect="read")
        async def balance(account: str = "mine") -> float:
            """Tell the balance of an account."""
            self._breaks("balance")
            return 10.0

        @dagrun.tool(effect="effectful")
        async def send_money(recipient: Annotated[str, dagrun.guarded], amount: float = 1.0, subject: str = "") -> str:
            """Pay."""
            self._breaks("send_money")
            self.paid.append(recipient)
            return "paid"

        @dagrun.tool(effect="read", outbound=True)
        async def fetch(url: Annotated[str, dagrun.guarded]) -> str:
            """Fetch a page of any address."""
            self._breaks("fetch")
            self.fetched.append(url)
            return "page"

        return [read_file, extract, balance, send_money, fetch]


class Scripted:
    """A planner that gives one answer after the other, and then none; it keeps its briefs."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.briefs: list[Brief] = []

    async def revise(self, brief: Brief) -> Any:
        """Give the next answer."""
        self.briefs.append(brief)
        return self.answers.pop(0) if self.answers else None


def patch(*edits: Any) -> Patch:
    """A patch of these edits."""
    return Patch(edits=edits)


async def run(
    world: World,
    steps: Sequence[dict[str, Any]],
    *answers: Any,
    flow: Flow | None = None,
    policy: dict[str, Any] | None = None,
    **options: Any,
) -> RunResult:
    """Run a plan in a world, with a planner that gives these answers."""
    limits = Policy(flow=Flow() if flow is None else flow, **(policy or {}))
    planner = options.pop("planner", Scripted(*answers))
    known = {"approver": world.person, **options}
    return await dagrun.run(plan_of(*steps), tools=world.tools, policy=limits, planner=planner, **known)
