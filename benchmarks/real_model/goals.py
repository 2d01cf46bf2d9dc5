"""Simple goals for a small model, and harmless tools to reach them with.

The tools make everything up, touch nothing outside of the process, and always give the same, so that it is known what
the answer to each goal must hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from dagrun import tool

SALES: Final[Mapping[str, list[float]]] = {
    "north": [12, 18, 30],
    "south": [5, 10, 15, 22],
    "east": [7, 7, 7],
    "west": [100, 50],
}
DOCUMENTS: Final[Mapping[str, str]] = {
    "Solar power": "Panels turn the light of the sun into current.",
    "Wind power": "Wheels on tall towers turn in the wind.",
    "Water power": "Water falls through a wheel at the foot of a dam.",
}


@tool(effect="read")
async def sales(region: Literal["north", "south", "east", "west"]) -> list[float]:
    """Get the sales figures of one region."""
    return SALES[region]


@tool(effect="pure")
async def average(numbers: list[float]) -> float:
    """Compute the average of a list of numbers."""
    if not numbers:
        raise ValueError("there are no numbers")
    return sum(numbers) / len(numbers)


@tool(effect="pure")
async def total(numbers: list[float]) -> float:
    """Compute the sum of a list of numbers."""
    return sum(numbers)


@tool(effect="pure")
async def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@tool(effect="read")
async def search(query: str) -> list[str]:
    """Find the titles of documents about something."""
    words = query.lower().split()
    return [title for title in DOCUMENTS if any(word in title.lower() for word in words)]


@tool(effect="read")
async def fetch(title: str) -> str:
    """Get the text of the document with this title."""
    if title not in DOCUMENTS:
        raise ValueError("there is no such document")
    return DOCUMENTS[title]


@tool(effect="pure")
async def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


@tool(effect="idempotent")
async def write_report(title: str, body: str) -> str:
    """Write a report; gives the report."""
    return f"# {title}\n\n{body}"


TOOLS: Final = (sales, average, total, add, search, fetch, count_words, write_report)


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted, and how it is known whether it was reached.

    Attributes:
        text: As the planner gets it.
        needs: The tools without which it cannot be reached; ``add|total`` stands for either of them.
        holds: What the answer must hold: each number as a value in it, each text as a part of one.
    """

    text: str
    needs: tuple[str, ...]
    holds: tuple[float | str, ...]


GOALS: Final = (
    # One call, with everything that it takes in the goal.
    Goal("What is 17 plus 25?", ("add|total",), (42,)),
    Goal("Add 3.5 and 4.", ("add|total",), (7.5,)),
    Goal("What is the average of 4, 8 and 15?", ("average",), (9,)),
    Goal("Compute the total of 10, 20, 30 and 40.", ("add|total",), (100,)),
    Goal("Get the sales of the north.", ("sales",), (12, 18, 30)),
    Goal("Search for documents about wind.", ("search",), ("Wind power",)),
    Goal("Fetch the document 'Solar power'.", ("fetch",), ("the light of the sun",)),
    Goal("Count the words of the text 'the sun is a star'.", ("count_words",), (5,)),
    Goal("Write a report with the title 'Hello' and the body 'All is well'.", ("write_report",), ("All is well",)),
    # Several calls that do not need each other.
    Goal("Get the sales of the north and the sales of the west.", ("sales",), (12, 18, 30, 100, 50)),
    Goal("What is 1 plus 2, and what is 30 plus 40?", ("add|total",), (3, 70)),
    Goal("Fetch the documents 'Solar power' and 'Wind power'.", ("fetch",), ("the light of the sun", "tall towers")),
    # One call that needs the result of another.
    Goal("What is the average of the sales in the south?", ("sales", "average"), (13,)),
    Goal("What are the total sales of the west?", ("sales", "add|total"), (150,)),
    Goal("How many words does the document 'Wind power' have?", ("fetch", "count_words"), (8,)),
    Goal("Add 1 and 2, then add 10 to the result.", ("add|total",), (13,)),
    Goal("Compute the total of 5, 6 and 7, and add 2 to it.", ("add|total",), (20,)),
    Goal("Get the sales of the east and write them into a report.", ("sales", "write_report"), ("7", "#")),
    Goal("Write a report from the document 'Water power'.", ("fetch", "write_report"), ("#", "the foot of a dam")),
    # More than that.
    Goal("What are the total sales of north and south together?", ("sales", "add|total"), (112,)),
    Goal("Compute the average sales of the north and the average sales of the south.", ("sales", "average"), (20, 13)),
    Goal("Write a report with the average sales of the south.", ("sales", "average", "write_report"), ("#", "13")),
    Goal(
        "How many words do the documents 'Solar power' and 'Wind power' have together?",
        ("fetch", "count_words", "add|total"),
        (17,),
    ),
    Goal(
        "Count the words of the document 'Water power' and write a report that says how many.",
        ("fetch", "count_words", "write_report"),
        ("#", "11"),
    ),
)


# Every other one, so that there are some of each kind: for a demo that ends soon.
TWELVE: Final = GOALS[::2]


def is_held(wanted: float | str, answer: Any) -> bool:
    """Whether *answer*, plain JSON, holds a number as a value of its own, or a text as a part of one."""
    match answer:
        case str():
            return isinstance(wanted, str) and wanted in answer
        case bool() | None:
            return False
        case int() | float():
            return not isinstance(wanted, str) and abs(answer - wanted) < 1e-9
        case Mapping():
            return any(is_held(wanted, part) for part in answer.values())
        case Sequence():
            return any(is_held(wanted, part) for part in answer)
    return False
