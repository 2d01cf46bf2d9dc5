"""The stubs of a trial, which follow a script instead of calling tools, and the list of their calls."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias

import anyio
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from dagrun import Applied, Toolbox, ToolContext, ToolError
from dagrun.errors import ValueRefused
from dagrun.evaluate.cases.case_file import FOREVER, Act, Case, Effective
from dagrun.evaluate.cases.failures import WRONG_TYPE, failure_of
from dagrun.evaluate.cases.matching import differences, fits, shown
from dagrun.extend import AnyTool, CallFailed, make_tool
from dagrun.records import COMPOSE
from dagrun.texts import explain, hint, shorten

CONTEXT: Final = "dagrun_context"


@dataclass(slots=True)
class StandInCall:
    """A call of a tool in a trial.

    Attributes:
        tool: The tool.
        step: The step that made it.
        attempt: The number of the attempt of the step, from 1.
        key: The idempotency key.
        arguments: The arguments as plain JSON.
        started: Its begin, on the clock of the loop.
        number: The number of the call among the tool's calls, from 1.
        ended: Its end; `None` while it runs, or if it was stopped.
        failure: The exception that it raised.
        has_returned: Whether it returned.
    """

    tool: AnyTool
    step: str
    attempt: int
    key: str
    arguments: dict[str, Any]
    started: float
    number: int
    ended: float | None = None
    failure: BaseException | None = None
    has_returned: bool = False

    @property
    def may_have_applied(self) -> bool:
        """Whether its effect may have taken place: all but a `ToolError` leaves that open."""
        if isinstance(self.failure, CallFailed):
            return not self.failure.failure.nothing_happened
        return not isinstance(self.failure, ToolError)


class Script(Protocol):
    """The scripted responses of a stub."""

    def act_of(self, call: StandInCall) -> Act | str:
        """Return the response for *call*; or, if the script has none, the reason in a sentence."""
        ...


@dataclass(frozen=True, slots=True)
class _Sort:
    """The calls that a series of acts is for; see `Act` for the fields."""

    when: dict[str, Any] | None
    step: str | None

    def fits(self, call: StandInCall) -> bool:
        return self._is_of_step(call) and (self.when is None or fits(call.arguments, self.when))

    def differences(self, call: StandInCall) -> Iterator[str]:
        """Yield where a call differs, a line each."""
        if not self._is_of_step(call):
            yield f"the step is {call.step}"
        yield from (line[1:] for line in differences(call.arguments, self.when or {}, "", is_part=True))

    def _is_of_step(self, call: StandInCall) -> bool:
        return self.step is None or self.step in (call.step, call.step.partition("[")[0])


class Series:
    """The responses of one tool. Those with equal *when* and *step* form a series: one per call, the last repeats.

    Args:
        acts: The acts, in order. Of the series that fit a call, one with exactly its arguments plays, else the first;
            acts without *when* fit any arguments, and come last.
    """

    def __init__(self, acts: Sequence[Act]) -> None:
        found: dict[tuple[Any, ...], tuple[_Sort, list[Act]]] = {}
        for act in acts:
            sort = _Sort(act.when, act.step)
            found.setdefault((_key(act.when), act.step), (sort, []))[1].append(act)
        self._series = sorted(found.values(), key=lambda one: (one[0].when is None, one[0].step is None))
        self._played: Counter[int] = Counter()

    def act_of(self, call: StandInCall) -> Act | str:
        """See `Script`."""
        fitting = [number for number, (sort, _) in enumerate(self._series) if sort.fits(call)]
        if not fitting:
            return self._why_none(call)
        number = min(fitting, key=lambda one: _key(self._series[one][0].when) != _key(call.arguments))
        acts, played = self._series[number][1], self._played[number]
        self._played[number] += 1
        return acts[min(played, len(acts) - 1)]

    def _why_none(self, call: StandInCall) -> str:
        """Return the reason why no response fits a call, with the differences from the nearest one."""
        text = f"no act of {call.tool.name} is for the arguments {shown(call.arguments)}"
        lines, sort = min(
            (([*sort.differences(call)], sort) for sort, _ in self._series), key=lambda found: len(found[0])
        )
        of_step = "" if sort.step is None else f" of step {sort.step}"
        return f"{text}; the nearest is that{of_step} when {shown(sort.when)}: {'; '.join(lines[:3])}"


def _key(arguments: Mapping[str, Any] | None) -> str:
    return json.dumps(arguments, sort_keys=True)


def scripts_of(case: Case) -> dict[str, Script]:
    """Return the scripts of the stubs of a case, by tool."""
    last: dict[str, Script] = {COMPOSE: Series(case.compose)} if case.compose else {}
    return {name: Series(acts) for name, acts in case.world.items()} | last


Bend: TypeAlias = Callable[[StandInCall, Act], Act]


@dataclass(slots=True)
class CaseWorld:
    """The stubs of one trial, and their calls.

    Args:
        tools: The real tools, whose contracts hold.
        scripts: What stand-ins do, by tool. A tool without a script is refused, and never called.
        real: The tools that are called for real, in their own way.
        reconcile: What tools say about calls in doubt, as in `Case`.
        is_virtual: Whether the clock is virtual, so that plain functions are called in the loop.
        bend: Changes what stand-ins do, to break them.

    Attributes:
        calls: The calls, in the order of their begin.
        strange: The calls for which the world has nothing, a sentence each.
    """

    tools: Toolbox
    scripts: Mapping[str, Script]
    real: Collection[str] = ()
    reconcile: Mapping[str, Sequence[Effective | Literal[False]]] = field(default_factory=dict)
    is_virtual: bool = True
    bend: Bend | None = None
    calls: list[StandInCall] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)
    _reconciliations: Counter[str] = field(default_factory=Counter)

    def toolbox(self) -> Toolbox:
        """Return the tools of the trial."""
        return Toolbox(list(map(self._stand_in, self.tools.values())), allow=self.tools.allowed)

    def composer(self) -> AnyTool | None:
        """Return the stub that composes the answer of the run; `None` if nothing does."""
        return self._stand_in(composing_tool()) if COMPOSE in self.scripts else None

    def _stand_in(self, tool: AnyTool) -> AnyTool:
        if tool.name in self.real:
            context = dataclasses.replace(tool.arguments, context=tool.arguments.context or CONTEXT)
            facts: dict[str, Any] = {"function": partial(self._real, tool), "executor": "coroutine", "batch": None}
            stub = dataclasses.replace(tool, arguments=context, **facts)
        else:
            stub = stub_of(tool, partial(self._play, tool), self._stand_in)
        reconcile = partial(self._reconciled, tool.name) if tool.name in self.reconcile else None
        # The case has the final answer, and its time.
        return dataclasses.replace(stub, reconcile=reconcile, reconcile_after=0.0)

    def _begin(self, tool: AnyTool, arguments: dict[str, Any]) -> tuple[StandInCall, ToolContext[Any]]:
        context = arguments[tool.arguments.context or CONTEXT]
        plain = plain_arguments(tool, arguments)
        self._counts[tool.name] += 1
        facts = (context.step, context.attempt, context.idempotency_key, plain, anyio.current_time())
        call = StandInCall(tool, *facts, number=self._counts[tool.name])
        self.calls.append(call)
        return call, context

    async def _play(self, tool: AnyTool, **arguments: Any) -> Any:
        if (name := tool.arguments.stream) and hasattr(arguments.get(name), "__aiter__"):
            arguments[name] = [element async for element in arguments[name]]  # a stand-in reads its stream to the end
        call, context = self._begin(tool, arguments)
        script = self.scripts.get(tool.name)
        act = script.act_of(call) if script is not None else f"{tool.name} is not in the world of the case"
        if isinstance(act, str):
            self.strange.append(f"step {call.step}: {act}")
            call.failure = ToolError(act)
            raise call.failure
        if self.bend is not None:
            act = self.bend(call, act)
        await _time_of(act)
        call.ended = anyio.current_time()
        return _end(call, act, context)

    async def _real(self, tool: AnyTool, **arguments: Any) -> Any:
        call, _ = self._begin(tool, arguments)
        if tool.arguments.context is None:
            del arguments[CONTEXT]
        try:
            if tool.is_async:
                value = await tool.function(**arguments)
            elif self.is_virtual:
                value = tool.function(**arguments)
            else:
                value = await anyio.to_thread.run_sync(partial(tool.function, **arguments), abandon_on_cancel=True)
        except Exception as error:
            call.ended, call.failure = anyio.current_time(), error
            raise
        call.ended, call.has_returned = anyio.current_time(), True
        return value

    async def _reconciled(self, tool: str, key: str) -> Any:
        replies = self.reconcile[tool]
        reply = replies[min(self._reconciliations[tool], len(replies) - 1)]
        self._reconciliations[tool] += 1
        return Applied(reply.applied) if isinstance(reply, Effective) else False


def stub_of(tool: AnyTool, function: Callable[..., Any], inner: Callable[[AnyTool], AnyTool]) -> AnyTool:
    """Return a stub of a tool: it has the contract of the tool, and needs nothing of the host.

    Args:
        tool: The tool.
        function: Is called in its place, with the context.
        inner: Makes the stubs of the tools that it calls by itself: a person is asked about them.
    """
    changes: dict[str, Any] = {"deps": {}, "optional_deps": frozenset(), "context_deps": None}
    arguments = dataclasses.replace(tool.arguments, context=tool.arguments.context or CONTEXT, **changes)
    facts: dict[str, Any] = {"executor": "coroutine", "batch": None, "inner_tools": tuple(map(inner, tool.inner_tools))}
    return dataclasses.replace(tool, function=function, arguments=arguments, **facts)


def composing_tool() -> AnyTool:
    """Return the contract of the composer; its stub is called instead."""

    async def compose(results: Any, goal: str = "") -> Any: ...

    return make_tool(compose, name=COMPOSE, effect="read")


def plain_arguments(tool: AnyTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as plain JSON, without those that no plan has."""
    hidden = {tool.arguments.context or CONTEXT, *tool.arguments.deps}
    said = {name: value for name, value in arguments.items() if name not in hidden}
    plain: dict[str, Any] = to_jsonable_python(said, fallback=str, by_alias=False)
    return plain


async def _time_of(act: Act) -> None:
    if act.takes == FOREVER:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if act.raises is None:
                raise  # else it says what has come of it, as it was told to stop
    elif act.takes:
        await anyio.sleep(float(act.takes))


def _end(call: StandInCall, act: Act, context: ToolContext[Any]) -> Any:
    """Return or raise the scripted result."""
    if act.tokens is not None or act.cost is not None:
        context.report_usage(tokens=act.tokens or 0, cost=act.cost)
    if act.confidence is not None:
        context.report_confidence(act.confidence)
    if act.surprise:
        context.surprise(act.surprise)
    if act.raises == WRONG_TYPE:
        return _NoJson()
    if act.raises is not None:
        call.failure = failure_of(act.raises)
        raise call.failure
    call.has_returned = True
    return call.tool.output.typed(act.returns)


class _NoJson:
    """A value that no tool declares."""

    def __repr__(self) -> str:
        return "a value of a wrong type"


def must_fit(tools: Toolbox, world: Mapping[str, Sequence[Act]]) -> Iterator[str]:
    """Yield the faults of scripted responses: unknown tools, and values that their tools cannot return."""
    for name, acts in world.items():
        if name not in tools:
            yield f"world.{name}: there is no such tool{hint(name, tools)}"
            continue
        for number, act in enumerate(acts):
            yield from unknown_arguments(tools[name], act.when or {}, f"world.{name}[{number}].when")
            if act.raises is None and act.takes != FOREVER and (fault := _misfit(tools[name], act.returns)):
                yield f"world.{name}[{number}].return: {fault}"


def unknown_arguments(tool: AnyTool, arguments: Mapping[str, Any], place: str) -> Iterator[str]:
    """Yield the arguments in matchers that their tool does not have."""
    known = {*tool.arguments.names, *tool.arguments.names.values()}
    if not tool.arguments.is_open:
        for name in (one for one in arguments if one not in known):
            yield f"{place}: {tool.name} has no argument {name}{hint(name, known)}"


def _misfit(tool: AnyTool, value: Any) -> str:
    if tool.output.has_objects:
        return f"{tool.name} returns an object in memory, which no file can hold; name it under real"
    try:
        tool.output.encode(tool.output.typed(value), tool.output_limit)
    except ValidationError as error:
        return shorten(f"{tool.name} cannot return that: {explain(error)}", 400)
    except ValueRefused as error:
        return shorten(f"{tool.name} cannot return that: {error}", 400)
    return ""
