"""Pay a refund after a person has agreed to the exact amount; the letter is written meanwhile."""

import asyncio
import sys

import dagrun


@dagrun.tool(effect="read")
async def amount(order: str) -> float:
    """Look up what the order has cost."""
    return 80.0


@dagrun.tool(effect="pure")
async def letter(order: str) -> str:
    """Write to the customer."""
    return f"Sorry about {order}."


@dagrun.tool(effect="effectful", needs_approval=True)
async def pay(order: str, euros: float) -> str:
    """Pay."""
    return f"paid {euros} for {order}"


async def ask(question: dagrun.Question) -> bool:
    """Ask at the terminal."""
    print(question.text, question.arguments, file=sys.stderr)
    return await asyncio.to_thread(input) == "yes"


paid = pay.step("A-17", amount.step("A-17"))
print(dagrun.run_sync(dagrun.plan(output=[letter.step("A-17"), paid]), approver=ask).output)
