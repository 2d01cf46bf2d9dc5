"""The plan, its tools and its policy, as every part of a check sees them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from dagrun.kernel.checks.argument_shapes import ArgumentShapes
from dagrun.kernel.checks.checked_plan import EVERY_TOOL, takes_deps
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.checks.reference_sources import ReferenceSources
from dagrun.kernel.model.contracts.deps import UNKNOWN_DEPS, Deps
from dagrun.kernel.model.contracts.imported_tools import import_fault
from dagrun.kernel.model.contracts.schema_types import SchemaPlace, Types
from dagrun.kernel.model.executor import refusal_by
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.reference import Template
from dagrun.kernel.model.secrets import KEY_TEXT, NO_SECRETS, Secrets
from dagrun.kernel.model.tool import AnyTool, ExecutorName, Toolbox
from dagrun.kernel.model.value import Path


@dataclass(slots=True)
class ToolFacts:
    """Everything that follows from a tool and a policy for all steps alike, worked out once.

    Attributes:
        tool: The tool.
        is_allowed: Whether this run may call it.
        executor: Where it runs.
        pool: The pool whose limit counts it.
        timeout: Seconds for an attempt: the shorter time of tool and policy; or none.
        has_aliases: Whether one of its arguments has two names.
        may_ask: Whether a call of it, or one that it makes by itself, may need a person.
        is_plain: Whether a step that names nothing else may call it as it is: it runs in no worker process, and has no
            fallback.
        places: The places of its arguments in its schema, by name, as far as they were looked up.
        refusals: Why it cannot run in other places, by the name of the executor, as far as that was looked up; empty
            if it can.
    """

    tool: AnyTool
    is_allowed: bool
    executor: ExecutorName
    pool: str | None
    timeout: float | None
    has_aliases: bool
    may_ask: bool
    is_plain: bool
    places: dict[str | int, SchemaPlace] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def types_of(self, *place: str | int) -> Types | None:
        """Return the JSON types that an argument or a part of it takes; `None` for any.

        Args:
            place: Any name of the argument, and the keys and indices of the part.
        """
        return self.place_of(place).lookup.types

    def takes(self, names: Set[str], template: Template) -> bool:
        """Whether the tool surely takes arguments with these names, whatever the values of references are."""
        arguments, data = self.tool.arguments, b"null".join(template.pieces)
        if not arguments.names.keys() >= names >= arguments.required or KEY_TEXT in data:
            return False
        if self.has_aliases or arguments.aliases or arguments.secrets:
            return False
        try:
            arguments.parse(data)
        except Exception:  # noqa: BLE001  (validators are the host's code, and may raise anything)
            return False
        return True

    def places_of(self, template: Template) -> list[Hashable]:
        """Return the places of references in the schema; those of references inside texts differ from others."""
        places: list[Hashable] = list(map(self.place_of, template.places))
        for number in template.texts:
            places[number] = (places[number],)
        return places

    def place_of(self, place: Path) -> SchemaPlace:
        """Return the place of an argument or a part of it in the schema; see `types_of`."""
        name, *parts = place
        found = self.places.get(name)
        if found is None:
            arguments = self.tool.arguments
            found = self.places[name] = SchemaPlace([(arguments.property_schema(str(name)), arguments.schema)])
        return found.below(parts)

    def why_not_in(self, name: str, executor: object) -> str:
        """Return why an executor of the host cannot run the tool; empty if it can."""
        if name not in self.refusals:
            self.refusals[name] = refusal_by(executor, self.tool)
        return self.refusals[name]

    def why_no_process(self) -> str:
        """Return why a worker process cannot import the tool; empty if it can."""
        if "process" not in self.refusals:
            self.refusals["process"] = import_fault(self.tool, is_child=True)
        return self.refusals["process"]


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The steps under check, their tools and policy, and the problems found so far.

    Attributes:
        policy: The policy that the steps are checked against.
        findings: Collects the problems.
        index: The place of each id that a step may wait for.
        tools: The facts about each tool, by name.
        sources: The steps and inputs that references refer to.
        executors: The host's executors by name, which steps may name; `None` for one of which only the name is known.
        secrets: The secrets of the host.
        deps: The dependencies of the tools.
        has_objects: Whether a tool returns objects in memory, or gets dependencies.
        hides: Whether there are values of secrets to hide.
        shapes: The shapes of arguments that this check has seen. Each check has its own, because its results hold only
            for its steps, tools and secrets.
    """

    policy: Policy
    findings: Findings
    index: Mapping[str, int]
    tools: Mapping[str, ToolFacts]
    sources: ReferenceSources
    executors: Mapping[str, object] = field(default_factory=dict)
    secrets: Secrets = NO_SECRETS
    deps: Deps = UNKNOWN_DEPS
    shapes: ArgumentShapes = field(init=False, repr=False, compare=False)
    has_objects: bool = field(init=False, repr=False, compare=False)
    hides: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tools = [facts.tool for facts in self.tools.values()]
        has_objects = any(tool.output.has_objects for tool in tools) or any(map(takes_deps, tools))
        object.__setattr__(self, "has_objects", has_objects)
        object.__setattr__(self, "hides", self.secrets.are_hidden)
        object.__setattr__(self, "shapes", ArgumentShapes(self.index, self.sources, self.policy.max_argument_bytes))


def context_of(
    plan: Plan,
    index: Mapping[str, int],
    toolbox: Toolbox,
    policy: Policy,
    findings: Findings,
    *,
    inputs: Mapping[str, Any] | None,
    executors: Mapping[str, object],
    secrets: Secrets = NO_SECRETS,
    deps: Deps = UNKNOWN_DEPS,
) -> CheckContext:
    """Return the context for the check of a whole plan; *index* has the place of each id."""
    steps = {id_: plan.steps[place] for id_, place in index.items()}
    sources = ReferenceSources(steps, dict(toolbox), inputs)
    return CheckContext(policy, findings, index, tool_facts(toolbox, policy), sources, executors, secrets, deps)


def tool_facts(toolbox: Toolbox, policy: Policy) -> dict[str, ToolFacts]:
    """Return the facts about each tool, by name."""
    return {name: _facts(tool, toolbox, policy) for name, tool in toolbox.items()}


def lowest_limit(*limits: float | None) -> float | None:
    """Return the lowest of the limits that are set; `None` if none is."""
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
        may_ask=bool(tool.needs_approval) or _has_rule(policy, tool, *tool.inner_tools),
        is_plain=tool.executor != "process" and tool.fallback is None,
    )


def _has_rule(policy: Policy, *tools: AnyTool) -> bool:
    names = {EVERY_TOOL, *(tool.name for tool in tools)}
    return any(rule.tool in names for rule in policy.approve)
