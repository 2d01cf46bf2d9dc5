"""The `Critic` protocol: critics judge the output of a step before any other step may use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from dagrun.errors import ContractError, short_repr, shorten
from dagrun.kernel.model.outcome import Failure, Outcome, later, unrecorded
from dagrun.kernel.model.plan import Step

MAX_REASON = 500

Result = Literal["pass", "fail", "surprising", "contradictory"]
"""The judgement of a critic; all but ``pass`` may lead to a new plan."""

Sources: TypeAlias = Callable[[], Mapping[str, Any]]
SOURCES: ContextVar[Sources | None] = ContextVar("dagrun sources", default=None)
"""Returns the decoded outputs that the step under review has read, by step id; set by the run around each review.

Each element of a ``for_each`` has its own entry.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a critic on an output.

    Attributes:
        result: ``pass``, ``fail`` (the output must not be used), ``surprising`` (the output may be right, but the
            plan did not expect it), or ``contradictory`` (it may be right, but its sources do not agree).
        score: From 0 to 1; `None` if the critic gives no score.
        reason: The reason in a sentence.
        critic: The name of the critic; filled in by the run, like *tokens* and *cost*.
        tokens: Tokens that the models of the critic have used, as far as they reported them.
        cost: The cost of these tokens; `None` if it is not known.
        confidence: How sure one can be of the output, from 0 to 1, and of everything that is made of it; `None` to
            say nothing.
        answer: What the model of the critic answered, if the answer could not be used; at most 64 KiB.
        failure: The failure of the critic itself, if it has failed; not recorded.
    """

    __repr__ = short_repr

    result: Result
    score: float | None = None
    reason: str = ""
    critic: str = ""
    tokens: int = 0
    cost: float | None = None
    confidence: float | None = later(None)
    answer: str = later("")
    failure: Failure | None = unrecorded()

    def __post_init__(self) -> None:
        if self.result not in ("pass", "fail", "surprising", "contradictory"):
            raise ContractError(f"a verdict is pass, fail, surprising or contradictory, not {self.result!r}")
        if self.score is not None and not 0 <= self.score <= 1:
            raise ContractError(f"a score is from 0 to 1, got {self.score}")
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise ContractError(f"a confidence is from 0 to 1, got {self.confidence}")
        object.__setattr__(self, "reason", shorten(self.reason, MAX_REASON))

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as plain JSON."""
        fields: dict[str, Any] = {
            "critic": self.critic,
            "result": self.result,
            "score": self.score,
            "reason": self.reason,
        }
        if self.confidence is not None:
            fields["confidence"] = self.confidence
        if self.tokens:
            fields |= {"tokens": self.tokens, "cost": self.cost}
        return {**fields, "answer": self.answer} if self.answer else fields


@runtime_checkable
class Critic(Protocol):
    """Judges the outputs of steps. It calls no tool of the plan and changes nothing.

    Attributes:
        name: The name of the critic, for records and messages.
    """

    name: str

    def applies_to(self, step: Step) -> bool:
        """Whether the critic judges the output of *step*; asked once per attempt, so it must be quick."""
        ...

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge a successful outcome; ``outcome.output`` is a copy of the output.

        If the critic raises, or takes longer than the policy's ``critic_timeout``, the step fails.
        """
        ...
