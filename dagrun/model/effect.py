"""Effects: what a call of a tool does to the world, and what may therefore be done with the call."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Effect(StrEnum):
    """What one call of a tool does to the world.

    ==============  ======================================================================================
    ``pure``        Nothing: the same arguments give the same answer.
    ``read``        Looks at the world and leaves it as it was.
    ``idempotent``  Changes the world; the same call with the same idempotency key changes it once.
    ``effectful``   Changes the world each time. A tool that declares no effect counts as effectful.
    ==============  ======================================================================================
    """

    PURE = "pure"
    READ = "read"
    IDEMPOTENT = "idempotent"
    EFFECTFUL = "effectful"

    @property
    def is_free(self) -> bool:
        """Whether a call may be repeated, hedged, or dropped while it runs, without any effect on the world."""
        return self in _FREE

    @property
    def may_repeat(self) -> bool:
        """Whether a call of unknown outcome may be made again, with the same idempotency key."""
        return self is not Effect.EFFECTFUL


_FREE = frozenset((Effect.PURE, Effect.READ))


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a tool's *reconcile* for a call that has taken effect; for a call that has not, it is `False`.

    Attributes:
        value: The value that the call has returned, or would have returned.
    """

    value: Any = None
