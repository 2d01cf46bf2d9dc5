"""Plans written in Python: the same plans as JSON would describe, typed values out of results, clear errors."""

from __future__ import annotations

import datetime
import enum
import gc
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

import dagrun
from dagrun import Plan, Step, Toolbox, ToolContext
from dagrun.errors import ValueRefused
from dagrun.kernel.model.reference import path_text, quote_template

pytestmark = pytest.mark.anyio


@dataclass
class Sales:
    rows: list[int]
    city: str


class Row(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int = Field(alias="no")
    when: datetime.date


class Colour(enum.StrEnum):
    RED = "red"


@dagrun.tool(effect="read")
async def sales(city: str, path: str = "", context: ToolContext = dagrun.PROVIDED) -> Sales:
    """Read the sales of a city."""
    assert context.step
    return Sales([1, 2, len(city)], city)


@dagrun.tool(effect="pure")
async def total(rows: list[int], note: str = "") -> int:
    return sum(rows)


@dagrun.tool(effect="pure")
async def busiest(cities: dict[str, list[int]]) -> str:
    return max(cities, key=lambda city: sum(cities[city]))


@dagrun.tool(effect="pure", name="web.search")
async def search(query: str, limit: int = 3) -> list[Row]:
    return [Row(no=number, when=datetime.date(2026, 1, 1)) for number in range(limit)]


@dagrun.tool(effect="pure")
async def show(value: Any) -> Any:
    return value


@dagrun.tool(effect="pure")
async def fails(value: Any = None) -> int:
    raise dagrun.ToolError("no")


async def test_a_plan_in_python_is_the_same_as_in_json() -> None:
    path = dagrun.input("path", str)
    cities = {name: sales.step(city=name, path=path) for name in ("Austin", "Dallas")}
    best = busiest.options(timeout=3).step({name: found.rows for name, found in cities.items()})
    plan = dagrun.plan(output={"best": best, "first": cities["Austin"].rows[0]}, goal="the busiest city")
    args = {"Austin": "${sales.rows}", "Dallas": "${sales_2.rows}"}
    assert plan == Plan(
        steps=[
            Step(id="sales", tool="sales", args={"city": "Austin", "path": "${input.path}"}),
            Step(id="sales_2", tool="sales", args={"city": "Dallas", "path": "${input.path}"}),
            Step(id="busiest", tool="busiest", args={"cities": args}, timeout=3),
        ],
        output={"best": "${busiest}", "first": "${sales.rows[0]}"},
        goal="the busiest city",
    )
    assert Plan.model_validate_json(plan.to_json()) == plan
    result = await dagrun.run(plan, inputs={"path": "x"})
    assert result.output == {"best": "Austin", "first": 1}


async def test_results_are_values_of_the_types_that_tools_return() -> None:
    found, austin = search.step("x", limit=1), sales.step("Austin")
    each = search.each(["a", "b"]).step(query=dagrun.item, limit=1)
    result = await dagrun.run(dagrun.plan(found, austin, each, output=found))
    assert result[found] == [Row(no=0, when=datetime.date(2026, 1, 1))]
    assert result[austin] == Sales([1, 2, 6], "Austin")
    assert result[austin.rows] == [1, 2, 6]
    assert result[each] == [[Row(no=0, when=datetime.date(2026, 1, 1))]] * 2
    assert result.output_as(list[Row]) == result[found]
    assert result.output == [{"number": 0, "when": "2026-01-01"}]


async def test_the_result_of_a_step_is_that_of_its_substitute() -> None:
    """A patch has put another step in its place; whoever holds the first one gets what stands for it."""
    first = show.options(id="first").step(1)
    slow = total.options(id="slow", depends_on=[first]).step([first])
    plan = dagrun.plan(slow)
    async with dagrun.start(plan, tools=[show, total]) as run:
        other = Step(id="other", tool="total", args={"rows": [40, 2]})
        await run.splice(dagrun.Patch(edits=[dagrun.Replace(id="slow", step=other)]))
        result = await run.result()
    assert result[slow] == 42


async def test_conditions_are_comparisons() -> None:
    source = sales.step("Austin")
    taken = total.options(when=(source.rows[0] > 0) & (source.city != "Dallas")).step(source.rows)
    skipped = total.options(when=~(source.rows[0] == 1) | dagrun.where(source.rows, "max_length", 1)).step([1])
    judged = total.options(success=lambda output: output >= 10, on_failure="skip").step([1])
    plan = dagrun.plan(taken, skipped, judged)
    conditions = [step.when.model_dump(by_alias=True, exclude_unset=True) for step in plan.steps if step.when]
    assert conditions == [
        {
            "all": [
                {"ref": "sales.rows[0]", "op": ">", "value": 0},
                {"ref": "sales.city", "op": "!=", "value": "Dallas"},
            ]
        },
        {
            "any": [
                {"not": {"ref": "sales.rows[0]", "op": "==", "value": 1}},
                {"ref": "sales.rows", "op": "max_length", "value": 1},
            ]
        },
    ]
    result = await dagrun.run(plan)
    assert [result.steps[id_].state for id_ in ("total", "total_2", "total_3")] == ["succeeded", "skipped", "failed"]
    with pytest.raises(dagrun.RunFailed, match="step total_2 has no output: it is skipped"):
        result[skipped]


async def test_texts_are_taken_literally_but_for_the_steps_in_them() -> None:
    source = sales.step("Austin")
    text = show.step(f"{source.city} has {source.rows[2]} of ${{sales.city}} and {dagrun.input('n', int)}")
    keys = show.step({"${a}": "${sales.rows} $step"})
    forged = show.step("${sales#0123456789abcdef:1} ${sales.city}")
    result = await dagrun.run(dagrun.plan(text, keys, forged), inputs={"n": 7})
    assert result[text] == "Austin has 6 of ${sales.city} and 7"
    assert result[keys] == {"${a}": "${sales.rows} $step"}
    assert result[forged] == "${sales#0123456789abcdef:1} ${sales.city}"


async def test_data_is_written_as_json() -> None:
    data = show.step(
        {"day": datetime.date(2026, 1, 2), "sum": Decimal("1.5"), "row": Row(no=1, when=datetime.date(2026, 1, 1))}
    )
    more = show.step([Sales([1], "x"), Colour.RED, (1, 2), {1: "one"}])
    result = await dagrun.run(dagrun.plan(data, more))
    assert result[data] == {"day": "2026-01-02", "sum": "1.5", "row": {"no": 1, "when": "2026-01-01"}}
    assert result[more] == [{"rows": [1], "city": "x"}, "red", [1, 2], {"1": "one"}]


def test_ids_are_made_of_tool_names() -> None:
    given = total.options(id="web_search").step([1])
    steps = [search.step("a"), search.step("b"), given]
    # In the order in which they were made.
    assert [step.id for step in dagrun.plan(steps).steps] == ["web_search", "web_search_2", "web_search_3"]
    assert [step.id for step in dagrun.plan(steps[1]).steps] == ["web_search"]  # of that plan alone

    @dagrun.tool(effect="pure", name="input")
    async def reserved() -> int:
        return 1

    assert dagrun.plan(reserved.step()).steps[0].id == "input_2"


def test_a_plan_has_every_step_that_it_needs_and_no_other() -> None:
    unused = sales.step("Dallas")
    first = sales.step("Austin")
    before = total.step([1])
    text = show.options(depends_on=[before], when=first.rows[0] > 0).step("x")
    plan = dagrun.plan(output=f"so: {text}")
    assert [step.tool for step in plan.steps] == ["sales", "total", "show"]
    assert plan.output == "so: ${show}"
    assert unused is not None


ROUND_TRIPS = [
    Plan(steps=[Step(id="a-1", tool="show", args={"value": '${input.x["a b"]} "q" ${input.y} $${z} {0}'})]),
    Plan(steps=[Step(id="if", tool="web.search", args={"query": "x", "limit": 2})], output="if", confidence=0.5),
    Plan(
        steps=[
            Step(id="later", tool="total", args={"rows": {"$step": "show", "path": "rows"}}, deadline=3.5),
            Step(id="show", tool="show", args={"value": {"rows": [1]}}, depends_on=["first"], pause="before"),
            Step(id="first", tool="show", args={"value": "\n\\$${"}, retry=dagrun.RetryRule(max_attempts=3)),
            Step(
                id="each",
                tool="show",
                for_each="${show.rows}",
                args={"value": ["${item}", "${item.name}"]},
                success=dagrun.Condition(ref="each", op="min_length", value=1),
                when=dagrun.Condition.model_validate({"not": {"ref": "show.rows", "op": "exists", "value": False}}),
                on_failure="default",
                default={"$x": None},
                optional=True,
                max_parallel=2,
            ),
        ],
        output={"text": "${later} of ${show.rows[0]}", "$": ["${each}"]},
        goal='say "it"',
    ),
]


@pytest.mark.parametrize("plan", ROUND_TRIPS, ids=["texts", "names", "options"])
def test_a_plan_as_python_makes_the_same_plan(plan: Plan) -> None:
    """The steps come in the order of what they need; nothing else may differ."""
    tools = {tool.name: tool for tool in (show, search, total)}
    names: dict[str, Any] = {**tools, "tools": tools}
    code = plan.to_python()
    exec(code, names)  # the code is ours, made of a plan above

    def facts(written: Plan) -> Any:
        shown = dagrun.check(written, Toolbox(show, search, total), inputs={"x": {"a b": 1}, "y": 2})
        steps = {id_: (step.args, sorted(step.depends_on), step.items) for id_, step in shown.steps.items()}
        options = {s.id: s.model_dump(exclude={"args", "for_each", "depends_on"}) for s in written.steps}
        return steps, options, shown.output, written.goal, written.confidence

    assert facts(names["plan"]) == facts(plan), code


def test_a_plan_as_yaml_is_read_again(tmp_path: Any) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(ROUND_TRIPS[2].to_yaml())
    assert dagrun.read_plan(path) == ROUND_TRIPS[2]


def test_a_plan_brings_its_tools_and_the_host_has_the_last_word() -> None:
    plan = dagrun.plan(total.step([1]), show.step(1))
    assert dagrun.check(plan).toolbox.keys() == {"total", "show"}
    assert dagrun.check(plan, [search]).toolbox.keys() == {"total", "show", "web.search"}
    with pytest.raises(dagrun.PlanRefused, match="show"):
        dagrun.check(plan, Toolbox(total))  # a toolbox says what may be called

    @dagrun.tool(effect="pure", name="total")
    async def other(rows: list[int]) -> int:
        return 0

    with pytest.raises(dagrun.errors.ContractError, match="two tools are called total"):
        dagrun.check(plan, [other])
    with pytest.raises(dagrun.errors.ContractError, match="name the tools"):
        dagrun.check(Plan.model_validate_json(plan.to_json()))


def _in_plan(step: Any) -> Plan:
    return dagrun.plan(step)


SOURCE = sales.step("Austin")
ANYTHING: list[Any] = [sales, SOURCE]
MISTAKES: list[tuple[str, Callable[[], object], str]] = [
    ("called", lambda: busiest({"a": SOURCE.rows}), r"busiest\(…\) calls the function now.*busiest\.step\(…\)"),
    (
        "tool",
        lambda: _in_plan(total.step(ANYTHING[0])),
        r"rows got the tool sales; pass a step of it: sales\.step\(…\)",
    ),
    ("no step", lambda: dagrun.plan(total), r"plan\(\) takes steps, made with tool\.step\(…\), got the tool total"),
    ("run", lambda: dagrun.run_sync(ANYTHING[1]), r"plan got <step sales of a plan>.*dagrun\.plan\(output=…\)"),
    ("truth", lambda: bool(SOURCE), "neither true nor false yet"),
    ("loop", lambda: list(SOURCE.rows), r"cannot be iterated over.*tool\.each\(sales\)\.step"),
    ("length", lambda: len(SOURCE.rows), "has no length yet"),
    ("negative", lambda: SOURCE.rows[-1], "an index counts from the start, got -1"),
    ("slice", lambda: SOURCE.rows[1:], "a part is a key or an index"),
    ("format", lambda: f"{SOURCE.city:>10}", "takes no format"),
    (
        "dollar",
        lambda: _in_plan(show.step(f"costs ${SOURCE.rows[0]}")),
        r"a \$ right before <sales\.rows\[0\]",
    ),
    ("and", lambda: SOURCE.rows[0] > 1 and SOURCE.city == "x", "joined by & and"),
    ("two sides", lambda: SOURCE.rows[0] > SOURCE.rows[1], "one side must be data"),
    ("when", lambda: _in_plan(total.options(when=SOURCE.city).step([1])), r"\(when=…\) takes a condition"),
    ("where", lambda: dagrun.where(3, ">", 2), "takes a step of a plan"),
    ("unknown", lambda: total.step([1], nte="x"), r"total\.step: .*nte.*its arguments are note, rows"),  # type: ignore[call-overload]
    ("missing", lambda: total.step(), "argument rows is missing"),  # type: ignore[call-overload]
    ("twice", lambda: total.step([1], rows=[2]), "multiple values"),  # type: ignore[call-overload]
    ("context", lambda: sales.step("x", context=object()), "filled in by the run"),  # type: ignore[call-overload]
    ("option", lambda: total.options(tiemout=3), r"no option tiemout; did you mean timeout\?"),  # type: ignore[call-arg]
    ("value", lambda: _in_plan(total.options(timeout=-3).step([1])), "timeout: Input should be greater than 0"),
    ("id", lambda: _in_plan(total.options(id="a b").step([1])), "'a b' is no id of a step"),
    ("reserved", lambda: _in_plan(total.options(id="item").step([1])), "'item' is no id of a step"),
    ("empty", dagrun.plan, "the plan has no steps"),
    ("object", lambda: _in_plan(show.step(object())), "a object cannot stand in a plan, which is JSON"),
    ("$step", lambda: _in_plan(show.step({"$step": "x"})), "key \\$step would be a reference"),
    ("number", lambda: dagrun.plan(SOURCE, output=3), "output takes a step"),
    ("each", lambda: _in_plan(total.each(3).step([1])), "takes a list"),
    ("after", lambda: _in_plan(total.options(depends_on=[3]).step([1])), "takes steps, or their ids"),
]


@pytest.mark.parametrize(("call", "says"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES])
def test_a_mistake_says_what_to_do(call: Callable[[], object], says: str) -> None:
    with pytest.raises(dagrun.errors.ContractError, match=says):
        call()


def test_two_steps_cannot_share_an_id() -> None:
    steps = [total.options(id="a").step([1]), show.options(id="a").step(1)]
    with pytest.raises(dagrun.errors.ContractError, match="two steps of the plan have the id a"):
        dagrun.plan(steps)


def test_a_field_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no field city_; it has rows, city"):
        SOURCE.city_  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(SOURCE, "_private")
    with pytest.raises(AttributeError, match=r"a tool has options, before its step: tool\.options\(…\)\.step\(…\)"):
        SOURCE.options  # type: ignore[attr-defined]  # noqa: B018


def test_a_step_that_is_gone_is_named() -> None:
    text = f"{sales.step('Austin')}"
    gc.collect()
    with pytest.raises(dagrun.errors.ContractError, match="a step that no variable holds"):
        _in_plan(show.step(text))


def test_a_step_in_a_plan_of_json_is_named() -> None:
    first = Step(id="first", tool="show", args={"value": 1})
    plan = Plan(steps=[first, Step(id="sum", tool="total", args={"rows": [first]})])
    with pytest.raises(dagrun.PlanRefused, match=r'"\$\{first\}" stands for the output of that step'):
        dagrun.check(plan, [show, total])
    with pytest.raises(dagrun.PlanRefused, match=r"dagrun\.plan\(…\) takes steps"):
        dagrun.check(Plan(steps=[Step(id="sum", tool="total", args={"rows": [SOURCE]})]), [total])


async def test_what_a_result_cannot_give_is_named() -> None:
    other, failed = total.step([2]), fails.options(on_failure="default", default="x").step()
    broken = fails.step()
    part = show.step({"a": 1})
    result = await dagrun.run(dagrun.plan(failed, broken, part))
    with pytest.raises(dagrun.errors.ContractError, match=r"result\.steps\['id'\]\.output"):
        result["fails"]
    with pytest.raises(dagrun.errors.ContractError, match="not in the plan that the run began with"):
        result[other]
    with pytest.raises(ValueRefused, match="the output of step fails does not fit its type"):
        result[failed]
    with pytest.raises(dagrun.RunFailed, match="step fails_2 has no output: it is failed: "):
        result[broken]
    with pytest.raises(ValueRefused, match="has no such part"):
        result[part["b"]]
    with pytest.raises(ValueRefused, match="the answer of the run does not fit its type"):
        result.output_as(int)


# Round trips of random plans ------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["rows", "a b", 'q"uote', "back\\slash", "x-y", "0", "ü"]) | st.integers(0, 3)
PIECES = st.sampled_from(
    [
        *(
            "",
            "$",
            "$${",
            "${",
            "}",
            "{",
            "{0}",
            "{{x}}",
            '"',
            "'",
            "\\",
            "\n",
            "%s",
            "é😀",
            chr(0x2028),
            "#",
            "a: b",
            "- 1",
        )
    ]
)
IDS = st.sampled_from(
    [*("a", "a-1", "a_1", "if", "None", "show", "dagrun", "plan", "tools", "_x", "9", "item_2", "match", "lambda", "x")]
)
NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
SEVERAL = {
    "timeout": 2.5,
    "optional": True,
    "confidence": 0.25,
    "retry": {"max_attempts": 3},
    "expected_output": "it's",
}


@st.composite
def _reference(draw: st.DrawFn, ids: list[str], roots: tuple[str, ...] = ("input.x",)) -> str:
    root = draw(st.sampled_from([*ids, *roots]))
    return root + "".join(path_text((key,)) for key in draw(st.lists(KEYS, max_size=2)))


def _values(ids: list[str], roots: tuple[str, ...]) -> st.SearchStrategy[Any]:
    hole = _reference(ids, roots).map(lambda reference: f"${{{reference}}}")
    # "$${" is the text "${", so there is no text with a "$" right before a reference.
    literal = PIECES.filter(lambda piece: not piece.endswith("$")).map(quote_template)
    text = st.lists(hole | literal, max_size=4).map("".join) | PIECES.map(quote_template)
    keys = PIECES.filter(lambda key: key != "$step")

    def inside(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)

    return st.recursive(st.none() | st.booleans() | NUMBERS | text, inside, max_leaves=5)


def _conditions(ids: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    signs = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "contains"])
    facts = st.tuples(_reference(ids), signs, st.integers(-5, 5) | PIECES)
    leaf = facts.map(lambda fact: {"ref": fact[0], "op": fact[1], "value": fact[2]})

    def joined(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        several = st.tuples(st.sampled_from(["all", "any"]), st.lists(inner, min_size=2, max_size=3))
        return inner.map(lambda part: {"not": part}) | several.map(lambda parts: {parts[0]: parts[1]})

    exists = _reference(ids).map(lambda reference: {"ref": reference, "op": "exists", "value": False})
    return st.recursive(leaf | exists, joined, max_leaves=3)


@st.composite
def _random_step(draw: st.DrawFn, id_: str, before: list[str]) -> dict[str, Any]:
    step: dict[str, Any] = {"id": id_, "tool": draw(st.sampled_from(["show", "web.show"]))}
    roots: tuple[str, ...] = ("input.x",)
    if draw(st.booleans()):
        step["for_each"] = draw(st.lists(_values(before, roots), min_size=1, max_size=2))
        roots = ("input.x", "item")
    step["args"] = {"value": draw(_values(before, roots))}
    if draw(st.booleans()) and before:
        step["when"] = draw(_conditions(before))
        step["depends_on"] = draw(st.lists(st.sampled_from(before), min_size=1, unique=True))
    if draw(st.booleans()):
        step |= {"success": draw(_conditions([id_])), "on_failure": "default", "default": draw(st.none() | NUMBERS)}
    if "for_each" in step:
        step["max_parallel"] = draw(st.integers(1, 3))
    names = draw(st.lists(st.sampled_from(sorted(SEVERAL)), max_size=3, unique=True))
    return {**step, **{name: SEVERAL[name] for name in names}, "description": draw(PIECES)}


@st.composite
def _random_plan(draw: st.DrawFn) -> Plan:
    ids = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    steps = [draw(_random_step(id_, ids[:number])) for number, id_ in enumerate(ids)]
    fields: dict[str, Any] = {"steps": draw(st.permutations(steps)), "goal": draw(PIECES)}
    if draw(st.booleans()):
        fields["output"] = draw(st.sampled_from(ids) | st.lists(_values(ids, ("input.x",)), min_size=1, max_size=2))
    return Plan.model_validate_json(json.dumps(fields))


@dagrun.tool(effect="pure", name="web.show")
async def web_show(value: Any) -> Any:
    return value


@pytest.mark.rigs
@given(_random_plan())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_random_plan_survives_json_yaml_and_python(plan: Plan) -> None:
    """Whatever texts, keys and ids a planner finds, the three forms say the same."""
    assert Plan.model_validate_json(plan.to_json()) == plan
    assert dagrun.read_plan(plan.to_yaml().encode(), syntax="yaml") == plan
    try:
        expected = _facts(plan)
    except dagrun.PlanRefused:
        reject()  # a part of a for_each, say
    names: dict[str, Any] = {"show": show, "tools": {"show": show, "web.show": web_show}}
    code = plan.to_python()
    exec(code, names)  # the code is ours, made of a plan above

    assert _facts(names["plan"]) == expected, code


def _joined(condition: Any) -> Any:
    """A condition in which no ``all`` stands in an ``all``, and no ``any`` in an ``any``: the same in Python."""
    for word in ("all", "any"):
        if word in condition:
            parts = [_joined(part) for part in condition[word]]
            return {word: [inner for part in parts for inner in part.get(word, [part])]}
    return {"not": _joined(condition["not"])} if "not" in condition else condition


def _facts(written: Plan) -> Any:
    """What a plan means, whatever the order of its steps and the spelling of its references."""
    shown = dagrun.check(written, Toolbox(show, web_show))
    steps = {id_: (step.args, sorted(step.depends_on), step.items) for id_, step in shown.steps.items()}
    options: dict[str, Any] = {}
    for step in written.steps:
        fields: dict[str, Any] = step.model_dump(
            exclude={"args", "for_each", "depends_on"}, by_alias=True, exclude_unset=True
        )
        conditions: dict[str, Any] = {name: _joined(fields[name]) for name in ("when", "success") if name in fields}
        options[step.id] = {**fields, **conditions}
    return steps, options, shown.output, written.goal


def test_yaml_of_a_plan_has_no_aliases_and_no_text_that_reads_as_a_number() -> None:
    """Both are right in YAML, and refused or another value in plans."""
    shared = {"a": ["1e5", "-1E+2", "010", "x\ny"]}
    plan = Plan(steps=[Step(id="one", tool="echo", args={"value": [shared, shared]})])

    assert dagrun.read_plan(plan.to_yaml().encode(), syntax="yaml") == plan
