"""Make the pictures of the documentation from the product: the timeline of `dagrun demo --scenario replan`, as SVG.

    python docs/make/make_pictures.py

The command is run, and the lines of its timeline become shapes, one for each run of characters. So the picture shows
what a reader will see, and is never drawn by hand. It brings its own background, in light and dark.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).resolve().parents[2]
PICTURE: Final = ROOT / "docs" / "pictures" / "replan.svg"
COLUMNS: Final = 92

WIDE, HIGH, EDGE = 9.0, 19.0, 16.0  # a character, and the space around all of them
BARS: Final = re.compile("[━╋┣]*✗|[━╋┣]+")
DRAFTS: Final = re.compile("[┄┫]+")
AXIS: Final = re.compile(r" {3,}0 s ")
STYLE: Final = """
  .page { fill: #ffffff; stroke: #d0d7de } .word { fill: #1f2328 } .soft { fill: #59636e }
  .good { fill: #2f81c7 } .bad { fill: #cf222e } .asked, .mark { fill: #8250df } .line { stroke: #8250df }
  .cross { stroke: #ffffff }
  text { font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d } .word { fill: #e6edf3 } .soft { fill: #9198a1 }
    .good { fill: #4493f8 } .bad { fill: #f85149 } .asked, .mark { fill: #ab7df8 } .line { stroke: #ab7df8 }
    .cross { stroke: #0d1117 }
  }
"""


def timeline_of(output: str) -> list[str]:
    """Return the lines of the timeline in what the demo has printed, and the sentences below it."""
    lines = output.splitlines()
    start = next(number for number, line in enumerate(lines) if AXIS.search(line))
    end = next(number for number, line in enumerate(lines) if number > start and line.startswith("Open "))
    return lines[start:end]


def as_svg(lines: Sequence[str]) -> str:
    """Draw the lines of a timeline."""
    width = max(map(len, lines)) * WIDE + 2 * EDGE
    height = len(lines) * HIGH + 2 * EDGE
    shapes = "\n".join(shape for number, line in enumerate(lines) for shape in _shapes(line, EDGE + number * HIGH))
    title = "Timeline of a run: the plan is changed while its other steps run on"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n"
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="8"/>\n{shapes}\n</svg>\n'
    )


def _shapes(line: str, top: float) -> Iterator[str]:
    middle = top + HIGH / 2
    for column, character in enumerate(line):
        if character in "┊╋┫┣":  # the splice goes through all rows, in front of no bar
            x = EDGE + (column + 0.5) * WIDE
            yield f'<path class="line" stroke-dasharray="3 3" d="M{x:g} {top:g}V{top + HIGH:g}"/>'
    for pattern in (BARS, DRAFTS):
        for bar in pattern.finditer(line):
            kind = "asked" if pattern is DRAFTS else "bad" if bar[0].endswith("✗") else "good"
            left = EDGE + (bar.start() + 0.5 * (bar[0][0] == "┣")) * WIDE
            right = EDGE + (bar.end() - 0.5 * (bar[0][-1] == "┫")) * WIDE
            size = 4 if kind == "asked" else 11
            yield (
                f'<rect class="{kind}" x="{left:g}" y="{middle - size / 2:g}" width="{right - left:g}" height="{size}" '
                'rx="2"/>'
            )
            if kind == "bad":
                x = right - WIDE / 2
                yield (f'<path class="cross" stroke-width="1.6" d="M{x - 3:g} {middle - 3:g}l6 6m0 -6l-6 6"/>')
    is_row = bool(BARS.search(line) or DRAFTS.search(line))
    for word in re.finditer(r"[^\s━╋✗┣┄┫┊]+(?: [^\s━╋✗┣┄┫┊]+)*", line):
        kind = "mark" if word[0] == "▼" else "word" if is_row and word.start() == 0 else "soft"
        x = EDGE + word.start() * WIDE
        yield (
            f'<text class="{kind}" x="{x:g}" y="{middle + 4.5:g}" textLength="{len(word[0]) * WIDE:g}">'
            f"{escape(word[0])}</text>"
        )


def main() -> None:
    """Run the demo, and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        shown = subprocess.run(
            [Path(sys.executable).with_name("dagrun"), "demo", "--scenario", "replan"],
            cwd=folder,
            env={**os.environ, "COLUMNS": str(COLUMNS), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            check=True,
        )
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(as_svg(timeline_of(shown.stderr + shown.stdout)), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
