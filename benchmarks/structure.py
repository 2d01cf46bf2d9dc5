"""Count how the package is cut: files, folders, import circles, and the files that a run passes through.

    python benchmarks/structure.py [--root DIR] [--json FILE] [--check]

The script reads `dagrun/` of the checkout at DIR (by default, its own checkout), and runs that checkout, each time in a
process of its own. ``--json`` writes the figures, with the names behind them, to FILE. With ``--check`` the
exit code is 1 if a target is missed.

- *source files* are the ``.py`` files without ``__init__.py``; the next two figures count such files, too.
- *code lines of* a room are those below a folder of the package. Each has its own ceiling; the files at the top are a
  room, too.
- *code lines* hold a token of Python. Blank lines, comments and strings that stand alone (docstrings) do not count.
- *import circles* are strongly connected sets of modules. Every import statement counts: those at the top of a module,
  those under ``TYPE_CHECKING`` and those in functions. ``from a import b`` means ``a.b`` if there is such a module.
  Only public faces, which call ``lazy_names``, import nothing for those that import them: they name what they show.
- *constructors* are ``__init__`` methods that are written out; `self` is no parameter. Constructors that ``@dataclass``
  makes are listed apart.
- *a run of three steps* goes from ``dagrun.start`` to its result without a journal: three calls of an async tool that
  suspends once, each with the output of the one before. *A splice* is the call of ``run.splice`` with a patch that adds
  one step with literal arguments. The second run of a process is counted, because the first one also loads modules. A
  file counts if one of its functions was called; lambdas and comprehensions are no functions.
- *the command run* is ``dagrun run PLAN --tools MODULE`` with that plan, which records the run in a folder. *A resumed
  run* goes from ``dagrun.resume`` to its result, after it was suspended in its first step; its journal is in memory.
  *To the first call* means until a tool is called. Only the main thread counts, and not the one that writes records.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

SHORT: Final = 60  # lines
# At most so many code lines in each room: about 3 % more than when the kernel got its wall, but for rooms whose
# comments say for what they were raised since. Whoever needs more raises the number of one room, and says why there.
ROOMS: Final[Mapping[str, int]] = {
    "advice": 340,  # with the flow table, from the kernel
    "api": 1_860,  # with recorded tool contracts and options, from the kernel
    "cli": 8_250,
    "critics": 400,
    "evaluate": 5_630,
    "executors": 1_930,  # with run_program
    "features": 2_480,  # with plans in Python, streams and files of frames, from the kernel
    "journal": 3_620,
    "kernel": 20_920,
    "llm": 1_850,  # with what real servers do, and the meter of planners
    "model_tools": 580,
    "observe": 5_700,
    "planners": 2_730,
    "plans": 1_360,  # with YAML and Python text, from the kernel, and with aliases
    "serve": 2_190,
    "sources": 3_420,  # with what real MCP servers and published OpenAPI documents do
    "testing": 2_740,  # with the rehearsal of cancelled calls
    "top files": 1_670,  # with the codec of events, from the kernel, and dagrun.network
    "workers": 330,
}
MANY: Final = 8  # parameters
NO_CODE: Final = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: what is counted, the number, the target (at most so many), and the names behind it, worst first."""

    name: str
    value: int
    most: int | None = None
    names: tuple[str, ...] = ()

    @property
    def is_missed(self) -> bool:
        """Whether the number is over the target."""
        return self.most is not None and self.value > self.most


class Sources:
    """The source files of the package below *root*, read and parsed once, by path."""

    def __init__(self, root: Path) -> None:
        paths = sorted((root / "dagrun").rglob("*.py"))
        self.texts = {path.relative_to(root): path.read_text(encoding="utf-8") for path in paths}
        self.trees = {path: ast.parse(text) for path, text in self.texts.items()}
        self.files = [path for path in self.texts if path.name != "__init__.py"]
        nodes = ((path, node) for path, tree in self.trees.items() for node in ast.walk(tree))
        self.classes = [(path, node) for path, node in nodes if isinstance(node, ast.ClassDef)]


def figures_of(root: Path) -> list[Figure]:
    """Count everything in the checkout at *root*."""
    sources = Sources(root)
    folders = Counter(path.parent.as_posix() for path in sources.files).most_common()
    lengths = sorted((len(sources.texts[path].splitlines()), path.as_posix()) for path in sources.files)
    short = [f"{path} ({lines})" for lines, path in lengths if lines < SHORT]
    circles = [f"{len(circle)} modules: {', '.join(circle)}" for circle in circles_of(imports_of(sources))]
    double = names_used_twice(sources)
    written, made = long_constructors(sources)
    run_files, run_functions = trip_of("run", root)
    splice_files, splice_functions = trip_of("splice", root)
    command_to_call, command_files = trip_of("command", root)
    resume_to_call, _ = trip_of("resume", root)
    return [
        Figure("source files", len(sources.files)),
        Figure("most files in a folder", folders[0][1], 20, tuple(f"{name} ({n})" for name, n in folders)),
        Figure("files under 60 lines", len(short), 19, tuple(short)),
        Figure("import circles", len(circles), 0, tuple(circles)),
        Figure("code lines", sum(map(code_lines, sources.texts.values()))),
        *(Figure(f"code lines of {room}", lines, ROOMS.get(room, 0)) for room, lines in room_sizes(sources)),
        Figure("class names used twice or more", len(double), 4, tuple(double)),
        Figure("constructors of more than 8 parameters", len(written), 0, tuple(written)),
        Figure("dataclasses of more than 8 fields", len(made), None, tuple(made)),
        Figure("files of a run of three steps", run_files, 50),
        Figure("functions of a run of three steps", run_functions),
        Figure("files of a splice", splice_files, 23),
        Figure("functions of a splice", splice_functions),
        Figure("files of the command run, to the first call", command_to_call, 92),
        Figure("files of the command run", command_files, 109),
        Figure("files of a resumed run, to the first call", resume_to_call, 63),
    ]


def room_sizes(sources: Sources) -> list[tuple[str, int]]:
    """Return the rooms and their code lines, the largest first. The files beside the folders are ``top files``."""
    sizes: Counter[str] = Counter()
    for path, text in sources.texts.items():
        sizes[path.parts[1] if len(path.parts) > 2 else "top files"] += code_lines(text)
    return sizes.most_common()


def code_lines(text: str) -> int:
    """Count the lines of *text* that hold a token of Python and are not part of a string that stands alone."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def names_used_twice(sources: Sources) -> list[str]:
    """Return the names that more than one class has, each with the files of these classes."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, node in sources.classes:
        places[node.name].append(path.as_posix())
    return [f"{name}: {', '.join(paths)}" for name, paths in sorted(places.items()) if len(paths) > 1]


def long_constructors(sources: Sources) -> tuple[list[str], list[str]]:
    """Return the classes whose constructor has more than eight parameters: written out, and made by `@dataclass`."""
    written: list[tuple[int, str]] = []
    made: list[tuple[int, str]] = []
    for _, node in sources.classes:
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            made.append((sum(map(_is_parameter, node.body)), node.name))
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                names = method.args
                count = len(names.posonlyargs) + len(names.args) + len(names.kwonlyargs) - 1
                written.append((count, node.name))
    return _over_limit(written), _over_limit(made)


def _over_limit(counts: list[tuple[int, str]]) -> list[str]:
    return [f"{name} ({count})" for count, name in sorted(counts, reverse=True) if count > MANY]


def _is_parameter(line: ast.stmt) -> bool:
    is_left_out = any(mark in ast.unparse(line) for mark in ("ClassVar", "init=False"))
    return isinstance(line, ast.AnnAssign) and not is_left_out


# Imports ----------------------------------------------------------------------------------------------------------


def imports_of(sources: Sources) -> dict[str, set[str]]:
    """Return the modules of the package that each of its modules imports."""
    names = {path: ".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in sources.trees}
    known = set(names.values())
    return {
        names[path]: set(_imported(tree, known, is_lazy=_is_face(tree))) - {names[path]}
        for path, tree in sources.trees.items()
    }


def _is_face(tree: ast.Module) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == "lazy_names" for function in calls)


def _imported(tree: ast.Module, known: set[str], *, is_lazy: bool) -> Iterator[str]:
    """Yield the known modules that a module imports; what a lazy one imports for type checkers alone does not count."""
    kept = [part for part in tree.body if not (is_lazy and _is_for_type_checkers(part))]
    for node in (node for part in kept for node in ast.walk(part)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from {name if name in known else f"{node.module}"} & known


def _is_for_type_checkers(part: ast.stmt) -> bool:
    return isinstance(part, ast.If) and isinstance(part.test, ast.Name) and part.test.id == "TYPE_CHECKING"


def circles_of(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import one another in a circle, each sorted."""
    reached = {name: _reached(imports, name) for name in imports}
    circles = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in imports if a in reached[a]}
    return [list(circle) for circle in sorted(circles)]


def _reached(imports: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        fresh = imports[ahead.pop()] - reached
        reached |= fresh
        ahead += fresh
    return reached


# Trips ------------------------------------------------------------------------------------------------------------


def trip_of(kind: str, root: Path) -> tuple[int, int]:
    """Return the two figures of a trip through the checkout at *root*, in a process of its own; see `take_trip`."""
    command = [sys.executable, __file__, "--root", str(root), "--trip", kind]
    first, second = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return first, second


class Trip:
    """Notes the functions of a package that are called, from `begin` on; those before the first call of a tool apart.

    Args:
        package: The folder of the package.
    """

    def __init__(self, package: Path) -> None:
        self._folder = f"{package}/"
        self.passed: set[CodeType] = set()
        self.to_first_call: set[CodeType] = set()

    def begin(self) -> None:
        """Begin to note."""
        self.passed.clear()
        self.to_first_call.clear()
        sys.setprofile(self._note)

    def called(self) -> None:
        """Note that a tool is called."""
        if not self.to_first_call:
            self.to_first_call.update(self.passed)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self._folder):
            self.passed.add(frame.f_code)


def files_in(codes: set[CodeType]) -> int:
    """Count the files of functions."""
    return len({code.co_filename for code in codes})


def take_trip(kind: str, root: Path) -> tuple[int, int]:
    """Take the trip twice in this process, and count the second time.

    Returns:
        The files and the functions that it passes; of a command and of a resumed run, the files to the first call of a
        tool, and all files.
    """
    sys.path.insert(0, str(root))
    import anyio

    trip = Trip(root / "dagrun")
    for _ in range(2):
        if kind == "command":
            _call_command(trip)
        else:
            anyio.run(_travel, kind, trip)
        sys.setprofile(None)
    if kind in ("command", "resume"):
        return files_in(trip.to_first_call), files_in(trip.passed)
    return files_in(trip.passed), len([code for code in trip.passed if not code.co_name.startswith("<")])


def _counting_tool(trip: Trip) -> Any:
    import anyio

    import dagrun

    @dagrun.tool(effect="pure")
    async def count(x: int = 1) -> int:
        trip.called()
        await anyio.sleep(0.05)
        return x

    return count


def _call_command(trip: Trip) -> None:
    from dagrun.cli.main import main

    sys.modules["trip_tools"] = tools = ModuleType("trip_tools")
    tools.count = _counting_tool(trip)  # type: ignore[attr-defined]
    steps = [{"id": id_, "tool": "count", "args": {"x": x}} for id_, x in (("a", 1), ("b", "${a}"), ("c", "${b}"))]
    with TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        plan = Path(folder, "plan.json")
        plan.write_text(json.dumps({"steps": steps}), encoding="utf-8")
        trip.begin()
        code = main(["run", str(plan), "--runs", f"{folder}/runs", "--tools", "trip_tools"])
        sys.setprofile(None)
    assert code == 0


async def _travel(kind: str, trip: Trip) -> None:
    import anyio

    import dagrun

    count = _counting_tool(trip)
    args = {"a": 1, "b": "${a}", "c": "${b}", "d": 1}
    *steps, added = [dagrun.Step(id=id_, tool="count", args={"x": x}) for id_, x in args.items()]
    plan, patch = dagrun.Plan(steps=steps), dagrun.Patch(edits=[dagrun.Add(step=added)])
    options: dict[str, Any] = {"tools": [count]}
    if kind == "resume":
        options["journal"] = dagrun.MemoryJournal()
        async with dagrun.start(plan, **options, run_id="one") as run:
            await anyio.sleep(0.01)
            run.suspend("it goes on later")
            await run.result()
        trip.begin()
        async with dagrun.resume("one", **options) as run:
            await run.result()
        return
    if kind == "run":
        trip.begin()
    async with dagrun.start(plan, **options) as run:
        if kind == "splice":
            await anyio.sleep(0.01)  # the first step is at work then
            trip.begin()
            await run.splice(patch)
            sys.setprofile(None)
        await run.result()


# Showing ----------------------------------------------------------------------------------------------------------


def line_of(figure: Figure) -> str:
    """Format one line of the table."""
    target = "" if figure.most is None else f"at most {figure.most:,}"
    verdict = f"MISSED  {'; '.join(figure.names[:3])}" if figure.is_missed else ""
    return f"{figure.name:46}{figure.value:>8,}  {target:16}{verdict}".rstrip()


def main(arguments: list[str] | None = None) -> int:
    """Print the table; return 1 if ``--check`` is given and a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="the checkout to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE, too")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--trip", choices=("run", "splice", "command", "resume"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    if options.trip:
        print(json.dumps(take_trip(options.trip, root)))
        return 0
    figures = figures_of(root)
    print(*map(line_of, figures), sep="\n")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in figures], indent=2) + "\n", encoding="utf-8")
    return 1 if options.check and any(one.is_missed for one in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
