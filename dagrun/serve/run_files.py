"""The files that the tools of a run have saved: only those that its record names, and always as downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from starlette.responses import FileResponse, Response

from dagrun.model.journal import Journal
from dagrun.model.value import Artifact, decode
from dagrun.serve.feeds import Feed, LiveFeed
from dagrun.serve.guard import problem

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
