"""The parts of an exception for the author of the code that raised it; and whether it is an interrupt of the host.

The exceptions come from code of others: their methods may raise anything, and their texts may be huge. Every text is
read within limits, and redacted before it is cut, because half a secret is not found.

An exception that is kept has no frames (`drop_frames`). Frames hold all values of their calls, and lead back to the run
that keeps the exception: memory in a circle, which only the garbage collector frees. What the frames show is taken from
them before (`with_error`).

A tool may raise KeyboardInterrupt or SystemExit by itself, which hurts only its step. But Python raises what a signal
handler raises in the frame that happens to run, and that ends the run, and is for the host (`interrupt_in`).
"""

from __future__ import annotations

import os
import signal
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from opcode import opmap
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

from dagrun.errors import DagrunError, ModelError, shorten, visible
from dagrun.kernel.model.outcome import Failure
from dagrun.kernel.model.tool_context import ToolContext

MAX_LEAVES: Final = 3  # of an exception group that a message names
MAX_TEXT: Final = 10_000  # characters of the text of one exception that are looked at
MAX_ANSWER: Final = 1_000_000  # the same, of an answer of a model
MAX_CHAIN: Final = 20  # exceptions that one exception leads to, which its traceback shows
MAX_FRAMES: Final = 50  # of each of them, the innermost ones
_MAX_NAME: Final = 100
_MAX_SEARCHED: Final = 1_000_000  # characters of a text that is searched for secrets
_MAX_LEAF: Final = 120

# The fields themselves: a class may have properties of these names, which may raise anything.
_cause: Final = BaseException.__dict__["__cause__"].__get__
_context: Final = BaseException.__dict__["__context__"].__get__
_suppresses: Final = BaseException.__dict__["__suppress_context__"].__get__
_traceback: Final = BaseException.__dict__["__traceback__"].__get__
_parts: Final = BaseExceptionGroup.__dict__["exceptions"].__get__

T = TypeVar("T")
Redact = Callable[[str], str]

_OURS: Final = str(Path(__file__).parents[2]) + os.sep
_PACKAGES: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD: Final = tuple(
    path + os.sep for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")} if path
)


def quietly(get: Callable[[], T]) -> T | None:
    """Return the result of *get*, or `None` if it raises.

    It reads a foreign object, whose ``__str__`` may raise anything, even SystemExit. Nothing is awaited here, so no
    cancellation is lost.
    """
    try:
        return get()
    except BaseException:  # noqa: BLE001
        return None


def name_of(error: BaseException) -> str:
    """Return the name of the class of *error*."""
    return shorten(type(error).__name__, _MAX_NAME)


def text_of(error: BaseException) -> str:
    """Return the text of *error*, or the name of its class if the text is empty; cut, if it is huge."""
    text = quietly(lambda: error.message if isinstance(error, BaseExceptionGroup) else str(error))
    return text[:MAX_TEXT] if isinstance(text, str) and text.strip() else name_of(error)


def in_words(error: BaseException, redact: Redact, limit: int) -> str:
    """Return the type and the text of *error*, and of the first leaves of a group, in one line.

    An error of dagrun's own is a sentence already, and needs no type.

    Args:
        error: The exception.
        redact: Takes out of a text what must not be shown.
        limit: The most characters of the text of *error*; the leaves come on top of it.
    """
    name, text = name_of(error), text_of(error)
    alone = shorten(redact(text), limit)
    if not isinstance(error, DagrunError) and text != name:
        alone = f"{name}: {alone}"
    if not isinstance(error, BaseExceptionGroup):
        return alone
    leaves = list(leaves_of(error))
    shown = [in_words(leaf, redact, _MAX_LEAF) for leaf in leaves[:MAX_LEAVES]]
    more = f"; and {len(leaves) - MAX_LEAVES} more" if len(leaves) > MAX_LEAVES else ""
    return f"{alone}: {'; '.join(shown)}{more}"


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and in the groups in it; or *error* itself, if it is no group."""
    open_: list[BaseException] = [error]
    while open_:
        each = open_.pop()
        if isinstance(each, BaseExceptionGroup):
            open_ += reversed(_parts(each))
        else:
            yield each


def with_error(failure: Failure, error: BaseException) -> Failure:
    """Return *failure* with the facts of *error*: the place, the traceback, the exception itself, a model's answer.

    The exception has its frames still; the keeper of the failure must call `drop_frames`.
    """
    answer = next((each.answer for each in _chain(error) if isinstance(each, ModelError) and each.answer), "")
    trace = traceback_of(error)
    return replace(
        failure,
        where=where_of(only_of(error)) or where_of(error),
        answer=str(answer)[:MAX_ANSWER],
        exception=only_of(error),
        render=partial(_render, trace),
    )


def only_of(error: BaseException) -> BaseException:
    """Return the single exception inside groups of one, at any depth; any other exception unchanged."""
    while isinstance(error, BaseExceptionGroup) and len(_parts(error)) == 1:
        error = _parts(error)[0]
    return error


# The place ------------------------------------------------------------------------------------------------------------


def where_of(error: BaseException) -> str:
    """Return file and line of the innermost frame of *error* that is neither dagrun's nor a library's.

    If no frame at all is the user's, it is the innermost one; empty for an error of dagrun's own, which is about no
    place, and without frames.
    """
    if place := _users_place(error):
        return place
    if isinstance(error, DagrunError):
        return ""
    innermost = ""
    for frame, line in traceback.walk_tb(_traceback(error)):
        innermost = f"{frame.f_code.co_filename}:{line}"
    return shorten(innermost, 500)


def _users_place(error: BaseException) -> str:
    """Return the last place in the user's code: in *error*, else in its causes or the leaves of a group."""
    for each in _chain(error):
        place = ""
        for frame, line in traceback.walk_tb(_traceback(each)):
            if is_users(frame):
                place = f"{frame.f_code.co_filename}:{line}"
        if place:
            return shorten(place, 500)
    return ""


def place_in_words(error: BaseException) -> str:
    """Return the name of the file and the line, in brackets after a blank, if that is the user's; else nothing.

    The path is left out, because people and models read the message; `Failure.where` has it, for a library, too. A name
    that many folders have, such as ``__init__.py``, comes with its folder.
    """
    where = _users_place(error)
    if not where:
        return ""
    *folders, name = where.replace(os.sep, "/").split("/")
    return f" ({folders[-1]}/{name})" if name.startswith("__") and folders and folders[-1] else f" ({name})"


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs code that is neither dagrun's nor a library's."""
    name, path = frame.f_globals.get("__name__"), frame.f_code.co_filename
    if name == "__main__":
        return not path.startswith("<frozen ")
    if str(name).partition(".")[0] == "dagrun_tools" or path.startswith(("<frozen ", "<string>")):
        return False
    if not os.path.isabs(path):  # compiled code has names of its own for its files
        path = str(frame.f_globals.get("__file__") or path)
    if path.startswith(_OURS) or any(part in path for part in _PACKAGES):
        return False
    return not path.startswith(_STANDARD)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield *error*, its causes or contexts, and the leaves of a group; no exception twice."""
    open_, seen = [error], set[int]()
    while open_ and len(seen) < MAX_CHAIN:
        each = open_.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        before = _before(each)
        open_ += [before] if before is not None else []
        open_ += reversed(_parts(each)) if isinstance(each, BaseExceptionGroup) else ()


def _before(error: BaseException) -> BaseException | None:
    """The cause or context of *error* that Python would print."""
    before: BaseException | None = _cause(error)
    if before is None and not _suppresses(error):
        before = _context(error)
    return before


def drop_frames(error: BaseException | None) -> None:
    """Take the frames from an exception that is kept, and from all exceptions that it leads to."""
    open_, seen = [error], set[int]()
    while open_:
        each = open_.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        BaseException.with_traceback(each, None)  # the class may refuse that its fields are set
        if isinstance(each, AttributeError) and isinstance(each.obj, ToolContext):
            each.obj = None  # the context leads to the run, too
        open_ += [_cause(each), _context(each)]
        open_ += _parts(each) if isinstance(each, BaseExceptionGroup) else ()


# The traceback --------------------------------------------------------------------------------------------------------

Trace = list[
    tuple[str, traceback.StackSummary, str]
]  # the outermost exception first: how it came, its frames, its text


def traceback_of(error: BaseException) -> Trace:
    """Return the printable traceback of *error*. It holds no frame; the lines of the source are read when needed."""
    trace: Trace = []
    _collect(error, "", trace, set())
    return trace


def _collect(error: BaseException, how: str, trace: Trace, seen: set[int]) -> None:
    if id(error) in seen or len(trace) >= MAX_CHAIN:
        return
    seen.add(id(error))
    frames = list(traceback.walk_tb(_traceback(error)))
    while len(frames) > 1 and frames[0][0].f_code.co_filename.startswith(_OURS):
        del frames[0]  # how dagrun came to call the tool
    summary = traceback.StackSummary.extract(iter(frames[-MAX_FRAMES:]), lookup_lines=False)
    notes = quietly(lambda: [str(note)[:MAX_TEXT] for note in error.__notes__][:10]) or []
    text, name = text_of(error), name_of(error)
    trace.append((how, summary, "\n".join([name if text == name else f"{name}: {text}", *notes])))
    if (before := _before(error)) is not None:
        is_cause = before is _cause(error)
        how = "It was caused by this exception:" if is_cause else "It was raised while this exception was handled:"
        _collect(before, how, trace, seen)
    if isinstance(error, BaseExceptionGroup):
        for number, leaf in enumerate(_parts(error), 1):
            _collect(leaf, f"Part {number} of {len(_parts(error))} of the group {name}:", trace, seen)


def _render(trace: Trace) -> str:
    parts = []
    for how, frames, text in trace:
        lines = ["Traceback (most recent call last):\n", *(quietly(frames.format) or ())] if frames else []
        parts.append("".join([f"{how}\n" if how else "", *lines, visible(text, keep="\n\t"), "\n"]))
    return "\n".join(parts)


def is_showable(error: BaseException, redact: Redact) -> bool:
    """Whether Python may print *error* unchanged: all its texts can be read, and none has anything to hide."""
    texts = quietly(lambda: list(_all_texts(error)))
    return texts is not None and all(len(text) <= _MAX_SEARCHED and redact(text) == text for text in texts)


def _all_texts(error: BaseException) -> Iterator[str]:
    open_, seen = [error], set[int]()
    while open_:
        each = open_.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        notes: Any = getattr(each, "__notes__", ())
        yield type(each).__qualname__
        yield str(each)
        yield from map(str, notes)
        open_ += [before for before in (_cause(each), _context(each)) if before is not None]
        open_ += _parts(each) if isinstance(each, BaseExceptionGroup) else ()


_RAISE: Final = opmap["RAISE_VARARGS"]


class HostInterrupted(Exception):
    """A signal has interrupted the host while code in the run was running.

    Attributes:
        cause: What the signal handler has raised.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


def interrupt_in(error: BaseException) -> BaseException | None:
    """Return the exception of a signal handler that *error* is, or has in it as a group; `None` if there is none."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(interrupt_in, error.exceptions)), None)
    if isinstance(error, HostInterrupted):
        return error.cause
    if not isinstance(error, KeyboardInterrupt | SystemExit):
        return None
    if threading.current_thread() is not threading.main_thread():
        return None  # signals are handled in the main thread
    frames = list(walk_tb(error.__traceback__))
    handlers = set(_handlers())
    if any(frame.f_code in handlers for frame, _ in frames):
        return error
    return error if isinstance(error, KeyboardInterrupt) and not _is_raised_by_code(error) else None


def _handlers() -> Iterator[CodeType]:
    """Yield the code of the signal handlers that are written in Python."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        if isinstance(code := getattr(handler, "__code__", None), CodeType):
            yield code


def _is_raised_by_code(error: BaseException) -> bool:
    """Whether a statement has raised *error*: Python's own handler of Ctrl-C raises between two instructions."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE
