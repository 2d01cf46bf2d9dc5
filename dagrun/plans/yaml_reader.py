"""Read YAML as another notation for JSON, without the surprises of YAML.

``no``, ``on``, ``12:30``, ``010`` and dates are texts. Anchors, aliases, tags, directives, merge keys and several
documents are refused in plans. Documents of others may have anchors, merge keys and ``%YAML``: an alias is the very
object of its anchor, and how much all aliases stand for is limited, as aliases of aliases multiply. They count for
the depth, too.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from dagrun.errors import PlanRefused, Problem, shorten
from dagrun.plans.json_reader import depth_refusal, make_float, make_int, make_object, syntax_problem, take_out_marks

# The C parser is ten times as fast or more: 0.1 instead of 2 seconds for a plan of one megabyte.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: Final = {"true": True, "false": False, "null": None, "": None}
_INT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
# libyaml looks ahead, and from 0.2.6 on its scanner refuses 1,000 levels before the composer has met its own ceiling.
_TOO_DEEP: Final = "maximum nesting depth"
_MOST_ALIASED: Final = 1_000_000  # values that the aliases of a text stand for
_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)


def read_yaml(text: str, max_depth: int) -> tuple[Any, list[Problem]]:
    """Read *text*.

    Returns:
        Plain JSON; and a problem for each use of a YAML feature, and each value, that is refused.

    Raises:
        PlanRefused: As for `parse_yaml`.
    """
    tree, problems = parse_yaml(text, max_depth)
    return tree, problems + take_out_marks(tree)


def parse_yaml(text: str, max_depth: int, *, is_plan: bool = True) -> tuple[Any, list[Problem]]:
    """Parse *text*, as a plan or as a document of somebody else.

    Returns:
        Plain JSON with marks, as from `parse_json`; and a problem for each use of a YAML feature that is refused.

    Raises:
        PlanRefused: The text is not YAML, holds several documents, or is nested deeper than *max_depth*.
    """
    composer = _Composer(max_depth, is_plan)
    try:
        # Events, not nodes: building nodes is recursive, and follows aliases.
        for event in yaml.parse(text, Loader=_LOADER):
            composer.read_event(event)
    except yaml.MarkedYAMLError as error:
        if _TOO_DEEP in str(error.problem):
            raise depth_refusal(max_depth) from None
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        raise PlanRefused(
            [syntax_problem("YAML", line, column, shorten(error.problem or error.context or "?"))]
        ) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = error.position - before.rfind("\n")
        raise PlanRefused([syntax_problem("YAML", before.count("\n") + 1, column, str(error.reason))]) from None
    return composer.root, composer.problems


class _Merge(str):
    """The key ``<<``, without quotes."""


class _Frame:
    """An object or a list that is being read; *size* counts the values in it, *depth* its levels."""

    __slots__ = ("anchor", "depth", "elements", "is_object", "key", "pairs", "size")

    def __init__(self, anchor: str | None, *, is_object: bool) -> None:
        self.is_object = is_object
        self.anchor = anchor
        self.size = self.depth = 1
        self.key: str | None = None
        self.pairs: list[tuple[str, Any]] = []
        self.elements: list[Any] = []


class _Composer:
    """Builds plain JSON from the events of a YAML parser, without recursion."""

    def __init__(self, max_depth: int, is_plan: bool) -> None:
        self.root: Any = None
        self.problems: list[Problem] = []
        self._max_depth = max_depth
        self._stack: list[_Frame] = []
        self._documents = 0
        self._is_plan = is_plan
        self._anchored: dict[str, tuple[Any, int, int]] = {}  # values with their sizes and depths
        self._aliased = 0

    def read_event(self, event: Any) -> None:
        """Process one event."""
        match event:
            case yaml.AliasEvent():
                self._put(*self._value_of(event))
            case yaml.ScalarEvent():
                self._check_properties(event)
                self._scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._check_properties(event)
                self._open(event, is_object=isinstance(event, yaml.MappingStartEvent))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                frame = self._stack.pop()
                value = self._object(frame, event) if frame.is_object else frame.elements
                self._put(value, frame.size, frame.depth, frame.anchor)
            case yaml.DocumentStartEvent():
                self._begin(event)

    def _begin(self, event: yaml.DocumentStartEvent) -> None:
        self._documents += 1
        if self._documents > 1:
            self._refuse(event, "a second document")
            raise PlanRefused(self.problems)
        if event.tags or (event.version and self._is_plan):
            self._refuse(event, "a directive")

    def _open(self, event: Any, *, is_object: bool) -> None:
        if len(self._stack) >= self._max_depth:
            raise depth_refusal(self._max_depth)
        if self._stack and self._stack[-1].is_object and self._stack[-1].key is None:
            self._refuse(event, "a key that is no text")
            raise PlanRefused(self.problems)
        self._stack.append(_Frame(event.anchor, is_object=is_object))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        is_key = bool(self._stack) and self._stack[-1].is_object and self._stack[-1].key is None
        is_plain = event.implicit[0]
        if is_key:
            is_merge = event.value == "<<" and is_plain
            if is_merge and self._is_plan:
                self._refuse(event, "the merge key <<")
            self._stack[-1].key = _Merge(event.value) if is_merge and not self._is_plan else event.value
            self._note(event.anchor, event.value, 1, 0)
        else:
            self._put(_read_plain(event.value) if is_plain else event.value, 1, 0, event.anchor)

    def _value_of(self, event: Any) -> tuple[Any, int, int]:
        """Return the value that an alias stands for, its size and its depth."""
        if not self._is_plan and event.anchor in self._anchored:
            value, size, depth = self._anchored[event.anchor]
            if len(self._stack) + depth > self._max_depth:
                raise depth_refusal(self._max_depth)
            self._aliased += size
            if self._aliased <= _MOST_ALIASED:
                return value, size, depth
            self._refuse(event, f"aliases for over {_MOST_ALIASED} values, up to *{event.anchor}")
            raise PlanRefused(self.problems)
        self._refuse(event, f"the alias *{event.anchor}")
        return "", 1, 0

    def _object(self, frame: _Frame, event: Any) -> dict[str, Any]:
        """Make an object; what it merges counts less than its own fields."""
        merged: dict[str, Any] = {}
        for _, said in (pair for pair in frame.pairs if type(pair[0]) is _Merge):
            for source in reversed(said if isinstance(said, list) else [said]):
                if not isinstance(source, dict):
                    self._refuse(event, "a merge key << with something that is no object, before")
                    raise PlanRefused(self.problems)
                merged |= source
        own = make_object([pair for pair in frame.pairs if type(pair[0]) is not _Merge])
        return {**merged, **own} if merged else own

    def _note(self, anchor: str | None, value: Any, size: int, depth: int) -> None:
        if anchor is not None:
            self._anchored[anchor] = value, size, depth

    def _put(self, value: Any, size: int, depth: int, anchor: str | None = None) -> None:
        self._note(anchor, value, size, depth)
        if not self._stack:
            self.root = value
            return
        frame = self._stack[-1]
        frame.size += size
        frame.depth = max(frame.depth, depth + 1)
        if not frame.is_object:
            frame.elements.append(value)
        elif frame.key is not None:
            frame.pairs.append((frame.key, value))
            frame.key = None
        else:  # an alias in place of a key
            frame.key = str(value)

    def _check_properties(self, event: Any) -> None:
        if event.anchor is not None and self._is_plan:
            self._refuse(event, f"the anchor &{event.anchor}")
        if event.tag is not None:
            self._refuse(event, f"the tag {event.tag}")

    def _refuse(self, event: Any, what: str) -> None:
        mark = event.start_mark
        reason = f"{shorten(what, 80)} at line {mark.line + 1}, column {mark.column + 1}"
        self.problems.append(Problem("DR004", "", {"reason": reason}))


def _read_plain(text: str) -> Any:
    """Read a scalar without quotes, by the rules of JSON."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "-0123456789":
        return text
    if _INT.fullmatch(text):
        return make_int(text)
    return make_float(text) if _FLOAT.fullmatch(text) else text
