"""Questions of MCP servers in the middle of a call: asked of people, in both revisions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Answer, Question
from test_mcp_http import served

client_module = pytest.importorskip("mcp.client.client")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.costly,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SERVER = Path(__file__).with_name("mcp_server.py")
RULES = {"notes": {"effects": {"order": "read", "visit": "read", "slow": "read"}}}


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the client speak the newest revision, or 2025-11-25."""
    monkeypatch.setattr(client_module, "Client", partial(client_module.Client, mode=request.param))
    return str(request.param)


def config(folder: Path) -> dict[str, Any]:
    return {"notes": {"command": sys.executable, "args": [str(SERVER)], "env": {"NOTES": str(folder / "notes")}}}


def order(what: str) -> dagrun.Step:
    return dagrun.Step(id=what, tool="notes.order", args={"what": what})


class People:
    """Answers questions, and keeps them."""

    def __init__(self, answer: Callable[[Question], Answer | bool | None]) -> None:
        self.asked: list[Question] = []
        self._answer = answer

    async def __call__(self, question: Question) -> Answer | bool | None:
        """Answer a question."""
        self.asked.append(question)
        return self._answer(question)


async def run(tools: dagrun.Toolbox, people: People, *steps: dagrun.Step) -> dagrun.RunResult:
    with anyio.fail_after(20):
        return await dagrun.run(dagrun.Plan(steps=list(steps)), tools=[tools], approver=people)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_form_is_a_question_with_its_schema(tmp_path: Path, transport: str) -> None:
    """Yes accepts with the value, no declines; a default need not be typed, and what does not fit is asked again."""
    answers = iter([{"pieces": "many"}, {"pieces": 3}])
    people = People(lambda _: Answer("approve", value=next(answers)))
    with served(tmp_path / "notes") as (_, address):
        known = config(tmp_path) if transport == "stdio" else {"notes": {"url": f"{address}/mcp"}}
        async with dagrun.mcp_tools(known, rules=RULES) as tools:
            yes = await run(tools, people, order("tea"))
            no = await run(tools, People(lambda _: False), order("tea"))
    assert yes.steps["tea"].output == "tea accept 3 False", yes
    assert no.steps["tea"].output == "tea decline"
    first, again = people.asked
    assert (first.step, first.text) == ("tea", "MCP server notes asks: How many of tea?")
    assert first.schema is not None
    assert first.schema["properties"]["pieces"]["type"] == "integer"
    assert "the last answer does not fit: " in again.text


async def test_two_questions_at_once_are_each_of_their_own_step(tmp_path: Path, mode: str) -> None:
    """At 2025-11-25 nobody can say which call asks; so none is put, and nothing is sent by mistake."""
    people = People(lambda question: Answer("approve", value={"pieces": len(question.step)}))
    async with dagrun.mcp_tools(config(tmp_path), rules=RULES) as tools:
        result = await run(tools, people, order("tea"), order("coffee"))
        alone = await run(tools, people, order("milk"))
    said = {name: step.output for name, step in result.steps.items()}
    if mode == "auto":
        assert said == {"tea": "tea accept 3 False", "coffee": "coffee accept 6 False"}
        assert all(question.step in question.text for question in people.asked)
    else:
        assert said == {"tea": "tea decline", "coffee": "coffee decline"}
    assert alone.steps["milk"].output == "milk accept 4 False"


async def test_a_call_that_was_cancelled_may_still_ask(tmp_path: Path, mode: str) -> None:
    """So at 2025-11-25 the next question could be its, and is declined."""
    people = People(lambda _: Answer("approve", value={"pieces": 1}))
    slow = dagrun.Step(id="slow", tool="notes.slow", timeout=0.3, on_failure="skip")
    async with dagrun.mcp_tools(config(tmp_path), rules=RULES) as tools:
        await run(tools, people, slow)
        result = await run(tools, people, order("tea"))
    assert result.steps["tea"].output == ("tea accept 1 False" if mode == "auto" else "tea decline")


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize(("answer", "action"), [(True, "accept"), (False, "decline"), (None, "decline")])
async def test_an_address_is_shown_and_never_opened(
    tmp_path: Path, answer: bool | None, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person opens it, or does not."""
    monkeypatch.setattr("webbrowser.open", lambda *_, **__: pytest.fail("it was opened"))
    people = People(lambda _: Answer("deny") if answer is None else Answer("approve", value=answer))
    async with dagrun.mcp_tools(config(tmp_path), rules=RULES) as tools:
        result = await run(tools, people, dagrun.Step(id="v", tool="notes.visit"))
    assert result.steps["v"].output == action, result
    [question] = people.asked
    assert question.text == "MCP server notes asks you to open https://pay.example/1 yourself: please pay"


@pytest.mark.usefixtures("mode")
async def test_a_question_ends_with_its_step(tmp_path: Path) -> None:
    """Nobody is asked on behalf of a call that is gone, and the connection goes on working."""
    asked = anyio.Event()

    async def think(_: Question) -> None:
        asked.set()
        await anyio.sleep_forever()

    async with dagrun.mcp_tools(config(tmp_path), rules=RULES) as tools:
        plan = dagrun.Plan(steps=[order("tea")])
        with anyio.fail_after(20):
            async with dagrun.start(plan, tools=[tools], approver=think) as going:
                await asked.wait()
                going.cancel()
                result = await going.result()
        plan = dagrun.Plan(steps=[dagrun.Step(id="s", tool="notes.add", args={"a": 1, "b": 2})])
        after = await dagrun.run(plan, tools=[tools])
    assert (result.status, after.status) == ("cancelled", "succeeded")


@pytest.mark.usefixtures("mode")
async def test_where_nobody_can_be_asked_the_server_is_told(tmp_path: Path) -> None:
    """It may have a way without the answer."""
    async with dagrun.mcp_tools(config(tmp_path), rules=RULES) as tools:
        result = await dagrun.run(dagrun.Plan(steps=[order("tea")]), tools=[tools])
    assert result.steps["tea"].output == "tea cancel", result
