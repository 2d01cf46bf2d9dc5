"""Plans as tools of an MCP server: what it offers, and how calls become runs; by the library's client, and by ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
import mcp_served_tools as tools
from dagrun.serve.mcp.plan_inputs import input_schema, unasked
from dagrun.serve.mcp.plan_server import forms_of
from dagrun.serve.mcp.served_runs import Host

client_of = pytest.importorskip("mcp.client.client").Client
plan_server = pytest.importorskip("dagrun.serve.mcp.plan_server").plan_server

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

TOOLBOX = dagrun.Toolbox(tools.look, tools.unit, tools.pay, tools.slow, tools.fail)
WEATHER = {
    "goal": "Say how warm it is.",
    "steps": [
        {"id": "a", "tool": "look", "args": {"city": "${input.where.city}", "days": "${input.days}"}},
        {"id": "u", "tool": "unit", "args": {"name": "${input.unit}"}},
    ],
    "output": "${a.degrees} ${u}",
}
PAY = {
    "steps": [
        {"id": "l", "tool": "look", "args": {"city": "Oslo"}},
        {
            "id": "p",
            "tool": "pay",
            "args": {"amount": "${input.amount}", "to": "Ann in ${input.town}"},
            "depends_on": ["l"],
        },
    ]
}
SLOW = {"steps": [{"id": f"s{n}", "tool": "slow", "args": {"name": f"s{n}"}} for n in range(3)]}


def checked(plan: dict[str, Any]) -> dagrun.CheckedPlan:
    return dagrun.check(dagrun.Plan.model_validate(plan), TOOLBOX)


@asynccontextmanager
async def served(journal: Any = None, **plans: dict[str, Any]) -> AsyncIterator[Any]:
    """A client of the library, connected to a server in this process."""
    host = Host(toolbox=TOOLBOX, journal=journal or dagrun.MemoryJournal(), policy=dagrun.Policy())
    async with (
        plan_server(host, {name: checked(plan) for name, plan in plans.items()}) as server,
        client_of(server.library_server, cache=None) as client,
    ):
        yield client


async def call(client: Any, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    found: dict[str, Any] = result.structured_content
    return found


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notes"
    path.touch()
    monkeypatch.setenv("NOTES", str(path))
    return path


# What is offered -----------------------------------------------------------------------------------------------------


def test_inputs_are_typed_by_the_arguments_that_they_become() -> None:
    """A part of an input by its own use, a list by the use of its elements, a part of a text by any scalar."""
    schema = input_schema(checked(WEATHER))
    assert schema["required"] == ["where", "days", "unit"]
    assert schema["additionalProperties"] is False
    where, days, unit = (schema["properties"][name] for name in schema["required"])
    assert where["type"] == "object"
    assert where["properties"]["city"] == {"description": "Where.", "type": "string"}
    assert days["type"] == "integer"
    assert "default" not in days, "a run needs every input that its plan names"
    assert unit == {"enum": ["C", "F"], "type": "string"}
    assert input_schema(checked(PAY))["properties"]["town"] == {"type": ["string", "number", "boolean"]}
    fan = {"steps": [{"id": "a", "tool": "look", "for_each": "${input.cities}", "args": {"city": "${item.name}"}}]}
    cities = input_schema(checked(fan))["properties"]["cities"]
    assert (cities["type"], cities["items"]["required"]) == ("array", ["name"])
    assert cities["items"]["properties"]["name"]["type"] == "string"
    twice = {"steps": [{"id": "a", "tool": "look", "args": {"city": "${input.x}"}},
                       {"id": "b", "tool": "unit", "args": {"name": "${input.x}"}}]}  # fmt: skip
    assert [part["type"] for part in input_schema(checked(twice))["properties"]["x"]["allOf"]] == ["string", "string"]
    assert input_schema(checked({"steps": [{"id": "a", "tool": "unit", "args": {"name": "C"}}]}))["properties"] == {}
    condition = {
        "steps": [
            {"id": "a", "tool": "look", "args": {"city": "O"}, "when": {"ref": "input.go", "op": "==", "value": 1}}
        ]
    }
    assert input_schema(checked(condition))["properties"] == {"go": {}}


def test_definitions_of_tools_come_along_under_names_of_their_own() -> None:
    """Two tools may have two definitions of one name, and one may contain itself."""
    node = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}

    async def take(arguments: dict[str, Any], context: Any) -> Any:
        return arguments

    made = [
        dagrun.schema_tool(
            name, take, {"properties": {"n": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": of}}, effect="read"
        )
        for name, of in (("tree", node), ("leaf", {"type": "string"}))
    ]
    steps = [{"id": name, "tool": name, "args": {"n": f"${{input.{name}}}"}} for name in ("tree", "leaf")]
    schema = input_schema(dagrun.check(dagrun.Plan.model_validate({"steps": steps}), made))
    assert schema["properties"] == {"tree": {"$ref": "#/$defs/tree.Node"}, "leaf": {"$ref": "#/$defs/leaf.Node"}}
    assert schema["$defs"]["tree.Node"]["properties"]["kids"]["items"] == {"$ref": "#/$defs/tree.Node"}
    assert schema["$defs"]["leaf.Node"] == {"type": "string"}


def test_tools_with_effects_have_to_ask() -> None:
    """By themselves, or by a rule that no argument and no silence gets around."""
    wild = dagrun.tool(name="wild", effect="idempotent")(tools.look.function)
    rule = dagrun.ApprovalRule
    some = {"ref": "args.days", "op": ">", "value": 3}
    assert unasked([wild, tools.pay, tools.look], dagrun.Policy()) == ["wild"]
    assert unasked([wild], dagrun.Policy(approve=[rule(tool="wild")])) == []
    assert unasked([wild], dagrun.Policy(approve=[rule(tool="*")])) == []
    assert unasked([wild], dagrun.Policy(approve=[rule(tool="other")])) == ["wild"]
    assert unasked([wild], dagrun.Policy(approve=[rule.model_validate({"tool": "wild", "when": some})])) == ["wild"]
    assert unasked([wild], dagrun.Policy(approve=[rule(tool="wild", default_answer="approve")])) == ["wild"]
    assert unasked([tools.pay], dagrun.Policy(questions=dagrun.QuestionRule(default_answer="approve"))) == ["pay"]


async def test_a_tool_for_each_plan_with_its_effects() -> None:
    """What reads says so, what pays does not; the tools for runs are there in both cases."""
    async with served(weather=WEATHER, pay_ann=PAY) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(listed) == ["weather", "pay_ann", "run_status", "answer", "cancel_run"]
    weather, pay = listed["weather"], listed["pay_ann"]
    assert weather.description == "Say how warm it is. Steps: a (look), u (unit)."
    assert (weather.annotations.read_only_hint, weather.annotations.destructive_hint) == (True, False)
    assert (pay.annotations.read_only_hint, pay.annotations.idempotent_hint) == (False, False)
    assert pay.input_schema["required"] == ["amount", "town"]
    assert "status" in pay.output_schema["properties"]


async def test_five_general_tools() -> None:
    """Whoever writes plans reads there which tools there are."""
    async with served() as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(listed) == ["check_plan", "run_plan", "run_status", "answer", "cancel_run"]
    assert "look(city: string" in listed["check_plan"].description.replace("str,", "string")
    assert listed["check_plan"].annotations.read_only_hint is True
    assert listed["run_plan"].annotations.read_only_hint is False


# Runs ----------------------------------------------------------------------------------------------------------------


async def test_a_plan_runs_and_its_progress_is_the_steps_that_have_ended() -> None:
    """The answer is structured, and the same as text."""
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))

    async with served(weather=WEATHER) as client:
        arguments = {"where": {"city": "Oslo"}, "days": 2, "unit": "C"}
        result = await client.call_tool("weather", arguments, progress_callback=progress)
        await anyio.sleep(0.05)
    made = result.structured_content
    assert (made["status"], made["output"]) == ("succeeded", "8 C")
    assert json.loads(result.content[0].text) == made
    assert not result.is_error
    assert told[0][2] == f"run {made['run']} has started"
    assert told[-1] == (3, 3, f"run {made['run']}: succeeded")
    assert all(after[0] > before[0] for before, after in pairwise(told)), "as the protocol demands"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"where": {"city": "Oslo"}, "days": 2}, "unit: it is missing"),
        ({"where": {"city": "Oslo"}, "days": "2", "unit": "C"}, "days: it should be a whole number"),
        ({"where": {"city": "Oslo"}, "days": 2, "unit": "K"}, "unit: "),
        ({"where": {}, "days": 2, "unit": "C"}, "where"),
        ({"where": {"city": "Oslo"}, "days": 2, "unit": "C", "more": 1}, "more"),
    ],
)
async def test_wrong_arguments_are_refused_before_anything_runs(arguments: dict[str, Any], reason: str) -> None:
    """With the place, in words."""
    journal = dagrun.MemoryJournal()
    async with served(journal, weather=WEATHER) as client:
        result = await client.call_tool("weather", arguments)
    assert result.is_error
    assert reason in result.content[0].text
    assert await journal.runs() == []


async def test_a_run_that_waits_for_a_person_returns_its_question_and_an_answer_continues_it(notes: Path) -> None:
    """Nothing is paid before the yes, and once after it; a second answer finds no question."""
    async with served(pay_ann=PAY) as client:
        waiting = await call(client, "pay_ann", amount=30.5, town="Oslo")
        assert waiting["status"] == "waiting"
        [question] = waiting["questions"]
        assert (question["step"], question["tool"], question["effect"]) == ("p", "pay", "effectful")
        assert json.loads(question["arguments"]["text"]) == {"amount": 30.5, "to": "Ann in Oslo"}
        assert notes.read_text() == ""
        status = await call(client, "run_status", run=waiting["run"])
        assert (status["status"], status["steps"]) == ("waiting", {"l": "succeeded", "p": "held"})
        answers = [{"question": question["id"], "choice": "approve", "note": "fine"}]
        done = await call(client, "answer", run=waiting["run"], answers=answers)
        assert (done["status"], done["output"], done["run"]) == ("succeeded", "paid Ann in Oslo", waiting["run"])
        again = await client.call_tool("answer", {"run": waiting["run"], "answers": answers})
        assert again.is_error
        assert "is not open; open are: none" in again.content[0].text
    assert notes.read_text() == "paid 30.5 to Ann in Oslo\n"


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_a_program_that_can_ask_its_user_asks_by_itself(action: str, notes: Path) -> None:
    """No model passes the answer on. A form that the user closes leaves the run waiting, with its questions as data."""
    types = pytest.importorskip("mcp_types")
    asked: list[Any] = []

    async def ask(context: Any, params: Any) -> Any:
        asked.append(params)
        return types.ElicitResult(action=action, content={} if action == "accept" else None)

    host = Host(toolbox=TOOLBOX, journal=dagrun.MemoryJournal(), policy=dagrun.Policy())
    async with (
        plan_server(host, {"pay_ann": checked(PAY)}) as server,
        client_of(server.library_server, cache=None, elicitation_callback=ask) as client,
    ):
        result = await client.call_tool("pay_ann", {"amount": 7, "town": "Oslo"})
    assert "Step p calls pay (effectful)." in asked[0].message
    assert '"to": "Ann in Oslo"' in asked[0].message
    assert asked[0].requested_schema == {"type": "object", "properties": {}}
    ends = {"accept": "succeeded", "decline": "failed", "cancel": "waiting"}
    assert (result.structured_content["status"], len(asked)) == (ends[action], 1)
    if action == "cancel":
        assert [each["step"] for each in result.structured_content["questions"]] == ["p"]
    assert notes.read_text() == ("paid 7 to Ann in Oslo\n" if action == "accept" else "")


def test_which_questions_fit_a_form() -> None:
    """One value of a plain type does; a list, a checklist and an effect in doubt do not, and then none is asked so."""
    base: dict[str, Any] = {"id": "q", "text": "Which?", "kind": "input", "checklist": [], "step": "s", "tool": "look"}
    base |= {"effect": "read", "why": "", "arguments": None, "diff": []}
    base |= {"schema": {"type": "integer", "minimum": 2, "pattern": "x"}}
    [(text, form)] = (forms_of([base]) or {}).values()
    assert form["properties"] == {"value": {"type": "integer", "minimum": 2}}
    assert text.startswith("Which?\nStep s calls look (read).")
    for other in ({"schema": {"type": "array"}}, {"schema": None}, {"kind": "effect"}, {"checklist": ["a"]}):
        assert forms_of([base, {**base, "id": "r", **other}]) is None


async def test_a_no_is_an_end_too_and_a_bad_answer_changes_nothing(notes: Path) -> None:
    """All answers are looked at before one is given."""
    async with served(pay_ann=PAY) as client:
        waiting = await call(client, "pay_ann", amount=1, town="Oslo")
        question = waiting["questions"][0]["id"]
        for answers, reason in (
            ([{"question": "none", "choice": "approve"}], "question none is not open"),
            ([{"question": question, "choice": "approve"}, {"question": "x", "choice": "deny"}], "question x is not"),
            ([{"question": question, "choice": "yes"}], "answers[0].choice"),
            ([], "answers"),
        ):
            refused = await client.call_tool("answer", {"run": waiting["run"], "answers": answers})
            assert refused.is_error
            assert reason in refused.content[0].text
        denied = await client.call_tool(
            "answer", {"run": waiting["run"], "answers": [{"question": question, "choice": "deny"}]}
        )
    assert denied.is_error
    assert denied.structured_content["status"] == "failed"
    assert notes.read_text() == ""


async def test_a_run_waits_longer_than_its_server(tmp_path: Path, notes: Path) -> None:
    """The journal knows it; and only runs of a server can be reached through one."""
    journal = dagrun.SQLiteJournal(tmp_path / "runs")
    async with served(journal, pay_ann=PAY) as client:
        waiting = await call(client, "pay_ann", amount=2, town="Rome")
    private = await dagrun.run(
        dagrun.Plan.model_validate({"steps": [PAY["steps"][0]]}), tools=[TOOLBOX], journal=journal, run_id="mine"
    )
    async with served(journal) as client:
        answers = [{"question": waiting["questions"][0]["id"], "choice": "approve"}]
        done = await call(client, "answer", run=waiting["run"], answers=answers)
        other = await client.call_tool("run_status", {"run": private.run_id})
        none = await client.call_tool("cancel_run", {"run": "../mine"})
    assert done["status"] == "succeeded"
    assert other.is_error
    assert other.content[0].text == "there is no run mine of this server"
    assert none.is_error
    assert notes.read_text() == "paid 2 to Ann in Rome\n"
    await journal.aclose()


async def test_a_call_that_is_cancelled_stops_every_step(notes: Path) -> None:
    """And the server goes on."""
    async with served(slow=SLOW) as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "slow", {})
                while notes.read_text().count("begun") < 3:
                    await anyio.sleep(0.01)
                scope.cancel()
        with anyio.fail_after(5):
            while notes.read_text().count("stopped") < 3:
                await anyio.sleep(0.01)
        assert (await client.call_tool("run_status", {"run": "nothing"})).is_error


async def test_a_run_that_nobody_waits_for_is_looked_at_and_cancelled(notes: Path) -> None:
    """With ``wait`` false, the call returns at once."""
    async with served() as client:
        begun = await call(client, "run_plan", plan=SLOW, wait=False)
        assert begun["status"] == "running"
        while notes.read_text().count("begun") < 3:
            await anyio.sleep(0.01)
        status = await call(client, "run_status", run=begun["run"])
        assert status["steps"] == {"s0": "running", "s1": "running", "s2": "running"}
        ended = await call(client, "cancel_run", run=begun["run"], reason="enough")
        assert (ended["status"], ended["reason"]) == ("cancelled", "enough")
        again = await client.call_tool("cancel_run", {"run": begun["run"]})
        assert "has ended: cancelled" in again.content[0].text
    assert notes.read_text().count("stopped") == 3


async def test_a_run_that_waits_can_be_cancelled(notes: Path) -> None:
    """Nobody pays afterwards."""
    async with served() as client:
        waiting = await call(client, "run_plan", plan=PAY, inputs={"amount": 1, "town": "X"})
        ended = await call(client, "cancel_run", run=waiting["run"])
        assert ended["status"] == "cancelled"
        answers = [{"question": waiting["questions"][0]["id"], "choice": "approve"}]
        late = await client.call_tool("answer", {"run": waiting["run"], "answers": answers})
    assert late.is_error
    assert notes.read_text() == ""


async def test_plans_of_the_caller_are_checked() -> None:
    """Every problem with its code, so that a model can mend them; nothing is run."""
    bad = {"steps": [{"id": "a", "tool": "lok", "args": {}}, {"id": "b", "tool": "look", "args": {"city": 3}}]}
    journal = dagrun.MemoryJournal()
    async with served(journal) as client:
        for name in ("check_plan", "run_plan"):
            result = await client.call_tool(name, {"plan": bad})
            assert result.is_error
            assert [each["code"] for each in result.structured_content["problems"]] == ["DR201", "DR205"]
        good = await call(client, "check_plan", plan=WEATHER)
        missing = await client.call_tool("run_plan", {"plan": WEATHER})
    assert good["is_valid"] is True
    assert good["inputs"]["required"] == ["where", "days", "unit"]
    assert missing.is_error
    assert await journal.runs() == []


async def test_a_run_that_fails_is_an_error_with_its_reason() -> None:
    """The model of the caller reads which step failed, and why."""
    async with served() as client:
        plan = {"steps": [{"id": "a", "tool": "fail", "args": {"text": "no such town"}}]}
        result = await client.call_tool("run_plan", {"plan": plan})
    assert result.is_error
    made = result.structured_content
    assert (made["status"], made["failures"]) == ("failed", ["a: no such town"])


async def test_a_secret_of_the_host_does_not_come_back() -> None:
    """Neither in an output nor in a question."""
    host = Host(
        toolbox=dagrun.Toolbox(tools.unit, tools.look, tools.fail),
        journal=dagrun.MemoryJournal(),
        policy=dagrun.Policy(),
        secrets=dagrun.Secrets({"key": "s3cret-value-17"}),
    )

    @dagrun.tool(effect="read")
    async def leak() -> str:
        return "s3cret-value-17"

    host = Host(toolbox=dagrun.Toolbox(leak), journal=host.journal, policy=host.policy, secrets=host.secrets)
    async with plan_server(host, {}) as server, client_of(server.library_server, cache=None) as client:
        result = await client.call_tool("run_plan", {"plan": {"steps": [{"id": "a", "tool": "leak"}]}})
    assert "s3cret" not in result.content[0].text


async def test_our_own_client_runs_a_plan_of_another_dagrun(notes: Path) -> None:
    """A plan is a step of another plan, with its effect, its schema and its output."""
    host = Host(toolbox=TOOLBOX, journal=dagrun.MemoryJournal(), policy=dagrun.Policy())
    plans = {"weather": checked(WEATHER), "pay_ann": checked(PAY)}
    rules = {"inner": {"trust": "hints"}}
    async with (
        plan_server(host, plans) as server,
        dagrun.mcp_tools({"inner": server.library_server}, rules=rules) as found,
    ):
        assert str(found["inner.weather"].effect) == "read"
        assert str(found["inner.pay_ann"].effect) == "effectful"
        arguments = {"where": {"city": "Oslo"}, "days": 1, "unit": "F"}
        steps = [
            dagrun.Step(id="w", tool="inner.weather", args=arguments),
            dagrun.Step(id="p", tool="inner.pay_ann", args={"amount": 1, "town": "${w.output}"}),
        ]
        result = await dagrun.run(dagrun.Plan(steps=steps), tools=[found])
        with pytest.raises(dagrun.PlanRefused, match="DR303"):
            dagrun.check(
                dagrun.Plan(steps=[steps[0], dagrun.Step(id="x", tool="inner.run_status", args={"run": "${w.nope}"})]),
                tools=[found],
            )
    assert result.status == "succeeded", result
    assert result.steps["p"].output["status"] == "waiting"
    assert notes.read_text() == ""
