"""Random runs with guarded calls and a planner that tries to get round the guards; each case by its seed alone.

The seeds go round a cube: ways in, guards and attacks, so that every three of them meet. All else is random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from dagrun import ApprovalRule, Condition, Plan, Policy, PoolLimits, Step
from guard_attacks import ATTACKS
from guard_targets import GUARDS, LIMIT, Target
from guard_world import BANK
from random_cases import Definition

# How a call comes into a run.
WAYS: Final = (
    "streamed", "repaired", "ensemble", "patch", "plan", "for_each", "fallback", "agent", "resumed", "retried",
)  # fmt: skip
ORIGINS: Final = ("streamed", "repaired", "ensemble")  # the planner writes the first plan
NAMES: Final = tuple(ATTACKS)
ROUND: Final = len(WAYS) * len(GUARDS) * len(NAMES)
# A plan has no words for an element of a list.
IMPOSSIBLE: Final = frozenset(("plan", guard, "element") for guard in GUARDS)  # (way, guard, attack)

LEAST_SURE: Final = 0.6  # of the policy
UNSURE: Final = 0.3
SURE: Final = (None, 0.9, 1.0)

Says = tuple[bool | None, ...]
"""What a person says to one question after the other; the last of it for ever."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is asked.

    Attributes:
        approval: What they say to calls; also to those of agents.
        pause: To pauses.
        patch: To plans and patches.
        seconds: What they think before.
    """

    approval: Says = (False,)
    pause: Says = (False,)
    patch: Says = (False,)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Message:
    """A change of the plan that the planner proposes.

    Attributes:
        attacks: What it tries, each with the number of its target.
        form: ``patch``, ``plan`` or ``stream``.
        confidence: How sure it says that it is.
        seconds: What the planner thinks before.
        to: Who is to get the money.
        variant: Chooses between variants of an attack.
        is_shaped: Whether calls that it adds have the shape of their target.
    """

    attacks: tuple[tuple[str, int], ...]
    form: str = "patch"
    confidence: float | None = None
    seconds: float = 0.1
    to: str = "mallory"
    variant: int = 0
    is_shaped: bool = False


@dataclass(frozen=True, slots=True)
class GuardCase:
    """A run, and who tries what.

    Attributes:
        seed: Of the case, and of the schedule.
        axes: The way in, the guard and the attack that it is about.
        targets: The guarded calls.
        messages: What the planner proposes, one after the other.
        origin: Who wrote the first plan: ``host``, or the planner in one of `ORIGINS`.
        sequel: ``resumed``, ``retried`` or empty.
        sureness: How sure the planner is of its first plan, for each time that it writes it.
        repair: How it repairs one that was refused: with a whole ``plan``, or with a ``patch``.
        approve_patches: As in a policy.
        persons: Who is asked, and who in the sequel.
        boom: When a step fails, so that the planner is asked.
        max_running: As in a policy.
        has_bank: Whether at most one call may run of the pool of those that pay.
    """

    seed: int
    axes: tuple[str, str, str]
    targets: tuple[Target, ...]
    messages: tuple[Message, ...]
    origin: str = "host"
    sequel: str = ""
    sureness: tuple[float | None, ...] = ()
    repair: str = "plan"
    approve_patches: str = "never"
    persons: tuple[Person, Person] = (Person(), Person())
    boom: float = 0.1
    max_running: int | None = None
    has_bank: bool = False

    @property
    def policy(self) -> Policy:
        """What the run may do."""
        amount = Condition(ref="args.amount", op=">", value=LIMIT)
        ruled = ("pay", "post", "sign") if any(target.guard == "rule" for target in self.targets) else ()
        return Policy(
            approve=[ApprovalRule(tool=name, when=amount) for name in ruled],
            min_confidence=LEAST_SURE,
            approve_patches=self.approve_patches,  # type: ignore[arg-type]
            max_running=self.max_running,
            pools={BANK: PoolLimits(max_running=1)} if self.has_bank else {},
            max_replans=5,
        )

    def definitions(self) -> list[Definition]:
        """The steps of the first plan."""
        found: list[Definition] = [
            {"id": "one", "tool": "const", "args": {"text": "one"}},
            {"id": "boom", "tool": "verify", "args": {"text": "", "seconds": self.boom}},
        ]
        return found + [step for target in self.targets for step in target.definitions()]

    def plan(self, **facts: Any) -> Plan:
        """The first plan."""
        return Plan(steps=[Step.model_validate(step) for step in self.definitions()], **facts)

    @property
    def ways(self) -> set[str]:
        """Every way in which its calls come in."""
        found = {self.origin, self.sequel, *(message.form for message in self.messages)} & set(WAYS)
        found.update(target.shape for target in self.targets if target.shape != "plain")
        return found | {"for_each" for target in self.targets if target.is_list}


def axes_of(seed: int) -> tuple[str, str, str]:
    """The way in, the guard and the attack that the case of *seed* is about."""
    way, rest = seed % len(WAYS), seed // len(WAYS)
    return WAYS[way], GUARDS[rest % len(GUARDS)], NAMES[rest // len(GUARDS) % len(NAMES)]


def make_guard_case(seed: int) -> GuardCase:
    """Make the case of *seed*."""
    rng = random.Random(f"guards {seed}")
    way, guard, attack = axes_of(seed)
    follows = seed % 3 > 0
    targets = tuple(
        replace(target, is_following=follows and target.is_list)
        for target in (_make_target(rng, 0, guard, way, attack), *_make_others(rng))
    )
    origin = way if way in ORIGINS else rng.choice(("host", "host", "host", "host", "host", *ORIGINS))
    case = GuardCase(
        seed=seed,
        axes=(way, guard, attack),
        targets=targets,
        messages=tuple(_make_messages(rng, targets, way, guard, attack)),
        origin=origin,
        sequel=way if way in ("resumed", "retried") else rng.choice(("",) * 10 + ("resumed", "retried")),
        repair=rng.choice(("plan", "plan", "patch")),
        boom=rng.choice((0.1, 0.1, 0.4)),
        max_running=1 if rng.random() < 0.12 else None,
        has_bank=attack == "other pool" or rng.random() < 0.3,
    )
    return _with_people(_with_sureness(case, rng, guard), rng)


def _make_target(rng: random.Random, number: int, guard: str, way: str, attack: str) -> Target:
    """Make a target that has what *attack* needs; the attack must come before its call is over."""
    needs = ATTACKS[attack].needs
    by_guard = {"pause itself": "itself", "pause before": "before", "pause after": "after"}
    gate = by_guard.get(guard, rng.choice(("", "", "", "itself", "before", "after")))
    if needs == "gate" and not gate:
        gate = rng.choice(("itself", "before", "after"))
    is_open = not gate and guard not in ("tool", "rule", "confidence")  # then it waits for nothing but a check
    check = rng.choice(("", "order", "when", "value"))
    if needs in ("check", "when") or (is_open and ATTACKS[attack].is_after):
        check = "when" if needs == "when" else check or "order"
    is_list = way == "for_each" or needs == "list" or (way in ("plan", "patch") and rng.random() < 0.1)
    shape = way if way in ("fallback", "agent") else rng.choice(("plain",) * 8 + ("fallback", "agent"))
    return Target(
        number,
        guard,
        tool="sign" if guard == "tool" else rng.choice(("pay", "pay", "post")),
        gate=gate,
        check="order" if is_list and check == "value" else check,
        shape=shape,
        is_list=is_list,
        is_wrong=rng.random() < 0.4,
        is_far=rng.random() < 0.3,
        is_odd=rng.random() < 0.15,
        seconds=1.5 if is_open else rng.choice((0.3, 0.3, 1.5)),
    )


def _make_others(rng: random.Random) -> Iterator[Target]:
    if rng.random() < 0.35:
        guard = rng.choice(("", *GUARDS))
        yield _make_target(rng, 1, guard, rng.choice(WAYS), rng.choice(NAMES))


def _make_messages(
    rng: random.Random, targets: tuple[Target, ...], way: str, guard: str, attack: str
) -> Iterator[Message]:
    for number in range(rng.choice((1, 1, 2, 3, 4))):
        first = ((attack, 0),) if number == 0 else ()
        more = rng.choice((0, 0, 1)) if number == 0 else rng.choice((1, 1, 2))
        form = rng.choice(("patch", "patch", "plan", "stream"))
        if number == 0:
            form = way if way in ("patch", "plan") else "patch" if attack == "element" else form
        unsure = guard == "message" and (number == 0 or rng.random() < 0.5)
        yield Message(
            attacks=first + tuple((rng.choice(NAMES), rng.randrange(len(targets))) for _ in range(more)),
            form=form,
            confidence=UNSURE if unsure or rng.random() < 0.05 else rng.choice(SURE),
            seconds=rng.choice((0.1, 0.1, 0.5)),
            to=rng.choice(("mallory", "alice")),
            variant=rng.randrange(12),
            is_shaped=rng.random() < 0.4,
        )


def _with_sureness(case: GuardCase, rng: random.Random, guard: str) -> GuardCase:
    """Say how sure the planner is of its first plan, and whether people look at patches."""
    last = UNSURE if guard == "message" else rng.choice(SURE)
    first = 0.4 if case.origin == "ensemble" else rng.choice((last, last, 0.9, UNSURE))
    wanted = rng.choice(("effects", "effects", "always")) if guard == "patches" or rng.random() < 0.06 else "never"
    sureness = (last,) if case.origin == "streamed" else (first, last)
    return replace(case, sureness=sureness, approve_patches=wanted)


def _with_people(case: GuardCase, rng: random.Random) -> GuardCase:
    persons = [_make_person(rng, case.axes[2]) for _ in range(2)]
    has_first_question = case.origin != "host" and case.axes[1] in ("message", "patches")
    if has_first_question and rng.random() < 0.8:  # else there is no plan that could be changed
        persons[0] = replace(persons[0], patch=(True, *persons[0].patch))
    if case.sequel == "resumed" and rng.random() < 0.9:
        persons[0] = replace(persons[0], approval=(None,), pause=(None,))
    return replace(case, persons=(persons[0], persons[1]))


def _make_person(rng: random.Random, attack: str) -> Person:
    seconds = rng.choice((0.0, 0.0, 0.4, 2.0))
    # What is not about people alone is seen only if they let it through.
    is_lenient = attack in ("other pool", "other executor", "banned") and rng.random() < 0.6
    match rng.choices(("no", "yes", "pause", "approval", "patch", "any"), (40, 5, 15, 10, 10, 20))[0]:
        case _ if is_lenient:
            return Person((True,), (True,), (True,), seconds)
        case "no":
            return Person(seconds=seconds)
        case "yes":
            return Person((True,), (True,), (True,), seconds)
        case "any":
            says = [tuple(rng.random() < 0.5 for _ in range(5)) for _ in range(3)]
            return Person(says[0], says[1], says[2], seconds)
        case kind:
            return Person(**{kind: (True,)}, seconds=seconds)
