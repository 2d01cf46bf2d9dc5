"""Questions to people: when one is asked, its text, which answers fit, and how long a run has only waited for them.

No time limit includes the time in which a run has only waited for people. It is found from the record:

1. A question is open, and nothing else goes on: no call, no review, no planner. A call whose tool asks in its middle
   does not go on meanwhile.
2. A tool that is asked whether its call took effect goes on, until its "no" would count.
3. The delay before another attempt belongs to it, if a question is open then.
4. So it is the same for a run that was resumed, and for one that is looked at later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dagrun.errors import ValueRefused, shorten
from dagrun.kernel.checks.check_context import lowest_limit
from dagrun.kernel.checks.checked_plan import Ask
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.received import ReceivedArguments
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.event import PlannerAsked, PlannerCalled, QuestionAnswered, QuestionAsked, RunResumed
from dagrun.kernel.model.outcome import Outcome, Recovery, State
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.question import Answer, Asked, Question
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR, Redactor
from dagrun.kernel.model.reference import Condition, ConditionMismatch, holds
from dagrun.kernel.model.value import decode, describe, encode, store_text

if TYPE_CHECKING:
    from dagrun.kernel.graph.confidence import Said

# A yes to these is valid for every attempt of the same call; to any other question, for that question alone.


_LASTING: Final = frozenset((Asked.APPROVAL, Asked.PAUSE))
_MAX_POINTS: Final = 20
# Silence cannot stand for an answer to these: only a person knows it.
_NO_DEFAULT: Final = frozenset((Asked.EFFECT, Asked.INPUT))


class Questions:
    """Makes the questions of one run.

    Args:
        run_id: The id of the run.
        policy: How long people have to answer, and the default answer.
        redactor: Removes secrets from the texts.
    """

    def __init__(self, run_id: str, policy: Policy, redactor: Redactor = DEFAULT_REDACTOR) -> None:
        self._run_id = run_id
        self._redactor = redactor
        self._policy = policy

    def for_call(self, node: Node, asks: Sequence[Ask], arguments: ReceivedArguments, at: float) -> Question:
        """Ask whether this call may be made; *asks* are the reasons that apply to it."""
        rules = [ask.rule for ask in asks if ask.rule is not None]
        return self._make(
            Asked.APPROVAL,
            f"May step {node.id} call {node.tool.name}?",
            node,
            at=at,
            arguments=arguments.shown,
            valid_for=arguments.data.decode(),
            silence=silence_of(asks, self._policy),
            why="; ".join(ask.why for ask in asks),
            checklist=tuple(dict.fromkeys(point for rule in rules for point in rule.checklist)),
        )

    def for_pause(self, node: Node, at: float) -> Question:
        """Ask whether the run may continue at the pause of *node*."""
        when = "before what depends on it" if node.state.is_settled else "before it starts"
        return self._make(Asked.PAUSE, f"Step {node.id} pauses {when}. Continue?", node, at=at, why=f"pause: {when}")

    def for_failure(self, node: Node, outcome: Outcome, at: float) -> Question:
        """Ask a person about a failed attempt: whether it took effect, or for an input or a permission."""
        failure, last = outcome.failure, node.attempts[-1].tool
        why = failure.message if failure is not None else ""
        if outcome.state is State.UNKNOWN or node.is_gone:
            again = "" if node.is_gone else ", so it is called again"
            text = (
                f"Did the call of {last} by step {node.id} take effect? Answer took_effect, with its output if it has"
                f" one; did_not{again}; or unknown."
            )
            within = self._policy.questions.answer_within
            # People have their time from the moment when the tool can no longer settle it.
            silence = (None if within is None else within + seconds_until_no_counts(node), "deny")
            schema = dict(node.called(last).output.schema) or None
            return self._make(Asked.EFFECT, text, node, at=at, why=why, silence=silence, schema=schema)
        name = failure.missing_input if failure is not None else None
        if name is not None:
            schema = dict(node.tool.arguments.property_schema(name))
            return self._make(
                Asked.INPUT, f"Step {node.id} needs {name}.", node, at=at, why=why, name=name, schema=schema
            )
        text = f"Step {node.id} was not allowed to call {last}. Try again?"
        return self._make(Asked.PERMISSION, text, node, at=at, why=why)

    def for_value(
        self, node: Node, text: str, schema: Mapping[str, Any] | None, about: bytes, *, at: float, number: int
    ) -> Question:
        """Ask the question of a tool in the middle of its call.

        After a crash, the call that is made again asks the very same question: an answer on its way still fits.

        Args:
            node: The step.
            text: The question.
            schema: The JSON Schema of the answer.
            about: JSON text, or empty.
            at: Seconds since the start of the run.
            number: How many questions of this call were answered before, or are open.
        """
        ended = sum(attempt.outcome is not None and not attempt.outcome.was_cut_off for attempt in node.attempts)
        place = f"{node.id} {ended} {number}"
        return self._make(Asked.INPUT, text, node, at=at, arguments=about, schema=schema, place=place)

    def for_patch(self, text: str, diff: tuple[str, ...], revision: int, at: float) -> Question:
        """Ask for the approval of a change of the plan, given by *diff*, at *revision*."""
        return self._make(Asked.PATCH, text, None, at=at, valid_for=f"{revision}\n" + "\n".join(diff), diff=diff)

    def for_plan(self, text: str, why: str, schema: Mapping[str, Any], revision: int, at: float) -> Question:
        """Ask for a plan, or for a change of the plan, which is at *revision*."""
        return self._make(Asked.INPUT, text, None, at=at, valid_for=f"{revision}\n{why}", why=why, schema=schema)

    def for_output(self, arguments: bytes, at: float, doubts: Sequence[Said] = (), did: Sequence[str] = ()) -> Question:
        """Ask whether the run may hand out its answer.

        Args:
            arguments: The answer, as it is shown.
            at: Seconds since the start of the run.
            doubts: The confidences that are too low; each becomes a point that a person ticks.
            did: What each step did, line by line; shown where there are doubts.
        """
        text = "May the run hand out its answer?"
        if not doubts:
            return self._make(Asked.OUTPUT, text, None, at=at, arguments=arguments)
        shown, lowest = self._redactor.text, doubts[0]
        points = [
            f"{said.step} is right ({said.who}: confidence {said.value:g}{': ' if said.reason else ''}{said.reason})"
            for said in doubts
        ]
        why = f"its confidence is {lowest.value:g}, and at least {self._policy.min_confidence:g} is wanted"
        return self._make(
            Asked.OUTPUT,
            text,
            None,
            at=at,
            arguments=arguments,
            why=why,
            silence=(self._policy.questions.answer_within, "deny"),  # silence ticks no points
            checklist=tuple(dict.fromkeys(shorten(shown(point), 300) for point in points[:_MAX_POINTS])),
            transcript=tuple(did),
        )

    def _make(
        self,
        kind: Asked,
        text: str,
        node: Node | None,
        *,
        at: float,
        arguments: bytes = b"",
        silence: tuple[float | None, str] | None = None,
        valid_for: str = "",
        why: str = "",
        diff: tuple[str, ...] = (),
        place: str = "",
        **facts: Any,
    ) -> Question:
        shown = self._redactor
        within, choice = silence or (self._policy.questions.answer_within, self._policy.questions.default_answer)
        return Question(
            id=self._id(kind, text, node, valid_for or arguments.decode(), place),
            kind=kind,
            text=shown.text(text),
            step="" if node is None else node.id,
            tool="" if node is None else node.tool.name,
            effect="" if node is None else str(node.tool.effect),
            # The arguments of a call are an object, and kept as they are; other values may be of any type.
            arguments=shown.stored(
                arguments if kind is Asked.APPROVAL else store_text(arguments) if arguments else None
            ),
            why=shown.text(why),
            diff=tuple(map(shown.text, diff)),
            asked_at=at,
            deadline=None if within is None else at + within,
            default=None if within is None else _default_of(kind, choice),
            **{name: self._clean(fact) for name, fact in facts.items()},
        )

    def _clean(self, fact: Any) -> Any:
        """Redact a name, a list of texts, or a JSON Schema: an MCP server may put values of a call into one."""
        shown = self._redactor
        return tuple(map(shown.text, fact)) if type(fact) is tuple else shown.value(fact, hides_names=False)

    def _id(self, kind: Asked, text: str, node: Node | None, valid_for: str, place: str) -> str:
        """Return a hash of all that an answer is valid for; if any of it changes, it is another question."""
        definition = tool = ""
        if node is not None:
            asked = node.extra.asked if node.extra is not None else 0
            # Without the count, a second click on "it did not take effect" would answer the next question, too.
            place = place or (node.id if kind in _LASTING else f"{node.id} {asked}")
            definition = node.plan.step.model_dump_json(exclude_unset=True, by_alias=True)
            tool = f"{node.tool.name} {node.tool.version}"
        facts = [self._run_id, str(kind), place, definition, tool, valid_for, text]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


_LEAST_UNTIL_NO: Final = 30.0  # seconds


def seconds_until_no_counts(node: Node) -> float:
    """Return the seconds after the cut of the last call of *node* before its tool is believed that it had no effect.

    Closing a connection stops few servers, so a "no" before that may only be early. 0 if the tool has no *reconcile*.
    """
    tool = node.called(node.attempts[-1].tool)
    if tool.reconcile is None:
        return 0.0
    if tool.reconcile_after is not None:
        return tool.reconcile_after
    limit = lowest_limit(node.plan.timeout, tool.timeout, node.plan.step.deadline) or 0.0
    return max(2 * limit, _LEAST_UNTIL_NO)


def reasons_before_call(node: Node) -> tuple[Ask, ...]:
    """Return every reason for which the next call of *node* may need a person's approval.

    This is the gate of each call, by whichever way its step has come into the graph.
    """
    asks = node.plan.fallback_asks if node.on_fallback else node.plan.asks
    noted = node.parent.extra if node.is_defined_by_parent and node.parent is not None else node.extra
    if noted is None or not noted.guards or node.tool.effect.is_free:
        return asks
    return (*asks, Ask(noted.guards))


def reasons_to_ask(asks: Iterable[Ask], arguments: ReceivedArguments) -> list[Ask]:
    """Return the reasons that apply to a call with these arguments, in one of their forms.

    A rule whose condition cannot be evaluated, for example because a field is missing, applies.
    """
    reasons = []
    for ask in asks:
        if ask.rule is not None and ask.rule.when is not None and not _holds(ask.rule.when, arguments):
            continue
        if ask.crossing is not None and ask.crossing.is_excused(arguments.forms):
            continue
        reasons.append(ask)
    return reasons


def _holds(condition: Condition, arguments: ReceivedArguments) -> bool:
    for form in arguments.forms:
        try:
            if holds(condition, lambda reference, form=form: arguments.at(form, reference.path)):  # type: ignore[misc]
                return True
        except ConditionMismatch:
            return True
    return False


def silence_of(asks: Iterable[Ask], policy: Policy) -> tuple[float | None, str]:
    """Return when, and as which answer, silence counts for a call with these reasons to ask.

    Each reason has its own time and default. A single no decides, so the earliest no counts; a yes needs all reasons. A
    reason with a checklist never counts as yes, because silence ticks no points; nor does one of the trust boundary.

    Returns:
        The seconds until silence counts, `None` for never; and ``approve`` or ``deny``.
    """
    silences, usual = [], policy.questions
    for ask in asks:
        rule = ask.rule
        within = usual.answer_within if rule is None or rule.answer_within is None else rule.answer_within
        choice = usual.default_answer if rule is None or rule.default_answer is None else rule.default_answer
        is_explicit = ask.crossing is not None or (rule is not None and bool(rule.checklist))
        silences.append((within, "deny" if is_explicit else choice))
    refusals = [within for within, choice in silences if choice == "deny" and within is not None]
    if refusals:
        return min(refusals), "deny"
    times = [within for within, _ in silences if within is not None]
    if len(times) < len(silences) or any(choice == "deny" for _, choice in silences):
        return None, "deny"
    return max(times, default=None), "approve"


def _default_of(kind: Asked, choice: str) -> Answer | None:
    return None if kind in _NO_DEFAULT else Answer("approve" if choice == "approve" else "deny")


def may_help(node: Node, outcome: Outcome, most: int) -> bool:
    """Whether a person can still help after the last attempt of *node*.

    The questions about one failure are limited, or an approver that always says yes would keep a run from ending. A
    missing input must be an argument of the tool.

    Args:
        node: The step.
        outcome: The outcome of its last attempt.
        most: The most questions about the same failure.
    """
    failure = outcome.failure
    missing = failure.missing_input if failure is not None else None
    if missing is not None and missing not in node.tool.arguments.names:
        return False
    same = [
        attempt
        for attempt in node.attempts[:-1]
        if attempt.decision is not None
        and attempt.decision.recovery is Recovery.ASK
        and attempt.outcome is not None
        and _is_alike(attempt.outcome, outcome)
    ]
    return len(same) < most


def _is_alike(one: Outcome, other: Outcome) -> bool:
    if State.UNKNOWN in (one.state, other.state):
        return one.state is other.state
    facts = [(f.kind, f.missing_input) for f in (one.failure, other.failure) if f is not None]
    return len(facts) == 2 and facts[0] == facts[1]


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def fault_of(question: Question, answer: Answer) -> str:
    """Return why *answer* does not fit *question*; empty if it does. Its fields may hold anything: hosts fill them."""
    if answer.choice not in question.choices:
        return f"the choice is one of {', '.join(question.choices)}, not {shorten(repr(answer.choice), 60)}"
    texts = (answer.by, answer.note)
    ticked: Any = answer.ticked  # a plain text would tick every point that it contains
    if not isinstance(ticked, tuple | list) or not all(isinstance(text, str) for text in (*texts, *ticked)):
        return "by and note are texts, and ticked is a tuple of texts"
    try:
        encode([*texts, *ticked])
        value = decode(encode(answer.value))
    except ValueRefused as error:
        return f"it cannot be kept: {error}"
    if answer.choice == "took_effect" and value is not None and question.schema is not None:
        return type_fault(question.schema, value)
    if answer.choice != "approve":
        return ""
    missing = [point for point in question.checklist if point not in answer.ticked]
    if missing:
        return f"these points are not ticked: {'; '.join(missing)}"
    if question.kind is Asked.INPUT and question.schema is not None:
        return type_fault(question.schema, value)
    return ""


def kept(answer: Answer) -> Answer:
    """Return a copy of *answer* that shares no value with it."""
    return replace(answer, value=decode(encode(answer.value)), ticked=tuple(answer.ticked))


def type_fault(schema: Mapping[str, Any], value: Any) -> str:
    """Return why *value* does not fit the type or the enum at the top of a JSON schema; empty if it fits."""
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        faults = [type_fault(choice, value) for choice in choices if isinstance(choice, Mapping)]
        if faults and all(faults):
            return " or ".join(dict.fromkeys(faults))
    known = schema.get("enum")
    if isinstance(known, list) and not any(type(value) is type(one) and value == one for one in known):
        return f"the value must be one of {shorten(json.dumps(known, ensure_ascii=False))}"
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list | tuple) or not names or any(_is_of_type(value, name) for name in names):
        return ""
    return f"the value must be of type {' or '.join(map(str, names))}, got {describe(value)}"


def _is_of_type(value: Any, name: object) -> bool:
    known = _TYPES.get(name) if isinstance(name, str) else None
    if isinstance(value, bool):
        return known is None or name == "boolean"
    return known is None or isinstance(value, known)


def refuse_batch(questions: Iterable[Question], answer: Answer) -> str:
    """Return why one answer must not be used for all of *questions*; empty if it may.

    Calls with effects are agreed to one by one, by a person who has looked at each.
    """
    asked = list(questions)
    if len(asked) < 2 or answer.choice != "approve":
        return ""
    single = [q.step for q in asked if q.effect == Effect.EFFECTFUL or q.checklist or q.kind is not Asked.APPROVAL]
    return f"these must be answered one by one: {', '.join(single)}" if single else ""


_Change: TypeAlias = tuple[float, int, int]  # when, how much more goes on, and how many more questions are open


def only_waiting(graph: LiveGraph, now: float) -> tuple[float, bool]:
    """Return for how long a run has only waited for people, in seconds, and whether it does so now.

    Args:
        graph: The run.
        now: Seconds since its start.
    """
    waited, last, going_on, asked = 0.0, 0.0, 0, 0
    for at, more, opened in sorted(change for change in _changes(graph) if change[0] <= now):
        waited += at - last if asked > 0 and going_on <= 0 else 0.0
        last, going_on, asked = at, going_on + more, asked + opened
    is_waiting = asked > 0 and going_on <= 0
    return waited + (now - last if is_waiting else 0.0), is_waiting


def _changes(graph: LiveGraph) -> Iterator[_Change]:
    calls = [one for one in graph.nodes.values() if one.children is None]
    for node, attempt in [(one, attempt) for one in calls for attempt in one.attempts]:
        yield attempt.started, 1, 0
        if attempt.ended is not None and not (attempt is node.latest and node.is_under_review):
            yield attempt.ended, -1, 0
    asked: dict[str, tuple[int, float]] = {}  # how much more goes on while it is open, and until when at most
    planning = 0
    for event in graph.rare:
        match event:
            case QuestionAsked(question=question):
                more, seconds = _meanwhile(graph, question)
                asked[question.id] = more, event.at + seconds
                yield event.at, more, 1
            case QuestionAnswered():
                more, until = asked.pop(event.question, (0, inf))
                yield min(event.at, until), -more, 0
                yield event.at, 0, -1
            case PlannerAsked():
                planning += 1
                yield event.at, 1, 0
            case PlannerCalled():
                planning -= 1
                yield event.at, -1, 0
            case RunResumed():  # a call of the planner that was cut off has no end on record
                yield event.at, -planning, 0
                planning = 0
    yield from ((until, -more, 0) for more, until in asked.values())


def _meanwhile(graph: LiveGraph, question: Question) -> tuple[int, float]:
    if question.kind is Asked.EFFECT and question.step in graph.nodes:
        return 1, seconds_until_no_counts(graph.nodes[question.step])
    return -(question.kind is Asked.INPUT and bool(question.step) and not question.name), inf  # its tool asks
