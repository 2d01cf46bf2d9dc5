"""What every part of a check needs to know about the plan and its tools."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagrun.checks.argument_shapes import ArgumentShapes
from dagrun.checks.checked_plan import EVERY_TOOL
from dagrun.checks.findings import Findings
from dagrun.checks.reference_sources import ReferenceSources
from dagrun.checks.schema_types import Types, look_up
from dagrun.model.plan import Plan
from dagrun.model.policy import Policy
from dagrun.model.secrets.secret import NO_SECRETS, Secrets
from dagrun.model.tool import ExecutorName
from dagrun.model.toolbox import AnyTool, Toolbox
from dagrun.model.value import Path


@dataclass(slots=True)
class ToolFacts:
    """What follows from a tool and a policy for every step alike, worked out once.

    Attributes:
        tool: The tool.
        is_allowed: Whether this run may call it.
        executor: Where it runs.
        pool: The pool whose limit counts it.
        timeout: Seconds for an attempt: the least that tool and policy say; or none.
        has_aliases: Whether an argument of it goes by two names.
        may_ask: Whether a person may have to agree to a call of it.
        argument_types: The types that places in its arguments take, as far as they were asked for.
        import_fault: Why a worker process could not import it; empty if it can, `None` if nobody has looked.
    """

    tool: AnyTool
    is_allowed: bool
    executor: ExecutorName
    pool: str | None
    timeout: float | None
    has_aliases: bool
    may_ask: bool
    argument_types: dict[Path, Types | None] = field(default_factory=dict)
    import_fault: str | None = None

    def types_of(self, *place: str | int) -> Types | None:
        """The JSON types that an argument takes, by any of its names, or a part of one; `None` for any.

        Args:
            place: The name, and the keys and indices that lead to the part.
        """
        if place not in self.argument_types:
            arguments = self.tool.arguments
            whole = arguments.property_schema(str(place[0]))
            self.argument_types[place] = look_up([(whole, arguments.schema)], place[1:]).types
        return self.argument_types[place]

    def why_no_process(self) -> str:
        """Why a worker process could not import the tool; empty if it can."""
        if self.import_fault is None:
            self.import_fault = _import_fault(self.tool)
        return self.import_fault


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The steps under check, their surroundings, and what was found.

    Attributes:
        policy: What they are checked against.
        findings: Where the problems go.
        index: The place of each id that a step may wait for.
        tools: What is known of each tool, by name.
        sources: What stands behind references.
        ids: The same ids as a set, which large sets compare with quickly; `None` where few are asked for.
        executors: The names of the executors of the host that they may name.
        secrets: Those of the host.
        forms: The forms of arguments that were met. A check has its own: what it finds holds for its steps, its tools
            and its secrets alone.
    """

    policy: Policy
    findings: Findings
    index: Mapping[str, int]
    tools: Mapping[str, ToolFacts]
    sources: ReferenceSources
    ids: frozenset[str] | None = None
    executors: frozenset[str] = frozenset()
    secrets: Secrets = NO_SECRETS
    forms: ArgumentShapes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "forms", ArgumentShapes(self.index, self.sources))

    def knows(self, ids: Collection[str]) -> bool:
        """Whether a step may wait for all of *ids*."""
        if self.ids is not None:
            return self.ids.issuperset(ids)
        return all(map(self.index.__contains__, ids))

    def unknown(self, ids: set[str]) -> set[str]:
        """Those of *ids* that no step may wait for: of millions, at the speed of sets."""
        if self.ids is not None:
            return ids - self.ids
        unknown = set()
        for id_ in ids:
            if id_ not in self.index:
                unknown.add(id_)
        return unknown


def context_of(
    plan: Plan,
    index: Mapping[str, int],
    toolbox: Toolbox,
    policy: Policy,
    findings: Findings,
    *,
    inputs: Mapping[str, Any] | None,
    executors: frozenset[str],
    secrets: Secrets = NO_SECRETS,
) -> CheckContext:
    """The context of a whole plan, with the place of each id."""
    sources = ReferenceSources(dict(zip(index, plan.steps, strict=False)), dict(toolbox), inputs)
    # Made in one go, in which no other thread gets a turn: of a million, that takes too long.
    ids = frozenset(index)
    return CheckContext(policy, findings, index, tool_facts(toolbox, policy), sources, ids, executors, secrets)


def tool_facts(toolbox: Toolbox, policy: Policy) -> dict[str, ToolFacts]:
    """What follows from each tool and a policy."""
    return {name: _facts(tool, toolbox, policy) for name, tool in toolbox.items()}


def lowest_limit(*limits: float | None) -> float | None:
    """The least of those that are given; `None` if none is."""
    return min((limit for limit in limits if limit is not None), default=None)


def _facts(tool: AnyTool, toolbox: Toolbox, policy: Policy) -> ToolFacts:
    timeout = lowest_limit(tool.timeout, policy.timeout)
    names = tool.arguments.names
    return ToolFacts(
        tool=tool,
        is_allowed=tool.name in toolbox.allowed,
        executor=tool.executor,
        pool=tool.pool,
        timeout=timeout,
        has_aliases=len(set(names.values())) < len(names),
        may_ask=bool(tool.needs_approval) or any(rule.tool in (tool.name, EVERY_TOOL) for rule in policy.approve),
    )


def _import_fault(tool: AnyTool) -> str:
    function = tool.function
    module, name = function.__module__, function.__qualname__
    if module == "__main__":
        return "it is defined in the program itself; move it to a module"
    if "<" in name:
        return f"{name} is defined inside a function; move it to the top of its module"
    found: Any = sys.modules.get(module)
    if found is None:
        return ""  # nothing is imported only to check a plan
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is tool or found is function or getattr(found, "function", None) is function:
        return ""
    return f"{tool.import_name} is something else"
