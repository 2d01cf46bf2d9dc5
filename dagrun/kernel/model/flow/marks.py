"""Trust marks of a tool: guarded arguments, and parts of outputs that others can write.

See `boundary.py` for what a policy says. A path names a part of an answer: keys, ``[]`` for each element of a
list, and ``*`` for each key of an object.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dagrun.errors import ContractError, short_repr


class _Guarded:
    """The class of `guarded`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "dagrun.guarded"


guarded: Final = _Guarded()
"""Marks an argument that says who, where or which account: ``recipient: Annotated[str, dagrun.guarded]``.

Where the policy has a `Flow`, data that others can write does not get into it without a person's yes.
"""

Marks: TypeAlias = bool | tuple[str, ...]
ANY: Final = "[]"  # stands for each element of a list

_PART: Final = re.compile(r"\[\]|\.?([A-Za-z0-9_-]+|\*)")


def is_guarded(hint: Any) -> bool:
    """Whether the type of a parameter marks its argument as guarded."""
    return any(mark is guarded for mark in getattr(hint, "__metadata__", ()))


def read_parts(path: str) -> tuple[str, ...]:
    """Read the path of a part of an answer: ``[].subject``, ``body.text``, ``headers.*``.

    Raises:
        ValueError: *path* is none.
    """
    parts, at = [], 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None:
            raise ValueError(f"{path!r} is no path: write [].subject for the subject of each element, or body.text")
        parts.append(match[1] or ANY)
        at = match.end()
    if not parts:
        raise ValueError("an empty path is the whole answer: say untrusted=True")
    return tuple(parts)


def overlaps(path: Sequence[str | int], pattern: Sequence[str]) -> bool:
    """Whether the place *path* of an output lies within *pattern*, or contains a part of it."""
    return all(
        wanted in (part, "*") or part == ANY or (wanted == ANY and isinstance(part, int))
        for part, wanted in zip(path, pattern, strict=False)
    )


def checked_mark(tool: str, option: str, value: Any) -> Marks:
    """Return the value of an option of a tool about the trust boundary.

    Args:
        tool: The name of the tool, for errors.
        option: ``untrusted``, which may be a list of paths; ``private`` or ``outbound``.
        value: The value.

    Raises:
        ContractError: It is neither true nor false, nor a list of paths.
    """
    if isinstance(value, bool):
        return value
    if option != "untrusted":
        raise ContractError(f"{tool}: {option} is True or False, got {value!r}")
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(part, str) for part in value):
        raise ContractError(f"{tool}: untrusted is True, or a list of paths such as '[].subject', got {value!r}")
    try:
        for part in value:
            read_parts(part)
    except ValueError as error:
        raise ContractError(f"{tool}: untrusted: {error}") from None
    return tuple(value)


# Calls over the boundary ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call about which a person is to be asked, for the function *unless* of a `Flow`.

    Attributes:
        tool: The name of the tool.
        arguments: The arguments of the call, as plain JSON.
        reason: Why a person is asked, in a sentence.
    """

    __repr__ = short_repr

    tool: str
    arguments: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class FlowViolation:
    """Data gets to a call that does not accept it, so that a person must agree to the call.

    Attributes:
        tool: The name of the tool.
        reason: Why, in a sentence that names the way of the data.
        unless: See `Flow`.
    """

    tool: str
    reason: str
    unless: Callable[[GuardedCall], bool] | None = field(default=None, compare=False)

    def is_excused(self, forms: Iterable[Mapping[str, Any]]) -> bool:
        """Whether the host lets a call be made without a person, by each of the *forms* of `ReceivedArguments`."""
        if self.unless is None:
            return False
        try:
            return all(self.unless(GuardedCall(self.tool, form, self.reason)) is True for form in forms)
        except Exception:
            logging.getLogger("dagrun.run").exception("the function unless of the policy has failed; a person is asked")
            return False
