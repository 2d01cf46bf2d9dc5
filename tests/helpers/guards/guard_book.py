"""The plan of a run at each instant, kept by the documents that were carried out; and who stands before whom in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dagrun import Add, Drop, Replace, Rewire
from dagrun.events import Spliced
from guard_world import Document, World
from random_cases import Definition
from splice_book import as_json, needs_of, renamed


@dataclass(slots=True)
class Stage:
    """The plan between two changes.

    Attributes:
        seq: Since when it stands, on the clock of the log.
        steps: Its steps, by id.
        document: What changed it to this; `None` for the plan of the host.
        defined: The ids that came or changed.
        gone: The ids that left.
    """

    seq: int
    steps: dict[str, Definition]
    document: Document | None = None
    defined: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


@dataclass(slots=True)
class GuardBook:
    """Every stage of a plan.

    Attributes:
        stages: Oldest first. The first one is the plan of the host, or all that the planner wrote as its first plan.
        came_for: For each substitute, the step whose place it took.
        drafts: What the planner wrote as first plans.
    """

    stages: list[Stage]
    came_for: dict[str, str] = field(default_factory=dict)
    drafts: list[Document] = field(default_factory=list)

    def base_of(self, step: str) -> str:
        """The step of the plan that *step* is, or is an element of."""
        return step.partition("[")[0]

    def line_of(self, step: str) -> list[str]:
        """A step, and those before it whose place it has taken, newest first."""
        found = [self.base_of(step)]
        while found[-1] in self.came_for:
            found.append(self.base_of(self.came_for[found[-1]]))
        return found

    def heirs_of(self, step: str) -> set[str]:
        """A step, and those that have taken its place since."""
        return {step, *(other for other in self.came_for if step in self.line_of(other))}

    def until(self, seq: int) -> list[Stage]:
        """The stages up to an instant."""
        return [self.stages[0], *(stage for stage in self.stages[1:] if stage.seq < seq)]

    def draft_at(self, seq: int) -> Document | None:
        """The first plan that counts at an instant: the last one that was written, which vouches for the whole."""
        return next((draft for draft in reversed(self.drafts) if draft.seq < seq), None)


def ancestors_of(stage: Stage, step: str, done: frozenset[str] = frozenset()) -> set[str]:
    """All that stands before *step*; nothing beyond those that are *done*."""
    found: set[str] = set()
    left = [step]
    while left:
        at = left.pop()
        if at in found or at not in stage.steps:
            continue
        found.add(at)
        if at not in done or at == step:
            left += needs_of(stage.steps[at])
    return found - {step}


def book_of(world: World, steps: Iterable[Definition]) -> GuardBook:
    """The book of a run that began with *steps*, or with none, if its planner wrote the first plan."""
    book = GuardBook([Stage(0, {step["id"]: step for step in steps})])
    book.drafts = [document for document in world.documents if document.is_first]
    for seq, spliced in world.splices:
        document = _origin(spliced, [d for d in world.documents if d.seq < seq])
        stage = _next(book, seq, spliced, document)
        if document.is_first:
            book.stages[0] = stage
        else:
            book.stages.append(stage)
    return book


def _origin(spliced: Spliced, documents: list[Document]) -> Document:
    """The document that a splice has carried out: the last that speaks of its steps, as several may be on their way."""
    ids = [edit.step.id if isinstance(edit, Add) else edit.id for edit in spliced.edits]
    ids += [edit.step.id for edit in spliced.edits if isinstance(edit, Replace)]
    names = [json.dumps(re.sub(r"-r\d+$", "", id_)) for id_ in ids]
    fit = (d for d in reversed(documents) if all(name in json.dumps(d.text) for name in names))
    return next(fit, documents[-1])


def _next(book: GuardBook, seq: int, spliced: Spliced, document: Document) -> Stage:
    before = book.stages[-1].steps
    new, gone, use, rewired = dict[str, Definition](), set[str](), dict[str, str](), dict[str, Rewire]()
    for edit in spliced.edits:
        match edit:
            case Add(step=step):
                new[step.id] = as_json(step)
            case Drop(id=id_):
                gone.add(id_)
            case Replace(id=id_, step=step):
                new[step.id] = as_json(step)
                gone.add(id_)
                use[id_] = step.id
                book.came_for[step.id] = id_
            case Rewire(id=id_):
                rewired[id_] = edit
    steps, changed = dict[str, Definition](), dict[str, Definition]()
    for id_, old in before.items():
        if id_ in gone:
            continue
        steps[id_] = old
        if id_ in rewired or use.keys() & set(needs_of(old)):
            steps[id_] = changed[id_] = _rewired(old, use, rewired.get(id_))
    return Stage(seq, steps | new, document, frozenset((*new, *changed)), frozenset(gone))


def _rewired(step: Definition, use: Mapping[str, str], edit: Rewire | None) -> Definition:
    if edit is None:
        return renamed(step, use)
    new = renamed(step, {**use, **edit.use})
    if edit.depends_on is not None:
        new["depends_on"] = list(edit.depends_on)
    if edit.args is not None:
        new["args"] = edit.args
    return new


def documents_in(stages: Iterable[Stage]) -> Iterator[Document]:
    """What has changed a plan, each document once."""
    seen: list[Document] = []
    for stage in stages:
        document = stage.document
        if document is not None and not document.is_first and not any(document is other for other in seen):
            seen.append(document)
            yield document
