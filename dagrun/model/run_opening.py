"""What a run was opened with: all that has to be the same, or known, when it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagrun.model.plan import Plan
from dagrun.model.policy import Policy
from dagrun.model.value import Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a run was opened with.

    Attributes:
        plan: As it was written; without steps, if the planner had still to write it.
        policy: The limits.
        inputs: What ``${input}`` stands for, stored.
        tools: The contracts of the tools that the plan may call, by name: see `contract_of`.
        executors: The names of the executors of the host.
        critics: The names of the critics.
        in_waves: Whether every step waits for the whole generation before its own.
        root: The run that the keys of calls are made of: the run itself, or the first of those it was retried from.
        parent: The run that this one does again what has failed of; empty if there is none.
        roots: For steps whose key is not made of their own id: the step that it is made of, and the generation.
        seed: Of the jitter of delays; `None` for a random one.
        labels: What the host wants to know of the run later: the command line, say. Plain JSON; nobody acts on it.
        expires_at: When the record may be forgotten, in seconds since 1970; `None` for never.
        version: Of dagrun.
    """

    plan: Plan
    policy: Policy
    inputs: Stored
    tools: Mapping[str, Mapping[str, Any]]
    executors: tuple[str, ...] = ()
    critics: tuple[str, ...] = ()
    in_waves: bool = False
    root: str = ""
    parent: str = ""
    roots: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    seed: int | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    expires_at: float | None = None
    version: str = ""
