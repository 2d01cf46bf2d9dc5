"""What must hold of every answer of a model, whatever stands in it; and readers that break it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from checking import TOOLBOX
from dagrun import Plan, PlanLimits, PlanRefused, Step, read_plan
from dagrun.errors import CannotPlan
from dagrun.planners.answers.json_stream import ClosedPart, Element, JsonScanner
from dagrun.planners.answers.plan_stream import PlanReader
from model_answers import Answer, pieces

LIMITS: Final = PlanLimits(max_bytes=60_000, max_steps=12)

# What reading ends in: the plan; the problems; or the sentence of a refusal.
End: TypeAlias = Plan | tuple[str, ...] | str
MakeReader: TypeAlias = Callable[[], PlanReader]


@dataclass(frozen=True, slots=True)
class Reading:
    """How an answer was read.

    Attributes:
        given: The steps that came while it was fed.
        end: What it ended in.
    """

    given: tuple[Step, ...]
    end: End


def make_reader() -> PlanReader:
    """A reader of answers."""
    return PlanReader(TOOLBOX, LIMITS)


def read(make: MakeReader, parts: Iterable[str]) -> Reading:
    """Feed *parts* to a reader; anything but a plan or a typed error goes through."""
    reader, given = make(), list[Step]()
    try:
        for part in parts:
            given += reader.feed(part)
        return Reading(tuple(given), reader.close())
    except PlanRefused as refusal:
        return Reading(tuple(given), tuple(map(str, refusal.problems)))
    except CannotPlan as refusal:
        return Reading(tuple(given), f"refused: {refusal.reason}")


def end_of(call: Callable[[], Any]) -> Any:
    """What *call* gives, or the typed error that it ends in, as a value."""
    try:
        return call()
    except PlanRefused as refusal:
        return tuple(map(str, refusal.problems))
    except CannotPlan as refusal:
        return f"refused: {refusal.reason}"


def broken_rules(answer: Answer, rng: random.Random, make: MakeReader = make_reader) -> list[str]:
    """The rules that reading an answer breaks."""
    whole = read(make, [answer.text])
    cut = read(make, pieces(answer.text, rng))
    broken = []
    if () in (whole.end, cut.end):
        broken.append("a refusal says nothing")
    if whole.end != cut.end and not (_is_ceiling(whole.end) and _is_ceiling(cut.end)):
        broken.append(f"the end depends on the pieces: {whole.end} / {cut.end}")
    for reading in (whole, cut):
        if isinstance(reading.end, Plan) and list(reading.given) != list(reading.end.steps)[: len(reading.given)]:
            broken.append("a step was given out that is not in the plan")
        elif isinstance(reading.end, Plan) and len(reading.end.steps) - len(reading.given) > 1:
            broken.append("steps of the plan were not given out")
    if not isinstance(whole.end, tuple) and whole.given != cut.given:
        broken.append("the steps depend on the pieces")
    expected = _expected(answer)
    if expected is not None and cut.end != expected:
        broken.append(f"expected {expected}, got {cut.end}")
    if answer.is_whole and answer.form in ("plan", "numbered", "compiler") and not isinstance(cut.end, Plan):
        broken.append(f"a good answer was refused: {cut.end}")
    return broken


def _is_ceiling(end: End) -> bool:
    """Whether a ceiling of size was reached; where several are, which one is first depends on the pieces."""
    return isinstance(end, tuple) and len(end) == 1 and end[0].startswith(("DR005", "DR006", "DR108"))


def _expected(answer: Answer) -> End | None:
    """What another way of reading gives: Python's own parser finds the object; `None` where that says nothing."""
    if answer.form == "compiler" or re.search(r"(?m)^[ \t]*[0-9]+\.[ \t]*\w+\(", answer.text):
        return None
    found = _objects(answer.text)
    if found is None or len(found) != 1:
        return None
    text, tree = found[0]
    refusal = tree.get("refusal")
    if isinstance(refusal, str) and refusal.strip() and not tree.get("steps"):
        return None
    made: End = end_of(lambda: read_plan(text, toolbox=TOOLBOX, limits=LIMITS))
    return made if isinstance(made, Plan) else None


def _objects(text: str) -> list[tuple[str, dict[str, Any]]] | None:
    """The objects with steps in a text; `None` if anything in it is in doubt."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while (match := re.compile(r'\{[ \t\r\n]*"').search(text, at)) is not None:
        try:
            tree, at = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            return None
        part = text[match.start() : at]
        if part.count("{") + part.count("[") > LIMITS.max_depth and not {"steps", "refusal"} & tree.keys():
            return None
        if {"steps", "refusal"} & tree.keys():
            found.append((part, tree))
    return found


# Readers with a bug each ----------------------------------------------------------------------------------------------


def with_scanner(kind: type[JsonScanner]) -> MakeReader:
    """Make readers with another scanner."""

    def make() -> PlanReader:
        reader = make_reader()
        reader._objects = kind(LIMITS.max_depth)
        return reader

    return make


class AtNextKey(JsonScanner):
    """Takes a step for whole when another key of it begins, as readers of partial JSON do."""

    def _pass_separator(self, sign: str, text: str, here: int) -> None:
        super()._pass_separator(sign, text, here)
        if sign == "," and len(self._open) == 3 and self._is_list:
            self._closed.append(Element(self._index, self._end_copy(text, here) + "}"))
            self._copy_from = -2

    def _in_body(self, text: str, at: int) -> int:
        match = re.compile(r'["{}\[\],:]').search(text, at)
        if match is not None and match.group() == "," and len(self._open) == 3 and self._copy_from >= 0:
            self._pass_separator(",", text, match.start())
            return match.end()
        return super()._in_body(text, at)

    def _end_copy(self, text: str, here: int) -> str:
        return super()._end_copy(text, here) if self._copy_from >= 0 else "null"


class Impatient(JsonScanner):
    """Closes what is open at the end of each piece, and takes what parses: half a number is a number."""

    def feed(self, text: str) -> list[ClosedPart]:
        """Feed *text*, and add what would be whole if it ended here."""
        found = super().feed(text)
        if self._is_list and len(self._open) > 2 and self._pieces:
            closed = "".join(self._pieces) + "".join(reversed(self._open[2:]))
            try:
                is_step = {"id", "tool", "args"} <= json.loads(closed).keys()
            except (ValueError, RecursionError):
                return found
            if is_step:
                found.append(Element(self._index, closed))
        return found


class NoEscapes(JsonScanner):
    """Does not know that a quote may be escaped."""

    def _in_escape(self, text: str, at: int) -> int:
        self._state = self._in_text
        return at


class Forgetful(JsonScanner):
    """Begins every piece outside of texts."""

    def feed(self, text: str) -> list[ClosedPart]:
        """Feed *text*."""
        if self._state == self._in_text:
            self._state = self._in_body
        return super().feed(text)


class LateReader(PlanReader):
    """Gives a step out with the piece after its own, and so the last one never."""

    def feed(self, text: str) -> list[Step]:
        """Feed *text*."""
        late = self.__dict__.setdefault("late", [])
        late.append(super().feed(text))
        given: Sequence[Step] = late.pop(0) if len(late) > 2 else []
        return list(given)


MUTANTS: Final[dict[str, MakeReader]] = {
    "gives out at the next key": with_scanner(AtNextKey),
    "takes half a number": with_scanner(Impatient),
    "ignores escapes": with_scanner(NoEscapes),
    "forgets at the border": with_scanner(Forgetful),
    "is late": lambda: LateReader(TOOLBOX, LIMITS),
}
