"""Effects: the changes that a call of a tool makes outside, and the rules that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from dagrun.errors import short_repr


class Effect(StrEnum):
    """The changes that one call of a tool makes outside.

    ==============  ======================================================================================
    ``pure``        Nothing: the same arguments give the same answer.
    ``read``        Looks at the world and leaves it as it was.
    ``idempotent``  Changes the world; the same call with the same idempotency key changes it once.
    ``effectful``   Changes the world each time. A tool that declares no effect counts as effectful.
    ==============  ======================================================================================

    Attributes:
        is_free: Whether a call may be repeated, hedged, or dropped while it runs, without any effect on the world.
        may_repeat: Whether a call of unknown outcome may be made again, with the same idempotency key.
    """

    PURE = "pure"
    READ = "read"
    IDEMPOTENT = "idempotent"
    EFFECTFUL = "effectful"

    is_free: bool
    may_repeat: bool

    def __new__(cls, value: str) -> Self:
        """Make a member; checks and patches read its properties often, so they are attributes."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.is_free = value in ("pure", "read")
        member.may_repeat = value != "effectful"
        return member


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a tool's *reconcile* for a call that has taken effect; for a call that has not, it is `False`.

    Attributes:
        value: The value that the call has returned, or would have returned.
    """

    __repr__ = short_repr

    value: Any = None
