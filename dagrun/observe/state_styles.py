"""How states, waits and figures look, wherever people see them: a symbol, a word and a colour, never a colour alone."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.usage import ModelUse
from dagrun.plans.drawing import SYMBOLS


@dataclass(frozen=True, slots=True)
class StateStyle:
    """How something looks.

    Attributes:
        symbol: One character.
        word: For people.
        kind: The class of its colours in style sheets: ``ok``, ``bad``, ``run``, ``hold`` or ``dim``.
    """

    symbol: str
    word: str
    kind: str


STATES: Final = {
    "succeeded": StateStyle(SYMBOLS[State.SUCCEEDED], "succeeded", "ok"),
    "failed": StateStyle(SYMBOLS[State.FAILED], "failed", "bad"),
    "timed_out": StateStyle(SYMBOLS[State.TIMED_OUT], "timed out", "bad"),
    "unknown": StateStyle(SYMBOLS[State.UNKNOWN], "effect unresolved", "bad"),
    "abandoned": StateStyle(SYMBOLS[State.ABANDONED], "abandoned", "bad"),
    "running": StateStyle(SYMBOLS[State.RUNNING], "running", "run"),
    "held": StateStyle(SYMBOLS[State.HELD], "asks a person", "hold"),
    "ready": StateStyle(SYMBOLS[State.READY], "ready", "hold"),
    "blocked": StateStyle(SYMBOLS[State.BLOCKED], "blocked", "hold"),
    "waiting": StateStyle(SYMBOLS[State.WAITING], "waiting", "dim"),
    "skipped": StateStyle(SYMBOLS[State.SKIPPED], "skipped", "dim"),
    "cancelled": StateStyle(SYMBOLS[State.CANCELLED], "cancelled", "dim"),
    "superseded": StateStyle(SYMBOLS[State.SUPERSEDED], "replaced", "dim"),
}
_OTHER: Final = StateStyle("•", "", "dim")

RUNS: Final = {
    "succeeded": StateStyle("✓", "succeeded", "ok"),
    "failed": StateStyle("✗", "failed", "bad"),
    "over_budget": StateStyle("✗", "over budget", "bad"),
    "waiting": StateStyle("‖", "waits for a person", "hold"),
    "escalated": StateStyle("!", "handed to people", "bad"),
    "unknown": StateStyle("?", "effect unresolved", "bad"),
    "cancelled": StateStyle("⊗", "cancelled", "dim"),
    "running": StateStyle("▶", "running", "run"),
    "interrupted": StateStyle("⊗", "interrupted", "hold"),
    "queued": StateStyle("…", "in the queue", "dim"),
    "stuck": StateStyle("!", "stuck", "bad"),
    "unreadable": StateStyle("!", "unreadable", "bad"),
    "ended": StateStyle("✓", "ended", "dim"),
    "empty": StateStyle("·", "empty", "dim"),
    "damaged": StateStyle("!", "damaged", "bad"),
    "plan": StateStyle("◇", "not run yet", "dim"),
}

# The colours of each kind on paper: of lines and texts, and of areas. Style sheets have those for the dark.
COLOURS: Final = {
    "ok": ("#156d2d", "#dcf3e2"),
    "bad": ("#b42318", "#fde3e0"),
    "run": ("#0a5ba8", "#d8e9fa"),
    "hold": ("#8a5a00", "#fdf0cf"),
    "dim": ("#5d6772", "#eceff2"),
}
DARK_COLOURS: Final = {
    "ok": ("#5fd38a", "#143222"),
    "bad": ("#ff8f85", "#431b18"),
    "run": ("#7cc0ff", "#15304a"),
    "hold": ("#f2c14e", "#3b2f10"),
    "dim": ("#a3adb8", "#252c34"),
}
INK: Final = {"ink": "#1c2530", "soft": "#56626f", "line": "#c3cad2", "hot": "#b3541e", "paper": "#ffffff"}
DARK_INK: Final = {"ink": "#e6e9ed", "soft": "#a3adb8", "line": "#465160", "hot": "#ffa45c", "paper": "#14181d"}

WAITS: Final = {
    "slot": "for a slot",
    "backoff": "for the end of a back-off",
    "person": "for a person",
    "planner": "for the planner",
}

# The decision about an attempt, by `dagrun.kernel.model.outcome.Recovery`.
RECOVERIES: Final = {
    "retry": "tried again",
    "fall_back": "the fallback takes over",
    "review": "critics look at it",
    "replan": "the planner is asked",
    "ask": "a person is asked",
    "escalate": "the run is handed to people",
    "default": "the default is used",
    "skip": "skipped, as the plan says",
    "give_up": "given up",
    "stop": "the run is stopped",
    "proceed": "goes on",
}

# Ends of steps that a reader must see first.
FAULTS: Final = ("failed", "timed_out", "unknown", "abandoned")

TIMES: Final = "\u00d7"  # the sign of multiplication

_NARROW: Final = frozenset("iljtfrI.,:;'|!()[]{}/\\ -·")
_WIDE: Final = frozenset("mwMW@%—✓✗▶‖\u00d7")


def look_of(state: str) -> StateStyle:
    """Return how the state of a step looks."""
    return STATES.get(state, _OTHER)


def text_width(text: str, size: float) -> float:
    """Return about how wide *text* is, in pixels, in a sans-serif font of *size* pixels; rather more than less."""
    ems = 0.0
    for sign in text:
        if sign in _NARROW:
            ems += 0.36
        elif sign in _WIDE:
            ems += 0.95
        elif unicodedata.east_asian_width(sign) in "WF":
            ems += 1.05
        else:
            ems += 0.72 if sign.isupper() else 0.6
    return ems * size


def cut_to(text: str, width: float, size: float) -> str:
    """Return *text*, or as much of it as fits into *width* pixels, with an ellipsis."""
    if text_width(text, size) <= width:
        return text
    kept = text[: int(width / size / 0.3)]
    while kept and text_width(f"{kept}…", size) > width:
        kept = kept[:-1]
    return f"{kept}…"


def seconds_text(seconds: float) -> str:
    """Write a duration for people: ``12 ms``, ``3.2 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 or not seconds else "<1 ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 9.995 else f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def counted(number: int, word: str, plural: str = "") -> str:
    """Write a number of things; the plural has an *s*, if it is not given."""
    return f"{number:,} {word if number == 1 else plural or f'{word}s'}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Write how many steps are in each state."""
    return ", ".join(f"{count:,} {look_of(state).word or state}" for state, count in counts.items())


def waits_text(waits: Mapping[str, float]) -> str:
    """Write how long steps waited, by reason; parts below a millisecond are left out."""
    return ", ".join(f"{seconds_text(waits[why])} {WAITS[why]}" for why in WAITS if waits.get(why, 0.0) >= 0.001)


def work_of(step: Mapping[str, Any], now: float) -> float:
    """Return how long the calls of a step of a view took; those without an end last until *now*."""
    calls = step["attempts"]
    return math.fsum((now if call["ended"] is None else call["ended"]) - call["started"] for call in calls)


def spending_words(use: ModelUse) -> list[str]:
    """Describe the usage of models, in up to two phrases."""
    tokens = [counted(use.tokens, "token")] if use.tokens else []
    is_used = use.tokens or use.known_cost or use.unpriced
    return [*tokens, cost_words(use.known_cost, use.unpriced)] if is_used else []


def cost_words(known: float, unpriced: int) -> str:
    """Write a cost: usage without a known price is never called free."""
    if unpriced and not known:
        return "cost unknown"
    amount = f"{known:,.4f}" if known >= 0.01 else f"{known:.6f}"
    shown = "less than 0.000001" if 0 < known < 1e-6 else amount.rstrip("0").rstrip(".")
    return f"cost {'at least ' * bool(unpriced)}{shown}"
