"""Calling the data tools one by one, without a run around them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dagrun import ToolContext
from dagrun.kernel.runtime.artifacts import ArtifactFolder
from dagrun_tools.analysis.calculate_stats import calculate_stats
from dagrun_tools.facts import Facts, Statistics, Table
from dagrun_tools.files import file_tools
from dagrun_tools.files.file_tools import FileRules
from dagrun_tools.reports.drawing import Bars, draw
from dagrun_tools.tables.clean_data import CleanOptions, clean_data
from dagrun_tools.tables.load_csv import load_csv
from folders import DATA

SALES = (DATA / "sales_q4_2025.csv").read_bytes()


class Steps:
    """A folder for files and one for artifacts, and a context for calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = ArtifactFolder(root / "artifacts")
        self.context = ToolContext(
            run_id="run",
            step="step",
            attempt=1,
            idempotency_key="key",
            deadline=None,
            logger=logging.LoggerAdapter(logging.getLogger("test"), {}),
            artifacts=self.store,
            report=lambda kind, facts: None,
            clock=lambda: 0.0,
        )

    def load(self, text: str | bytes, name: str = "data.csv", **options: Any) -> Table:
        """Write a file and load it."""
        (self.root / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return load_csv(self.context, name, **options)

    def clean(self, text: str | bytes, **options: Any) -> Table:
        """Write a file, load and clean it."""
        return clean_data(self.context, self.load(text), CleanOptions.model_validate(options))

    def rows(self, table: Table) -> list[Mapping[str, Any]]:
        """The rows of a table."""
        from dagrun_tools.tables.rows import read_rows

        return list(read_rows(self.context, table))

    def sales(self, **options: Any) -> Statistics:
        """The statistics of the made-up sales."""
        cleaned = self.clean(SALES, removeNulls=True, deduplicateBy="transaction_id")
        return calculate_stats(self.context, cleaned, **options)


@contextmanager
def steps_in(root: Path) -> Iterator[Steps]:
    """Confine the tools to *root* while the body runs."""
    token = file_tools.rules.set(FileRules(root=root))
    try:
        yield Steps(root)
    finally:
        file_tools.rules.reset(token)


def warm_up() -> None:
    """Draw once, with every font that is ever needed: matplotlib keeps their files open."""
    draw("\u6570", Bars("label", "", ["a"], [1.0], ["b"]))


def plain(facts: Facts) -> dict[str, Any]:
    """Facts as the next step gets them."""
    return facts.model_dump(mode="json")
