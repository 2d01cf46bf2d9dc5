"""Tools and critics that call models, over HTTP: with the real libraries, all APIs, and all answer formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dagrun
from agents import answer, call
from dagrun import AnthropicModel, OpenAIModel, Plan, Policy, RubricCritic, Status, Step, agent_tool, llm_tool
from dagrun.extend import LanguageModel
from dagrun.testing import FakeModelServer, Fault, ModelAnswer
from dagrun.testing.model_server.script import Act
from model_clients import DROPS_GENERATORS
from small_tools import scripted

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.rigs,
    pytest.mark.filterwarnings(DROPS_GENERATORS),
]


def _play(asked: Any) -> ModelAnswer:
    """Return the answer to a call; the calls differ in their system prompts."""
    prompt = asked.prompt
    if "You judge what one step" in prompt:
        return ModelAnswer(json.dumps({"reason": "fine", "scores": {"rubric": 0.9}, "surprising": False}))
    if "You carry out one step of a larger plan" in prompt:
        return ModelAnswer(
            json.dumps(answer("12 towns") if "output" in asked.turns[-1][1] else call("find", value="west"))
        )
    return ModelAnswer(json.dumps({"answer": [1, 2]})) if "Count" in prompt else ModelAnswer("A short text.")


def _model(server: FakeModelServer, api: Any, structure: Any) -> LanguageModel:
    if api == "messages":
        return AnthropicModel("m", base_url=server.anthropic_url, structure=structure)
    return OpenAIModel("m", base_url=server.base_url, api=api, structure=structure)


async def _run(model: LanguageModel, **policy: Any) -> dagrun.RunResult:
    find = scripted("find", ["Bonn", "Köln"])
    tools = [
        llm_tool(model, max_tokens=20_000),
        llm_tool(model, name="count", output=list[int], max_tokens=20_000),
        agent_tool(model, [find.tool]),
    ]
    steps = [
        Step(id="text", tool="llm", args={"prompt": "Write."}),
        Step(id="typed", tool="count", args={"prompt": "Count.", "context": "${text}"}),
        Step(id="agent", tool="agent", args={"task": "Find towns.", "inputs": "${typed}"}),
    ]
    critics = [RubricCritic(model, "Good.", steps=["agent"])]
    return await dagrun.run(Plan(steps=steps), tools=tools, critics=critics, policy=Policy(**policy))


@pytest.mark.parametrize("structure", ["schema", "tool", "json"])
@pytest.mark.parametrize("api", ["responses", "chat", "messages"])
async def test_every_way_to_a_form_gives_the_same(api: str, structure: str) -> None:
    """The forms suit the strictest API, and dagrun checks the answers of all of them."""
    with FakeModelServer(_play) as server:
        result = await _run(_model(server, api, structure), max_tokens=200_000)

        assert result.status is Status.SUCCEEDED, result.reason
        outputs = {id_: step.output for id_, step in result.steps.items()}
        assert outputs == {"text": "A short text.", "typed": [1, 2], "agent": "12 towns"}
        assert result.steps["agent"].verdicts[0].score == 0.9
        # Messages have no plain JSON mode, so the prompt asks for JSON.
        asked = None if (api, structure) == ("messages", "json") else structure
        assert [seen.structure for seen in server.calls] == [None, *[asked] * 4]
        # The usage that the server reported for each of the five calls.
        assert result.tokens == 5 * 150


async def test_a_busy_server_is_tried_again_by_the_table() -> None:
    """Neither the library nor the tool retries."""
    script: list[Act] = [Fault.status(429, retry_after=0.01), ModelAnswer("late")]
    with FakeModelServer(script) as server:
        tool = llm_tool(_model(server, "chat", "auto"))
        plan = Plan(steps=[Step(id="ask", tool="llm", args={"prompt": "x"})])

        result = await dagrun.run(plan, tools=[tool])

        assert (result.output, len(result.steps["ask"].attempts), len(server.calls)) == ("late", 2, 2)


async def test_a_prompt_that_is_too_long_never_leaves_the_house() -> None:
    """The number of its bytes is a limit that is known before the call."""
    with FakeModelServer(_play) as server:
        tool = llm_tool(_model(server, "chat", "auto"), max_tokens=3_000)
        steps = [
            Step(id="short", tool="llm", args={"prompt": "x"}),
            Step(id="long", tool="llm", args={"prompt": "x" * 3_000}),
        ]

        result = await dagrun.run(Plan(steps=steps), tools=[tool])

        assert result.steps["short"].output == "A short text."
        assert "ceiling max_tokens of 3000: 0 used, and a call of m may use" in result.steps["long"].reason
        assert len(server.calls) == 1
