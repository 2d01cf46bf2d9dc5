"""A checked plan whose tools only take time: its steps, limits and effects stay, and no function of it is called.

1. Each call draws its duration and its failure with numbers that are a hash of the seed, the run, the step, the tool,
   the attempt and the call. So variants of a plan share their luck, in whatever order they make their calls.
2. What a step returns is given by the host, or made up of what the plan refers to: each part that a reference names is
   there, and a list that a ``for_each`` goes through has as many elements as the host says.
3. A condition (``when``, ``success``) counts if the outputs that it looks at are given; else it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import inf
from typing import Any, Final, TypeAlias, cast

import anyio

from dagrun import CheckedPlan, Condition, ToolContext, schema_tool
from dagrun.errors import ContractError
from dagrun.evaluate.simulation.call_models import (
    FORMS,
    TIMEOUT,
    DurationModel,
    FailureModel,
    error_of,
    learned_duration,
    read_duration,
)
from dagrun.extend import AnyTool, CheckedStep, Durations
from dagrun.records import Reference
from dagrun.texts import hint, shorten

_MADE_UP: Final = "simulated"
_WHOLE: Final = float(1 << 64)

Needs: TypeAlias = list[tuple[Any, ...]]


class _Each:
    """In a path: each element of the list there."""


_EACH: Final = _Each()


@dataclass(frozen=True, slots=True)
class World:
    """The stubs of a simulation.

    Attributes:
        durations: How long calls take, by the id of a step or the name of a tool.
        failures: How calls fail, by the id of a step or the name of a tool.
        outputs: What steps return, by id; for a for_each, what each call returns.
        items: The elements of the list that a step returns, by id, where a for_each goes through it.
        costs: What a call costs, by the id of a step or the name of a tool.
        learned: Durations of real calls, for tools without a duration; a step's ``estimate`` comes last.
        learned_failures: How real calls of tools fail, for tools without a rule of their own.
    """

    durations: Mapping[str, DurationModel] = field(default_factory=dict)
    failures: Mapping[str, FailureModel] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    items: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    learned: Durations = field(default_factory=Durations)
    learned_failures: Mapping[str, FailureModel] = field(default_factory=dict)

    def must_fit(self, plan: CheckedPlan) -> None:
        """Refuse names that are no step of *plan* and no tool of its toolbox, and amounts that are none.

        Raises:
            ContractError: There is such a name or amount.
        """
        for name, count in self.items.items():
            if not _is_number(count, int):
                raise ContractError(f"{name}: a number of elements is 0 or more, got {shorten(repr(count), 40)}")
        for name, cost in self.costs.items():
            if not _is_number(cost, (int, float)):
                raise ContractError(f"{name}: the cost of a call is 0 or more, got {shorten(repr(cost), 40)}")
        steps = set(plan.steps)
        tools = set(plan.toolbox)  # all, so that one list of durations does for several plans
        for what, names, known in (
            ("a duration", self.durations, steps | tools),
            ("a failure rate", self.failures, steps | tools),
            ("a cost", self.costs, steps | tools),
            ("an output", self.outputs, steps),
            ("a number of elements", self.items, steps),
        ):
            for name in names:
                if name not in known:
                    kind = "a step" if known is steps else "a step or a tool"
                    near = hint(name, sorted(known))
                    raise ContractError(f"{what} was given for {name}, which is not {kind} of the plan{near}")

    def duration_of(self, step: CheckedStep, tool: AnyTool) -> DurationModel | None:
        """Return how long the calls of *tool* for *step* take; `None` if that is not known."""
        for name in (step.step.id, tool.name):
            if name in self.durations:
                return self.durations[name]
        learned = learned_duration(self.learned, tool.name)
        if learned is not None or step.step.estimate is None:
            return learned
        return read_duration(step.step.estimate)

    def failure_of(self, step: CheckedStep, tool: AnyTool) -> FailureModel | None:
        """Return how the calls of *tool* for *step* fail; `None` if they do not."""
        for name in (step.step.id, tool.name):
            if name in self.failures:
                return self.failures[name]
        return self.learned_failures.get(tool.name)

    def items_of(self, step: str, default: int) -> int:
        """Return how many elements a list in the output of *step* has."""
        return self.items.get(step, default)


def _is_number(given: object, types: type | tuple[type, ...]) -> bool:
    """Whether *given*, from a host, is a number of one of *types*, 0 or more, and finite."""
    return isinstance(given, types) and not isinstance(given, bool) and 0 <= cast(float, given) < inf


class RandomSource:
    """Draws the numbers of one run after the other.

    Args:
        seed: Other seeds give other numbers.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._run = 0
        self._calls: Counter[str] = Counter()

    @property
    def seed_of_run(self) -> int:
        """The seed of the run's own random draws, such as the jitter of its delays."""
        digest = blake2b(f"{self._seed}/{self._run}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "big")

    def begin(self, run: int) -> None:
        """Begin with the run of that number."""
        self._run = run
        self._calls.clear()

    def draw(self, what: str) -> tuple[float, float]:
        """Return two reproducible numbers between 0 and 1 for the next call named *what*."""
        nth = self._calls[what] = self._calls[what] + 1
        digest = blake2b(f"{self._seed}/{self._run}/{nth}/{what}".encode(), digest_size=16).digest()
        one, other = (int.from_bytes(part, "big") for part in (digest[:8], digest[8:]))
        return (one + 0.5) / _WHOLE, (other + 0.5) / _WHOLE


def simulated(plan: CheckedPlan, world: World, luck: RandomSource, default_items: int) -> CheckedPlan:
    """Return *plan* with tools that only take time.

    Args:
        plan: The plan.
        world: The behaviour of its tools.
        luck: Draws their durations and failures.
        default_items: The elements of a list whose length *world* does not say.

    Raises:
        ContractError: It is not known how long some tools take.
    """
    missing = {
        tool.name: None
        for step in plan.steps.values()
        for tool in (step.tool, step.fallback)
        if tool is not None and world.duration_of(step, tool) is None
    }
    if missing:
        raise ContractError(
            f"how long {', '.join(missing)} takes is not known: no call was recorded, and no step has an estimate;"
            f" give it a duration: {FORMS}"
        )
    needs = _needs(plan)
    _unite_needs(plan, world, needs)
    outputs = {id_: _output(id_, needs.get(id_, []), world, default_items) for id_ in plan.steps}
    stand_ins = _StandIns(world, luck, outputs)
    steps = {id_: _simulated_step(step, stand_ins) for id_, step in plan.steps.items()}
    return replace(plan, steps=steps, output=None)


def _simulated_step(step: CheckedStep, stand_ins: _StandIns) -> CheckedStep:
    conditions = {name: _if_given(getattr(step.step, name), stand_ins.world) for name in ("when", "success")}
    return replace(
        step,
        step=step.step.model_copy(update=conditions),
        tool=stand_ins.of(step, step.tool),
        fallback=None if step.fallback is None else stand_ins.of(step, step.fallback),
        executor="coroutine",
    )


def _if_given(condition: Condition | None, world: World) -> Condition | None:
    if condition is None:
        return None
    looked_at = {leaf.reference.step for leaf in condition.leaves()} - {"input"}
    return condition if looked_at <= world.outputs.keys() else None


@dataclass(frozen=True, slots=True)
class _StandIns:
    """Makes the stubs of tools: one for each step, but one for all steps that may share results.

    Attributes:
        world: What the tools do.
        luck: Draws for all of them.
        outputs: What a call returns, by step.
        shared: The stand-ins of tools that keep results: they are the same for steps that differ in nothing else.
    """

    world: World
    luck: RandomSource
    outputs: Mapping[str, Any]
    shared: dict[tuple[Any, ...], AnyTool] = field(default_factory=dict)

    def of(self, step: CheckedStep, tool: AnyTool) -> AnyTool:
        """Return the stub for the calls of *tool* for *step*."""
        world, names, output = self.world, (step.step.id, tool.name), self.outputs[step.step.id]
        model = world.duration_of(step, tool)
        assert model is not None, "was looked at before"
        failure = world.failure_of(step, tool)
        cost = next((world.costs[name] for name in names if name in world.costs), None)
        function = _play(self.luck, tool.name, model, failure, cost=cost, output=output)
        made = _stub_of(tool, function, shares_results=_is_kept(step, tool, world))
        if made.cache is None:
            return made
        return self.shared.setdefault((tool, model.text, failure, cost, repr(output)), made)


def _stub_of(tool: AnyTool, play: Callable[..., Any], *, shares_results: bool) -> AnyTool:
    """Return a tool with the name and the effect of *tool* that takes any arguments, and calls nothing but *play*.

    Args:
        tool: The tool.
        play: Takes the arguments and the context of the call, and returns plain JSON.
        shares_results: Whether results are kept for equal calls, as for *tool*.
    """
    made = schema_tool(tool.name, play, {"additionalProperties": True}, effect=tool.effect)
    return replace(
        tool,
        function=made.function,
        arguments=made.arguments,
        output=made.output,
        executor="coroutine",
        reconcile=None,
        batch=None,
        cache=tool.cache if shares_results else None,
        inner_tools=tuple(replace(inner, arguments=made.arguments, batch=None) for inner in tool.inner_tools),
        is_importable=False,
    )


def _play(
    luck: RandomSource,
    tool: str,
    model: DurationModel,
    failure: FailureModel | None,
    *,
    cost: float | None,
    output: Any,
) -> Callable[..., Any]:
    """Return the function of a stub."""

    async def play(_: dict[str, Any], context: ToolContext[object]) -> Any:
        u, v = luck.draw(f"{context.attempt}/{tool}/{context.step}")
        if cost is not None:
            context.report_usage(cost=cost)
        fault = "" if failure is None else failure.drawn(v)
        if fault == TIMEOUT and context.deadline is not None:
            await anyio.sleep_forever()
        await anyio.sleep(model.inverse(u))
        if fault:
            raise error_of(fault)
        return output

    return play


def _is_kept(step: CheckedStep, tool: AnyTool, world: World) -> bool:
    """Whether results are kept: not if made-up arguments would make calls equal that are not."""
    given = {"input", *world.outputs}
    return tool.cache is not None and all(reference.step in given for reference in step.args.references)


# Made-up outputs -----------------------------------------------------------------------------------------------------


def _needs(plan: CheckedPlan) -> dict[str, Needs]:
    """Return the paths in the output of each step's call that the plan refers to."""
    found: dict[str, Needs] = {}
    for step in plan.steps.values():
        source = _list_of(step)
        for reference in _references(step):
            path: tuple[Any, ...] = reference.path
            id_ = reference.step
            if id_ == "item" and source is not None:
                id_, path = source.step, (*source.path, _EACH, *path)
            producer = plan.steps.get(id_)
            if producer is not None:
                # A for_each returns the list of its calls' outputs.
                found.setdefault(id_, []).append(path[1:] if producer.items is not None else path)
    return found


def _unite_needs(plan: CheckedPlan, world: World, needs: dict[str, Needs]) -> None:
    """Give steps that may share results a common output: all paths that the plan refers to in any of them."""
    united: dict[str, Needs] = {}
    sharing = [id_ for id_, step in plan.steps.items() if _is_kept(step, step.tool, world)]
    for id_ in sharing:
        united.setdefault(plan.steps[id_].tool.name, []).extend(needs.get(id_, []))
    needs.update({id_: united[plan.steps[id_].tool.name] for id_ in sharing})


def _list_of(step: CheckedStep) -> Reference | None:
    """Return the reference to the list that a for_each goes through; `None` if it is no reference alone."""
    items = step.items
    whole = items is not None and items.places == ((),) and not items.texts
    return items.references[0] if items is not None and whole else None


def _references(step: CheckedStep) -> Iterator[Reference]:
    yield from step.args.references
    for condition in (step.step.when, step.step.success):
        yield from (leaf.reference for leaf in condition.leaves()) if condition is not None else ()
    if _list_of(step) is not None:
        yield Reference("item")
    elif step.items is not None:
        yield from step.items.references


def _output(step: str, needs: Iterable[tuple[Any, ...]], world: World, default_items: int) -> Any:
    if step in world.outputs:
        return world.outputs[step]
    value: Any = None
    for path in needs:
        value = _with_part(value, path, world.items_of(step, default_items))
    return _MADE_UP if value is None else value


def _with_part(value: Any, path: tuple[Any, ...], items: int) -> Any:
    """Return *value*, changed so that it has something at *path*."""
    if not path:
        return _MADE_UP if value is None else value
    first, rest = path[0], path[1:]
    if isinstance(first, str):
        made = value if isinstance(value, dict) else {}
        made[first] = _with_part(made.get(first), rest, items)
        return made
    elements: list[Any] = value if isinstance(value, list) else []
    if isinstance(first, _Each):
        elements += [None] * (items - len(elements))
        return [_with_part(element, rest, items) for element in elements]
    elements += [None] * (first + 1 - len(elements))
    elements[first] = _with_part(elements[first], rest, items)
    return [_MADE_UP if element is None else element for element in elements]
