"""A run that kills its own process in the middle; a test goes on with it.

python postgres_tools.py DSN SCHEMA FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio

import dagrun
from dagrun import Plan, PostgresJournal, Step
from dagrun.kernel.model.tool import AnyTool

PLAN = Plan(
    goal="survive",
    steps=[
        Step(id="first", tool="note", args={"text": "first"}),
        Step(id="second", tool="note", args={"text": "${first} second"}),
        Step(id="cliff", tool="jump", args={"text": "${second}"}),
        Step(id="last", tool="note", args={"text": "${cliff} last"}),
    ],
)


def tools_in(folder: Path, *, is_deadly: bool) -> list[AnyTool]:
    """The tools: one leaves a line for each call, the other ends the process."""

    @dagrun.tool(effect="effectful")
    def note(text: str) -> str:
        """Write a line."""
        with open(folder / "notes", "a", encoding="utf-8") as file:
            file.write(f"{text}\n")
        return text

    @dagrun.tool(effect="idempotent")
    def jump(text: str) -> str:
        """Do not come back."""
        if is_deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return text

    return [note, jump]


async def main() -> None:
    """Run until the process is killed."""
    async with PostgresJournal(sys.argv[1], schema=sys.argv[2]) as journal:
        await dagrun.run(PLAN, tools=tools_in(Path(sys.argv[3]), is_deadly=True), journal=journal, run_id="run-1")


if __name__ == "__main__":
    anyio.run(main)
