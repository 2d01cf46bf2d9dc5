"""Which proof notices a mutant first, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from seeds import NIGHT
from transitions import IllegalTransition

BY_DAY: Final = 3  # of so many mutants one is tried by day

# What a mutant puts in the place of what.
Parts: TypeAlias = Mapping[Any, Any]
Proof: TypeAlias = Callable[[Parts], Iterator[str]]


def first_catch(proofs: Iterable[Proof], parts: Parts) -> str | None:
    """The first of *proofs* that notices that *parts* are broken, and what it says; `None` if none does."""
    for proof in proofs:
        try:
            problem = next(iter(proof(parts)), None)
        except Exception as error:
            illegal = _illegal_transition(error)
            if illegal is None:
                raise
            problem = str(illegal)  # the tables of transitions are a proof of their own, which looks on in all tests
        if problem is not None:
            return f"{proof.__name__}: {problem}"
    return None


def _illegal_transition(error: BaseException) -> IllegalTransition | None:
    if isinstance(error, BaseExceptionGroup):
        return next((found for each in error.exceptions if (found := _illegal_transition(each))), None)
    return error if isinstance(error, IllegalTransition) else None


def chosen_mutants(mutants: Iterable[str]) -> list[str]:
    """Every third mutant, the same ones each day; at night all of them."""
    return [*mutants][:: 1 if NIGHT else BY_DAY]


def survivors(proofs: Iterable[Proof], mutants: Mapping[str, Parts]) -> list[str]:
    """The chosen mutants that no proof notices; what notices the others is printed."""
    kept = tuple(proofs)
    table = {name: first_catch(kept, mutants[name]) for name in chosen_mutants(mutants)}
    width = max(map(len, table))
    for name, catch in table.items():
        print(f"{name:{width}}  {'SURVIVED' if catch is None else catch[:110]}")
    return [name for name, catch in table.items() if catch is None]
