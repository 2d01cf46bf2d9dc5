"""From a goal to a running plan: a model writes it, steps run meanwhile, and a plan with a fault goes back once.

A server on the loopback plays the model, in the protocol of a real one. With a key, leave it out:
``dagrun.OpenAIPlanner("a-model")``.
"""

import json

import dagrun
from dagrun.testing import FakeModelServer, ModelAnswer

STARTED: list[str] = []


@dagrun.tool(effect="read")
async def celsius(city: str) -> float:
    """Measure the temperature of a city."""
    STARTED.append(city)
    return {"Oslo": 11.3, "Lima": 19.6}[city]


@dagrun.tool(effect="pure")
async def warmest(cities: dict[str, float]) -> str:
    """Name the warmest of some cities.

    Args:
        cities: The temperature of each city.
    """
    return max(cities, key=cities.__getitem__)


def plan_text(last_tool: str) -> str:
    steps = [
        {"id": "oslo", "tool": "celsius", "args": {"city": "Oslo"}},
        {"id": "lima", "tool": "celsius", "args": {"city": "Lima"}},
        {"id": "both", "tool": last_tool, "args": {"cities": {"Oslo": "${oslo}", "Lima": "${lima}"}}},
    ]
    return json.dumps({"steps": steps, "output": "both"})


def main() -> None:
    answers = [
        ModelAnswer(plan_text("warmst"), tokens_per_second=400),  # no tool has this name
        ModelAnswer(plan_text("warmest"), tokens_per_second=400),
    ]
    with FakeModelServer(answers) as server:
        planner = dagrun.OpenAIPlanner("any", base_url=server.base_url)
        result = dagrun.run_sync(goal="Which is warmer?", planner=planner, tools=[celsius, warmest])
        told = server.calls[-1].turns[-1][1]  # the last text of the conversation

    print(result.status, "-", result.output, "-", result.tokens, "tokens")
    print("the model was told:", told[told.index("step both") :].split('"')[0])
    print("each city was measured", len(STARTED) // 2, "time")


if __name__ == "__main__":
    main()

# prints: succeeded - Lima - 300 tokens
# prints: the model was told: step both calls 'warmst', which is not a known tool; did you mean warmest?
# prints: each city was measured 1 time
