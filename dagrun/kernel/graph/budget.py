"""Budgets: ceilings on the use of calls, for one run or for many together."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.toolbox import AnyTool

# Costs are counted in whole units, this many to 1 of the currency: sums of floats drift, and 0.1 is not a float.
COST_UNITS: Final = 10**9

OF_ALL_RUNS: Final = " of all runs"  # behind the name of a ceiling that several runs share


class Kind(Enum):
    """The thing that a ceiling counts."""

    CALLS = "calls"
    TOKENS = "tokens"
    COST = "cost"


class Account:
    """One ceiling, in whole units. Use is always rounded up.

    Attributes:
        name: For people: ``attempts``, ``calls of load``, ``tokens``, ``cost``.
        kind: The thing that it counts.
        limit: The sum of *spent* and *reserved* never exceeds it.
        spent: The amount used so far.
        reserved: The most that open calls may use.
    """

    __slots__ = ("kind", "limit", "name", "reserved", "spent")

    def __init__(self, name: str, kind: Kind, limit: int) -> None:
        self.name = name
        self.kind = kind
        self.limit = limit
        self.spent = 0
        self.reserved = 0

    def __str__(self) -> str:
        reserved = f" and {self.shown(self.reserved):g} reserved" if self.reserved else ""
        return f"{self.shown(self.spent):g}{reserved} of {self.shown(self.limit):g} {self.name}"

    @property
    def left(self) -> int:
        """The amount that is neither spent nor reserved."""
        return max(0, self.limit - self.spent - self.reserved)

    def shown(self, units: int) -> float:
        """Return a number of units as people count them."""
        return units / COST_UNITS if self.kind is Kind.COST else units


class Claim(NamedTuple):
    """The share of one account that a call takes.

    Attributes:
        account: The account.
        need: The amount that must be left for the call to begin; 0 if the call cannot use any.
        worst: The most that the call will use; 0 if that is unknown.
    """

    account: Account
    need: int
    worst: int

    @property
    def fits(self) -> bool:
        """Whether there is room for it now."""
        account = self.account
        return not self.need or account.spent + account.reserved + self.need <= account.limit

    @property
    def room(self) -> float:
        """The number of such claims that fit now at the same time; infinity if their worst case is unknown."""
        if not self.fits:
            return 0
        return self.account.left // self.worst if self.need and self.worst else math.inf

    @property
    def may_fit_later(self) -> bool:
        """Whether there would be room for it if all that is reserved were returned."""
        return not self.need or self.account.spent + self.need <= self.account.limit


class MeteredTarget(Protocol):
    """A tool or a model, as the ledger sees it."""

    @property
    def name(self) -> str:
        """The name, for people."""

    @property
    def max_tokens(self) -> int | None:
        """The most tokens that a call can use; `None` if there is no bound."""

    @property
    def max_cost(self) -> float | None:
        """The most that a call can cost; `None` if there is no bound."""


class Ceilings:
    """The accounts of a run, or of all runs that share a budget.

    Args:
        attempts: The most calls of tools.
        tokens: The most tokens of models.
        cost: The highest cost, in the currency that tools report.
        calls: The most calls of single tools, by name.
        whose: A text after the name of each account.

    Attributes:
        accounts: The accounts of the ceilings that are set.
    """

    __slots__ = ("_attempts", "_calls", "_cost", "_tokens", "accounts")

    def __init__(
        self, *, attempts: int | None, tokens: int | None, cost: float | None, calls: Mapping[str, int], whose: str = ""
    ) -> None:
        self._attempts = None if attempts is None else Account(f"attempts{whose}", Kind.CALLS, attempts)
        self._calls = {name: Account(f"calls of {name}{whose}", Kind.CALLS, most) for name, most in calls.items()}
        self._tokens = None if tokens is None else Account(f"tokens{whose}", Kind.TOKENS, tokens)
        self._cost = None if cost is None else Account(f"cost{whose}", Kind.COST, cost_units(cost, ROUND_FLOOR))
        accounts = (self._attempts, *self._calls.values(), self._tokens, self._cost)
        self.accounts = tuple(account for account in accounts if account is not None)

    def claims(self, tool: AnyTool) -> Iterator[Claim]:
        """Yield the claim of a call of *tool* on each account."""
        for account in (self._attempts, self._calls.get(tool.name)):
            if account is not None:
                yield Claim(account, 1, 1)
        # A pure tool calls no model, so spent tokens do not stop it.
        yield from self.claims_of_use(tool, 0 if tool.effect is Effect.PURE else 1)

    def claims_of_use(self, call: MeteredTarget, least: int = 1) -> Iterator[Claim]:
        """Yield the claims of a call on tokens and cost; a call without a bound needs *least* units left."""
        if self._tokens is not None:
            worst = math.ceil(call.max_tokens or 0)
            yield Claim(self._tokens, worst or least, worst)
        if self._cost is not None:
            worst = cost_units(call.max_cost or 0)
            yield Claim(self._cost, worst or least, worst)


class Budget:
    """Ceilings for the sum of several runs, all on one event loop.

    Args:
        max_attempts: The most calls of tools.
        max_tokens: The most tokens of models.
        max_cost: The highest cost, in the currency that tools report.
        max_calls_by_tool: The most calls of single tools, by name.

    Attributes:
        ceilings: The ceilings, with what is spent and reserved.
        open: The number of open calls.
        refusals: How often a call did not fit under them that fitted under the ceilings of its own run.
        waiting: The ledgers that wait for room, in the order of asking, and the callbacks that tell them.

    Raises:
        ContractError: A ceiling is not a positive number, or no ceiling is set.
    """

    __slots__ = ("ceilings", "open", "refusals", "waiting")

    def __init__(
        self,
        *,
        max_attempts: int | None = None,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        max_calls_by_tool: Mapping[str, int] | None = None,
    ) -> None:
        calls = dict(max_calls_by_tool or {})
        counts = {"max_attempts": max_attempts, "max_tokens": max_tokens}
        for name, count in {
            **counts,
            **{f"max_calls_by_tool of {name}": count for name, count in calls.items()},
        }.items():
            if count is not None and (type(count) is not int or count < 1):
                raise ContractError(f"{name} must be a whole number of at least 1, got {count!r}")
        if max_cost is not None and not 0 < max_cost < math.inf:
            raise ContractError(f"max_cost must be positive and finite, got {max_cost!r}")
        self.ceilings = Ceilings(
            attempts=max_attempts, tokens=max_tokens, cost=max_cost, calls=calls, whose=OF_ALL_RUNS
        )
        if not self.ceilings.accounts:
            raise ContractError("a budget has at least one ceiling")
        self.open = 0
        self.refusals = 0
        self.waiting: dict[Hashable, Callable[[], object]] = {}

    def __repr__(self) -> str:
        spent = (f"{account.name} {account.shown(account.spent):g}" for account in self.ceilings.accounts)
        return shorten(f"<Budget: {', '.join(spent)} used; {self.open} open calls>", 1200)

    def left_for_policy(self) -> dict[str, Any]:
        """Return the rest of tokens and cost, by names of policy fields, where there is a ceiling."""
        names = {Kind.TOKENS: "max_tokens", Kind.COST: "max_cost"}
        return {
            names[account.kind]: account.left if account.kind is Kind.TOKENS else account.shown(account.left)
            for account in self.ceilings.accounts
            if account.kind in names
        }

    def record_shortage(self, lacking: Iterable[Claim]) -> bool:
        """Note that a call lacks room; return whether a ceiling of these is among those that it lacks room under.

        It is a refusal of the budget only if nothing else would have refused the call.

        Args:
            lacking: All claims of the call that have too little room.
        """
        are_shared = [claim.account in self.ceilings.accounts for claim in lacking]
        self.refusals += bool(are_shared) and all(are_shared)
        return any(are_shared)

    def tell(self) -> None:
        """Wake the waiting runs, in the order of asking, after a call has ended; a run that needs room asks again."""
        waiting, self.waiting = self.waiting, {}
        for on_room in waiting.values():
            on_room()

    def used(self) -> dict[str, float]:
        """Return the spent amount of each ceiling, by name."""
        return {account.name: account.shown(account.spent) for account in self.ceilings.accounts}

    def left(self) -> dict[str, float]:
        """Return the amount of each ceiling that is neither spent nor reserved, by name."""
        return {account.name: account.shown(account.left) for account in self.ceilings.accounts}


def cost_units(cost: Any, rounding: str = ROUND_CEILING) -> int:
    """Turn a cost into whole units, rounded up by default.

    Only fifteen digits count: further ones are noise of floats, such as that of 0.1 + 0.2.
    """
    exact = Decimal(cost) if isinstance(cost, int) else Decimal(f"{float(cost):.15g}")
    return int((exact * COST_UNITS).to_integral_value(rounding))
