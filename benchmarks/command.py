"""What the command lines of all benchmarks have in common, and where their results go."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results"


def parser_of(doc: str | None, quick: str, *, has_musts: bool = True) -> argparse.ArgumentParser:
    """The parser of a benchmark: ``--quick``, ``--gate``, ``--out``.

    Args:
        doc: Of the benchmark; its first line is the description.
        quick: What is less of it with ``--quick``.
        has_musts: Whether there is anything for ``--gate`` to look at.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help=f"{quick}; writes nothing")
    if has_musts:
        parser.add_argument("--gate", action="store_true", help="exit with 1 if a must is missed")
    parser.add_argument("--out", type=Path, help="where the results go (by default benchmarks/results)")
    return parser


def folder_of(options: argparse.Namespace) -> Path | None:
    """Where the results go; `None` if a quick run writes nothing."""
    if options.quick and options.out is None:
        return None
    folder: Path = options.out or RESULTS
    return folder


def write(folder: Path, name: str, results: Mapping[str, Any]) -> None:
    """Write *results* as ``name.json``; *folder* is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
