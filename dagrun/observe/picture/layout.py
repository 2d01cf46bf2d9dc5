"""A layered layout of a directed graph, from left to right: where each box stands, and which edges are drawn.

The steps of the method are those of Sugiyama, Tagawa and Toda (1981): layers by longest path, helpers on long edges,
medians against crossings, and positions near those of the neighbours. Each one is bounded by the size of the graph:

1. Edges that follow from others are left out (transitive reduction, by integers as bit sets): the drawing keeps every
   path, and dense graphs stay readable.
2. Parts that are not connected are laid out apart, and packed in rows.
3. At most `MAX_HELPERS` helpers: the longest edges have none, and are drawn as they come.

Positions are in units: a column for each layer, a row for each box. Equal input gives equal output.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

MAX_HELPERS: Final = 4_000
_LEAST_WIDTH: Final = 6.0  # columns, of several parts beside each other: about the width of a page
_SWEEPS: Final = 8
_ROUNDS: Final = 4  # of moving boxes towards their neighbours
_HELPER_HEIGHT: Final = 0.4  # of a helper, in rows
_PULL: Final = 8.0  # how much more a helper pulls than a box: so long edges are straight

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout. Columns and rows are counted from 0; rows may be fractions.

    Attributes:
        places: The column and the row of each box.
        routes: The edges that are drawn: the two boxes, and the places between them that the edge passes.
        left_out: How many edges are not drawn, because they follow from others.
        columns: How many columns there are.
        rows: How many rows there are.
    """

    places: tuple[tuple[float, float], ...]
    routes: tuple[tuple[Edge, tuple[tuple[float, float], ...]], ...]
    left_out: int
    columns: float
    rows: float


def lay_out(count: int, edges: Iterable[Edge], *, shape: float = 0.3) -> Layout:
    """Place *count* boxes.

    Args:
        count: The number of boxes.
        edges: Pairs of boxes: the second waits for the first. Edges on a circle are left out.
        shape: How many times as wide as high the whole should be, in units, where parts can be packed freely.
    """
    wanted = list(dict.fromkeys((a, b) for a, b in edges if a != b))
    kept = reduced(count, wanted)
    parts = [_Component(members, [edge for edge in kept if edge[0] in members]) for members in _components(count, kept)]
    parts.sort(key=lambda part: -len(part.boxes))  # parts with edges first; single boxes keep their order
    packed = _pack(parts, shape)
    places: list[tuple[float, float]] = [(0.0, 0.0)] * count
    routes = []
    for part, (left, top) in zip(parts, packed, strict=True):
        for box, (column, row) in part.places.items():
            places[box] = (left + column, top + row)
        routes += [(edge, tuple((left + x, top + y) for x, y in bends)) for edge, bends in part.routes]
    columns = max((x for x, _ in places), default=-1) + 1
    rows = max((y for _, y in places), default=-1) + 1
    routes.sort()
    return Layout(tuple(places), tuple(routes), len(wanted) - len(kept), columns, rows)


def reduced(count: int, edges: Sequence[Edge]) -> list[Edge]:
    """Return the edges without those that follow from others, and without those on a circle; in their order."""
    after, order = _ordered(count, edges)
    rank = {box: place for place, box in enumerate(order)}
    # Bits by the place from the end: those of boxes far from the end are then short, where they can be.
    bit = {box: 1 << (len(order) - 1 - place) for box, place in rank.items()}
    reach: dict[int, int] = {}
    kept: set[Edge] = set()
    for box in reversed(order):
        seen = 0
        for other in sorted((o for o in after[box] if o in rank), key=rank.__getitem__):
            if not seen & bit[other]:
                kept.add((box, other))
                seen |= reach[other] | bit[other]
        reach[box] = seen
    return [edge for edge in edges if edge in kept]


def _components(count: int, edges: Sequence[Edge]) -> list[dict[int, None]]:
    """Return the boxes of each connected part, in the order of their first boxes."""
    above = list(range(count))

    def top(box: int) -> int:
        while above[box] != box:
            above[box] = above[above[box]]
            box = above[box]
        return box

    for a, b in edges:
        first, second = top(a), top(b)
        above[max(first, second)] = min(first, second)
    parts: dict[int, dict[int, None]] = {}
    for box in range(count):
        parts.setdefault(top(box), {})[box] = None
    return list(parts.values())


class _Component:
    """One connected part of the graph, laid out by itself."""

    def __init__(self, members: dict[int, None], edges: list[Edge]) -> None:
        self.boxes = list(members)
        number = {box: n for n, box in enumerate(self.boxes)}
        grid = _Grid(len(self.boxes), [(number[a], number[b]) for a, b in edges])
        self.places = {box: grid.place(n) for box, n in number.items()}
        self.routes = [(edge, grid.route(number[edge[0]], number[edge[1]])) for edge in edges]
        self.columns = max(x for x, _ in self.places.values()) + 1
        self.rows = max(y for _, y in self.places.values()) + 1


def _pack(parts: Sequence[_Component], shape: float) -> list[tuple[float, float]]:
    """Return the upper left corner of each part: in rows from left to right, with the width given by *shape*."""
    area = sum((part.columns + 0.3) * (part.rows + 0.5) for part in parts)
    width = max((_LEAST_WIDTH, math.sqrt(area * shape), *(part.columns for part in parts)))
    corners: list[tuple[float, float]] = []
    left = top = height = 0.0
    for part in parts:
        if left and left + part.columns > width + 1e-9:
            left, top, height = 0.0, top + height + 0.25 * (height > 1), 0.0
        corners.append((left, top))
        left += part.columns
        height = max(height, part.rows)
    return corners


class _Grid:
    """Layers, order and rows of one connected part. Boxes have the first numbers, helpers follow."""

    def __init__(self, count: int, edges: list[Edge]) -> None:
        self._count = count
        self._before: list[list[int]] = [[] for _ in range(count)]
        self._after: list[list[int]] = [[] for _ in range(count)]
        self._layer = _layers(count, edges)
        self._chains: dict[Edge, list[int]] = {}
        self._add_edges(edges)
        self._rows: list[list[int]] = self._first_order()
        self._at = [0.0] * len(self._layer)
        self._order()
        self._y = [0.0] * len(self._layer)
        self._move()

    def place(self, box: int) -> tuple[float, float]:
        return float(self._layer[box]), self._y[box]

    def route(self, a: int, b: int) -> tuple[tuple[float, float], ...]:
        return tuple(self.place(helper) for helper in self._chains.get((a, b), ()))

    def _add_edges(self, edges: list[Edge]) -> None:
        room = MAX_HELPERS
        for a, b in sorted(edges, key=lambda edge: (self._layer[edge[1]] - self._layer[edge[0]], edge)):
            span = self._layer[b] - self._layer[a]
            if span - 1 > room:
                continue
            room -= span - 1
            last, chain = a, []
            for layer in range(self._layer[a] + 1, self._layer[b]):
                helper = len(self._layer)
                self._layer.append(layer)
                self._before.append([last])
                self._after.append([])
                self._after[last].append(helper)
                chain.append(helper)
                last = helper
            self._after[last].append(b)
            self._before[b].append(last)
            self._chains[a, b] = chain

    def _first_order(self) -> list[list[int]]:
        """Return the layers, each in the order of a depth-first walk, which keeps related boxes together."""
        rows: list[list[int]] = [[] for _ in range(max(self._layer, default=-1) + 1)]
        seen = [False] * len(self._layer)
        for start in sorted(range(self._count), key=lambda box: (self._layer[box], box)):
            stack = [start]
            while stack:
                box = stack.pop()
                if seen[box]:
                    continue
                seen[box] = True
                rows[self._layer[box]].append(box)
                stack += reversed(self._after[box])
        return rows

    def _order(self) -> None:
        """Order the layers by medians, forth and back, as long as there are fewer crossings each time."""
        self._number()
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for _ in range(_SWEEPS):
            if not fewest:
                break
            for row in self._rows[1:]:
                self._sort(row, self._before)
            for row in reversed(self._rows[:-1]):
                self._sort(row, self._after)
            crossings = self._crossings()
            if crossings >= fewest:
                break
            best, fewest = [list(row) for row in self._rows], crossings
        self._rows = best
        self._number()

    def _number(self) -> None:
        for row in self._rows:
            for place, box in enumerate(row):
                self._at[box] = float(place)

    def _sort(self, row: list[int], near: list[list[int]]) -> None:
        keys = {box: _median([self._at[other] for other in near[box]], self._at[box]) for box in row}
        row.sort(key=keys.__getitem__)  # stable: equal ones keep their order
        for place, box in enumerate(row):
            self._at[box] = float(place)

    def _crossings(self) -> int:
        """Count the crossings between neighbouring layers."""
        total = 0
        for row in self._rows[:-1]:
            ends: list[float] = []
            for end in (at for box in row for at in sorted(self._at[other] for other in self._after[box])):
                total += len(ends) - bisect_right(ends, end)
                insort(ends, end)
        return total

    # Rows -------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """Assign each box a row: near its neighbours, in the order of its layer, and without overlap."""
        offsets = [self._packed(row) for row in self._rows]
        middle = max((row[-1] for row in offsets if row), default=0.0) / 2
        for row, offset in zip(self._rows, offsets, strict=True):
            for box, at in zip(row, offset, strict=True):
                self._y[box] = middle - (offset[-1] / 2) + at
        for _ in range(_ROUNDS):
            for row, offset in zip(self._rows[1:], offsets[1:], strict=True):
                self._settle(row, offset, self._before)
            for row, offset in zip(reversed(self._rows[:-1]), reversed(offsets[:-1]), strict=True):
                self._settle(row, offset, self._after)
        top = min((self._y[box] for box in range(self._count)), default=0.0)
        self._y = [y - top for y in self._y]

    def _packed(self, row: list[int]) -> list[float]:
        """Return where the boxes of a layer stand if they are packed."""
        offsets: list[float] = []
        at = 0.0
        for before, box in zip([None, *row], row, strict=False):
            at += 0.0 if before is None else (self._height(before) + self._height(box)) / 2
            offsets.append(at)
        return offsets

    def _height(self, box: int) -> float:
        return 1.0 if box < self._count else _HELPER_HEIGHT

    def _settle(self, row: list[int], offsets: list[float], near: list[list[int]]) -> None:
        """Move the boxes of a layer towards the medians of their neighbours: pooled where they would overlap."""
        pools: list[list[float]] = []  # the sum of the weighted wishes, the weight, how many boxes
        for box, offset in zip(row, offsets, strict=True):
            weight = 1.0 if box < self._count else _PULL
            wish = _median([self._y[other] for other in near[box]], self._y[box])
            pools.append([(wish - offset) * weight, weight, 1])
            while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
                last = pools.pop()
                pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
        place = 0
        for total, weight, boxes in pools:
            for box, offset in zip(row[place : place + int(boxes)], offsets[place:], strict=False):
                self._y[box] = total / weight + offset
            place += int(boxes)


def _ordered(count: int, edges: Iterable[Edge]) -> tuple[list[list[int]], list[int]]:
    """Return the boxes behind each box, and the boxes in the order of the edges, without those on a circle."""
    after: list[list[int]] = [[] for _ in range(count)]
    degree = [0] * count
    for a, b in edges:
        after[a].append(b)
        degree[b] += 1
    order = [box for box in range(count) if not degree[box]]
    for box in order:  # the list grows while it is walked
        for other in after[box]:
            degree[other] -= 1
            if not degree[other]:
                order.append(other)
    return after, order


def longest_paths(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return how many edges the longest path to each box has; 0 for those on a circle."""
    after, order = _ordered(count, edges)
    longest = [0] * count
    for box in order:
        for other in after[box]:
            longest[other] = max(longest[other], longest[box] + 1)
    return longest


def _layers(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the layer of each box: the longest path to it; a source stands next to its nearest dependent."""
    layer = longest_paths(count, edges)
    nearest: dict[int, int] = {}
    for a, b in edges:
        nearest[a] = min(nearest.get(a, layer[b]), layer[b])
    return [own or nearest.get(box, 1) - 1 for box, own in enumerate(layer)]


def _median(values: list[float], default: float) -> float:
    if not values:
        return default
    values.sort()
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2
