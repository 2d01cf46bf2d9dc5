#!/usr/bin/env python3
"""Check what ``dagrun demo --json`` has printed (first argument), and the folder that it has filled (second)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

MIN_SPEEDUP = 1.8


def main(printed: Path, folder: Path) -> int:
    """Print what is wrong; the exit code is 1 if anything is."""
    facts = json.loads(printed.read_text("utf-8"))
    wrong = [
        f"{key} is {facts.get(key)!r}, not {value!r}"
        for key, value in {"status": "succeeded", "retries": 1, "fallbacks": 1}.items()
        if facts.get(key) != value
    ]
    if not facts["speedup"] >= MIN_SPEEDUP:
        wrong.append(f"speedup is {facts['speedup']}, below {MIN_SPEEDUP}")
    if facts["makespan"] < facts["critical_path"]:
        wrong.append(f"makespan is {facts['makespan']}, shorter than the critical path of {facts['critical_path']}")
    wanted = {"report.md", "report.html", "run.html", "run.json", *facts["files"]}
    wrong += [f"{name} is missing or empty" for name in sorted(wanted) if not is_filled(folder / name)]
    if not any(name.endswith(".png") for name in facts["files"]):
        wrong.append("there is no chart")
    figures = ("makespan", "sequential", "critical_path", "speedup")
    print(", ".join(f"{key} {facts[key]}" for key in figures), *wrong, sep="\n  ")
    return 1 if wrong else 0


def is_filled(file: Path) -> bool:
    """Whether there is a file with something in it."""
    return file.is_file() and file.stat().st_size > 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
