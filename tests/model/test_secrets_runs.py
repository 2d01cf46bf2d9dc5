"""Secrets in runs: the tool gets the value, and nothing else does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr

import dagrun
from dagrun import Brief, Plan, PlanRefused, Policy, Secrets, Step, ToolContext, tool
from dagrun.errors import ContractError
from dagrun.kernel.model.tool import AnyTool
from process_tools import gives_a_secret, raises_a_secret, reports_a_secret
from test_secrets import HANDLE, SECRETS, TOOLS, VALUE, call

pytestmark = pytest.mark.anyio


async def run(*steps: Step, tools: Any = TOOLS, secrets: Any = SECRETS, **options: Any) -> Any:
    """Run these steps."""
    return await dagrun.run(Plan(steps=steps), tools=tools, secrets=secrets, **options)


async def test_the_tool_gets_the_value() -> None:
    """Also an optional value, the same value twice, and a call with no value."""
    result = await run(
        call("a", to="x", key=HANDLE), call("b", "maybe", key={"$secret": "db"}), call("c", "maybe", key=None)
    )

    assert result.steps["a"].output == f"x, {len(VALUE)} characters"
    assert result.steps["b"].output == "hunter2-hunter2"
    assert result.steps["c"].output == "none"


async def test_a_checked_plan_has_its_secrets_with_it() -> None:
    checked = dagrun.check(Plan(steps=(call("a", to="x", key=HANDLE),)), TOOLS, secrets=SECRETS)

    assert (await dagrun.run(checked)).output == f"x, {len(VALUE)} characters"
    assert (await dagrun.run(checked, secrets=SECRETS | {"api": "another-one"})).output == "x, 11 characters"
    assert VALUE not in repr(checked)


async def test_a_plan_that_was_checked_with_names_needs_the_values() -> None:
    checked = dagrun.check(Plan(steps=(call("a", to="x", key=HANDLE),)), TOOLS, secrets=Secrets.named(["api"]))

    with pytest.raises(ContractError, match="checked with the secrets api"):
        await dagrun.run(checked)
    with pytest.raises(ContractError, match="checked with the secrets api"):
        await dagrun.run(checked, secrets={"db": "hunter2-hunter2"})
    assert (await dagrun.run(checked, secrets=SECRETS)).output == f"x, {len(VALUE)} characters"


async def test_people_see_the_handle() -> None:
    """People agree to a call, and the call is recorded."""
    asked: list[Any] = []

    async def approver(question: dagrun.Question) -> bool:
        asked.append(question.as_dict())
        return True

    @tool(effect="effectful", needs_approval=True, timeout=5)
    async def send(key: SecretStr) -> int:
        return len(key.get_secret_value())

    result = await run(Step(id="a", tool="send", args={"key": HANDLE}), tools=[send], approver=approver)

    assert result.output == len(VALUE)
    assert [question["arguments"] for question in asked] == [{"key": HANDLE}]


async def test_an_executor_of_the_host_gets_the_handle_as_data_and_the_value_as_argument() -> None:
    """The executor may record the call, so it must ask for the value by name."""
    seen: list[Any] = []

    class Elsewhere:
        async def call(self, call: dagrun.extend.ToolCall) -> object:
            seen.append((json.loads(call.data), repr(call.arguments), call.arguments["key"].get_secret_value()))
            return "done"

        async def aclose(self) -> None: ...

    step = Step(id="a", tool="pay", args={"to": "x", "key": HANDLE}, executor="there")
    result = await run(step, executors={"there": Elsewhere()})

    assert result.output == "done"
    assert seen == [({"to": "x", "key": HANDLE}, "{'to': 'x', 'key': SecretStr('**********')}", VALUE)]


async def test_a_planner_may_name_what_it_was_shown() -> None:
    """The planner sees only names."""
    briefs: list[Brief] = []

    class Names:
        async def revise(self, brief: Brief) -> Plan:
            briefs.append(brief)
            return Plan(steps=(call("a", to="x", key=HANDLE),), goal=brief.goal)

    result = await dagrun.run(goal="Pay.", planner=Names(), tools=TOOLS, secrets=SECRETS)

    assert result.output == f"x, {len(VALUE)} characters"
    assert '"enum": ["api"]' in json.dumps(briefs[0].as_dict())


async def test_a_planner_cannot_make_up_a_name() -> None:
    """The planner is told the known names, and no tool is called."""

    class Makes:
        async def revise(self, brief: Brief) -> Plan:
            return Plan(steps=(call("a", to="x", key={"$secret": "root"}),), goal=brief.goal)

    result = await dagrun.run(goal="Pay.", planner=Makes(), tools=TOOLS, secrets=SECRETS)

    assert {problem.code for problem in result.problems} == {"DR210"}
    assert not result.steps


async def test_an_answer_of_a_person_is_no_way_around_the_binding() -> None:
    """The value that a person gives for a missing argument was not checked with the plan."""

    @tool(effect="read", timeout=5)
    async def asks(context: ToolContext, key: SecretStr | None = None) -> str:
        if key is None:
            raise dagrun.ToolError("no key", missing_input="key")
        return key.get_secret_value()

    async def approver(question: dagrun.Question) -> dagrun.Answer:
        return dagrun.Answer("approve", value={"$secret": "db"})

    result = await run(Step(id="a", tool="asks"), tools=[asks], approver=approver)

    assert result.steps["a"].failure.message == "asks may not have the secret db"


def test_a_refused_plan_says_what_to_write() -> None:
    with pytest.raises(PlanRefused, match=r'a secret is passed as \{"\$secret": "its name"\}, got a text'):
        dagrun.check(Plan(steps=(call("a", to="x", key="literal"),)), TOOLS, secrets=SECRETS, policy=Policy())


@pytest.mark.real_time
@pytest.mark.costly
async def test_a_worker_process_gets_the_value_and_gives_it_away_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """The value goes over the worker's socket: it is not in the environment, nor on the command line."""
    tools: list[AnyTool] = [gives_a_secret, raises_a_secret, reports_a_secret]
    events: list[Any] = []
    steps = [Step(id=t.name, tool=t.name, args={"key": HANDLE}) for t in tools]

    result = await dagrun.run(Plan(steps=tuple(steps)), tools=tools, secrets=SECRETS, on_event=events.append)

    assert result.steps["gives_a_secret"].output == VALUE
    assert result.steps["raises_a_secret"].reason.startswith("ValueError: no: [secret:api] (process_tools.py:")
    assert "at [secret:api]" in [event.message for event in events if isinstance(event, dagrun.events.Progress)]
    assert "canary" not in json.dumps(result.as_dict())
