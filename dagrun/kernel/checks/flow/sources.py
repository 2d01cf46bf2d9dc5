"""Sources of data as bits of a number, and the declarations of the policy and the tools about them.

A set of sources is an `int`, so that joining two is one operation. A few sources are there in every run; each tool, and
each input that others wrote, has three bits more: that data comes from it; that others can write it; and that it must
not leave. "Untrusted" and "private" are questions about the same set, answered with one mask each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary, ref

from dagrun.kernel.model.flow.boundary import Flow, GuardRule, names
from dagrun.kernel.model.flow.marks import read_parts
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Path

USER: Final = 1
PLAN: Final = 2
PERSON: Final = 4
HOST: Final = 8
PLANNER: Final = 16  # one that was shown what others can write; with the sources of that
_FIXED: Final = {"user": USER, "plan": PLAN, "person": PERSON, "host": HOST, "planner": PLANNER}
_INPUT: Final = "input:"
_BITS: Final = 3  # of a source that has a name


@dataclass(slots=True)
class ArgumentGuard:
    """A rule about the arguments of one tool.

    Attributes:
        args: The parameters that it guards; `None` for all.
        accepts: Whether a source may get into them, by name; `None` for every source that others cannot write.
    """

    args: frozenset[str] | None
    accepts: Callable[[str], bool] | None = None

    def takes(self, argument: str) -> bool:
        """Whether it guards an argument."""
        return self.args is None or argument in self.args


@dataclass(slots=True)
class ToolFlow:
    """The flow properties of a tool under a policy.

    Attributes:
        gives: The sources that a whole answer of the tool adds.
        gives_clean: Those that the parts of an answer add which others cannot write.
        says: The sources that the text of an error adds: nobody vouches for that.
        paths: The parts that they can write; empty if that is all of an answer, or nothing.
        is_endorsed: Whether the host vouches for its answers, whatever they are made of.
        acts: Whether a call does more than look: it has an effect, or carries its arguments out.
        guards: The rules about its arguments.
        keeps: Whether nothing private may get into it.
        control: Whether what decides about a call counts as an argument.
        inner: What follows from the tools that it calls by itself.
        is_guarded: Whether any call of it is looked at.
        is_simple: Whether what it gives follows from what it is given with one operation: there are no clean parts, and
            nobody vouches.
    """

    gives: int
    gives_clean: int
    says: int
    paths: tuple[tuple[str, ...], ...]
    is_endorsed: bool
    acts: bool
    guards: tuple[ArgumentGuard, ...]
    keeps: bool
    control: bool
    inner: dict[str, ToolFlow]
    is_guarded: bool = field(init=False)
    is_simple: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_guarded = bool(self.guards) or self.keeps or bool(self.inner)
        self.is_simple = not (self.paths or self.is_endorsed)


class FlowRules:
    """The sources of runs under one trust boundary; shared by all plans and runs that have it.

    It learns of sources and tools as they come, from any thread, and never forgets the bits of a source.

    Args:
        flow: The trust boundary of the policy.

    Attributes:
        untrusted: The mask of sources that others can write.
        private: The mask of sources that must not leave.
        suspect: The mask of both.
        asks_for_more: Whether a rule accepts only some of the sources that others cannot write.
    """

    def __init__(self, flow: Flow) -> None:
        self.flow = flow.model_copy()  # it is kept by the original, which must not be kept alive by this
        self._lock = Lock()
        self.untrusted = self.private = self.suspect = 0
        self.asks_for_more = any(rule.accepts is not None for rule in flow.guard)
        self._named: dict[str, int] = {}
        self._facts: WeakKeyDictionary[AnyTool, ToolFlow] = WeakKeyDictionary()
        self._all_inputs = USER
        for name in flow.inputs:
            self._all_inputs |= self.source(f"{_INPUT}{name}", is_untrusted=True)

    def source(self, name: str, *, is_untrusted: bool = False, is_private: bool = False) -> int:
        """Return the bits of the source *name*, always equal for one name."""
        bit = self._named.get(name)
        if bit is None:
            with self._lock:
                bit = self._named.setdefault(name, 1 << (len(_FIXED) + _BITS * len(self._named)))
                self.untrusted |= bit << 1
                self.private |= bit << 2
                self.suspect = self.untrusted | self.private
        return bit | (bit << 1 if is_untrusted else 0) | (bit << 2 if is_private else 0)

    def of_input(self, path: Path) -> int:
        """Return the sources of the inputs of the run, or of a part of them."""
        if path and isinstance(path[0], str):
            name = path[0]
            return self.source(f"{_INPUT}{name}", is_untrusted=True) if name in self.flow.inputs else USER
        return self._all_inputs

    def named(self, name: str, toolbox: Mapping[str, AnyTool]) -> int:
        """Return the sources of a recorded name; a missing tool counts as one that others write."""
        if name in _FIXED:
            return _FIXED[name]
        if name.startswith(_INPUT):
            return self.of_input((name.removeprefix(_INPUT),))
        return self.facts(toolbox[name]).gives if name in toolbox else self.source(name, is_untrusted=True)

    def facts(self, tool: AnyTool) -> ToolFlow:
        """Return the flow properties of a tool; computed once."""
        known = self._facts.get(tool)
        if known is None:
            known = self._facts[tool] = self._look_at(tool)
        return known

    def _look_at(self, tool: AnyTool) -> ToolFlow:
        flow, name = self.flow, tool.name
        inner = {one.name: self.facts(one) for one in tool.inner_tools}
        is_private = tool.private or names(flow.private, name)
        is_untrusted = bool(tool.untrusted) or names(flow.untrusted, name)
        parts = tool.untrusted if isinstance(tool.untrusted, tuple) and not names(flow.untrusted, name) else ()
        is_endorsed = any(names((rule.tool,), name) for rule in flow.endorse)
        is_outbound = tool.outbound or names(flow.outbound, name)
        clean = self.source(name, is_private=is_private)
        whole = self.source(name, is_untrusted=is_untrusted and not is_endorsed, is_private=is_private)
        says = self.source(name, is_untrusted=is_untrusted, is_private=is_private)
        for one in inner.values():  # an agent has read what its tools gave
            whole |= self._endorsed(one.gives) if is_endorsed else one.gives
            says |= one.gives | one.says
        acts = not tool.effect.is_free or is_outbound or any(one.acts for one in inner.values())
        rules = [rule for rule in flow.guard if names((rule.tool,), name)]
        return ToolFlow(
            gives=whole,
            gives_clean=clean,
            says=says,
            paths=() if is_endorsed else tuple(map(read_parts, parts)),
            is_endorsed=is_endorsed,
            acts=acts,
            guards=tuple(_guards(tool, rules, acts=acts)),
            keeps=_keeps(rules, is_outbound=is_outbound),
            control=any(rule.control for rule in rules),
            inner=inner,
        )

    def _endorsed(self, sources: int) -> int:
        return sources & self.private

    def answer(self, facts: ToolFlow, given: int) -> tuple[int, int]:
        """Return the sources of an output, whole and of its clean parts, from the sources of the inputs."""
        if facts.is_endorsed:
            made = facts.gives | self._endorsed(given)
            return made, made
        return facts.gives | given, (facts.gives_clean if facts.paths else facts.gives) | given

    def names_of(self, sources: int, among: int | None = None) -> list[str]:
        """Return the names of sources; with *among*, only of those that have one of these bits."""
        shown = [name for name, bit in _FIXED.items() if sources & bit and (among is None or among & bit)]
        for name, bit in tuple(self._named.items()):
            bits = bit * ((1 << _BITS) - 1)
            if sources & bits & (bits if among is None else among):
                shown.append(name)
        return shown

    def refused(self, guard: ArgumentGuard, sources: int) -> int:
        """Return the sources that a guard does not accept."""
        if guard.accepts is None:
            return sources & self.untrusted
        bad = 0
        for name, bit in (*_FIXED.items(), *tuple(self._named.items())):
            bits = bit if name in _FIXED else bit * ((1 << _BITS) - 1)
            if sources & bits and not guard.accepts(name):
                bad |= sources & bits
        return bad


_KNOWN: Final[WeakKeyDictionary[Flow, FlowRules]] = WeakKeyDictionary()
# Those of the check before, which most checks have as well: nothing to hash and to compare. Neither is kept alive.
_last: tuple[Callable[[], Flow | None], Callable[[], FlowRules | None]] = (lambda: None, lambda: None)


def rules_of(flow: Flow) -> FlowRules:
    """Return the rules of a trust boundary; equal boundaries share them."""
    global _last  # noqa: PLW0603
    same, kept = _last  # as one: another thread may check another plan at this moment
    if same() is flow and (rules := kept()) is not None:
        return rules
    try:
        known = _KNOWN.get(flow)
    except TypeError:  # its function has no hash
        return FlowRules(flow)
    if known is None:
        known = _KNOWN.setdefault(flow, FlowRules(flow))
    _last = (ref(flow), ref(known))
    return known


def _guards(tool: AnyTool, rules: Sequence[GuardRule], *, acts: bool) -> Iterator[ArgumentGuard]:
    """Yield the guards of a tool: from the rules of the policy, else from the tool itself."""
    guards_all = acts and not tool.inner_tools  # an agent acts by its own calls, and these ask
    own = frozenset(tool.arguments.guarded) or (None if guards_all else frozenset[str]())
    about = [rule for rule in rules if rule.args is not None or rule.accepts is not None]
    for rule in about:
        args = own if rule.args is None else frozenset(tool.arguments.names.get(arg, arg) for arg in rule.args)
        if args is None or args:
            yield ArgumentGuard(args, None if rule.accepts is None else _accepting(rule.accepts))
    if not about and (own is None or own):
        yield ArgumentGuard(own)


def _keeps(rules: Sequence[GuardRule], *, is_outbound: bool) -> bool:
    said = {rule.keeps for rule in rules}
    return "private" in said or (is_outbound and "nothing" not in said)


def _accepting(accepts: Sequence[str]) -> Callable[[str], bool]:
    patterns = tuple(accepts)
    return lambda name: names(patterns, name)
