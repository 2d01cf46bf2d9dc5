"""What tools give of bytes that they got from somewhere: text where it is text, else an artifact."""

from __future__ import annotations

import codecs
import re
from typing import Final, Literal

from typing_extensions import TypedDict

from dagrun import Artifact, ToolContext, ToolError

Form = Literal["auto", "text", "artifact"]

MAX_INLINE: Final = 256 << 10  # characters; longer texts travel as artifacts, unless a plan says otherwise

# Some codecs of Python take quadratic time, and a server may name any of them.
_CHARSETS: Final = re.compile(
    r"ascii|utf-8(?:-sig)?|utf-16(?:-[bl]e)?|iso8859-\d+|cp125\d|koi8-[ru]|shift_jis|euc_(?:jp|kr)|gb(?:2312|k|18030)|big5"
)
_TEXT: Final = re.compile(r"text/.*|application/(?:json|xml|javascript|x-ndjson|yaml|.*\+json|.*\+xml)")


class Content(TypedDict, total=False):
    """Either of both.

    Attributes:
        text: The text.
        artifact: The bytes as they are.
    """

    text: str
    artifact: Artifact


def give(
    data: bytes,
    form: Form,
    context: ToolContext,
    *,
    media_type: str,
    name: str = "",
    charset: str | None = None,
) -> Content:
    """Give *data* as text or as an artifact.

    Args:
        data: The bytes.
        form: What is wanted; ``auto`` for text where it is text of a moderate length.
        context: Of the call.
        media_type: Of the data.
        name: For people.
        charset: Of the data, if somebody said so.

    Raises:
        ToolError: Text is wanted, and it is none.
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
    """Give *data* as text; `None` if it is none."""
    codec = _codec(charset)
    if codec is not None and _TEXT.fullmatch(media_type):
        return data.decode(codec, errors="replace")
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Who says "text" and not which letters means, in practice, Latin ones.
        return data.decode("cp1252", errors="replace") if media_type.startswith("text/") else None


def _codec(charset: str | None) -> str | None:
    if not charset:
        return None
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return name if _CHARSETS.fullmatch(name) else None
