"""Tools, and short ways of checking and reading, for the tests of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from dagrun import CheckedPlan, Plan, PlanRefused, Policy, Problem, Step, Toolbox, ToolContext, read_plan, tool
from dagrun.kernel.checks.check_plan import find_problems


class Row(TypedDict):
    """A row of a table."""

    name: str
    total: float


class Table(BaseModel):
    """What `load` gives."""

    rows: list[Row]
    count: int
    note: str | None = None
    extra: dict[str, int] = {}


class Options(BaseModel):
    """Options of `clean`, and no others."""

    model_config = ConfigDict(extra="forbid")

    depth: int = 1
    names: list[str] = []


@tool(effect="read", timeout=5, fallback="load_copy")
async def load(path: str) -> Table:
    """Read a table."""
    raise NotImplementedError


@tool(effect="read", timeout=5)
async def load_copy(path: str) -> Table:
    """Read the copy of a table."""
    raise NotImplementedError


@tool(effect="pure", timeout=5)
async def clean(rows: list[Row], options: Options | None = None) -> list[Row]:
    """Clean rows."""
    raise NotImplementedError


@tool(effect="pure", timeout=5)
async def count(rows: list[Any]) -> int:
    """Count rows."""
    raise NotImplementedError


@tool(effect="pure", timeout=5)
async def add(a: int, b: int = 0) -> int:
    """Add."""
    raise NotImplementedError


@tool(effect="pure", timeout=5)
async def pick(value: list[int] | list[str] | dict[str, int]) -> tuple[int, str]:
    """Take one of several types."""
    raise NotImplementedError


@tool(effect="pure", timeout=5)
async def show(text: str, level: Literal["low", "high"] = "low") -> str:
    """Show a text."""
    raise NotImplementedError


@tool(effect="pure", timeout=5)
async def anything(value: Any = None) -> Any:
    """Take and give anything."""
    raise NotImplementedError


@tool(effect="effectful", timeout=5, needs_approval=False)
async def send(to: Annotated[str, Field(alias="recipient")], context: ToolContext, body: str = "") -> None:
    """Send something."""
    raise NotImplementedError


@tool(effect="pure", timeout=5, executor="process")
def crunch(n: int) -> int:
    """Work hard, elsewhere."""
    raise NotImplementedError


@tool(effect="pure", timeout=5)
def plain(n: int = 0) -> int:
    """Work hard, in a thread."""
    raise NotImplementedError


TOOLS = (load, load_copy, clean, count, add, pick, show, anything, send, crunch, plain)
TOOLBOX = Toolbox(TOOLS)


def find(
    *steps: Mapping[str, Any] | Step,
    toolbox: Toolbox = TOOLBOX,
    policy: Policy | None = None,
    inputs: Mapping[str, Any] | None = None,
    strict: bool = False,
    **plan: Any,
) -> tuple[tuple[Problem, ...], CheckedPlan | None]:
    """Check a plan of these steps."""
    made = Plan(steps=tuple(s if isinstance(s, Step) else Step(**s) for s in steps), **plan)
    return find_problems(made, toolbox, policy, inputs=inputs, strict=strict)


def errors(*steps: Mapping[str, Any] | Step, **options: Any) -> list[str]:
    """The errors of a plan of these steps, each as code and place."""
    problems, checked = find(*steps, **options)
    found = places(problem for problem in problems if not problem.is_advice)
    assert (checked is None) == bool(found)
    return found


def texts(*steps: Mapping[str, Any] | Step, **options: Any) -> str:
    """The errors of a plan of these steps, as they are shown."""
    return "\n".join(str(problem) for problem in find(*steps, **options)[0] if not problem.is_advice)


def places(problems: Iterable[Problem]) -> list[str]:
    """Each problem as code and place."""
    return [f"{problem.code} {problem.path}" for problem in problems]


def refusal(source: Any, **options: Any) -> PlanRefused:
    """The refusal that reading *source* ends with."""
    with pytest.raises(PlanRefused) as caught:
        read_plan(source, **options)
    return caught.value


def refused(source: Any, **options: Any) -> list[str]:
    """The problems that reading *source* ends with, each as code and place."""
    return places(refusal(source, **options).problems)


def waiting_for(checked: CheckedPlan) -> dict[str, list[str]]:
    """For each step of a plan, by id, the ids of those that wait for it."""
    ids = list(checked.steps)
    return {id_: [ids[place] for place in after] for id_, after in zip(ids, checked.after, strict=True)}
