"""``dagrun metrics --journal DSN``: the records of a database."""

from __future__ import annotations

import anyio
import pytest

import dagrun
from command_line import Shell, shell
from dagrun import PostgresJournal
from small_tools import toolset

__all__ = ["shell"]
pytestmark = [pytest.mark.real_time, pytest.mark.costly]


def test_metrics_of_a_database(shell: Shell, postgres: str) -> None:
    """The same figures, whatever keeps the records; and a database that does not answer is an error, not "no runs"."""

    async def record() -> None:
        async with PostgresJournal(postgres) as journal:
            plan = dagrun.Plan(steps=[dagrun.Step(id="a", tool="echo", args={"value": 1})])
            await dagrun.run(plan, tools=toolset(), journal=journal, run_id="measured")

    anyio.run(record)
    ended = shell("metrics", "--journal", postgres, "--by", "tool", "--json")
    assert ended.code == 0, ended.err
    assert "echo" in ended.json["groups"]

    lost = shell("metrics", "--journal", "postgresql://nobody@127.0.0.1:1/none")
    assert lost.code != 0
    assert lost.out == ""
    assert "Traceback" not in lost.err
