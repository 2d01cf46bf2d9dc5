"""Plans that are still being written: each step as soon as it is whole, and the plan at the end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Literal

from dagrun.errors import PlanRefused, Problem
from dagrun.model.plan import Plan, Step
from dagrun.model.policy import PlanLimits
from dagrun.model.toolbox import Toolbox
from dagrun.plans.answer_object import count_bytes, parse_object
from dagrun.plans.compiler_dialect import CompilerText, find_call
from dagrun.plans.json_reader import parse_json
from dagrun.plans.json_stream import ClosedPart, Element, JsonScanner
from dagrun.plans.numbered_dialect import is_numbered
from dagrun.plans.read_plan import make_plan, max_plan_depth, parse_plan, sorted_problems

Dialect = Literal["json", "compiler", "auto"]

_HEAD: Final = 100  # a numbered call shows in so many characters of its line
_NUMBERED_KEYS: Final = frozenset(("task_summary", "total_steps"))


class PlanReader:
    """Reads a plan from pieces of its text, in any of the dialects.

    Prose and fences around the plan are passed over. A step is given out when it has closed, if it is well-formed; it
    may well be wrong in other ways, which `check_plan` or the live graph finds. What is given out is in the plan of
    `close`, if that gives one.

    Args:
        toolbox: The tools that the plan is for; `None` as for `read_plan`.
        limits: Ceilings of size.
        dialect: ``json`` for objects (ours, or that of step_number and action), ``compiler`` for lines of calls,
            ``auto`` for whichever comes first.

    Example:
        >>> reader = PlanReader(None)
        >>> reader.feed('{"steps": [{"id": "a", "tool": "add", "args": {"a": 1')
        []
        >>> [step.args for step in reader.feed("2}}")]
        [{'a': 12}]
    """

    def __init__(self, toolbox: Toolbox | None, limits: PlanLimits | None = None, *, dialect: Dialect = "auto") -> None:
        self._toolbox = toolbox
        self._limits = PlanLimits() if limits is None else limits
        self._dialect: Dialect = dialect
        self._take: Callable[[str], list[Step]] = self._taker(dialect)
        self._text = io.StringIO()
        self._bytes = 0
        self._given: list[Step] = []
        self._problems: list[Problem] = []
        self._refusal: PlanRefused | None = None
        self._objects = JsonScanner(max_plan_depth(self._limits))
        self._numbered: bool | None = None
        self._refuses = False  # the answer has said so, so its steps are not for use
        self._lines = CompilerText(toolbox, self._limits)
        self._line: list[str] = []  # pieces of the line that has not ended
        self._head = ""  # how it begins

    @property
    def text(self) -> str:
        """The whole so far; without the piece that went over the ceiling of bytes, if one did."""
        return self._text.getvalue()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with steps that have closed, and were not given out."""
        return (*self._problems, *(self._lines.problems if self._dialect == "compiler" else ()))

    def feed(self, text: str) -> list[Step]:
        """Take in the next piece of the text.

        Returns:
            The steps that have closed in it, in their order.

        Raises:
            PlanRefused: A ceiling of size is reached (bytes, steps, depth): nothing that follows can make it a plan.
                From then on every call raises it.
        """
        if self._refusal is not None:
            raise PlanRefused(self._refusal.problems)
        try:
            self._bytes = count_bytes(text, self._limits, self._bytes)
            self._text.write(text)
            return self._take(text)
        except PlanRefused as refusal:
            self._refusal = refusal
            raise

    def close(self) -> Plan:
        """The text has ended; read it once more as a whole.

        Returns:
            The plan; its steps are those that were given out, and perhaps one from a last line without an end.

        Raises:
            PlanRefused: It is no plan; the error holds every problem.
            CannotPlan: The answer is a refusal.
        """
        if self._refusal is not None:
            raise PlanRefused(self._refusal.problems)
        text = self.text
        if self._dialect == "compiler":
            tree, problems = parse_plan(text.removeprefix("\ufeff"), "compiler", self._toolbox, self._limits)
        else:
            tree, problems = parse_object(text, self._objects, self._limits, self.problems)
        plan, found = make_plan(tree, self._toolbox, self._limits, may_refuse=not problems)
        if problems or found or plan is None:
            raise PlanRefused(sorted_problems((*problems, *found)))
        if tuple(self._given) != tuple(plan.steps)[: len(self._given)] or self._is_behind(plan):
            reason = "these are not the steps that were given out while the answer came in"
            raise PlanRefused([Problem("DR012", "steps", {"reason": reason, "found": f"{len(plan.steps)} steps"})])
        return plan

    def _taker(self, dialect: Dialect) -> Callable[[str], list[Step]]:
        takers = {"json": self._take_json, "compiler": self._take_lines, "auto": self._find_out}
        return takers[dialect]

    def _decide(self, dialect: Dialect) -> None:
        self._dialect, self._take = dialect, self._taker(dialect)

    def _take_json(self, text: str) -> list[Step]:
        found = self._objects.feed(text)
        return self._take_found(found) if found else []

    def _find_out(self, text: str) -> list[Step]:
        """Take in a piece, and see which dialect begins first in it."""
        steps: list[Step] = []
        at = 0
        while at < len(text):
            end = text.find("\n", at) + 1 or len(text)
            line = text[at:end]
            if not self._objects.is_inside and len(self._head) < _HEAD:
                self._head += line[: _HEAD - len(self._head)]
                if find_call(self._head) >= 0:
                    self._decide("compiler")
                    return self._take_lines(text[at:])
            steps += self._take_json(line)
            if self._objects.is_wanted:
                self._decide("json")
                return steps + self._take_json(text[end:])
            self._keep_line(line)
            at = end
        return steps

    def _keep_line(self, line: str) -> None:
        """Keep what stands before the plan: if that turns out to be lines of calls, a thought may be in it."""
        self._line.append(line)
        if line.endswith("\n"):
            self._lines.take("".join(self._line)[:-1])
            self._line.clear()
            self._head = ""

    def _take_found(self, found: list[ClosedPart]) -> list[Step]:
        steps = []
        for part in found:
            if not isinstance(part, Element):
                self._refuses = self._refuses or (part.name == "refusal" and _is_said(part.text))
            elif not self._refuses:
                step = self._read_element(part)
                if step is not None:
                    steps.append(step)
        return steps

    def _read_element(self, element: Element) -> Step | None:
        """Read one step exactly as it is read in the whole."""
        self._check_count(element.index + 1)
        try:
            tree = parse_json(element.text, max_plan_depth(self._limits))
        except PlanRefused as refusal:
            self._keep(element.index, refusal.problems)
            return None
        if self._numbered is None:
            # Keys behind the list do not count: whether they are known yet is a matter of the pieces.
            is_told = bool(self._objects.before & _NUMBERED_KEYS)
            self._numbered = is_told or is_numbered({"steps": [tree]})
        return self._make_step(tree, element.index, numbered=self._numbered)

    def _make_step(self, tree: Any, index: int, *, numbered: bool) -> Step | None:
        plan, problems = make_plan({"steps": [tree]}, self._toolbox, self._limits, numbered=numbered)
        if problems or plan is None:
            self._keep(index, problems)
            return None
        self._given.append(plan.steps[0])
        return plan.steps[0]

    def _keep(self, index: int, problems: Iterable[Problem]) -> None:
        place = f"steps[{index}]"
        self._problems += (replace(fault, path=_moved(fault.path, place)) for fault in problems)

    def _take_lines(self, text: str) -> list[Step]:
        steps = []
        *ended, rest = text.split("\n")
        for line in ended:
            self._line.append(line)
            step = self._take_line("".join(self._line))
            self._line.clear()
            if step is not None:
                steps.append(step)
        if rest:
            self._line.append(rest)
        return steps

    def _take_line(self, line: str) -> Step | None:
        tree = self._lines.take(line)
        if tree is None:
            return None
        return self._make_step(tree, len(self._lines.steps) - 1, numbered=False)

    def _check_count(self, count: int) -> None:
        limit = self._limits.max_steps
        if count > limit:
            raise PlanRefused([Problem("DR108", "steps", {"count": f"more than {limit}", "limit": str(limit)})])

    def _is_behind(self, plan: Plan) -> bool:
        """Whether the plan has steps that should have been given out."""
        more = len(plan.steps) - len(self._given)
        return more > (1 if self._dialect == "compiler" and self._line else 0)


def _is_said(text: str) -> bool:
    """Whether the JSON of a refusal is more than a null or a blank, which say that there is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return True
    return value is not None and not (isinstance(value, str) and not value.strip())


def _moved(path: str, place: str) -> str:
    """A path in a plan of one step, as a path in the plan; of the whole, as a path to the step."""
    return place + path.removeprefix("steps[0]") if path.startswith("steps[0]") or not path else path
