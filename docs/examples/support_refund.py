"""A support refund: the case is gathered in parallel, and money leaves only with a person's yes to this very amount.

The person here is a function. In a service, set ``attended=True`` and answer with ``run.answer`` (see the how-to "Ask a
person"); on the command line, ``dagrun run`` asks on the terminal.
"""

import dagrun

Order = dict[str, str | float]
ORDERS: dict[str, Order] = {"A-17": {"paid": 120.0, "item": "kettle"}, "A-18": {"paid": 20.0, "item": "cup"}}
PAID_OUT: list[str] = []


@dagrun.tool(effect="read")
def order(number: str) -> Order:
    """Look up an order."""
    return ORDERS[number]


@dagrun.tool(effect="read")
def complaint(number: str) -> str:
    """Read what the customer wrote about an order."""
    return f"the {ORDERS[number]['item']} of {number} arrived broken"


@dagrun.tool(effect="pure")
def amount(order: Order, complaint: str) -> float:
    """Decide how much is paid back."""
    return float(order["paid"]) if "broken" in complaint else 0.0


@dagrun.tool(effect="idempotent")
def refund(number: str, amount: float, context: dagrun.ToolContext = dagrun.PROVIDED) -> str:
    """Pay money back. The service takes a key, so that a repeated call pays once."""
    if context.idempotency_key not in PAID_OUT:
        PAID_OUT.append(context.idempotency_key)
    return f"{amount:.2f} for {number}"


@dagrun.tool(effect="pure")
def reply(refund: str) -> str:
    """Write to the customer."""
    return f"We have paid back {refund}."


async def person(question: dagrun.Question) -> dagrun.Answer:
    """Look at the exact arguments of the call, and say yes to at most 100."""
    arguments = question.as_dict()["arguments"]
    print("asked:", arguments["number"], arguments["amount"], "because", question.why)
    if arguments["amount"] > 100:
        return dagrun.Answer("deny", by="ann", note="above my limit")
    return dagrun.Answer("approve", by="ann")


POLICY = dagrun.Policy(
    approve=[
        dagrun.ApprovalRule(
            tool="refund", when=dagrun.Condition(ref="args.amount", op=">", value=10), why="money leaves"
        )
    ]
)


def main() -> None:
    for number in ORDERS:
        due = amount.step(order=order.step(number=number), complaint=complaint.step(number=number))
        answer = reply.step(refund=refund.step(number=number, amount=due))
        result = dagrun.run_sync(dagrun.plan(output=answer), policy=POLICY, approver=person)
        print(number, result.status, result.output or result.steps["refund"].reason)
    print("refunds made:", len(PAID_OUT))


if __name__ == "__main__":
    main()

# prints: asked: A-17 120.0 because money leaves
# prints: A-17 failed a person said no: above my limit
# prints: asked: A-18 20.0 because money leaves
# prints: A-18 succeeded We have paid back 20.00 for A-18.
# prints: refunds made: 1
