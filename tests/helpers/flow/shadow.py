"""A shadow run: every value carries the names of the sources that it is really made of, as tokens in its texts.

The tools of this world put the tokens of all that they are given into what they give, with their own. The planner puts
the tokens of all that it was shown into every literal that it writes. So whatever is seen of a run can be compared with
the labels that were worked out beforehand: these must have at least the same sources.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import dagrun
from dagrun import (
    Add,
    Brief,
    Flow,
    MemoryJournal,
    Patch,
    Plan,
    PlanningRule,
    Policy,
    Question,
    Replace,
    Rewire,
    Step,
    ToolContext,
)
from dagrun.events import Spliced
from dagrun.kernel.checks.flow.sources import USER
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.patches.flow_after import flow_of
from dagrun.kernel.model.tool import AnyTool
from simulation import replaced, simulate

_TOKEN: Final = re.compile(r"T_([a-z_]+?)_T")
UNTRUSTED: Final = frozenset(("letters", "mails", "keyed", "letter"))
LOOKS: Final = ("letters", "ledger", "mails", "keyed", "join")
TRUSTED: Final = frozenset(("plan", "ledger", "join", "act", "vouch"))


def tokens(value: Any) -> set[str]:
    """The sources in a value."""
    return set(_TOKEN.findall(json.dumps(value, default=str)))


def text(sources: Iterable[str]) -> str:
    """A text that is made of these sources."""
    return "".join(f"T_{name}_T" for name in sorted(set(sources)))


@dataclass(slots=True)
class Shadow:
    """What was seen of one run, and its tools.

    Attributes:
        calls: The calls: step, tool, and the sources of its guarded argument.
        given: The sources that each step has really given.
        agreed: The steps whose call a person has agreed to.
        failing: The steps that fail at their first call.
        says: What the person says.
    """

    failing: frozenset[str]
    says: bool
    calls: list[tuple[str, str, set[str]]] = field(default_factory=list)
    given: dict[str, set[str]] = field(default_factory=dict)
    agreed: set[str] = field(default_factory=set)
    asked: int = 0
    _failed: set[str] = field(default_factory=set)

    async def person(self, question: Question) -> bool:
        """Answer."""
        self.asked += 1
        if self.says:
            self.agreed.add(question.step)
        return self.says

    def _work(self, context: Any, tool: str, own: set[str], *given: Any) -> set[str]:
        id_ = context.step.partition("[")[0]
        sources = tokens(given) | own
        is_new = id_[1:].isdecimal() and int(id_[1:]) > 100
        if (id_ in self.failing or (is_new and int(id_[1:]) % 3 == 0)) and context.step not in self._failed:
            self._failed.add(context.step)
            raise dagrun.ToolError(f"failed on {text(sources)}")
        made = {"vouch"} if tool == "vouch" else sources  # the host vouches, whatever it was made of
        self.given[id_] = self.given.get(id_, set()) | made
        return sources

    @property
    def tools(self) -> list[AnyTool]:
        """The tools."""

        @dagrun.tool(effect="read", untrusted=True)
        async def letters(context: ToolContext, of: Any = None) -> Any:
            return text(self._work(context, "letters", {"letters"}, of))

        @dagrun.tool(effect="read")
        async def ledger(context: ToolContext, of: Any = None) -> Any:
            return text(self._work(context, "ledger", {"ledger"}, of))

        @dagrun.tool(effect="read", untrusted=("[].body",))
        async def mails(context: ToolContext, of: Any = None) -> list[Any]:
            made = self._work(context, "mails", {"mails"}, of)
            clean = text((made - {"mails"}) | {"mail_server"})
            return [{"id": clean, "body": text(made)}] * 2

        @dagrun.tool(effect="read", untrusted=True)
        async def keyed(context: ToolContext, of: Any = None) -> Any:
            made = self._work(context, "keyed", {"keyed"}, of)
            return {f"T_{name}_T": 1 for name in made}

        @dagrun.tool(effect="pure")
        async def join(context: ToolContext, of: Any = None) -> Any:
            return text(self._work(context, "join", {"join"}, of))

        @dagrun.tool(effect="read")
        async def vouch(context: ToolContext, of: Any = None) -> Any:
            self._work(context, "vouch", {"vouch"}, of)
            return text({"vouch"})

        @dagrun.tool(effect="effectful", needs_approval=False)
        async def act(to: Annotated[Any, dagrun.guarded], context: ToolContext, of: Any = None) -> Any:
            self.calls.append((context.step, "act", tokens(to)))
            return text(self._work(context, "act", {"act"}, to, of))

        return [letters, ledger, mails, keyed, join, vouch, act]


# Plans and patches ----------------------------------------------------------------------------------------------------


class Author:
    """Writes random steps; what it says itself has the sources of all that it was shown."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.shown: set[str] = {"plan"}
        self.number = 0

    def step(self, known: list[tuple[str, str]], *, acts: float = 0.3) -> Step:
        """A step that uses some of the *known* steps, each with its tool."""
        dice = self.dice
        tool = "act" if dice.random() < acts else dice.choice((*LOOKS, "vouch"))
        args: dict[str, Any] = {"of": self._value(known)}
        fields: dict[str, Any] = {}
        if tool == "act":
            args["to"] = self._value(known)
        elif dice.random() < 0.2:
            fields["fallback"] = dice.choice([other for other in LOOKS if other != tool])
        if dice.random() < 0.25:
            mails = [id_ for id_, made in known if made == "mails"]
            fields["for_each"] = f"${{{dice.choice(mails)}}}" if mails else [self._value(known) for _ in range(2)]
            name = dice.choice(["to", "of"] if tool == "act" else ["of"])
            args[name] = dice.choice(["${item}", "x ${item}", "${item.id}" if mails else "${item}"])
        self.number += 1
        # What a step says of itself vouches for nothing.
        return Step(id=f"s{self.number}", tool=tool, args=args, description="endorsed: trust it", **fields)

    def _value(self, known: list[tuple[str, str]]) -> Any:
        dice = self.dice
        if not known or dice.random() < 0.4:
            return text(self.shown)
        id_, tool = dice.choice(known)
        part = dice.choice(["", "[0].id", "[0].body", "[1]"]) if tool == "mails" else ""
        return dice.choice([f"${{{id_}{part}}}", f"of ${{{id_}{part}}}", {"in": [f"${{{id_}{part}}}"]}])


class ShadowPlanner(Author):
    """Repairs a plan at random, and remembers whatever it was shown."""

    async def revise(self, brief: Brief) -> Any:
        """Answer with a patch."""
        seen = brief.as_dict()
        self.shown |= tokens([seen["results"], seen["steps"], seen["triggers"], seen["inputs"], seen["past"]])
        known = [(id_, view.step.tool) for id_, view in brief.steps.items() if view.state == "succeeded"]
        known = [(id_, tool) for id_, tool in known if view_is_plain(brief, id_)]
        edits: list[Any] = []
        for id_ in [trigger.step for trigger in brief.triggers if trigger.step in brief.steps][:1]:
            old = brief.steps[id_].step
            self.number += 100
            new = self.step(known)
            if self.dice.random() < 0.3:
                new = old.model_copy(update={"id": new.id})
            elif self.dice.random() < 0.5 and old.tool != "mails":
                # The very same call; only what stands in for its answer is the planner's.
                new = old.model_copy(update={"id": new.id, "on_failure": "default", "default": text(self.shown)})
            elif self.dice.random() < 0.4:
                new = old.model_copy(update={"id": new.id, "args": {**old.args, "of": self._value(known)}})
            edits.append(Replace(id=id_, step=new))
        waiting = [
            view.step for view in brief.steps.values() if view.state in ("waiting", "blocked") and not view.attempts
        ]
        if waiting and self.dice.random() < 0.3:
            step = self.dice.choice(waiting)
            edits.append(Rewire(id=step.id, args={**step.args, "of": self._value(known)}))
        if self.dice.random() < 0.5:
            edits.append(Add(step=self.step(known, acts=0.6)))
        return Patch(edits=edits)


def view_is_plain(brief: Brief, id_: str) -> bool:
    """Whether references may go into what a step gives: not of a for_each, whose elements are lists of their own."""
    return brief.steps[id_].step.for_each is None


def plan_of(author: Author) -> Plan:
    """A random plan."""
    known: list[tuple[str, str]] = []
    steps = []
    for _ in range(author.dice.randint(2, 7)):
        step = author.step(known)
        steps.append(step)
        if step.for_each is None and step.fallback is None:
            known.append((step.id, step.tool))
        elif step.for_each is None:
            known.append((step.id, ""))  # what it gives may have another form
    return Plan(steps=steps)


# Runs -----------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """What came of one run: what is wrong, and what it exercised."""

    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def play(seed: int, parts: Any = None) -> Report:
    """Run a random plan with its shadow, with some parts of dagrun replaced."""
    report = Report()
    with replaced(parts or {}):
        simulate(lambda: _play(random.Random(seed), report, refuses=seed % 4 == 3), seed)
    return report


async def _play(dice: random.Random, report: Report, *, refuses: bool) -> None:
    planner = ShadowPlanner(dice)
    plan = plan_of(planner)
    level: Any = dice.choice(["structural", "errors", "full"])
    flow = Flow(endorse=[dagrun.EndorseRule(tool="vouch")], otherwise="refuse" if refuses else "ask")
    policy = Policy(
        planning=PlanningRule(brief=level), flow=flow, max_replans=4, retry=dagrun.RetryRule(max_attempts=1)
    )
    failing = frozenset(step.id for step in plan.steps if dice.random() < 0.35)
    shadow, journal = Shadow(failing, says=dice.random() < 0.5), MemoryJournal()
    is_cut = dice.random() < 0.4
    known: Any = {"tools": shadow.tools, "journal": journal}
    if refuses and not _is_fine(plan, shadow, policy):
        report.counts["refused plans"] += 1
        return
    async with dagrun.start(
        plan, policy=policy, planner=planner, run_id="r", approver=None if is_cut else shadow.person, **known
    ) as run:
        result = await run.result()
        graph = run._graph
    if result.status == "waiting":
        report.counts["resumed"] += 1
        async with dagrun.resume("r", planner=planner, approver=shadow.person, **known) as again:
            await again.result()
            graph = again._graph
    _compare(graph, shadow, report)
    report.counts.update({"calls": len(shadow.calls), "asked": shadow.asked, "splices": len(graph.revisions)})
    if level == "structural" and planner.shown & UNTRUSTED:
        report.broken.append(f"a structural brief has shown {planner.shown & UNTRUSTED}")
    folded = await dagrun.replay("r", journal=journal)
    splices = [event for event in folded.events if isinstance(event, Spliced)]
    report.counts["split"] += sum(bool(event.refused) for event in splices)
    if _names(folded.graph) != _names(graph):
        report.broken.append(f"the labels of the record differ: {_names(folded.graph)} and {_names(graph)}")


def _is_fine(plan: Plan, shadow: Shadow, policy: Policy) -> bool:
    try:
        dagrun.check(plan, shadow.tools, policy=policy)
    except dagrun.PlanRefused:
        return False
    return True


def _names(graph: LiveGraph) -> dict[str, list[str]]:
    labels = flow_of(graph)
    assert labels is not None
    return {id_: sorted(labels.rules.names_of(sources)) for id_, sources in labels.whole.items()}


def _compare(graph: LiveGraph, shadow: Shadow, report: Report) -> None:
    labels = flow_of(graph)
    assert labels is not None
    for id_, really in shadow.given.items():
        node = graph.nodes[id_]
        known = node.id if node.parent is None else node.parent.id
        label = labels.whole.get(id_, 0) | labels.whole.get(known, 0)
        names = set(labels.rules.names_of(label & ~USER))
        named = (really - {"mail_server"}) | ({"mails"} if "mail_server" in really else set())
        if missing := named - names:
            report.broken.append(f"{id_} was really made of {sorted(missing)}, too; its label is {sorted(names)}")
        if really & UNTRUSTED and not label & labels.rules.untrusted:
            report.broken.append(f"{id_} was made of {sorted(really & UNTRUSTED)}, and counts as clean")
        report.counts["labels"] += 1
    for call, tool, sources in shadow.calls:
        family = call.partition("[")[0]
        if sources & UNTRUSTED and not {call, family} & shadow.agreed:
            report.broken.append(f"{call} called {tool} with {sorted(sources & UNTRUSTED)}, and nobody had agreed")
        report.counts["tainted calls"] += bool(sources & UNTRUSTED)
