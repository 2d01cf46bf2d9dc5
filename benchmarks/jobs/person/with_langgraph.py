"""Pay a refund after a person has agreed to the exact amount; the letter is written before."""

import asyncio
import sys

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt


@task
async def amount(order: str) -> float:
    """Look up what the order has cost."""
    return 80.0


@task
async def letter(order: str) -> str:
    """Write to the customer."""
    return f"Sorry about {order}."


@task
async def pay(order: str, euros: float) -> str:
    """Pay."""
    return f"paid {euros} for {order}"


@entrypoint(checkpointer=InMemorySaver())
async def app(order: str) -> list[str]:
    """Look up, ask, pay; what comes before the question runs again when it is answered, but for its tasks."""
    euros, text = await asyncio.gather(amount(order), letter(order))
    if interrupt(f"May pay be called with order={order}, euros={euros}?") != "yes":
        raise PermissionError("the person said no")
    return [text, await pay(order, euros)]


async def main() -> None:
    """Run up to the question, ask at the terminal, and run on."""
    thread = {"configurable": {"thread_id": "refund of A-17"}}
    asked = await app.ainvoke("A-17", thread)
    print(asked["__interrupt__"][0].value, file=sys.stderr)
    answer = await asyncio.to_thread(input)
    print(await app.ainvoke(Command(resume=answer), thread))


asyncio.run(main())
