"""Make an environment of its own for each peer, one after another.

    PYTHONPATH=benchmarks python -m peers.environments [--only NAME ...]

Each peer's versions are pinned in ``requirements``, so that a table of today can be made again. The environments lie in
the folder ``.peers``, which can be deleted at any time. One that is there and complete is kept; one that cannot be made
is named with the reason, and the rest goes on: the benchmark says of such a peer that it is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from peers.registry import ENVIRONMENTS, PEERS, Peer

MAX_MINUTES: Final = 10  # for one peer
COMPLETE: Final = "complete.txt"  # written last, with the list that the environment was made from


class CannotMake(Exception):
    """An environment cannot be made; the message says what pip said last."""


def python_of(peer: Peer, folder: Path = ENVIRONMENTS) -> Path | None:
    """The interpreter that runs *peer*, or `None` if its environment is missing, unfinished or of other versions."""
    if peer.requirements is None:
        return Path(sys.executable)
    home = folder / str(peer.environment)
    made_from = home / COMPLETE
    if not made_from.exists() or made_from.read_text() != peer.requirements.read_text():
        return None
    return home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def make(peer: Peer, folder: Path = ENVIRONMENTS) -> None:
    """Make the environment of *peer* anew.

    Raises:
        CannotMake: A package is not to be had, or it took too long.
    """
    if peer.requirements is None:
        return
    home = folder / str(peer.environment)
    shutil.rmtree(home, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(home)])
    pip = [sys.executable, "-m", "pip", "--python", str(home), "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", "--requirement", str(peer.requirements)])
    (home / COMPLETE).write_text(peer.requirements.read_text())


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MAX_MINUTES, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotMake(f"not done after {MAX_MINUTES} minutes") from error
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise CannotMake(said[-1] if said else f"exit code {done.returncode}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing; the exit code is 1 if something could not be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", action="append", help="of one peer; may be given again")
    options = parser.parse_args(arguments)
    failed = 0
    for peer in PEERS:
        if (options.only and peer.name not in options.only) or python_of(peer) or peer.trouble:
            continue
        print(f"{peer.name}: making its environment ...", flush=True)
        try:
            make(peer)
        except CannotMake as error:
            failed += 1
            print(f"{peer.name}: cannot be made: {error}", flush=True)
    print("Environments: " + ", ".join(sorted({str(peer.environment) for peer in PEERS if python_of(peer)} - {"None"})))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
