"""Helpers for tests of released outputs: who still holds a value, and whether releasing changes what a run does."""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any, Final

from dagrun import Event, Problem
from dagrun.events import PatchRefused
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.value import RELEASED, decode_or_reason
from dagrun.kernel.runtime.result import answer_of
from fuzz import run_case
from histories import trace_of
from random_cases import Case

_MARK: Final = re.compile("<<([a-z]+[0-9]*)>>")


# Who holds what ------------------------------------------------------------------------------------------------------


def marks_held(*roots: object) -> set[str]:
    """The marks ``<<name>>`` in all texts that can be reached from *roots*, through whatever Python object."""
    found: set[str] = set()
    seen, waiting = {id(roots)}, list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, str | bytes):
            found.update(_MARK.findall(item if isinstance(item, str) else item.decode(errors="replace")))
        else:
            waiting += _parts(item)
    return found


def _parts(item: object) -> list[Any]:
    if isinstance(item, ModuleType | type):
        return []
    if isinstance(item, FunctionType):  # not the module that it is written in
        return [*(item.__closure__ or ()), *(item.__defaults__ or ())]
    if isinstance(item, dict) and ("__builtins__" in item or "__build_class__" in item):
        return []
    return gc.get_referents(item)


# With and without ----------------------------------------------------------------------------------------------------


@dataclass
class Compared:
    """A case that was run twice, without the policy and with it.

    Attributes:
        problems: What differs.
        counts: What was exercised.
    """

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def compare(case: Case, parts: Mapping[Any, Any] | None = None) -> Compared:
    """Run *case* without releasing anything, and releasing with *parts* replaced: all events must be the same.

    Their values, too. The tools of these cases give a hash of all that they got, so a wrong argument shows in every
    value behind it.
    """
    plain: list[LiveGraph] = []
    releasing: list[LiveGraph] = []
    was = run_case(case, {LiveGraph: type("Plain", (_Kept, LiveGraph), {"made": plain})})
    policy = case.policy.model_copy(update={"release_outputs": True})
    graphs = {LiveGraph: type("Releasing", (_Kept, LiveGraph), {"made": releasing})}
    now = run_case(replace(case, policy=policy), {**(parts or {}), **graphs})
    done = Compared()
    if any("DR423" in problem or "DR424" in problem for problem in (*now.broken, *map(str, _refusals(now.seen)))):
        done.counts["refused"] += 1  # a patch wanted what is gone: from there on it is another run
        return done
    for before, after in zip(was.seen, now.seen, strict=True):
        done.problems += _differences(before, after)
    for was_left, is_left in zip(plain, releasing, strict=True):
        done.problems += _answers(was_left, is_left)
        done.counts["released"] += len([node for node in is_left.nodes.values() if node.value is RELEASED])
    done.counts["compared"] += 1
    return done


class _Kept:
    """A live graph that is kept for later."""

    made: list[Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made.append(self)


def _refusals(seen: list[list[Event]]) -> Iterator[Problem]:
    for events in seen:
        for event in events:
            if isinstance(event, PatchRefused):
                yield from event.problems


def _differences(before: list[Event], after: list[Event]) -> Iterator[str]:
    for one, other in zip(before, after, strict=False):
        if (shown := trace_of([one])) != (now := trace_of([other])):
            yield f"{shown[:300]}, and when outputs are released {now[:300]}"
            return
    if len(before) != len(after):
        yield f"{len(before)} events, and {len(after)} when outputs are released"


def _answers(plain: LiveGraph, releasing: LiveGraph) -> Iterator[str]:
    if (was := answer_of(plain)) != (now := answer_of(releasing)):
        yield f"the run answers {was}, and when outputs are released {now}"
    lost = [node.id for node in releasing.sinks() if releasing.output is None and node.value is RELEASED]
    if lost:
        yield f"what the run answers was released: {lost}"
    for id_, node in plain.nodes.items():
        other = releasing.nodes.get(id_)
        if other is None or (
            other.value is not RELEASED and decode_or_reason(other.value) != decode_or_reason(node.value)
        ):
            yield f"{id_} gave {node.value!r}, and when outputs are released it is {other}"
