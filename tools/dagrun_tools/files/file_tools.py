"""`read_file` and `write_file`: tools for files below one folder, which `rules` names."""

from __future__ import annotations

import hashlib
import mimetypes
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from dagrun import Artifact, Tool, ToolContext, ToolError, tool
from dagrun_tools.files import confined_files
from dagrun_tools.files.content import ContentForm, as_content


class FileRules(BaseModel):
    """Which files tools may use. The host program sets the rules; a plan cannot change them.

    Attributes:
        root: The folder; every file below it may be read and written.
        max_bytes: The most bytes of one file.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    root: Annotated[Path, Field(strict=False)] = Path()
    max_bytes: Annotated[int, Field(ge=1)] = 64 << 20


_DEFAULT: Final = FileRules()

rules: ContextVar[FileRules] = ContextVar("dagrun_tools.files.file_tools.rules", default=_DEFAULT)


class FileRead(TypedDict):
    """The content of a file.

    Attributes:
        path: As it was asked for.
        media_type: By its name.
        size: In bytes.
        text: The content, if it is given as text.
        artifact: The content, if it is given as a file.
    """

    path: str
    media_type: str
    size: int
    text: NotRequired[str]
    artifact: NotRequired[Artifact]


class FileWritten(TypedDict):
    """A file that is there now.

    Attributes:
        path: As it was asked for.
        size: In bytes.
        sha256: The hash of its bytes, in hex.
    """

    path: str
    size: int
    sha256: str


@tool(effect="read")
def read_file(path: str, context: ToolContext, form: ContentForm = "auto") -> FileRead:
    """Read a file of the run's folder, as text or as an artifact.

    Args:
        path: Below the folder of the run's files, with '/' between names.
        context: Of the call.
        form: "text" gives the content as text, "artifact" as a file; "auto" gives text of moderate length as text.

    Raises:
        ToolError: There is no such file, or it is too large.
    """
    current = rules.get()
    data = confined_files.read(current.root, path, current.max_bytes)
    media_type = mimetypes.guess_type(path, strict=False)[0] or "application/octet-stream"
    content = as_content(data, form, context, media_type=media_type, name=PurePosixPath(path).name[:200])
    return FileRead(path=path, media_type=media_type, size=len(data), **content)


@tool(effect="idempotent")
def write_file(path: str, content: str | Artifact, context: ToolContext, overwrite: bool = False) -> FileWritten:
    """Write a file, whole or not at all. Writing the same content again changes nothing.

    Args:
        path: Below the folder of the run's files, with '/' between names; folders are made as needed.
        content: The text, or an artifact.
        context: Of the call.
        overwrite: Whether a file that is there with another content is replaced.

    Raises:
        ToolError: The file is there already with another content, or the content is too large.
    """
    current = rules.get()
    data = content.encode() if isinstance(content, str) else _bytes_of(content, context, current.max_bytes)
    if len(data) > current.max_bytes:
        raise ToolError(f"{len(data)} bytes for {path} are more than the ceiling of {current.max_bytes}")
    context.check_cancelled()  # the last moment at which the call can still be stopped
    confined_files.write(current.root, path, data, overwrite=overwrite)
    return FileWritten(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _bytes_of(artifact: Artifact, context: ToolContext, limit: int) -> bytes:
    file = context.artifacts.path(artifact)
    if file.stat().st_size > limit:
        raise ToolError(f"{file.stat().st_size} bytes of an artifact are more than the ceiling of {limit}")
    return file.read_bytes()


TOOLS: Final[list[Tool[..., Any]]] = [read_file, write_file]
