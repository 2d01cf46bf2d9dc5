"""Has a job done in the interpreter of a peer, and collects what it answers until its time is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from peers.environments import python_of
from peers.registry import ENVIRONMENTS, Peer

BENCHMARKS: Final = Path(__file__).parent.parent


@dataclass(slots=True)
class Report:
    """What a peer answered.

    Attributes:
        answers: Its figures, in order.
        versions: Of its packages.
        trouble: Why there are not more figures, if there should be: "cannot: ...", "over 20 s", "failed: ...".
    """

    answers: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    trouble: str = ""


def ask(
    peer: Peer, measure: str, task: Mapping[str, Any], *, limit: float, environments: Path = ENVIRONMENTS
) -> Report:
    """Let *peer* take *measure*.

    Args:
        peer: Which one.
        measure: A name in `worker.MEASURES`.
        task: What it gets.
        limit: Seconds from one figure to the next; a peer that takes longer is stopped, and keeps what it had. What it
            needs to start comes on top of the first one.
        environments: Where the environments are.
    """
    report = Report()
    python = python_of(peer, environments)
    if peer.trouble or python is None:
        report.trouble = peer.trouble or "no environment"
        return report
    job = {"adapter": peer.adapter, "packages": peer.packages, "measure": measure, "task": task}
    process = subprocess.Popen(
        [str(python), "-m", "peers.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=BENCHMARKS,
        env=os.environ | {"PYTHONPATH": str(BENCHMARKS), "PYTHONWARNINGS": "ignore"},
        start_new_session=os.name != "nt",  # so that servers which it starts can be stopped with it
    )
    with process:
        complaints: list[str] = []
        reader = threading.Thread(target=lambda: complaints.extend(process.stderr or ()), daemon=True)
        reader.start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.close()
        for line in _lines(process, limit, peer.starting, report):
            _note(report, json.loads(line))
        _stop(process)
        reader.join(5)
    if report.trouble == "ended":
        said = [line.strip() for line in complaints if line.strip()]
        report.trouble = f"failed: {said[-1] if said else 'no answer'}"
    return report


def _lines(process: subprocess.Popen[str], limit: float, starting: float, report: Report) -> Iterator[str]:
    """The lines of an answer but the last, which is empty; says in *report* if that does not come."""
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    patience = limit + starting
    while True:
        try:
            line = lines.get(timeout=patience)
        except Empty:
            report.trouble = f"over {limit:.0f} s"
            return
        if not line:
            report.trouble = "ended"
            return
        if line == "{}\n":
            return
        yield line
        patience = limit if report.answers else patience


def _note(report: Report, answer: dict[str, Any]) -> None:
    if "versions" in answer:
        report.versions = answer["versions"]
    elif "cannot" in answer:
        report.trouble = f"cannot: {answer['cannot']}"
    else:
        report.answers.append(answer)


def _stop(process: subprocess.Popen[str]) -> None:
    """End the worker and what it has started: all of its own session, and nothing else."""
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
