"""The largest runs that the page accepts: larger ones are refused with a sentence, so that no record can hang a server.

The values of steps are not in a view, and a drawing has a bounded number of boxes and edges. So what is left to bound
is what is told of each step, change and question.
"""

from __future__ import annotations

from typing import Final

from dagrun.errors import JournalError
from dagrun.graph.live_graph import LiveGraph

MOST_STEPS: Final = 100_000
MOST_REVISIONS: Final = 2_000
MOST_BYTES: Final = 128 << 20  # of a view as JSON
MOST_RECORDS: Final = 2_000_000
DRAWN_AT_ONCE: Final = 100  # steps: a larger graph is drawn in a thread; a smaller one takes a few milliseconds
DRAWN_AT_THE_END: Final = 1_000  # steps: the last drawing of a larger run is made only if a reader asks for it
IN_A_THREAD: Final = 2_000  # steps: the view of a larger run on record is made in a thread


class RunTooLarge(JournalError):
    """A run is too large for the page.

    Attributes:
        what: What there is too much of.
        count: How much there is.
        most: How much the page shows.
    """

    def __init__(self, what: str, count: int, most: int) -> None:
        super().__init__(what, count, most)
        self.what = what
        self.count = count
        self.most = most

    def __str__(self) -> str:
        """Return the excess in a sentence, with a remedy."""
        return f"this run has {self.count:,} {self.what}, and the page shows at most {self.most:,}: dagrun inspect"


def check_records(count: int) -> None:
    """Refuse a record that would take too long to read.

    Raises:
        RunTooLarge: It has too many records.
    """
    _check(count, MOST_RECORDS, "records")


def check_graph(graph: LiveGraph) -> None:
    """Refuse a run whose view would take too long to make.

    Raises:
        RunTooLarge: It has too many steps or changes of the plan.
    """
    _check(len(graph.nodes), MOST_STEPS, "steps")
    _check(len(graph.revisions), MOST_REVISIONS, "changes of the plan")


def check_view(text: bytes) -> bytes:
    """Return a view as JSON, unless it is too large for a browser.

    Raises:
        RunTooLarge: It is.
    """
    _check(len(text), MOST_BYTES, "bytes of texts")
    return text


def _check(count: int, most: int, what: str) -> None:
    if count > most:
        raise RunTooLarge(what, count, most)
