"""A world outside of runs: its tools write down what they do to it, and it goes on when the process of a run ends."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
from typing_extensions import TypedDict

from dagrun import Applied, Toolbox, ToolContext, ToolError, tool

MOST_TOKENS: Final = 10  # of one call
FREE: Final = frozenset(("look", "scan", "spare"))
ONCE: Final = frozenset(("deed", "deal"))  # effectful


class Act(TypedDict):
    """What one call does, and what it gives if it succeeds."""

    does: str
    seconds: float
    gives: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call that has reached a tool.

    Attributes:
        tool: Its name.
        who: The step of the plan, whatever stands in for it now, with the element.
        step: The id of the step.
        attempt: Its number.
        key: The idempotency key.
        life: In which process it was.
    """

    tool: str
    who: str
    step: str
    attempt: int
    key: str
    life: int


@dataclass(slots=True)
class World:
    """What is outside of the run.

    Attributes:
        calls: Every call that a tool was entered for.
        ends: How those ended that did, by place in `calls`.
        used: What these have used, if they said so.
        applied: The keys under which each step has changed the world, by tool and step.
        acked: What the host was told that it is durable, and the record that says so.
        planner_calls: How often the planner was asked.
        done: What the host has done, so that it does not do it again.
        life: How many processes there have been before this one.
        lost: Calls that no record tells of, because the process ended too early: free ones only.
    """

    calls: list[Call] = field(default_factory=list)
    ends: dict[int, str] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    applied: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    acked: list[tuple[str, Any]] = field(default_factory=list)
    planner_calls: int = 0
    done: set[int] = field(default_factory=set)
    life: int = 0
    lost: set[int] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    played: Counter[str] = field(default_factory=Counter)

    def copy(self) -> World:
        """As it is at this instant."""
        return replace(
            self,
            calls=list(self.calls),
            ends=dict(self.ends),
            used=dict(self.used),
            applied=defaultdict(list, {about: list(keys) for about, keys in self.applied.items()}),
            acked=list(self.acked),
            done=set(self.done),
            lost=set(self.lost),
            broken=list(self.broken),
            played=Counter(self.played),
        )

    def enter(self, call: Call) -> int:
        """Note a call; what an effectful one may not do twice is looked at here, at the door."""
        if call.tool in ONCE:
            for place, before in enumerate(self.calls):
                if (before.tool, before.who) == (call.tool, call.who):
                    self._may_repeat(place, before, call)
        if call.tool == "put":
            for before in self.calls:
                if (before.tool, before.who, before.step) == (call.tool, call.who, call.step):
                    self._may_rekey(before, call)
        self.calls.append(call)
        return len(self.calls) - 1

    def _may_repeat(self, place: int, before: Call, call: Call) -> None:
        if before.key in self.applied[before.tool, before.who]:
            self.broken.append(f"{call} was entered, and the call before has taken effect: {before}")
        elif self.ends.get(place) != "nothing happened" and before.key == call.key:
            self.broken.append(f"{call} was entered again with the same key, and nobody knew how {before} had ended")

    def _may_rekey(self, before: Call, call: Call) -> None:
        if before.key != call.key and before.key in self.applied[before.tool, before.who]:
            self.broken.append(f"{call} has another key than {before}, which has taken effect")

    def count(self, step: str) -> int:
        """How often a step has been called so far, in all processes."""
        return sum(1 for call in self.calls if call.step == step)

    def is_applied(self, step: str, tool_name: str) -> bool | None:
        """Whether the last call of a step took effect, as somebody finds who looks; `None` if it was never called."""
        last = next((c for c in reversed(self.calls) if (c.step, c.tool) == (step, tool_name)), None)
        return None if last is None else last.key in self.applied[last.tool, last.who]


class Life:
    """One process of a run, as its tools see it.

    Args:
        world: Outside.
        mark: Called around each effect.
    """

    def __init__(self, world: World, mark: Callable[[str], None]) -> None:
        self.world = world
        self.mark = mark


LIFE: ContextVar[Life] = ContextVar("LIFE")


class Given(TypedDict):
    """What every act gives."""

    value: int
    rows: list[int]
    trail: str


def given(act: Act, who: str, feed: Any, item: int) -> Given:
    """What *act* gives: the trail is a hash over all that it got."""
    got = json.dumps([act["gives"], who, feed, item], sort_keys=True).encode()
    return {
        "value": act["gives"],
        "rows": list(range(act["gives"] % 4)),
        "trail": hashlib.sha256(got).hexdigest()[:12],
    }


_BEFORE: Final[dict[str, dict[str, Any]]] = {
    "is busy": {"retryable": True},
    "refuses": {},
    "is forbidden": {"permission": True},
    "is unreachable": {"unreachable": True},
    "needs a note": {"missing_input": "note"},
}


_AFTER: Final = {"loses the line": ConnectionResetError, "breaks": ValueError}


def _take_effect(life: Life, name: str, me: str, key: str) -> None:
    life.mark("before the effect")
    applied = life.world.applied[name, me]
    if name in ONCE or key not in applied:
        applied.append(key)
    life.mark("after the effect")


async def _play(
    name: str, acts: list[Act], who: str, context: ToolContext, *, feed: Any, item: int, note: str
) -> Given:
    life = LIFE.get()
    world, me = life.world, f"{who}[{item}]"
    place = world.enter(Call(name, me, context.step, context.attempt, context.idempotency_key, world.life))
    # By what has come to an end, not by the attempt: a call that a crash has cut off is no act of its own.
    act = acts[min(world.played[me], len(acts) - 1)]
    does, how = act["does"], "went wrong"
    try:
        if does == "hangs":
            await anyio.sleep_forever()
        await anyio.sleep(act["seconds"])
        if does == "asks":
            answer = await context.ask_person("how many?", {"type": "integer"}, None) if context.ask_person else None
            feed = [feed, answer.value if answer is not None else None]
        if does in _BEFORE and not (does == "needs a note" and note):
            how = "nothing happened"
            raise ToolError(does, **_BEFORE[does])
        if name not in FREE:
            _take_effect(life, name, me, context.idempotency_key)
            await anyio.sleep(act["seconds"] / 2)
        if does in _AFTER:
            raise _AFTER[does](does)
        if act["gives"] % 2:  # who says nothing is charged the most
            world.used[place] = act["gives"]
            context.report_usage(tokens=act["gives"])
        if does == "surprises":
            context.surprise("nobody expected that")
        how = "returned"
        return given(act, who, feed, item)
    except anyio.get_cancelled_exc_class():
        how = ""
        world.played[me] += does == "hangs"
        raise
    finally:
        if how:
            world.ends[place] = how
            world.played[me] += 1


def _effect_of(key: str) -> Any:
    """What a service says about a key."""
    world = LIFE.get().world
    is_known = any(key in keys for keys in world.applied.values())
    return Applied({"value": 1, "rows": [0], "trail": "found out"}) if is_known else False


async def reconcile(key: str) -> Any:
    """Find out whether a call took effect; one time in four nobody can say."""
    await anyio.sleep(0.3)
    return None if int(key[0], 16) % 4 == 0 else _effect_of(key)


@tool(effect="pure", fallback="spare", max_tokens=MOST_TOKENS)
async def look(
    acts: list[Act], who: str, context: ToolContext, item: int = 0, feed: Any = None, note: str = ""
) -> Given:
    """Look at something."""
    return await _play("look", acts, who, context, feed=feed, item=item, note=note)


@tool(effect="read", max_tokens=MOST_TOKENS)
async def scan(
    acts: list[Act], who: str, context: ToolContext, item: int = 0, feed: Any = None, note: str = ""
) -> Given:
    """Look at something far away."""
    return await _play("scan", acts, who, context, feed=feed, item=item, note=note)


@tool(effect="read", max_tokens=MOST_TOKENS)
async def spare(
    acts: list[Act], who: str, context: ToolContext, item: int = 0, feed: Any = None, note: str = ""
) -> Given:
    """Stand in when looking has failed."""
    return await _play("spare", acts, who, context, feed=feed, item=item, note=note)


@tool(effect="idempotent", max_tokens=MOST_TOKENS)
async def put(
    acts: list[Act], who: str, context: ToolContext, item: int = 0, feed: Any = None, note: str = ""
) -> Given:
    """Change the world once, however often it is called with the same key."""
    return await _play("put", acts, who, context, feed=feed, item=item, note=note)


@tool(effect="effectful", needs_approval=False, reconcile=reconcile, max_tokens=MOST_TOKENS)
async def deed(
    acts: list[Act], who: str, context: ToolContext, item: int = 0, feed: Any = None, note: str = ""
) -> Given:
    """Change the world each time; it can be found out."""
    return await _play("deed", acts, who, context, feed=feed, item=item, note=note)


@tool(effect="effectful", needs_approval=False, max_tokens=MOST_TOKENS)
async def deal(
    acts: list[Act], who: str, context: ToolContext, item: int = 0, feed: Any = None, note: str = ""
) -> Given:
    """Change the world each time; nobody but people can find out."""
    return await _play("deal", acts, who, context, feed=feed, item=item, note=note)


NAMES: Final = ("look", "scan", "spare", "put", "deed", "deal")
TOOLS: Final = Toolbox(look, scan, spare, put, deed, deal)
