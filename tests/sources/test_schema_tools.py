"""Tools made of JSON Schemas: checked, planned and run as typed functions are."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import dagrun
from dagrun import PlanRefused, ToolContext
from dagrun.errors import ContractError
from dagrun.planners.answers.plan_schemas import toolset_schema
from dagrun.planners.signatures import signatures_of
from dagrun.sources.schemas import fitting_name

pytestmark = pytest.mark.anyio

ITEM = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Item"}}},
}
ORDER = {
    "type": "object",
    "properties": {"item": {"$ref": "#/$defs/Item"}, "unit price": {"type": "number"}, "$filter": {"type": "string"}},
    "required": ["item"],
    "$defs": {"Item": {**ITEM, "required": ["n"]}},
}
TOTAL = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
PLACE = {
    "oneOf": [
        {"properties": {"city": {"type": "string"}}, "required": ["city"]},
        {"properties": {"lat": {"type": "number"}, "lon": {"type": "number"}}, "required": ["lat", "lon"]},
    ]
}
FREE = {"properties": {"table": {"type": "string"}}, "required": ["table"], "additionalProperties": {"type": "integer"}}


async def echo(arguments: dict[str, Any], context: ToolContext) -> Any:
    """Return the arguments."""
    return arguments


def tool(schema: Any = None, name: str = "echo", **options: Any) -> dagrun.Tool[..., Any]:
    options.setdefault("effect", "read")
    return dagrun.schema_tool(name, echo, ORDER if schema is None else schema, **options)


def problems(args: dict[str, Any], schema: Any = None, *more: dagrun.Step) -> list[str]:
    """Return the problems of a plan with one step that has these arguments."""
    plan = dagrun.Plan(steps=[*more, dagrun.Step(id="s", tool="echo", args=args)])
    try:
        dagrun.check(plan, tools=[tool(schema), tool({}, "load", output=TOTAL), tool({}, "any")])
    except PlanRefused as refused:
        return [f"{problem.code} {problem.path}: {problem.sentence}" for problem in refused.problems]
    return []


def test_faults_have_the_words_and_places_of_any_tool() -> None:
    """Planners learn one language: that of the checks, and no second one of JSON Schema."""
    args = {"itme": {}, "item": {"n": "12", "kids": [{"n": 1, "kids": [{}]}]}, "unit price": "30"}
    unknown, whole, missing, price = problems(args)
    assert unknown == "DR204 steps[0].args.itme: step s passes itme, which echo does not take; did you mean item?"
    assert whole.startswith("DR205 steps[0].args.item.n: ")
    assert whole.endswith("passes item.n to echo: it should be a whole number, got a text of 2 characters")
    assert missing.startswith("DR205 steps[0].args.item.kids[0].kids[0]: step s passes item.kids[0].kids[0] to echo: ")
    assert price.startswith('DR205 steps[0].args["unit price"]: ')
    assert problems({}) == ["DR203 steps[0].args: step s leaves out item, which echo requires (an object)"]


def test_references_are_checked_against_types_in_both_directions() -> None:
    """What cannot fit is refused before anything runs; what may fit passes."""
    load = dagrun.Step(id="load", tool="load")
    [problem] = problems({"item": "${load.total}"}, None, load)
    assert problem.startswith("DR304")
    [problem] = problems({"item": {"n": "${load.totl}"}}, None, load)
    assert problem.startswith("DR303")
    assert "did you mean total?" in problem
    assert problems({"item": {"n": "${load.total}"}, "unit price": "${load.total}"}, None, load) == []
    assert problems({"lat": "${load.total}", "lon": 2}, PLACE, load) == []
    [problem] = problems({"city": "${load.total}"}, PLACE, load)
    assert problem.startswith("DR304")


def test_forms_that_exclude_each_other() -> None:
    """The names of all forms are known; that they go together is checked as soon as all values are there."""
    assert problems({"city": "Oslo"}, PLACE) == []
    assert problems({"lat": 1, "lon": 2}, PLACE) == []
    [both] = problems({"lat": 1, "lon": 2, "city": "Oslo"}, PLACE)
    assert "it fits 2 of the forms that exclude each other" in both
    [half] = problems({"lat": 1}, PLACE)
    assert "it fits none of its 2 forms" in half
    [other] = problems({"town": "Oslo"}, PLACE)[:1]
    assert other.startswith("DR204")
    assert tool(PLACE).description == "Takes one of these sets of arguments: (city) or (lat, lon)."


def test_what_only_one_form_asks_for_is_no_silent_pass() -> None:
    """A fault of one form has no place of its own among the names that every call needs."""
    one = {"properties": {"a": {}}, "anyOf": [{"type": "object", "required": ["a"]}, {"type": "null"}]}
    [problem] = problems({}, one)
    assert "a is missing" in problem


def test_free_form_arguments() -> None:
    """What the schema allows beside its names has the type that it says."""
    assert problems({"table": "t", "x": 1, "any name": 2}, FREE) == []
    [problem] = problems({"table": "t", "x": "one"}, FREE)
    assert problem.startswith("DR205 steps[0].args.x: ")
    [problem] = problems({"x": 1}, FREE)
    assert problem.startswith("DR203")
    load = dagrun.Step(id="load", tool="load")
    [problem] = problems({"table": "t", "x": "${load}"}, FREE, load)
    assert problem.startswith("DR304")
    assert problems({"anything": 1}, {"type": "object"}) == []
    [problem] = problems({"anything": 1}, {"type": "object", "properties": {}})
    assert problem.startswith("DR204")
    [problem] = problems({"(context)": 1}, {})
    assert problem.startswith("DR206")


async def test_a_run_passes_arguments_of_any_name_and_the_context() -> None:
    """The function gets plain JSON, whatever its names are, and the context beside it."""
    seen: list[str] = []

    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        seen.append(context.step)
        return {**arguments, "total": 3}

    schema: dict[str, Any] = {
        "properties": {name: {} for name in ("self", "arguments", "context", "class", "a b", "$step", "", "ü")}
    }
    order = dagrun.schema_tool("shop/order", call, schema, output=TOTAL, effect="read")
    args = {"self": 1, "arguments": 2, "context": 3, "class": 4, "a b": 5, "$$step": 6, "": 7, "ü": 8}
    steps = [
        dagrun.Step(id="a", tool="shop_order", args=args),
        dagrun.Step(id="b", tool="shop_order", args={"self": "${a.total}"}),
    ]
    result = await dagrun.run(dagrun.Plan(steps=steps), tools=[order])
    assert result.status == "succeeded"
    plain = {name: value for name, value in args.items() if name != "$$step"}
    assert result.steps["a"].output == {**plain, "$step": 6, "total": 3}
    assert result.steps["b"].output == {"self": 3, "total": 3}
    assert seen == ["a", "b"]


async def test_arguments_that_only_the_run_knows_are_checked_at_the_call() -> None:
    """And the function is not called: nothing has happened."""
    calls: list[Any] = []

    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        calls.append(arguments)

    pay = dagrun.schema_tool("pay", call, PLACE, effect="effectful")
    steps = [dagrun.Step(id="any", tool="any"), dagrun.Step(id="pay", tool="pay", args={"lat": "${any}", "lon": 1})]
    result = await dagrun.run(dagrun.Plan(steps=steps), tools=[pay, tool({}, "any")])
    failure = result.steps["pay"].failure
    assert failure is not None
    assert failure.kind == "bad_arguments"
    assert failure.nothing_happened
    assert calls == []


async def test_an_output_is_held_to_its_schema() -> None:
    """A server that changes its answers is found where it does, and not three steps later."""

    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        return {"total": arguments["value"], "more": 1}

    total = dagrun.schema_tool("total", call, {"properties": {"value": {}}}, output=TOTAL, effect="read")
    steps = [dagrun.Step(id=f"s{n}", tool="total", args={"value": value}) for n, value in enumerate([3, "3"])]
    result = await dagrun.run(dagrun.Plan(steps=steps), tools=[total])
    assert result.steps["s0"].output == {"total": 3, "more": 1}
    failure = result.steps["s1"].failure
    assert failure is not None
    assert failure.message == "total: does not return what it declares: total: it should be a number"


@pytest.mark.parametrize("executor", ["process", "elsewhere"])
def test_no_other_place_can_import_it(executor: str) -> None:
    """The check says so, and not the run."""
    plan = dagrun.Plan(steps=[dagrun.Step(id="s", tool="echo", args={"item": {"n": 1}}, executor=executor)])
    with pytest.raises(PlanRefused, match="no other place can import echo, which is made of a schema") as refused:
        dagrun.check(plan, tools=[tool()], executors=["elsewhere"])
    assert [problem.code for problem in refused.value.problems] == ["DR112"]
    assert not tool().is_importable
    fine = dagrun.Plan(steps=[dagrun.Step(id="s", tool="echo", args={"item": {"n": 1}}, executor="coroutine")])
    dagrun.check(fine, tools=[tool()])


def test_no_object_in_memory_fits_plain_json() -> None:
    """Without that, it would reach a client that writes JSON."""

    @dagrun.tool(effect="read")
    async def frame() -> dagrun.Object[SimpleNamespace]:
        return SimpleNamespace()

    schemas: list[dict[str, Any]] = [FREE, {}, {"properties": {"table": {}}}]
    for schema in schemas:
        steps = [dagrun.Step(id="frame", tool="frame"), dagrun.Step(id="s", tool="echo", args={"table": "${frame}"})]
        with pytest.raises(PlanRefused, match="plain JSON"):
            dagrun.check(dagrun.Plan(steps=steps), tools=[tool(schema), frame])


def test_planners_see_types_forms_and_free_names() -> None:
    """In a line each, and in the strict form, in which every object is closed."""
    tools = [
        tool(),
        tool(PLACE, "place"),
        tool(FREE, "free"),
        tool({"$ref": "#/$defs/A", "$defs": {"A": FREE}}, "behind"),
    ]
    calls = [line["call"] for line in signatures_of(t.describe() for t in tools).tools]
    assert calls == [
        "echo(item: Item, unit price?: number, $filter?: string) -> any",
        "place(city?: string, lat?: number, lon?: number) -> any",
        "free(table: string, [any other]?: integer) -> any",
        "behind(table: string, [any other]?: integer) -> any",
    ]
    schema = toolset_schema(dagrun.Toolbox(tools))
    Draft202012Validator.check_schema(schema)
    free = next(
        s
        for s in schema["properties"]["steps"]["items"]["anyOf"]
        if s["properties"]["tool"] == {"type": "string", "const": "free"}
    )
    assert list(free["properties"]["args"]["properties"]) == ["table", "(others)"]


def test_an_answer_in_the_strict_form_may_have_other_arguments() -> None:
    """They come as a text of JSON, because strict modes take closed objects alone."""
    step = {"tool": "free", "id": "s", "args": {"table": "t", "(others)": '{"x": 1}'}, "depends_on": []}
    text = json.dumps({"steps": [step], "output": "", "confidence": 1, "refusal": ""})
    plan = dagrun.read_plan(text, toolbox=dagrun.Toolbox([tool(FREE, "free")]))
    assert plan.steps[0].args == {"table": "t", "x": 1}


def test_a_wide_schema_that_repeats_itself_stays_small_in_the_strict_form() -> None:
    """Definitions stand where they are used there, and fifty that use each other would be 50 ** 5."""
    many = {f"d{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/d{m}"} for m in range(40)}} for n in range(40)}
    wide = tool({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": many})
    assert len(json.dumps(toolset_schema(dagrun.Toolbox([wide])))) < 2_000_000
    plan = dagrun.Plan(steps=[dagrun.Step(id="s", tool="echo", args={"a": {"p1": {"p2": {"p3": {"p4": {}}}}}})])
    dagrun.check(plan, tools=[wide])


def test_steps_in_python() -> None:
    """The contract says which arguments there are; the function takes any."""
    step = tool().step(item={"n": 1}, **{"unit price": 2})
    assert dagrun.plan(output=step).steps[0].args == {"item": {"n": 1}, "unit price": 2}
    with pytest.raises(ContractError, match="it takes no itme; its arguments are"):
        tool().step(itme=1)
    with pytest.raises(ContractError, match="the argument item is missing"):
        tool().step()
    named = tool({"properties": {"$step": {}}}).step(**{"$step": 3})
    assert dagrun.plan(output=named).steps[0].args == {"$$step": 3}


@pytest.mark.parametrize(
    ("name", "fitting"),
    [
        ("github.create_issue", "github.create_issue"),
        ("create issue!", "create_issue_"),
        ("3d/render", "_3d_render"),
        ("naïve", "na_ve_f86fd89d"),
        ("a" * 128, "a" * 128),
    ],
)
def test_names_are_made_to_fit(name: str, fitting: str) -> None:
    """Servers may call their tools anything."""
    assert fitting_name(name) == fitting
    assert tool(name=name).name == fitting


def test_long_names_stay_apart() -> None:
    """The end of a name tells tools apart, and it is what is cut."""
    one, other = fitting_name("a" * 200 + "1"), fitting_name("a" * 200 + "2")
    assert one != other
    assert len(one) == len(other) == 128


@pytest.mark.parametrize(
    ("one", "other"),
    [("天气", "股票"), ("naïve", "naéve"), ("get 天气", "get 股票"), ("a" * 9 + "é", "a" * 9 + "è")],
)
def test_names_that_differ_outside_ascii_stay_apart(one: str, other: str) -> None:
    """Nothing may be left of such a name but its hash."""

    async def call(name: str, arguments: dict[str, Any]) -> None:
        raise NotImplementedError

    made = dagrun.schema_tools([{"name": name, "input_schema": {}} for name in (one, other)], call)

    names = {found.name for found in made}
    assert names == dagrun.Toolbox([tool(name=one), tool(name=other)]).keys()
    assert len(names) == 2
    assert all(len(name) <= 128 and name.isascii() for name in names)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"arguments": {"type": "string"}}, "the arguments are an object, and its schema says string"),
        ({"arguments": False}, "a schema that no value fits"),
        ({"arguments": {"properties": {"(context)": {}}}}, r"an argument cannot be called \(context\)"),
        ({"output": {"type": "file"}}, "echo: the output: not a JSON Schema"),
        ({"output": False}, "a schema that no value fits"),
        ({"effect": "harmless"}, "effect is one of"),
        ({"executor": "process"}, "unknown option executor"),
        ({"timeout": -1}, "timeout must be a positive"),
        ({"cache": "run"}, "cache is for tools of effect pure or read"),
        ({"batch": echo}, "batch is for typed functions"),
        ({"name": " "}, "a tool needs a name"),
        ({"call": len}, "call must be an async function"),
        ({"call": "len"}, "call must be an async function"),
    ],
)
def test_it_says_what_is_wrong_when_it_is_made(change: dict[str, Any], reason: str) -> None:
    """A tool that cannot work is found by its author."""
    options: dict[str, Any] = {"name": "echo", "call": echo, "arguments": {}, **change}
    name, call, arguments = options.pop("name"), options.pop("call"), options.pop("arguments")
    with pytest.raises(ContractError, match=reason):
        dagrun.schema_tool(name, call, arguments, **options)


async def test_definitions_of_others() -> None:
    """Both of OpenAI's forms, Anthropic's, MCP's, and tools of LangChain, which are only looked at."""
    fields = {"name": "chat", "description": "Chats.", "parameters": ORDER}

    class LangChainTool:
        name, description = "lang-chain", "Chains."
        tool_call_schema = SimpleNamespace(model_json_schema=lambda: ORDER)

        async def ainvoke(self, arguments: dict[str, Any]) -> Any:
            return arguments["item"]["n"]

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        return name

    definitions = [
        {"type": "function", "function": fields},
        {"type": "function", **fields, "name": "responses"},
        {"name": "claude", "description": "x", "input_schema": ORDER},
        {"name": "mcp tool", "inputSchema": ORDER, "outputSchema": {"type": "string"}},
        {"type": "function", "function": {"name": "bare"}},
    ]
    tools = dagrun.schema_tools(definitions, call, effects={"chat": "read", "mcp tool": "pure"}, prefix="my.")
    assert [(t.name, str(t.effect)) for t in tools] == [
        ("my.chat", "read"),
        ("my.responses", "effectful"),
        ("my.claude", "effectful"),
        ("my.mcp_tool", "pure"),
        ("my.bare", "effectful"),
    ]
    assert tools[0].description == "Chats."
    chained = dagrun.schema_tools([LangChainTool()], effects={"lang-chain": "read"})
    args = {"item": {"n": 1}}
    steps = [dagrun.Step(id="a", tool="my.mcp_tool", args=args), dagrun.Step(id="b", tool="lang-chain", args=args)]
    result = await dagrun.run(dagrun.Plan(steps=steps), tools=[*tools, *chained])
    assert (result.steps["a"].output, result.steps["b"].output) == ("mcp tool", 1)


async def test_the_host_may_say_that_what_a_call_raises_means_that_nothing_happened() -> None:
    """But for a connection that broke and a time-out: nobody knows what the other side has done."""
    raised = {"refused": ValueError("no such order"), "lost": ConnectionError("gone"), "late": TimeoutError("late")}

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        raise raised[name.removeprefix("a_")]

    definitions = [{"name": f"a_{name}"} for name in raised]
    steps = [dagrun.Step(id=name, tool=f"a_{name}") for name in raised]
    seen: dict[str, list[str]] = {}
    for errors in ("unknown", "clean"):
        tools = dagrun.schema_tools(definitions, call, errors=errors)
        result = await dagrun.run(dagrun.Plan(steps=steps), tools=tools)
        seen[errors] = [str(result.steps[name].state) for name in raised]
        assert "ValueError: no such order" in str(result.steps["refused"].failure)
    assert seen == {"unknown": ["unknown"] * 3, "clean": ["failed", "unknown", "unknown"]}
    [tool] = dagrun.schema_tools(definitions[:1], call, effects={"a_*": "read"})
    assert str(tool.effect) == "read"


@pytest.mark.parametrize(
    ("definitions", "reason"),
    [
        ([{"name": "a", "parameters": {}}], "nothing can call it; give schema_tools a call"),
        (["a"], "is no definition of a tool"),
        ([{"type": "web_search"}], "is no definition of a tool"),
        ([{"name": "a b"}, {"name": "a_b"}], "two tools are called a_b"),
    ],
)
def test_definitions_that_cannot_be_tools(definitions: list[Any], reason: str) -> None:
    """Each says what is missing."""

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        return None

    with pytest.raises(ContractError, match=reason):
        dagrun.schema_tools(definitions, None if "nothing can" in reason else call)
    with pytest.raises(ContractError, match="effects names b, which no definition has"):
        dagrun.schema_tools([{"name": "a"}], call, effects={"b": "read"})
