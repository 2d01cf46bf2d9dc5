"""References: what they name must exist, must come before, and must have the part that they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dagrun.checks.check_context import CheckContext
from dagrun.checks.findings import PLAN_OUTPUT, Findings
from dagrun.checks.plain_json import compile_value, is_plain_json
from dagrun.checks.schema_types import Lookup, are_disjoint, words
from dagrun.errors import shorten
from dagrun.model.condition import Condition
from dagrun.model.plan import Step
from dagrun.model.reference import BadReference, Hole, Reference, Template, parse_reference, path_text
from dagrun.model.value import MAX_DEPTH, Path

_LIST = frozenset(("array",))


class StepReferences:
    """Checks the references of one step, and keeps the ids of the steps that they lead to.

    Attributes:
        sources: The ids of other steps of the plan whose output the step uses, in the order of first mention.
        items: The list of its for_each, once that is checked.
    """

    __slots__ = ("_context", "_findings", "_index", "_step", "items", "sources")

    def __init__(self, context: CheckContext, index: int, step: Step) -> None:
        self._context = context
        self._findings = context.findings
        self._index = index
        self._step = step
        self.sources: dict[str, None] = {}
        self.items: Template | None = None

    def arguments(self, template: Template) -> list[tuple[Hole, Lookup | None]]:
        """Check the references in the arguments.

        Returns:
            Each hole, and what is known of the value that goes there; `None` if that has a problem already.
        """
        return [(hole, self._check(hole.reference, "args", hole.place)) for hole in template.holes]

    def for_each(self) -> None:
        """Check the list of a for_each, and keep it as *items*."""
        value = self._step.for_each
        template = compile_value(
            value, self._findings, self._index, "for_each", self._context.policy.max_argument_bytes
        )
        if template is None:
            return
        if isinstance(value, list):
            if len(value) > self._context.policy.max_fan_out:
                self._no_list(f"it has {len(value)} elements, the ceiling is {self._context.policy.max_fan_out}")
        elif not template.holes or template.holes[0].place or template.holes[0].is_text:
            name = f'"${{{value}}}"' if isinstance(value, str) and value in self._context.index else '"${step.path}"'
            self._no_list(f"this is neither; a reference is written {name}")
            return
        for hole in template.holes:
            found = self._check(hole.reference, "for_each", hole.place)
            self._must_be_recorded(hole.reference.step)
            if not hole.place and found is not None and are_disjoint(_LIST, found.types):
                self._no_list(f"{hole.reference} is {words(found.types)}")
                return
        self.items = template

    def _must_be_recorded(self, source: str) -> None:
        """Refuse a list that the policy keeps out of the record: its elements are on record."""
        kept_out = self._context.policy.unrecorded
        if kept_out and source in self._context.index and self._context.sources.producer(source).tool in kept_out:
            self._findings.add("DR310", self._index, "for_each", step=self._step.id, source=source)

    def when(self, condition: Condition) -> None:
        """Check the condition that is evaluated before the step starts."""
        for place, leaf, reference in self._leaves(condition, "when"):
            self._check(reference, place, is_optional=leaf.op == "exists")

    def success(self, condition: Condition, waits_for: tuple[str, ...]) -> None:
        """Check the condition on the output of the step.

        Args:
            condition: May look at the step itself and at what it waits for, and at nothing else.
            waits_for: The ids of the steps that it waits for.
        """
        for place, leaf, reference in self._leaves(condition, "success"):
            name = reference.step
            if name == self._step.id:
                found = self._context.sources.output(self._step, reference.path)
                if leaf.op != "exists":
                    self._check_part(reference, found, place)
            elif name in self._context.index and name not in waits_for:
                reason = f"success of step {self._step.id} looks at {reference}, which it does not wait for"
                self._findings.add("DR308", self._index, place, reason=f"{reason}; add {name} to depends_on")
            else:
                self._check(reference, place, is_optional=leaf.op == "exists")

    def _leaves(self, condition: Condition, place: str) -> Iterator[tuple[str, Condition, Reference]]:
        """Every comparison of a condition, with what it looks at."""
        # With a stack of its own: a condition that the host builds can be nested deeper than Python can call.
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
        """Check one reference; give what is known of its value, or nothing if it has a problem.

        Args:
            reference: The reference.
            field: Where it stands.
            path: Where it stands in that.
            is_optional: Whether it may well be that there is no such part.
        """
        name, step = reference.step, self._step
        if name in self._context.index and name != step.id:
            self.sources[name] = None
        elif name != "input" and not (name == "item" and field == "args" and step.for_each is not None):
            self._refuse(reference, field + path_text(path))
            return None
        found = self._context.sources.look_up(reference, self.items)
        if found.missing is None or is_optional:
            return found
        self._check_part(reference, found, field + path_text(path))
        return None

    def _refuse(self, reference: Reference, place: str) -> None:
        """Say why nothing can stand behind *reference*."""
        name, step = reference.step, self._step
        if name == "item":
            self._findings.add("DR307", self._index, place, step=step.id, reference=reference)
        elif name == step.id:
            self._findings.add("DR305", self._index, place, step=step.id, place=place)
        else:
            hint = self._findings.hint(name, self._context.index)
            self._findings.add("DR302", self._index, place, step=step.id, reference=reference, hint=hint)

    def _check_part(self, reference: Reference, found: Lookup, place: str) -> None:
        if found.missing is None:
            return
        facts = {"step": self._step.id, "reference": reference, "hint": _part_hint(self._findings, found)}
        if reference.step == "input":
            self._findings.add("DR306", self._index, place, **facts)
            return
        producer = reference.step
        if producer == "item":
            behind = self._context.sources.list_behind(self.items)
            producer = behind.step if behind is not None else ""
        tool = self._context.sources.producer(producer).tool if producer in self._context.index else "the run"
        self._findings.add("DR303", self._index, place, tool=tool, field=part_text(found), **facts)

    def _no_list(self, reason: str) -> None:
        self._findings.add("DR309", self._index, "for_each", step=self._step.id, reason=reason)


def check_output(context: CheckContext, output: Any) -> Template | None:
    """Check what a plan says that the run answers, and make a template of it."""
    if isinstance(output, str) and "${" not in output:
        try:
            # A bare id or path is a reference: there is nothing else that a plain text could be good for.
            template: Template | None = Template((b"", b""), (Hole(parse_reference(output), ()),))
        except BadReference as error:
            context.findings.add("DR301", PLAN_OUTPUT, "output", text=repr(output[:200]), reason=error)
            return None
    else:
        template = compile_value(output, context.findings, PLAN_OUTPUT, "output", context.policy.max_argument_bytes)
    for hole in template.holes if template is not None else ():
        _check_output_reference(context, hole)
    return template


def _check_output_reference(context: CheckContext, hole: Hole) -> None:
    reference, place = hole.reference, "output" + path_text(hole.place)
    name, findings = reference.step, context.findings
    if name == "item":
        reason = f"the plan's output refers to {reference}, which exists only in the arguments of a step with for_each"
        findings.add("DR308", PLAN_OUTPUT, place, reason=reason)
        return
    if name != "input" and name not in context.index:
        findings.add("DR311", PLAN_OUTPUT, place, reference=reference, hint=findings.hint(name, context.index))
        return
    found = context.sources.look_up(reference)
    if found.missing is None:
        return
    hint = _part_hint(findings, found)
    if name == "input":
        findings.add("DR311", PLAN_OUTPUT, place, reference=reference, hint=hint)
        return
    tool = context.sources.producer(name).tool
    findings.add("DR312", PLAN_OUTPUT, place, reference=reference, tool=tool, field=part_text(found), hint=hint)


def part_text(found: Lookup) -> str:
    """The part of a path that is missing, as it is written."""
    return f"[{found.missing}]" if isinstance(found.missing, int) else str(found.missing)


def _part_hint(findings: Findings, found: Lookup) -> str:
    return findings.hint(found.missing, found.known) if isinstance(found.missing, str) else ""
