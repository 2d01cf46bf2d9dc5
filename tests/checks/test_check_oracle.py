"""What a check remembers changes nothing: each plan has the problems that it has if every step is looked at afresh."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from dagrun.kernel.checks import check_step
from dagrun.kernel.checks.argument_shapes import ArgumentShapes
from dagrun.kernel.checks.check_context import ToolFacts
from dagrun.kernel.checks.reference_sources import ReferenceSources
from dagrun.kernel.model.contracts.schema_types import SchemaPlace
from dagrun.kernel.model.reference import Reference
from faulty_plans import faulty_plan, verdict_of
from seeds import choose_seeds

# All that can be found in a plan whose author writes Python; the others are about patches, files, policies and flow.
FOUND = {
    "DR006", "DR008", "DR012", "DR013", "DR101", "DR102", "DR103", "DR104", "DR105", "DR106", "DR107", "DR108",
    "DR110", "DR112", "DR201", "DR202", "DR203", "DR204", "DR205", "DR206", "DR207", "DR209", "DR210", "DR212",
    "DR213", "DR217", "DR220", "DR301", "DR302", "DR303", "DR304", "DR305", "DR306", "DR307", "DR308", "DR309",
    "DR310", "DR311", "DR312", "DR313", "DR901", "DR902", "DR910", "DR911", "DR912",
}  # fmt: skip


def afresh(seed: int) -> Any:
    """Check a plan with nothing remembered: no shape, no place of a tool, no type of an output."""

    def look_up(self: ReferenceSources, step: Any, path: Any, *, is_list: bool) -> Any:
        return self._of_list(step, path) if is_list else self._of_call(step, path)

    def place_of(self: ToolFacts, place: Any) -> SchemaPlace:
        arguments = self.tool.arguments
        found = SchemaPlace([(arguments.property_schema(str(place[0])), arguments.schema)])
        for part in place[1:]:
            found = SchemaPlace(found.at(part).lookup.schemas)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArgumentShapes, "read", lambda *_: None)
        patch.setattr(ReferenceSources, "_known", look_up)
        patch.setattr(ToolFacts, "place_of", place_of)
        return verdict_of(*faulty_plan(seed))


def differences(seeds: Iterable[int], found: set[str] | None = None) -> Iterable[int]:
    for seed in seeds:
        verdict = verdict_of(*faulty_plan(seed))
        if found is not None:
            found.update(code for code, _, _ in verdict[0])
        if verdict != afresh(seed):
            yield seed


def test_a_check_finds_what_it_finds_without_remembering() -> None:
    """The same problems, in the same words and order; or the same templates, dependencies and advice."""
    assert list(differences(range(60))) == []


@pytest.mark.rigs
def test_many_checks_find_what_they_find_without_remembering() -> None:
    """Among the plans are faults of every kind; a third of the plans has none."""
    seeds, found = choose_seeds(1_500, 20_000), set[str]()
    assert list(differences(seeds, found)) == []
    assert len(seeds) == 1 or found >= FOUND


# Mutants --------------------------------------------------------------------------------------------------------------


def _text_is_whole(patch: pytest.MonkeyPatch) -> None:
    def places_of(self: ToolFacts, template: Any) -> list[Any]:
        return list(map(self.place_of, template.places))

    patch.setattr(ToolFacts, "places_of", places_of)


def _all_parts_are_alike(kind: type) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        find = SchemaPlace.at

        def at(self: SchemaPlace, part: Any) -> SchemaPlace:
            found = find(self, part)
            return self._alike.setdefault(kind, found) if isinstance(part, kind) else found

        patch.setattr(SchemaPlace, "at", at)

    return mutate


def _outputs_are_one(field: int) -> Callable[[pytest.MonkeyPatch], None]:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        def known(self: ReferenceSources, step: Any, path: Any, *, is_list: bool) -> Any:
            whole: tuple[Any, ...] = (step.tool, step.fallback, step.on_failure == "default", is_list, path)
            key = whole[:field] + whole[field + 1 :]
            if key not in self._memo:
                self._memo[key] = self._of_list(step, path) if is_list else self._of_call(step, path)
            return self._memo[key]

        patch.setattr(ReferenceSources, "_known", known)

    return mutate


def _own_output_is_known(patch: pytest.MonkeyPatch) -> None:
    known_sources = check_step._known_sources

    def mutant(context: Any, facts: Any, step: Any, *args: Any) -> Any:
        return known_sources(context, facts, step.model_copy(update={"id": ""}), *args)

    patch.setattr(check_step, "_known_sources", mutant)


def _tools_are_one(patch: pytest.MonkeyPatch) -> None:
    read = ArgumentShapes.read

    class OneTool(dict[str, Any]):
        def __contains__(self, _: object) -> bool:
            return bool(self)

        def __missing__(self, _: str) -> Any:
            return next(iter(self.values()))

    def mutant(self: ArgumentShapes, args: Any) -> Any:
        found = read(self, args)
        if found is None or not found[1]:
            return found
        shapes = [(json, shape) for json, shape in self._shapes.items() if shape is not None and shape[3] is found[2]]
        valid = OneTool(found[2]) if shapes else found[2]
        for json, shape in shapes:
            self._shapes[json] = (*shape[:3], valid)
        return found[0], found[1], valid

    patch.setattr(ArgumentShapes, "read", mutant)


def _parts_are_wholes(patch: pytest.MonkeyPatch) -> None:
    facts_of = ArgumentShapes._facts_of

    def mutant(self: ArgumentShapes, reference: Reference) -> Any:
        return (reference, *facts_of(self, Reference(reference.step))[1:])

    patch.setattr(ArgumentShapes, "_facts_of", mutant)


def _literals_are_valid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ToolFacts, "takes", lambda *_: True)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a reference in a text fits where its value does": _text_is_whole,
    "all keys are alike": _all_parts_are_alike(str),
    "all positions are alike": _all_parts_are_alike(int),
    "all tools return the same": _outputs_are_one(0),
    "a fallback returns what the tool does": _outputs_are_one(1),
    "a default is what the tool returns": _outputs_are_one(2),
    "a list is its elements": _outputs_are_one(3),
    "all parts are the same": _outputs_are_one(4),
    "a part is the whole": _parts_are_wholes,
    "a step uses its own output": _own_output_is_known,
    "a shape is valid for all tools": _tools_are_one,
    "literals are valid": _literals_are_valid,
}


@pytest.mark.rigs
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_memory_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to remember too little of a reference, its place or its tool shows within a few hundred plans."""
    MUTANTS[name](monkeypatch)
    assert next(iter(differences(range(1_500))), None) is not None
