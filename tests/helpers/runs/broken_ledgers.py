"""Broken ledgers: each has one plausible bug, and the laws of `ledgers.py` must notice every one of them."""

from __future__ import annotations

from typing import Final

from dagrun.kernel.graph.ledger import Claim, Kind, Ledger, Reservation
from dagrun.kernel.model.tool import AnyTool


class ChecksThenActs(Ledger):
    """Looks at what is spent, and not at what others are about to spend."""

    def reserve(self, tool: AnyTool) -> Reservation | None:
        held = [(claim.account, claim.account.reserved) for claim in self._claims_of(tool)]
        for account, _ in held:
            account.reserved = 0
        made = super().reserve(tool)
        for account, reserved in held:
            account.reserved += reserved
        return made


class ReservesAnEstimate(Ledger):
    """Reserves what a call usually takes."""

    def _claims_of(self, tool: AnyTool) -> tuple[Claim, ...]:
        return tuple(
            claim if claim.account.kind is Kind.CALLS else claim._replace(need=claim.need // 2, worst=claim.worst // 2)
            for claim in super()._claims_of(tool)
        )


class SettlesTwice(Ledger):
    """Gives back again what was given back before."""

    def settle(
        self, reservation: Reservation, tokens: int | None = 0, cost: float | None = None, *, is_reported: bool
    ) -> tuple[str, ...]:
        if reservation not in self._open:
            for account, _, worst in reservation.claims:
                account.spent -= worst if account.kind is not Kind.CALLS else 0
        return super().settle(reservation, tokens, cost, is_reported=is_reported)


class WithdrawsTwice(Ledger):
    """The same, for calls that were never made."""

    def withdraw(self, reservation: Reservation) -> None:
        self._open.add(reservation)
        if self._shared is not None:
            self._shared.open += 1
        super().withdraw(reservation)


class BelievesAnything(Ledger):
    """A report of -5 tokens wins room for 5 more."""

    def settle(
        self, reservation: Reservation, tokens: int | None = 0, cost: float | None = None, *, is_reported: bool
    ) -> tuple[str, ...]:
        for account, _, _ in (
            reservation.claims if tokens is not None and reservation in self._open and -10 < tokens < 0 else ()
        ):
            account.spent += (tokens or 0) if account.kind is Kind.TOKENS else 0
        return super().settle(reservation, tokens, cost, is_reported=is_reported)


class ForgivesSilence(Ledger):
    """What was not reported was not used."""

    def settle(
        self, reservation: Reservation, tokens: int | None = 0, cost: float | None = None, *, is_reported: bool
    ) -> tuple[str, ...]:
        return super().settle(reservation, tokens, cost if is_reported else 0.0, is_reported=True)


class TakesHalf(Ledger):
    """Takes from one ceiling before it knows of the next."""

    def reserve(self, tool: AnyTool) -> Reservation | None:
        for claim in self._claims_of(tool):
            if not claim.fits:
                break
            claim.account.reserved += claim.worst
        else:
            for claim in self._claims_of(tool):
                claim.account.reserved -= claim.worst
        return super().reserve(tool)


class LooksAtItsOwn(Ledger):
    """What is shared is no concern of a single run."""

    def _claims_of(self, tool: AnyTool) -> tuple[Claim, ...]:
        return tuple(claim for claim in super()._claims_of(tool) if claim.account in self._own.accounts)


class TellsNobody(Ledger):
    """The others will notice by themselves."""

    def _close(self, reservation: Reservation) -> None:
        if self._shared is not None:
            self._shared.waiting, kept = {}, self._shared.waiting
            super()._close(reservation)
            self._shared.waiting = kept


class StaysInLine(Ledger):
    """A run that has ended still waits for room."""

    def leave(self) -> None:
        for reservation in list(self._open):
            self.settle(reservation, is_reported=False)


class TakesItsReservationsAlong(Ledger):
    """What a run had reserved when it ended stays reserved for good."""

    def leave(self) -> None:
        self._open.clear()


class RefusesTheLastOne(Ledger):
    """Off by one: what would fill a ceiling exactly does not fit."""

    def _claims_of(self, tool: AnyTool) -> tuple[Claim, ...]:
        return tuple(claim._replace(need=claim.need and claim.need + 1) for claim in super()._claims_of(tool))


BROKEN: Final[tuple[type[Ledger], ...]] = (
    ChecksThenActs,
    ReservesAnEstimate,
    SettlesTwice,
    WithdrawsTwice,
    BelievesAnything,
    ForgivesSilence,
    TakesHalf,
    LooksAtItsOwn,
    TellsNobody,
    StaysInLine,
    TakesItsReservationsAlong,
    RefusesTheLastOne,
)
