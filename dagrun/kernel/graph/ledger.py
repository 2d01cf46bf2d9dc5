"""The ledger of a run, and budgets: ceilings on the use of calls, for one run or for many together.

The worst case of a call is reserved before it, and its real use is settled after it. Room is found and taken in the
same instant, so runs and branches at work at the same time cannot overspend together. Attempts and calls are spent when
they are made. Tokens and cost that a call did not use are returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import Enum
from numbers import Real
from typing import Any, Final, NamedTuple, Protocol

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.tool import AnyTool, Tool

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
        ceilings: The ceilings, with spent and reserved amounts.
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

    Only fifteen digits count: further ones are noise of floats, as in 0.1 + 0.2.
    """
    exact = Decimal(cost) if isinstance(cost, int) else Decimal(f"{float(cost):.15g}")
    return int((exact * COST_UNITS).to_integral_value(rounding))


_MAX_FIGURE: Final = 10**15  # a report above that is a fault of the tool


@dataclass(slots=True, eq=False)
class Reservation:
    """Room for one call.

    Attributes:
        called: The tool or model.
        claims: The amounts that are reserved, one for each account.
    """

    called: MeteredTarget
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model that no tool makes.

    Attributes:
        name: The name of the model.
        max_tokens: The most tokens that the call can use; `None` if there is no bound.
        max_cost: The most that the call can cost; `None` if that is unknown.
    """

    name: str
    max_tokens: int | None
    max_cost: float | None


class Near(NamedTuple):
    """A ceiling that is nearly spent."""

    ceiling: str
    used: float
    limit: float


class Ledger:
    """The usage of a run, and its remaining budget. Cheap to make: every run has one, if only for its planner.

    Args:
        policy: The ceilings of the run.
        shared: Ceilings that it shares with other runs; a call must fit under them as well.
        on_room: Called after a call was refused for a shared ceiling, once a call of any of these runs has ended.
    """

    __slots__ = ("_accounts", "_claims", "_has_left", "_on_room", "_open", "_own", "_planner", "_replans", "_shared")

    def __init__(
        self, policy: Policy, shared: Budget | None = None, on_room: Callable[[], object] | None = None
    ) -> None:
        self._own = Ceilings(
            attempts=policy.max_attempts,
            tokens=policy.max_tokens,
            cost=policy.max_cost,
            calls=policy.max_calls_by_tool,
        )
        self._shared = shared
        self._on_room = on_room
        self._accounts = self._own.accounts + (shared.ceilings.accounts if shared is not None else ())
        self._claims: dict[str, tuple[Claim, ...]] = {}
        self._open: set[Reservation] = set()
        self._has_left = False
        self._replans = Account("replans", Kind.CALLS, policy.max_replans)
        limit = policy.planning.max_calls
        self._planner = None if limit is None else Account("planner calls", Kind.CALLS, limit)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(map(str, self._all()))}>"

    @property
    def binds_attempts(self) -> bool:
        """Whether there is a ceiling on calls, tokens or cost; if not, nothing needs to be reserved."""
        return bool(self._accounts)

    # Calls of tools ---------------------------------------------------------------------------------------

    def reserve(self, tool: AnyTool) -> Reservation | None:
        """Reserve the worst case of a call of *tool*; `None`, with nothing reserved, if it does not fit now."""
        claims = self._claims_of(tool)
        if not all(claim.fits for claim in claims):
            self._wait(claim for claim in claims if not claim.fits)
            return None
        return self._take_room(tool, claims)

    def reserve_model(self, call: ModelCall) -> Reservation | None:
        """Reserve the worst case of a call of a model; `None` if it does not fit. Nothing waits for such room."""
        claims = self._claims_of_model(call)
        if self._has_left:
            return None
        if all(claim.fits for claim in claims):
            return self._take_room(call, claims)
        if self._shared is not None:
            self._shared.record_shortage(claim for claim in claims if not claim.fits)
        return None

    def _take_room(self, called: MeteredTarget, claims: tuple[Claim, ...]) -> Reservation:
        for account, _, worst in claims:
            if account.kind is Kind.CALLS:
                account.spent += 1
            else:
                account.reserved += worst
        reservation = Reservation(called, claims)
        self._open.add(reservation)
        if self._shared is not None:
            self._shared.open += 1
        return reservation

    def charge(self, called: MeteredTarget, tokens: int, cost: float | None, *, is_reported: bool) -> None:
        """Charge a call that was made before the run was resumed, to the ceilings of the run alone.

        Args:
            called: The tool or model.
            tokens: The tokens that it reported.
            cost: The cost that it reported; `None` if it reported none.
            is_reported: Whether it reported anything; else its worst case is charged.
        """
        claims = self._own.claims(called) if isinstance(called, Tool) else self._own.claims_of_use(called)
        self.settle(self._take_room(called, tuple(claims)), tokens, cost, is_reported=is_reported)

    def count_planner(self, replans: int, calls: int) -> None:
        """Set how often the planner was asked before the run was resumed."""
        self._replans.spent = replans
        if self._planner is not None:
            self._planner.spent = calls

    def room(self, tool: AnyTool, wanted: int) -> int:
        """Return how many of the *wanted* calls of *tool* fit now at the same time.

        If a shared ceiling lets fewer through, this run is told when that may have changed.
        """
        claims = self._claims_of(tool)
        fewest = min((claim.room for claim in claims), default=wanted)
        if fewest < wanted:
            self._wait(claim for claim in claims if claim.room < wanted)
        return int(min(fewest, wanted))

    def settle(
        self, reservation: Reservation, tokens: int | None = 0, cost: float | None = None, *, is_reported: bool
    ) -> tuple[str, ...]:
        """Charge the usage of a call, and release the rest. A second call for the same reservation changes nothing.

        Unknown figures are charged at their worst case: both if nothing was reported, else a figure that cannot be
        true, a cost that was not reported, and a zero beside a figure above zero. A figure above its worst case is
        charged as it is.

        Args:
            reservation: The reservation of the call.
            tokens: The tokens that it reported; `None` if it reported none.
            cost: The cost that it reported; `None` if it reported none.
            is_reported: Whether it reported anything.

        Returns:
            Where the tool has broken its contract, a sentence each.
        """
        if reservation not in self._open:
            return ()
        usage = _usage(reservation.called, tokens, cost) if is_reported else _UNKNOWN
        for account, _, worst in reservation.claims:
            if account.kind is Kind.CALLS:
                continue
            used = usage.tokens if account.kind is Kind.TOKENS else usage.cost
            account.reserved -= worst
            account.spent += worst if used is None else used
        self._close(reservation)
        return usage.faults

    def withdraw(self, reservation: Reservation) -> None:
        """Return all that was reserved: no call was made."""
        if reservation not in self._open:
            return
        for account, _, worst in reservation.claims:
            if account.kind is Kind.CALLS:
                account.spent -= 1
            else:
                account.reserved -= worst
        self._close(reservation)

    def leave(self) -> None:
        """End the run: charge open calls at their worst, wait for no room, and let no model be called."""
        self._has_left = True
        if self._shared is not None:
            self._shared.waiting.pop(self, None)
        for reservation in list(self._open):
            self.settle(reservation, is_reported=False)

    def may_fit_later(self, tool: AnyTool, waiting: int = 0) -> bool:
        """Whether waiting for room is worthwhile for a call that does not fit now.

        It is while calls of this run are open, because their results count in any case. For calls of other runs the run
        waits only if they may return enough.

        Args:
            tool: The tool.
            waiting: How many of the open calls wait for other calls of the run themselves.
        """
        return len(self._open) > waiting or all(claim.may_fit_later for claim in self._claims_of(tool))

    def why_not(self, tool: AnyTool, ready: int) -> str:
        """Name the ceiling under which a call of *tool* does not fit, in a sentence; empty if it fits.

        Args:
            tool: The tool.
            ready: The number of ready steps.
        """
        return _why_not(tool, self._claims_of(tool), f"{ready} still ready")

    def why_no_model(self, call: ModelCall) -> str:
        """Name the ceiling under which a call of a model does not fit, in a sentence; empty if it fits."""
        return "the run has ended" if self._has_left else _why_not(call, self._claims_of_model(call))

    def _claims_of(self, tool: AnyTool) -> tuple[Claim, ...]:
        claims = self._claims.get(tool.name)
        if claims is None:
            shared = self._shared.ceilings.claims(tool) if self._shared is not None else ()
            claims = self._claims[tool.name] = (*self._own.claims(tool), *shared)
        return claims

    def _claims_of_model(self, call: ModelCall) -> tuple[Claim, ...]:
        shared = self._shared.ceilings.claims_of_use(call) if self._shared is not None else ()
        return (*self._own.claims_of_use(call), *shared)

    def _wait(self, lacking: Iterable[Claim]) -> None:
        """Join the waiting runs, if one of the *lacking* accounts is a shared one."""
        if self._shared is None:
            return
        if self._shared.record_shortage(lacking) and self._on_room is not None:
            self._shared.waiting.setdefault(self, self._on_room)

    def _close(self, reservation: Reservation) -> None:
        self._open.remove(reservation)
        if self._shared is not None:
            self._shared.open -= 1
            self._shared.tell()  # last: the runs that are told may reserve at once

    # The planner ------------------------------------------------------------------------------------------

    def take_replan(self) -> bool:
        """Count one more request to the planner; return whether there may be one."""
        return _take(self._replans)

    def take_planner_call(self) -> bool:
        """Count one more call of the planner; return whether there may be one."""
        return self._planner is None or _take(self._planner)

    def why_no_planner(self) -> str:
        """Name the ceiling that keeps the planner from being asked again, in a sentence; empty if none does."""
        # Calls come first: the last request that was granted may still run out of calls.
        spent = next((a for a in (self._planner, self._replans) if a is not None and a.spent >= a.limit), None)
        return "" if spent is None else f"{_ceiling(spent)} is spent: {spent.spent} used"

    # Figures ----------------------------------------------------------------------------------------------

    def near(self, warn_at: float | None) -> Near | None:
        """Return the first ceiling that is spent to the fraction *warn_at*; `None` if there is none.

        Reserved amounts do not count: they may be returned, and a warning cannot be taken back. Replans and calls of
        the planner do not count either, because dropping steps saves none of them.
        """
        if warn_at is None:
            return None
        for account in self._accounts:
            spent, limit = account.spent, account.limit
            if spent >= limit or spent / limit >= warn_at:  # a product of floats could be rounded up
                return Near(account.name, account.shown(spent), account.shown(limit))
        return None

    def used(self) -> dict[str, float]:
        """Return the spent amount of every ceiling that is set, by name."""
        return {account.name: account.shown(account.spent) for account in self._all()}

    def left(self) -> dict[str, float]:
        """Return the amount of every ceiling that is neither spent nor reserved, by name."""
        return {account.name: account.shown(account.left) for account in self._all()}

    def _all(self) -> tuple[Account, ...]:
        return (*self._accounts, self._replans, *((self._planner,) if self._planner is not None else ()))


def _take(account: Account) -> bool:
    if account.spent >= account.limit:
        return False
    account.spent += 1
    return True


@dataclass(frozen=True, slots=True)
class _Usage:
    """The usage of a call, in whole units; `None` for unknown."""

    tokens: int | None = None
    cost: int | None = None
    faults: tuple[str, ...] = ()


_UNKNOWN = _Usage()


def _why_not(called: MeteredTarget, claims: Iterable[Claim], *more: str) -> str:
    """Name the first ceiling under which a call does not fit, in a sentence; empty if it fits everywhere."""
    claim = next((claim for claim in claims if not claim.fits), None)
    if claim is None:
        return ""
    account = claim.account
    facts = [f"{_number(account, account.spent)} used", *more]
    if account.reserved:
        facts.insert(1, f"{_number(account, account.reserved)} reserved")
    fault = "is spent"
    if account.spent < account.limit:
        wanted = f"may use {_number(account, claim.worst)}" if claim.worst else "names no bound"
        fault = f"has no room for {called.name}, which {wanted}"
    return f"{_ceiling(account)} {fault}: {', '.join(facts)}"


def _usage(tool: MeteredTarget, tokens: Any, cost: Any) -> _Usage:
    """Return the credible part of a report, and its faults."""
    faults = [
        f"{tool.name} reported {shorten(repr(figure), 40)} as its {name}, which cannot be; its worst case is charged"
        for name, figure in (("tokens", tokens), ("cost", cost))
        if figure is not None and not _is_figure(figure)
    ]
    used_tokens = math.ceil(tokens) if _is_figure(tokens) else None
    used_cost = cost_units(cost) if _is_figure(cost) else None
    if tool.max_tokens is not None and (used_tokens or 0) > tool.max_tokens:
        faults.append(f"{tool.name} used {used_tokens} tokens, and its max_tokens is {tool.max_tokens}")
    if tool.max_cost is not None and (used_cost or 0) > cost_units(tool.max_cost):
        faults.append(f"{tool.name} cost {cost:g}, and its max_cost is {tool.max_cost:g}")
    # A call of a model that costs money uses tokens, and the reverse: a zero beside a real figure is not credible.
    return _Usage(
        None if used_tokens == 0 and used_cost else used_tokens,
        None if used_cost == 0 and used_tokens else used_cost,
        tuple(faults),
    )


def _is_figure(figure: Any) -> bool:
    """Whether *figure* can be an amount: a number, not negative, and not absurdly large."""
    return issubclass(type(figure), Real) and type(figure) is not bool and bool(0 <= figure <= _MAX_FIGURE)


def _ceiling(account: Account) -> str:
    if account.kind is Kind.COST:
        return f"ceiling of {_number(account, account.limit)} in {account.name}"
    return f"ceiling of {account.limit} {account.name}"


def _number(account: Account, units: int) -> str:
    return f"{account.shown(units):.15g}" if account.kind is Kind.COST else str(units)
