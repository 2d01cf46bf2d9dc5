"""Artifacts: data too large or too binary to travel as JSON, named by content hash."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field


class Artifact(BaseModel):
    """A read-only file in the folder of the run, named by what it contains.

    Attributes:
        sha256: The hash of its bytes, in hex.
        media_type: Such as ``text/csv``.
        name: A file name for people; it is never used to find the file.
        size: In bytes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    media_type: Annotated[str, Field(max_length=200)] = "application/octet-stream"
    name: Annotated[str, Field(max_length=200)] = ""
    size: Annotated[int, Field(ge=0)] = 0


class ArtifactStore(Protocol):
    """Where the artifacts of a run are."""

    def save(self, data: bytes | str | Path, *, media_type: str = ..., name: str = ...) -> Artifact:
        """Keep *data* (bytes, text as UTF-8, or the file at a path) and give its artifact."""

    def path(self, artifact: Artifact) -> Path:
        """The file of *artifact*.

        Raises:
            FileNotFoundError: The run has no such artifact.
        """
