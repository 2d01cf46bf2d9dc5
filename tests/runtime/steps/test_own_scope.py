"""A worker keeps one cancel scope for its steps, one after another: none of them may notice."""

from __future__ import annotations

import pytest

from mutants import MUTANTS
from own_scopes import PROOFS, ScopeProof

SCOPE_MUTANTS = (
    "what a step left open is overlooked",
    "a worker stays in a cancelled scope",
    "a late word hits the next step",
)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.__name__)
def test_what_becomes_of_a_step_does_not_reach_the_next(proof: ScopeProof, backend: str) -> None:
    """Not what it left open, not that it was told to stop, not what comes too late for it."""
    assert not list(proof({}, backend))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", SCOPE_MUTANTS)
def test_broken_scopes_are_caught_on_both_backends(name: str, backend: str) -> None:
    """Each proof is for one of them."""
    assert any(list(proof(MUTANTS[name], backend)) for proof in PROOFS)
