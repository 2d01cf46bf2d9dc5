"""The limits and rules that the host sets for its runs, and the size limits of plans from outside."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, ItemsView, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from dagrun.errors import OldPolicyField, shorten
from dagrun.kernel.model.flow.boundary import Flow
from dagrun.kernel.model.outcome import TriggerKind
from dagrun.kernel.model.plan import Names, RetryRule, Seconds, StrictModel
from dagrun.kernel.model.reference import BadReference, Condition
from dagrun.kernel.model.secrets import Personal
from dagrun.kernel.model.value import MAX_ARGUMENT_BYTES, MAX_SPILL_BYTES

Count = Annotated[int, Field(ge=1)]

DefaultAnswer = Literal["approve", "deny"]

# The only name that the condition of an approval rule may refer to: the arguments of the call.
ARGUMENTS: Final = "args"


class ApprovalRule(StrictModel):
    """A rule that names calls that a person must agree to, by tool and by exact arguments.

    Attributes:
        tool: The name of the tool; ``*`` for every tool.
        when: The condition on the arguments, which it refers to as ``args``; `None` for every call.
        why: The reason that is shown to the person.
        checklist: Points that must be ticked for a yes.
        answer_within: Seconds until the default answer counts; `None` for the value of the policy.
        default_answer: The default answer; `None` for the policy's.
    """

    tool: str
    when: Condition | None = None
    why: str = ""
    checklist: Names = ()
    answer_within: Seconds | None = None
    default_answer: DefaultAnswer | None = None

    @field_validator("when")
    @classmethod
    def _looks_at_arguments(cls, when: Condition | None) -> Condition | None:
        for leaf in when.leaves() if when is not None else ():
            text = shorten(leaf.ref or "")
            try:
                step = leaf.reference.step
            except BadReference as error:
                raise ValueError(f"{text!r} is not a reference: {error}") from None
            if step != ARGUMENTS:
                raise ValueError(f"a rule looks at the arguments of the call alone: write args.amount, say, not {text}")
        return when


if TYPE_CHECKING:
    Rules = Sequence[ApprovalRule]
    Triggers = Sequence[TriggerKind]
    Redacted = Sequence[Personal]
else:
    Rules = Annotated[tuple[ApprovalRule, ...], Field(strict=False)]
    # In a TOML file they are texts.
    Triggers = Annotated[tuple[Annotated[TriggerKind, Field(strict=False)], ...], Field(strict=False)]
    Redacted = Annotated[tuple[Personal, ...], Field(strict=False)]


class HedgeRule(StrictModel):
    """When a slow call is hedged: another call starts in parallel, the first success counts, the other call is stopped.

    A call is hedged only if all of this holds:

    - Its tool only looks (``pure``, ``read``).
    - The end of the run waits for it, judged by the longest remaining paths.
    - There is room for one more call under every limit and ceiling.
    - It is no plain function in a thread, which could not be stopped, and no critic looks at its step.
    - Its attempt has not been hedged before.

    Attributes:
        quantile: A call is slow when it has taken longer than this part of the calls of its tool.
        most_medians: A call is also slow when it has taken this many times the median. This catches slow calls that
            are so many that the quantile is itself the time of a slow call.
        min_calls: Calls of a tool that must have ended before any call of it counts as slow; at most 500.
        tools: The only tools to hedge; empty for all that only look.
        max_share: The part of the calls of a tool that may be hedged, in all runs of an engine together; the first
            three hedges are not counted. When everything has become slow, doubled calls would make it slower.
    """

    quantile: float = Field(default=0.95, ge=0.5, lt=1)
    most_medians: float = Field(default=3.0, gt=1, allow_inf_nan=False)
    min_calls: int = Field(default=20, ge=1, le=500)
    tools: Names = ()
    max_share: float = Field(default=0.1, gt=0, le=1)


class PoolLimits(StrictModel):
    """The limits of a pool: its steps at once, and the rates of its provider per minute, with bursts of up to a tenth.

    How many calls a provider takes at once needs no limit: a pool, or a tool without one, that refuses calls for now
    (HTTP 429, or an error with ``retry_after``) gets no more at once than it has taken, and more again when that goes
    well.

    Attributes:
        max_running: Steps of the pool that run at once.
        requests_per_minute: Calls; counted over all runs of an engine.
        tokens_per_minute: Tokens; counted over all runs of an engine. A call counts with the ``max_tokens`` of its tool
            while it runs, and with what it has reported when it has ended.
    """

    max_running: Count | None = None
    requests_per_minute: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    tokens_per_minute: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @property
    def has_rate(self) -> bool:
        """Whether calls or tokens a minute are limited."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None


class PlanningRule(StrictModel):
    """How a planner is asked, and what its answers may do. Times are in seconds; `None` means no limit.

    Attributes:
        timeout: The duration of one call of the planner.
        max_calls: Calls of the planner, including repairs of refused patches.
        max_replans_per_step: Requests to the planner about one step and its substitutes, so that one part of the plan
            cannot use up the requests of others. Elements count for their ``for_each``, and a
            request about several steps counts for each.
        max_edits: Edits of one patch.
        replan_on: The reasons for which the planner is asked at all.
        brief: What a planner sees. ``structural``: types, sizes, and the keys that the output schema of a tool or a
            reference of the plan names; no text of tools or critics. ``errors``, the default: also why steps failed
            or were surprising, what critics said, and how earlier requests ended. ``full``: also the content of
            results.
        max_brief_bytes: Bytes of one result in a full brief.
        stream_safe: Tools that may be called before the planner has ended its plan, in spite of their effects.
        unknown_tools: The reaction when a planner asks for a tool that the run does not have or does not allow:
            ``refuse`` (the answer is refused, and the planner is asked again), or ``escalate`` (to people, who alone
            can add a tool).
    """

    timeout: Seconds = 60.0
    max_calls: Count | None = None
    max_replans_per_step: Count | None = None
    max_edits: Count = 1_000
    replan_on: Triggers = tuple(TriggerKind)
    brief: Literal["structural", "errors", "full"] = "errors"
    max_brief_bytes: Count = 2_000
    stream_safe: Names = ()
    unknown_tools: Literal["refuse", "escalate"] = "refuse"


class QuestionRule(StrictModel):
    """How long a question to a person stays open, and what counts then.

    Attributes:
        answer_within: Seconds until the default answer counts; `None` for no limit.
        default_answer: The answer that counts when there is none in time.
        max_pending: Questions that are open at once.
    """

    answer_within: Seconds | None = None
    default_answer: DefaultAnswer = "deny"
    max_pending: Count = 100


class WorkerLimits(StrictModel):
    """The threads and processes in which plain functions run.

    Attributes:
        max_threads: Worker threads.
        max_stuck_threads: Threads that did not stop when told to; with more of them, plain functions are refused.
        max_processes: Worker processes; `None` for one per core.
        max_process_memory: Bytes of address space of a worker process; `None` for no limit.
    """

    max_threads: Count = 40
    max_stuck_threads: Count = 16
    max_processes: Count | None = None
    max_process_memory: Count | None = None


# Fields of the last release that had no effect.
_GONE: Final = ("primary_metric", "guardrail_metric")
# Fields that stood at the top of a policy, and their place now.
_MOVED: Final[Mapping[str, str]] = {
    **{name: f"planning.{name}" for name in ("max_replans_per_step", "max_edits", "replan_on", "brief")},
    **{name: f"planning.{name}" for name in ("max_brief_bytes", "stream_safe", "unknown_tools")},
    "planner_timeout": "planning.timeout",
    "max_planner_calls": "planning.max_calls",
    **{name: f"questions.{name}" for name in ("answer_within", "default_answer", "max_pending")},
    **{name: f"workers.{name}" for name in WorkerLimits.model_fields},
    "rate_by_pool": "pools.NAME",
    "max_running_by_pool": "pools.NAME.max_running",
}


class Policy(StrictModel):
    """The limits and rules of a run. Times are in seconds; `None` means no limit.

    Attributes:
        max_running: Steps that run at once.
        max_running_by_tool: Calls of one tool that run at once, by tool.
        pools: The limits of pools, by name.
        max_steps: Steps of a run, including the elements of ``for_each`` and the steps of patches.
        max_fan_out: Elements of one ``for_each``.
        max_argument_bytes: Bytes of JSON that the arguments of one call may take. The same limit holds for each other
            value that joins many or stands in a plan: the list of a ``for_each``, the outputs of its elements together,
            a default, and the inputs of the run.
        max_spill_bytes: Bytes of JSON of an output that becomes an artifact because it is over the ``output_limit`` of
            its tool; only tools that are declared to return an `Artifact` or something else (``list[int] | Artifact``)
            may return so much.
        max_seconds: The duration of the whole run, to the end of its last attempt, without the time in which it only
            waits for people: a question is open, and nothing else runs.
        max_attempts: Calls of tools in the whole run.
        max_calls_by_tool: Calls of one tool in the whole run, by tool.
        max_tokens: Tokens of the whole run.
        max_cost: Cost of the whole run, in the currency that tools report.
        max_replans: Requests to the planner that may change the plan, in the whole run.
        warn_at: The part of a ceiling at which optional steps are dropped and replanning stops; `None` for never.
        timeout: The duration of an attempt, unless the step or the tool sets a shorter one.
        grace: The seconds in which cancelled code may clean up: it is cancelled once, and at every await
            when they are over. A step that still runs then is abandoned. 1 by default; 0 leaves no time to clean up.
        retry: How often, and when, a step is tried again.
        hedge: When a slow call is hedged; `None` for never.
        planning: How the planner is asked, and what its answers may do.
        critic_timeout: The duration of one review of a critic.
        approve: Calls that a person must approve, in addition to tools with ``needs_approval``.
        min_confidence: A step with an effect and with less confidence than this needs a person; so does a plan or a
            patch whose planner has less confidence in it, and an answer that is made of outputs to which their tools or
            critics gave less. A model's plan or patch that gives no confidence needs a person if it has effects.
        approve_patches: When a person must agree to a patch: ``never``, if it brings ``effects``, or ``always``.
        freeze_plan: Whether patches of a planner may drop and repeat calls of the first plan, and add no other. A call
            with an effect is made once, behind all that stood before it, and nothing runs before the first plan is
            whole. The host changes its plan as it wants.
        approve_output: Whether a person must agree before the run returns its answer.
        questions: How long a question to a person stays open, and what counts then.
        last_resort: The reaction to a final failure without help: ``skip`` the steps that depend
            on it, or ``escalate`` the run to people.
        workers: The threads and processes in which plain functions run.
        redact: The kinds of personal data that are kept out of logs, reports, briefs and messages: ``email``,
            ``phone``, ``iban``, ``card``. Values that are passed to steps stay as they are.
        redact_records: Whether the same is taken out of events before they are written to the journal: these kinds of
            personal data, what the *redact* function of the run takes out, what looks like a token, and fields with
            names of secrets. The run itself works with the true values. A resumed run has them from sealed originals if
            the host has a ``record_key``. Otherwise steps that only look are called again, and steps that need a value
            of another one are skipped; a run whose plan, patches or inputs were redacted cannot be resumed.
        unrecorded: Tools whose outputs are not written to the journal. When the run is resumed, those of them that only
            look are called again; steps that need the output of another one are skipped.
        release_outputs: Whether outputs that are texts, lists or objects are dropped from memory as soon as no step of
            the plan can read them, unless they are part of the run's answer. Journals keep them.
        flow: The trust boundary: the sources that each argument accepts; `None` for no boundary, so that nothing is
            computed.
    """

    _old_names = _MOVED
    # Defaults that are rules are made without a check, or each import would build what checks them.
    max_running: Count | None = None
    max_running_by_tool: dict[str, Count] = Field(default_factory=dict)
    pools: dict[str, PoolLimits] = Field(default_factory=dict)
    max_steps: Count | None = None
    max_fan_out: Count = 1_000
    max_argument_bytes: Count = MAX_ARGUMENT_BYTES
    max_spill_bytes: Count = MAX_SPILL_BYTES
    max_seconds: Seconds | None = None
    max_attempts: Count | None = None
    max_calls_by_tool: dict[str, Count] = Field(default_factory=dict)
    max_tokens: Count | None = None
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_replans: int = Field(default=3, ge=0)
    warn_at: float | None = Field(default=None, gt=0, le=1)
    timeout: Seconds | None = None
    grace: Seconds = 1.0
    retry: RetryRule = RetryRule.model_construct()
    hedge: HedgeRule | None = None
    planning: PlanningRule = PlanningRule.model_construct()
    critic_timeout: Seconds = 60.0
    approve: Rules = ()
    min_confidence: float = Field(default=0.6, ge=0, le=1)
    approve_patches: Literal["never", "effects", "always"] = "never"
    freeze_plan: bool = False
    approve_output: bool = False
    questions: QuestionRule = QuestionRule.model_construct()
    last_resort: Literal["skip", "escalate"] = "skip"
    workers: WorkerLimits = WorkerLimits.model_construct()
    redact: Redacted = ()
    redact_records: bool = False
    unrecorded: Names = ()
    release_outputs: bool = False
    flow: Flow | None = None

    @model_validator(mode="before")
    @classmethod
    def _translate_old_fields(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, dict):
            return given
        is_on_record = info.mode == "json"  # the policy of a record is read as JSON
        if gone := [name for name in _GONE if name in given]:
            if not is_on_record:
                text = f"take out {' and '.join(gone)}: a policy has no such field any more, as it had no effect"
                raise ValueError(text)
            given = {name: value for name, value in given.items() if name not in _GONE}
        old = [name for name in given if name in _MOVED]
        fields = _in_groups(given) if old else given
        if old and not is_on_record:
            _warn(old)
        return fields

    def with_fields(self, fields: Mapping[str, Any]) -> Policy:
        """Return the policy with other values of some fields.

        Args:
            fields: The fields by name, as a file has them. The tables ``planning``, ``questions``, ``workers`` and
                ``pools`` keep their other fields; other tables, such as ``retry``, are replaced.

        Raises:
            ValidationError: The fields do not fit.
        """
        own = Policy.model_validate(fields).model_dump(exclude_unset=True)
        return Policy.model_validate(_merged(self.model_dump(exclude_unset=True), own, _GROUPS))

    if not TYPE_CHECKING:

        def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Policy:
            """Return a copy with other values, which are not checked; fields of the last release go to their places."""
            old = {name: value for name, value in (update or {}).items() if name in _MOVED}
            if not old:
                return super().model_copy(update=update, deep=deep)
            _warn([*old])
            others = {name: value for name, value in update.items() if name not in old}
            base, unset = self, dict.fromkeys(field for name in old for field in _POOL_LIMITS.get(name, ()))
            if unset:  # the new limits of this kind are all
                pools = {pool: limits.model_copy(update=unset) for pool, limits in self.pools.items()}
                left = {pool: limits for pool, limits in pools.items() if limits != PoolLimits()}
                base = super().model_copy(update={"pools": left})
            return base.with_fields(_in_groups(old)).model_copy(update=others, deep=deep)

        def __getattr__(self, name: str) -> Any:
            if name not in _MOVED:
                return super().__getattr__(name)
            _warn([name])
            if name == "max_running_by_pool":
                return {pool: each.max_running for pool, each in self.pools.items() if each.max_running is not None}
            if name == "rate_by_pool":
                return {pool: each for pool, each in self.pools.items() if each.has_rate}
            group, _, last = _MOVED[name].partition(".")
            return getattr(getattr(self, group), last)


class PlanLimits(StrictModel):
    """Limits of size for plans from files and planners; a plan that the host builds has none.

    To raise a limit, read the plan with other limits: ``read_plan(path, limits=PlanLimits(max_steps=10_000))``.

    Attributes:
        max_bytes: Bytes of the text, counted before it is parsed.
        max_steps: Steps of the plan as written.
        max_depth: Levels of nesting.
        max_dependencies: Dependencies of one step.
        max_edges: Dependencies of all steps together.
    """

    max_bytes: Count = 1_000_000
    max_steps: Count = 1_000
    max_depth: Count = 32
    max_dependencies: Count = 100
    max_edges: Count = 1_000_000


# Tables of fields ---------------------------------------------------------------------------------------------------

_GROUPS: Final = ("planning", "questions", "workers", "pools")


def _merged(base: Mapping[str, Any], own: Mapping[str, Any], groups: Collection[str]) -> dict[str, Any]:
    """Return *base* with the fields of *own*; tables that both have under one of *groups* are joined."""
    both = [name for name in groups if isinstance(base.get(name), dict) and isinstance(own.get(name), dict)]
    return {**base, **own, **{name: _merged(base[name], own[name], own[name]) for name in both}}


# Fields of the last release ------------------------------------------------------------------------------------------

_POOL_LIMITS: Final = {
    "rate_by_pool": ("requests_per_minute", "tokens_per_minute"),
    "max_running_by_pool": ("max_running",),
}


def _warn(old: Sequence[str]) -> None:
    """Warn at the line outside dagrun that has the old names, however many calls lie between."""
    moves = ", ".join(f"{name} is now {_MOVED[name]}" for name in old)
    frame, level = sys._getframe(), 1
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] in ("dagrun", "pydantic"):
        frame, level = frame.f_back, level + 1
    text = f"policy: {moves}; the old name{'s are' if len(old) > 1 else ' is'} removed in 0.4"
    warnings.warn(text, OldPolicyField, stacklevel=level)


def present_path(path: str) -> str:
    """Return the present path of a field of a policy; warn if *path* is an old name."""
    first, _, rest = path.partition(".")
    if first not in _MOVED:
        return path
    _warn([first])
    return _MOVED[first].replace("NAME", rest or "NAME")


def _in_groups(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a policy, with old names moved to their present places."""
    fields = {name: value for name, value in given.items() if name not in _MOVED}
    for name, place in _MOVED.items():
        if name not in given:
            continue
        group, _, last = place.partition(".")
        if group in given:
            raise ValueError(f"the policy has {group} and, by its old name, {name}: move {name} to {place}")
        if group != "pools":
            fields.setdefault(group, {})[last] = given[name]
            continue
        for pool, value in _table(name, given[name]):
            limits = fields.setdefault(group, {}).setdefault(pool, {})
            limits |= _table(f"{name}.{pool}", value) if last == "NAME" else {"max_running": value}
    return fields


def _table(name: str, value: Any) -> ItemsView[str, Any]:
    if isinstance(value, PoolLimits):
        value = value.model_dump(exclude_unset=True)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name}: input should be a table")
    return value.items()
