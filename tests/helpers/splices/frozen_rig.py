"""Random runs under a frozen plan, with a planner that tries everything; and what that plan allows, worked out apart.

Every tool gives a text that is made of its family and of its arguments alone, so what the first plan would call, and
with what, is known before it runs. A fallback belongs to the family of its tool. A call that is not among those, an
effect that takes place too often, or one before that which had to stand before it, is a hole.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import dagrun
from dagrun import Add, Brief, Drop, Event, MemoryJournal, Patch, Plan, Policy, Replace, Rewire, Step, ToolContext
from dagrun.events import PatchRefused, Spliced
from dagrun.kernel.model.tool import AnyTool
from simulation import replaced, simulate

FAMILIES: Final = {"look": "look", "look_again": "look", "many": "many", "act": "act", "keyed": "keyed"}
ACTS: Final = ("act", "keyed")
_WHOLE: Final = re.compile(r"\$\{([^}.\[]+)(\[\d+\])?\}")


def made(family: str, args: Any) -> str:
    """What a tool gives."""
    return hashlib.sha256(json.dumps([family, args], sort_keys=True).encode()).hexdigest()[:12]


def value_of(family: str, args: Any) -> Any:
    """What a step gives; half of all texts begin with a digit below 8, which conditions look at."""
    text = made(family, args)
    return [f"{text}-{number}" for number in range(2)] if family == "many" else text


# What the first plan allows -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Allowed:
    """What a plan calls if all goes well.

    Attributes:
        calls: How often each call is made: its family and its arguments as JSON.
        before: For each call with an effect, the calls that stand before it, in one of the ways that it is made.
    """

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    before: dict[tuple[str, str], list[frozenset[tuple[str, str]]]] = field(default_factory=dict)


_NOTHING: Final = object()


def allowed_by(plan: Plan) -> Allowed:
    """Work out what a plan allows."""
    found, values, own = Allowed(), dict[str, Any](), dict[str, frozenset[tuple[str, str]]]()
    steps, behind = {step.id: step for step in plan.steps}, dict[str, frozenset[str]]()
    for id_, step in steps.items():  # they are written in order
        needs = needs_of(step)
        # What waits for a step that is skipped, by its condition, does not wait for what that would have waited for.
        behind[id_] = frozenset(needs).union(*(behind[need] for need in needs if own[need]))
        calls = list(_calls(step, values))
        values[id_] = _gives(step, calls)
        own[id_] = frozenset((family, json.dumps(args, sort_keys=True)) for family, args in calls)
        earlier = frozenset().union(*(own[need] for need in behind[id_]))
        for family, args in calls:
            call = family, json.dumps(args, sort_keys=True)
            found.calls[call] += 1
            if family in ACTS:
                found.before.setdefault(call, []).append(earlier)
    return found


def _calls(step: Step, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if step.when is not None and not str(values.get(str(step.when.ref), "x")) < "8":
        return
    items = [_NOTHING] if step.for_each is None else filled(step.for_each, values, _NOTHING)
    if items is _NOTHING:
        return
    for item in items:
        args = filled(step.args, values, item)
        if args is not _NOTHING:
            yield FAMILIES[step.tool], args


def _gives(step: Step, calls: list[tuple[str, Any]]) -> Any:
    given = [value_of(*call) for call in calls]
    return _NOTHING if not given else given if step.for_each is not None else given[0]


def filled(value: Any, values: dict[str, Any], item: Any) -> Any:
    """Put in what references stand for; nothing, if one stands for nothing."""
    if isinstance(value, dict):
        parts = {key: filled(part, values, item) for key, part in value.items()}
        return _NOTHING if _NOTHING in parts.values() else parts
    if isinstance(value, list):
        return [filled(part, values, item) for part in value]
    match = _WHOLE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    found = item if match[1] == "item" else values.get(match[1], _NOTHING)
    return found if match[2] is None or found is _NOTHING else found[int(match[2][1:-1])]


def needs_of(step: Step) -> list[str]:
    """The steps that a step waits for."""
    said = json.dumps([step.args, step.for_each])
    used = [name for name, _ in _WHOLE.findall(said) if name != "item"]
    looked = [str(step.when.ref)] if step.when is not None else []
    return list(dict.fromkeys([*step.depends_on, *used, *looked]))


# What happens ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class World:
    """Tools that fail now and then.

    Attributes:
        dice: Decide about failures.
        log: Every call, in order: its family and arguments, its key, and whether it is known to have succeeded.
    """

    dice: random.Random
    log: list[tuple[tuple[str, str], str, bool]] = field(default_factory=list)

    def _work(self, context: ToolContext, family: str, **args: Any) -> Any:
        call, key = (family, json.dumps(args, sort_keys=True)), context.idempotency_key
        luck = self.dice.random()
        if luck < 0.3:
            raise dagrun.ToolError("nothing has happened")
        is_doubtful = luck < 0.4 and family in ACTS
        self.log.append((call, key, not is_doubtful))
        if is_doubtful:
            raise RuntimeError("who knows")
        return value_of(family, args)

    @property
    def tools(self) -> list[AnyTool]:
        """The tools."""

        @dagrun.tool(effect="read")
        async def look(context: ToolContext, of: Any) -> str:
            return str(self._work(context, "look", of=of))

        @dagrun.tool(effect="read")
        async def look_again(context: ToolContext, of: Any) -> str:
            return str(self._work(context, "look", of=of))

        @dagrun.tool(effect="read")
        async def many(context: ToolContext, of: Any) -> list[str]:
            return list(self._work(context, "many", of=of))

        @dagrun.tool(effect="effectful", needs_approval=False)
        async def act(context: ToolContext, to: Any) -> str:
            return str(self._work(context, "act", to=to))

        @dagrun.tool(effect="idempotent", needs_approval=False)
        async def keyed(context: ToolContext, to: Any) -> str:
            return str(self._work(context, "keyed", to=to))

        return [look, look_again, many, act, keyed]


# Who writes ---------------------------------------------------------------------------------------------------------


def plan_by(dice: random.Random) -> Plan:
    """A random plan, its steps in order."""
    steps: list[Step] = []
    for number in range(dice.randint(3, 8)):
        tool = dice.choice(("look", "look", "many", "act", "act", "keyed"))
        known = [(step.id, step.tool) for step in steps if step.for_each is None]
        name = "to" if tool in ACTS else "of"
        fields: dict[str, Any] = {"args": {name: _value(dice, known)}}
        if steps and dice.random() < 0.5:
            fields["depends_on"] = dice.sample([step.id for step in steps], 1)
        looks = [id_ for id_, made_by in known if made_by == "look"]
        if looks and dice.random() < 0.3:
            fields["when"] = {"ref": dice.choice(looks), "op": "<", "value": "8"}
        lists = [id_ for id_, made_by in known if made_by == "many"]
        if tool != "many" and lists and dice.random() < 0.3:
            fields |= {"for_each": f"${{{dice.choice(lists)}}}", "args": {name: "${item}"}}
        if tool == "look" and dice.random() < 0.4:
            fields["fallback"] = "look_again"
        if tool == "look" and dice.random() < 0.1:
            fields["pause"] = "before"
        steps.append(Step.model_validate({"id": f"s{number}", "tool": tool, **fields}))
    return Plan(steps=steps)


def _value(dice: random.Random, known: list[tuple[str, str]]) -> Any:
    if not known or dice.random() < 0.3:
        return dice.choice(("ann", "bob"))
    id_, tool = dice.choice(known)
    whole = f"${{{id_}}}"
    return dice.choice((whole, f"${{{id_}[0]}}", f"${{{id_}[1]}}")) if tool == "many" else whole


class Schemer:
    """A planner that repairs what has failed, and adds whatever it can think of."""

    def __init__(self, dice: random.Random, first: Plan | None) -> None:
        self.dice = dice
        self.first = first
        self.number = 0

    async def revise(self, brief: Brief) -> Any:
        """Answer with a patch."""
        if brief.is_first:
            return self.first
        dice, edits = self.dice, list[Any]()
        for id_ in (trigger.step for trigger in brief.triggers):
            if id_ in brief.steps and dice.random() < 0.8:
                again = self._again(brief.steps[id_].step, in_list="[" in id_)
                edits.append(Replace(id=id_, step=self._other(brief, again) if dice.random() < 0.2 else again))
        if dice.random() < (0.35 if brief.refused else 0.7):
            edits += self._scheme(brief, {edit.id for edit in edits})
        if edits and dice.random() < 0.3:  # what has failed is used by name, and so are its substitutes
            use = {edit.id: edit.step.id for edit in edits if isinstance(edit, Replace)}
            open_ = [id_ for id_ in self._open(brief) if id_ not in {getattr(edit, "id", "") for edit in edits}]
            edits += [Rewire(id=dice.choice(open_), use=use)] if use and open_ else []
        return Patch(edits=edits) if edits else None

    def _id(self) -> str:
        self.number += 1
        return f"n{self.number}"

    def _open(self, brief: Brief) -> list[str]:
        return [
            id_
            for id_, view in brief.steps.items()
            if view.state in ("waiting", "blocked") and not view.attempts and "[" not in id_
        ]

    def _again(self, step: Step, *, in_list: bool = False) -> Step:
        changes: dict[str, Any] = {"id": self._id()}
        if in_list:
            changes["for_each"] = None
        if step.fallback is not None and self.dice.random() < 0.5:
            changes |= {"tool": step.fallback, "fallback": None}
        return step.model_copy(update=changes)

    def _other(self, brief: Brief, again: Step) -> Step:
        """Think of something else in the place of what has failed."""
        name = "to" if again.tool in ACTS else "of"
        given = {view.step.tool: view.step for id_, view in brief.steps.items() if "[" not in id_}
        changes: list[dict[str, Any]] = [
            {"args": {name: "mallory"}},
            {"on_failure": "default", "default": "mallory"},
            {"args": given.get("look", again).args, "tool": "look", "when": None},
        ]
        return again.model_copy(update=self.dice.choice(changes))

    def _scheme(self, brief: Brief, taken: set[str]) -> list[Any]:
        """Think of one thing that must not be."""
        dice = self.dice
        views = {id_: view for id_, view in brief.steps.items() if "[" not in id_}
        known = [(id_, view.step.tool) for id_, view in views.items() if view.step.for_each is None]
        victim = dice.choice(list(views.values())).step
        acts = [view.step for view in views.values() if view.step.tool in ACTS]
        name = "to" if victim.tool in ACTS else "of"
        evil = dice.choice(("mallory", _value(dice, known)))
        changed: dict[str, Any] = dice.choice(
            (
                {"args": {name: evil}},
                {"when": None},
                {"on_failure": "default", "default": evil},
                {"depends_on": ()},
                {"for_each": ["mallory"], "args": {name: "${item}"}},
                {"fallback": "look_again" if victim.tool == "look" else None},
                {},
            )
        )
        other = dice.choice(list(views.values())).step
        follower = [] if victim.when is None else [{"when": None}] * 3
        changed = dice.choice((changed, *follower))
        schemes: list[list[Any]] = [
            [Add(step=victim.model_copy(update={"id": self._id(), **changed}))],
            [Add(step=Step(id=self._id(), tool=dice.choice(ACTS), args={"to": evil}))],
        ]
        if victim.id in self._open(brief) and victim.id not in taken:
            substitute = victim.model_copy(update={"id": self._id(), **changed})
            instead = other.model_copy(update={"id": self._id()})
            schemes += [
                [Replace(id=victim.id, step=substitute)],
                [Replace(id=victim.id, step=instead)],
                [Rewire(id=victim.id, depends_on=[])],
                [Rewire(id=victim.id, args={name: evil})],
                [Rewire(id=victim.id, use=dict.fromkeys(needs_of(victim), other.id))],
                *[[Drop(id=victim.id), *(self._freed(brief, victim.id, taken))]] * 2,
            ]
        if acts:
            act = dice.choice(acts)
            schemes.append([Add(step=act.model_copy(update={"id": self._id()}))])
        return dice.choice(schemes)

    def _freed(self, brief: Brief, gone: str, taken: set[str]) -> Iterator[Any]:
        """Free what waits for a step, as far as it only waits."""
        for id_ in self._open(brief):
            step = brief.steps[id_].step
            if gone in needs_of(step) and id_ not in taken:
                yield Rewire(id=id_, depends_on=[need for need in step.depends_on if need != gone])


# Runs -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """What came of one run: what is wrong, and what it exercised."""

    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def play(seed: int, parts: Any = None, **policy: Any) -> Report:
    """Run a random plan under a planner that tries everything, with some parts of dagrun replaced."""
    report = Report()
    with replaced(parts or {}):
        simulate(lambda: _play(random.Random(seed), report, {"freeze_plan": True, **policy}), seed)
    return report


async def _play(dice: random.Random, report: Report, policy: dict[str, Any]) -> None:
    plan, world, events, journal = plan_by(dice), World(dice), list[Event](), MemoryJournal()
    from_goal, is_cut = dice.random() < 0.3, dice.random() < 0.5
    planner = Schemer(dice, plan if from_goal else None)
    limits = Policy(max_replans=6, retry=dagrun.RetryRule(max_attempts=1), min_confidence=0, **policy)
    known: Any = {"tools": world.tools, "journal": journal, "planner": planner, "on_event": events.append}
    begun: Any = {"plan": None, "goal": "do it"} if from_goal else {"plan": plan}
    person = None if is_cut else _agree
    async with dagrun.start(**begun, policy=limits, run_id="r", approver=person, **known) as run:
        result = await run.result()
        graph = run._graph
    if result.status == "waiting":
        report.counts["resumed"] += 1
        async with dagrun.resume("r", approver=_agree, **known) as again:
            await again.result()
            graph = again._graph
    _judge(allowed_by(plan), world, report)
    refused = [problem.code for event in events if isinstance(event, PatchRefused) for problem in event.problems]
    report.counts.update(refused)
    splices = [event for event in events if isinstance(event, Spliced) and event.request]
    report.counts.update(spliced=len(splices), split=sum(bool(event.refused) for event in splices))
    folded = (await dagrun.replay("r", journal=journal)).graph.frozen_plan
    if graph.frozen_plan is not None and (folded is None or folded.origins != graph.frozen_plan.origins):
        report.broken.append("the record comes to another frozen plan")


async def _agree(question: dagrun.Question) -> bool | None:
    """Agree to all that is asked, as it is not people who keep a frozen plan; a doubt is left as it is."""
    return None if question.kind == "effect" else True


def _judge(allowed: Allowed, world: World, report: Report) -> None:
    keys: dict[tuple[str, str], set[str]] = {}
    done: set[tuple[str, str]] = set()
    for number, (call, key, has_succeeded) in enumerate(world.log):
        report.counts["calls"] += 1
        if call not in allowed.calls:
            report.broken.append(f"call {number}: {call} is none of the first plan")
        if call[0] in ACTS:
            report.counts["effects"] += 1
            keys.setdefault(call, set()).add(key if call[0] == "keyed" else str(number))
            if len(keys[call]) > allowed.calls[call]:
                report.broken.append(f"call {number}: {call} is made once too often")
            if not any(earlier <= done for earlier in allowed.before.get(call, [frozenset()])):
                report.broken.append(f"call {number}: {call} is made before its time")
        if has_succeeded:
            done.add(call)
