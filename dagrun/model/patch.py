"""Patches: edits to a plan that is being carried out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from dagrun.model.condition import Condition
from dagrun.model.plan import Names, Step
from dagrun.model.reference import HOLE, leading_id

_CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True)


class Add(BaseModel):
    """A step that was not in the plan."""

    model_config = _CONFIG

    op: Literal["add"] = "add"
    step: Step = Field(description="With an id that was never used in this run.")


class Drop(BaseModel):
    """A step that is not wanted any more; what waits for it must be rewired or dropped too."""

    model_config = _CONFIG

    op: Literal["drop"] = "drop"
    id: str = Field(description="Of the step; also of an element of for_each, such as load[2].")
    cancel: bool = Field(default=False, description="Stop it even if it runs and its effect cannot be taken back.")


class Replace(BaseModel):
    """Another step takes the place of one; what waited for the old one waits for the new one and gets its output."""

    model_config = _CONFIG

    op: Literal["replace"] = "replace"
    id: str = Field(description="Of the step that goes; it has not succeeded.")
    step: Step = Field(description="The step that comes, with an id that was never used in this run.")
    cancel: bool = Field(default=False, description="Stop it even if it runs and its effect cannot be taken back.")


class Rewire(BaseModel):
    """A step that has not started gets other dependencies or arguments, and keeps its id and its tool."""

    model_config = _CONFIG

    op: Literal["rewire"] = "rewire"
    id: str
    use: dict[str, str] = Field(
        default_factory=dict, description="Steps to use in place of others, everywhere in this step: old id to new id."
    )
    depends_on: Names | None = Field(default=None, description="Steps to wait for, in place of those named before.")
    args: dict[str, Any] | None = Field(default=None, description="Arguments, in place of those it had.")


Edit: TypeAlias = Annotated[Add | Drop | Replace | Rewire, Field(discriminator="op")]

if TYPE_CHECKING:
    Edits = Sequence[Add | Drop | Replace | Rewire]
else:
    Edits = Annotated[tuple[Edit, ...], Field(strict=False)]


def edit_as_dict(edit: Add | Drop | Replace | Rewire) -> dict[str, Any]:
    """An edit as plain JSON, as it was written."""
    # Who makes an edit in Python leaves its kind to the class.
    return {"op": edit.op} | edit.model_dump(mode="json", by_alias=True, exclude_unset=True, fallback=repr)


class Patch(BaseModel):
    """Edits that are applied together or not at all.

    Example:
        >>> patch = Patch(edits=[Drop(id="draft"), Rewire(id="send", use={"draft": "final"})])
        >>> [edit.op for edit in patch.edits]
        ['drop', 'rewire']
    """

    model_config = _CONFIG

    edits: Edits = Field(description="In any order.")
    base: int | None = Field(
        default=None,
        ge=0,
        description="The revision of the plan that its author looked at; by default the present one.",
    )
    reason: str = Field(default="", description="Why, in a sentence, for people.")
    output: str | dict[str, Any] | list[Any] | None = Field(
        default=None, description="What the run answers from now on, as in a plan; left out, that stays as it is."
    )
    confidence: float | None = Field(default=None, ge=0, le=1, description="How sure the planner is of the whole.")
    more: bool = Field(
        default=False, description="Whether its author wants to be asked again once everything in the plan has ended."
    )

    @property
    def changes_output(self) -> bool:
        """Whether *output* was given, be it null."""
        return "output" in self.model_fields_set

    def as_dict(self) -> dict[str, Any]:
        """The patch as plain JSON, as it was written; what is no JSON in it is shown as text."""
        shown = self.model_dump(mode="json", by_alias=True, exclude_unset=True, fallback=repr)
        return shown | {"edits": [edit_as_dict(edit) for edit in self.edits]}


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a patch does to the plan, exactly. Ids, in the order of the edits.

    Attributes:
        added: New steps, substitutes among them.
        dropped: Steps that leave the plan without a successor.
        replaced: Steps that leave the plan, each with the id of its substitute.
        rewired: Steps that keep their id and get other dependencies or arguments.
        cancelled: Those of the dropped and replaced steps that run now, and are told to stop.
        superseded: Those that have not started, and so end at this instant, elements of for_each included.
        unblocked: Steps that could not run before and can now, or will when what they wait for has ended.
        reused: Steps that have succeeded already and whose output new or rewired steps use.
        fallen: Edits that fall away, because their step has succeeded since the author looked: its id.
    """

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    rewired: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    unblocked: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()
    fallen: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The consequence as plain JSON."""
        shown: dict[str, Any] = {name: list(getattr(self, name)) for name in self.__slots__ if name != "replaced"}
        return shown | {"replaced": dict(self.replaced)}

    def __str__(self) -> str:
        added = [id_ for id_ in self.added if id_ not in self.replaced.values()]
        parts = [
            *([f"adds {', '.join(added)}"] if added else []),
            *([f"drops {', '.join(self.dropped)}"] if self.dropped else []),
            *(f"replaces {old} by {new}" for old, new in self.replaced.items()),
            *([f"rewires {', '.join(self.rewired)}"] if self.rewired else []),
        ]
        return "; ".join(parts) or "changes nothing"


def rename_in_step(step: Step, use: Mapping[str, str]) -> Step:
    """Give *step* with other producers: in its arguments, list, conditions and dependencies.

    Args:
        step: As it was written.
        use: Old id to new id.
    """
    changed: dict[str, Any] = {
        "args": rename_in_value(step.args, use),
        "depends_on": tuple(dict.fromkeys(use.get(id_, id_) for id_ in step.depends_on)),
        "for_each": rename_in_value(step.for_each, use),
        "when": _in_condition(step.when, use),
        "success": _in_condition(step.success, use),
    }
    # Only what was written: a field that is set to its default is another one than a field that is left out.
    return step.model_copy(update={name: value for name, value in changed.items() if name in step.model_fields_set})


def rename_in_value(value: Any, use: Mapping[str, str]) -> Any:
    """Give a JSON value of a plan with its references renamed; a value without any comes back as it is."""
    match value:
        case str() if "${" in value:
            return HOLE.sub(lambda match: _hole(match, use), value)
        case Mapping() if "$step" in value:
            step = value["$step"]
            return {**value, "$step": use.get(step, step)} if isinstance(step, str) else value
        case Mapping():
            return {key: rename_in_value(part, use) for key, part in value.items()}
        case list() | tuple():
            return [rename_in_value(part, use) for part in value]
        case _:
            return value


def rename_in_output(output: Any, use: Mapping[str, str]) -> Any:
    """The same for what a plan answers, where a bare text is a reference too."""
    if isinstance(output, str) and "${" not in output:
        return _reference(output, use)
    return rename_in_value(output, use)


def _hole(match: re.Match[str], use: Mapping[str, str]) -> str:
    body = match.group(1)
    if body is None:
        return match.group()  # the escape for a literal brace
    return match.group().replace(body, _reference(body, use), 1)


def _reference(text: str, use: Mapping[str, str]) -> str:
    id_ = leading_id(text)
    return use[id_] + text[len(id_) :] if id_ in use else text


def _in_condition(condition: Condition | None, use: Mapping[str, str]) -> Condition | None:
    if condition is None:
        return None
    changed: dict[str, Any] = {}
    if condition.ref is not None:
        ref = condition.ref
        changed["ref"] = HOLE.sub(lambda match: _hole(match, use), ref) if "${" in ref else _reference(ref, use)
    if condition.all is not None:
        changed["all"] = [_in_condition(part, use) for part in condition.all]
    if condition.any is not None:
        changed["any"] = [_in_condition(part, use) for part in condition.any]
    if condition.not_ is not None:
        changed["not_"] = _in_condition(condition.not_, use)
    return condition.model_copy(update=changed)
