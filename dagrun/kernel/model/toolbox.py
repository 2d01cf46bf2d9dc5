"""Toolboxes: the tools that a run may call, by name."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final, TypeAlias

from dagrun.errors import ContractError, UnknownTool, hint, shorten
from dagrun.kernel.model.tool import Tool, make_tool

AnyTool: TypeAlias = Tool[..., Any]
ENTRY_POINTS = "dagrun.tools"


# The tool that composes the answer of a run; no planner sees it.
COMPOSE: Final = "compose_answer"


class Toolbox(Mapping[str, AnyTool]):
    """An immutable mapping from names to tools.

    Args:
        sources: Tools; typed functions (which count as effectful); modules, for every tool in them; ``"module"`` or
            ``"module:name"``; other toolboxes; or iterables of all these.
        allow: The names that a plan may call; `None` for all.

    Attributes:
        allowed: The names that a plan may call: of those in *allow*, the tools without a `Tool.refusal`.
        max_running_by_pool: How many steps of a pool run at once, where the tools say so, as those of servers do. The
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
