"""Count the words of a list of documents, all at the same time, and add them up."""

import asyncio

from langgraph.func import entrypoint, task


@task
async def documents() -> list[str]:
    """List the documents; how many there are is known only then."""
    return ["word " * length for length in range(20)]


@task
async def count(text: str) -> int:
    """Count the words of a document."""
    await asyncio.sleep(0.01)
    return len(text.split())


@task
async def total(counts: list[int]) -> int:
    """Add up."""
    return sum(counts)


@entrypoint()
async def app(_: dict[str, object]) -> int:
    """List, count, add up."""
    texts = await documents()
    return await total(await asyncio.gather(*(count(text) for text in texts)))


print(asyncio.run(app.ainvoke({})))
