"""Read a plan while it is written: return each step when it is complete, and the plan at the end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, Literal

from dagrun.errors import PlanRefused, Problem
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.policy import PlanLimits
from dagrun.kernel.model.tool import Toolbox
from dagrun.planners.answers.json_stream import ClosedPart, Element, JsonScanner, count_bytes, parse_object
from dagrun.plans.compiler_dialect import CompilerText, find_call
from dagrun.plans.json_reader import parse_json
from dagrun.plans.plan_forms import is_numbered
from dagrun.plans.read_plan import make_plan, max_plan_depth, parse_plan, sorted_problems

Dialect = Literal["json", "compiler", "auto"]

_HEAD: Final = 100  # characters at the beginning of a line, in which a numbered call can be recognised
_NUMBERED_KEYS: Final = frozenset(("task_summary", "total_steps"))


class PlanReader:
    """Reads a plan from pieces of its text, in any dialect.

    Prose and code fences around the plan are ignored. A step is returned when it has closed, if it is well-formed; it
    is not checked, which `check_plan` or the live graph does. If `close` returns a plan, it contains all steps that
    were returned before.

    Args:
        toolbox: The tools that the plan is for; `None` as for `read_plan`.
        limits: Limits of size.
        dialect: ``json`` for objects (in our dialect, or that of step_number and action), ``compiler`` for lines of
            calls, ``auto`` for the one that comes first.

    Examples:
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
        self._read: Callable[[str], list[Step]] = self._reader_of(dialect)
        self._text = io.StringIO()
        self._bytes = 0
        self._returned: list[Step] = []
        self._problems: list[Problem] = []
        self._refusal: PlanRefused | None = None
        self._objects = JsonScanner(max_plan_depth(self._limits))
        self._numbered: bool | None = None
        self._refuses = False  # whether the author has refused to plan, so that later steps must not be used
        self._lines = CompilerText(toolbox, self._limits)
        self._line: list[str] = []  # the pieces of the line that has not ended
        self._head = ""  # the beginning of this line

    @property
    def text(self) -> str:
        """The whole text so far, without the piece that exceeded the limit of bytes."""
        return self._text.getvalue()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of steps that have closed, but were not returned."""
        return (*self._problems, *(self._lines.problems if self._dialect == "compiler" else ()))

    def feed(self, text: str) -> list[Step]:
        """Read the next piece of the text.

        Returns:
            The steps that have closed in it, in their order.

        Raises:
            PlanRefused: A limit of size is exceeded (bytes, steps or depth), so the text cannot become a plan. From
                then on, every call raises it.
        """
        if self._refusal is not None:
            raise PlanRefused(self._refusal.problems)
        try:
            self._bytes = count_bytes(text, self._limits, self._bytes)
            self._text.write(text)
            return self._read(text)
        except PlanRefused as refusal:
            self._refusal = refusal
            raise

    def close(self) -> Plan:
        """Read the text again as a whole, after its end.

        Returns:
            The plan. Its steps are those that were returned before, and perhaps one from an unfinished last line.

        Raises:
            PlanRefused: The text is no plan; the error holds every problem.
            CannotPlan: The author refuses to plan.
        """
        if self._refusal is not None:
            raise PlanRefused(self._refusal.problems)
        text = self.text
        if self._dialect == "compiler":
            tree, problems = parse_plan(text.removeprefix("\ufeff"), "compiler", self._toolbox, self._limits)
        else:
            tree, problems = parse_object(text, self._objects, self._limits, self.problems)
        plan, more = make_plan(tree, self._toolbox, self._limits, may_refuse=not problems)
        if problems or more or plan is None:
            raise PlanRefused(sorted_problems((*problems, *more)))
        if tuple(self._returned) != tuple(plan.steps)[: len(self._returned)] or self._is_behind(plan):
            reason = "these are not the steps that were given out while the answer came in"
            raise PlanRefused([Problem("DR012", "steps", {"reason": reason, "found": f"{len(plan.steps)} steps"})])
        return plan

    def _reader_of(self, dialect: Dialect) -> Callable[[str], list[Step]]:
        readers = {"json": self._read_json, "compiler": self._read_lines, "auto": self._read_unknown}
        return readers[dialect]

    def _set_dialect(self, dialect: Dialect) -> None:
        self._dialect, self._read = dialect, self._reader_of(dialect)

    def _read_unknown(self, text: str) -> list[Step]:
        """Read a piece, and find out which dialect begins first."""
        steps: list[Step] = []
        at = 0
        while at < len(text):
            end = text.find("\n", at) + 1 or len(text)
            line = text[at:end]
            if not self._objects.is_inside and len(self._head) < _HEAD:
                self._head += line[: _HEAD - len(self._head)]
                if find_call(self._head) >= 0:
                    self._set_dialect("compiler")
                    return self._read_lines(text[at:])
            steps += self._read_json(line)
            if self._objects.is_wanted:
                self._set_dialect("json")
                return steps + self._read_json(text[end:])
            self._read_prose(line)
            at = end
        return steps

    def _read_prose(self, line: str) -> None:
        """Read a line before the plan: if the plan turns out to be lines of calls, the line may be a thought."""
        self._line.append(line)
        if line.endswith("\n"):
            self._lines.read_line("".join(self._line)[:-1])
            self._line.clear()
            self._head = ""

    # JSON ------------------------------------------------------------------------------------------------------------

    def _read_json(self, text: str) -> list[Step]:
        closed = self._objects.feed(text)
        return self._read_closed(closed) if closed else []

    def _read_closed(self, closed: list[ClosedPart]) -> list[Step]:
        steps = []
        for part in closed:
            if not isinstance(part, Element):
                self._refuses = self._refuses or (part.name == "refusal" and _is_refusal(part.text))
            elif not self._refuses:
                step = self._read_element(part)
                if step is not None:
                    steps.append(step)
        return steps

    def _read_element(self, element: Element) -> Step | None:
        """Read one step exactly as in the whole plan."""
        self._check_count(element.index + 1)
        try:
            tree = parse_json(element.text, max_plan_depth(self._limits))
        except PlanRefused as refusal:
            self._add_problems(element.index, refusal.problems)
            return None
        if self._numbered is None:
            # Only keys before the list count: whether later keys are known already depends on the size of the pieces.
            has_numbered_key = bool(self._objects.keys_before_list & _NUMBERED_KEYS)
            self._numbered = has_numbered_key or is_numbered({"steps": [tree]})
        return self._make_step(tree, element.index, numbered=self._numbered)

    def _make_step(self, tree: Any, index: int, *, numbered: bool) -> Step | None:
        plan, problems = make_plan({"steps": [tree]}, self._toolbox, self._limits, numbered=numbered)
        if problems or plan is None:
            self._add_problems(index, problems)
            return None
        self._returned.append(plan.steps[0])
        return plan.steps[0]

    def _add_problems(self, index: int, problems: Iterable[Problem]) -> None:
        place = f"steps[{index}]"
        self._problems += (replace(fault, path=_path_in_plan(fault.path, place)) for fault in problems)

    def _check_count(self, count: int) -> None:
        limit = self._limits.max_steps
        if count > limit:
            raise PlanRefused([Problem("DR108", "steps", {"count": f"more than {limit}", "limit": str(limit)})])

    # Lines of calls --------------------------------------------------------------------------------------------------

    def _read_lines(self, text: str) -> list[Step]:
        steps = []
        *ended, rest = text.split("\n")
        for line in ended:
            self._line.append(line)
            step = self._read_line("".join(self._line))
            self._line.clear()
            if step is not None:
                steps.append(step)
        if rest:
            self._line.append(rest)
        return steps

    def _read_line(self, line: str) -> Step | None:
        tree = self._lines.read_line(line)
        if tree is None:
            return None
        return self._make_step(tree, len(self._lines.steps) - 1, numbered=False)

    def _is_behind(self, plan: Plan) -> bool:
        """Whether the plan has steps that should have been returned before its end."""
        more = len(plan.steps) - len(self._returned)
        return more > (1 if self._dialect == "compiler" and self._line else 0)


def _is_refusal(text: str) -> bool:
    """Whether the JSON of the field ``refusal`` is a refusal: null and blank texts are none."""
    try:
        value = json.loads(text)
    except ValueError:
        return True
    return value is not None and not (isinstance(value, str) and not value.strip())


def _path_in_plan(path: str, place: str) -> str:
    """Convert a path in a plan of one step into a path in the whole plan; *place* is the path of the step."""
    return place + path.removeprefix("steps[0]") if path.startswith("steps[0]") or not path else path
