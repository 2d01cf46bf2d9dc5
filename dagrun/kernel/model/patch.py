"""Patches: the edits of a plan, the changes they cause, and the renaming of ids inside steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from dagrun.errors import short_repr
from dagrun.kernel.model.plan import Names, Step, TerseModel
from dagrun.kernel.model.reference import HOLE, Condition, leading_id

_CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Add(TerseModel):
    """A step that is added to the plan."""

    model_config = _CONFIG

    op: Literal["add"] = "add"
    step: Step = Field(description="With an id that was never used in this run.")


class Drop(TerseModel):
    """A step that leaves the plan; the steps that wait for it must be rewired or dropped too."""

    model_config = _CONFIG

    op: Literal["drop"] = "drop"
    id: str = Field(description="Of the step; also of an element of for_each, such as load[2].")
    cancel: bool = Field(default=False, description="Stop it even if it runs and its effect cannot be taken back.")


class Replace(TerseModel):
    """A step that takes the place of another: steps that waited for the old one wait for it, and get its output."""

    model_config = _CONFIG

    op: Literal["replace"] = "replace"
    id: str = Field(description="Of the step that goes; it has not succeeded.")
    step: Step = Field(description="The step that comes, with an id that was never used in this run.")
    cancel: bool = Field(default=False, description="Stop it even if it runs and its effect cannot be taken back.")


class Rewire(TerseModel):
    """New dependencies or arguments for a step that has not started; it keeps its id and its tool."""

    model_config = _CONFIG

    op: Literal["rewire"] = "rewire"
    id: str
    use: dict[str, str] = Field(
        default_factory=dict, description="Replacements for steps, everywhere in this step: old id to new id."
    )
    depends_on: Names | None = Field(default=None, description="The new dependencies.")
    args: dict[str, Any] | None = Field(default=None, description="The new arguments.")


Edit: TypeAlias = Annotated[Add | Drop | Replace | Rewire, Field(discriminator="op")]

if TYPE_CHECKING:
    Edits = Sequence[Add | Drop | Replace | Rewire]
else:
    Edits = Annotated[tuple[Edit, ...], Field(strict=False)]


def edit_as_dict(edit: Add | Drop | Replace | Rewire) -> dict[str, Any]:
    """Return an edit as plain JSON, with only the fields that were written."""
    # An edit that was made in Python leaves ``op`` to its class, so it counts as not written.
    return {"op": edit.op} | edit.model_dump(mode="json", by_alias=True, exclude_unset=True, fallback=repr)


class Patch(TerseModel):
    """Edits that are applied together or not at all.

    Only of a planner's patch may some be left out: those that the policy rules out, if the rest stands by itself.

    Examples:
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
        default=None, description="The new output of the run, as in a plan; if left out, it is unchanged."
    )
    confidence: float | None = Field(default=None, ge=0, le=1, description="How sure the planner is of the whole.")
    more: bool = Field(
        default=False, description="Whether its author wants to be asked again once everything in the plan has ended."
    )

    @property
    def changes_output(self) -> bool:
        """Whether *output* was given; a null counts as given."""
        return "output" in self.model_fields_set

    def as_dict(self) -> dict[str, Any]:
        """Return the patch as plain JSON, with only the fields that were written; other objects are shown as text."""
        shown = self.model_dump(mode="json", by_alias=True, exclude_unset=True, fallback=repr)
        return shown | {"edits": [edit_as_dict(edit) for edit in self.edits]}


@dataclass(frozen=True, slots=True)
class Consequence:
    """The exact changes that a patch makes to the plan: ids of steps, in the order of the edits.

    Attributes:
        added: New steps, including substitutes.
        dropped: Steps that leave the plan without a substitute.
        replaced: Steps that leave the plan, each with the id of its substitute.
        rewired: Steps that keep their id and get other dependencies or arguments.
        cancelled: Dropped or replaced steps that are running now, and are told to stop.
        superseded: Dropped or replaced steps that have not started, and so end at this instant. The elements of a
            for_each are included.
        unblocked: Steps that could not run before, and now can run at once or when their dependencies have ended.
        reused: Steps that have already succeeded, and whose output new or rewired steps use.
        fallen: Steps whose edits are void, because the step has succeeded since the author looked.
    """

    __repr__ = short_repr

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
        """Return the consequence as plain JSON."""
        fields: dict[str, Any] = {name: list(getattr(self, name)) for name in self.__slots__ if name != "replaced"}
        return fields | {"replaced": dict(self.replaced)}

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
    """Return *step* with other ids of producers in its arguments, list, conditions and dependencies.

    Args:
        step: The step as it was written.
        use: Old id to new id.
    """
    changed: dict[str, Any] = {
        "args": rename_in_value(step.args, use),
        "depends_on": tuple(dict.fromkeys(use.get(id_, id_) for id_ in step.depends_on)),
        "for_each": rename_in_value(step.for_each, use),
        "when": _in_condition(step.when, use),
        "success": _in_condition(step.success, use),
    }
    # Only fields that were written: a field that is set to its default differs from a field that is left out.
    return step.model_copy(update={name: value for name, value in changed.items() if name in step.model_fields_set})


def rename_in_value(value: Any, use: Mapping[str, str]) -> Any:
    """Return a JSON value of a plan with its references renamed; a value without references is returned unchanged."""
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
    """Return the ``output`` of a plan with its references renamed; here a bare text is a reference too."""
    if isinstance(output, str) and "${" not in output:
        return _reference(output, use)
    return rename_in_value(output, use)


def _hole(match: re.Match[str], use: Mapping[str, str]) -> str:
    body = match.group(1)
    if body is None:
        return match.group()  # the escape for a literal "${"
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
