"""Tools: typed functions with a declared effect; and toolboxes, the tools that a run may call, by name."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, Unpack, overload

from dagrun.errors import ContractError, UnknownTool, hint, shorten
from dagrun.kernel.model.contracts.sharing import Batch, Cache, check_sharing
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.flow.marks import Marks, checked_mark
from dagrun.kernel.model.plan import Planned
from dagrun.kernel.model.signature import Arguments, Output, arguments_of, output_of, refuse_async, summary_of
from dagrun.kernel.model.value import MAX_VALUE_BYTES

if TYPE_CHECKING:
    from dagrun.features.python_plans.step_maker import ElementsMaker, StepMaker, StepOptions

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)  # pyright infers a type of coroutine of its own
T = TypeVar("T")
ExecutorName = Literal["coroutine", "thread", "process"]
SaidBy = Literal["host", "hint", "nobody"]
RetryOn = type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool]

MAX_NAME: Final = 128  # characters, as many as servers of tools may use
# Where the functions of tools on record are, by their names, which pass the check for worker processes.
ON_RECORD: Final = "dagrun.recorded"  # no module has that name
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{MAX_NAME - 1}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOrigin:
    """The server that a tool comes from, and the source of its effect.

    Attributes:
        server: The name of the server.
        said_by: The source of its declared effect: the ``host``, the server by a ``hint`` that the host trusts, or
            ``nobody``.
        pin: The hash of what the server says about the tool.
        refusal: Why no plan may call the tool, in words that follow "which"; empty if plans may.
        max_running: How many steps of its pool (the server's) run at once in a run; or no limit.
    """

    server: str
    said_by: SaidBy
    pin: str
    refusal: str = ""
    max_running: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: it carries the name and docstring of its function
class Tool(Generic[P, R_co]):
    """A function that plans may call, with its contract; made by `tool`, and still callable as a function.

    Attributes:
        name: The name of the tool in plans.
        function: The function itself.
        effect: What a call does to the world.
        effect_declared: Whether *effect* was declared; if not, the tool counts as effectful.
        arguments: The argument contract, from the signature.
        output: The output contract, from the return type.
        description: The docstring up to its first section.
        timeout: Seconds for an attempt, unless the step sets a shorter time; or none.
        executor: ``coroutine``, ``thread`` or ``process``.
        pool: The pool whose limit counts the calls of the tool.
        needs_approval: Whether a person must agree to each call; `None` if that was not declared.
        fallback: The name of a tool with the same arguments, which is tried when this one has failed.
        reconcile: Finds out by idempotency key whether a call of unknown outcome took effect: returns `Applied` or
            `True`, `False`, or `None` if nobody knows. A parameter *seconds_since_cut*, if there is one, gets the
            seconds since the call was cut.
        reconcile_after: Seconds after the cut of a call before a `False` of *reconcile* counts: many servers finish a
            call whose connection is gone. Before that, *reconcile* is asked again. By default twice the time limit of
            the attempt, and at least 30 s.
        retry_on: Whether an exception of the tool is transient, beside those that are by themselves. Declared as a
            class of exceptions, several of them, or a plain function of an exception that returns true or false.
        max_tokens: The most tokens that a call can use; `None` if there is no bound.
        max_cost: The most that a call can cost; `None` if there is no bound.
        output_limit: The most bytes of JSON that a call may return; 1 MiB if nothing is said. If the tool is declared
            to return an `Artifact` or something else (``list[int] | Artifact``), a larger output becomes an artifact.
        version: A part of the tool's identity in records.
        stream_safe: Whether it may be called before the planner has ended the plan, in spite of its effect.
        inner_tools: The tools that a call of it may call by itself, as an agent does.
        cache: How long a result is kept for equal calls, which are then not made: for the ``"run"``, as long as the
            ``"engine"``, or so many seconds in all runs of an engine. Equal calls at the same time are one call. `None`
            if every call is made. For effects ``pure`` and ``read`` alone.
        batch: What makes several calls as one; `None` if each is made by itself. For the same effects alone.
        untrusted: Whether others can write its output, as with mails, files of others and pages of the web; or the
            paths of the parts that they can write (``[].subject``). Counts where the policy has a `Flow`.
        private: Whether its output must not leave.
        outbound: Whether a call carries its arguments out, to a place that the caller chooses.
        is_importable: Whether another process can import its function; not that of a tool made of a schema, which runs
            only as a coroutine of the host.
        is_metered: Whether the models that it asks are charged to the run one by one, and not with its attempts.
        origin: The server that it comes from, and what is known about it there; `None` if it comes from no server.
    """

    name: str
    function: Callable[P, R_co]
    effect: Effect
    effect_declared: bool
    arguments: Arguments
    output: Output
    description: str = ""
    timeout: float | None = None
    executor: ExecutorName = "coroutine"
    pool: str | None = None
    needs_approval: bool | None = None
    fallback: str | None = None
    reconcile: Callable[..., Any] | None = None
    reconcile_after: float | None = None
    retry_on: Callable[[Exception], bool] | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    output_limit: int = MAX_VALUE_BYTES
    version: str = "1"
    stream_safe: bool = False
    inner_tools: tuple[Tool[..., Any], ...] = ()
    cache: Cache | None = None
    batch: Batch | None = None
    untrusted: Marks = False
    private: bool = False
    outbound: bool = False
    is_importable: bool = True
    is_metered: bool = False
    origin: ToolOrigin | None = None

    @property
    def is_on_record(self) -> bool:
        """Whether the tool was rebuilt from a record, without its types."""
        return getattr(self.function, "__module__", "") == ON_RECORD

    @property
    def refusal(self) -> str:
        """Why no plan may call it, in words that follow "which"; empty if plans may."""
        return "" if self.origin is None else self.origin.refusal

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself: no retries, no checks, no run."""
        if any(map(_is_planned, (*args, *kwargs.values()))):
            raise ContractError(f"{self.name}(…) calls the function now; for a step of a plan, {self.name}.step(…)")
        return self.function(*args, **kwargs)

    if TYPE_CHECKING:

        @overload
        def step(self: Tool[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T: ...
        @overload
        def step(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """Make a step of a plan that calls this tool; nothing runs yet.

        An argument is data, or stands for data that exists only in the run: another step, a part of one
        (``step["rows"][0]``, ``step.rows``), `dagrun.input`, or a text with such values in it (an f-string). A type
        checker sees the step as the value that the tool returns. `dagrun.plan` makes a plan of steps.

        Raises:
            ContractError: An argument is missing or unknown.
        """
        return self.options().step(*args, **kwargs)

    def options(self, **options: Unpack[StepOptions]) -> StepMaker[P, R_co]:
        """Return a maker of steps with options: ``tool.options(timeout=3, id="a").step(…)``.

        Raises:
            ContractError: There is no such option.
        """
        from dagrun.features.python_plans.step_maker import StepMaker

        return StepMaker(self, options)

    def each(self, items: Any) -> ElementsMaker[P, R_co]:
        """Return a maker of a step that calls this tool once for each element of a list (`Step.for_each`).

        Args:
            items: The list, or a step or input that is one.

        Examples:
            >>> @tool(effect="pure")
            ... async def double(number: int) -> int:
            ...     return 2 * number
            >>> doubled = double.each([1, 2, 3]).step(number=dagrun.item)
        """
        return self.options().each(items)

    def __repr__(self) -> str:
        takes = ", ".join(self.arguments.schema.get("properties", ()))
        return f"<Tool {shorten(f'{self.name}({takes})', 200)}, {self.effect}>"

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def import_name(self) -> str:
        """``module:name`` of the function."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def describe(self) -> Mapping[str, Any]:
        """Return the contract as plain JSON, for planners and people."""
        return {
            "name": self.name,
            "description": self.description,
            "effect": str(self.effect),
            "arguments": self.arguments.schema,
            "output": self.output.schema,
            "version": self.version,
        }


def _is_planned(value: object) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(part, Planned) for part in parts)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = ...,
    effect: Effect | str | None = ...,
    timeout: float | None = ...,
    executor: ExecutorName | None = ...,
    pool: str | None = ...,
    needs_approval: bool | None = ...,
    fallback: str | None = ...,
    reconcile: Callable[..., Any] | None = ...,
    reconcile_after: float | None = ...,
    retry_on: RetryOn | None = ...,
    max_tokens: int | None = ...,
    max_cost: float | None = ...,
    output_limit: int = ...,
    version: str = ...,
    stream_safe: bool = ...,
    object_output: bool = ...,
    cache: Cache | None = ...,
    batch: Batch | None = ...,
    untrusted: bool | Sequence[str] = ...,
    private: bool = ...,
    outbound: bool = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a typed function, async or plain.

    The parameters and the docstring become the argument schema, the return type becomes the output schema; both are
    enforced. A parameter annotated `ToolContext` gets the context of the call. A plain function runs in a worker
    thread. The options are the attributes of `Tool`; the most important one is *effect*. With *object_output*, what the
    function returns is an object in memory, as with the return type ``dagrun.Object[…]``.

    Examples:
        >>> @tool(effect="pure")
        ... async def add(a: int, b: int) -> int:
        ...     return a + b
        >>> add.name, str(add.effect)
        ('add', 'pure')

    Raises:
        ContractError: The function cannot be a tool, or an option is invalid.
    """
    if function is None:
        return lambda actual: make_tool(actual, **options)
    return make_tool(function, **options)


def make_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    effect: Effect | str | None = None,
    executor: str | None = None,
    object_output: bool = False,
    **options: Any,
) -> Tool[..., Any]:
    """Make a tool of *function*, with the options of `tool`."""
    if isinstance(function, Tool):
        raise ContractError(f"{function.name} is a tool already")
    if not hasattr(function, "__qualname__"):  # an instance of a class with __call__, or a partial
        raise ContractError(f"a tool is made of a function, got {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ContractError(f"{function.__name__} is a generator; a tool returns one value")
    new_tool: Tool[..., Any] = Tool(
        name=_tool_name(function, name),
        function=function,
        effect=_effect(function, effect),
        effect_declared=effect is not None,
        arguments=arguments_of(function),
        output=output_of(function, is_object=object_output),
        description=summary_of(function),
        executor=_executor(function, executor),
        **_checked_options(function, options),
    )
    if new_tool.output.has_objects and not new_tool.effect.is_free:
        raise ContractError(
            f"{new_tool.name} returns an object in memory, which no record holds, so it is called again when a run is "
            f"resumed: that is for effects pure and read, not {new_tool.effect}; return data, or an Artifact"
        )
    if new_tool.cache is not None or new_tool.batch is not None:
        object.__setattr__(new_tool, "batch", check_sharing(new_tool, make_tool))
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        object.__setattr__(new_tool, attribute, getattr(function, attribute))
    object.__setattr__(new_tool, "__wrapped__", function)
    return new_tool


def assembled_tool(
    function: Callable[..., Any],
    *,
    name: str,
    effect: Effect | str | None,
    arguments: Arguments,
    output: Output,
    description: str,
    options: dict[str, Any],
) -> Tool[..., Any]:
    """Make a tool of an async function whose contract does not follow from its signature; see `dagrun.schema_tool`.

    Raises:
        ContractError: The name, the effect or an option is invalid.
    """
    if options.get("batch") is not None:
        raise ContractError(f"{name}: batch is for typed functions; a schema says nothing about several calls at once")
    new_tool: Tool[..., Any] = Tool(
        name=_tool_name(function, name),
        function=function,
        effect=_effect(function, effect),
        effect_declared=effect is not None,
        arguments=arguments,
        output=output,
        description=description,
        is_importable=False,
        **_checked_options(function, options),
    )
    check_sharing(new_tool, make_tool)
    return new_tool


def _tool_name(function: Callable[..., Any], name: str | None) -> str:
    chosen = function.__name__ if name is None else name
    if not _NAME.fullmatch(chosen):
        raise ContractError(
            f"{chosen!r} is not a tool name: a letter, then letters, digits, '_', '.', '-', at most {MAX_NAME}"
        )
    return chosen


def _effect(function: Callable[..., Any], effect: Effect | str | None) -> Effect:
    if effect is None:
        return Effect.EFFECTFUL
    try:
        return Effect(effect)
    except ValueError:
        raise ContractError(f"{function.__name__}: effect is one of {', '.join(Effect)}, not {effect!r}") from None


def _executor(function: Callable[..., Any], executor: str | None) -> ExecutorName:
    is_async = inspect.iscoroutinefunction(function)
    match executor:
        case None:
            return "coroutine" if is_async else "thread"
        case "process":
            return "process"
        case "coroutine" if is_async:
            return "coroutine"
        case "thread" if not is_async:
            return "thread"
        case "coroutine":
            raise ContractError(
                f"{function.__name__} is a plain function: it would block every other step; make it async"
            )
        case "thread":
            raise ContractError(f"{function.__name__} is async; an executor thread is for plain functions")
        case _:
            raise ContractError(f"{function.__name__}: executor is coroutine, thread or process, not {executor!r}")


_LIMITS = ("timeout", "max_tokens", "max_cost", "output_limit")
_FLOW = ("untrusted", "private", "outbound")
_OPTIONS = frozenset(
    (
        *(*_LIMITS, *_FLOW, "pool", "needs_approval", "fallback", "reconcile", "reconcile_after", "retry_on"),
        *("version", "stream_safe", "cache", "batch"),
    )
)


def _checked_options(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    if unknown := options.keys() - _OPTIONS:
        raise ContractError(f"{function.__name__}: unknown option {', '.join(sorted(unknown))}")
    for limit in _LIMITS:
        value = options.get(limit)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 < value < float("inf")):
            raise ContractError(f"{function.__name__}: {limit} must be a positive, finite number, got {value!r}")
    after = options.get("reconcile_after")
    if after is not None:
        is_number = isinstance(after, int | float) and not isinstance(after, bool)
        if not (is_number and 0 <= after < float("inf")):
            raise ContractError(f"{function.__name__}: reconcile_after must be a finite number from 0, got {after!r}")
        if options.get("reconcile") is None:
            raise ContractError(f"{function.__name__}: reconcile_after is for a tool with reconcile, which it limits")
    for name in _FLOW:
        if name in options:
            options[name] = checked_mark(function.__name__, name, options[name])
    if options.get("retry_on") is not None:
        options["retry_on"] = _retry_test(function.__name__, options["retry_on"])
    return options


def _retry_test(name: str, retry_on: Any) -> Callable[[Exception], bool]:
    if not isinstance(retry_on, type | tuple | list):
        refuse_async(retry_on, f"{name}: retry_on")
        return retry_on  # type: ignore[no-any-return]
    classes = (retry_on,) if isinstance(retry_on, type) else tuple(retry_on)
    if not all(isinstance(each, type) and issubclass(each, Exception) for each in classes):
        raise ContractError(f"{name}: retry_on is classes of exceptions or a function, got {retry_on!r}")
    return lambda error: isinstance(error, classes)


AnyTool: TypeAlias = Tool[..., Any]
"""A tool of any signature."""
ENTRY_POINTS = "dagrun.tools"


# The tool that composes the answer of a run; no planner sees it.
COMPOSE: Final = "compose_answer"
"""The name of the tool that composes the answer of a run, in plans and records."""


class Toolbox(Mapping[str, AnyTool]):
    """An immutable mapping from names to tools.

    Args:
        sources: Tools; typed functions (which count as effectful); modules, for every tool in them; ``"module"`` or
            ``"module:name"``; other toolboxes; or iterables of all these.
        allow: The names that a plan may call; `None` for all.

    Attributes:
        allowed: The names that a plan may call: of those in *allow*, the tools without a `Tool.refusal`.
        max_running_by_pool: How many steps of a pool run at once, where the tools say so, as tools of servers do. The
            `pools` of a policy say the same for its runs.

    Raises:
        ContractError: Two tools share a name, a source holds no tool, or *allow* names a tool that is missing.
    """

    def __init__(self, *sources: Source | Iterable[Any], allow: Iterable[str] | None = None) -> None:
        tools: dict[str, AnyTool] = {}
        for new in _flatten(sources):
            known = tools.setdefault(new.name, new)
            if known is not new and _identity(known) != _identity(new):
                raise ContractError(f"two tools are called {new.name}: {known.import_name} and {new.import_name}")
        self._tools: Mapping[str, AnyTool] = MappingProxyType(tools)
        names = frozenset(tools if allow is None else allow)
        if missing := names - tools.keys():
            raise ContractError(f"the allow-list names {', '.join(sorted(missing))}, which is not in the toolbox")
        self.max_running_by_pool = _limits(tools.values())
        origins = ((name, tools[name].origin) for name in names)
        self.allowed = frozenset(name for name, origin in origins if origin is None or not origin.refusal)

    @classmethod
    def from_entry_points(cls, *names: str, allow: Iterable[str] | None = None) -> Toolbox:
        """Load the tools of installed packages, from the entry point group ``dagrun.tools``.

        Args:
            names: Entry points to load; if empty, all of them.
            allow: The names that a plan may call; `None` for all.

        Raises:
            ContractError: No installed package offers one of *names*.
        """
        points = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
        if missing := set(names) - points.keys():
            known = ", ".join(sorted(points)) or "none"
            raise ContractError(f"no installed package offers {', '.join(sorted(missing))} (known: {known})")
        return cls(*(points[name].load() for name in names or sorted(points)), allow=allow)

    def __getitem__(self, name: str) -> AnyTool:
        """Return the tool called *name*.

        Raises:
            UnknownTool: There is no such tool.
        """
        try:
            return self._tools[name]
        except KeyError:
            raise UnknownTool(f"there is no tool {name!r}{hint(name, self._tools)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return shorten(f"Toolbox({', '.join(self._tools)})", 1200)


Source: TypeAlias = AnyTool | Callable[..., Any] | ModuleType | str | Toolbox
# `Any`, because type checkers infer `list[object]` for `TOOLS = [load, clean]`, two tools of different types.
Tools: TypeAlias = Toolbox | Source | Iterable[Any]
"""What the options *tools* take: a toolbox, a source of tools, or an iterable of tools, plain functions and sources."""


def _limits(tools: Iterable[AnyTool]) -> Mapping[str, int]:
    limits: dict[str, int] = {}
    for outer in tools:
        for tool in (outer, *outer.inner_tools):
            if tool.origin is not None and tool.origin.max_running is not None and tool.pool is not None:
                limits[tool.pool] = min(tool.origin.max_running, limits.get(tool.pool, tool.origin.max_running))
    return MappingProxyType(limits)


def _identity(tool: AnyTool) -> tuple[object, ...]:
    """Return the properties that equal tools share: the function and every option. Schemas follow from the function."""
    names = (field.name for field in dataclasses.fields(tool))
    return tuple(getattr(tool, name) for name in names if name not in ("arguments", "output"))


def _flatten(sources: Iterable[Any]) -> Iterator[AnyTool]:
    for source in sources:
        match source:
            case Tool():
                yield source
            case Toolbox():
                yield from source.values()
            case str():
                yield from _flatten((import_target(source),))
            case ModuleType():
                yield from _module_tools(source)
            case _ if callable(source):
                yield make_tool(source)
            case Iterable() if not isinstance(source, Mapping | bytes):  # of a mapping, keys are no sources
                yield from _flatten(source)
            case _:
                raise ContractError(f"{type(source).__name__} is no source of tools")


def _module_tools(module: ModuleType) -> Iterator[AnyTool]:
    exported = getattr(module, "TOOLS", None)
    tools = (
        list(_flatten(exported)) if exported is not None else [v for v in vars(module).values() if isinstance(v, Tool)]
    )
    if not tools:
        raise ContractError(f"the module {module.__name__} holds no tool; mark functions with @dagrun.tool")
    yield from tools


def import_target(target: str) -> Any:
    """Import ``"module"`` or ``"module:name"``.

    Raises:
        ContractError: There is no such module or name.
    """
    module_name, _, attribute = target.partition(":")
    try:
        target_object: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ContractError(f"cannot import {module_name!r}: {error}") from error
    for part in attribute.split(".") if attribute else ():
        try:
            target_object = getattr(target_object, part)
        except AttributeError:
            has_names = hasattr(target_object, "__dict__")
            names = [n for n in vars(target_object) if not n.startswith("_")] if has_names else []
            raise ContractError(f"{module_name} has no {attribute}{hint(part, names)}") from None
    return target_object
