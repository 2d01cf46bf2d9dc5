"""The graph of a view as text for other programs: Mermaid and DOT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagrun.observe.html import plain
from dagrun.observe.picture.condense import DEFAULT_BOXES, PictureBox, condense
from dagrun.observe.state_styles import COLOURS, look_of


def _label(box: PictureBox) -> str:
    return plain(f"{look_of(box.state).symbol} {box.label}")


def mermaid(view: Mapping[str, Any], most: int = DEFAULT_BOXES) -> str:
    """Return the graph as Mermaid. Whatever stands in a label is text: quotes and brackets become entities."""
    drawing = condense(view, most)
    lines = ["flowchart LR"]
    for place, box in enumerate(drawing.boxes):
        shown = "".join(sign if sign.isalnum() or sign in " .-_" else f"#{ord(sign)};" for sign in _label(box))
        lines.append(f'  s{place}["{shown}"]:::{look_of(box.state).kind}')
    lines += [f"  s{a} --> s{b}" for a, b in drawing.edges]
    lines += [f"  s{a} -. replaced by .-> s{b}" for a, b in drawing.replaced]
    lines += [f"  classDef {kind} fill:{area},stroke:{line},color:#1c2530" for kind, (line, area) in COLOURS.items()]
    return "\n".join(lines) + "\n"


def dot(view: Mapping[str, Any], most: int = DEFAULT_BOXES) -> str:
    """Return the graph in the language of Graphviz."""
    drawing = condense(view, most)
    lines = ["digraph run {", "  rankdir=LR;", "  node [shape=box, style=filled];"]
    for place, box in enumerate(drawing.boxes):
        line, area = COLOURS[look_of(box.state).kind]
        shown = _label(box).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  s{place} [label="{shown}", color="{line}", fillcolor="{area}"];')
    lines += [f"  s{a} -> s{b}{' [penwidth=2.5]' if (a, b) in drawing.path else ''};" for a, b in drawing.edges]
    lines += [f"  s{a} -> s{b} [style=dashed];" for a, b in drawing.replaced]
    return "\n".join([*lines, "}"]) + "\n"
