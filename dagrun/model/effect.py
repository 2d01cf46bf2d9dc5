"""Effects: what a tool does to the world, declared once, and all that follows from it."""

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
    ``effectful``   Changes the world each time. A tool that declares nothing is taken for this.
    ==============  ======================================================================================
    """

    PURE = "pure"
    READ = "read"
    IDEMPOTENT = "idempotent"
    EFFECTFUL = "effectful"

    @property
    def is_free(self) -> bool:
        """Whether a call may be repeated, hedged, or dropped while it runs, and nobody would notice."""
        return self in _FREE

    @property
    def may_repeat(self) -> bool:
        """Whether a call of unknown outcome may be made again (with the same key)."""
        return self is not Effect.EFFECTFUL


_FREE = frozenset((Effect.PURE, Effect.READ))


@dataclass(frozen=True, slots=True)
class Applied:
    """What the *reconcile* of a tool gives for a call that has taken effect; `False` says that it has not.

    Attributes:
        value: What the call has returned, or would have.
    """

    value: Any = None
