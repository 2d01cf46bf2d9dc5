"""The oracle of the guards: no call that people guard is made without a yes that covers it.

It knows which calls were made with what arguments, which questions were asked and how they were answered, and the
documents that were carried out; nothing of the engine. The rules:

1. A call whose tool needs approval, whose arguments a rule of the policy names, or whose step has a confidence below
   that of the policy, needs a yes to that very call: the step, the tool and the arguments.
2. A call that a message brought or changed whose author was not sure of it needs a yes to that message, or to the call.
3. So does a call that a message brought or changed, or before which one changed anything, if people look at patches.
4. A call before which a step has ever paused needs a yes at each such pause, or one to that call, or one to the message
   that took the pause away.
5. A call whose step was once one that its author was not sure of needs a yes to the call or to that change.
6. A call that a message brought, of a tool that is guarded elsewhere in the run, needs a yes to the call, to that
   message, or at the pauses before it. A yes at a pause is none for calls that came later and do not stand behind it.
7. No call leaves the pool or the process of its tool, and none is made that the run may not make.

A yes to a message counts if what was shown has the step as it is called, or the change of what stands before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dagrun import Asked as Kind
from guard_book import GuardBook, Stage, ancestors_of, book_of, documents_in
from guard_cases import LEAST_SURE, GuardCase
from guard_targets import LIMIT
from guard_world import AGENT, APPROVED, BANNED, INSIDE, VAULT, Asked, Document, Effect, World
from random_cases import Definition

AGENT_DEFAULTS: Final = {"inputs": None, "success": ""}  # sent along, and shown

# What a step may say and still pause for sure, if it was not there from the beginning.
_PLAIN: Final = frozenset(("id", "tool", "args", "depends_on", "pause", "confidence"))


@dataclass(frozen=True, slots=True)
class Violation:
    """A call that should not have been made.

    Attributes:
        kind: The rule that it breaks.
        call: The call.
        why: In a sentence.
    """

    kind: str
    call: Effect
    why: str

    def __str__(self) -> str:
        args = json.dumps(self.call.args)
        return f"[{self.kind}] {self.call.tool}({args}) of {self.call.step} at {self.call.began:g} s: {self.why}"


class Oracle:
    """Judges one case.

    Args:
        case: What the run began with.
        world: What happened.
    """

    def __init__(self, case: GuardCase, world: World) -> None:
        self._case = case
        self._world = world
        self.book = book_of(world, case.definitions() if case.origin == "host" else ())

    def violations(self) -> Iterator[Violation]:
        """Every call that should not have been made, once for each rule that it breaks."""
        for effect in self._world.effects:
            if effect.tool == VAULT:
                yield Violation("executor", effect, "this tool is for a process of its own, and no run has one")
                continue
            yield from _Judge(self._case, self._world, self.book, effect).violations()
        yield from self._over_the_limit()

    def _over_the_limit(self) -> Iterator[Violation]:
        """Calls of the pool that ran beside others, those of agents among them."""
        if not self._case.has_bank:
            return
        paid = [effect for effect in self._world.effects if effect.tool in ("pay", "post")]
        for number, effect in enumerate(paid):
            if any(other.ended > effect.began for other in paid[:number]):
                yield Violation("pool", effect, "another call of its pool was running, and the limit is 1")


class _Judge:
    """Judges one call."""

    def __init__(self, case: GuardCase, world: World, book: GuardBook, effect: Effect) -> None:
        self.case = case
        self.world = world
        self.book = book
        self.effect = effect
        self.stages = book.until(effect.seq)
        self.now = self.stages[-1]
        self.base = book.base_of(effect.step)
        self.line = book.line_of(effect.step)
        self.step = self.now.steps.get(self.base, {})
        self.is_inside = self.step.get("tool") == AGENT
        self.tool = AGENT if self.is_inside else effect.tool

    def violations(self) -> Iterator[Violation]:
        for kind, why in self._broken():
            yield Violation(kind + " (agent)" if self.is_inside else kind, self.effect, why)

    def _broken(self) -> Iterator[tuple[str, str]]:
        if not self._is_planned():
            yield "unplanned", "no document that was carried out has such a call"
            return
        if self.effect.tool == BANNED:
            yield "allow-list", "no run may call this tool"
        yield from self._standing_pauses()
        if self._is_agreed():
            return
        if own := list(self._own_reasons()):
            yield own[0], f"nobody has agreed to this very call: {', '.join(own)}"
        yield from self._messages()
        yield from self._pauses()
        yield from self._doubts()
        yield from self._brought()

    def _is_planned(self) -> bool:
        if not self.step or not self._calls(self.now, self.base):
            return False
        args = self.step.get("args", {})
        return self.is_inside or "${" in json.dumps(args) or args == self.effect.args

    # Yes to the call --------------------------------------------------------------------------------------------------

    def _own_reasons(self) -> Iterator[str]:
        if self.effect.tool in APPROVED:
            yield "tool"
        if self.effect.args["amount"] > LIMIT:
            yield "rule"
        confidence = self.step.get("confidence")
        if confidence is not None and confidence < LEAST_SURE:
            yield "confidence"

    def _is_agreed(self) -> bool:
        """Whether a person has agreed to this very call, or, of an agent's, to it or to the call of the agent."""
        return any(self._is_about_call(asked) for asked in self._yes())

    def _yes(self, *kinds: Kind) -> Iterator[Asked]:
        for asked in self.world.asked:
            if asked.is_yes_before(self.effect.seq) and (not kinds or asked.question.kind in kinds):
                yield asked

    def _is_about_call(self, asked: Asked) -> bool:
        question, effect = asked.question, self.effect
        if question.step != effect.step:
            return False
        shown = question.as_dict()["arguments"]
        match question.kind:
            case Kind.APPROVAL if question.tool == effect.tool:
                return bool(shown == effect.args)
            case Kind.INPUT if self.is_inside:
                return bool(shown == {"tool": effect.tool, "args": effect.args})
            case Kind.APPROVAL if self.is_inside and question.tool == AGENT:
                # Enough for what guards the call of the agent; what its tool asks is asked inside.
                args = self.step["args"]
                return effect.tool not in APPROVED and (
                    "${" in json.dumps(args) or bool(shown == AGENT_DEFAULTS | args)
                )
        return False

    # Yes to a message -------------------------------------------------------------------------------------------------

    def _messages(self) -> Iterator[tuple[str, str]]:
        draft = self.book.draft_at(self.effect.seq) if self.base in self.stages[0].steps else None
        if draft is not None and not self._is_shown(draft, set()):
            if _is_unsure(draft.confidence):
                yield "message", f"the planner gave the plan a confidence of {draft.confidence}"
            if self._wants_patches:
                yield "patches", "a person has to agree to plans"
        for document in documents_in(self.stages):
            touches, before = self._changes(document)
            if not (touches or before) or self._is_shown(document, before):
                continue
            if touches and _is_unsure(document.confidence):
                yield "message", f"the planner gave the {document.form} that brought it {document.confidence}"
            if self._wants_patches:
                yield (
                    "patches",
                    f"a {document.form} changed {sorted(before) or 'it'}, and a person has to agree to that",
                )

    @property
    def _wants_patches(self) -> bool:
        return self.case.approve_patches != "never"

    def _changes(self, document: Document) -> tuple[bool, set[str]]:
        """Whether a document has changed the step itself; and what of that which stands before it."""
        touches, before = False, set[str]()
        for last, stage in zip(self.stages, self.stages[1:], strict=False):
            if stage.document is not document:
                continue
            touches = touches or self.base in stage.defined
            done = frozenset(id_ for id_, seq in self.world.succeeded.items() if seq < stage.seq)
            for id_ in self.line:
                before |= ancestors_of(last, id_, done) & (stage.defined | stage.gone)
                before |= ancestors_of(stage, id_, done) & stage.defined
        return touches, before

    def _is_shown(self, document: Document, before: set[str]) -> bool:
        """Whether a person has agreed to what shows the step as it is called, or all that was changed before it."""
        for asked in self._yes(Kind.PATCH):
            if asked.seq > document.seq:
                lines = [json.loads(line[2:]) for line in asked.question.diff if line[:3] in ("+ {", "- {")]
                if any(_is_same_call(line, self.step) for line in lines):
                    return True
                if before and before <= {line["id"] for line in lines}:
                    return True
        return False

    # Yes at a pause ---------------------------------------------------------------------------------------------------

    def _standing_pauses(self) -> Iterator[tuple[str, str]]:
        """Those that are what they were in the first plan: no other yes is a yes to them."""
        for gate in sorted(self._standing()):
            if not self._has_passed(gate):
                yield "pause passed", f"{gate} pauses {self.now.steps[gate]['pause']} it, and nobody let it go on"

    def _standing(self) -> set[str]:
        first, now = self.stages[0].steps, self.now.steps
        known = {self.base, *ancestors_of(self.now, self.base)} & first.keys()
        return {at for at in known if now[at].get("pause") and now[at].keys() <= _PLAIN and now[at] == first[at]}

    def _pauses(self) -> Iterator[tuple[str, str]]:
        for gate, stage in self._gates().items():
            if gate not in self._standing() and not self._has_passed(gate) and not self._is_loss_shown(gate):
                yield "pause lost", f"{gate} paused {stage.steps[gate]['pause']} it, and nobody let it go on"

    def _gates(self) -> dict[str, Stage]:
        """Each step that has ever paused before the call, while that was the same call, with when that was."""
        found: dict[str, Stage] = {}
        for stage in self.stages:
            for id_ in self.line:
                if self._calls(stage, id_):
                    found.update(dict.fromkeys(self._pausing(stage, id_), stage))
        return found

    def _calls(self, stage: Stage, id_: str) -> bool:
        step = stage.steps.get(id_)
        return step is not None and self.tool in (step["tool"], step.get("fallback"))

    def _pausing(self, stage: Stage, id_: str) -> set[str]:
        found = {at for at in (id_, *ancestors_of(stage, id_)) if stage.steps[at].get("pause")}
        first = self.stages[0].steps
        return {at for at in found if set(self.book.line_of(at)) & first.keys() or stage.steps[at].keys() <= _PLAIN}

    def _has_passed(self, gate: str) -> bool:
        if gate in self.line:
            return any(asked.question.step == self.base and asked.seq > self._last_change for asked in self._passed())
        heirs = self.book.heirs_of(gate)
        return any(asked.question.step in heirs for asked in self._passed())

    def _passed(self) -> Iterable[Asked]:
        return self._yes(Kind.PAUSE)

    @property
    def _last_change(self) -> int:
        return max((stage.seq for stage in self.stages[1:] if self.base in stage.defined), default=0)

    def _is_loss_shown(self, gate: str) -> bool:
        """Whether a person has agreed to a message that shows the call, or what has become of the step that paused."""
        heirs = self.book.heirs_of(gate)
        for document in documents_in(self.stages):
            stages = [stage for stage in self.stages[1:] if stage.document is document]
            touched = {id_ for stage in stages for id_ in (*stage.defined, *stage.gone)}
            if touched & {*heirs, *self.line} and self._is_shown(document, touched & heirs):
                return True
        # The call may also have been led round the gate further in front, by a step between the two.
        for last, stage in zip(self.stages, self.stages[1:], strict=False):
            known = [id_ for id_ in self.line if id_ in last.steps and id_ in stage.steps]
            is_lost = any(gate in self._pausing(last, id_) - self._pausing(stage, id_) for id_ in known)
            brought_by = stage.document if is_lost else None
            if brought_by is not None and self._is_shown(brought_by, self._changes(brought_by)[1]):
                return True
        return False

    # What was lost, what was brought ----------------------------------------------------------------------------------

    def _doubts(self) -> Iterator[tuple[str, str]]:
        for stage in self.stages[:-1]:
            for id_ in self.line:
                confidence = stage.steps[id_].get("confidence") if self._calls(stage, id_) else None
                if _is_unsure(confidence) and not _is_unsure(self.step.get("confidence")) and not self._is_line_shown():
                    yield "doubt lost", f"{id_} had a confidence of {confidence}"
                    return

    def _is_line_shown(self) -> bool:
        documents = [document for document in documents_in(self.stages) if self._changes(document)[0]]
        return any(self._is_shown(document, set()) for document in documents)

    def _brought(self) -> Iterator[tuple[str, str]]:
        number = next(n for n, stage in enumerate(self.stages) if any(self._calls(stage, id_) for id_ in self.line))
        document = self.stages[number].document
        if number == 0 or document is None or self._is_shown(document, set()):
            return
        guarded = [id_ for stage in self.stages[:number] for id_ in stage.steps if self._is_guarding(stage, id_)]
        gates = {at for at in (self.base, *ancestors_of(self.now, self.base)) if self.now.steps[at].get("pause")}
        if guarded and not (gates and all(map(self._has_passed, gates))):
            yield "brought", f"the same tool is guarded in {', '.join(dict.fromkeys(guarded))}"

    def _is_guarding(self, stage: Stage, id_: str) -> bool:
        """Whether people look at another call of the same tool, or have looked: they said nothing of this one."""
        step = stage.steps[id_]
        tools = {step["tool"], step.get("fallback"), *(INSIDE.values() if step["tool"] == AGENT else ())}
        if id_ in self.line or self.effect.tool not in tools:
            return False
        is_own = _is_unsure(step.get("confidence")) or self.effect.tool in APPROVED
        return is_own or bool(self._pausing(stage, id_))


def _is_unsure(confidence: float | None) -> bool:
    return confidence is not None and confidence < LEAST_SURE


def _is_same_call(one: Definition, other: Definition) -> bool:
    return all(_of(one, name) == _of(other, name) for name in ("id", "tool", "args", "fallback", "for_each", "when"))


def _of(step: Definition, name: str) -> Any:
    return step.get(name, {} if name == "args" else None)
