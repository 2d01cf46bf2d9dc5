"""The files that the page hands out: its own, and those that the tools of a run have saved.

Its own are those in ``static/``, and two that are written from `dagrun.observe.state_styles`: so a state has one
symbol, one word and one colour, on the page as in reports and at the terminal. Of the files of a run, only those that
its record names are handed out, and always as downloads.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from starlette.responses import FileResponse, Response

from dagrun.kernel.model.journal import Journal
from dagrun.kernel.model.value import Artifact, decode
from dagrun.observe.picture.condense import WORST
from dagrun.observe.state_styles import COLOURS, DARK_COLOURS, DARK_INK, INK, RUNS, STATES, WAITS, StateStyle
from dagrun.serve.feeds import Feed, LiveFeed
from dagrun.serve.guard import problem

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


MOST: Final = 100  # files of one step that are told
_SEARCHED: Final = 4 << 20  # bytes of an output that is searched for files
_HEADERS: Final = {"content-security-policy": "default-src 'none'; sandbox"}


def artifacts_of(feed: Feed, step: str) -> list[dict[str, Any]]:
    """Return the files in the output of a step, each with `sha256` (its key), `name`, `media` and `bytes`."""
    shown = feed.graph.plan.redactor
    return [
        {"sha256": file.sha256, "name": shown.text(file.name), "media": file.media_type, "bytes": file.size}
        for file, _ in zip(_artifacts_in(feed.graph.nodes[step].value), range(MOST), strict=False)
    ]


def _artifacts_in(stored: object) -> Iterator[Artifact]:
    if type(stored) is not bytes or b'"sha256"' not in stored or len(stored) > _SEARCHED:
        return
    found = [decode(stored)]
    for value in found:  # the list grows while it is walked
        if isinstance(value, list):
            found += value
        elif isinstance(value, dict):
            try:
                yield Artifact.model_validate(value)
            except ValidationError:
                found += value.values()


async def artifact_answer(feed: Feed, sha256: str, journal: Journal | None) -> Response:
    """Return a file of a run as a download; 404 if no output of the run names it."""
    if feed.graph.plan.policy.redact:
        return problem(403, "the policy of this run hides personal data, which cannot be taken out of files")
    wanted = sha256.encode()
    if len(sha256) != 64 or not sha256.isalnum():
        return problem(404, "this is no name of a file")
    named = (
        file
        for node in feed.graph.nodes.values()
        if type(node.value) is bytes and wanted in node.value
        for file in _artifacts_in(node.value)
        if file.sha256 == sha256
    )
    found = next(named, None)
    return problem(404, "no output of this run names such a file") if found is None else _download(feed, found, journal)


def _download(feed: Feed, file: Artifact, journal: Journal | None) -> Response:
    if isinstance(feed, LiveFeed):
        folder: Path | None = feed.run.artifacts.folder
    else:
        folder = journal.artifacts(feed.run_id) if journal is not None else None
    path = folder / file.sha256 if folder is not None else None
    if path is None or path.is_symlink() or not path.is_file():
        return problem(404, "the file is no longer on this machine")
    name = Path(file.name).name or file.sha256[:12]
    return FileResponse(path, media_type="application/octet-stream", filename=name, headers=_HEADERS)
