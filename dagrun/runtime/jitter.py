"""Where the jitter of delays comes from."""

from __future__ import annotations

from random import Random
from typing import Final

_SHARED: Final = Random()


def random_of(seed: int | None) -> Random:
    """A generator for one run: its own for a seed, else one that all such runs share.

    To make one that nobody can foretell takes as long as two steps do, and hardly any run ever asks it.
    """
    return _SHARED if seed is None else Random(seed)
