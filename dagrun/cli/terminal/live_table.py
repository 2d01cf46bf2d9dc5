"""The live table of a run: at most as tall as the terminal, redrawn four times a second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from dagrun import State, Status
from dagrun.observe.progress import ProgressTable, Row
from dagrun.observe.state_styles import spending_words
from dagrun.plans.drawing import SYMBOLS

_CUT_INSIDE: Final = 9  # cells; of a narrower id, only the beginning is shown
_LAST: Final = 14  # rows that stay on the screen after the end

_STYLES: Final[Mapping[State, str]] = {
    State.RUNNING: "cyan",
    State.READY: "yellow",
    State.SUCCEEDED: "green",
    State.SKIPPED: "dim",
    State.CANCELLED: "dim",
}
_PLAIN: Final = frozenset((State.SUCCEEDED, State.FAILED))
_ASCII: Final[Mapping[State, str]] = {
    State.RUNNING: ">",
    State.READY: "o",
    State.SUCCEEDED: "+",
    State.SKIPPED: "-",
    State.CANCELLED: "-",
}


class LiveTable:
    """Shows a `ProgressTable` on a terminal while it is open; afterwards its last rows stay on the screen.

    Args:
        table: The table.
        console: The terminal; `None` for the standard error.
    """

    def __init__(self, table: ProgressTable, console: Console | None = None) -> None:
        self.table = table
        self.console = console or Console(stderr=True, highlight=False, emoji=False, markup=False)
        self.is_open = False
        self._is_ascii = not str(self.console.encoding).lower().startswith("utf")
        self._is_paused = False
        self._live = self._make_live()

    def __enter__(self) -> Self:
        # By default, the console looks up `sys.stderr` at each write, and would write into the output of tools.
        self.console.file = self.console.file
        self._live.start()
        self.is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()
        self.is_open = False
        self._live.update(self.last_frame(), refresh=True)
        self._live.stop()

    def refresh(self) -> None:
        """Redraw the table."""
        if self.is_open and not self._is_paused:
            self._live.update(self.frame(), refresh=True)

    def pause(self) -> None:
        """Take the table off the screen, and draw nothing until `resume`."""
        if self.is_open and not self._is_paused:
            self._is_paused = True
            self._live.transient = True
            self._live.stop()

    def resume(self) -> None:
        """Draw the table again, below the text written since."""
        if self._is_paused:
            self._is_paused = False
            self._live = self._make_live()
            self._live.start()
            self.refresh()

    def line(self, text: str) -> None:
        """Write a line above the table, in any thread."""
        self.console.print(Text(text), soft_wrap=True)

    def _make_live(self) -> Live:
        return Live(
            console=self.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

    def frame(self) -> Group:
        """Return the current table."""
        room = max(1, self.console.height - 2)  # a line for the summary, and one for the cursor
        rows = self.table.rows(room)
        return Group(*self._lines(rows), self._summary())

    def last_frame(self) -> Group:
        """Return the rows that stay on the screen after the end."""
        return Group(*self._lines(self.table.last_rows(_LAST)))

    def _lines(self, rows: list[Row]) -> Iterator[Text]:
        """Lay out rows in the width of the console, without the tables of rich, which take ten times as long."""
        width = self.console.width - 1
        step_width = min(max((cell_len(row.step) for row in rows), default=0), max(8, width * 2 // 5))
        # On a narrow terminal, reports and reasons need the room more than tools do.
        tool_width = min(max((cell_len(row.tool) for row in rows), default=0), width // 4) if width >= 90 else 0
        for row in rows:
            style = _STYLES.get(row.state, "red")
            tool = f" {self._cut(row.tool, tool_width)}" if tool_width else ""
            head = f"{self._symbol(row.state)} {self._cut_inside(row.step, step_width)}{tool} {_seconds(row):>8}"
            note = self._cut(f" {self._note(row)}", max(0, width - cell_len(head))).rstrip()
            yield Text.assemble((self._cut(head, min(width, cell_len(head))), style), (note, "dim"), no_wrap=True)

    def _cut(self, text: str, width: int) -> str:
        """Return *text* cut or filled to exactly *width* cells."""
        if self._is_ascii:
            text = text.encode("ascii", "backslashreplace").decode()
        if cell_len(text) <= width:
            return set_cell_size(text, width)
        return set_cell_size(text, max(0, width - 1)) + ("." if self._is_ascii else "…") * (width > 0)

    def _cut_inside(self, text: str, width: int) -> str:
        """Return *text* cut or filled to exactly *width* cells. Both ends stay: ids often differ only at their ends."""
        if cell_len(text) <= width or width < _CUT_INSIDE or not text.isascii():
            return self._cut(text, width)
        end = width // 3
        return text[: width - end - 1] + ("." if self._is_ascii else "…") + text[-end:]

    def _symbol(self, state: State) -> str:
        return _ASCII.get(state, "!") if self._is_ascii else SYMBOLS[state]

    @staticmethod
    def _note(row: Row) -> str:
        # The sign says that a step has failed; the reason says more.
        is_told = row.state.is_settled and (row.state not in _PLAIN or not row.note)
        parts = (
            f"{row.fraction:.0%}" if row.fraction is not None else "",
            f"attempt {row.attempt}" if row.attempt > 1 else "",
            str(row.state).replace("_", " ") if is_told and row.state is not State.SUCCEEDED else "",
            row.note,
        )
        return " ".join(part for part in parts if part)

    def _summary(self) -> Text:
        # Two cells are left for the "^C" that a terminal echoes: on a new line, it would move the table down by one.
        table, width = self.table, self.console.width - 3
        text = f" {' '.join(self._facts())}"
        bar = min(40, width - cell_len(text))
        done = round(bar * table.settled / table.steps) if table.steps else 0
        full, empty = ("#", "-") if self._is_ascii else ("━", "─")
        style = "red" if table.status not in (None, Status.SUCCEEDED) else "green"
        # While the plan is being written, the number of all steps is not known.
        is_drawn = bar >= 5 and not table.is_drafting
        parts = ((full * done, style), (empty * (bar - done), "dim")) if is_drawn else ()
        return Text.assemble(*parts, self._cut(text, min(width, cell_len(text))), no_wrap=True)

    def _facts(self) -> Iterator[str]:
        table = self.table
        if table.is_drafting:
            written = f" {table.written} step{'s' * (table.written != 1)} so far," if table.written else ""
            yield f"planning{'...' if self._is_ascii else '…'}{written}"
            if table.running:
                yield f"{table.running} running,"
            if table.settled:
                yield f"{table.settled} ended,"
            yield f"{table.elapsed:.1f} s"
        else:
            yield f"{table.settled}/{table.steps} {table.elapsed:.1f} s"
            if table.status is None:
                yield f"{table.running} running"
                if table.failed:
                    yield f"{table.failed} failed"
        if table.is_replanning:
            yield "the planner is asked"
        if table.retries:
            yield f"{table.retries} retried"
        if words := spending_words(table.spent):
            yield ", ".join(words)


def _seconds(row: Row) -> str:
    return f"{row.seconds:.2f} s" if row.attempt else ""
