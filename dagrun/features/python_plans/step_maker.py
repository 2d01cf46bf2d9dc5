"""Make steps of plans from a tool: bind the arguments to its parameters, and set the options of the step."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from typing_extensions import TypedDict

from dagrun.errors import ContractError
from dagrun.features.python_plans.planned_values import PlannedStep
from dagrun.kernel.model.plan import OnFailure, RetryRule
from dagrun.kernel.model.reference import Condition, escaped_key
from dagrun.kernel.model.signature import Arguments, Output

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class StepOptions(TypedDict, total=False):
    """The options of a step in a plan written in Python; see the fields of `Step`.

    ``when`` and ``success`` are conditions, as comparisons of planned values or as a `Condition`; ``success`` may be a
    function that gets the step and returns one. ``depends_on`` takes steps to wait for whose output is not needed.
    """

    id: str
    depends_on: Sequence[Any]
    description: str
    expected_output: str
    when: Any
    max_parallel: int
    success: Callable[[Any], Any] | Condition
    timeout: float
    deadline: float
    retry: RetryRule
    fallback: Any
    on_failure: OnFailure
    default: Any
    optional: bool
    confidence: float
    executor: str
    pool: str
    estimate: float
    pause: str


_KNOWN: Final = frozenset(StepOptions.__annotations__)


class ToolOfPlan(Protocol):
    """The part of a tool that a step needs."""

    @property
    def name(self) -> str:
        """The name of the tool."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function of the tool."""

    @property
    def arguments(self) -> Arguments:
        """Its argument contract."""

    @property
    def output(self) -> Output:
        """Its output contract."""


class StepMaker(Generic[P, R_co]):
    """Makes steps of one tool, with options; made by `Tool.options`.

    Args:
        tool: The tool.
        options: The options of the step.
    """

    def __init__(self, tool: ToolOfPlan, options: Mapping[str, Any]) -> None:
        for name in options.keys() - _KNOWN:
            close = difflib.get_close_matches(name, _KNOWN, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; they are {', '.join(sorted(_KNOWN))}"
            raise ContractError(f"{tool.name}.options: a step has no option {name}{hint}")
        self._tool = tool
        self._options = options

    def __repr__(self) -> str:
        return f"<a step of {self._tool.name} with {', '.join(self._options) or 'no options'}>"

    def options(self, **options: Unpack[StepOptions]) -> StepMaker[P, R_co]:
        """Return a maker with more options."""
        return StepMaker(self._tool, {**self._options, **options})

    def each(self, items: Any) -> ElementsMaker[P, R_co]:
        """Return a maker of a step that runs once for each element of *items*; see `Tool.each`."""
        return ElementsMaker(self._tool, self._options, items)

    if TYPE_CHECKING:

        @overload
        def step(self: StepMaker[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
        @overload
        def step(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Make the step; see `Tool.step`."""
        return PlannedStep(self._tool, _bound(self._tool, args, kwargs), self._options, None)


class ElementsMaker(Generic[P, R_co]):
    """Makes steps that call one tool for each element of a list; made by `Tool.each`.

    Args:
        tool: The tool.
        options: The options of the step.
        items: The list, or the planned value that will be one.
    """

    def __init__(self, tool: ToolOfPlan, options: Mapping[str, Any], items: Any) -> None:
        self._tool = tool
        self._options = options
        self._items = items

    if TYPE_CHECKING:

        @overload
        def step(self: ElementsMaker[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> list[T]: ...
        @overload
        def step(self, *args: P.args, **kwargs: P.kwargs) -> list[R_co]: ...

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Make the step; `dagrun.item` is the element in its arguments."""
        items = list(self._items) if isinstance(self._items, tuple | set | frozenset | range) else self._items
        return PlannedStep(self._tool, _bound(self._tool, args, kwargs), self._options, items)


def _bound(tool: ToolOfPlan, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, without those that the run fills in.

    Raises:
        ContractError: An argument is missing, unknown, given twice, or filled in by the run.
    """
    contract = tool.arguments
    by_name = {contract.names.get(name, name): value for name, value in kwargs.items()}
    filled = [name for name in by_name if name == contract.context and by_name[name] is not None]
    if filled:
        raise ContractError(f"{tool.name}.step: {filled[0]} is filled in by the run; leave it out")
    by_name = {name: value for name, value in by_name.items() if name != contract.context}
    known = ", ".join(sorted(set(contract.names.values()))) or "none"
    try:
        bound = inspect.signature(tool.function).bind_partial(*args, **by_name).arguments
    except TypeError as error:
        raise ContractError(f"{tool.name}.step: {error}; its arguments are {known}") from None
    if contract.is_json_only:  # its function takes any keywords, and the contract says which
        bound = dict(by_name)
        if not contract.is_open and (unknown := by_name.keys() - set(contract.names.values())):
            names = ", ".join(sorted(unknown))
            raise ContractError(f"{tool.name}.step: it takes no {names}; its arguments are {known}")
    bound.pop(contract.context, None) if contract.context else None
    if missing := contract.required - bound.keys():
        raise ContractError(f"{tool.name}.step: the argument {', '.join(sorted(missing))} is missing")
    return {escaped_key(name): value for name, value in bound.items()}
