"""Policies: the limits and rules that the host sets for its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dagrun.errors import shorten
from dagrun.model.condition import Condition
from dagrun.model.outcome import TriggerKind
from dagrun.model.plan import Names, RetryRule, Seconds
from dagrun.model.reference import BadReference
from dagrun.model.secrets.patterns import Personal

Count = Annotated[int, Field(ge=1)]

DefaultAnswer = Literal["approve", "deny"]

# What the condition of an approval rule refers to: the arguments of the call, and nothing else.
ARGUMENTS: Final = "args"


class ApprovalRule(BaseModel):
    """Calls that a person must agree to, by tool and by exact arguments.

    Attributes:
        tool: The name of the tool; ``*`` for every one.
        when: Must hold of the arguments, which it refers to as ``args``; `None` for every call.
        why: Shown to the person.
        checklist: Points that must be ticked for a yes.
        answer_within: Seconds until the default answer counts; `None` for what the policy says.
        default_answer: That answer; `None` for what the policy says.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

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
    from collections.abc import Sequence

    Rules = Sequence[ApprovalRule]
    Triggers = Sequence[TriggerKind]
    Redacted = Sequence[Personal]
else:
    Rules = Annotated[tuple[ApprovalRule, ...], Field(strict=False)]
    # From TOML they come as texts.
    Triggers = Annotated[tuple[Annotated[TriggerKind, Field(strict=False)], ...], Field(strict=False)]
    Redacted = Annotated[tuple[Personal, ...], Field(strict=False)]


class HedgeRule(BaseModel):
    """When a slow call gets a second one beside it; the first of both that succeeds counts, and the other is stopped.

    Only calls of tools that only look (``pure``, ``read``) are hedged, only where the end of the run waits for them, as
    far as the longest remaining paths tell, and only if there is room for one more call under every limit and ceiling.
    Each attempt gets one second call at most; plain functions in threads, which cannot be stopped, and steps that
    critics look at get none.

    Attributes:
        quantile: A call is slow when it has taken longer than this part of the calls of its tool;
        most_medians: or, sooner than that, this many times the median: where more calls than those are slow, the
            quantile is that of the slow ones.
        min_calls: Calls of a tool that must have ended before any of it is called slow; at most 500.
        tools: These alone; empty for all that only look.
        max_share: The part of the calls of a tool that may get a second one, the first three aside, in all runs of an
            engine together: where everything has become slow, twice the calls would make it slower.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    quantile: float = Field(default=0.95, ge=0.5, lt=1)
    most_medians: float = Field(default=3.0, gt=1, allow_inf_nan=False)
    min_calls: int = Field(default=20, ge=1, le=500)
    tools: Names = ()
    max_share: float = Field(default=0.1, gt=0, le=1)


class Policy(BaseModel):
    """What a run may do. Times are in seconds; `None` means no limit.

    Attributes:
        max_running: Steps that run at once.
        max_running_by_tool: The same for the calls of one tool.
        max_running_by_pool: The same for the steps of one pool.
        max_steps: Steps of a run, the elements of ``for_each`` and those of patches counted.
        max_fan_out: Elements of one ``for_each``.
        max_seconds: The whole run, to its last attempt.
        max_attempts: Calls of tools in the whole run.
        max_calls_by_tool: The same for one tool.
        max_tokens: Tokens of the whole run.
        max_cost: Cost of the whole run, in the currency that tools report.
        max_replans: Requests to the planner that may change the plan.
        max_planner_calls: Calls of the planner, repairs of refused patches counted.
        max_edits: Edits of one patch.
        warn_at: The part of a ceiling at which optional steps are dropped and replanning stops; `None` for never.
        timeout: An attempt, where neither the step nor the tool says less.
        grace: What a step that was asked to stop gets before it is abandoned.
        retry: How often, and when, a step is tried again.
        hedge: When a slow call gets a second one beside it; `None` for never.
        replan_on: What the planner is asked about at all.
        planner_timeout: One call of the planner.
        critic_timeout: One review of a critic.
        brief: Whether a planner sees only the shape of results (``structural``), or what they say (``full``).
        max_brief_bytes: Of one result in a full brief.
        approve: Calls that a person must agree to, besides those whose tool says so.
        min_confidence: A step with an effect, and less confidence than this, needs a person; so does a plan or a patch
            of a planner that is less sure of it than this.
        stream_safe: Tools that may be called before the planner has ended its plan, in spite of their effects.
        approve_patches: Whether a person must agree to patches: ``never``, if they bring ``effects``, or ``always``.
        approve_output: Whether a person must agree before the run hands out its answer.
        answer_within: Until the default answer counts.
        default_answer: What counts when nobody has answered in time.
        max_pending: Questions that are open at once.
        last_resort: What follows when a step failed for good and nobody could help: ``skip`` what depends on it, or
            ``escalate`` the run to people.
        max_stuck_threads: Threads that would not stop, before plain functions are refused.
        max_threads: Worker threads for plain functions.
        max_processes: Worker processes; `None` for one a core.
        max_process_memory: Bytes of address space of a worker process.
        redact: The sorts of personal data that are kept out of logs, reports, briefs and messages: ``email``,
            ``phone``, ``iban``, ``card``. Values that steps get stay as they are.
        unrecorded: Tools whose outputs no journal gets. When a run goes on without them, those tools that only look are
            called once more, and what needs an output of another is skipped.
        release_outputs: Whether texts, lists and objects that steps gave are dropped as soon as no step of the plan may
            read them any more, unless the run answers with them; journals keep them.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    max_running: Count | None = None
    max_running_by_tool: dict[str, Count] = Field(default_factory=dict)
    max_running_by_pool: dict[str, Count] = Field(default_factory=dict)
    max_steps: Count | None = None
    max_fan_out: Count = 1_000
    max_seconds: Seconds | None = None
    max_attempts: Count | None = None
    max_calls_by_tool: dict[str, Count] = Field(default_factory=dict)
    max_tokens: Count | None = None
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_replans: int = Field(default=3, ge=0)
    max_planner_calls: Count | None = None
    max_edits: Count = 1_000
    warn_at: float | None = Field(default=None, gt=0, le=1)
    timeout: Seconds | None = None
    grace: Seconds = 1.0
    retry: RetryRule = RetryRule()
    hedge: HedgeRule | None = None
    replan_on: Triggers = tuple(TriggerKind)
    planner_timeout: Seconds = 60.0
    critic_timeout: Seconds = 60.0
    brief: Literal["structural", "full"] = "structural"
    max_brief_bytes: Count = 2_000
    approve: Rules = ()
    min_confidence: float = Field(default=0.6, ge=0, le=1)
    stream_safe: Names = ()
    approve_patches: Literal["never", "effects", "always"] = "never"
    approve_output: bool = False
    answer_within: Seconds | None = None
    default_answer: DefaultAnswer = "deny"
    max_pending: Count = 100
    last_resort: Literal["skip", "escalate"] = "skip"
    max_stuck_threads: Count = 16
    max_threads: Count = 40
    max_processes: Count | None = None
    max_process_memory: Count | None = None
    redact: Redacted = ()
    unrecorded: Names = ()
    release_outputs: bool = False


class PlanLimits(BaseModel):
    """Ceilings of size for plans that come from files and planners; a plan that the host builds has none.

    To raise one, read the plan with other limits: ``read_plan(path, limits=PlanLimits(max_steps=10_000))``.

    Attributes:
        max_bytes: Of the text, counted before it is parsed.
        max_steps: Of the plan as written.
        max_depth: Of nesting.
        max_dependencies: Of one step.
        max_edges: Dependencies of all steps together.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    max_bytes: Count = 1_000_000
    max_steps: Count = 1_000
    max_depth: Count = 32
    max_dependencies: Count = 100
    max_edges: Count = 1_000_000
