"""An MCP server is killed at each point of a call: no effect is doubled, and reads succeed once it is back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun

pytest.importorskip("mcp")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.rigs(seconds=9),
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SERVER = Path(__file__).with_name("mcp_bank.py")
POINTS = ("idle", "sent", "begun", "done", "half")  # before it is sent, on its way, and so on to half an answer
RULES = {"bank": {"trust": "hints"}}


@contextmanager
def bank(folder: Path, transport: str) -> Iterator[dict[str, Any]]:
    """The configuration of the server, which is started by dagrun, or stands behind an address."""
    ledger = {"LEDGER": str(folder / "ledger")}
    if transport == "stdio":
        yield {"bank": {"command": sys.executable, "args": [str(SERVER)], "env": ledger}}
        return
    command, env = [sys.executable, str(SERVER), "http"], {**os.environ, **ledger}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield {"bank": {"url": f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"}}
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def booked(folder: Path) -> Counter[str]:
    path = folder / "ledger"
    return Counter(path.read_text(encoding="utf-8").splitlines() if path.exists() else [])


async def call(tools: dagrun.Toolbox, tool: str, **args: str) -> dagrun.RunResult:
    with anyio.fail_after(60):
        policy = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=3, first_delay=0.05))
        plan = dagrun.Plan(steps=[dagrun.Step(id="s", tool=f"bank.{tool}", args=args)])
        return await dagrun.run(plan, tools=[tools], policy=policy)


async def kill(tools: dagrun.Toolbox) -> None:
    os.kill(int((await call(tools, "pid")).steps["s"].output), signal.SIGKILL)


@pytest.mark.parametrize("tool", ["look", "put", "pay"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_no_effect_is_doubled_and_reads_succeed(tmp_path: Path, transport: str, tool: str) -> None:
    """Whatever the server has done, its ledger has no key twice, and a doubt is said to be one."""
    with bank(tmp_path, transport) as known:
        async with dagrun.mcp_tools(known, rules=RULES) as tools:
            for point in POINTS:
                before = booked(tmp_path)
                if point == "idle":
                    await kill(tools)
                result = await call(tools, tool, at=point, once=str(tmp_path / point))
                new = booked(tmp_path) - before
                done = {line: count for line, count in new.items() if " done " in line}
                assert max(done.values(), default=1) == 1, (point, new)
                if tool == "pay":
                    assert max(new.values(), default=1) == 1, (point, new)
                    _check_pay(point, result, done)
                else:
                    assert result.status == "succeeded", (point, result)
                    assert point == "idle" or len(result.steps["s"].attempts) >= 2
                    assert len(done) == (tool == "put")


def _check_pay(point: str, result: dagrun.RunResult, done: dict[str, int]) -> None:
    """What has been on its way is in doubt, and is never sent again; what could not connect is tried again."""
    ends = [attempt.outcome.state for attempt in result.steps["s"].attempts if attempt.outcome is not None]
    assert "unknown" not in ends[:-1], (point, ends)
    if point != "idle":
        assert result.status == "unknown", (point, result)
    assert (result.status == "succeeded") <= (len(done) == 1)
    assert len(done) == (point in ("done", "half") or result.status == "succeeded")
