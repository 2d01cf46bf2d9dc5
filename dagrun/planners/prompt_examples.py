"""Example goals with their plans, as prompts show them.

The tools of the examples are declared like any others, so that tests can check the examples as every plan is checked.
They are never called. In a prompt their names have a prefix that no tool of the user has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dagrun.kernel.model.tool import AnyTool, tool

Dialect = Literal["json", "lean", "compiler", "calls"]

# The prefix of the tools in the examples; `renamed` changes it if a tool of the user has the same.
PREFIX: Final = "ex_"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The items of the list that `ex_tickets` returns."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Digest:
    """The output of `ex_digest`."""

    text: str
    urgent: int


@tool(effect="read")
async def ex_weather(city: str, month: str) -> str:
    """Describe the weather that a city usually has in a month."""
    raise NotImplementedError


@tool(effect="read")
async def ex_hotel_price(city: str, month: str) -> float:
    """Look up the price of an ordinary room, in dollars."""
    raise NotImplementedError


@tool(effect="read")
async def ex_forecast(city: str) -> str:
    """Forecast the weather of a city."""
    raise NotImplementedError


@tool(effect="read")
async def ex_price(city: str) -> float:
    """Look up the price of an ordinary room, in dollars."""
    raise NotImplementedError


@tool(effect="pure")
async def ex_write(task: str, notes: list[str]) -> str:
    """Write a short text from notes."""
    raise NotImplementedError


@tool(effect="read")
async def ex_tickets(count: int) -> list[Ticket]:
    """Read the newest tickets."""
    raise NotImplementedError


@tool(effect="read")
async def ex_backlog(days: int) -> int:
    """Count the tickets that are older than some days."""
    raise NotImplementedError


@tool(effect="pure")
async def ex_summary(text: str) -> str:
    """Summarise a text in a sentence."""
    raise NotImplementedError


@tool(effect="pure")
async def ex_digest(summaries: list[str]) -> Digest:
    """Put summaries in order, and count the urgent ones."""
    raise NotImplementedError


@tool(effect="effectful")
async def ex_mail(to: str, body: str) -> str:
    """Send a mail, and give its id."""
    raise NotImplementedError


@tool(effect="idempotent")
async def ex_mark_read(tickets: list[Ticket]) -> None:
    """Mark tickets as read."""
    raise NotImplementedError


@tool(effect="read")
async def ex_orders(customer: str) -> list[float]:
    """List the amounts of the orders of a customer."""
    raise NotImplementedError


@tool(effect="pure")
async def ex_largest(numbers: list[float]) -> float:
    """Find the largest number."""
    raise NotImplementedError


@tool(effect="pure")
async def ex_round_up(number: float) -> int:
    """Round a number up."""
    raise NotImplementedError


@tool(effect="read")
async def ex_find_pages(words: str) -> list[str]:
    """Find the titles of pages about something."""
    raise NotImplementedError


@tool(effect="pure")
async def ex_translate(text: str, language: str) -> str:
    """Translate a text."""
    raise NotImplementedError


@tool(effect="read")
async def ex_read_page(title: str) -> str:
    """Get the text of a page."""
    raise NotImplementedError


@tool(effect="pure")
async def ex_shorten(text: str) -> str:
    """Make a text shorter."""
    raise NotImplementedError


_CITIES: Final = ("Oslo", "Lima", "Quito")
TRIP_TOOLS: Final[tuple[AnyTool, ...]] = (ex_weather, ex_hotel_price, ex_write)
TICKET_TOOLS: Final[tuple[AnyTool, ...]] = (ex_tickets, ex_backlog, ex_summary, ex_digest, ex_mail, ex_mark_read)
ORDER_TOOLS: Final[tuple[AnyTool, ...]] = (ex_orders, ex_largest, ex_round_up, ex_mail)
SHORT_TRIP_TOOLS: Final[tuple[AnyTool, ...]] = (ex_forecast, ex_price, ex_write)
PAGE_TOOLS: Final[tuple[AnyTool, ...]] = (ex_find_pages, ex_translate, ex_read_page, ex_shorten)


@dataclass(frozen=True, slots=True)
class Example:
    """A goal, and a good answer.

    Attributes:
        goal: The goal.
        tools: All tools that the example offers.
        lesson: What the example shows, in a sentence.
        answers: The answer in each dialect that can express it.
    """

    goal: str
    tools: tuple[AnyTool, ...]
    lesson: str
    answers: Mapping[Dialect, str]


def _lines(steps: list[dict[str, Any]], **fields: Any) -> str:
    """Write a plan as JSON, with one line for each step."""
    shown = ",\n  ".join(_json(step) for step in steps)
    others = "".join(f", {_json(name)}: {_json(value)}" for name, value in fields.items())
    return f'{{"steps": [\n  {shown}\n]{others}}}'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _trip() -> list[dict[str, Any]]:
    look_ups = [
        {"tool": f"ex_{tool_}", "id": f"{what}_{city.lower()}", "args": {"city": city, "month": "May"}}
        for what, tool_ in (("hotel", "hotel_price"), ("weather", "weather"))
        for city in _CITIES
    ]
    notes = [f"{city}: ${{weather_{city.lower()}}} A room costs ${{hotel_{city.lower()}}} USD." for city in _CITIES]
    advice = {"tool": "ex_write", "id": "advice", "args": {"task": "Recommend one of the cities.", "notes": notes}}
    return [*look_ups, advice]


def _short_trip() -> list[dict[str, Any]]:
    look_ups = [
        {"id": f"{name[0]}_{city.lower()}", "tool": f"ex_{name}", "args": {"city": city}}
        for name in ("forecast", "price")
        for city in _CITIES
    ]
    notes = [f"{city}: ${{f_{city.lower()}}} ${{p_{city.lower()}}} USD" for city in _CITIES]
    return [*look_ups, {"id": "advice", "tool": "ex_write", "args": {"task": "Recommend a city.", "notes": notes}}]


def _lean(steps: list[dict[str, Any]], output: str, refusal: str = "") -> str:
    """Write a plan with every field of the lean form, and no other."""
    return _lines([step | {"depends_on": []} for step in steps], output=output, confidence=0.9, refusal=refusal)


def _tickets() -> str:
    steps = [
        {
            "id": "tickets",
            "tool": "ex_tickets",
            "args": {"count": 5},
            "description": "the newest, to be summarised",
            "success": {"ref": "tickets[0]", "op": "exists"},
        },
        {"id": "backlog", "tool": "ex_backlog", "args": {"days": 30}},
        {
            "id": "summaries",
            "tool": "ex_summary",
            "args": {"text": "${item.text}"},
            "for_each": {"$step": "tickets", "path": ""},
        },
        {"id": "digest", "tool": "ex_digest", "args": {"summaries": "${summaries}"}},
        {
            "id": "mail",
            "tool": "ex_mail",
            "args": {
                "to": "ops@example.com",
                "body": "${digest.text}\n${backlog} are older than a month. Up to $100 can be refunded.",
            },
            "when": {"ref": "digest.urgent", "op": ">", "value": 0},
        },
        {"id": "mark", "tool": "ex_mark_read", "args": {"tickets": "${tickets}"}, "depends_on": ["mail"]},
    ]
    return _lines(steps, output="digest.text", confidence=0.8)


_WHY: Final = "no tool can book a table, and the address of the office is not known"
_REFUSAL: Final = _json({"refusal": _WHY})

# For small models, each lesson by itself: values from the goal, calls side by side, and a chain. None of them is needed
# by larger ones.
SMALL_EXAMPLES: Final[tuple[Example, ...]] = (
    Example(
        "Shorten the first page about the harvest.",
        PAGE_TOOLS,
        "",
        {"calls": '1. ex_find_pages("harvest")\n2. ex_read_page("${1[0]}")\n3. ex_shorten("$2")\n4. join()'},
    ),
    Example("Which is the largest of 3, 12 and 9?", ORDER_TOOLS, "", {"calls": "1. ex_largest([3, 12, 9])\n2. join()"}),
    Example(
        "Translate 'good morning' into French and 'good night' into German.",
        PAGE_TOOLS,
        "",
        {"calls": '1. ex_translate("good morning", "French")\n2. ex_translate("good night", "German")\n3. join()'},
    ),
    Example(
        "Mail the largest order of Smith to bob@example.com.",
        ORDER_TOOLS,
        "",
        {
            "calls": '1. ex_orders("Smith")\n2. ex_largest("$1")\n'
            '3. ex_mail("bob@example.com", "The largest order is $2.")\n4. join()'
        },
    ),
    Example(
        "Translate the page 'Harvest' into French.",
        PAGE_TOOLS,
        "",
        {"calls": '1. ex_read_page("Harvest")\n2. ex_translate("$1", "French")\n3. join()'},
    ),
)

EXAMPLES: Final[tuple[Example, ...]] = (
    Example(
        goal="Where should we meet in May: Oslo, Lima or Quito? Weather and prices count.",
        tools=TRIP_TOOLS,
        lesson="Six look-ups at once, and one step that joins them. In a row, they would take three times as long.",
        answers={
            "lean": _lean(_trip(), "advice"),
            "compiler": """\
1. ex_hotel_price("Oslo", "May")
2. ex_hotel_price("Lima", "May")
3. ex_hotel_price("Quito", "May")
4. ex_weather("Oslo", "May")
5. ex_weather("Lima", "May")
6. ex_weather("Quito", "May")
7. ex_write("Recommend one of the cities.", ["Oslo: $4 A room costs $1 USD.", "Lima: $5 A room costs $2 USD.", \
"Quito: $6 A room costs $3 USD."])
8. join($7)""",
        },
    ),
    Example(
        goal="Where should we meet: Oslo, Lima or Quito? Weather and prices count.",
        tools=SHORT_TRIP_TOOLS,
        lesson="Six look-ups at once, and one step that joins them.",
        answers={"json": _lines(_short_trip(), output="advice", confidence=0.9)},
    ),
    Example(
        goal="Summarise the five newest tickets. If any is urgent, mail the digest to ops@example.com, with the number "
        "of tickets older than a month, and say that up to $100 can be refunded. Then mark them as read.",
        tools=TICKET_TOOLS,
        lesson="Without a ticket, the first step has failed. The goal asks for the mail. Mark uses nothing of it, so "
        "the order is in depends_on.",
        answers={"json": _tickets()},
    ),
    Example(
        goal="Book a table for four, tonight, near the office.",
        tools=SHORT_TRIP_TOOLS[:1],
        lesson="Nobody has said where the office is, either.",
        answers={"json": _json({"refusal": "no tool can book a table"})},
    ),
    Example(
        goal="Book a table for four, tonight, near the office.",
        tools=TRIP_TOOLS,
        lesson="No tool books tables, and nobody has said where the office is.",
        answers={
            "lean": f'{{"steps": [], "output": "", "confidence": 0.9, "refusal": {_json(_WHY)}}}',
            "compiler": _REFUSAL,
        },
    ),
    *SMALL_EXAMPLES,
)

# The situation of this example: the tickets cannot be read, and the backlog cannot be counted.
PATCH: Final = _json(
    {
        "edits": [
            {
                "op": "replace",
                "id": "tickets",
                "step": {"id": "tickets2", "tool": "ex_archived_tickets", "args": {"count": 5}},
            },
            {"op": "drop", "id": "backlog"},
            {
                "op": "rewire",
                "id": "mail",
                "args": {"to": "ops@example.com", "body": "${digest.text}\nUp to $100 can be refunded at once."},
            },
        ],
        "reason": "the copy has the same tickets, and the mail is useful without the backlog",
        "confidence": 0.7,
    }
)
PATCH_EXAMPLE: Final = f"""\
The plan: tickets (ex_tickets) and backlog (ex_backlog) side by side; summaries for each of "${{tickets}}"; digest of \
"${{summaries}}"; mail with "${{digest.text}}" and "${{backlog}}" in its body.
What has happened: tickets failed (unreachable) and backlog failed twice. There is a tool ex_archived_tickets.
Answer:
{PATCH}
Note: summaries gets the output of tickets2 by itself, so it is not touched, and digest neither. Nothing else \
can count the backlog, so it is dropped, and mail does without."""


def renamed(text: str, taken: Sequence[str]) -> str:
    """Rename the tools of the examples in *text*, if a tool of the user has the same prefix."""
    prefix = PREFIX
    while any(name.startswith(prefix) for name in taken):
        prefix = f"e{prefix}"
    return text if prefix == PREFIX else re.sub(rf"\b{PREFIX}", prefix, text)


# The goal of this example: how many tickets are older than a month, by mail to ops@example.com.
NEXT_STEPS: Final = (
    _json(
        {
            "thought": "The number is known; it only has to be sent.",
            "step": {"id": "mail", "tool": "ex_mail", "args": {"to": "ops@example.com", "body": "Old: ${backlog}."}},
            "stop": None,
            "output": None,
            "reason": None,
            "confidence": 0.9,
        }
    ),
    _json(
        {
            "thought": "The mail is out.",
            "step": None,
            "stop": "goal_met",
            "output": "backlog",
            "reason": "the number was counted and sent",
            "confidence": 0.9,
        }
    ),
)
NEXT_EXAMPLE: Final = f"""\
Goal: Mail to ops@example.com how many tickets are older than a month.
Steps so far: backlog (ex_backlog) has succeeded.
Answer:
{NEXT_STEPS[0]}
And when mail has succeeded as well:
{NEXT_STEPS[1]}"""
