"""Routes from runs: plans that are equal up to literals become one plan with parameters.

1. Plans belong together if they have one shape, one policy, and the same contracts of their tools.
2. A literal of an argument becomes a parameter if it stands in the goal of every run as a word of its own, and is a
   number, holds a digit, or differs between the runs. A text that was always the same stays: taken out, it would let
   the route fit goals that say something else ("Delete order 17" in place of "Refund order 17").
3. A literal that differs and is in no goal cannot be filled in, so there is no route. Nor is there one if a condition
   compares with a value of the goal: conditions take no inputs.
4. A route is kept only if it gives, for the goal of each run that it was made of, the plan of this run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from dagrun.errors import ContractError, JournalDamaged
from dagrun.evaluate.intervals import quantile, rate_interval
from dagrun.evaluate.plan_shape import shape_of, tools_of
from dagrun.extend import RouteFile
from dagrun.records import can_be_shown, references_in

if TYPE_CHECKING:
    from dagrun.records import Line

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run that began with a goal, and ended with the plan that its planner wrote first.

    Attributes:
        run_id: The id of the run.
        goal: The goal.
        inputs: The inputs; `None` if the record has none.
        steps: The steps of the plan, as they were written.
        output: The output that the plan names; `None` if it names none.
        policy: A hash of the policy.
        contracts: A hash of the contracts of the tools that the plan calls.
        shape: The shape of the plan; see `dagrun.evaluate.plan_shape`.
        has_succeeded: Whether the run succeeded.
        makespan: From its start to its end, in seconds.
        began: When it began, in seconds since 1970.
    """

    run_id: str
    goal: str
    inputs: Any
    steps: tuple[Json, ...]
    output: Any
    policy: str
    contracts: str
    shape: str
    has_succeeded: bool
    makespan: float
    began: float

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that runs with plans of one route share."""
        return self.shape, self.policy, self.contracts


def planned_run(run_id: str, lines: Sequence[Line]) -> PlannedRun | str:
    """Return the run of a record, or why nothing is learned from it.

    Args:
        run_id: The run.
        lines: Its record, checked; at least one line.

    Raises:
        JournalDamaged: The record says what no run can have recorded.
    """
    try:
        return _planned(run_id, [json.loads(line.text) for line in lines])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise JournalDamaged(run_id, 0, f"its plan cannot be read: {type(error).__name__}: {error}") from error


def _planned(run_id: str, events: Sequence[Json]) -> PlannedRun | str:
    first, last = events[0], events[-1]
    opening = first["opening"]
    kinds = {event["event"] for event in events}
    if "DraftStarted" not in kinds or opening["plan"]["steps"]:
        return "it did not begin with a goal"
    if last["event"] != "RunEnded":
        return "it has not ended"
    if kinds & {"GoalChanged", "ReplanStarted", "RunReopened"}:
        return "its plan was repaired, or its goal changed"
    draft = next(event for event in events if event["event"] == "DraftEnded")
    if draft["result"] != "applied" or draft.get("more"):
        return "its planner wrote no whole plan at first"
    splices = [event for event in events if event["event"] == "Spliced"]
    edits = [edit for event in splices for edit in event["edits"]]
    if any(event["origin"] != "planner" for event in splices) or any(edit["op"] != "add" for edit in edits):
        return "its plan was changed after it was written"
    steps = tuple(edit["step"] for edit in edits)
    output = next((event["output"] for event in reversed(splices) if event["changes_output"]), None)
    goal = next(event["goal"] for event in events if event["event"] == "DraftStarted")
    shown = [goal, list(steps), output]
    if not steps or not can_be_shown(shown, opening["policy"].get("redact") or ()):
        return "its plan or its goal holds a possible secret, or personal data" if steps else "it has no steps"
    if any("redacted" in event for event in events):
        return "its record was redacted"
    contracts = {step["tool"]: opening["tools"][step["tool"]] for step in steps}
    return PlannedRun(
        run_id=run_id,
        goal=goal,
        inputs=opening.get("inputs"),
        steps=steps,
        output=output,
        policy=hash_of(opening["policy"]),
        contracts=hash_of(contracts),
        shape=shape_of(steps, output),
        has_succeeded=last["status"] == "succeeded",
        makespan=last["at"],
        began=first["wall_time"],
    )


def hash_of(value: Any) -> str:
    """Return a hash of plain JSON: 16 hex digits, equal for equal values."""
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


Place = tuple[str | int, ...]
_EXAMPLES: Final = 5
_MOST_GOALS: Final = 20
_MOST_TEXTS: Final = 2  # a goal is matched by backtracking, in time of this power
_CONDITIONS: Final = ("when", "success")
_OF_ONE_RUN: Final = ("description", "expected_output")  # words about the values of one run


@dataclass(slots=True)
class Learned:
    """The routes learned from some runs.

    Attributes:
        routes: The routes, those that were seen most often first.
        examples: The runs that each route was made of, by its name, the latest first.
        left_out: Plans without a route, by their first run, and the reason.
    """

    routes: list[RouteFile] = field(default_factory=list)
    examples: dict[str, list[PlannedRun]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def learn_routes(runs: Iterable[PlannedRun], *, min_runs: int = 1) -> Learned:
    """Return the routes that are in some runs.

    Args:
        runs: The runs, those that failed included: they count in the success rate.
        min_runs: Runs that must have succeeded with a plan.
    """
    groups: dict[tuple[str, str, str], list[PlannedRun]] = {}
    for run in sorted(runs, key=lambda run: (run.began, run.run_id)):
        groups.setdefault(run.key, []).append(run)
    learned = Learned()
    for group in sorted(groups.values(), key=len, reverse=True):
        good = [run for run in group if run.has_succeeded]
        if not good:
            continue
        if len(good) < min_runs:
            learned.left_out[good[0].run_id] = f"its plan succeeded in {len(good)} of the {min_runs} runs that it takes"
            continue
        route = _route(good, group)
        if isinstance(route, str):
            learned.left_out[good[0].run_id] = route
        else:
            learned.routes.append(route)
            learned.examples[route.name] = [run for run in reversed(good) if _gives(route, run)]
    return learned


def _route(good: Sequence[PlannedRun], group: Sequence[PlannedRun]) -> RouteFile | str:
    """Return the route of some runs, or why there is none."""
    literals = [dict(_literals(run)) for run in good]
    names: dict[Place, str] = {}
    types: dict[str, Any] = {}
    by_values: dict[str, str] = {}
    taken = {name for run in good if isinstance(run.inputs, Mapping) for name in run.inputs}
    for place in literals[0]:
        values = [found.get(place) for found in literals]
        if place[1] in _CONDITIONS and (_input_with(values, good) or _is_parameter(values, good)):
            return (
                f"step {good[0].steps[int(place[0])]['id']}: {place[1]} compares with a value of the goal or an input"
            )
        if given := _input_with(values, good):
            names[place] = given
        elif _is_parameter(values, good):
            key = json.dumps([values, _type_of(values)])
            if key not in by_values:
                by_values[key] = _name(place, {*types, *taken})
                types[by_values[key]] = _type_of(values)
            names[place] = by_values[key]
        elif any(value != values[0] or type(value) is not type(values[0]) for value in values):
            where = ".".join(map(str, place[1:]))
            return f"step {good[0].steps[int(place[0])]['id']}: {where} differs between the runs, and is in no goal"
    if list(types.values()).count("text") > _MOST_TEXTS:
        return f"more than {_MOST_TEXTS} of its parameters are texts of several words, which cannot be told apart"
    by_name = {name: [found[place] for found in literals] for place, name in names.items() if name in types}
    sentences = [_sentence(run.goal, {name: by_name[name][at] for name in types}) for at, run in enumerate(good)]
    goals = [sentence for sentence in dict.fromkeys(sentences) if sentence is not None][:_MOST_GOALS]
    if not goals:
        return "the values of its parameters cannot be told apart in the goal"
    try:
        route = RouteFile(
            name=f"{tools_of(good[0].steps)[-1]}-{_key(good[0])}",
            description=" ".join(goals[0].split())[:200],
            goals=goals,
            parameters=types,
            inputs=_inputs_in(plan := _template(good[0], names), types),
            plan=plan,
            learned=_history(good, group),
        )
        fits = all(_gives(route, run) for run, sentence in zip(good, sentences, strict=True) if sentence in goals)
    except ContractError as error:
        return str(error)
    return route if fits else "its parameters cannot be told apart in the goal"


def _key(run: PlannedRun) -> str:
    """Return a key that distinguishes routes by shape, policy and tools."""
    return sha256("\n".join((run.shape, run.policy, run.contracts)).encode()).hexdigest()[:8]


def _literals(run: PlannedRun) -> Iterator[tuple[Place, Any]]:
    """Yield every literal of a plan, with its place: the number of the step, and the path in it."""
    for number, step in enumerate(run.steps):
        for name in ("args", "for_each", "default"):
            if name in step:
                yield from _leaves(step[name], (number, name))
        for name in _CONDITIONS:
            yield from _compared(step.get(name), (number, name))
    yield from _leaves(run.output, (-1, "output"))


def _compared(condition: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    """Yield the compared values of a condition, including nested conditions."""
    if isinstance(condition, Mapping):
        for name, part in condition.items():
            if name == "value":
                yield (*place, name), part
            else:
                yield from _compared(part, (*place, name))
    elif isinstance(condition, list):
        for number, part in enumerate(condition):
            yield from _compared(part, (*place, number))


def _leaves(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, Mapping) and "$step" not in value:
        for name, part in value.items():
            yield from _leaves(part, (*place, name))
    elif isinstance(value, list) and any(references_in(value)):
        for number, part in enumerate(value):
            yield from _leaves(part, (*place, number))
    elif not any(references_in(value)):
        yield place, value


def _input_with(values: Sequence[Any], runs: Sequence[PlannedRun]) -> str:
    """Return the input that has these values in these runs; empty if there is none, or it may be by chance."""
    if not _is_telling(values):
        return ""
    first = runs[0].inputs if isinstance(runs[0].inputs, Mapping) else {}
    for name in first:
        given = [run.inputs.get(name) if isinstance(run.inputs, Mapping) else None for run in runs]
        if [(type(value), value) for value in given] == [(type(value), value) for value in values]:
            return str(name) if re.fullmatch(r"[A-Za-z0-9_-]+", name) else ""
    return ""


def _inputs_in(plan: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[str]:
    texts = references_in(plan)
    named = {match.group(1) for text in texts if (match := re.match(r"input\.([A-Za-z0-9_-]+)", text))}
    return sorted(named - parameters.keys())


def _is_telling(values: Sequence[Any]) -> bool:
    """Whether values can be recognised as parameters: they differ, or have digits."""
    if any(type(value) not in (str, int, float) or value == "" for value in values):
        return False
    return all(any(char.isdigit() for char in str(value)) for value in values) or len(set(values)) > 1


def _is_parameter(values: Sequence[Any], runs: Sequence[PlannedRun]) -> bool:
    return _is_telling(values) and all(_word(value).search(run.goal) for value, run in zip(values, runs, strict=True))


def _word(value: Any) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){re.escape(str(value))}(?!\w|\.\w)")


def _type_of(values: Sequence[Any]) -> str:
    if all(type(value) is int for value in values):
        return "integer"
    if all(type(value) in (int, float) for value in values):
        return "number"
    return "text" if any(any(char.isspace() for char in str(value)) for value in values) else "word"


def _name(place: Place, taken: Collection[str]) -> str:
    words = [part for part in place[2:] if isinstance(part, str)]
    name = re.sub(r"\W", "_", words[-1] if words else "value", flags=re.ASCII)
    name = name if name[:1].isalpha() else f"p_{name}"
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return found


def _sentence(goal: str, values: Mapping[str, Any]) -> str | None:
    """Return a goal with placeholders for its parameters; `None` if two parameters have equal values."""
    texts = {str(value): name for name, value in values.items()}
    if len(texts) < len(values) or any("{" in part or "}" in part for part in (goal, *texts)):
        return None
    if not texts:
        return goal
    found = "|".join(_word(text).pattern for text in sorted(texts, key=len, reverse=True))
    return re.sub(found, lambda match: "{" + texts[match.group()] + "}", goal)


def _template(run: PlannedRun, names: Mapping[Place, str]) -> dict[str, Any]:
    steps = [
        {name: _with_names(value, (number, name), names) for name, value in step.items() if name not in _OF_ONE_RUN}
        for number, step in enumerate(run.steps)
    ]
    output = _with_names(run.output, (-1, "output"), names)
    return {"steps": steps} if output is None else {"steps": steps, "output": output}


def _with_names(value: Any, place: Place, names: Mapping[Place, str]) -> Any:
    if place in names:
        return f"${{input.{names[place]}}}"
    if isinstance(value, Mapping):
        return {name: _with_names(part, (*place, name), names) for name, part in value.items()}
    return (
        [_with_names(part, (*place, at), names) for at, part in enumerate(value)] if isinstance(value, list) else value
    )


def _gives(route: RouteFile, run: PlannedRun) -> bool:
    """Whether a route gives for the goal of a run the plan of this run, whatever the ids of its steps are."""
    if route.values_in(run.goal) is None:
        return False
    plan = route.fill(run.goal).model_dump(mode="json", by_alias=True, exclude_unset=True)
    ids = {step["id"]: other["id"] for step, other in zip(plan["steps"], run.steps, strict=True)}
    mine = [{**step, "id": ids[step["id"]]} for step in plan["steps"]]
    given = dict(_literals(replace(run, steps=tuple(mine))))
    return all(given.get(place, value) == value for place, value in _literals(run))  # an input is no literal


def _history(good: Sequence[PlannedRun], group: Sequence[PlannedRun]) -> dict[str, Any]:
    low, high = rate_interval(len(good), len(group))
    return {
        "examples": [goal for goal, _ in Counter(run.goal for run in good).most_common(_EXAMPLES)],
        "runs": len(group),
        "succeeded": len(good),
        "success": [round(len(good) / len(group), 4), round(low, 4), round(high, 4)],
        "makespan_p50": round(quantile(sorted(run.makespan for run in good), 0.5), 6),
        "last": f"{datetime.fromtimestamp(good[-1].began, UTC):%Y-%m-%d}",
        "shape": good[0].shape,
        "policy": good[0].policy,
        "contracts": good[0].contracts,
    }
