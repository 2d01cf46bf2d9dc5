"""The answer of a planner that is asked for one step at a time."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as Checked

from dagrun.errors import PlanRefused, Problem
from dagrun.graph.answer_text import read_step
from dagrun.graph.found import parse_found, weigh
from dagrun.graph.parsed import take_out_marks
from dagrun.graph.reading import depth_of
from dagrun.graph.scanner import Scanner
from dagrun.graph.shape import faults_of
from dagrun.model.plan import Step
from dagrun.model.policy import PlanLimits
from dagrun.model.toolbox import Toolbox

_KEYS: Final = ("step", "stop")
_WHAT: Final = "an object with step or stop"


class Next(BaseModel):
    """One step, or the end.

    Attributes:
        thought: What its author thought.
        step: What to do next; `None` if there is nothing more to do.
        stop: Why there is not.
        output: What the run answers, as a plan names it.
        reason: Why, in a sentence.
        confidence: How sure its author is.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    thought: str = ""
    step: Step | None = None
    stop: Literal["goal_met", "cannot", "needs_person"] | None = None
    output: str | None = None
    reason: str | None = None
    confidence: float | None = Checked(default=None, ge=0, le=1)


def read_next(text: str, toolbox: Toolbox | None, limits: PlanLimits | None = None) -> Next:
    """Read what a planner has answered that goes step by step; the form is `next_step_schema`.

    Args:
        text: The whole answer; prose and fences around it are passed over.
        toolbox: The tools that it is for; `None` as for `read_plan`.
        limits: Ceilings of size.

    Returns:
        The next step, or why there is none: exactly one of *step* and *stop* is there.

    Raises:
        PlanRefused: It is no such answer; the error holds every problem.
    """
    limits = PlanLimits() if limits is None else limits
    weigh(text, limits)
    scanner = Scanner(depth_of(limits), _KEYS)
    scanner.feed(text)
    tree, problems = parse_found(text, scanner, limits, what=_WHAT)
    problems += take_out_marks(tree)
    if tree.get("thought", "") is None:
        del tree["thought"]
    problems += _faults(tree)
    if isinstance(tree.get("step"), dict):
        tree["step"], found = read_step(tree["step"], "step", toolbox, limits)
        problems += found
    try:
        made = Next.model_validate(tree)
    except ValidationError as error:
        raise PlanRefused([*problems, *faults_of(error, tree, Next)]) from None
    if problems:
        raise PlanRefused(problems)
    return made


def _faults(tree: dict[str, Any]) -> list[Problem]:
    given = [name for name in _KEYS if tree.get(name) is not None]
    if len(given) == 1:
        return []
    return [Problem("DR009", "", {"expected": "either step or stop", "found": "both" if given else "neither"})]
