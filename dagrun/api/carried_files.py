"""The files that a run takes over from the one that it does again: those that the values taken over name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dagrun.model.artifact import Artifact
from dagrun.model.value import Stored, Unavailable, decode
from dagrun.runtime.artifacts import ArtifactFolder


def files_named(value: Stored) -> frozenset[str]:
    """The names of the files that a value of a step names, by artifacts anywhere in it."""
    if isinstance(value, Unavailable) or (isinstance(value, bytes) and b'"sha256"' not in value):
        return frozenset()
    return frozenset(_found(decode(value)))


def _found(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from _found(part)
    elif isinstance(value, dict):
        if value.keys() == Artifact.model_fields.keys() and (artifact := _artifact(value)) is not None:
            yield artifact.sha256
        for part in value.values():
            yield from _found(part)


def _artifact(value: dict[str, Any]) -> Artifact | None:
    try:
        return Artifact.model_validate(value)
    except ValidationError:
        return None


def are_there(names: frozenset[str], source: Path | None) -> bool:
    """Whether all of the files are in the folder *source*."""
    return not names or (source is not None and all((source / name).is_file() for name in names))


def bring(names: frozenset[str], source: Path, target: ArtifactFolder) -> None:
    """Put the files into the folder of the new run: as another name for the same file, or else as a copy.

    Raises:
        OSError: A file cannot be read, or not be written there.
    """
    folder = target.folder
    for name in sorted(names):
        if (folder / name).exists() or not (source / name).is_file():
            continue
        try:
            os.link(source / name, folder / name, follow_symlinks=False)
        except OSError:  # another disk, say
            target.save(source / name)
