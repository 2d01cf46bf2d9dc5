"""Planners without a model: their plans are written in advance.

`StaticPlanner` has one plan and its patches; `RouterPlanner` a template for each sort of task, chosen by words or by
a function.
"""

from __future__ import annotations

import inspect
import math
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from dagrun.errors import ContractError, NoRoute, shorten
from dagrun.kernel.model.outcome import TriggerKind
from dagrun.kernel.model.patch import Patch
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.planner import Brief, Revision, Trigger
from dagrun.kernel.model.signature import refuse_async

Patches: TypeAlias = Sequence[Revision] | Mapping[str, Patch | Plan] | Callable[[Brief], Revision]

# Runs to remember; a service makes runs forever. A forgotten run gets the first patch again, which is then refused.
MAX_KEPT: Final = 10_000

K = TypeVar("K")
V = TypeVar("V")


class StaticPlanner:
    """Answers with plans and patches of the host program. One may serve any number of runs; each gets all answers.

    Args:
        plan: The plan for the goal.
        patches: The answers of `revise`, in one of three forms. A list: one answer for each request, in order, `None`
            for "leave the plan as it is". A mapping: the answer by the step of a trigger, by the kind of the trigger,
            or ``*`` for any; each is used once. A plain function: it is called with the brief.

    Raises:
        ContractError: *plan* or *patches* has the wrong type.

    Examples:
        >>> from dagrun import Patch, Replace, Step, StaticPlanner
        >>> other = Step(id="load2", tool="load_copy")
        >>> planner = StaticPlanner(patches={"load": Patch(edits=[Replace(id="load", step=other)])})
    """

    __slots__ = ("_answer", "_plan")

    def __init__(self, plan: Plan | None = None, patches: Patches = ()) -> None:
        if not isinstance(plan, Plan | None):
            raise ContractError(f"the plan of a StaticPlanner must be a Plan, got {type(plan).__name__}")
        self._plan = plan
        self._answer = _answers(patches)

    def plan(self, goal: str = "", inputs: Any = None) -> Plan:
        """Return the plan; a plan without a goal gets *goal*.

        Raises:
            ContractError: There is no plan.
        """
        if self._plan is None:
            raise ContractError("this StaticPlanner has no plan, only patches: StaticPlanner(plan=…) gives it one")
        return with_goal(self._plan, goal)

    async def revise(self, brief: Brief) -> Revision:
        """Return the plan if there is none yet, else the next answer for the run of *brief*; `None` without one."""
        if self._plan is not None and brief.is_first and not brief.refused:
            return with_goal(self._plan, brief.goal)
        return self._answer(brief)


def with_goal(plan: Plan, goal: str) -> Plan:
    """Return *plan* with *goal*, if it has none of its own."""
    return plan if plan.goal or not goal else plan.model_copy(update={"goal": goal})


def keep(store: dict[K, V], key: K, value: V) -> None:
    """Put *value* in *store*; if that is full, remove the entry that was put there first."""
    store.pop(key, None)
    store[key] = value
    if len(store) > MAX_KEPT:
        del store[next(iter(store))]


def _answers(patches: Patches) -> Callable[[Brief], Revision]:
    match patches:
        case Mapping():
            _must_be_revisions(patches.items(), Patch, Plan)
            return _ByTrigger(patches)
        case Sequence():
            _must_be_revisions(enumerate(patches), Patch, Plan, type(None))
            return _InOrder(patches)
        case _:
            refuse_async(patches, "the patches of a planner: a list, a mapping or a function; they")
            return patches


def _must_be_revisions(answers: Any, *kinds: type) -> None:
    for place, answer in answers:
        if not isinstance(answer, kinds):
            raise ContractError(f"patches[{place!r}] must be a Patch or a Plan, got {type(answer).__name__}")


class _InOrder:
    """One answer for each request of a run."""

    __slots__ = ("_patches", "_used")

    def __init__(self, patches: Sequence[Revision]) -> None:
        self._patches = tuple(patches)
        self._used: dict[str, int] = {}

    def __call__(self, brief: Brief) -> Revision:
        used = self._used.get(brief.run_id, 0)
        if used >= len(self._patches):
            return None
        keep(self._used, brief.run_id, used + 1)
        return self._patches[used]


class _ByTrigger:
    """The answer for the first trigger that has an unused one."""

    __slots__ = ("_patches", "_used")

    def __init__(self, patches: Mapping[str, Patch | Plan]) -> None:
        self._patches = dict(patches)
        self._used: dict[str, frozenset[str]] = {}

    def __call__(self, brief: Brief) -> Revision:
        used = self._used.get(brief.run_id, frozenset())
        for key in (key for trigger in brief.triggers for key in _keys(trigger)):
            if key in self._patches and key not in used:
                keep(self._used, brief.run_id, used | {key})
                return self._patches[key]
        return None


def _keys(trigger: Trigger) -> Iterator[str]:
    yield trigger.step
    yield trigger.step.partition("[")[0]  # the step that this is an element of
    yield str(trigger.kind)
    yield "*"


Chooser: TypeAlias = Callable[[str, Any, Sequence["Route"]], "Awaitable[str | None] | str | None"]
Matches: TypeAlias = Sequence[str] | Callable[[str, Any], bool]

# How well a route fits a goal: the number of words that it recognises; 0 if it does not fit.
_Fit: TypeAlias = Callable[[str, Any], float]

# A route with a function comes before every route with words, because a function knows more.
_SURE: Final = math.inf


@dataclass(frozen=True, slots=True)
class Route:
    """One sort of task, and its plan.

    Attributes:
        name: A name for messages; each route of a router has another.
        matches: Words or phrases that occur in the goal, as whole words, in upper or lower case. Where words are not
            enough, or the language puts no spaces between words: a plain function of the goal and the inputs.
        plan: The template, whose arguments use the inputs of the run as ``${input.region}``; or a plain function of
            the goal and the inputs that returns the plan.
        patches: The answers when the plan has to change, as for `StaticPlanner`.
        description: What the task is, in a sentence, for a *chooser* of the router.

    Raises:
        ContractError: A field has the wrong type.

    When a running plan has to change, functions get `None` for the inputs: a planner may then see no more of the inputs
    than their shape.
    """

    name: str
    matches: Matches
    plan: Plan | Callable[[str, Any], Plan]
    patches: Patches = ()
    description: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.matches, Sequence):
            # A copy: the caller may change the list later.
            object.__setattr__(self, "matches", _checked_words(self.name, self.matches))
        else:
            refuse_async(self.matches, f"route {self.name}: matches is a list of words or a function; it")
        if not isinstance(self.plan, Plan):
            refuse_async(self.plan, f"route {self.name}: plan is a Plan or a function; it")

    @property
    def words(self) -> tuple[str, ...]:
        """The words and phrases of the route; empty if a function decides."""
        return tuple(self.matches) if isinstance(self.matches, Sequence) else ()

    def fill(self, goal: str, inputs: Any = None) -> Plan:
        """Return the plan for *goal*.

        Raises:
            ContractError: The function of the route returned something that is not a plan.
        """
        plan = self.plan if isinstance(self.plan, Plan) else self.plan(goal, inputs)
        if not isinstance(plan, Plan):
            raise ContractError(f"route {self.name}: its function gave {type(plan).__name__} in place of a Plan")
        return with_goal(plan, goal)


class RouterPlanner:
    """Returns the plan of the route that fits the goal; the lightest planner that works.

    A route whose function says yes comes first. Among routes with words, the one that recognises the most different
    words wins. A phrase counts each of its words; all must occur in a row. Among equals, the first route wins.

    Args:
        routes: The sorts of task.
        default: The route for goals that fit no other; its own `matches` is ignored.
        chooser: Is asked for goals that no function and no word of a route recognises, before the default counts. It
            takes the goal, the inputs and the routes, and returns the name of one, or `None`. A plain function,
            a coroutine function, or `ModelChooser` for a call of a model.

    Raises:
        ContractError: There is no route, two routes have the same name, or *chooser* cannot be called.

    Examples:
        >>> from dagrun import Plan, Route, RouterPlanner, Step
        >>> sales = Plan(steps=[Step(id="load", tool="load_sales", args={"region": "${input.region}"})])
        >>> router = RouterPlanner([Route("sales", ["sales", "revenue by region"], sales)])
        >>> router.plan("Show the sales of May").goal
        'Show the sales of May'
    """

    __slots__ = ("_default", "_fits", "_patches", "_used", "chooser")

    def __init__(
        self, routes: Sequence[Route], default: Route | None = None, *, chooser: Chooser | None = None
    ) -> None:
        if chooser is not None and not callable(chooser):
            raise ContractError(f"a chooser is a function, or ModelChooser(…), got {type(chooser).__name__}")
        self.chooser = chooser
        self._default = default
        self._fits = [(route, _fit(route)) for route in routes]
        known = [*routes, *([default] if default is not None and not any(r is default for r in routes) else [])]
        if not known:
            raise ContractError("a RouterPlanner needs a route, or a default")
        self._patches = {route.name: StaticPlanner(patches=route.patches) for route in known}
        if len(self._patches) < len(known):
            raise ContractError(f"two routes have the same name: {', '.join(route.name for route in known)}")
        # The route of each plan, by its goal: a brief shows the goal, and not the inputs that chose the route. By the
        # hash of the goal, because goals may be long.
        self._used: dict[int, Route] = {}

    def choose(self, goal: str, inputs: Any = None) -> Route:
        """Find the route for *goal*.

        Raises:
            NoRoute: No route fits, and there is no default.
        """
        best = self._recognised(goal, inputs) or self._default
        if best is None:
            raise self._no_route(goal)
        return best

    def _no_route(self, goal: str) -> NoRoute:
        return NoRoute(
            goal, {route.name: route.words or tuple(filter(None, [route.description])) for route, _ in self._fits}
        )

    def _recognised(self, goal: str, inputs: Any) -> Route | None:
        best, most = None, 0.0
        for route, fit in self._fits:
            words = fit(goal, inputs)
            if words > most:
                best, most = route, words
        return best

    async def _choose(self, goal: str, inputs: Any) -> Route:
        """Find the route for *goal*, with the chooser if nothing else recognises it.

        Raises:
            NoRoute: No route fits, and there is no default.
            ContractError: The chooser has named a route that there is not.
        """
        best = self._recognised(goal, inputs)
        if best is not None or self.chooser is None:
            return best or self.choose(goal, inputs)
        picked: Any = self.chooser(goal, inputs, tuple(route for route, _ in self._fits))
        name = await picked if inspect.isawaitable(picked) else picked
        if name is None:
            return self.choose(goal, inputs)
        found = next((route for route, _ in self._fits if route.name == name), None)
        if found is None:
            raise ContractError(f"the chooser of the router named {shorten(repr(name), 100)}, which is no route of it")
        return found

    def plan(self, goal: str, inputs: Any = None) -> Plan:
        """Return the plan for *goal*; a template without a goal gets this one.

        Raises:
            NoRoute: No route fits, and there is no default.
        """
        route = self.choose(goal, inputs)
        plan = route.fill(goal, inputs)
        keep(self._used, hash(plan.goal), route)
        return plan

    async def revise(self, brief: Brief) -> Revision:
        """Return the whole plan for a goal that has none yet, or has changed; else the next patch of the route.

        Raises:
            NoRoute: No route fits the goal.
        """
        is_changed = any(trigger.kind == TriggerKind.GOAL_CHANGED for trigger in brief.triggers)
        if is_changed or (brief.is_first and not brief.refused):
            inputs = None if is_changed else brief.raw_inputs
            route = await self._choose(brief.goal, inputs)
            keep(self._used, hash(brief.goal), route)
            return route.fill(brief.goal, inputs)
        known = self._route_of(brief.goal)
        return None if known is None else await self._patches[known.name].revise(brief)

    def _route_of(self, goal: str) -> Route | None:
        known = self._used.get(hash(goal))
        if known is not None:
            return known
        try:
            return self.choose(goal)
        except NoRoute:  # another planner made the plan
            return None


def _checked_words(name: str, words: Sequence[object]) -> tuple[str, ...]:
    if isinstance(words, str):
        raise ContractError(f"route {name}: matches must be a list of words or phrases, got one text")
    checked: list[str] = []
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise ContractError(f"route {name}: matches has {word!r}, which is no word or phrase")
        checked.append(word)
    return tuple(checked)


def _fit(route: Route) -> _Fit:
    matches = route.matches
    if isinstance(matches, Sequence):
        return _fit_of_words(matches)
    return lambda goal, inputs: _SURE if matches(goal, inputs) else 0


def _fit_of_words(phrases: Sequence[str]) -> _Fit:
    patterns = [_pattern(_folded(phrase).split()) for phrase in phrases]

    def count(goal: str, inputs: Any) -> float:
        text = _folded(goal)
        # A goal may be long, and a search for the first word costs a tenth of a search for the pattern.
        matched = [words for pattern, words in patterns if words[0] in text and pattern.search(text)]
        # A set: "sales" and "sales report" recognise two words, not three.
        return len({word for words in matched for word in words})

    return count


def _pattern(words: list[str]) -> tuple[re.Pattern[str], list[str]]:
    in_a_row = r"\s+".join(re.escape(word) for word in words)
    return re.compile(rf"(?<!\w){in_a_row}(?!\w)"), words


def _folded(text: str) -> str:
    """Fold the differences of upper and lower case, and of accents written as one character or two."""
    return unicodedata.normalize("NFKC", text).casefold()
