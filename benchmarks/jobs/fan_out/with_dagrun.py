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


counts = count.each(documents.step()).step(text=dagrun.item)
print(dagrun.run_sync(dagrun.plan(output=total.step(counts))).output)
