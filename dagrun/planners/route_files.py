"""Routes in files: plans with parameters, which `dagrun learn` writes, and a `RouterPlanner` uses.

A route fits a goal only if the whole goal is one of its sentences, with a value in each place of a parameter; upper and
lower case and blanks do not count. The values are put into the plan as literals: nothing in a goal is ever read as a
reference.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.reference import HOLE, quote_template
from dagrun.kernel.model.signature import explain
from dagrun.planners.host_plans import Route

_LOG: Final = logging.getLogger("dagrun.run")
_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAX_BYTES: Final = 1 << 20
_MOST_CHARACTERS: Final = 2_000  # of a goal that is matched, which takes the square of it where there are two texts
_VALUES: Final = {
    "integer": r"[+-]?[0-9]{1,18}",
    "number": r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?",
    "word": r"\S+",
    "text": r"\S(?:.*?\S)??",
}
# Of each type, a value that is of no narrower one, and stands in no sentence.
_EXAMPLES: Final = {"integer": "9073158{}", "number": "9073158{}.5", "word": "qzx{}x", "text": "qzx{} x"}

ValueType = Literal["word", "text", "integer", "number"]


class RouteFile(BaseModel):
    """A route as a file has it.

    Attributes:
        route: The version of the format.
        name: The name of the route.
        goals: The sentences that it is for; ``{order}`` is a place of the parameter *order*.
        parameters: The type of each parameter (``word`` is a text without blanks); in the plan, ``${input.order}``
            stands for its value.
        inputs: The inputs of the run that the plan refers to; without them, the route is for no goal.
        plan: The plan, as plain JSON.
        description: What the task is, in a sentence.
        learned: Where it comes from: example goals, how often it was seen, how often it succeeded. For people.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    route: Literal[1] = 1
    name: str = Field(min_length=1, max_length=100)
    goals: list[str] = Field(min_length=1, max_length=100)
    parameters: dict[str, ValueType] = Field(default_factory=dict)
    inputs: list[str] = Field(default_factory=list)
    plan: dict[str, Any]
    description: str = ""
    learned: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [_pattern(goal, self.parameters) for goal in self.goals]

    def values_in(self, goal: str) -> dict[str, Any] | None:
        """Return the value of each parameter in *goal*; `None` if the route is not for it."""
        text = _folded(goal)
        if len(text) > _MOST_CHARACTERS:
            return None
        for pattern in self._patterns:
            if found := pattern.fullmatch(text):
                return {name: _typed(value, self.parameters[name]) for name, value in found.groupdict().items()}
        return None

    @cached_property
    def _examples(self) -> list[str]:
        """A goal for each sentence."""
        values = {name: _EXAMPLES[type_].format(at) for at, (name, type_) in enumerate(self.parameters.items())}
        return [_folded(_PLACE.sub(lambda place: values.get(place[1], place[0]), goal)) for goal in self.goals]

    def goals_of(self, other: RouteFile) -> list[str]:
        """Return the sentences of another route that this one is always for, too, whatever the values in them."""
        if not set(self.inputs) <= set(other.inputs):
            return []
        both = zip(other.goals, other._examples, strict=True)
        return [goal for goal, example in both if any(pattern.fullmatch(example) for pattern in self._patterns)]

    def has_inputs(self, inputs: Any) -> bool:
        """Whether the inputs of a run have all that the plan refers to."""
        return not self.inputs or (isinstance(inputs, Mapping) and all(name in inputs for name in self.inputs))

    def fill(self, goal: str) -> Plan:
        """Return the plan for a goal that it is for.

        Raises:
            ContractError: It is not for *goal*.
        """
        values = self.values_in(goal)
        if values is None:
            raise ContractError(f"route {self.name} is not for the goal {shorten(repr(goal), 200)}")
        return Plan.model_validate_json(json.dumps({**_filled(self.plan, values), "goal": goal}))

    def as_route(self) -> Route:
        """Return it as a route of a `RouterPlanner`."""
        return Route(
            self.name,
            lambda goal, inputs: self.has_inputs(inputs) and self.values_in(goal) is not None,
            lambda goal, _: self.fill(goal),
            description=self.description,
        )


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _pattern(goal: str, types: Mapping[str, ValueType]) -> re.Pattern[str]:
    parts, seen, at = [], set(), 0
    text = _folded(goal)
    for place in _PLACE.finditer(text):
        name = place.group(1)
        if name not in types:
            continue
        parts.append(re.escape(text[at : place.start()]))
        parts.append(f"(?P={name})" if name in seen else f"(?P<{name}>{_VALUES[types[name]]})")
        seen.add(name)
        at = place.end()
    if lacking := types.keys() - seen:
        raise ContractError(f"the goal {goal!r} has no place for {', '.join(sorted(lacking))}")
    return re.compile("".join([*parts, re.escape(text[at:])]), re.IGNORECASE)


def _typed(text: str, type_: ValueType) -> Any:
    return text if type_ in ("word", "text") else int(text) if type_ == "integer" else float(text)


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Return *value* with parameter references replaced by their values; a text is inserted as a text."""
    if isinstance(value, dict):
        return {name: _filled(part, values) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, values) for part in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    found = HOLE.fullmatch(value)
    name = (found.group(1) or "").removeprefix("input.") if found is not None else ""
    if found is not None and found.group(1) == f"input.{name}" and name in values:
        return quote_template(values[name]) if isinstance(values[name], str) else values[name]
    return value


def read_routes(folder: str | Path) -> tuple[Route, ...]:
    """Return the routes of a folder, for a `RouterPlanner`, or of one file.

    Of a folder, each file ``*.json`` is read, in the order of their names.

    Of two routes for the same goal, a router uses the first; a warning in the log names both files.

    Args:
        folder: The folder, or one file, which `dagrun learn` has written, and people may have edited.

    Raises:
        ContractError: There is no such folder, or a file is no route; the message names it.
    """
    found = routes_in(Path(folder))
    for conflict in conflicts_of(found):
        _LOG.warning("%s", conflict)
    return tuple(route.as_route() for route in found.values())


def routes_in(folder: Path) -> dict[Path, RouteFile]:
    """Return the routes in a folder, by their files, in the order of their names; see `read_routes`."""
    if not folder.exists():
        raise ContractError(f"there is no folder of routes {folder}, and no file")
    if not folder.is_dir():
        return {folder: read_route(folder)}
    return {path: read_route(path) for path in sorted(folder.glob("*.json"))}


def conflicts_of(routes: Mapping[Path, RouteFile]) -> list[str]:
    """Return which routes are for goals of an earlier one, which takes them, in a sentence for each two."""
    return [
        f"{earlier} and {later} are both for the goal {shorten(repr(goals[0]), 200)}"
        f"{f' (and {len(goals) - 1} more)' if goals[1:] else ''}, and the first is used: take it out of one of them"
        for (earlier, first), (later, second) in combinations(routes.items(), 2)
        if (goals := first.goals_of(second))
    ]


def read_route(path: Path) -> RouteFile:
    """Return the route in a file.

    Raises:
        ContractError: It is no route.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ContractError(f"{path} is longer than a route may be ({_MAX_BYTES} bytes)")
        route = RouteFile.model_validate_json(path.read_bytes())
        Plan.model_validate_json(json.dumps(route.plan))
        len(route._patterns)
    except OSError as error:
        raise ContractError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise ContractError(f"{path} is no route: {explain(error)}") from error
    except ContractError as error:
        raise ContractError(f"{path}: {error}") from error
    return route
