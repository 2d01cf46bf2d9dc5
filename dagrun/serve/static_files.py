"""The files of the page: those in ``static/``, and two that are written from `dagrun.observe.state_styles`.

So a state has one symbol, one word and one colour, on the page as in reports and at the terminal.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from dagrun.observe.picture.condense import WORST
from dagrun.observe.state_styles import COLOURS, DARK_COLOURS, DARK_INK, INK, RUNS, STATES, WAITS, StateStyle

FOLDER: Final = Path(__file__).parent / "static"
# Whole lines of comments are for readers of the sources, and are not sent; the lines stay, for messages with numbers.
_COMMENT: Final = re.compile(rb"(?m)^[ ]*(//.*|/\*\*.*\*/)$")
_KINDS: Final = {".css": "text/css", ".js": "text/javascript"}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page.

    Attributes:
        data: Its content.
        packed: The same, compressed by gzip.
        kind: Its media type.
        tag: Changes with its content.
    """

    data: bytes
    packed: bytes
    kind: str
    tag: str


@cache
def static_file(name: str) -> StaticFile | None:
    """Return a file of the page; `None` if there is none of this name."""
    made = {"looks.js": looks_script, "looks.css": looks_sheet}.get(name)
    if made is not None:
        data = made().encode()
    elif name in names():
        data = _COMMENT.sub(b"", (FOLDER / name).read_bytes())
    else:
        return None
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    return StaticFile(data, gzip.compress(data, mtime=0), _KINDS[Path(name).suffix], tag)


@cache
def names() -> frozenset[str]:
    """Return the names of the files in ``static/``."""
    return frozenset(path.name for path in FOLDER.iterdir() if path.suffix in _KINDS)


def looks_script() -> str:
    """Return the symbols, words and kinds of states, runs and waits as a module of JavaScript."""
    facts = {"STATES": _plain(STATES), "RUNS": _plain(RUNS), "WAITS": WAITS, "WORST": WORST}
    return "".join(f"export const {name} = {json.dumps(fact, ensure_ascii=False)};\n" for name, fact in facts.items())


def _plain(looks: Mapping[str, StateStyle]) -> dict[str, tuple[str, str, str]]:
    return {name: (look.symbol, look.word, look.kind) for name, look in looks.items()}


def looks_sheet() -> str:
    """Return the colours as variables of a style sheet: for lines, and with ``-fill`` for areas."""
    light, dark = _variables(COLOURS, INK), _variables(DARK_COLOURS, DARK_INK)
    kinds = "".join(f".{kind}{{--c:var(--{kind});--f:var(--{kind}-fill)}}" for kind in COLOURS)
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{kinds}\n"


def _variables(colours: Mapping[str, tuple[str, str]], ink: Mapping[str, str]) -> str:
    lines = [f"--{kind}:{line};--{kind}-fill:{area};" for kind, (line, area) in colours.items()]
    return "".join([*lines, *(f"--{name}:{colour};" for name, colour in ink.items())])
