"""Which seeds a proof goes through: many in a rig, very many at night, a single one to look into a failure."""

from __future__ import annotations

import os
import random
from typing import Final

NIGHT: Final = bool(os.environ.get("DAGRUN_NIGHT"))
ONE_SEED: Final = os.environ.get("DAGRUN_SEED")


def choose_seeds(count: int, at_night: int) -> range:
    """Give *count* seeds, the same each time; at night others each time.

    ``DAGRUN_SEED=n`` in the environment means the seed n alone: every failure names its own.
    """
    if ONE_SEED is not None:
        return range(int(ONE_SEED), int(ONE_SEED) + 1)
    first = random.SystemRandom().randrange(10**9) if NIGHT else 0
    seeds = range(first, first + (at_night if NIGHT else count))
    print(f"seeds {seeds.start} to {seeds.stop - 1}; DAGRUN_SEED=n runs one of them alone")
    return seeds
