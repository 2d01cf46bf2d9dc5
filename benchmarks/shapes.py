"""The shapes of the plans that are measured: for each step the ids of those that it waits for, in a valid order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, TypeAlias

Dependencies: TypeAlias = dict[str, tuple[str, ...]]

SEED: Final = 7


def chain(count: int) -> Dependencies:
    """Each step waits for the one before: nothing can overlap."""
    return {f"s{i}": (f"s{i - 1}",) if i else () for i in range(count)}


def fan(count: int) -> Dependencies:
    """One source, then all but one at once, then a sink that waits for them."""
    middle = tuple(f"s{i}" for i in range(1, count - 1))
    return {"s0": ()} | dict.fromkeys(middle, ("s0",)) | {f"s{count - 1}": middle or ("s0",)}


def random3(count: int, seed: int = SEED) -> Dependencies:
    """Each step waits for three, drawn from the 200 before it, as plans of many small parts do."""
    random = Random(seed)
    shape: Dependencies = {}
    for i in range(count):
        near = range(max(0, i - 200), i)
        shape[f"s{i}"] = tuple(f"s{j}" for j in sorted(random.sample(near, min(3, i))))
    return shape


def layered(count: int, seed: int = SEED) -> Dependencies:
    """Layers of 4 to 16 steps; each waits for up to three of the layer before, and for nothing else."""
    random = Random(seed)
    shape: Dependencies = {}
    before: range = range(0)
    while len(shape) < count:
        layer = range(len(shape), min(count, len(shape) + random.randint(4, 16)))
        for i in layer:
            near = random.sample(before, min(random.randint(1, 3), len(before)))
            shape[f"s{i}"] = tuple(f"s{j}" for j in sorted(near))
        before = layer
    return shape


def independent(count: int) -> Dependencies:
    """No step waits for another."""
    return {f"s{i}": () for i in range(count)}


SHAPES: Final[Mapping[str, Callable[[int], Dependencies]]] = {
    shape.__name__: shape for shape in (chain, fan, random3, layered, independent)
}


def successors(shape: Dependencies) -> dict[str, list[str]]:
    """For each step, those that wait for it."""
    after: dict[str, list[str]] = {step: [] for step in shape}
    for step, before in shape.items():
        for dependency in before:
            after[dependency].append(step)
    return after
