"""Every error of dagrun, in one tree, and the numbered problems of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagrun.problem_texts import SENTENCES

# The longest text of an error, in characters: a plan with 100,000 faults must not print 55 MB.
MAX_ERROR_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a plan or a patch.

    Attributes:
        code: Such as ``DR104``; stable across releases.
        path: Where in the plan, such as ``steps[2].depends_on[0]``; empty for the whole.
        facts: What the sentence is built from, as text.
    """

    code: str
    path: str
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_advice(self) -> bool:
        """Whether a plan with this fault still runs (unless the check is strict)."""
        return self.code.startswith("DR9")

    @property
    def sentence(self) -> str:
        """The fault in words that a planner can act on, without the place."""
        return SENTENCES[self.code].format_map({k: shorten(v) for k, v in self.facts.items()})

    def __str__(self) -> str:
        place = f"{shorten(self.path)}: " if self.path else ""
        return f"{self.code} {place}{self.sentence}"

    def as_dict(self) -> dict[str, Any]:
        """The problem as plain JSON: code, path, message and facts."""
        return {"code": self.code, "path": self.path, "message": self.sentence, "facts": dict(self.facts)}


def shorten(text: str, limit: int = 200) -> str:
    """Make *text* fit for one line of at most *limit* characters, control characters escaped."""
    # The cut comes first: escaping a text of 100 MB only to throw it away would take seconds.
    shown = visible(text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text)} characters)"


def visible(text: str, keep: str = "") -> str:
    """Escape what steers a terminal, and what nobody sees: controls, bidi marks, joiners, fillers, heaps of accents.

    Args:
        text: Any text.
        keep: Characters to leave as they are.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)
    return text if text.isascii() else _UNSEEN.sub(lambda match: _escape(match.group()), text)


# What Python calls printable and yet shows nothing: letters and signs that are blank, variation selectors, and accents
# on top of three others, which grow out of their line.
_ACCENT = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
    f"|(?<={_ACCENT * 3}){_ACCENT}"
)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def join_lines(lines: Iterable[str], limit: int = MAX_ERROR_TEXT, *, more: int = 0) -> str:
    """Join *lines*, and count what does not fit into *limit* characters, and *more* that nobody has written."""
    kept: list[str] = []
    left, hidden = limit - 40, more
    is_full = False
    for line in lines:
        left -= len(line) + 1
        is_full = is_full or left < 0
        if is_full:
            hidden += 1
        else:
            kept.append(line)
    return "\n".join(kept) + (f"\n… and {hidden} more" if hidden else "")


class DagrunError(Exception):
    """The root of everything that dagrun raises on purpose."""


class PlanRefused(DagrunError):
    """The plan has problems; nothing was run."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)  # in args, so that it pickles and copies

    def __str__(self) -> str:
        count = len(self.problems)
        # More than these never fit, and to write them would take seconds.
        shown = self.problems[: MAX_ERROR_TEXT // 10]
        lines = [f"{count} problem{'s' * (count != 1)}:", *map(str, shown)]
        return join_lines(lines, more=count - len(shown))


class NoRoute(DagrunError, LookupError):
    """No route of a router fits a goal, and it has no default.

    Attributes:
        goal: What was asked for.
        routes: The routes by name, each with the words that it looks for; none if a function decides.
    """

    def __init__(self, goal: str, routes: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(goal, routes)  # in args, so that it pickles and copies
        self.goal = goal
        self.routes = routes

    def __str__(self) -> str:
        lines = [f"no route fits the goal '{shorten(self.goal)}'; name one in the goal, or give a default route:"]
        for name, words in self.routes.items():
            lines.append(shorten(f"{name}: {', '.join(words) or 'decided by a function'}"))
        return join_lines(lines)


class CannotPlan(DagrunError):
    """A planner says that it cannot go on; raise it in a planner rather than to invent steps.

    Attributes:
        reason: Why, in a sentence.
        kind: ``cannot`` (the run has failed), ``person`` (people must take over), or ``ceiling`` (a limit of the
            planner itself is reached).
    """

    def __init__(self, reason: str, kind: str = "cannot") -> None:
        super().__init__(reason, kind)
        self.reason = reason
        self.kind = kind

    def __str__(self) -> str:
        return self.reason


class OverCeiling(DagrunError):
    """A call of a model does not fit under a ceiling of the run; it was not made."""


class ModelError(DagrunError):
    """A language model gave no answer that can be used.

    Attributes:
        message: Why, in a sentence.
        status: The status of the HTTP answer, if there was one.
        is_transient: Whether the same call may work later.
        retry_after: Seconds before which another attempt makes no sense.
    """

    def __init__(
        self, message: str, *, status: int | None = None, is_transient: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.is_transient = is_transient
        self.retry_after = retry_after


class AgentStopped(DagrunError):
    """An agent tool ended without an answer after it had begun to change the world; its outcome is unknown."""


class SpliceRefused(PlanRefused):
    """A patch has problems; the plan is as it was."""


class QuestionNotFound(DagrunError, LookupError):
    """A question was answered that is not open: it was never asked, or has been answered, or has become void."""


class AnswerRefused(DagrunError, ValueError):
    """An answer does not fit its question; the question is still open."""


class ContractError(DagrunError, TypeError):
    """A tool, a toolbox or an option was declared wrongly by the host program."""


class UnknownTool(DagrunError, LookupError):
    """A tool was asked for by a name that the toolbox does not have."""


class StepNotFound(DagrunError, LookupError):
    """A step was asked for by an id that the run does not have."""


class MissingExtra(DagrunError, ImportError):
    """Something that is not in the base install was asked for."""


class RunFailed(DagrunError):
    """A run did not succeed; raised only where the caller asks for it.

    Attributes:
        status: The status of the run, such as ``failed``.
        reason: Why, in one sentence.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason

    def __str__(self) -> str:
        return f"the run ended as {self.status}: {self.reason}"


class ToolError(DagrunError):
    """A tool says that it failed and that nothing happened outside.

    Raise it in a tool only when the effect surely did not take place: the step may then be tried again. Any
    other exception out of an effectful tool leaves its outcome unknown.

    Args:
        message: What went wrong, in a sentence.
        retryable: Whether the same call may work later (a busy server), or never will (a wrong name).
        retry_after: Seconds before which another attempt makes no sense.
        missing_input: The name of an input that a person or a planner would have to give.
        permission: The caller is not allowed to; asking again changes nothing.
        unreachable: The thing that the step needs cannot be reached at all any more.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        missing_input: str | None = None,
        permission: bool = False,
        unreachable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable
        self.retry_after = retry_after
        self.missing_input = missing_input
        self.permission = permission
        self.unreachable = unreachable

    def __reduce__(self) -> tuple[Any, ...]:
        return (_tool_error, (type(self), self.message, {k: v for k, v in vars(self).items() if k != "message"}))


class JournalError(DagrunError):
    """Something about the records of runs."""


class RunNotFound(JournalError, LookupError):
    """The journal has no such run."""


class RunExists(JournalError):
    """The journal has a run of this name already."""


class RunHeld(JournalError):
    """Another process holds the run."""


class OwnerLost(JournalError):
    """Another process has taken the run over; this one must stop."""


class JournalFailed(JournalError):
    """The journal cannot be written or read: the disk is full, the file is gone, the server does not answer."""


class CannotResume(JournalError):
    """A run cannot go on as it is: it has ended, or what it needs differs from what was recorded.

    Attributes:
        differences: What differs, a line each.
    """

    def __init__(self, message: str, differences: Iterable[str] = ()) -> None:
        self.message = message
        self.differences = tuple(differences)
        super().__init__(message, self.differences)

    def __str__(self) -> str:
        return join_lines((self.message, *(f"  {line}" for line in self.differences)))


class JournalDamaged(JournalError):
    """Records are not what was written: one was changed, is missing, or has no known format.

    Attributes:
        run_id: Of the run.
        seq: The first record that cannot be trusted; 0 if it cannot be said.
        reason: In a sentence.
    """

    def __init__(self, run_id: str, seq: int, reason: str) -> None:
        super().__init__(run_id, seq, reason)
        self.run_id = run_id
        self.seq = seq
        self.reason = reason

    def __str__(self) -> str:
        return f"the journal of run {shorten(self.run_id, 80)} is damaged at record {self.seq}: {self.reason}"


class RecordRefused(JournalError, ValueError):
    """A text is no record: not what dagrun writes.

    Attributes:
        reason: In a sentence.
        place: The field that it is about, such as ``outcome.state``; empty for the whole.
    """

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(reason, place)  # in args, so that it pickles and copies
        self.reason = reason
        self.place = place

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason


class UnknownFormat(RecordRefused):
    """A record is of a format that this release does not know: a later one has written it."""


class StepCancelled(DagrunError):
    """Raised by ``ToolContext.check_cancelled`` in a step that was asked to stop."""


class ValueRefused(DagrunError, ValueError):
    """A value cannot travel between steps: not JSON, too large, too deep, or not of the declared type."""


def _tool_error(cls: type[ToolError], message: str, fields: dict[str, Any]) -> ToolError:
    error = cls(message)
    vars(error).update(fields)
    return error
