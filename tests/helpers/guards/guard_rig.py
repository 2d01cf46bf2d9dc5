"""Runs a case of the guards, judges it, counts what it has hit, and makes a failing case as small as it can."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dagrun import Asked as Kind
from dagrun.kernel.model.patch import edit_as_dict
from dagrun.testing import run_virtual
from guard_cases import IMPOSSIBLE, GuardCase, Person
from guard_oracle import Oracle, Violation
from guard_players import backend_of, play
from guard_world import World
from simulation import replaced, simulate

TRIES: Final = 200  # runs that making a case smaller may take


@dataclass
class GuardReport:
    """What came of a case.

    Attributes:
        case: The case.
        violations: Calls that should not have been made.
        error: What went wrong otherwise; empty for nothing.
        counts: What was hit.
        world: The log.
    """

    case: GuardCase
    violations: list[Violation] = field(default_factory=list)
    error: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    world: World = field(default_factory=World)

    @property
    def kinds(self) -> frozenset[str]:
        """The rules that were broken."""
        return frozenset(violation.kind for violation in self.violations) | ({"error"} if self.error else set())

    @property
    def broken(self) -> list[str]:
        """All that is wrong, in words."""
        return [*([self.error] if self.error else []), *map(str, self.violations)]


def run_guards(case: GuardCase, parts: Mapping[Any, Any] | None = None) -> GuardReport:
    """Run *case*, with some parts of the engine replaced."""
    report = GuardReport(case)
    try:
        with replaced(parts or {}):
            ended = _virtually(lambda: play(case, report.world), case.seed)
        report.error = report.world.fault
        oracle = Oracle(case, report.world)
        report.violations = list(oracle.violations())
        report.counts = Counter(_counted(report))
        report.counts.update(f"ended {status}" for status in ended)
        report.counts.update([case.sequel] if len(ended) > 1 else [])
    except BaseException as error:  # noqa: BLE001  (whatever a broken engine may let out)
        report.error = f"the simulation ended with {error!r}"
    return report


def _virtually(main: Callable[[], Any], seed: int) -> Any:
    return simulate(main, seed) if backend_of(seed) == "trio" else run_virtual(main, backend="asyncio")


def _counted(report: GuardReport) -> Iterator[str]:
    case, world = report.case, report.world
    tried = {(case.targets[number].guard, name) for document in world.documents for name, number in document.attacks}
    for guard, attack in tried:
        yield f"attack: {attack}"
        if guard:
            yield f"pair: {guard}, {attack}"
            yield from (f"pair: {way}, {guard}" for way in case.ways)
        yield from (f"pair: {way}, {attack}" for way in case.ways)
    if case.axes[1:] in tried and case.axes not in IMPOSSIBLE:
        yield f"met: {', '.join(case.axes)}"
    yield f"loop: {backend_of(case.seed)}"
    yield from (f"asked: {asked.question.kind}" for asked in world.asked)
    yield from (f"yes: {asked.question.kind}" for asked in world.asked if asked.said)
    yield from (f"refused: {code}" for code in world.refused)
    followed = tuple(f"{target.act}[" for target in case.targets if target.is_following)
    yield from ("asked: element by element" for asked in world.asked if asked.question.step.startswith(followed))
    bad = {id(violation.call) for violation in report.violations}
    for effect in world.effects:
        yield "calls" if id(effect) not in bad else "calls that should not have been made"
    yield from (f"violation: {kind}" for kind in report.kinds)
    yield from ("spliced" for _ in world.splices)


# Smaller --------------------------------------------------------------------------------------------------------------


def shrunk(case: GuardCase, parts: Mapping[Any, Any] | None = None) -> GuardReport:
    """Make a failing case smaller, for as long as it breaks one of the same rules; give the report of what is left."""
    report, left = run_guards(case, parts), TRIES
    wanted = report.kinds
    is_smaller = True
    while is_smaller and left:
        is_smaller = False
        for smaller in _smaller(report.case):
            left -= 1
            found = run_guards(smaller, parts)
            if found.kinds & wanted:
                report, is_smaller = found, True
                break
            if not left:
                break
    return report


def _smaller(case: GuardCase) -> Iterator[GuardCase]:
    """Yield the same case with one thing less, or as plain as can be."""
    if len(case.targets) > 1:
        messages = [replace(m, attacks=tuple(a for a in m.attacks if a[1] == 0)) for m in case.messages]
        yield replace(case, targets=case.targets[:1], messages=tuple(m for m in messages if m.attacks))
    for place, message in enumerate(case.messages):
        before, after = case.messages[:place], case.messages[place + 1 :]
        yield replace(case, messages=before + after)
        fewer = [replace(message, attacks=(attack,)) for attack in message.attacks if len(message.attacks) > 1]
        yield from (replace(case, messages=(*before, new, *after)) for new in (*fewer, *_plainer(message)))
    yield from _plainer(case)
    for place, target in enumerate(case.targets):
        others = case.targets[:place], case.targets[place + 1 :]
        yield from (replace(case, targets=(*others[0], new, *others[1])) for new in _plainer(target))


_PLAIN: Final = (
    *(("form", "patch"), ("confidence", None), ("is_shaped", False), ("to", "mallory")),
    *(("sequel", ""), ("origin", "host"), ("approve_patches", "never"), ("max_running", None), ("has_bank", False)),
    *(("shape", "plain"), ("is_list", False), ("is_far", False), ("is_wrong", False), ("is_odd", False), ("check", "")),
    ("persons", (Person(), Person())),
)


def _plainer(thing: Any) -> Iterator[Any]:
    """Yield *thing* with one field as plain as can be."""
    for name, value in _PLAIN:
        if getattr(thing, name, value) != value:
            yield replace(thing, **{name: value})


def described(report: GuardReport) -> str:
    """A case in words: who wanted what, who was asked, what was called."""
    case, world = report.case, report.world
    lines = [f"seed {case.seed} on {backend_of(case.seed)}: {', '.join(case.axes)}", *report.broken, ""]
    lines.append(f"first plan by: {case.origin} {case.sureness or ''} {case.repair if case.origin != 'host' else ''}")
    lines += [f"  {json.dumps(step)}" for step in case.definitions()]
    lines.append(
        f"approve_patches={case.approve_patches}; {case.sequel or 'no sequel'}; max_running={case.max_running}"
    )
    told = [(document.seq, f"{document.form} {document.attacks} {document.text}") for document in world.documents]
    told += [(seq, f"carried out: {[edit_as_dict(edit) for edit in spliced.edits]}") for seq, spliced in world.splices]
    for asked in world.asked:
        question = asked.question
        shown = question.as_dict()["arguments"] if question.kind is not Kind.PATCH else list(question.diff)
        told.append((asked.seq, f"asked: {question.kind} {question.step} {question.tool} {shown}: {question.text}"))
        if asked.answered is not None:
            told.append((asked.answered, f"answered: {question.kind} {question.step}: {asked.said}"))
    told += [(effect.seq, f"CALLED: {effect.step}: {effect.tool} {effect.args}") for effect in world.effects]
    told += [(seq, f"succeeded: {step}") for step, seq in world.succeeded.items()]
    return "\n".join([*lines, *(f"{seq:4} {text}" for seq, text in sorted(told)), f"refused: {world.refused}"])
