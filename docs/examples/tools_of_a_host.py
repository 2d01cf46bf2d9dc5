"""Run plans over tools that a program has already: a registry of definitions, and one function that calls them all.

The adapter is `tools_of`. It needs no network: the registry below stands for a client of whatever server there is.
"""

from typing import Any

import anyio

import dagrun


class Registry:
    """What the host has: definitions in the format of OpenAI, and ``call(name, arguments)``."""

    def __init__(self) -> None:
        self.tickets: list[str] = []
        self.definitions = [
            define("crm/find customer", {"email": {"type": "string"}}, "Find a customer."),
            define(
                "crm/open ticket", {"customer": {"$ref": "#/$defs/Id"}, "text": {"type": "string"}}, "Open a ticket."
            ),
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        if name == "crm/find customer":
            return {"id": "c-7", "name": "Ann"}
        self.tickets.append(f"{arguments['customer']}: {arguments['text']}")
        return {"ticket": len(self.tickets)}


def define(name: str, properties: dict[str, Any], description: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    parameters["$defs"] = {"Id": {"type": "string", "maxLength": 8}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def tools_of(registry: Registry) -> list[dagrun.Tool[..., Any]]:
    """The whole adapter. What a call does to the world is for the host to say; a tool it does not name is effectful."""
    return dagrun.schema_tools(registry.definitions, registry.call, effects={"crm/find customer": "read"})


PLAN = {
    "steps": [
        {"id": "who", "tool": "crm_find_customer", "args": {"email": "ann@example.com"}},
        {"id": "open", "tool": "crm_open_ticket", "args": {"customer": "${who.id}", "text": "for ${who.name}"}},
    ]
}
WRONG = {"steps": [{"id": "open", "tool": "crm_open_ticket", "args": {"customer": "customer-1234", "txt": "hello"}}]}


async def main() -> None:
    registry = Registry()
    tools = tools_of(registry)
    try:
        dagrun.check(dagrun.Plan.model_validate(WRONG), tools=tools)
    except dagrun.PlanRefused as refused:
        for problem in refused.problems:
            print(f"{problem.code} {problem.path}")

    result = await dagrun.run(dagrun.Plan.model_validate(PLAN), tools=tools)
    print(result.status, result.output, registry.tickets)


if __name__ == "__main__":
    anyio.run(main)

# prints: DR204 steps[0].args.txt
# prints: DR203 steps[0].args
# prints: DR205 steps[0].args.customer
# prints: succeeded {'ticket': 1} ['c-7: for Ann']
