"""Stubs for tools: the contract of a tool, with a script instead of its function."""

from __future__ import annotations

import dataclasses
from typing import Any

import anyio

from dagrun.errors import ContractError
from dagrun.extend import AnyTool


@dataclasses.dataclass(frozen=True, slots=True)
class Takes:
    """A response of a stub that takes some time, and then returns or raises.

    Attributes:
        seconds: The time that it takes.
        then: The value that it returns; an exception is raised.
    """

    seconds: float
    then: Any = None


class StandIn:
    """A stub of a tool: its name, arguments, output type and effect, with a script instead of the function.

    Args:
        tool: The tool to play.
        acts: One act for each call; the last act is repeated forever. A value is returned, an exception is raised,
            `Takes` waits first, and a function is called with the arguments.

    Attributes:
        tool: The tool for the toolbox.
        calls: The arguments of each call so far.

    Examples:
        >>> from dagrun import tool
        >>> @tool(effect="read")
        ... def load(path: str) -> int: ...
        >>> flaky = StandIn(load, TimeoutError(), Takes(2, 7))
    """

    def __init__(self, tool: AnyTool, *acts: Any) -> None:
        if not acts:
            raise ContractError(f"the stand-in for {tool.name} has no act")
        self._acts = acts
        self.calls: list[dict[str, Any]] = []
        self.tool: AnyTool = dataclasses.replace(tool, function=self._play, executor="coroutine")

    async def _play(self, **arguments: Any) -> Any:
        act = self._acts[min(len(self.calls), len(self._acts) - 1)]
        self.calls.append(arguments)
        if isinstance(act, Takes):
            await anyio.sleep(act.seconds)
            act = act.then
        if isinstance(act, BaseException):
            raise act
        return act(**arguments) if callable(act) else act
