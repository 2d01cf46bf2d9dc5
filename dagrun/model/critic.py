"""Critics: they look at what a step gave before anything else may use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from dagrun.errors import ContractError, shorten
from dagrun.model.outcome import Outcome
from dagrun.model.plan import Step

MAX_REASON = 500

Result = Literal["pass", "fail", "surprising"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a critic says of an output.

    Attributes:
        result: ``pass``, ``fail`` (it must not be used), or ``surprising`` (it may be right, but the plan did not
            count on it).
        score: From 0 to 1; `None` if the critic does not count.
        reason: In a sentence.
        critic: The name of the critic; filled in by the run, like what follows.
        tokens: What the models of the critic have used, as far as they have said so.
        cost: The same in money; `None` if nobody knows.
    """

    result: Result
    score: float | None = None
    reason: str = ""
    critic: str = ""
    tokens: int = 0
    cost: float | None = None

    def __post_init__(self) -> None:
        if self.result not in ("pass", "fail", "surprising"):
            raise ContractError(f"a verdict is pass, fail or surprising, not {self.result!r}")
        if self.score is not None and not 0 <= self.score <= 1:
            raise ContractError(f"a score is from 0 to 1, got {self.score}")
        object.__setattr__(self, "reason", shorten(self.reason, MAX_REASON))

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain JSON."""
        said = {"critic": self.critic, "result": self.result, "score": self.score, "reason": self.reason}
        return {**said, "tokens": self.tokens, "cost": self.cost} if self.tokens else said


@runtime_checkable
class Critic(Protocol):
    """Looks at the outputs of steps. It calls no tool of the plan and changes nothing.

    Attributes:
        name: For records and messages.
    """

    name: str

    def applies_to(self, step: Step) -> bool:
        """Whether it wants to see the output of *step*; asked once per attempt, so it must be quick."""
        ...

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge an outcome that has succeeded; ``outcome.output`` is a copy of the output.

        A critic that raises, or takes longer than the policy's ``critic_timeout``, has not passed the output: the
        step fails.
        """
        ...
