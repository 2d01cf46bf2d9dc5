"""The executors that every installation has, and those of the host by name."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import anyio

from dagrun.checks.checked_plan import CheckedPlan
from dagrun.errors import ContractError
from dagrun.executors.processes.executor import ProcessExecutor
from dagrun.executors.threads import ThreadExecutor
from dagrun.model.executor import Executor, ToolCall
from dagrun.model.policy import Policy


class CoroutineExecutor:
    """Hands out the coroutine of the tool as it is: a layer around it would cost every step."""

    def call(self, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Give the coroutine of the tool."""
        return call.tool.function(**call.arguments)  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """Nothing to let go of."""


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_OURS: Final = frozenset(("coroutine", "thread", "process"))


class Executors:
    """The executors of an engine: ours, made when they are wanted, and those of the host.

    Args:
        host: Those of the host, by name.

    Raises:
        ContractError: See `named`.
    """

    def __init__(self, host: Mapping[str, Executor] | None = None) -> None:
        self._host: dict[str, Executor] = {}
        self._host = self.named(host)
        self._made: dict[tuple[int | None, ...], Mapping[str, Executor]] = {}

    def named(self, more: Mapping[str, Executor] | None) -> dict[str, Executor]:
        """Those of the host, for a run that brings *more*.

        Raises:
            ContractError: A name that is none, or is one of ours; or something that is no executor.
        """
        if not isinstance(more, Mapping | None):
            raise ContractError(f'executors are given by name: executors={{"sql": …}}; got {type(more).__name__}')
        for name, executor in (more or {}).items():
            _check(name, executor)
        return self._host | dict(more or {})

    def of(self, plan: CheckedPlan, named: Mapping[str, Executor]) -> Mapping[str, Executor]:
        """Ours in the sizes that the policy of *plan* wants, which runs that agree on them share; and *named*.

        Raises:
            ContractError: The plan was checked with executors that are not there.
        """
        if missing := plan.executors - named.keys():
            raise ContractError(f"the plan was checked with an executor {', '.join(sorted(missing))}: executors={{…}}")
        policy = plan.policy
        key = (policy.max_threads, policy.max_stuck_threads, policy.max_processes, policy.max_process_memory)
        if key not in self._made:
            self._made[key] = make_executors(policy)
        return {**self._made[key], **named} if named else self._made[key]

    async def aclose(self) -> None:
        """Close ours; those of the host are the host's, and may be in use elsewhere."""
        opened, self._made = list(self._made.values()), {}
        with anyio.CancelScope(shield=True):  # closing is bounded by itself, and must not leave processes behind
            for executor in (executor for group in opened for executor in group.values()):
                await executor.aclose()


def make_executors(policy: Policy) -> Mapping[str, Executor]:
    """Make an executor of each kind, by name. None of them starts a thread or a process before its first call.

    Args:
        policy: Says how many threads and processes there may be, and how much memory a process gets.
    """
    return {
        "coroutine": CoroutineExecutor(),
        "thread": ThreadExecutor(max_threads=policy.max_threads, max_stuck=policy.max_stuck_threads),
        "process": ProcessExecutor(max_processes=policy.max_processes, max_memory=policy.max_process_memory),
    }


def _check(name: object, executor: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ContractError(f"{name!r} is not a name of an executor: a letter, then letters, digits, '_', '.', '-'")
    if name in _OURS:
        raise ContractError(f"an executor of the host cannot be called {name}: there is always one of that name")
    if isinstance(executor, type) or not callable(getattr(executor, "call", None)):
        raise ContractError(f"executor {name} needs a method call, like dagrun's Executor; got {executor!r:.100}")
