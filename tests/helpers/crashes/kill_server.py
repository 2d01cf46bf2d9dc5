"""The other side of `kill_child.py`: a process that forks runs, and what is left of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Server:
    """Forks a child for each job.

    Args:
        process: That does it.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **job: Any) -> Any:
        """Hand in a job; give what is told of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def run(self, folder: Path, **job: Any) -> dict[str, Any] | None:
        """Do a job in a child, and wait for it; `None` if the child was killed."""
        pid, status = self.ask(folder=str(folder), **job)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == 9, f"{job}: signal {os.WTERMSIG(status)}"
            return None
        return result_of(folder, pid)


def result_of(folder: Path, pid: int) -> dict[str, Any]:
    """What a child has told of its end."""
    found: dict[str, Any] = json.loads((folder / f"result-{pid}.json").read_text())
    return found


@contextmanager
def serving() -> Iterator[Server]:
    """A server for the life of a test."""
    path = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, str(path / "kill_child.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        yield Server(process)
        assert process.stdin is not None
        process.stdin.close()
