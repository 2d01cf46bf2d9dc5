"""Tools of the golden tasks. None of them is ever called for real, but for those that only compute."""

from typing import NoReturn

from pydantic import BaseModel

from dagrun import Patch, Plan, Replace, StaticPlanner, Step, tool


class Order(BaseModel):
    id: int
    total: float


def _never() -> NoReturn:
    raise AssertionError("a golden task has called a real tool")


@tool(effect="read", timeout=10)
async def get_order(order: int) -> Order:
    """Look an order up."""
    _never()


@tool(effect="effectful", needs_approval=True)
async def pay_back(order: int, total: float) -> str:
    """Pay the total of an order back."""
    _never()


@tool(effect="effectful", timeout=10)
async def ship(order: int) -> str:
    """Hand an order to the carrier."""
    _never()


@tool(effect="idempotent")
async def notify(to: str, text: str) -> str:
    """Send a message."""
    _never()


@tool(effect="read", fallback="search_copy", timeout=5)
async def search(query: str) -> list[str]:
    """Search the index."""
    _never()


@tool(effect="read")
async def search_copy(query: str) -> list[str]:
    """Search a copy of the index."""
    _never()


@tool(effect="read")
async def read_page(name: str) -> str:
    """Read a page."""
    _never()


@tool(effect="pure")
def length(text: str) -> int:
    """Count the characters of a text."""
    return len(text)


@tool(effect="pure")
def total(numbers: list[int | None]) -> int:
    """Add numbers up."""
    return sum(number or 0 for number in numbers)


@tool(effect="read")
async def load_csv(path: str) -> list[dict[str, float]]:
    """Read rows."""
    _never()


@tool(effect="pure")
async def clean_data(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Drop rows that are not whole."""
    return [row for row in rows if row]


@tool(effect="pure")
async def calculate_stats(rows: list[dict[str, float]]) -> dict[str, float]:
    """Add the revenue up."""
    return {"revenue": sum(row["revenue"] for row in rows)}


@tool(effect="pure")
async def detect_trends(stats: dict[str, float]) -> list[str]:
    """Find trends."""
    return ["rising" if stats["revenue"] > 100 else "flat"]


@tool(effect="pure")
async def generate_chart(stats: dict[str, float], title: str) -> str:
    """Draw a chart."""
    return f"{title}: {stats['revenue']:.0f}"


@tool(effect="idempotent")
async def write_report(stats: dict[str, float], trends: list[str], chart: str) -> str:
    """Write the report."""
    _never()


class Copier(StaticPlanner):
    """Answers the failure of a search with a search of the copy; of a goal, it makes a plan of two steps."""

    def __init__(self) -> None:
        copy = Step(id="other", tool="search_copy", args={"query": "socks"})
        super().__init__(patches={"find": Patch(edits=[Replace(id="find", step=copy)])})


class Writer(StaticPlanner):
    """Makes a plan of two steps of any goal."""

    def __init__(self) -> None:
        steps = [
            Step(id="page", tool="read_page", args={"name": "home"}),
            Step(id="size", tool="length", args={"text": "${page}"}),
        ]
        super().__init__(plan=Plan(steps=steps))
