"""Write contracts of tools to a record, compare recorded contracts, and check a recorded plan again.

A record holds the contract of each tool, not its function. Where the tools are missing, `recorded_toolbox` makes
stand-ins that pass every check but cannot be called. `opening_differences` compares a recorded opening with the tools
and the policy of now; `check_recorded_plan` checks the recorded plan again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import SchemaValidator, core_schema, from_json

from dagrun.errors import CannotResume, ContractError, PlanRefused, RecordRefused, ValueRefused, shorten
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.checked_plan import CheckedPlan, empty_plan, with_limits_of
from dagrun.kernel.checks.waves import in_waves
from dagrun.kernel.model.contracts.deps import UNKNOWN_DEPS, Deps
from dagrun.kernel.model.contracts.imported_tools import without_texts
from dagrun.kernel.model.contracts.schema_types import Schema, types_of
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.event import Opening
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.redaction.redactor import Hook
from dagrun.kernel.model.secrets import Secrets
from dagrun.kernel.model.signature import Arguments, Output, explain
from dagrun.kernel.model.tool import ON_RECORD, AnyTool, ExecutorName, Tool, Toolbox
from dagrun.kernel.model.value import Stored, decode, encode_plain


def argument_differences(was: Schema, now: Schema) -> Iterator[str]:
    """Yield the differences of the arguments of a tool, argument by argument."""
    yield from _field_differences("argument", was, now)


def output_differences(was: Schema, now: Schema) -> Iterator[str]:
    """Yield the differences of the output of a tool, field by field if it is an object with named fields."""
    if _is_record(was) and _is_record(now):
        yield from _field_differences("output field", was, now)
    elif without_texts(was) != without_texts(now):
        yield f"output was {_pair(was, was, now, now)}"


def _is_record(schema: Schema) -> bool:
    return schema.get("type") == "object" and "properties" in schema


def _field_differences(word: str, was: Schema, now: Schema) -> Iterator[str]:
    before, after = without_texts(was), without_texts(now)
    if before == after:
        return
    lines = [*_by_name(word, before, after), *_required(word, before, after)]
    rest = [{key: part for key, part in side.items() if key not in _BY_NAME} for side in (before, after)]
    if rest[0] != rest[1]:
        lines.append(f"the rest of the schema of its {word}s was {_brief_schema(rest[0])}, is {_brief_schema(rest[1])}")
    yield from lines or [f"the schema of its {word}s has changed"]


M = TypeVar("M", bound=BaseModel)
_BY_NAME: Final = ("properties", "required")


def _by_name(word: str, was: Schema, now: Schema) -> Iterator[str]:
    before, after = was.get("properties", {}), now.get("properties", {})
    for name in dict.fromkeys((*before, *after)):
        label = f"{word} {shorten(name, 60)}"
        if name not in after:
            yield f"{label} no longer exists"
        elif name not in before:
            yield f"{label} was not there"
        elif before[name] != after[name]:
            yield f"{label} was {_pair(before[name], was, after[name], now)}"


def _required(word: str, was: Schema, now: Schema) -> Iterator[str]:
    before, after = set(was.get("required", ())), set(now.get("required", ()))
    both = set(was.get("properties", {})) & set(now.get("properties", {}))
    for name in sorted((before ^ after) & both):
        change = "was required, is optional" if name in before else "was optional, is required"
        yield f"{word} {shorten(name, 60)} {change}"


def _pair(was: Any, was_root: Schema, now: Any, now_root: Schema) -> str:
    """Describe two schemas by their types, or in full if their types are equal."""
    before, after = types_of(was, was_root), types_of(now, now_root)
    if before != after:
        return f"{_types(before)}, is {_types(after)}"
    return f"{_brief_schema(was)}, is {_brief_schema(now)}"


def _types(types: frozenset[str] | None) -> str:
    return "anything" if types is None else " or ".join(sorted(types)) or "nothing"


def _brief_schema(schema: Any) -> str:
    return shorten(encode_plain(schema), 100)


class Contract(BaseModel):
    """The contract of a tool in a record: the fields of `Tool`, with a boolean for each function.

    Attributes:
        names: See `Arguments`; also for *required* and *context*.
        is_async: Whether the tool is a coroutine function.
        can_reconcile: Whether the tool has a *reconcile* function.
        untrusted: What it says of the trust boundary, as *private*, *outbound* and *guarded*.
        reconcile_after: See `Tool`.
        stream: The argument that takes a stream, as in `Arguments`.
        secrets: The arguments that get secrets, as in `Arguments`.
        inner: The contracts of the tools that it calls by itself. These eight are left out while they say nothing, so
            that records are as they were before there were any.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)

    name: str
    description: str
    effect: Annotated[Effect, Field(strict=False)]
    effect_declared: bool
    arguments: dict[str, Any]
    names: dict[str, str]
    required: Annotated[tuple[str, ...], Field(strict=False)]
    context: str | None
    output: dict[str, Any]
    version: str
    timeout: int | float | None
    executor: ExecutorName
    is_async: bool
    pool: str | None
    needs_approval: bool | None
    fallback: str | None
    max_tokens: int | None
    max_cost: int | float | None
    output_limit: int
    stream_safe: bool
    can_reconcile: bool
    untrusted: bool | Annotated[tuple[str, ...], Field(strict=False)] = False
    private: bool = False
    outbound: bool = False
    guarded: Annotated[tuple[str, ...], Field(strict=False)] = ()
    reconcile_after: int | float | None = None
    stream: str = ""
    secrets: Annotated[tuple[str, ...], Field(strict=False)] = ()
    inner: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()


# What says nothing.
_FLAGS: Final = ("untrusted", "private", "outbound")
_NOTHING_SAID: Final[dict[str, Any]] = {
    **dict.fromkeys(_FLAGS, False),
    "guarded": [],
    "reconcile_after": None,
    "stream": "",
    "secrets": [],
    "inner": [],
}
_SCHEMAS: Final = frozenset(("arguments", "output"))
# These fields follow from the schema of the arguments, or make no difference to a run.
_NOT_COMPARED: Final = _SCHEMAS | {
    "name",
    "description",
    "effect_declared",
    "names",
    "required",
    "context",
    "is_async",
    "stream",
    "secrets",
    "inner",
}


def contract_of(tool: AnyTool) -> dict[str, Any]:
    """Return the contract of *tool* as plain JSON, for a record; `recorded_tool` makes a stub from it.

    Raises:
        ValueRefused: An option has a wrong type, which is not JSON.
    """
    fields = {name: getattr(tool, name) for name in Contract.model_fields if hasattr(tool, name)}
    arguments = tool.arguments
    facts = {
        **fields,
        "arguments": arguments.schema,
        "names": arguments.names,
        "required": sorted(arguments.required),
        "context": arguments.context,
        "output": tool.output.schema,
        "can_reconcile": tool.reconcile is not None,
        "guarded": sorted(arguments.guarded),
        "stream": arguments.stream,
        "secrets": sorted(arguments.secrets),
        "inner": list(map(contract_of, tool.inner_tools)),
    }
    for name, nothing in _NOTHING_SAID.items():
        if facts[name] == nothing:
            del facts[name]
    # Encoded and decoded, so that it equals a contract from a record: a default in a schema may be a tuple.
    contract = from_json(encode_plain({name: facts[name] for name in Contract.model_fields if name in facts}))
    assert isinstance(contract, dict)
    return contract


def recorded_tool(contract: Mapping[str, Any]) -> AnyTool:
    """Make a stub from a recorded contract: it passes every check that the tool passed, but cannot be called.

    The stand-in accepts any literal arguments, because the real tool has accepted those that are on record.

    Raises:
        RecordRefused: *contract* is not the contract of a tool.
    """
    try:
        known = Contract.model_validate(contract)
    except ValidationError as error:
        raise RecordRefused(f"not the contract of a tool: {explain(error)}") from None
    fields = {name: getattr(known, name) for name in Contract.model_fields if name in Tool.__dataclass_fields__}
    anything = SchemaValidator(core_schema.dict_schema())
    arguments = Arguments(
        known.arguments,
        anything,
        known.names,
        frozenset(known.required),
        known.context,
        secrets=frozenset(known.secrets),
        guarded=frozenset(known.guarded),
        stream=known.stream,
        element=anything if known.stream else None,
    )
    refuse = _refusal(known.name)

    async def refuse_later(*_: Any, **__: Any) -> NoReturn:
        refuse()

    function = refuse_later if known.is_async else refuse
    # Worker processes cannot import a function that is defined inside a function.
    function.__module__, function.__qualname__ = ON_RECORD, known.name
    facts = {
        **fields,
        "arguments": arguments,
        "output": Output(known.output, refuse),
        "reconcile": refuse if known.can_reconcile else None,
        "inner_tools": tuple(map(recorded_tool, known.inner)),
    }
    return Tool(function=function, **facts)


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ContractError(f"{name} is known from a record only, and cannot be called; give the run its tools")

    return refuse


def recorded_toolbox(opening: Opening) -> Toolbox:
    """Make stubs of the tools that a run was opened with, to fold its record without them.

    Raises:
        RecordRefused: A recorded contract is invalid.
    """
    return Toolbox([recorded_tool(contract) for contract in opening.tools.values()])


def policy_in_full(policy: Policy) -> Policy:
    """Return *policy* with every field set, so that a record does not change when a default changes."""
    rules = {name: _in_full(getattr(policy, name)) for name in ("retry", "planning", "questions", "workers")}
    return _in_full(policy.model_copy(update=rules))


def _in_full(model: M) -> M:
    return model.model_copy(update={name: getattr(model, name) for name in type(model).model_fields})


# Differences ---------------------------------------------------------------------------------------------------------


def opening_differences(
    recorded: Opening,
    policy: Policy,
    toolbox: Toolbox,
    critics: Collection[str] = (),
    executors: Collection[str] = (),
) -> list[str]:
    """Return the differences between a recorded opening and the present; additional tools and executors are none.

    Args:
        recorded: The opening of the run.
        policy: The present policy.
        toolbox: The present tools.
        critics: The names of the present critics.
        executors: The names of the host's present executors.

    Returns:
        One line for each difference, tools first.

    Raises:
        RecordRefused: A recorded contract is invalid.
    """
    present = with_limits_of(toolbox, policy)
    lines = [line for name, contract in recorded.tools.items() for line in _tool_differences(name, contract, toolbox)]
    lines += [f"policy: {line}" for line in _changes(recorded.policy.model_dump(), present.model_dump())]
    lines += [f"critic {name} no longer exists" for name in recorded.critics if name not in critics]
    lines += [f"critic {name} was not there" for name in critics if name not in recorded.critics]
    lines += [f"executor {name} no longer exists" for name in recorded.executors if name not in executors]
    return lines


def _tool_differences(name: str, contract: Mapping[str, Any], toolbox: Toolbox) -> Iterator[str]:
    if name not in toolbox:
        yield f"tool {name} no longer exists"
        return
    if name not in toolbox.allowed:
        yield f"tool {name} {toolbox[name].refusal or 'is not allowed any more'}"
    now = contract_of(toolbox[name])
    if contract == now:
        return  # by far the most frequent case
    was = contract_of(recorded_tool(contract))
    for field in dict.fromkeys((*was, *now)):
        before, after = was.get(field, _NOTHING_SAID.get(field)), now.get(field, _NOTHING_SAID.get(field))
        if field not in _NOT_COMPARED and before != after:
            yield f"tool {name}: {field} was {_shown(before)}, is {_shown(after)}"
    for line in (
        *argument_differences(was["arguments"], now["arguments"]),
        *output_differences(was["output"], now["output"]),
    ):
        yield f"tool {name}: {line}"


def _changes(was: Mapping[str, Any], now: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Compare objects field by field, including nested objects."""
    for name in dict.fromkeys((*was, *now)):
        before, after = was.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _changes(before, after, f"{place}{name}.")
        elif before != after:
            yield f"{place}{name} was {_shown(before)}, is {_shown(after)}"


def _shown(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else shorten(encode_plain(value), 100)


# The plan ------------------------------------------------------------------------------------------------------------


def check_recorded_plan(
    opening: Opening,
    toolbox: Toolbox,
    policy: Policy,
    secrets: Secrets | None = None,
    redact: Hook | None = None,
    *,
    deps: Deps = UNKNOWN_DEPS,
) -> CheckedPlan:
    """Check again the plan that a run was opened with.

    Args:
        opening: The opening of the run.
        toolbox: The tools that its steps may call: the present tools, or the stand-ins of `recorded_toolbox`.
        policy: The policy.
        secrets: The secrets of the host; `None` if nothing will be run, so that they are not needed.
        redact: The hook of the host for texts that are shown.
        deps: The dependencies of the tools.

    Raises:
        CannotResume: The plan is refused; the error has a line for each problem.
    """
    plan = opening.plan
    known = Secrets.unknown() if secrets is None else secrets
    is_hooked = redact is not None or secrets is None  # without secrets, nothing is run or recorded
    if not plan.steps:
        return replace(empty_plan(plan.goal, toolbox, policy, opening.executors, known), redact=redact, deps=deps)
    try:
        inputs = _inputs(opening.inputs)
        checked = check_plan(
            plan,
            toolbox,
            policy,
            inputs=inputs,
            executors=opening.executors,
            secrets=known,
            deps=deps,
            is_hooked=is_hooked,
        )
    except PlanRefused as error:
        raise CannotResume("the plan of the run no longer passes", map(str, error.problems)) from error
    checked = replace(checked, redact=redact)
    return in_waves(checked) if opening.in_waves else checked


def _inputs(stored: Stored) -> Mapping[str, Any]:
    try:
        inputs = decode(stored)
    except ValueRefused as error:
        raise CannotResume(f"the inputs of the run are needed: {error}") from error
    return inputs if isinstance(inputs, dict) else {}
