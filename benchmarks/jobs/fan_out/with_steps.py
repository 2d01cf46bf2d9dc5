"""Count the words of a list of documents, all at the same time, and add them up."""

import asyncio

import dagrun


@dagrun.tool(effect="read")
async def documents() -> list[str]:
    """List the documents; how many there are is known only then."""
    return ["word " * length for length in range(20)]


@dagrun.tool(effect="pure")
async def count(text: str) -> int:
    """Count the words of a document."""
    await asyncio.sleep(0.01)
    return len(text.split())


@dagrun.tool(effect="pure")
async def total(counts: list[int]) -> int:
    """Add up."""
    return sum(counts)


plan = dagrun.Plan(
    steps=[
        dagrun.Step(id="documents", tool="documents"),
        dagrun.Step(id="counts", tool="count", for_each="${documents}", args={"text": "${item}"}),
        dagrun.Step(id="total", tool="total", args={"counts": "${counts}"}),
    ]
)
print(dagrun.run_sync(plan, tools=[documents, count, total]).output)
