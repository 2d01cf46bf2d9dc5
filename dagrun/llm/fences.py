"""JSON that a model has put between fences, although nobody wanted them."""

from __future__ import annotations

from typing import Final

_FENCE: Final = "```"
_EDGE: Final = "` \t\r\n"


class Unfenced:
    """Takes the fences off an answer while it streams: a line that begins with three backticks, and all from the next.

    Nothing else is touched. Text that stands between the fences is held back only where it may be the closing one.
    """

    __slots__ = ("_held", "_is_fenced", "_is_over", "_is_text")

    def __init__(self) -> None:
        self._held = ""
        self._is_text = False
        self._is_fenced = False
        self._is_over = False

    def feed(self, piece: str) -> str:
        """The part of the answer that is certain now."""
        if not self._is_text:
            return self._begin(self._held + piece)
        return self._inside(piece) if self._is_fenced else piece

    def end(self) -> str:
        """The rest."""
        held, self._held = self._held, ""
        if self._is_over or (held.lstrip().startswith(_FENCE) and (self._is_fenced or not self._is_text)):
            return ""
        return held

    def _begin(self, text: str) -> str:
        start = text.lstrip()
        self._held = text
        if _FENCE.startswith(start[:3]) and len(start) < len(_FENCE):
            return ""
        if not start.startswith(_FENCE):
            self._held, self._is_text = "", True
            return text
        _, newline, rest = start.partition("\n")
        if not newline:
            return ""
        self._held, self._is_text, self._is_fenced = "", True, True
        return self._inside(rest)

    def _inside(self, piece: str) -> str:
        if self._is_over:
            return ""
        text = self._held + piece
        # A line break never stands inside of a string of JSON, so this cannot be a part of the answer.
        before, fence, _ = text.partition(f"\n{_FENCE}")
        if fence:
            self._is_over = True
            return before
        certain = text.rstrip(_EDGE)
        self._held = text[len(certain) :]
        return certain
