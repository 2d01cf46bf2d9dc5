"""The shape of a view, field by field. ``dagrun schema view`` prints it as JSON Schema.

Fields may be added; a field that changes its meaning changes `VIEW_VERSION`. Times are seconds since the start of the
run, rounded to microseconds, without the time in which the run was suspended. Steps are numbered from 0, in the order
in which they came; the number of a step never changes.
"""

from __future__ import annotations

from typing import Any, Final, NotRequired

from typing_extensions import TypedDict  # that of Python 3.11 gives pydantic no names of optional fields

VIEW_VERSION: Final = 1


class ShownValue(TypedDict, total=False):
    """A displayed value: its JSON text, or why there is none.

    `json` is the text, and *cut* says that it is only the beginning; `bytes` and `sha256` (its first 12 digits) are
    those of the whole redacted text. `planned` marks arguments as the plan has them, with references not filled in.
    `artifact`, `media` describe a file. `hidden` and `unavailable` are reasons. `left_out` is true where values were
    not asked for.
    """

    json: str
    bytes: int
    sha256: str
    cut: bool
    planned: bool
    artifact: str
    media: str
    hidden: str
    unavailable: str
    left_out: bool


# The key is no name that Python knows, so these have another form.
ValueView = TypedDict("ValueView", {"$value": ShownValue})


class CeilingView(TypedDict):
    """A ceiling of the policy, with its used amount."""

    name: str
    used: float
    limit: float


class RunFacts(TypedDict):
    """The run as a whole.

    `state` is ``running``, ``waiting``, ``interrupted`` or ``ended``; `stand` is its name in 0.2. `critical_path` is
    the longest chain of durations: no schedule of these steps is faster. `waits` are the seconds that steps waited, by
    reason. `suspended` has, for each pause, its time in the run, and the times of day at which it began and ended
    (null: it lasts). `retries` and `fallbacks` count attempts. `slots` are the taken and the existing ones, by limit.
    """

    id: str
    goal: str
    status: str | None
    state: str
    stand: str
    reason: str
    began: float | None
    ended: float | None
    parent: str
    owner: str
    labels: dict[str, Any]
    recorded_by: str
    makespan: float
    work: float
    critical_path: float | None
    parallelism: float
    tokens: int
    cost: float | None
    known_cost: float
    unpriced: int
    retries: int
    fallbacks: int
    replans: int
    ceilings: list[CeilingView]
    warnings: list[str]
    problems: list[str]
    handoff: dict[str, Any] | None
    counts: dict[str, int]
    waits: dict[str, float]
    suspended: list[list[float | None]]
    slots: dict[str, list[int]]
    inputs: ValueView | None
    output: ValueView | None


class HedgeView(TypedDict):
    """The hedged call of an attempt."""

    started: float
    ended: float | None
    has_won: bool
    fault: str


class SharedView(TypedDict):
    """Whose call an attempt has shared: `how` is ``cached``, ``joined`` or ``batched``, `run` is empty for this run."""

    how: str
    step: str
    attempt: int
    run: str
    calls: int


class AttemptView(TypedDict):
    """One call of a tool.

    `state` is null while it runs. `recovery` is the decision about it, `row` the row of the recovery table, `delay`
    the seconds until the next attempt.
    """

    number: int
    tool: str
    started: float
    ended: float | None
    state: str | None
    failure: dict[str, Any] | None
    recovery: str
    row: str
    delay: float
    tokens: int
    cost: float | None
    surprise: str
    hedge: HedgeView | None
    shared: SharedView | None


class StepFacts(TypedDict):
    """One step; an element of a for_each is a step with a `parent`.

    `needs` are the steps that it waits for. `after_wave` says that it waits for the whole generation before its
    own, too. `children` are the first and the last element of a for_each, which follow each other. `revision`
    brought the step, `gone` is the revision that removed it, `substitute` the step in its place. `ready`:
    everything that it needs was there; `started` and `ended`: its first start and its end.

    `waits` are lists of a reason (``slot``, ``backoff``, ``person``, ``planner``), a beginning, an end (null while the
    wait lasts), and, for a slot that it got, the limit that was reached; without one, its turn had not come. `limits`
    are those that count it: while it waits, see which of them is full in the facts about the run. `progress` is the
    last report of a running tool.
    """

    n: int
    id: str
    tool: str
    effect: str
    state: str
    why: str
    description: str
    needs: list[int]
    after_wave: bool
    parent: int | None
    children: list[int] | None
    gone: int | None
    substitute: int | None
    revision: int
    ready: float | None
    started: float | None
    ended: float | None
    waits: list[list[Any]]
    limits: list[str]
    attempts: list[AttemptView]
    args: ValueView | None
    output: ValueView | None
    is_default: bool
    errors: list[list[Any]]
    verdicts: list[dict[str, Any]]
    cause: str
    progress: list[Any] | None
    on_path: bool


class RevisionView(TypedDict):
    """One change of the plan. A revision of the first plan (`is_draft`) has no diff: it is a step that has arrived.

    `ran_on`, `started_meanwhile` and `ended_meanwhile` are the steps that ran from `asked_at` until after `at`, that
    began, and that succeeded between the two; at most 200 each.
    """

    number: int
    at: float
    asked_at: float
    origin: str
    reason: str
    did: str
    is_draft: bool
    diff: list[str]
    added: list[int]
    gone: list[int]
    ran_on: list[int]
    started_meanwhile: list[int]
    ended_meanwhile: list[int]


class PlannerCallView(TypedDict):
    """One call of the planner; `prompt` is the version of its words.

    In a fallback chain, `planner` is the one that was asked, and `handed_on` the reason to ask the next one.
    """

    seconds: float
    tokens: int
    cost: float | None
    fault: str
    planner: str
    handed_on: str
    prompt: str


class PlannerView(TypedDict):
    """One request to the planner: for the first plan (``draft``), or for a change (``replan``)."""

    kind: str
    number: int
    started: float
    ended: float | None
    result: str
    reason: str
    triggers: list[str]
    calls: list[PlannerCallView]


class QuestionView(TypedDict):
    """A question to a person, with the answer; `why_void` is the reason why it needed none."""

    id: str
    kind: str
    text: str
    step: str
    tool: str
    effect: str
    arguments: Any
    why: str
    checklist: list[str]
    diff: list[str]
    name: str
    schema: dict[str, Any] | None
    asked_at: float
    deadline: float | None
    default: dict[str, Any] | None
    answered_at: float | None
    answer: dict[str, Any] | None
    why_void: str


class LogView(TypedDict):
    """One line of the log. `seq` is the number of the record; null for the end of an attempt."""

    seq: int | None
    at: float
    event: str
    about: str
    text: str
    details: list[str]
    steps: list[str]


class LeftOut(TypedDict):
    """The parts left out of the view for its size: values that were cut or not requested, lines of the log."""

    values: int
    log: int


class RunView(TypedDict):
    """A run, as of the record `seq`, `at` seconds after its start.

    `path` is the critical path as it happened: the steps, each of which was made ready by the one before it.
    `path_gaps` are the waits on it: reason, seconds, and the step that waited. `graph` changes when boxes or edges do.
    `source` names what the view was made from, if not a run: ``plan``.
    """

    schema_version: int
    dagrun: str
    seq: int
    at: float
    graph: int
    run: RunFacts
    steps: list[StepFacts]
    path: list[int]
    path_gaps: list[list[Any]]
    revisions: list[RevisionView]
    planner: list[PlannerView]
    questions: list[QuestionView]
    log: list[LogView]
    left_out: LeftOut
    source: NotRequired[str]


def view_schema() -> dict[str, Any]:
    """Return the JSON Schema of views."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(RunView).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "View of a dagrun run", **schema}
