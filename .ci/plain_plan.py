"""A plan of plain functions, run by nothing but an installed dagrun."""

import dagrun


@dagrun.tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


plan = dagrun.Plan(
    steps=[
        dagrun.Step(id="one", tool="add", args={"a": 1, "b": 2}),
        dagrun.Step(id="two", tool="add", args={"a": "${one}", "b": 10}),
    ]
)
result = dagrun.run_sync(plan, tools=[add])

assert result.status == "succeeded", result
assert result.output == 13, result
print(f"{result.status}: 1 + 2 + 10 = {result.output}")
