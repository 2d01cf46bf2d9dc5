"""Research with several sources: all are asked at once, each finding is judged, and what is missing is named.

One source is slow, one is gone and has a mirror, one answers with too little. None of them stops the others.
"""

from collections.abc import Sequence

import anyio

import dagrun

LIBRARY = {
    "journal": ["bees navigate by the sun", "bees can count to four"],
    "museum": ["bees dance to tell others where flowers are"],
    "archive-mirror": ["bees sleep between five and eight hours"],
    "forum": [],
}


@dagrun.tool(effect="read", timeout=1)
async def search(source: str, topic: str) -> list[str]:
    """Search one source."""
    await anyio.sleep({"journal": 0.02, "museum": 0.3}.get(source, 0.01))
    if source == "archive":
        raise dagrun.ToolError("the archive has moved", unreachable=True)
    return [line for line in LIBRARY[source] if topic in line]


@dagrun.tool(effect="read")
async def search_mirror(source: str, topic: str) -> list[str]:
    """Search the mirror of a source."""
    return [line for line in LIBRARY.get(f"{source}-mirror", []) if topic in line]


@dagrun.tool(effect="pure")
def summary(findings: Sequence[Sequence[str] | None]) -> list[str]:
    """Join the findings; null stands for a source without a usable answer."""
    return sorted(line for lines in findings if lines for line in lines)


def main() -> None:
    names = ["journal", "museum", "archive", "forum"]
    findings = [
        # A condition on the step's own output: an empty answer is a failure, and a failure is null in what follows.
        search.options(
            id=name,
            fallback="search_mirror",
            on_failure="default",
            default=None,
            success=dagrun.Condition(ref=name, op="min_length", value=1),
        ).step(source=name, topic="bees")
        for name in names
    ]
    answer = summary.step(findings=findings)
    result = dagrun.run_sync(dagrun.plan(output=answer), tools=[search_mirror])

    for line in result[answer]:
        print("-", line)
    for name in names:
        step = result.steps[name]
        print(f"{name}: {'no usable answer' if step.is_default else 'used'}, {len(step.attempts)} calls")
    print(result.status)


if __name__ == "__main__":
    main()

# prints: - bees can count to four
# prints: - bees dance to tell others where flowers are
# prints: - bees navigate by the sun
# prints: - bees sleep between five and eight hours
# prints: journal: used, 1 calls
# prints: museum: used, 1 calls
# prints: archive: used, 2 calls
# prints: forum: no usable answer, 2 calls
# prints: succeeded
