"""`RunResult`: the status of a run, its answer, and how every step ended."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from dagrun.errors import ContractError, FailureCause, Problem, RunFailed, ValueRefused, listing, short_repr, shorten
from dagrun.kernel.decide.exception_text import is_showable
from dagrun.kernel.graph.figures import RunFigures, critical_path, handoff
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.plan_history import PlanHistory
from dagrun.kernel.model.contracts.held_objects import HeldObjects, owner_of, type_name
from dagrun.kernel.model.contracts.objects import fits
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.outcome import Attempt, Failure, Recovery, State, Status
from dagrun.kernel.model.plan import Planned
from dagrun.kernel.model.question import Asked
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.reference import Reference, Template
from dagrun.kernel.model.signature import typed_as, typed_value
from dagrun.kernel.model.usage import ModelUse
from dagrun.kernel.model.value import (
    RELEASED,
    RELEASED_OBJECT,
    ArtifactStore,
    Path,
    Stored,
    decode,
    decode_or_reason,
    decode_with_objects,
    value_at,
)
from dagrun.presenters import notebook_bundle, write_report

T = TypeVar("T")

_BAD: Final = frozenset((State.FAILED, State.TIMED_OUT, State.UNKNOWN, State.ABANDONED))

# Each value in it is at most 1 MiB, but a plan can name as many of them as it likes.
MAX_OUTPUT_BYTES: Final = 256 << 20


def answer_of(graph: LiveGraph, *, has_objects: bool = False) -> Any:
    """Return the run's answer: the plan's `output`, or else the outputs of its sinks.

    Args:
        graph: The state.
        has_objects: Whether objects in memory are in the answer; else their tokens, which name their types.

    Raises:
        ValueRefused: It would take over 256 MiB of JSON.
    """
    shown = _live_or_reason if has_objects else decode_or_reason
    if graph.output is not None:
        return _named_answer(graph, graph.output, has_objects=has_objects)
    sinks = graph.sinks()
    if len(sinks) == 1:
        return shown(sinks[0].value)
    return {node.id: shown(node.value) for node in sinks if node.state is State.SUCCEEDED}


def _live_or_reason(stored: Stored) -> Any:
    return stored.value if type(stored) is HeldObjects else decode_or_reason(stored)


def _named_answer(graph: LiveGraph, output: Template, *, has_objects: bool) -> Any:
    """Fill in the output that the plan names, with null for each missing value.

    A text that such a value is a part of is null as a whole: without it, the text would say something else.
    """
    gaps: set[Reference] = set()
    live: dict[Reference, HeldObjects] = {}

    def look_up(reference: Reference) -> Stored:
        try:
            value = graph.look_up(reference)
        except LookupError:
            gaps.add(reference)
            return None
        if has_objects and type(value) is HeldObjects:
            live[reference] = value
        return value

    answer = decode(output.fill(look_up, MAX_OUTPUT_BYTES))
    for hole in output.holes if gaps or live else ():
        if hole.is_text and hole.reference in gaps:
            answer = _replaced(answer, hole.place, None)
        elif not hole.is_text and hole.reference in live:  # only here: elsewhere a token is data
            answer = _replaced(answer, hole.place, live[hole.reference].value)
    return answer


def _replaced(value: Any, place: Path, part: Any) -> Any:
    """Return *value* with *part* at *place*."""
    if not place:
        return part
    value_at(value, place[:-1])[place[-1]] = part
    return value


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended.

    Attributes:
        id: The id of the step.
        state: The state in which it ended.
        reason: Why it ended so, in a sentence; empty if it succeeded.
        failure: The failure of its last attempt, if that failed.
        attempts: Its calls, in order.
        is_default: Whether its output is the default that stands in after a failure.
        errors: For a for_each: the elements that failed, and why.
        verdicts: The verdicts of critics on its output.
        is_gone: Whether a splice has taken it out of the plan.
        substitute: The id of the step that has taken its place, if one has.
        stored: Its output as it is stored.
    """

    __repr__ = short_repr

    id: str
    state: State
    reason: str
    failure: Failure | None
    attempts: tuple[Attempt, ...]
    is_default: bool
    errors: tuple[tuple[int, str], ...]
    verdicts: tuple[Verdict, ...]
    is_gone: bool
    substitute: str
    stored: Stored = field(repr=False)

    @property
    def output(self) -> Any:
        """A copy of its output, or the object in memory that it is; `None` if it did not succeed.

        Raises:
            ValueRefused: The output is not in the record of a run that was resumed, or was released; see `Unavailable`
                and `Policy.release_outputs`.
        """
        if self.stored is RELEASED:
            raise ValueRefused(
                f"what step {self.id} gave was released, because {RELEASED.reason}; name it in the output of the plan, "
                "or leave release_outputs off, to keep it (with a journal, `dagrun.replay` has it still)"
            )
        if self.stored is RELEASED_OBJECT:
            raise ValueRefused(
                f"what step {self.id} gave was released: {RELEASED_OBJECT.reason}; name it in the output of the plan "
                "to keep it"
            )
        return decode_with_objects(self.stored)

    @property
    def started(self) -> float | None:
        """Seconds from the start of the run to the start of its first attempt; `None` if there was none."""
        return self.attempts[0].started if self.attempts else None

    @property
    def ended(self) -> float | None:
        """Seconds from the start of the run to the end of its last attempt; `None` if there was none."""
        return self.attempts[-1].ended if self.attempts else None

    @property
    def work(self) -> float:
        """Seconds that its attempts took together."""
        return sum(attempt.duration for attempt in self.attempts)


class StepResults(Mapping[str, StepResult]):
    """The results of all steps by id, elements of for_each included; made when they are asked for."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes

    def __getitem__(self, step: str) -> StepResult:
        return _result_of(self._nodes[step])

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def latest(self, step: str) -> StepResult:
        """Return the result of a step, or of the step that has taken its place, however often it was replaced.

        Args:
            step: The id that the step had in any revision of the plan.

        Raises:
            KeyError: No step ever had that id.
        """
        found = self[step]
        while found.substitute:
            found = self[found.substitute]
        return found

    def __repr__(self) -> str:
        return f"<{listing(f'StepResults of {len(self)}', self.table())}>"

    def table(self) -> Iterator[str]:
        """Yield a line for each step, those that did not succeed first: its id, state, seconds, and the reason."""
        width = min(40, max(map(len, self._nodes), default=0))
        for node in sorted(self._nodes.values(), key=lambda node: node.state is State.SUCCEEDED):
            work = sum(attempt.duration for attempt in node.attempts)
            yield f"{node.id:{width}}  {node.state:9}  {work:8.3f} s  {node.reason}".rstrip()


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. All times are in seconds.

    Attributes:
        run_id: The id of the run.
        status: The status with which it ended.
        reason: Why it ended so, in a sentence.
        steps: Every step, also those that never started.
        artifacts: The store of its artifacts.
        makespan: The time from the start of the run to its end.
    """

    run_id: str
    status: Status
    reason: str
    steps: StepResults
    artifacts: ArtifactStore = field(repr=False)
    makespan: float
    _graph: LiveGraph = field(repr=False)

    def __repr__(self) -> str:
        title = f"RunResult {self.run_id}: {self.status} in {self.makespan:.3f} s: {shorten(self.reason)}"
        return f"<{listing(title, self.steps.table())}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return notebook_bundle(self)

    @property
    def output(self) -> Any:
        """The answer of the run.

        That is ``Plan.output`` if the plan names it; else the output of its one sink, or a dict of the outputs of its
        sinks by id. `None` stands for each part that does not exist, because a step did not succeed, say; the other
        parts of an object or a list are there. A text around a part that does not exist is `None` as a whole. An object
        in memory is the object itself.

        Raises:
            ValueRefused: It would take over 256 MiB of JSON.
        """
        return None if self._is_held else answer_of(self._graph, has_objects=True)

    @property
    def shown_output(self) -> Any:
        """The answer of the run as plain JSON, with type names for objects in memory.

        Raises:
            ValueRefused: It would take over 256 MiB of JSON.
        """
        return None if self._is_held else answer_of(self._graph)

    @property
    def _is_held(self) -> bool:
        """Whether people have not let the answer out, or are still asked."""
        open_ones = self._graph.questions.values()
        return self._graph.withheld is not None or any(question.kind is Asked.OUTPUT for question in open_ones)

    def output_as(self, type_: type[T]) -> T:
        """Return the answer of the run as a value of *type_*: a model, a dataclass, a list of dates, and so on.

        Raises:
            ValueRefused: The answer does not fit the type, or is too large; see `output`.
        """
        if self._graph.has_objects and owner_of(self.shown_output):
            answer = self.output  # an object in memory, as it is
            if not fits(answer, type_):
                raise ValueRefused(f"the answer of the run is an object of {type_name(type(answer))}")
            return cast(T, answer)
        return cast(T, typed_as("the answer of the run", self.shown_output, lambda value: typed_value(value, type_)))

    def __getitem__(self, step: T) -> T:
        """Return the output of a step of a plan written in Python, as a value of the type that its tool returns.

        Args:
            step: The step as `Tool.step` returned it, or a part of it, which is returned as plain data.

        Raises:
            RunFailed: The step has no output, because it did not succeed.
            ContractError: The step is not in the plan that this run began with.
            ValueRefused: The output does not fit the type, for example when a default is used; or it was released.
        """
        if not isinstance(step, Planned):
            raise ContractError("result[…] takes a step made with tool.step(…); for an id: result.steps['id'].output")
        id_ = self._graph.plan.plan._source.ids.get(step._root)
        if id_ is None:
            raise ContractError(f"{step!r} is not in the plan that the run began with; see result.steps")
        ended = self.steps.latest(id_)
        if ended.stored is None and ended.state is not State.SUCCEEDED:
            raise RunFailed(self.status, f"step {ended.id} has no output: it is {ended.state}: {ended.reason}")
        return cast(T, step._value_in(ended.output, ended.id))

    def dependencies(self, step: str) -> tuple[str, ...]:
        """Return the ids of the steps that *step* waited for, declared or implied by its references."""
        return self._graph.nodes[step].plan.depends_on

    @property
    def plan(self) -> PlanHistory:
        """The plan as it stood at the end, with its revisions."""
        return PlanHistory(self._graph.plan.plan, self._graph.revisions)

    @property
    def has_plan(self) -> bool:
        """Whether there was a plan: the run began with one, or its planner has found one for the goal."""
        return self._graph.has_plan

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of the planner's plan, if there was no plan that could be run."""
        return self._graph.problems

    @property
    def replans(self) -> int:
        """How often the planner was asked to change the plan."""
        return self._graph.replans

    @property
    def warnings(self) -> tuple[str, ...]:
        """The surprises that led to no change of the plan, a sentence each; the steps that depend on them have run."""
        return tuple(self._graph.warnings)

    @property
    def confidence(self) -> float | None:
        """The lowest confidence that tools and critics gave to a source of the answer; `None` if none did."""
        if not self._graph.has_confidence:
            return None
        from dagrun.kernel.graph.confidence import answer_confidences

        return next((said.value for said in answer_confidences(self._graph)), None)

    def confidence_of(self, step: str) -> float | None:
        """Return the lowest confidence that was given to the output of *step* or its sources; `None` if none was.

        Raises:
            KeyError: There is no such step.
        """
        from dagrun.kernel.graph.confidence import confidences

        return next((said.value for said in confidences(self._graph, [self._graph.nodes[step].id])), None)

    @property
    def disagreements(self) -> int:
        """Steps whose critics did not agree."""
        seen = (node.extra.verdicts for node in self._graph.nodes.values() if node.extra is not None)
        return sum(1 for verdicts in seen if len({verdict.result for verdict in verdicts}) > 1)

    @property
    def handoff(self) -> dict[str, Any] | None:
        """The report for people who take over: work done, tried and left open; `None` if the run was not escalated."""
        if self.status is not Status.ESCALATED:
            return None
        return handoff(self._graph, self.reason)

    @property
    def work(self) -> float:
        """Seconds that all attempts took together."""
        return RunFigures(self._graph).work

    @property
    def critical_path(self) -> float:
        """The longest chain of dependent steps by the time that each one took, back-off included."""
        return critical_path(self._graph)

    @property
    def parallelism(self) -> float:
        """Work divided by makespan: how many steps ran at once on average; 0 for a run that took no time."""
        return self.work / self.makespan if self.makespan else 0.0

    @property
    def used(self) -> ModelUse:
        """The usage reported by all attempts, and by the models of the planner and the critics."""
        return RunFigures(self._graph).used

    @property
    def tokens(self) -> int:
        """The tokens of all model calls."""
        return self.used.tokens

    @property
    def cost(self) -> float | None:
        """The cost of all model calls; `None` if a part of it is unknown (``used.known_cost`` is the rest)."""
        return self.used.cost

    def raise_for_status(self) -> RunResult:
        """Return the result itself, if the run succeeded.

        Raises:
            RunFailed: The run did not succeed. Its cause is the exception of the first step that failed, or else of the
                planner; a `FailureCause` stands for an exception that is not in this process, or holds what must not be
                shown. The traceback is in the notes of the error.
        """
        if self.status is not Status.SUCCEEDED:
            raise self.as_error()
        return self

    def report(self, path: str | pathlib.Path | None = None, **options: Any) -> str:
        """Write a report of the run: one HTML file that loads nothing, or another form; see `dagrun.report`.

        Args:
            path: The file to write; `None` to return the report as text.
            options: ``format``, ``values``, ``title``, ``max_nodes``.
        """
        return write_report(self, path, options)

    def as_error(self) -> RunFailed:
        """Return the error that `raise_for_status` raises if the run did not succeed."""
        error, failure = RunFailed(str(self.status), self.reason), self._first_failure()
        if failure is not None:
            error.__cause__ = cause_of(failure, self._graph.plan.redactor)
            if failure.traceback:
                error.add_note(failure.traceback)
        return error

    def _first_failure(self) -> Failure | None:
        """The failure of the first step that ended the run badly and raised an exception, or else of the planner."""
        for node in self._graph.nodes.values():
            if node.state in _BAD and not node.is_tolerated and not node.plan.step.optional:
                failure = _failure_of(node)
                if failure is not None and failure.error:
                    return failure
        failure = self._graph.planner_failure
        return failure if failure is not None and failure.error else None

    @property
    def planner_answers(self) -> tuple[str, ...]:
        """The answers of the planner's models in its last request; redacted, at most 64 KiB."""
        return self._graph.planner_answers

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON, to be shown: without secrets, and without texts that look like secrets."""
        figures, shown = RunFigures(self._graph), self._graph.plan.redactor
        used = figures.used
        return {
            "run_id": self.run_id,
            "status": str(self.status),
            "reason": self.reason,
            "output": shown.value(self.shown_output),
            "makespan": self.makespan,
            "work": figures.work,
            "critical_path": self.critical_path,
            "parallelism": figures.work / self.makespan if self.makespan else 0.0,
            "tokens": used.tokens,
            "cost": used.cost,
            "unpriced": used.unpriced,
            "goal": shown.text(self._graph.goal),
            "revisions": len(self._graph.revisions),
            "replans": self.replans,
            "problems": [problem.as_dict() for problem in self.problems],
            "warnings": list(self.warnings),
            "handoff": self.handoff,
            "steps": {id_: _as_dict(result, shown) for id_, result in self.steps.items()},
        }


def _failure_of(node: Node) -> Failure | None:
    if node.ended is not None and node.ended.failure is not None:
        return node.ended.failure
    outcome = node.latest.outcome if node.latest is not None else None
    return outcome.failure if outcome is not None else None


def cause_of(failure: Failure, redactor: Redactor) -> BaseException:
    """Return the exception of *failure*; a substitute, if it is not in this process or must not be shown."""
    error = failure.exception
    if error is None or not is_showable(error, redactor.text):
        return FailureCause(failure.error, failure.message)
    return error


def _result_of(node: Node) -> StepResult:
    last = node.attempts[-1] if node.attempts else None
    is_default = last is not None and last.decision is not None and last.decision.recovery is Recovery.DEFAULT
    return StepResult(
        id=node.id,
        state=node.state,
        reason=node.reason,
        failure=_failure_of(node),
        attempts=node.attempts,
        is_default=is_default or (node.ended is not None and node.ended.is_default),
        errors=node.ended.errors if node.ended else (),
        verdicts=node.extra.verdicts if node.extra is not None else (),
        is_gone=node.is_gone,
        substitute=node.extra.substitute if node.extra is not None else "",
        stored=node.value,
    )


def _as_dict(result: StepResult, shown: Redactor) -> dict[str, Any]:
    return {
        "state": str(result.state),
        "reason": result.reason,
        "failure": result.failure.as_dict() if result.failure else None,
        "is_default": result.is_default,
        "errors": [{"index": index, "reason": reason} for index, reason in result.errors],
        "output": shown.value(decode_or_reason(result.stored)),
        "verdicts": [verdict.as_dict() for verdict in result.verdicts],
        "is_gone": result.is_gone,
        "substitute": result.substitute,
        "attempts": [
            {
                "number": a.number,
                "tool": a.tool,
                "started": a.started,
                "ended": a.ended,
                "state": str(a.outcome.state) if a.outcome else None,
                "recovery": str(a.decision.recovery) if a.decision else None,
                "failure": a.outcome.failure.as_dict() if a.outcome and a.outcome.failure else None,
            }
            for a in result.attempts
        ],
    }
