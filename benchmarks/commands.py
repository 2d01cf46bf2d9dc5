"""What commands of the command line cost to start, compared with the libraries that they cannot do without.

    python benchmarks/commands.py [--quick] [--gate] [--out FOLDER]

**What is measured.** CPU time of whole processes, with the start of Python: lists and help pages (``--help``, ``runs``,
``inspect --help``, ``config``, ``tools --help``), and ``check`` and ``run`` of a plan of ten steps. Each takes turns
with a bare Python that imports the libraries that no such command can do without: click for the first group; click,
anyio with its loop, and pydantic with one model for the second. Modules are compiled before, as they are for users.

**How to read it.** A ratio to that bare Python, of the best of all turns of each: what else the machine does only adds.
So it holds on any machine, and shows what dagrun itself adds: modules that it imports, and work that it does. The musts
are on times, for the machine that is named in the results.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import command
import environment

CLICK: Final = "import click"
ENGINE: Final = (
    "import click, anyio\nfrom pydantic import BaseModel\nBaseModel.__class__('M', (BaseModel,), {})\n"
    "anyio.run(anyio.sleep, 0)"
)
LIGHT: Final[tuple[tuple[str, ...], ...]] = (
    ("--help",),
    ("runs",),
    ("inspect", "--help"),
    ("config",),
    ("tools", "--help"),
)
HEAVY: Final[tuple[tuple[str, ...], ...]] = (
    ("check", "plan.json", "--tools", "ten_tools"),
    ("run", "plan.json", "--tools", "ten_tools", "-q"),
)
MUST_LIGHT: Final = 150.0  # ms
MUST_HEAVY: Final = 550.0

_TOOLS: Final = '''import dagrun


@dagrun.tool(effect="pure")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b
'''
_PLAN: Final = '{"steps": [{"id": "s0", "tool": "add", "args": {"a": 0}}%s], "output": "s9"}'
_STEP: Final = ', {"id": "s%d", "tool": "add", "args": {"a": "${s%d}"}}'


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a command.

    Attributes:
        name: The command.
        ours: CPU milliseconds of the whole process.
        base: The same for the bare Python.
        ratio: The first divided by the second.
        must: The most milliseconds.
    """

    name: str
    ours: float
    base: float
    ratio: float
    must: float


class Starts:
    """Starts commands in a folder of its own, with a plan, tools, and the record of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        own = {
            "XDG_STATE_HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "PYTHONPYCACHEPREFIX": str(folder / "pyc"),
        }
        self._environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | own
        (folder / "ten_tools.py").write_text(_TOOLS)
        (folder / "plan.json").write_text(_PLAN % "".join(_STEP % (i, i - 1) for i in range(1, 10)))
        self.cpu(("-m", "dagrun", *HEAVY[1]))  # there is a run to list

    def cpu(self, arguments: Sequence[str]) -> float:
        """CPU milliseconds of a Python process, from its start to its end."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        said = process.stderr.read()
        process.stderr.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{arguments}: {said.decode()}")
        return (used.ru_utime + used.ru_stime) * 1e3

    def measure(self, words: Sequence[str], bare: str, count: int, must: float) -> Start:
        """The best of *count* turns."""
        turns = ((self.cpu(("-c", bare)), self.cpu(("-m", "dagrun", *words))) for _ in range(count + 1))
        base, ours = zip(*turns, strict=True)
        least_base, least = min(base[1:]), min(ours[1:])  # the first turn compiles
        return Start(
            " ".join(words[:1] if bare is ENGINE else words),
            round(least, 1),
            round(least_base, 1),
            round(least / least_base, 3),
            must,
        )


def measure_starts(count: int, light: Sequence[Sequence[str]] = LIGHT) -> Iterator[Start]:
    """The start of each command."""
    with tempfile.TemporaryDirectory(prefix="dagrun-starts-") as name:
        starts = Starts(Path(name))
        yield from (starts.measure(words, CLICK, count, MUST_LIGHT) for words in light)
        yield from (starts.measure(words, ENGINE, count, MUST_HEAVY) for words in HEAVY)


def ratio_of(name: str, count: int) -> float:
    """The ratio of one command."""
    with tempfile.TemporaryDirectory(prefix="dagrun-starts-") as folder:
        starts = Starts(Path(folder))
        heavy = [words for words in HEAVY if words[0] == name]
        words, bare = (heavy[0], ENGINE) if heavy else (tuple(name.split()), CLICK)
        return starts.measure(words, bare, count, 0.0).ratio


def show(starts: Sequence[Start]) -> None:
    """Print a table."""
    print(f"{'command':16}{'ms':>8}{'bare':>8}{'ratio':>8}{'must':>8}")
    for one in starts:
        print(f"{one.name:16}{one.ours:8.0f}{one.base:8.0f}{one.ratio:8.2f}{one.must:8.0f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, show, write, and say by the exit code whether all musts are met."""
    options = command.parser_of(__doc__, "3 turns in place of 10").parse_args(arguments)
    starts = list(measure_starts(3 if options.quick else 10))
    show(starts)
    if (folder := command.folder_of(options)) is not None:
        results: Mapping[str, object] = {
            "environment": environment.describe(),
            "commands": [asdict(one) for one in starts],
        }
        command.write(folder, "commands", results)
    missed = [one.name for one in starts if one.ours > one.must]
    if missed:
        print(f"too slow: {', '.join(missed)}")
    return int(options.gate and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
