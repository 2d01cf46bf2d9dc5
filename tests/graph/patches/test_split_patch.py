"""What is left of a patch when the policy refuses some of its edits: what stands by itself, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from catching import Parts, survivors
from dagrun import Add, Drop, Patch, Replace, Rewire, Step
from dagrun.kernel.graph.patches import split_patch as splits
from dagrun.kernel.graph.patches.split_patch import POLICY, split_patch
from frozen_cases import ANN, OK, add, in_the_middle, instead
from seeds import choose_seeds
from simulation import replaced
from split_cases import make_split_case

REPEAT: Final = instead("ann", "ann2", ANN)
EVIL: Final = add("x", {"tool": "find", "args": {"who": "mallory"}})
USES: Final = add("y", {"tool": "find", "args": {"who": "${x.name}"}})
CASES: Final[dict[str, tuple[list[Any], list[int] | None, list[str]]]] = {
    "a call of its own": ([REPEAT, EVIL], [0], ["DR427 edits[1].step"]),
    "in any order": ([EVIL, REPEAT], [1], ["DR427 edits[0].step"]),
    "what uses it": ([USES, REPEAT, EVIL], [1], ["DR427 edits[0].step", "DR427 edits[2].step"]),
    "a step that the failed one has nothing to do with": (
        [REPEAT, Rewire(id="thanks", args={"to": "me"})],
        [0],
        ["DR428 edits[1]"],
    ),
    "what was dropped for its sake": (
        [Drop(id="asked"), REPEAT, Rewire(id="thanks", depends_on=[])],
        [1],
        ["DR429 edits[2]", "DR430 edits[0]"],
    ),
    "a drop, perhaps to make room": ([REPEAT, EVIL, Drop(id="late")], [0], ["DR427 edits[1].step", "DR430 edits[2]"]),
    "one round after the other": (
        [add("z", {"tool": "no_such_tool"}), EVIL, REPEAT],
        [2],
        ["DR201 edits[0].step.tool", "DR427 edits[1].step"],
    ),
    "the repair itself": (
        [instead("ann", "ann2", ANN, args={"who": "mallory"}), add("b", OK, args={"amount": 6})],
        None,
        [],
    ),
    "what waits for what has failed": (
        [REPEAT, Rewire(id="pay", args={"iban": "mallory", "amount": 5})],
        None,
        [],
    ),
    "a mistake beside it": ([REPEAT, EVIL, Drop(id="nobody")], None, []),
    "nothing is left": ([EVIL], None, []),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rest_stands_by_itself_or_all_is_refused(name: str) -> None:
    """The refusals have the places of the whole patch."""
    edits, kept, said = CASES[name]
    played, patch = in_the_middle(), Patch(edits=edits, reason="mend it")
    checked, problems = played.check(patch, "planner")
    assert checked is None

    split = split_patch(played.splicer, patch, problems, known=None, failed=["ann"])

    assert (None if split is None else [edits.index(edit) for edit in split.patch.edits]) == kept
    if split is not None:
        assert [f"{problem.code} {problem.path}" for problem in split.refused] == said
        assert (split.patch.reason, split.checked.edits) == ("mend it", split.patch.edits)


def test_a_new_answer_that_needs_what_is_refused_is_refused_with_it() -> None:
    """The rest would answer something else."""
    played, patch = in_the_middle(), Patch(edits=[REPEAT, EVIL], output="${x.name}")
    _, problems = played.check(patch, "planner")

    assert split_patch(played.splicer, patch, problems, known=None, failed=["ann"]) is None


def test_an_element_stands_for_its_list() -> None:
    """One that waits for a list waits for each of its elements."""
    played = in_the_middle()
    other = Replace(id="all[1]", step=Step.model_validate({"id": "b", "tool": "mail", "args": {"to": "mallory"}}))
    patch = Patch(edits=[add("bob2", {"tool": "find", "args": {"who": "bob"}}), other])
    _, problems = played.check(patch, "planner")

    assert split_patch(played.splicer, patch, problems, known=None, failed=["all[1]"]) is None
    split = split_patch(played.splicer, patch, problems, known=None, failed=["ann"])
    assert split is not None
    assert [type(edit) for edit in split.patch.edits] == [Add]


# Random patches -------------------------------------------------------------------------------------------------------


def laws(parts: Parts, seeds: range = range(600), counts: Counter[str] | None = None) -> Iterator[str]:
    """What is left is what has to be left, can be applied, and is refused for nothing."""
    counts = Counter() if counts is None else counts
    for seed in seeds:
        case = make_split_case(seed)
        known = dict(case.played.graph.nodes)
        checked, problems = case.played.check(case.patch, "planner")
        if checked is not None:
            counts["whole"] += 1
            continue
        with replaced(parts):
            split = splits.split_patch(case.played.splicer, case.patch, problems, known=None, failed=[case.failed])
        wanted = case.kept() if all(one.code in POLICY for one in problems if not one.is_advice) else None
        if wanted is not None:
            rest = case.patch.model_copy(update={"edits": tuple(case.patch.edits[number] for number in wanted)})
            wanted = wanted if case.played.check(rest, "planner")[0] is not None else None
        found = None if split is None else [case.patch.edits.index(edit) for edit in split.patch.edits]
        counts["refused" if wanted is None else "split"] += 1
        if found != wanted:
            yield f"seed {seed}: {found} is left of {case.patch.as_dict()['edits']}, and should be {wanted}"
        elif split is not None and len(split.refused) < len(case.patch.edits) - len(split.patch.edits):
            yield f"seed {seed}: an edit is left out without a word"
        if dict(case.played.graph.nodes) != known:
            yield f"seed {seed}: the graph has changed"


def test_what_is_left_follows_from_what_the_patch_is_made_of() -> None:
    """The oracle knows how the patch was written; the product reads it."""
    counts = Counter[str]()

    assert not list(laws({}, choose_seeds(200, 6_000), counts))
    assert min(counts[name] for name in ("whole", "split", "refused")) > 10, counts


def behind_the_failed_alone(graph: Any, failed: Any) -> set[str]:
    """What waits for a failed step may lose its edits."""
    return set(failed)


def nothing(*_: Any) -> bool:
    """A rule that nobody keeps."""
    return False


def names_nothing(edit: Any) -> set[str]:
    """No edit needs another one."""
    return set()


def drops_nothing(graph: Any, edit: Any) -> None:
    """A drop stands by itself."""


def guilty_among_others(graph: Any, edits: Any, problems: Any) -> set[int]:
    """Faults of other kinds do not matter."""
    return _guilty(graph, edits, [problem for problem in problems if problem.code in POLICY])


def guilty_of_anything(graph: Any, edits: Any, problems: Any) -> set[int]:
    """Whatever is wrong with an edit, the rest counts."""
    places = (splits._PLACE.match(problem.path) for problem in problems if not problem.is_advice)
    return {int(place[1]) for place in places if place is not None}


_guilty: Final = splits._guilty
MUTANTS: Final[Mapping[str, Parts]] = {
    "needs forgotten": {splits._named_by: names_nothing},
    "drops forgotten": {splits._waiting_for: drops_nothing},
    "failed steps forgotten": {splits._is_about: nothing},
    "what waits for them forgotten": {splits._behind: behind_the_failed_alone},
    "other faults are left to the next round": {splits._guilty: guilty_among_others},
    "every fault is cut out": {splits._guilty: guilty_of_anything},
}


@pytest.mark.rigs
def test_every_mutant_of_splitting_is_caught() -> None:
    """A split that forgets a rule cannot come back unnoticed."""
    assert not survivors([laws], MUTANTS)
