"""The trust boundary of a policy: the sources that each argument accepts, and the data that must not leave.

A policy without a `Flow` has no trust boundary, and nothing is computed. With one, `dagrun.kernel.checks.flow` works
out for each step of a plan whose data it is made of; nothing is tracked while a run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from dagrun.kernel.model.flow.marks import GuardedCall
from dagrun.kernel.model.plan import Names, StrictModel


class GuardRule(StrictModel):
    """A rule of the trust boundary about the arguments of tools.

    Attributes:
        tool: The name of the tool, or a pattern such as ``post_*``; ``*`` for every tool.
        args: The guarded arguments; `None` for those that the tool guards itself, and if it guards none, for every
            argument of a tool that acts: that has an effect, or is outbound.
        accepts: The sources whose data may get into them: ``user`` (inputs of the run), ``plan`` (what the plan says),
            ``person``, ``host``, ``input:NAME``, and names or patterns of tools. Data that is made of several sources
            needs all of them. `None` for all data that others cannot write.
        keeps: ``private`` if nothing private may get into any argument, ``nothing`` if that does not matter; `None` for
            what the tool says: nothing private gets into one that is outbound.
        control: Whether conditions (``when``) and lists (``for_each``) count, too: whose data decides whether and how
            often the tool is called.
    """

    tool: str
    args: Names | None = None
    accepts: Names | None = None
    keeps: Literal["private", "nothing"] | None = None
    control: bool = False


class EndorseRule(StrictModel):
    """The host trusts the output of a tool, whatever its inputs were; only a policy can declare it.

    Attributes:
        tool: The name of the tool, or a pattern.
    """

    tool: str


if TYPE_CHECKING:
    from collections.abc import Sequence

    Guards = Sequence[GuardRule]
    Endorsements = Sequence[EndorseRule]
else:
    Guards = Annotated[tuple[GuardRule, ...], Field(strict=False)]
    Endorsements = Annotated[tuple[EndorseRule, ...], Field(strict=False)]


class Flow(StrictModel):
    """The trust boundary of a policy: data that others can write cannot give orders.

    Each call of a tool that acts (it has an effect, or is outbound) is made as the plan says. What others can write may
    get into its unguarded arguments; where it gets into a guarded one, or where a planner has written the call after it
    was shown such text, a person is asked first.

    Attributes:
        untrusted: Tools whose answers others can write, as names or patterns, in addition to those that say so.
        private: Tools whose answers must not leave, in addition to those that say so.
        outbound: Tools that carry their arguments out, in addition to those that say so.
        inputs: The names of inputs of the run that others have written.
        otherwise: What follows where data gets into an argument that does not accept it: ``ask`` a person before the
            call, or ``refuse`` the plan or the patch.
        guard: Rules about arguments, in addition to what tools say.
        endorse: The tools whose answers the host vouches for.
        unless: A function of the host that is called before a person is asked, and returns whether the call may be made
            without; a failure of it counts as no. It is on no record, so pass it again when a run is resumed.
    """

    untrusted: Names = ()
    private: Names = ()
    outbound: Names = ()
    inputs: Names = ()
    otherwise: Literal["ask", "refuse"] = "ask"
    guard: Guards = ()
    endorse: Endorsements = ()
    unless: Callable[[GuardedCall], bool] | None = Field(default=None, exclude=True, repr=False)

    @field_validator("unless")
    @classmethod
    def _is_plain(cls, unless: Any) -> Any:
        from dagrun.kernel.model.signature import refuse_async  # here: it needs all of the contracts of tools

        if unless is not None:
            refuse_async(unless, "unless")
        return unless

    @model_validator(mode="after")
    def _asks(self) -> Flow:
        if self.unless is not None and self.otherwise == "refuse":
            raise ValueError('unless saves questions, and with otherwise = "refuse" there are none')
        return self


def names(patterns: Names, name: str) -> bool:
    """Whether *name* matches one of *patterns*, in which ``*`` is any text."""
    return any(pattern == name or ("*" in pattern and fnmatchcase(name, pattern)) for pattern in patterns)
