"""Decisions about replanning: when the planner is not asked again, and when a person looks at a patch.

A request or a patch that is equal to a failed one is refused, so a run that cannot be repaired ends.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from dagrun.errors import Problem
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.plan_history import PastReplan, PlanHistory
from dagrun.kernel.model.event import ReplanStarted, Spliced
from dagrun.kernel.model.patch import Add, Drop, Patch, Replace, Rewire, rename_in_value
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.policy import Policy

if TYPE_CHECKING:
    from dagrun.kernel.graph.patches.apply_patch import CheckedPatch

# Said in the question about what a model has planned.
NO_CONFIDENCE: Final = "its planner gives it no confidence"


def is_seen(fingerprint: str, past: Iterable[PastReplan]) -> bool:
    """Whether the planner was asked about an equal failure before: asking again would bring nothing new."""
    return bool(fingerprint) and any(fingerprint in replan.fingerprints for replan in past)


def fingerprint_of(*facts: object) -> str:
    """Return a text that is equal for equal failures of equal calls."""
    return _digest([str(fact) for fact in facts])


def signature_of(patch: Patch, roots: Mapping[str, str]) -> str:
    """Return a text that is equal for patches that differ only in the ids of their new steps.

    Args:
        patch: The patch.
        roots: For each step of the run, the first step on the chain of steps that replaced each other.
    """
    new = [edit.step.id for edit in patch.edits if isinstance(edit, Add | Replace)]
    names = {**roots, **{id_: f"new {number}" for number, id_ in enumerate(new)}}
    edits = [_plain(edit) for edit in patch.edits]
    return _digest(_rename([*edits, patch.output if patch.changes_output else None], names))


def _plain(edit: Add | Drop | Replace | Rewire) -> Any:
    plain = edit.model_dump(mode="json", by_alias=True, exclude_unset=True) | {"op": edit.op}
    if "use" in plain:
        plain["use"] = sorted(plain["use"].items())  # both of each pair are names
    return plain


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case str():
            return names.get(value) or rename_in_value(value, names)
        case dict():
            return {key: _rename(part, names) for key, part in value.items()}
        case list() | tuple():
            return [_rename(part, names) for part in value]
        case _:
            return value


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


_EDIT: Final = re.compile(r"edits\[(\d+)\]\.step")
_RENAMED: Final = re.compile(r"-r\d+$")  # see `plan_to_patch.py`


def why_agree(
    policy: Policy,
    confidence: float | None,
    *,
    has_effects: bool,
    proposed: Literal["plan", "patch"],
    must_say: bool = False,
) -> str:
    """Return why a person must approve a planner's proposal before it runs.

    Args:
        policy: What the run may do by itself.
        confidence: What the planner says of its own proposal; `None` if it says nothing.
        has_effects: Whether it may change the world.
        proposed: A whole first plan, or a change of the plan.
        must_say: Whether the planner has to give a confidence for steps with effects: it asks a model.

    Returns:
        The reason in words; empty if nobody needs to agree.
    """
    wanted, least = policy.approve_patches, policy.min_confidence
    if confidence is not None and confidence < least:
        return f"its planner gives it a confidence of {confidence:g}, and at least {least:g} is wanted"
    if confidence is None and must_say and has_effects and least > 0:
        return f"it has effects, and {NO_CONFIDENCE}, where at least {least:g} is wanted"
    if wanted == "always" or (wanted == "effects" and has_effects):
        what = "plans" if proposed == "plan" else "changes of the plan"
        return f"the policy wants a person to agree to {what}" + (" that have effects" if wanted == "effects" else "")
    return ""


def steps_after(graph: LiveGraph, checked: CheckedPatch) -> tuple[Step, ...]:
    """Return the steps of the whole plan as a patch would leave it."""
    leaving = frozenset(checked.leaving)
    stay = [node for node in graph.planned() if node.id not in leaving]
    new = [plan.step for id_, plan in checked.steps.items() if id_ not in graph.nodes]
    return (*(checked.steps.get(node.id, node.plan).step for node in stay), *new)


def unagreed_calls(graph: LiveGraph, checked: CheckedPatch) -> Mapping[str, str]:
    """Return the calls that a person must agree to because of a planner's patch that no person has agreed to.

    Returns:
        Each step with a sentence that says why.
    """
    why = why_agree(graph.plan.policy, None, has_effects=True, proposed="patch")
    return {**(dict.fromkeys(checked.effects, why) if why else {}), **checked.guards}


def patch_has_effects(graph: LiveGraph, checked: CheckedPatch) -> bool:
    """Whether a patch brings calls that change the world, changes anything before one, or stops one."""
    return bool(checked.effects) or any(
        not graph.nodes[id_].tool.effect.is_free for id_ in checked.consequence.cancelled
    )


def as_in_plan(problems: Iterable[Problem], patch: Patch, plan: Plan) -> Iterator[Problem]:
    """Translate the places of problems from the patch to the whole plan that it was derived from."""
    places = {step.id: f"steps[{place}]" for place, step in enumerate(plan.steps)}
    for problem in problems:
        match = _EDIT.match(problem.path)
        edit = patch.edits[int(match[1])] if match is not None and int(match[1]) < len(patch.edits) else None
        if match is None or not isinstance(edit, Add | Replace):
            yield problem
            continue
        written = edit.id if isinstance(edit, Replace) else edit.step.id
        place = places.get(written) or places.get(_RENAMED.sub("", written))
        yield replace(problem, path=place + problem.path[match.end() :]) if place is not None else problem


def has_effects(graph: LiveGraph, steps: Iterable[Step]) -> bool:
    """Whether any of *steps* may call a tool with effects; unknown tools do not count."""
    tools = graph.plan.toolbox
    names = {name for step in steps for name in (step.tool, step.fallback) if name is not None}
    return any(not tools[name].effect.is_free for name in names if name in tools)


def lines_of(steps: Iterable[Step], output: Any) -> tuple[str, ...]:
    """A whole plan as a person looks at it, line by line."""
    return (*(f"+ {_line(step)}" for step in steps), *([f"+ output: {output}"] if output is not None else ()))


def diff_of(graph: LiveGraph, checked: CheckedPatch) -> tuple[str, ...]:
    """Return the changes of a patch line by line: ``-`` before the old, ``+`` the new, and ``!`` the stopped steps."""
    before = PlanHistory(graph.plan.plan, graph.revisions).steps
    lines = [f"- {_line(graph.nodes[id_].plan.step)}" for id_ in checked.leaving]
    for id_, new in checked.steps.items():
        if id_ in before:
            lines.append(f"- {_line(before[id_])}")
        lines.append(f"+ {_line(new.step)}")
    if checked.changes_output:
        written = graph.written_output
        lines += [f"- output: {written}", f"+ output: {checked.written_output}"]
    lines += [f"! {id_} runs, and would be stopped" for id_ in checked.consequence.cancelled]
    return tuple(lines)


def _line(step: Step) -> str:
    return step.model_dump_json(exclude_unset=True, by_alias=True)


class RepairBudgets:
    """How often the planner was asked about each part of a plan, as the record of the run has it.

    A part is a step that no repair of the planner has brought, with all that repairs of it have brought. So the count
    continues when the substitute of a step fails, too, and a step that the host puts in begins a part of its own. Of a
    request about several steps, a substitute belongs to the part of the step that it replaces, any other new step to
    all of them.

    Args:
        graph: The state of the run.
    """

    def __init__(self, graph: LiveGraph) -> None:
        self._nodes = graph.nodes
        self._brought: dict[str, frozenset[str]] = {}  # the parts that a step of a repair belongs to
        self._asked: Counter[str] = Counter()
        about: dict[int, dict[str, frozenset[str]]] = {}
        for event in graph.rare:
            match event:
                case ReplanStarted():
                    about[event.number] = parts = {step: self.parts_of(step) for step in event.steps if step}
                    self._asked.update(frozenset().union(*parts.values()))
                case Spliced() if parts := about.get(event.request, {}):
                    everything = frozenset().union(*parts.values())
                    for edit in event.edits:
                        if isinstance(edit, Add | Replace):
                            of = parts.get(edit.id, everything) if isinstance(edit, Replace) else everything
                            self._brought[edit.step.id] = of

    def parts_of(self, step: str) -> frozenset[str]:
        """Return the first steps of the parts of the plan that a step belongs to."""
        parent = self._nodes[step].parent
        family = step if parent is None else parent.id
        return self._brought.get(step) or self._brought.get(family) or frozenset((family,))

    def spent(self, step: str, limit: int) -> str:
        """Return the part of the plan of *step* about which the planner was asked *limit* times; empty if none."""
        return min((part for part in self.parts_of(step) if self._asked[part] >= limit), default="")

    def left(self, step: str, limit: int) -> int:
        """Return how many more requests about *step* there may be."""
        return max(0, limit - max(self._asked[part] for part in self.parts_of(step)))


def around(graph: LiveGraph, step: str) -> set[str]:
    """Return the ids near a step that a patch because of it is likely to change: itself and the steps that wait for it.

    An element stands for its for_each, so that all elements that fail of one are near each other.
    """
    node = graph.nodes[step]
    family = node if node.parent is None else node.parent
    waiting = (after for near in {node, family} for after in graph.behind(near))
    return {family.id, *((after if after.parent is None else after.parent).id for after in waiting)}
