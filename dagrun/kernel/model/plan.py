"""Plans and steps, as a planner, a file or the host program writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from dagrun.errors import class_name, fields_repr, hint, listing, shorten
from dagrun.kernel.model.reference import ID_PATTERN, Condition
from dagrun.presenters import notebook_bundle

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

if TYPE_CHECKING:
    Names = Sequence[str]  # callers may pass any sequence; the model stores a tuple
else:
    Names = Annotated[tuple[str, ...], Field(strict=False)]

OnFailure = Literal["replan", "skip", "default", "stop"]


class TerseModel(BaseModel):
    """A model whose `repr` leaves out the fields that have their defaults, and cuts the others."""

    def __repr__(self) -> str:
        return fields_repr(self, [(name or "", value) for name, value in self.__repr_args__()])

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the fields that differ from their defaults, for pydantic."""
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(name or "")
            if field is None or value != field.get_default(call_default_factory=True):
                yield name, value


class _BuiltOnUse:
    """The signature of a model that is not built yet: `inspect.signature` builds the model, which brings its own."""

    def __get__(self, instance: object, owner: type[BaseModel]) -> Any:
        if instance is not None or not owner.model_rebuild():
            raise AttributeError("__signature__")
        return owner.__signature__


class StrictModel(TerseModel):
    """A model that refuses unknown fields, and suggests the one that was probably meant."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)
    if not TYPE_CHECKING:
        __signature__ = _BuiltOnUse()
    _old_names: ClassVar[Mapping[str, str]] = MappingProxyType({})  # of fields, each with its present place

    @model_validator(mode="wrap")
    @classmethod
    def _suggest_field(cls, given: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(given)
        except ValidationError as error:
            faults: list[Any] = error.errors(include_url=False)
            if all(fault["type"] != "extra_forbidden" for fault in faults):
                raise
        for fault in faults:
            if fault["type"] == "extra_forbidden":
                if len(fault["loc"]) == 1:  # those of inner models have their sentence
                    name = str(fault["loc"][0])
                    fault["msg"] = (
                        f"unknown field {shorten(name, 60)}{hint(name, cls.model_fields, places=cls._old_names)}"
                    )
                fault["type"] = PydanticCustomError("extra_forbidden", fault["msg"])
        raise ValidationError.from_exception_data(cls.__name__, faults)


def _names_of_classes(given: Any) -> Any:
    classes = [given] if isinstance(given, type | str) else given
    return [class_name(each) if isinstance(each, type) else each for each in classes]


if TYPE_CHECKING:
    ClassNames = Sequence[Any]  # classes, or one; the model stores their names
else:
    ClassNames = Annotated[SkipJsonSchema[Names], BeforeValidator(_names_of_classes)]


class RetryRule(StrictModel):
    """When to try a step again. Times are in seconds; ``None`` means no limit.

    *retry_on* names exceptions that are transient beside those that are by themselves: classes, or their names with
    their top package (``redis.ReadOnlyError``), as they are recorded. A function is declared with a tool.
    """

    max_attempts: int = Field(default=2, ge=1, le=100)
    first_delay: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    factor: float = Field(default=2.0, ge=1, allow_inf_nan=False)
    max_delay: float | None = Field(default=30.0, ge=0, allow_inf_nan=False)
    retry_on: ClassNames = ()

    def within(self, limit: RetryRule) -> RetryRule:
        """Return the rule with no more attempts, no longer delays and no more exceptions than *limit* allows."""
        lower: dict[str, Any] = {"retry_on": tuple(name for name in self.retry_on if name in limit.retry_on)}
        for name in ("max_attempts", "first_delay", "factor", "max_delay"):
            own, most = getattr(self, name), getattr(limit, name)
            lower[name] = most if own is None or (most is not None and own > most) else own
        lower = {name: value for name, value in lower.items() if value != getattr(self, name)}
        return self.model_copy(update=lower) if lower else self


class Step(TerseModel):
    """One call of one tool, with arguments.

    A step can make the policy stricter, never looser; but the *retry* of a step that the host makes in Python counts as
    it is.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    id: str = Field(json_schema_extra={"pattern": f"^{ID_PATTERN}$"}, description="Unique in the run, for ever.")
    tool: str = Field(description="The name of a tool in the toolbox.")
    args: dict[str, Any] = Field(
        default_factory=dict,
        description='Arguments. "${load.rows[0]}" or {"$step": "load", "path": "rows[0]"} refers to the output of a '
        "step, its path a text or a list; '$${' writes a literal '${', and the key \"$$step\" a literal \"$step\".",
    )
    depends_on: Names = Field(default=(), description="Steps to wait for; a reference implies its dependency.")
    description: str = Field(default="", description="The purpose of the step, for people.")
    expected_output: str = Field(default="", description="The expected output, for people and critics.")
    when: Condition | None = Field(default=None, description="Run only if this holds; else the step is skipped.")
    for_each: str | dict[str, Any] | list[Any] | None = Field(
        default=None, description='Run once per element of this list; "${item}" in args is the element.'
    )
    max_parallel: int | None = Field(default=None, ge=1, description="Elements of for_each that run at once.")
    success: Condition | None = Field(default=None, description="Must hold of the output (refer to the own id).")
    timeout: Seconds | None = Field(default=None, description="Seconds for each attempt.")
    deadline: Seconds | None = Field(default=None, description="Seconds for the whole step, back-off counted.")
    retry: RetryRule | None = Field(default=None, description="Attempts and the delays between them.")
    fallback: str | None = Field(default=None, description="A tool that takes the same arguments, tried last.")
    on_failure: OnFailure | None = Field(default=None, description="The reaction to a final failure of the step.")
    default: Any = Field(default=None, description='The output that is used with on_failure "default".')
    optional: bool = Field(default=False, description="The run succeeds without it; dropped first when money is short.")
    confidence: float | None = Field(default=None, ge=0, le=1, description="How sure the planner is of this step.")
    executor: str | None = Field(
        default=None, description="Where the tool runs: coroutine, thread, process, or by a name that the host gave."
    )
    pool: str | None = Field(default=None, description="The pool whose limit counts this step.")
    estimate: float | None = Field(default=None, ge=0, allow_inf_nan=False, description="Expected seconds.")
    pause: Literal["before", "after"] | None = Field(default=None, description="Wait for a person there.")

    @property
    def has_default(self) -> bool:
        """Whether *default* was given; a null counts as given."""
        return "default" in self.model_fields_set

    def within(self, limit: RetryRule) -> Step:
        """Return the step with its retry rule lowered to *limit*, the rule of the policy."""
        if self.retry is None or (rule := self.retry.within(limit)) is self.retry:
            return self
        return self.model_copy(update={"retry": rule})


if TYPE_CHECKING:
    Steps = Sequence[Step]
else:
    Steps = Annotated[tuple[Step, ...], Field(strict=False)]


class Planned:
    """Stands in a plan written in Python for the output of a step, or for a part of it.

    `dagrun.features.python_plans` has the values. Their attributes are private, because each name may be a field.
    """

    __slots__ = ("_root",)
    _root: Any  # the planned step, or the name of another root of references

    def _value_in(self, output: Any, step: str) -> Any:
        """Return the value for which it stands, from the *output* of the step with the id *step*.

        Raises:
            ValueRefused: The output has no such part, or does not fit the type of the tool.
        """
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class PlanSource:
    """The origin of a plan: its steps in Python, or a text. It does not count when plans are compared.

    Attributes:
        ids: The id of each step, by the `PlannedStep`.
        tools: The tools that the steps call, each once.
        is_text: Whether the plan was read from a text, so that nobody knows who wrote it.
    """

    ids: Mapping[Any, str] = field(default_factory=dict)
    tools: tuple[Any, ...] = ()
    is_text: bool = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlanSource)

    __hash__ = None  # type: ignore[assignment]


class Plan(BaseModel):
    """A graph of steps.

    Examples:
        >>> Plan(steps=[Step(id="one", tool="add", args={"a": 1, "b": 2})]).steps[0].id
        'one'
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    steps: Steps = Field(description="In any order.")
    goal: str = Field(default="", description="The purpose of the plan, for people and critics.")
    output: str | dict[str, Any] | list[Any] | None = Field(
        default=None,
        description="The output of the run: an id, a reference, or JSON with references; by default, the sinks.",
    )
    confidence: float | None = Field(default=None, ge=0, le=1, description="How sure the planner is of the whole.")
    _source: PlanSource = PrivateAttr(default_factory=PlanSource)

    def __repr__(self) -> str:
        title = f"Plan of {len(self.steps)} step{'s' * (len(self.steps) != 1)}"
        answer = "" if self.output is None else f"; output {shorten(str(self.output), 60)}"
        return f"<{listing(title + answer, map(repr, self.steps))}>"

    __str__ = __repr__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return notebook_bundle(self)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the plan as JSON, without fields that have their defaults; `dagrun.read_plan` reads it."""
        return json.dumps(self._fields(), ensure_ascii=False, indent=indent)

    def to_yaml(self) -> str:
        """Return the plan as YAML, without fields that have their defaults; `dagrun.read_plan` reads it from a file."""
        from dagrun.plans.plan_text import as_yaml

        return as_yaml(self._fields())

    def to_python(self) -> str:
        """Return Python code that makes the plan, as `dagrun.plan` and `Tool.step` would be used.

        The code makes a variable `plan`. It expects each tool under its name; a tool whose name is no name in Python is
        expected as ``tools["its.name"]``.
        """
        from dagrun.plans.plan_text import as_python

        return as_python(self._fields())

    def _fields(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
