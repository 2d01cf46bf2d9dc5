"""The executors that every installation has."""

from __future__ import annotations

from collections.abc import Mapping

from dagrun.executors.coroutine import CoroutineExecutor
from dagrun.executors.process import ProcessExecutor
from dagrun.executors.thread import ThreadExecutor
from dagrun.model.policy import Policy
from dagrun.model.protocols import Executor


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
