"""The executors by name: the built-in ones, and the host program's."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import anyio

from dagrun.errors import ContractError
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.executor import Executor, ToolCall
from dagrun.kernel.model.policy import WorkerLimits


class CoroutineExecutor:
    """Returns the coroutine of the tool itself, because a layer around it would cost time in every step."""

    def call(self, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Return the coroutine of the tool."""
        return call.tool.function(**call.arguments)  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_BUILT_IN: Final = frozenset(("coroutine", "thread", "process"))


class Executors:
    """The executors of an engine: the built-in ones, made on demand, and the host's.

    Args:
        host: The executors of the host, by name.

    Raises:
        ContractError: See `named`.
    """

    def __init__(self, host: Mapping[str, Executor] | None) -> None:
        self._host: dict[str, Executor] = {}
        self._host = self.named(host)
        self._made: dict[WorkerLimits, BuiltInExecutors] = {}

    def named(self, more: Mapping[str, Executor] | None) -> dict[str, Executor]:
        """Return the executors of the host, and *more* that belong to one run.

        Raises:
            ContractError: A name is not valid or is built in, or an object is not an executor.
        """
        if not isinstance(more, Mapping | None):
            raise ContractError(f'executors are given by name: executors={{"sql": …}}; got {type(more).__name__}')
        for name, executor in (more or {}).items():
            _check(name, executor)
        return self._host | dict(more or {})

    def of(self, plan: CheckedPlan, named: Mapping[str, Executor]) -> Mapping[str, Executor]:
        """Return the built-in executors in the sizes that the policy of *plan* names, and *named*.

        Runs whose policies name the same sizes share the built-in executors.

        Raises:
            ContractError: The plan was checked with executors that are missing here.
        """
        if missing := plan.executors.keys() - named.keys():
            raise ContractError(f"the plan was checked with an executor {', '.join(sorted(missing))}: executors={{…}}")
        limits = plan.policy.workers
        if limits not in self._made:
            self._made[limits] = BuiltInExecutors(limits)
        return ChainMap(dict(named), self._made[limits]) if named else self._made[limits]

    async def aclose(self) -> None:
        """Close the built-in executors; the host's executors may be in use elsewhere."""
        opened, self._made = list(self._made.values()), {}
        with anyio.CancelScope(shield=True):  # closing has its own time limit, and must leave no process behind
            for executor in (executor for group in opened for executor in group.values()):
                await executor.aclose()


class BuiltInExecutors(dict[str, Executor]):
    """The built-in executors by name, each made when the first step needs it.

    Args:
        limits: The limits of the threads, the processes, and the memory of a process.
    """

    def __init__(self, limits: WorkerLimits) -> None:
        super().__init__(coroutine=CoroutineExecutor())
        self._limits = limits

    def __missing__(self, name: str) -> Executor:
        limits = self._limits
        if name == "thread":
            from dagrun.executors.threads import ThreadExecutor

            self[name] = ThreadExecutor(max_threads=limits.max_threads, max_stuck=limits.max_stuck_threads)
        elif name == "process":
            from dagrun.executors.processes.executor import ProcessExecutor

            self[name] = ProcessExecutor(max_processes=limits.max_processes, max_memory=limits.max_process_memory)
        else:
            raise KeyError(name)
        return self[name]


def _check(name: object, executor: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ContractError(f"{name!r} is not a name of an executor: a letter, then letters, digits, '_', '.', '-'")
    if name in _BUILT_IN:
        raise ContractError(f"an executor of the host cannot be called {name}: there is always one of that name")
    if isinstance(executor, type) or not callable(getattr(executor, "call", None)):
        raise ContractError(f"executor {name} needs a method call, like dagrun's Executor; got {executor!r:.100}")
    if not callable(getattr(executor, "accepts", len)):
        raise ContractError(f"accepts of executor {name} is a method: accepts(tool) -> str | None")
