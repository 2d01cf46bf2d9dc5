"""Asks the person at the terminal: questions on the standard error, answers from the standard input.

Typed lines are read in the event loop. A thread that waits for a line cannot be stopped, and Python waits for it at the
end of the process. The event loop can wait for a terminal as for a socket: other tasks run meanwhile, and a signal gets
through at any time.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, cast

import anyio

from dagrun import Answer, Asked, Question
from dagrun.cli.terminal.display import Display
from dagrun.cli.terminal.text import columns_of, terminal_of
from dagrun.errors import visible
from dagrun.kernel.model.question import Approver, Choice
from dagrun.observe.question_text import BadAnswer, QuestionPage, lay_out, read_value

Write = Callable[[str], object]

# Seconds after a question became void: a late answer to it must not be taken for an answer to the next question.
PAUSE: Final = 1.0

# Ctrl-D and Ctrl-C are handled by the terminal, which turns them into an end of input and a signal.
_HELP_YES_NO: Final = """\
  y      yes
  n      no; a reason may follow: n the amount is wrong
"""
_HELP: Final = """\
  e      escalate: end the run, and hand everything to people; a reason may follow
  Ctrl-D no answer: somebody else may know
  Ctrl-C stop the whole run
"""
_HELP_EFFECT: Final = """\
  took_effect  it took effect; what the call returned may follow, and must if steps need it: took_effect 17
  did_not      it surely did not: it is called again; a reason may follow
  unknown      you do not know: it stays unresolved; a reason may follow
"""
_HELP_CUT: Final = "  f      show in full what was cut\n"
_HELP_VALUE: Final = """\
  Type the value as JSON; where a text is asked for, just the text.
  :n     you have none; a reason may follow
  :e     escalate: end the run, and hand everything to people; a reason may follow
  Ctrl-D no answer: somebody else may know
  Ctrl-C stop the whole run
"""


class Lines(Protocol):
    """The source of answers."""

    async def line(self) -> str | None:
        """Return the next line; `None` at the end of the input."""
        ...

    def forget(self) -> None:
        """Drop unread input."""
        ...


def make_approver(display: Display) -> Approver | None:
    """Return an approver that asks the person at the terminal; `None` if there is no terminal.

    Both the standard input and the standard error must be terminals: nobody would see a question in a file.

    Args:
        display: The display of the run, which pauses for a question.
    """
    keyboard = terminal_of(sys.stdin)
    if keyboard is None or terminal_of(display.stream) is None:
        return None
    return TerminalApprover(display.paused, partial(open_keyboard, keyboard), partial(columns_of, display.stream))


class TerminalApprover:
    """Asks one question at a time, in their order of arrival.

    Args:
        make_room: Opens the terminal for a question: returns a function that writes to it, and keeps all other output
            off it meanwhile.
        keyboard: Opens the source of answers.
        columns: Returns the present width of the terminal, in cells.
    """

    def __init__(
        self,
        make_room: Callable[[], AbstractContextManager[Write]],
        keyboard: Callable[[], AbstractContextManager[Lines]],
        columns: Callable[[], int],
    ) -> None:
        self._make_room = make_room
        self._columns = columns
        self._keyboard = keyboard
        self._lock = anyio.Lock()
        self._by = login()
        self._was_void = False

    async def __call__(self, question: Question) -> Answer | None:
        """Return the answer to *question*; `None` if the person gives none. Cancelled if the question becomes void."""
        came = anyio.current_time()
        async with self._lock:
            try:
                with self._make_room() as write, self._keyboard() as lines:
                    return await self._ask(question, came, write, lines)
            except OSError:  # the terminal is gone
                return None

    async def _ask(self, question: Question, came: float, write: Write, lines: Lines) -> Answer | None:
        if self._was_void:
            await anyio.sleep(PAUSE)
        self._was_void = True
        deadline = None if question.deadline is None else came + question.deadline - question.asked_at
        page = partial(lay_out, question, width=self._columns() - 1)
        dialogue = _Dialogue(question, page, write, lines, deadline=deadline)
        dialogue.open(waiting=self._lock.statistics().tasks_waiting)
        try:
            answer = await dialogue.answer()
            self._was_void = False
        finally:
            if self._was_void:
                write("\n(This needs no answer now.)\n")
        return replace(answer, by=self._by) if answer is not None else None


class _Dialogue:
    """The dialogue about one question, until it is answered."""

    def __init__(
        self,
        question: Question,
        lay_out: Callable[..., QuestionPage],
        write: Write,
        lines: Lines,
        *,
        deadline: float | None,
    ) -> None:
        self._question = question
        self._lay_out = lay_out
        self._write = write
        self._lines = lines
        self._deadline = deadline  # on the clock of the loop
        self._page = QuestionPage((), is_cut=False)

    def open(self, waiting: int) -> None:
        """Show the question, and that *waiting* others come after it."""
        self._lines.forget()
        self._show()
        if waiting:
            self._write(f"  {waiting} more question{'s' * (waiting > 1)} after this one\n")

    async def answer(self) -> Answer | None:
        """Ask until there is an answer; `None` if the person gives none."""
        is_value = self._question.kind is Asked.INPUT
        read = self._read_value if is_value else self._read_choice
        self._write(self._prompt(is_value))
        while (line := await self._line()) is not None:
            if line.strip():
                answer, is_answered = await read(line)
                if is_answered:
                    return answer
            self._write(self._prompt(is_value))
        self._write("\n")
        return None

    def _show(self, *, is_whole: bool = False) -> None:
        left = None if self._deadline is None else self._deadline - anyio.current_time()
        self._page = self._lay_out(left=left, is_whole=is_whole)
        self._write("\n".join(["", *self._page.lines, ""]))

    def _prompt(self, is_value: bool) -> str:
        about = visible(self._question.step or "this run")
        if is_value:
            return f"{about}: a value ([:n]one, [:e]scalate, [:?] help): "
        # In full, and other words than for an approval: what is typed by habit must not settle an effect.
        is_effect = self._question.kind is Asked.EFFECT
        words = [*(("took_effect", "did_not", "unknown") if is_effect else ("[y]es", "[n]o")), "[e]scalate"]
        if self._page.is_cut:
            words.append("[f]ull text")
        return f"{about}: {', '.join(words)}, [?] help: "

    async def _line(self) -> str | None:
        while True:
            try:
                return await self._lines.line()
            except (LineTooLong, UnicodeDecodeError) as error:
                reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
                self._write(f"That cannot be read: {reason}. Again: ")

    async def _read_choice(self, line: str) -> tuple[Answer | None, bool]:
        word, _, note = line.strip().partition(" ")
        is_effect = self._question.kind is Asked.EFFECT
        match word.casefold():
            case "y" | "yes" if not note and not is_effect:
                return await self._agree()
            case "n" | "no" if not is_effect:
                return Answer("deny", note=note.strip()), True
            case "took_effect" if is_effect:
                return self._typed("took_effect", note) if note.strip() else (Answer("took_effect"), True)
            case "did_not" | "unknown" as said if is_effect:
                return Answer(cast("Choice", said), note=note.strip()), True
            case "e" | "escalate":
                return Answer("escalate", note=note.strip()), True
            case "f" | "full" if self._page.is_cut:
                self._show(is_whole=True)
            case "?" | "h" | "help":
                self._write(self._help())
            case _:
                one = "words" if is_effect else "letters in brackets"
                self._write(f"Type one of the {one}, and Enter.\n")
        return None, False

    async def _read_value(self, line: str) -> tuple[Answer | None, bool]:
        word, _, note = line.strip().partition(" ")
        match word.casefold():
            case ":n":
                return Answer("deny", note=note.strip()), True
            case ":e":
                return Answer("escalate", note=note.strip()), True
            case ":?":
                self._write(_HELP_VALUE)
                return None, False
        return self._typed("approve", line)

    def _typed(self, choice: Choice, text: str) -> tuple[Answer | None, bool]:
        try:
            value = read_value(text, self._question.schema or {})
        except BadAnswer as error:
            self._write(f"That cannot be: {error}.\n")
            return None, False
        return Answer(choice, value=value), True

    async def _agree(self) -> tuple[Answer | None, bool]:
        """Return a yes, if the person ticks every point of the checklist."""
        points = self._question.checklist
        for number, point in enumerate(points, 1):
            self._write(f"  {number} of {len(points)}: {visible(point)}. Is that so? [y]es, [n]o: ")
            line = await self._line()
            if line is None:
                self._write("\n")
                return None, True
            if line.strip().casefold() not in ("y", "yes"):
                self._write("Without that it is no yes.\n")
                return None, False
        return Answer("approve", ticked=points), True

    def _help(self) -> str:
        is_effect = self._question.kind is Asked.EFFECT
        return (_HELP_EFFECT if is_effect else _HELP_YES_NO) + _HELP + _HELP_CUT * self._page.is_cut


def login() -> str:
    """Return the name of the user, for the record; empty if the user has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name, as in some containers
        return ""


# The longest line of a terminal, in bytes. It drops further input without a message.
LONGEST: Final = 1023 if sys.platform == "darwin" else 4095


class LineTooLong(ValueError):
    """The terminal has dropped the end of a line."""


class Keyboard:
    """Reads lines from a terminal.

    Args:
        descriptor: The file descriptor of the terminal, preferably non-blocking.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    async def line(self) -> str | None:
        """Return the next line, without its line end; `None` at the end of the input.

        Raises:
            LineTooLong: The end of the line was lost.
            UnicodeDecodeError: The line is not UTF-8.
        """
        while b"\n" not in self._rest:
            await anyio.wait_readable(self._descriptor)
            try:
                typed = os.read(self._descriptor, LONGEST + 1)
            except BlockingIOError:  # another reader was faster
                continue
            except OSError:  # the terminal is gone
                typed = b""
            if not typed:
                rest, self._rest = self._rest, b""
                return rest.decode() if rest else None
            self._rest += typed
        line, _, self._rest = self._rest.partition(b"\n")
        if len(line) >= LONGEST:
            raise LineTooLong(f"this terminal takes no line of more than {LONGEST:,} bytes")
        return line.decode()

    def forget(self) -> None:
        """Drop unread input: it was meant for something else."""
        self._rest = b""
        if sys.platform == "win32":
            return
        import termios

        try:
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        except termios.error:  # no terminal, or it is gone
            return


@contextmanager
def open_keyboard(descriptor: int) -> Iterator[Keyboard]:
    """Open the terminal behind *descriptor* again: the flags of a descriptor that others share must not change."""
    own = _open(descriptor)
    try:
        yield Keyboard(own)
    finally:
        os.close(own)


def _open(descriptor: int) -> int:
    try:
        return os.open(os.ttyname(descriptor), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # the terminal has no name, as in some containers
        return os.dup(descriptor)
