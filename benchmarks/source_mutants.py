"""Plant small mistakes in `graph` and `decide` of the kernel, one at a time, and count how many the tests notice.

    python benchmarks/source_mutants.py [--root DIR] [--count 60] [--seed 1] [--out FILE]
    python benchmarks/source_mutants.py --again FILE [--renames FILE] [--out FILE]

A mistake (a *mutant*) changes one line of one function: a comparison is flipped, ``and`` and ``or`` are swapped, a
``not`` is removed, a number or a truth value changes, ``None`` is returned, or a statement is deleted. A seed chooses
the mutants. They run against ``tests/graph`` and ``tests/decide`` on asyncio, and each against the tests that call its
function, quick ones first, as long as these take 20 seconds together.

A mutant is written down as its function, the old line and the new one. ``--again`` plants the same mutants in another
state of the code, and says which of those that were killed before are killed no longer, and which are gone because
their line is. ``--renames`` names a JSON object of old and new names. The exit code is 1 if one is killed no longer.
No file changes: each mutant is planted in a process of its own, a fork of one that has imported everything.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

import pytest

FOLDERS: Final = ("dagrun/kernel/graph", "dagrun/kernel/decide")
PYTEST: Final = (
    "-q",
    "--timeout",
    "20",
    "-x",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:randomly",
    "-k",
    "not trio",
)
TESTS: Final = ("tests/graph", "tests/decide")
ENOUGH: Final = 20.0  # seconds of tests for a mutant
HANGING: Final = 120  # seconds, after which a mutant counts as killed: the tests of one take far less

_FLIPPED: Final[Mapping[type[ast.cmpop], tuple[str, str]]] = {
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}


_ONE: Final = (ast.expr, ast.stmt)


class Mutant(NamedTuple):
    """One changed line of one function."""

    function: str
    old: str
    new: str


# Making mutants -------------------------------------------------------------------------------------------------------


class Function(NamedTuple):
    """A function or a method of the folders: its file, the lines of that, its name and its tree."""

    path: Path
    lines: list[str]
    name: str
    tree: ast.FunctionDef

    def line_of(self, stripped: str) -> int:
        """Return the place of its only line with that text in the file; -1 if there is none, or several."""
        own = range(self.tree.lineno - 1, self.tree.end_lineno or 0)
        places = [place for place in own if self.lines[place].strip() == stripped]
        return places[0] if len(places) == 1 else -1


def functions_of(root: Path) -> Iterator[Function]:
    """Yield each function and method below the folders."""
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        bodies = [("", tree.body), *((f"{c.name}.", c.body) for c in tree.body if isinstance(c, ast.ClassDef))]
        found = ((prefix, part) for prefix, body in bodies for part in body if isinstance(part, ast.FunctionDef))
        yield from (Function(path, text.splitlines(), prefix + part.name, part) for prefix, part in found)


def mutants_of(root: Path) -> list[Mutant]:
    """Return every mutant of every line that is there once in its function."""
    found: dict[Mutant, None] = {}
    for function in functions_of(root):
        inside = (node for statement in function.tree.body for node in ast.walk(statement))
        changes = (
            (node.lineno - 1, change) for node in inside if isinstance(node, _ONE) for change in changes_of(node)
        )
        for place, (start, end, new) in changes:
            line = function.lines[place]
            if function.line_of(line.strip()) == place:
                found[Mutant(function.name, line.strip(), (line[:start] + new + line[end:]).strip())] = None
    if not found:
        sys.exit(f"no functions below {root} in {', '.join(FOLDERS)}")
    return list(found)


def changes_of(node: ast.expr | ast.stmt) -> Iterator[tuple[int, int, str]]:
    """Yield what may be changed about *node* if it stands on one line: from where to where, and by what."""
    if node.lineno != node.end_lineno:
        return
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _FLIPPED:
            yield left.end_col_offset or 0, right.col_offset, f" {_FLIPPED[type(op)][1]} "
        case ast.BoolOp(op=op, values=[*_, left, right]):
            yield left.end_col_offset or 0, right.col_offset, " or " if isinstance(op, ast.And) else " and "
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node.col_offset, operand.col_offset, ""
        case ast.Constant(value=bool() | int() as value):
            yield node.col_offset, node.end_col_offset or 0, str(value + 1 if type(value) is int else not value)
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield value.col_offset, value.end_col_offset or 0, "None"
        case ast.Assign() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            yield node.col_offset, node.end_col_offset or 0, "pass"
        case _:
            pass


def plant(root: Path, mutant: Mutant) -> bool:
    """Change the function in this process; return whether it is there, with the line, and can be changed."""
    last = _last(mutant.function)
    named = [function for function in functions_of(root) if _last(function.name) == last]
    # The class may have another name by now.
    for path, lines, name, place in sorted(
        ((f.path, f.lines, f.name, f.line_of(mutant.old)) for f in named), key=lambda f: f[2] != mutant.function
    ):
        if place >= 0:
            indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
            changed = "\n".join([*lines[:place], indent + mutant.new, *lines[place + 1 :]])
            with suppress(SyntaxError):  # parentheses stood between
                return _replace_code(compile(changed, str(path), "exec"), str(path), name)
    return False


def _last(name: str) -> str:
    return name.split(".<locals>", maxsplit=1)[0].rsplit(".", maxsplit=1)[-1]


def _replace_code(code: CodeType, path: str, name: str) -> bool:
    """Give each function of that name in *path* its new code."""
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    new = [c for c in (*inner, *(d for c in inner for d in c.co_consts)) if getattr(c, "co_qualname", "") == name]
    gc.unfreeze()  # conftest.py freezes what is there when the tests are collected
    old = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__qualname__ == name]
    for function in (found := [f for f in old if os.path.realpath(f.__code__.co_filename) == path]):
        function.__code__ = new[0]
    return bool(found)


# Running tests --------------------------------------------------------------------------------------------------------


class Callers:
    """A plugin of pytest: which functions each test calls, and how long it takes."""

    def __init__(self, root: Path) -> None:
        self.tests: dict[str, tuple[float, list[str]]] = {}
        self._folders = tuple(str(root / folder) for folder in FOLDERS)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note the functions."""
        seen: dict[CodeType, None] = {}

        def note(frame: Any, event: str, argument: object) -> None:
            if event == "call":
                seen[frame.f_code] = None

        began = time.perf_counter()
        sys.setprofile(note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            names = {code.co_qualname for code in seen if code.co_filename.startswith(self._folders)}
            self.tests[item.nodeid] = (time.perf_counter() - began, sorted(names))


def forked(act: Callable[[], int]) -> int:
    """Do it in a process of its own, silently; return its exit code, or 99 if it hangs."""
    pid = os.fork()
    if not pid:
        code = 98
        try:
            os.setsid()
            out = os.open(os.devnull, os.O_WRONLY)
            os.dup2(out, 1)
            os.dup2(out, 2)
            code = act()
        finally:
            os._exit(code)
    until = time.monotonic() + HANGING
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 99


def verdict(root: Path, mutant: Mutant, tests: Sequence[str]) -> str:
    """Run the tests that call the mutated function; return what came of it."""

    def act() -> int:
        return int(pytest.main([*PYTEST, *tests])) if plant(root, mutant) else 97

    code = forked(act)
    return {0: "survived", 97: "gone"}.get(code, "killed") if tests else "uncalled"


def callers_of(root: Path) -> dict[str, tuple[float, list[str]]]:
    """Run the tests once, in a process of its own: how long each takes, and which functions it calls."""
    there = root / ".callers.json"

    def act() -> int:
        plugin = Callers(root)
        code = pytest.main([*PYTEST, *TESTS], plugins=[plugin])
        there.write_text(json.dumps(plugin.tests))
        return int(code)

    code = forked(act)
    if code:
        sys.exit(f"the tests fail without a mutant: exit code {code}")
    found: dict[str, tuple[float, list[str]]] = json.loads(there.read_text())
    there.unlink()
    return found


def chosen(callers: Mapping[str, tuple[float, list[str]]], function: str) -> list[str]:
    """Return the tests that call *function*, quick ones first, as far as there is time."""
    found, spent = [], 0.0
    for test, (seconds, names) in sorted(callers.items(), key=lambda entry: entry[1][0]):
        if _last(function) in map(_last, names):
            spent += seconds
            if spent > ENOUGH:
                break
            found.append(test)
    return found


def renamed(mutants: Sequence[Mutant], renames: Mapping[str, str]) -> list[Mutant]:
    """Return the mutants with the new names in the place of the old ones."""
    if not renames:
        return list(mutants)
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, sorted(renames, key=len, reverse=True))) + r")\b")
    return [Mutant(*(pattern.sub(lambda found: renames[found[0]], part) for part in mutant)) for mutant in mutants]


def main() -> int:
    """Plant the mutants, print what came of each, and compare with an earlier run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--renames", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    root = options.root.resolve()
    os.chdir(root)
    sys.path.insert(0, str(root))
    before: list[list[str]] = json.loads(options.again.read_text()) if options.again else []
    renames = json.loads(options.renames.read_text()) if options.renames else {}
    mutants = renamed([Mutant(*entry[:3]) for entry in before], renames)
    if not mutants:
        every = mutants_of(root)
        mutants = random.Random(options.seed).sample(every, min(options.count, len(every)))
    callers = callers_of(root)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        pytest.main([*PYTEST, "--collect-only", *TESTS])  # imports all that the forks need
    results = []
    for mutant in mutants:
        results.append(verdict(root, mutant, chosen(callers, mutant.function)))
        print(f"{results[-1]:9} {mutant.function}: {mutant.old}  ->  {mutant.new}", flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps([[*m, r] for m, r in zip(mutants, results, strict=False)], indent=1))
    both = zip(mutants, before, results, strict=False)
    lost = [mutant for mutant, then, now in both if (then[3], now) == ("killed", "survived")]
    print({result: results.count(result) for result in sorted(set(results))})
    for mutant in lost:
        print(f"was killed, and survives now: {mutant.function}: {mutant.old}  ->  {mutant.new}")
    return bool(lost)


if __name__ == "__main__":
    sys.exit(main())
