"""Every block of Python in the README and in docs/ is a program: it runs, and prints what the page says.

A block that cannot run has the line ``<!-- no-run: the reason -->`` right above it. Two forms say what a block prints,
and are compared with what it prints: comments ``# prints: …`` in the block, one for each line; or a block of text that
follows it, after a line that ends with "prints:". A block may do without.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from folders import ROOT

PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK: Final = re.compile(
    r"(?P<mark><!-- no-run: (?P<reason>.+?) -->\n)?(?P<fence>```+)python *\n(?P<code>.*?)(?<=\n)(?P=fence)\n"
    r"(?:\n[^\n]*prints:\n\n```text\n(?P<text>.*?)```)?",
    re.DOTALL,
)
PROMISE: Final = re.compile(r"# prints: (.*)")
# Worker processes import the module of a function again, which only a file allows.
NEEDS_A_FILE: Final = 'executor="process"'


@dataclass(frozen=True)
class Block:
    """A block of Python on a page."""

    page: Path
    line: int
    code: str
    reason: str | None
    printed: list[str] | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        promised = PROMISE.findall(match["code"])
        printed = match["text"].splitlines() if match["text"] is not None else promised or None
        found.append(Block(page, text.count("\n", 0, match.start("code")), match["code"], match["reason"], printed))
    return found


BLOCKS: Final = [block for page in PAGES for block in blocks_of(page)]


@pytest.mark.real_time
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.reason is None], ids=str)
@pytest.mark.costly
def test_a_block_runs_and_prints_what_its_page_says(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers copy blocks and run them, each by itself, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    if NEEDS_A_FILE in block.code:
        printed = _run_as_a_file(block, tmp_path)
    else:
        _run_here(block, monkeypatch)
        printed = capsys.readouterr().out

    if block.printed is not None:
        assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in block.printed]


def _run_here(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    # pydantic looks up the names of annotations in the module of a class, as it would in a script.
    script = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", script)
    code = "\n" * block.line + block.code  # so that tracebacks name the line of the page
    exec(compile(code, str(block.page), "exec", dont_inherit=True), vars(script))


def _run_as_a_file(block: Block, folder: Path) -> str:
    program = folder / "program.py"
    program.write_text(block.code, encoding="utf-8")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tools")])
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_block_is_found_and_a_mark_names_its_reason() -> None:
    """A block in another form would never be run."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(blocks_of(page)) == len(re.findall(r"^ *`{3,} *python\b", text, re.MULTILINE)), page
        assert len(re.findall("no-run", text)) == len([b for b in blocks_of(page) if b.reason]), page
    assert all(len(block.reason or "a reason") > 5 for block in BLOCKS)
