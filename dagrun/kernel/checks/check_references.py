"""Check references: their step must exist, and its output must have the part that they name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dagrun.errors import shorten
from dagrun.kernel.checks.check_context import CheckContext
from dagrun.kernel.checks.findings import PLAN_OUTPUT, Findings
from dagrun.kernel.checks.plain_json import compile_value, is_plain_json
from dagrun.kernel.model.contracts.objects import places_in
from dagrun.kernel.model.contracts.schema_types import Lookup, are_disjoint, words
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import (
    BadReference,
    Condition,
    Placeholder,
    Reference,
    Template,
    parse_reference,
    path_text,
)
from dagrun.kernel.model.signature import Arguments
from dagrun.kernel.model.value import MAX_DEPTH, Path

_LIST = frozenset(("array",))
NO_PARTS: Final = "a plan can pass it on, and name no part of it"


class StepReferences:
    """Checks the references of one step, and collects the ids of the steps that they refer to.

    Attributes:
        sources: The ids of other steps of the plan whose output the step uses, in the order of first mention.
        items: The template of the list of its for_each, after that is checked.
    """

    __slots__ = ("_context", "_findings", "_index", "_step", "items", "sources")

    def __init__(self, context: CheckContext, index: int, step: Step) -> None:
        self._context = context
        self._findings = context.findings
        self._index = index
        self._step = step
        self.sources: dict[str, None] = {}
        self.items: Template | None = None

    def arguments(self, template: Template) -> list[tuple[Placeholder, Lookup | None]]:
        """Check the references in the arguments.

        Returns:
            Each hole, with what is known about its value; `None` if the reference has a problem.
        """
        return [(hole, self._check(hole.reference, "args", hole.place)) for hole in template.holes]

    def elements_of_stream(self, template: Template, contract: Arguments) -> list[tuple[Placeholder, Lookup]]:
        """Return the stream argument of a tool, if it is a reference, with the type information of its elements."""
        found = []
        for hole in template.holes:
            top = contract.names.get(str(hole.place[0]))
            if top == contract.stream and len(hole.place) == 1 and hole.reference.step in self._context.index:
                reference = Reference(hole.reference.step, (*hole.reference.path, 0))
                found.append((hole, self._context.sources.look_up(reference)))
        return found

    def for_each(self) -> None:
        """Check the list of a for_each, and store its template in *items*."""
        value = self._step.for_each
        template = compile_value(
            value, self._findings, self._index, "for_each", self._context.policy.max_argument_bytes
        )
        if template is None:
            return
        if isinstance(value, list):
            if len(value) > self._context.policy.max_fan_out:
                self._refuse_list(f"it has {len(value)} elements, the ceiling is {self._context.policy.max_fan_out}")
        elif not template.references or template.places[0] or template.texts:
            name = f'"${{{value}}}"' if isinstance(value, str) and value in self._context.index else '"${step.path}"'
            self._refuse_list(f"this is neither; a reference is written {name}")
            return
        for hole in template.holes:
            lookup = self._check(hole.reference, "for_each", hole.place)
            self._check_recorded(hole.reference.step)
            if not hole.place and lookup is not None and are_disjoint(_LIST, lookup.types):
                self._refuse_list(f"{hole.reference} is {words(lookup.types)}")
                return
        self.items = template

    def _check_recorded(self, source: str) -> None:
        """Refuse a list that the policy keeps out of the record, because the elements of a for_each are recorded."""
        unrecorded = self._context.policy.unrecorded
        if unrecorded and source in self._context.index and self._context.sources.producer(source).tool in unrecorded:
            self._findings.add("DR310", self._index, "for_each", step=self._step.id, source=source)

    def when(self, condition: Condition) -> None:
        """Check the condition that is evaluated before the step starts."""
        for place, leaf, reference in self._leaves(condition, "when"):
            lookup = self._check(reference, place, is_optional=leaf.op == "exists")
            self._check_comparable(leaf, reference, lookup, place)

    def success(self, condition: Condition, waits_for: tuple[str, ...]) -> None:
        """Check the condition on the output of the step.

        Args:
            condition: The condition; it may look only at the step itself, and at steps that it waits for.
            waits_for: The ids of the steps that the step waits for.
        """
        for place, leaf, reference in self._leaves(condition, "success"):
            name = reference.step
            if name == self._step.id:
                lookup = self._context.sources.output(self._step, reference.path)
                if leaf.op != "exists":
                    self._check_part(reference, lookup, place)
                    self._check_comparable(leaf, reference, lookup, place)
            elif name in self._context.index and name not in waits_for:
                reason = f"success of step {self._step.id} tests {reference}, which it does not depend on"
                self._findings.add("DR308", self._index, place, reason=f"{reason}; add {name} to depends_on")
            else:
                known = self._check(reference, place, is_optional=leaf.op == "exists")
                self._check_comparable(leaf, reference, known, place)

    def _check_comparable(self, leaf: Condition, reference: Reference, lookup: Lookup | None, place: str) -> None:
        """Refuse a condition that looks at an object in memory; whether there is one can be asked."""
        found = next(places_in(lookup.types), "") if lookup is not None and leaf.op != "exists" else ""
        if found:
            reason = "a condition cannot read it; return the compared value as data"
            facts = {"who": f"step {self._step.id}", "reference": reference, "type": found, "reason": reason}
            self._findings.add("DR313", self._index, place, **facts)

    def _leaves(self, condition: Condition, place: str) -> Iterator[tuple[str, Condition, Reference]]:
        """Yield every comparison of a condition, with its place and its reference."""
        # Not recursive: a condition that the host builds can be nested deeper than Python's recursion limit.
        waiting = [(place, condition, 1)]
        while waiting:
            at, current, depth = waiting.pop()
            if depth > MAX_DEPTH:
                self._findings.add("DR006", self._index, place, limit=MAX_DEPTH)
                return
            if current.ref is not None:
                is_plain_json(current.value, self._findings, self._index, f"{at}.value")
                try:
                    yield f"{at}.ref", current, current.reference
                except BadReference as error:
                    text = repr(shorten(current.ref))
                    self._findings.add("DR301", self._index, f"{at}.ref", text=text, reason=error)
            parts = [(f"{at}.all[{n}]", part) for n, part in enumerate(current.all or ())]
            parts += [(f"{at}.any[{n}]", part) for n, part in enumerate(current.any or ())]
            parts += [(f"{at}.not", current.not_)] if current.not_ is not None else []
            waiting += [(name, part, depth + 1) for name, part in reversed(parts)]

    def _check(self, reference: Reference, field: str, path: Path = (), *, is_optional: bool = False) -> Lookup | None:
        """Check one reference, and return the type information of its value; `None` if it has a problem.

        Args:
            reference: The reference.
            field: The field that contains it.
            path: Its place in the field.
            is_optional: Whether the part that it names may be missing.
        """
        name, step = reference.step, self._step
        if name in self._context.index and name != step.id:
            self.sources[name] = None
        elif name != "input" and not (name == "item" and step.for_each is not None and _is_by_element(field)):
            self._refuse(reference, field + path_text(path))
            return None
        lookup = self._context.sources.look_up(reference, self.items)
        if lookup.missing is None or is_optional:
            return lookup
        self._check_part(reference, lookup, field + path_text(path))
        return None

    def _refuse(self, reference: Reference, place: str) -> None:
        """Report why *reference* refers to nothing."""
        name, step = reference.step, self._step
        if name == "item":
            self._findings.add("DR307", self._index, place, step=step.id, reference=reference)
        elif name == step.id:
            self._findings.add("DR305", self._index, place, step=step.id, place=place)
        else:
            hint = self._findings.hint(name, self._context.index)
            self._findings.add("DR302", self._index, place, step=step.id, reference=reference, hint=hint)

    def _check_part(self, reference: Reference, lookup: Lookup, place: str) -> None:
        if lookup.missing is None:
            return
        facts = {"step": self._step.id, "reference": reference, "hint": _part_hint(self._findings, lookup)}
        if lookup.inside:
            who = f"step {self._step.id}"
            facts = {"who": who, "reference": reference, "type": lookup.inside, "reason": NO_PARTS}
            self._findings.add("DR313", self._index, place, **facts)
            return
        if reference.step == "input":
            self._findings.add("DR306", self._index, place, **facts)
            return
        producer = reference.step
        if producer == "item":
            whole = self._context.sources.list_reference(self.items)
            producer = whole.step if whole is not None else ""
        tool = self._context.sources.producer(producer).tool if producer in self._context.index else "the run"
        self._findings.add("DR303", self._index, place, tool=tool, field=_part_text(lookup), **facts)

    def _refuse_list(self, reason: str) -> None:
        self._findings.add("DR309", self._index, "for_each", step=self._step.id, reason=reason)


def _is_by_element(field: str) -> bool:
    """Whether a field is looked at once for each element of a for_each."""
    return field == "args" or field.startswith("when")


def check_output(context: CheckContext, output: Any) -> Template | None:
    """Check the ``output`` of a plan, which names the answer of the run, and return its template."""
    if isinstance(output, str) and "${" not in output:
        try:
            # A bare id or path is a reference, because a plain text would be no useful answer.
            template: Template | None = Template((b"", b""), (parse_reference(output),), ((),))
        except BadReference as error:
            context.findings.add("DR301", PLAN_OUTPUT, "output", text=repr(output[:200]), reason=error)
            return None
    else:
        template = compile_value(output, context.findings, PLAN_OUTPUT, "output", context.policy.max_argument_bytes)
    for hole in template.holes if template is not None else ():
        _check_output_reference(context, hole)
    return template


def _check_output_reference(context: CheckContext, hole: Placeholder) -> None:
    reference, place = hole.reference, "output" + path_text(hole.place)
    name, findings = reference.step, context.findings
    if name == "item":
        reason = f"the plan's output refers to {reference}, which exists only in the arguments of a step with for_each"
        findings.add("DR308", PLAN_OUTPUT, place, reason=reason)
        return
    if name != "input" and name not in context.index:
        findings.add("DR311", PLAN_OUTPUT, place, reference=reference, hint=findings.hint(name, context.index))
        return
    lookup = context.sources.look_up(reference)
    inside = next(places_in(lookup.types), "") if hole.is_text else lookup.inside
    if inside:
        reason = "it cannot stand inside a text" if hole.is_text else NO_PARTS
        facts = {"who": "the plan's output", "reference": reference, "type": inside, "reason": reason}
        findings.add("DR313", PLAN_OUTPUT, place, **facts)
        return
    if lookup.missing is None:
        return
    hint = _part_hint(findings, lookup)
    if name == "input":
        findings.add("DR311", PLAN_OUTPUT, place, reference=reference, hint=hint)
        return
    tool = context.sources.producer(name).tool
    findings.add("DR312", PLAN_OUTPUT, place, reference=reference, tool=tool, field=_part_text(lookup), hint=hint)


def _part_text(lookup: Lookup) -> str:
    """Return the missing part of a path, in its written form."""
    return f"[{lookup.missing}]" if isinstance(lookup.missing, int) else str(lookup.missing)


def _part_hint(findings: Findings, lookup: Lookup) -> str:
    return findings.hint(lookup.missing, lookup.known) if isinstance(lookup.missing, str) else ""
