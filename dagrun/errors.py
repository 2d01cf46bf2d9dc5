"""Every error of dagrun, in one tree, and the numbered problems of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# The longest text of an error, in characters: a plan with 100,000 faults must not print 55 MB.
MAX_ERROR_TEXT = 4096

SENTENCES: Mapping[str, str] = {
    # Reading: the bytes, before there is a plan.
    "DR001": "cannot read {file}: {reason}",
    "DR002": "{file} is not text: {reason}",
    "DR003": "broken {syntax} at line {line}, column {column}: {reason}",
    "DR004": "{reason}; plans use JSON's scalars, without anchors, aliases or tags",
    "DR005": "the plan has {size} bytes, the ceiling is {limit}",
    "DR006": "nested deeper than {limit} levels",
    "DR007": "the key {key} stands twice in one object",
    "DR008": "{number} is not a number that a plan may hold (no NaN, no infinity, at most {limit} digits)",
    "DR009": "expected {expected}, got {found}",
    "DR010": "unknown field {field}{hint}",
    "DR011": "the field {field} is missing",
    "DR012": "{reason}, got {found}",
    "DR013": "the text holds {reason}, which cannot be stored",
    "DR014": "its author refuses to plan: {reason}",
    # Structure: steps and what they wait for.
    "DR101": "{id} is not a step id: use 1 to 48 of the letters A-Z, a-z, digits, '_' and '-'",
    "DR102": "the id {id} is taken by {first}",
    "DR103": "the id {id} differs from {other} in nothing but upper and lower case",
    "DR104": "step {step} depends on {dependency}, which is not in the plan{hint}",
    "DR105": "step {step} depends on itself",
    "DR106": "these steps wait for each other: {cycle}",
    "DR107": "step {step} names the dependency {dependency} twice",
    "DR108": "the plan has {count} steps, the ceiling is {limit}",
    "DR109": "step {step} has {count} dependencies, the ceiling is {limit}",
    "DR110": "{id} is reserved: {meaning}",
    "DR111": "the plan has no steps",
    "DR112": "step {step}: {reason}",
    # Tools and their arguments.
    "DR201": "step {step} calls {tool}, which is not a known tool{hint}",
    "DR202": "step {step} calls {tool}, which this run does not allow",
    "DR203": "step {step} leaves out {argument}, which {tool} requires ({type})",
    "DR204": "step {step} passes {argument}, which {tool} does not take{hint}",
    "DR205": "step {step} passes {argument} to {tool}: {reason}, got {found}",
    "DR206": "step {step} passes {argument} to {tool}: that one is filled in by the runtime, never by a plan",
    "DR207": "the fallback {fallback} of step {step} does not fit: {reason}",
    "DR208": "step {step} runs {tool} in a worker process, which cannot import it: {reason}",
    # References and conditions.
    "DR301": "{text} is not a reference: {reason}",
    "DR302": "step {step} refers to {reference}, which is not in the plan{hint}",
    "DR303": "step {step} refers to {reference}, but the output of {tool} has no {field}{hint}",
    "DR304": "step {step} passes {reference} as {argument}: {tool} takes {expected}, {producer} gives {found}",
    "DR305": "step {step} refers to its own output in {place}",
    "DR306": "step {step} refers to {reference}, but the run has no such input{hint}",
    "DR307": "step {step} refers to {reference}, which exists only in the arguments of a step with for_each",
    "DR308": "{reason}",
    "DR309": "for_each of step {step} must be a list or a reference to one: {reason}",
    "DR311": "the plan's output refers to {reference}, which is not in the plan{hint}",
    "DR312": "the plan's output refers to {reference}, but the output of {tool} has no {field}{hint}",
    # Patches: edits of a plan that is being carried out.
    "DR401": "{id} is not in the plan{hint}",
    "DR402": "the id {id} was used in this run before; an id is never used twice, so choose another",
    "DR403": "step {step} has {state}, and what is done cannot be changed",
    "DR404": "step {step} {reason}, and keeps its definition; it can be dropped or replaced",
    "DR405": "step {step} runs {tool}, whose effect cannot be taken back; with cancel: true it is stopped all the same",
    "DR406": "step {step} still needs {dependency}, which the patch drops; rewire or drop it too",
    "DR407": "step {step} would wait for {dependency}, which gives nothing any more: it {state}",
    "DR408": "the patch is stale: it was made from revision {base}, and since then {steps} changed",
    "DR409": "the patch has {count} edits, the ceiling is {limit}",
    "DR410": "step {step} is edited twice; one edit must say all",
    "DR411": "step {step} asks a person less often than {old} did ({why})",
    "DR412": "step {step}: {reason}; a patch cannot raise a ceiling",
    "DR413": "the run would have {count} steps, the ceiling is {limit}",
    "DR414": "the patch changes nothing",
    "DR415": "the patch was made from revision {base}, and the plan is at revision {revision}",
    "DR416": "the plan's output refers to {step}, which the patch drops; give the patch an output of its own",
    "DR417": "the run has ended, or is being stopped",
    "DR418": "{old} may have taken effect, so {step} must be the very same call of {tool}, or one that only looks",
    "DR419": "the same patch was tried before",
    "DR420": "the planner's answer is no patch: {reason}",
    "DR421": "the answer broke off: {reason}",
    "DR422": "the planner gives its plan a confidence of {confidence}, and at least {least} is wanted",
    # Advice: the plan runs, but look.
    "DR901": "step {step} depends on {dependency} but uses nothing of it",
    "DR902": "steps {steps} make the same call of {tool}; one would do",
    "DR910": "step {step} calls {tool}, which changes the outside world, and nobody said whether it needs approval",
    "DR911": "step {step} has no time limit: neither the step, nor {tool}, nor the policy names one",
    "DR912": "step {step} calls {tool}, which reaches outside: no fallback and no on_failure say what happens then",
    "DR913": "the policy limits the {kind} {name}, which is not known here{hint}",
    "DR914": "the ceiling of {ceiling} does not bind {tool}: it names no {field}",
    "DR915": "nobody has answered: {question}",
    "DR990": "there is more of the kind of {code}; only the first {limit} are listed",
}


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


class StepCancelled(DagrunError):
    """Raised by ``ToolContext.check_cancelled`` in a step that was asked to stop."""


class ValueRefused(DagrunError, ValueError):
    """A value cannot travel between steps: not JSON, too large, too deep, or not of the declared type."""


def _tool_error(cls: type[ToolError], message: str, fields: dict[str, Any]) -> ToolError:
    error = cls(message)
    vars(error).update(fields)
    return error
