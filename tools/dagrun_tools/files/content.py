"""The content of a file or a page as a tool returns it: text if it is text, else an artifact."""

from __future__ import annotations

import codecs
import re
from typing import Final, Literal

from typing_extensions import TypedDict

from dagrun import Artifact, ToolContext, ToolError

ContentForm = Literal["auto", "text", "artifact"]

MAX_INLINE: Final = 256 << 10  # characters; longer texts become artifacts, unless the plan asks for text

# The codecs that a server may name. Some others of Python take quadratic time.
_CHARSETS: Final = re.compile(
    r"ascii|utf-8(?:-sig)?|utf-16(?:-[bl]e)?|iso8859-\d+|cp125\d|koi8-[ru]|shift_jis|euc_(?:jp|kr)|gb(?:2312|k|18030)|big5"
)
_TEXT: Final = re.compile(r"text/.*|application/(?:json|xml|javascript|x-ndjson|yaml|.*\+json|.*\+xml)")


class Content(TypedDict, total=False):
    """Text or an artifact, never both.

    Attributes:
        text: The text.
        artifact: The bytes, unchanged.
    """

    text: str
    artifact: Artifact


def as_content(
    data: bytes,
    form: ContentForm,
    context: ToolContext,
    *,
    media_type: str,
    name: str = "",
    charset: str | None = None,
) -> Content:
    """Return *data* as text or as an artifact.

    Args:
        data: The bytes.
        form: ``text``, ``artifact``, or ``auto``: text if *data* is text of a moderate length, else an artifact.
        context: The context of the call.
        media_type: The media type of *data*.
        name: A name for people.
        charset: The character set of *data*; `None` if nobody has named it.

    Raises:
        ToolError: *form* is ``text``, and *data* is not text.
    """
    if form != "artifact":
        text = decode(data, media_type, charset)
        if form == "text":
            if text is None:
                raise ToolError(f"{name or 'the content'} is not text ({media_type}); ask for an artifact")
            return Content(text=text)
        if text is not None and len(text) <= MAX_INLINE:
            return Content(text=text)
    return Content(artifact=context.artifacts.save(data, media_type=media_type, name=name))


def decode(data: bytes, media_type: str, charset: str | None = None) -> str | None:
    """Decode *data*; `None` if it is not text."""
    codec = _codec(charset)
    if codec is not None and _TEXT.fullmatch(media_type):
        return data.decode(codec, errors="replace")
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # A server that says "text" without a character set means, in practice, Windows-1252.
        return data.decode("cp1252", errors="replace") if media_type.startswith("text/") else None


def _codec(charset: str | None) -> str | None:
    if not charset:
        return None
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return name if _CHARSETS.fullmatch(name) else None
