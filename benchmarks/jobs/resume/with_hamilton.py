"""Charge and then stamp; the process dies in between. Called again, it takes the receipt from the cache."""

import os
import sys
import time
from pathlib import Path

from hamilton import driver

FOLDER = Path(sys.argv[1])
CHARGES, CRASHED = FOLDER / "charges.txt", FOLDER / "crashed"


def charge(euros: float) -> str:
    """Charge a customer."""
    with CHARGES.open("a") as charges:
        charges.write(f"{euros}\n")
    return f"receipt for {euros}"


def stamp(charge: str) -> str:
    """Stamp a receipt; the first time, the process dies in the middle, as by ``kill -9``."""
    time.sleep(0.05)
    if not CRASHED.exists():
        CRASHED.touch()
        os._exit(1)
    return f"{charge}, stamped"


_driver = driver.Builder().with_modules(sys.modules[__name__]).with_cache(FOLDER / "cache").build()
print(_driver.execute(["stamp"], inputs={"euros": 80.0})["stamp"], len(CHARGES.read_text().splitlines()))
