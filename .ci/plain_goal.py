"""From a goal to an answer with what a bare install has: the models' clients, the prompts, and a server that plays."""

import dagrun
from dagrun.testing import FakeModelServer, ModelAnswer


@dagrun.tool(effect="read")
async def look_up(name: str) -> int:
    """Look up a number."""
    return {"one": 1, "two": 2}[name]


@dagrun.tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


PLAN = """{"steps": [
  {"id": "a", "tool": "look_up", "args": {"name": "one"}},
  {"id": "b", "tool": "look_up", "args": {"name": "two"}},
  {"id": "sum", "tool": "add", "args": {"a": "${a}", "b": "${b}"}}
], "output": "sum"}"""

with FakeModelServer([ModelAnswer(PLAN)]) as server:
    planner = dagrun.OpenAIPlanner("any", base_url=server.base_url)
    result = dagrun.run_sync(goal="What is one and two?", planner=planner, tools=[look_up, add])

assert result.raise_for_status().output == 3
print(f"planned and run: {result.reason}, {result.tokens} tokens")
