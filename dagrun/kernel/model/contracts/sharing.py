"""Declarations of a tool about shared calls: cached results, and batches.

Both leave out or join calls, so they are for tools without an effect alone.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from dagrun.errors import ContractError, shorten

AnyTool: TypeAlias = Any  # a `Tool`, which is defined above this module
Cache: TypeAlias = Literal["run", "engine"] | float
MAX_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch form of a tool: one call of it does the work of many calls of the tool.

    Args:
        function: Takes a list with the arguments of each call, as dicts, and returns a list with the result of each, in
            the same order. An exception in that list is the failure of that call alone. It may take a `ToolContext`
            and dependencies, too. A plain function runs in a worker thread.
        max_calls: The most calls that become one; at least 2.
        within: The seconds for which the first of them waits for others.
        by: The parameters whose values must be equal in all calls of a batch, such as ``("model",)``.

    Examples:
        >>> async def look_up_all(calls: list[dict[str, Any]]) -> list[float]:
        ...     return await prices.get_many([call["item"] for call in calls])
        >>> @dagrun.tool(effect="read", batch=dagrun.Batch(look_up_all, max_calls=50))
        ... async def look_up(item: str) -> float:
        ...     return await prices.get(item)
    """

    function: Callable[..., Any]
    max_calls: int = 16
    within: float = 0.005
    by: tuple[str, ...] = ()
    form: Any = field(
        default=None, init=False, repr=False, compare=False
    )  # the function as a tool, once it belongs to one

    def calls(self) -> str:
        """Return the name of the parameter that takes the calls."""
        return str(next(iter(self.form.arguments.schema["properties"])))


def check_sharing(tool: AnyTool, make_form: Callable[..., AnyTool]) -> Batch | None:
    """Check the `cache` and `batch` options of *tool*.

    Args:
        tool: The tool.
        make_form: Makes a tool of the batch form; takes the function, and options of `dagrun.tool`.

    Returns:
        The batch form, ready for use; `None` if there is none.

    Raises:
        ContractError: The tool has an effect, or an output that cannot be shared, or an option is invalid.
    """
    if tool.cache is not None:
        _check_cache(tool)
    if tool.batch is None:
        return None
    return _checked_batch(tool, tool.batch, make_form)


def _check_cache(tool: AnyTool) -> None:
    kept: object = tool.cache
    is_time = isinstance(kept, int | float) and not isinstance(kept, bool) and 0 < kept < math.inf
    if kept not in ("run", "engine") and not is_time:
        raise ContractError(f'{tool.name}: cache is "run", "engine", or seconds above 0, got {shorten(repr(kept), 60)}')
    _refuse_effect(tool, "cache", "a call that is left out")


def _refuse_effect(tool: AnyTool, option: str, what: str) -> None:
    if not tool.effect.is_free:
        known = (
            f"its effect is {tool.effect}"
            if tool.effect_declared
            else "it declares no effect, so it counts as effectful"
        )
        raise ContractError(f"{tool.name}: {option} is for tools of effect pure or read, because of {what}; {known}")
    if tool.output.has_objects:
        raise ContractError(
            f"{tool.name}: {option} is for data and artifacts; it returns an object in memory, which is of one step"
        )


def _checked_batch(tool: AnyTool, batch: object, make_form: Callable[..., AnyTool]) -> Batch:
    if not isinstance(batch, Batch):
        raise ContractError(f"{tool.name}: batch is a dagrun.Batch(function, …), got {type(batch).__name__}")
    _refuse_effect(tool, "batch", "calls that become one")
    if tool.executor == "process":
        raise ContractError(
            f"{tool.name}: a batch form runs in this process, and executor='process' does not; omit one"
        )
    chosen: Any = batch  # whatever its annotations say
    if not (isinstance(chosen.max_calls, int) and 2 <= chosen.max_calls <= MAX_BATCH):
        raise ContractError(f"{tool.name}: max_calls of a batch is from 2 to {MAX_BATCH}, got {chosen.max_calls!r}")
    if not (isinstance(chosen.within, int | float) and 0 <= chosen.within < math.inf):
        raise ContractError(f"{tool.name}: within of a batch is in seconds, 0 or more, got {chosen.within!r}")
    known = tool.arguments.schema.get("properties", {})
    if isinstance(chosen.by, str) or (unknown := [name for name in chosen.by if name not in known]):
        wrong = chosen.by if isinstance(chosen.by, str) else ", ".join(map(str, unknown))
        raise ContractError(f"{tool.name}: by= of a batch lists parameters of the tool, got {wrong}")
    return _with_form(tool, batch, make_form)


def _with_form(tool: AnyTool, batch: Batch, make_form: Callable[..., AnyTool]) -> Batch:
    if inspect.isclass(batch.function) or not callable(batch.function):
        raise ContractError(f"{tool.name}: the batch form is a function, got {shorten(repr(batch.function), 60)}")
    form = make_form(batch.function, name=tool.name, effect=tool.effect)
    if len(form.arguments.schema.get("properties", ())) != 1:
        raise ContractError(
            f"{tool.name}: its batch form takes one parameter, the list of the arguments of each call "
            f"(calls: list[dict[str, Any]]), besides a ToolContext and dependencies"
        )
    made = replace(batch)
    object.__setattr__(made, "form", form)
    return made
