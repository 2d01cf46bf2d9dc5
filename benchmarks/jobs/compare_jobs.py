"""Compare five small jobs, written with dagrun and with other systems: lines, concepts, CPU time.

    PYTHONPATH=benchmarks python -m jobs.compare_jobs [--rounds N] [--quick] [--out FOLDER]

**What is compared.** ``jobs/<job>/with_<system>.py`` is a whole program. Each is run in the environment of its system
(``make bench-peers`` makes those of the peers), and has to print the same line. ``with_dagrun`` writes plans in Python,
``with_steps`` writes them as `Step` objects with texts such as ``${load.rows}``, as before version 0.2.

- *Lines*: lines that hold a token of Python, without docstrings, comments, blank lines and imports.
- *Concepts*: the different public names of the system that the program uses: names that it imports, and attributes and
  methods of the system's modules and objects. Keyword arguments and texts with a meaning (``${load}``,
  ``__interrupt__``, parameters that name a step) are not counted, for any system.
- *CPU*: seconds of user and system time of the whole process, the start of Python and all imports included; of the job
  *resume*, of both processes. The median of the rounds; in each round every program is run once, in turn.

A full run writes ``results/jobs.json``, and the table in ``docs/explanation/jobs.md``.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

import command
import environment
from peers.environments import python_of
from peers.registry import PEERS
from structure import code_lines

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parent.parent / "docs" / "explanation" / "jobs.md"
BEGIN: Final = "<!-- table: make bench-jobs -->"
END: Final = "<!-- end of table -->"
ROUNDS: Final = 7

# What each job has to print; of a person, the answer is on the standard input.
JOBS: Final[Mapping[str, tuple[str, str]]] = {
    "join": ("fetch three and join", "Cairo"),
    "fan_out": ("fan out over a list and reduce", "190"),
    "repair": ("repair by a planner", "125.0 1"),
    "person": ("ask a person", "['Sorry about A-17.', 'paid 80.0 for A-17']"),
    "resume": ("resume after a crash", "receipt for 80.0, stamped 1"),
}
ANSWER: Final = "yes\n"
TWICE: Final = "resume"  # the first process dies in the middle

NOT_ASKED: Final = {"HAMILTON_TELEMETRY_ENABLED": "false", "LANGSMITH_TRACING": "false", "PYTHONHASHSEED": "0"}


@dataclass(frozen=True, slots=True)
class System:
    """A system in which the jobs are written.

    Attributes:
        name: As the table shows it.
        program: The end of the name of its programs.
        package: The package whose names are counted.
        peer: Its name among the peers, whose environment it has; empty for dagrun's own.
    """

    name: str
    program: str
    package: str
    peer: str = ""

    @property
    def python(self) -> Path | None:
        """The interpreter that has the package; `None` if its environment is missing."""
        if not self.peer:
            return Path(sys.executable)
        return python_of(next(peer for peer in PEERS if peer.name == self.peer))


SYSTEMS: Final = (
    System("dagrun, plans in Python", "dagrun", "dagrun"),
    System("dagrun, `Step` objects", "steps", "dagrun"),
    System("LangGraph, functional API", "langgraph", "langgraph", "LangGraph @task"),
    System("Hamilton", "hamilton", "hamilton", "Hamilton"),
)


class WrongAnswer(Exception):
    """A program did not print what the job asks for."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program and its figures.

    Attributes:
        job: A key of `JOBS`.
        system: The name of the system.
        lines: The number of its lines of code.
        concepts: The names of the system that it uses, sorted.
        cpu: Seconds of CPU time, one for each round.
    """

    job: str
    system: str
    lines: int
    concepts: tuple[str, ...]
    cpu: tuple[float, ...]


def path_of(job: str, system: System) -> Path:
    """Return the path of a program; there is none for a job that the system cannot express."""
    return HERE / job / f"with_{system.program}.py"


# Running --------------------------------------------------------------------------------------------------------------


def run(job: str, system: System, python: Path) -> float:
    """Run a program, once or twice, and return the seconds of CPU time that it has taken.

    Raises:
        WrongAnswer: It does not print what it should.
    """
    with tempfile.TemporaryDirectory() as folder:
        first = _process(job, system, python, folder) if job == TWICE else ("", 0.0)
        printed, seconds = _process(job, system, python, folder)
    if printed.strip() != JOBS[job][1]:
        raise WrongAnswer(f"{job} with {system.name} printed {printed!r}")
    return first[1] + seconds


def _process(job: str, system: System, python: Path, folder: str) -> tuple[str, float]:
    """Run a program once; return what it has printed, and its CPU time."""
    line = [str(python), str(path_of(job, system)), folder]
    with tempfile.TemporaryFile("w+") as data, tempfile.TemporaryFile("w+") as answer:
        answer.write(ANSWER)
        answer.seek(0)
        process = subprocess.Popen(
            line, stdin=answer, stdout=data, stderr=subprocess.DEVNULL, env=os.environ | NOT_ASKED, cwd=folder
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # or `Popen` would wait for it as well
        data.seek(0)
        return data.read(), usage.ru_utime + usage.ru_stime


# Counting -------------------------------------------------------------------------------------------------------------


def lines_of(text: str) -> int:
    """Count the lines of code of a program, without its imports."""
    imports = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom))
    return code_lines(text) - sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)


def concepts_of(text: str, package: str, members: frozenset[str]) -> list[str]:
    """Return the public names of *package* that a program uses, sorted.

    Args:
        text: The program.
        package: The name of the package.
        members: The names of all attributes and methods of its classes, for what the program does with its objects.
    """
    tree = ast.parse(text)
    theirs, others, names = set[str](), set[str](), set[str]()
    for module, imported, bound in _imports_of(tree):
        if module.partition(".")[0] != package:
            others.add(bound)
        elif imported:
            names.add(imported)
        else:
            theirs.add(bound)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            is_member = node.attr in members and node.attr not in _PLAIN and base not in others
            if base in theirs or is_member:
                names.add(node.attr)
    return sorted(names | _methods_asked_of(tree, members))


def _imports_of(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield each import: the module, the name that is imported from it (or nothing), and the name in the program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", (alias.asname or alias.name).partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name, alias.asname or alias.name) for alias in node.names)


# Attributes of plain data are not counted, whoever else has one of that name.
_PLAIN: Final = {name for kind in (str, bytes, list, dict, tuple, set, Path, io.TextIOWrapper) for name in dir(kind)}


def _methods_asked_of(tree: ast.Module, members: frozenset[str]) -> set[str]:
    """Return the methods of the program's own classes that the package calls: it has to know their names."""
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    functions = (node for one in classes for node in one.body)
    return {one.name for one in functions if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)} & members


@cache
def members_of(package: str, python: Path) -> frozenset[str]:
    """Return the names of the public attributes and methods of all classes in the source of *package*."""
    find = f"import importlib.util as u; print(list(u.find_spec({package!r}).submodule_search_locations)[0])"
    found = subprocess.run([python, "-c", find], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return frozenset(name for path in Path(found).rglob("*.py") for name in _members_in(path))


def _members_in(path: Path) -> Iterator[str]:
    classes = (node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ClassDef))
    for line in (line for node in classes for line in node.body):
        if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef):
            yield line.name
        elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            yield line.target.id


# Showing --------------------------------------------------------------------------------------------------------------


def compare(systems: Sequence[System], rounds: int) -> list[Program]:
    """Count all programs of *systems*, and run them in turn, so often.

    Raises:
        WrongAnswer: A program does not print what it should.
    """
    pythons = {system: python for system in systems if (python := system.python) is not None}
    pairs = [(job, system) for job in JOBS for system in pythons if path_of(job, system).exists()]
    cpu: dict[tuple[str, System], list[float]] = {pair: [] for pair in pairs}
    for _ in range(rounds):
        for job, system in pairs:
            cpu[job, system].append(run(job, system, pythons[system]))
    programs = []
    for (job, system), seconds in cpu.items():
        text = path_of(job, system).read_text(encoding="utf-8")
        concepts = concepts_of(text, system.package, members_of(system.package, pythons[system]))
        programs.append(Program(job, system.name, lines_of(text), tuple(concepts), tuple(seconds)))
    return programs


def as_json(programs: Sequence[Program]) -> dict[str, Any]:
    """The results as they are kept."""
    rows = [
        asdict(one) | {"cpu": round(median(one.cpu), 3), "rounds": len(one.cpu), "concepts": list(one.concepts)}
        for one in programs
    ]
    return environment.describe() | {"jobs": rows}


def table_of(results: Mapping[str, Any]) -> str:
    """Return the results as a table in Markdown: a row for each job, "lines / concepts / CPU" of each system."""
    rows = {(row["job"], row["system"]): row for row in results["jobs"]}
    lines = [
        f"| lines / concepts / CPU seconds | {' | '.join(system.name for system in SYSTEMS)} |",
        f"| --- |{' --- |' * len(SYSTEMS)}",
    ]
    for job, (words, _) in JOBS.items():
        cells = [_cell(rows.get((job, system.name))) for system in SYSTEMS]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any] | None) -> str:
    return "cannot" if row is None else f"{row['lines']} / {len(row['concepts'])} / {row['cpu']:.2f}"


def page_with(page: str, table: str) -> str:
    """Return the text of the page with another table."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print the table, and keep it; the exit code is 1 if an environment is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each program is run")
    parser.add_argument("--quick", action="store_true", help="dagrun's programs alone, once; writes nothing")
    parser.add_argument("--out", type=Path, help="where the results go (by default benchmarks/results)")
    options = parser.parse_args(arguments)
    systems = [system for system in SYSTEMS if not (options.quick and system.peer)]
    missing = [system.name for system in systems if system.python is None]
    results = as_json(compare(systems, 1 if options.quick else options.rounds))
    table = table_of(results)
    print(table)
    if missing:
        print(f"no environment (make bench-peers makes it): {', '.join(missing)}")
    elif not options.quick:
        command.write(options.out or command.RESULTS, "jobs", results)
        if options.out is None:
            PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
