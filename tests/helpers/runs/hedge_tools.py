"""Tools whose calls are slow in ways that a test says, what became of each call, and the short way to run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import anyio

import dagrun
from dagrun import Event, HedgeRule, Plan, Policy, Run, RunResult, Step, ToolContext
from dagrun.events import AttemptEnded, AttemptStarted, Hedged, HedgeEnded
from dagrun.extend import Durations
from dagrun.kernel.decide.durations import RELATIVE_ERROR
from dagrun.kernel.model.outcome import Attempt, Hedge
from dagrun.kernel.model.tool import AnyTool, make_tool
from small_tools import SMALL_TOOLS

E = TypeVar("E", bound=Event)

USUAL: Final = 1.0  # seconds that the calls of every known tool took
HEDGED: Final = HedgeRule()


def known(*tools: str, calls: int = 100, seconds: float = USUAL) -> Durations:
    """What is known of *tools* after so many calls that took *seconds* each."""
    made = Durations()
    for tool in tools or ("look",):
        for _ in range(calls):
            made.add(tool, seconds)
    return made


def _patience() -> float:
    found = known().quantile("look", HEDGED.quantile)
    assert found is not None
    return found * (1 + RELATIVE_ERROR)


PATIENCE: Final = _patience()  # when a call of a known tool is slow: beyond what the sketch rounds


@dataclass(frozen=True, slots=True)
class Act:
    """What one call does.

    Attributes:
        seconds: How long it takes.
        gives: What it returns; an exception is raised, and what is callable is called with the context, and awaited.
        unwinds: Seconds that it takes to clean up when it is cancelled.
        tokens: That it reports as soon as it begins; `None` for no report.
        late_tokens: That it reports when it has been cancelled.
    """

    seconds: float = 0.0
    gives: Any = None
    unwinds: float = 0.0
    tokens: int | None = None
    late_tokens: int | None = None


@dataclass(slots=True)
class Call:
    """One call, as it went. Times are those of the clock of the loop, in seconds.

    Attributes:
        step: Whose it was.
        attempt: Of which attempt.
        began: When.
        ended: When it had unwound; `None` if it runs still.
        end: ``returned``, ``failed`` or ``cancelled``.
        told: When it was cancelled; `None` if it was not.
    """

    step: str
    attempt: int
    began: float
    ended: float | None = None
    end: str = ""
    told: float | None = None


@dataclass(slots=True)
class Alive:
    """Counts the calls that are going on, those that unwind included.

    Attributes:
        now: How many there are.
        most: How many there ever were at once.
    """

    now: int = 0
    most: int = 0


class Looker:
    """A tool that plays acts.

    Args:
        acts: One for each call; the last one goes on for ever.
        name: Of the tool.
        alive: Counts its calls, among those of others.
        by_step: Acts of a step of its own.
        options: Of the contract.

    Attributes:
        tool: What goes into the toolbox.
        calls: What became of each.
        alive: How many run.
    """

    def __init__(
        self,
        *acts: Act,
        name: str = "look",
        alive: Alive | None = None,
        by_step: Mapping[str, Sequence[Act]] | None = None,
        effect: str = "read",
        **options: Any,
    ) -> None:
        self._acts = acts
        self._by_step = by_step or {}
        self.calls: list[Call] = []
        self.alive = alive or Alive()
        self.tool: AnyTool = make_tool(self._play, name=name, effect=effect, **options)

    async def _play(self, context: ToolContext, value: Any = None) -> Any:
        step = context.step
        acts = self._by_step.get(step, self._acts)
        before = sum(1 for call in self.calls if acts is self._acts or call.step == step)
        act = acts[min(before, len(acts) - 1)]
        call = Call(step, context.attempt, anyio.current_time())
        self.calls.append(call)
        self.alive.now += 1
        self.alive.most = max(self.alive.most, self.alive.now)
        try:
            gives = await _play(context, act, call)
            call.end = "returned"
        except Exception:
            call.end = "failed"
            raise
        finally:
            self.alive.now -= 1
            call.ended = anyio.current_time()
        return gives

    @property
    def ends(self) -> list[str]:
        """How the calls ended, in the order in which they began."""
        return [call.end for call in self.calls]


async def _play(context: ToolContext, act: Act, call: Call) -> Any:
    if act.tokens is not None:
        context.report_usage(tokens=act.tokens)
    try:
        if act.seconds:
            await anyio.sleep(act.seconds)
        if isinstance(act.gives, BaseException):
            raise act.gives
        gives: Callable[[ToolContext], Awaitable[Any]] | Any = act.gives
        return await gives(context) if callable(gives) else gives
    except anyio.get_cancelled_exc_class():
        call.told, call.end = anyio.current_time(), "cancelled"
        if act.late_tokens is not None:
            context.report_usage(tokens=act.late_tokens)
        if act.unwinds:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(act.unwinds)
        raise


def step(id_: str = "slow", tool: str = "look", *after: str, **fields: Any) -> Step:
    """A step; what is no field of one is an argument."""
    return Step(id=id_, tool=tool, depends_on=after, **fields)


def nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    """A step that sleeps, and is expected to take as long, unless *fields* say otherwise."""
    return Step(id=id_, tool="nap", args={"seconds": seconds}, depends_on=after, **{"estimate": seconds, **fields})


@dataclass(slots=True)
class Played:
    """A run, and what it showed.

    Attributes:
        events: All of them.
        result: How it ended; only after that.
        run: The handle.
        zero: When it began, on the clock of the loop.
    """

    run: Run
    zero: float
    events: list[Event] = field(default_factory=list)
    ended: RunResult | None = None

    @property
    def result(self) -> RunResult:
        assert self.ended is not None
        return self.ended

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def told(self, id_: str = "slow") -> list[str]:
        """What was recorded of the attempts of a step, in order."""
        kinds = (AttemptStarted, Hedged, HedgeEnded, AttemptEnded)
        return [type(event).__name__ for event in self.events if isinstance(event, kinds) and event.step == id_]

    def attempt(self, id_: str = "slow", number: int = 1) -> Attempt:
        """One attempt of a step."""
        return self.result.steps[id_].attempts[number - 1]

    def hedge(self, id_: str = "slow", number: int = 1) -> Hedge:
        """The second call of an attempt."""
        found = self.attempt(id_, number).hedge
        assert found is not None
        return found

    @property
    def hedged(self) -> list[str]:
        """The steps that got a second call, in order."""
        return [event.step for event in self.of(Hedged)]

    def since(self, time: float | None) -> float:
        """A time of the clock, in seconds since the start of the run."""
        assert time is not None
        return time - self.zero

    @property
    def spent(self) -> dict[str, float]:
        """What is spent of every ceiling."""
        return self.run._assembly.parts.ledger.used()


def kept(run: Run) -> list[str]:
    """What a run still holds, now that it is over: there must be nothing."""
    assembly = run._assembly
    frontier, ledger = assembly.parts.frontier, assembly.parts.ledger
    caps = {id(cap): cap for node in assembly.parts.graph.nodes.values() for cap in node.caps}
    found = [f"a place of {cap.limit}: {cap.used} used" for cap in caps.values() if cap.used]
    if frontier._total is not None and not assembly._setup.shared.cap and frontier._total.used:
        found.append(f"a place of all {frontier._total.limit}: {frontier._total.used} used")
    found += [f"a call counted for {key}" for key, window in assembly.parts.windows.items() if window.in_flight]
    found += [f"a reservation for {reservation.called.name}" for reservation in ledger._open]
    found += [f"{account.name} reserved: {account.reserved}" for account in ledger._own.accounts if account.reserved]
    return found


@asynccontextmanager
async def started(
    *steps: Step,
    tools: Sequence[Looker | AnyTool] = (),
    durations: Durations | None = None,
    **options: Any,
) -> AsyncIterator[Played]:
    """Start *steps*, hedged; what is no option of `dagrun.start` belongs to the policy.

    When it is over, nothing of it may be left: no call, no place, no reservation.
    """
    names = ("planner", "critics", "run_id", "journal", "attended", "approver")
    facts: dict[str, Any] = {name: options.pop(name) for name in names if name in options}
    engine = options.pop("engine", None)
    if engine is None:
        facts["durations"] = known() if durations is None else durations
    policy = Policy(**{"hedge": HEDGED, **options})
    made = [tool.tool if isinstance(tool, Looker) else tool for tool in tools]
    events: list[Event] = []
    plan, start = Plan(steps=steps), dagrun.start if engine is None else engine.start
    zero = anyio.current_time()
    async with start(plan, tools=[*SMALL_TOOLS, *made], policy=policy, on_event=events.append, **facts) as running:
        played = Played(running, zero, events)
        yield played
        played.ended = await running.result()
    lookers = [tool for tool in tools if isinstance(tool, Looker)]
    assert [call for looker in lookers for call in looker.calls if call.ended is None] == []
    assert kept(running) == []


async def play(*steps: Step, tools: Sequence[Looker | AnyTool] = (), **options: Any) -> Played:
    """The same, to the end."""
    async with started(*steps, tools=tools, **options) as played:
        pass
    return played
