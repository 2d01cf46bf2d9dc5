"""All errors of dagrun, in one tree of classes; and `Problem`, a numbered fault of a plan."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from dagrun._lazy import lazy_names
from dagrun.problem_texts import FIXES, SENTENCES

__all__ = [
    "AgentStopped",
    "AnswerRefused",
    "CannotPlan",
    "CannotResume",
    "CasesRefused",
    "ContractError",
    "DagrunError",
    "ExecutorFailed",
    "FailureCause",
    "JournalDamaged",
    "JournalError",
    "JournalFailed",
    "MissingExtra",
    "ModelError",
    "NoRoute",
    "OverCeiling",
    "OwnerLost",
    "PlanRefused",
    "Problem",
    "QuestionNotFound",
    "RecordRefused",
    "RunExists",
    "RunFailed",
    "RunHeld",
    "RunNotFound",
    "SpliceRefused",
    "StepCancelled",
    "StepNotFound",
    "ToolError",
    "UnknownFormat",
    "UnknownTool",
    "ValueRefused",
    "ValueTooLarge",
    "WrongRecordKey",
]
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, {})  # says of a misspelt name which one was meant

# The longest text of an error, in characters. Without a limit, a plan with 100,000 faults prints 55 MB.
MAX_ERROR_TEXT = 4096


class _ShortRepr(reprlib.Repr):
    """Shows the beginning of texts, bytes and collections, whatever their size; other objects show themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 6
        self.maxother = 200

    def repr_str(self, x: str, level: int) -> str:
        return repr(x) if len(x) <= 110 else f"{x[:80]!r}… ({len(x)} characters)"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x) if len(x) <= 110 else f"{x[:80]!r}… ({len(x)} bytes)"


_SHORT: Final = _ShortRepr()


def hint(name: str, known: Iterable[str], cutoff: float = 0.6, places: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a "did you mean" for *name*, or an empty text if nothing is similar.

    Args:
        name: The unknown name.
        known: The known names.
        cutoff: The least similarity, from 0 to 1.
        places: Old names, each with its present one, which is suggested.
    """
    import difflib  # here: few runs have a misspelt name

    # A name of 10,000 characters is no misspelling, and comparing it takes too long.
    close = difflib.get_close_matches(name, [*known, *places], n=1, cutoff=cutoff) if len(name) <= 64 else []
    return f"; did you mean {places.get(close[0], close[0])}?" if close else ""


def short_repr(value: Any) -> str:
    """Return the repr of a dataclass in a few lines: each field is cut, and all of them together."""
    names = [each.name for each in fields(value) if each.repr]
    return fields_repr(value, [(name, getattr(value, name)) for name in names])


def fields_repr(value: object, shown: Iterable[tuple[str, Any]]) -> str:
    """Return the repr of an object with these fields, of at most 1,200 characters in one line."""
    parts = [f"{name}={shorten(_SHORT.repr(field), 300)}" for name, field in shown]
    return shorten(f"{type(value).__name__}({', '.join(parts)})", 1200)


class OldPolicyField(DeprecationWarning):
    """A field of a policy is named as in an earlier release; the command line prints it as a line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a plan or a patch.

    Attributes:
        code: A code such as ``DR104``, stable across releases.
        path: The place in the plan, such as ``steps[2].depends_on[0]``; empty for the whole plan.
        facts: The texts that the sentence is built from, by name.
    """

    code: str
    path: str
    facts: Mapping[str, str] = field(default_factory=dict)

    __repr__ = short_repr

    @property
    def is_advice(self) -> bool:
        """Whether a plan with this fault may run, unless the check is strict."""
        return self.code.startswith("DR9")

    @property
    def sentence(self) -> str:
        """The fault in words that a planner can act on, without its place."""
        return SENTENCES[self.code].format_map({k: shorten(v) for k, v in self.facts.items()})

    @property
    def fix(self) -> str:
        """The fix, for a finding about a tool; empty for other problems, whose sentence has it."""
        return FIXES.get(self.code, "")

    mend = fix  # its name in 0.2; removed in 0.4

    def __str__(self) -> str:
        place = f"{shorten(self.path)}: " if self.path else ""
        return f"{self.code} {place}{self.sentence}"

    def as_dict(self) -> dict[str, Any]:
        """Return the problem as plain JSON: code, path, message and facts."""
        return {"code": self.code, "path": self.path, "message": self.sentence, "facts": dict(self.facts)}


def shorten(text: str, limit: int = 200) -> str:
    """Return *text* as one line of at most *limit* characters, with its control characters escaped."""
    # The cut comes first: to escape a text of 100 MB and then drop most of it would take seconds.
    shown = visible(text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text)} characters)"


def first_lines(text: str, count: int = 3, limit: int = 200) -> str:
    """Return the first lines of *text* that are not empty, as one line of at most *limit* characters."""
    lines = [line.strip() for line in text[: 50 * limit].splitlines()]
    lines = [line for line in lines if line]
    return shorten("\n".join(lines[:count]) + (" …" if len(lines) > count else ""), limit)


def class_name(kind: type) -> str:
    """Return the name of a class with its top package, such as ``redis.ConnectionError``."""
    return f"{str(kind.__module__).partition('.')[0]}.{kind.__name__}"


def listing(title: str, lines: Iterable[str], most: int = 15) -> str:
    """Return *title* with one indented line of at most 110 characters below it for each of the first *most* lines."""
    found = iter(lines)
    shown = [shorten(line, 110) for line in islice(found, most)]
    rest = sum(1 for _ in found)
    more = [f"… and {rest} more"] if rest else []
    return "\n  ".join([title, *shown, *more])


def visible(text: str, keep: str = "") -> str:
    """Escape characters that steer a terminal or are invisible: controls, bidi marks, joiners, fillers, piled accents.

    Args:
        text: Any text.
        keep: Characters that stay as they are.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in keep else _escape(c) for c in text)
    return text if text.isascii() else _UNSEEN.sub(lambda match: _escape(match.group()), text)


# Characters that Python calls printable, but that nobody sees: blank letters and signs, and variation selectors. Also
# an accent on top of three others, which grows out of its line.
_ACCENT = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
    f"|(?<={_ACCENT * 3}){_ACCENT}"
)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def join_lines(lines: Iterable[str], limit: int = MAX_ERROR_TEXT, *, more: int = 0) -> str:
    """Join *lines* up to *limit* characters, and add how many were left out.

    Args:
        lines: The lines.
        limit: The longest text, in characters.
        more: Further lines, which are not in *lines*, and are only counted.
    """
    shown: list[str] = []
    left, hidden = limit - 40, more
    is_full = False
    for line in lines:
        left -= len(line) + 1
        is_full = is_full or left < 0
        if is_full:
            hidden += 1
        else:
            shown.append(line)
    return "\n".join(shown) + (f"\n… and {hidden} more" if hidden else "")


class DagrunError(Exception):
    """The base class of all errors that dagrun raises on purpose."""


class PlanRefused(DagrunError):
    """The plan has problems; nothing was run."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)  # in args, so that it pickles and copies

    def __str__(self) -> str:
        count = len(self.problems)
        # More problems than these never fit into the text, and to format them would take seconds.
        shown = self.problems[: MAX_ERROR_TEXT // 10]
        lines = [f"{count} problem{'s' * (count != 1)}:", *map(str, shown)]
        return join_lines(lines, more=count - len(shown))


class CasesRefused(DagrunError):
    """Files of golden tasks cannot be used; nothing was run.

    Attributes:
        faults: All faults, a line each: the file, the case, the place in it, and the fault.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)  # in args, so that it pickles and copies

    def __str__(self) -> str:
        return join_lines(self.faults)


class NoRoute(DagrunError, LookupError):
    """No route of a router fits a goal, and the router has no default.

    Attributes:
        goal: The goal.
        routes: The routes by name, each with the words that it looks for; if a function decides, with its description,
            or with nothing.
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
    """A planner cannot continue. Raise it in a planner instead of inventing steps.

    Attributes:
        reason: The reason, in a sentence.
        kind: ``cannot`` (the run has failed), ``person`` (people must take over), or ``ceiling`` (the planner has
            reached a limit of its own).
    """

    def __init__(self, reason: str, kind: str = "cannot") -> None:
        super().__init__(reason, kind)
        self.reason = reason
        self.kind = kind

    def __str__(self) -> str:
        return self.reason


class OverCeiling(DagrunError):
    """A model call was not made, because it does not fit under a ceiling of the run.

    Attributes:
        ceiling: The option of the tool whose ceiling it is, ``max_tokens`` or ``max_cost``; empty for one of the run.
    """

    ceiling: str = ""


class ModelError(DagrunError):
    """A language model gave no usable answer.

    Attributes:
        message: The reason, in a sentence.
        status: The status code of the HTTP response; `None` without a response.
        is_transient: Whether the same call may work later.
        retry_after: Seconds to wait before the next attempt; `None` if the server did not say.
        answer: What the model answered, if that could not be used; it is recorded with the failure.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        is_transient: bool = False,
        retry_after: float | None = None,
        answer: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.answer = answer
        self.status = status
        self.is_transient = is_transient
        self.retry_after = retry_after


class AgentStopped(DagrunError):
    """An agent tool ended without an answer after its first call with an effect; its outcome is unknown."""


class SpliceRefused(PlanRefused):
    """A patch has problems; the plan was not changed."""


class QuestionNotFound(DagrunError, LookupError):
    """An answer names a question that is not open: it was never asked, is already answered, or has become void."""


class AnswerRefused(DagrunError, ValueError):
    """An answer does not fit its question; the question stays open."""


class ContractError(DagrunError, TypeError):
    """The host program declared a tool, a toolbox or an option wrongly."""


class UnknownTool(DagrunError, LookupError):
    """The toolbox has no tool of this name."""


class StepNotFound(DagrunError, LookupError):
    """The run has no step of this id."""


class MissingExtra(DagrunError, ImportError):
    """A feature needs a package that is not in the base install."""


class ExecutorFailed(DagrunError, ConnectionError):
    """The place of an executor cannot be reached, or does not get ready; nothing was run there."""


class RunFailed(DagrunError):
    """A run did not succeed. Raised only on request, by ``raise_for_status``; and by `dagrun.draft` without a plan.

    Attributes:
        status: The status of the run, such as ``failed``.
        reason: The reason, in a sentence.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason

    def __str__(self) -> str:
        return f"the run ended as {self.status}: {self.reason}"


class FailureCause(DagrunError):
    """Replaces the exception behind a failure, where the exception itself is not chained.

    It was raised in a worker process or in an earlier process; or its text holds a secret or personal data.

    Attributes:
        type: The name of the class of the exception.
        message: The reason, in a sentence, redacted.
    """

    def __init__(self, type: str, message: str) -> None:
        super().__init__(type, message)
        self.type = type
        self.message = message

    def __str__(self) -> str:
        return self.message


class ToolError(DagrunError):
    """A tool failed, and its effect did not take place.

    Raise it in a tool only if the effect certainly did not take place: the step may then be tried again. After any
    other exception of an effectful tool, the outcome is unknown.

    Args:
        message: The reason, in a sentence.
        retryable: Whether the same call may work later (a busy server), or never will (a wrong name).
        retry_after: Seconds to wait before the next attempt; `None` if that is not known.
        missing_input: The name of an input that a person or a planner must provide.
        permission: Whether the caller lacks a permission, so that the same call will be refused again.
        unreachable: Whether something that the step needs can no longer be reached.
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
    """The base class of errors about the records of runs."""


class RunNotFound(JournalError, LookupError):
    """The journal has no such run."""


class RunExists(JournalError):
    """The journal already has a run of this name."""


class RunHeld(JournalError):
    """Another process holds the run: wait for it, stop it, or answer its questions, which needs no hold."""


class OwnerLost(JournalError):
    """Another process has taken over the run; this process must stop it."""


class JournalFailed(JournalError):
    """The journal cannot be read or written: the disk is full, the file is gone, or the server does not answer."""


class CannotResume(JournalError):
    """A run cannot be resumed or retried: because of its state, or because tools or policy differ from the record.

    Attributes:
        differences: The differences, a line each.
    """

    def __init__(self, message: str, differences: Iterable[str] = ()) -> None:
        self.message = message
        self.differences = tuple(differences)
        super().__init__(message, self.differences)

    def __str__(self) -> str:
        return join_lines((self.message, *(f"  {line}" for line in self.differences)))


class WrongRecordKey(JournalError):
    """The key of the host does not decrypt the record of a run."""


class JournalDamaged(JournalError):
    """A record of a run was changed, is missing, or has no known format.

    Attributes:
        run_id: The run.
        seq: The number of the first record that cannot be trusted; 0 if it is not known.
        reason: The reason, in a sentence.
    """

    def __init__(self, run_id: str, seq: int, reason: str) -> None:
        super().__init__(run_id, seq, reason)
        self.run_id = run_id
        self.seq = seq
        self.reason = reason

    def __str__(self) -> str:
        return f"the journal of run {shorten(self.run_id, 80)} is damaged at record {self.seq}: {self.reason}"


class RecordRefused(JournalError, ValueError):
    """A text is not a record that dagrun writes.

    Attributes:
        reason: The reason, in a sentence.
        place: The field with the fault, such as ``outcome.state``; empty for the whole record.
    """

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(reason, place)  # in args, so that it pickles and copies
        self.reason = reason
        self.place = place

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason


class UnknownFormat(RecordRefused):
    """A record has a format that this release does not know: a later release wrote it."""


class StepCancelled(DagrunError):
    """Raised by ``ToolContext.check_cancelled`` in a step that was cancelled."""


class ValueRefused(DagrunError, ValueError):
    """A value cannot be passed between steps: it is not JSON, too large, too deep, or not of the declared type."""


class ValueTooLarge(ValueRefused):
    """A value takes more bytes of JSON than its limit allows."""


def _tool_error(cls: type[ToolError], message: str, fields: dict[str, Any]) -> ToolError:
    error = cls(message)
    vars(error).update(fields)
    return error
