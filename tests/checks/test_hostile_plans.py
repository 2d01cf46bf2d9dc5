"""Hostile plans, numbered as in the list of hostile inputs (S1 to S35, as far as they concern plans and checks).

Every plan is accepted or refused: there is no other error, no crash later, and no excessive use of time or memory.
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from checking import TOOLBOX, TOOLS, errors, find, refusal, refused, texts
from dagrun import Condition, Plan, PlanLimits, PlanRefused, Policy, Step, Toolbox, read_plan
from dagrun.errors import MAX_ERROR_TEXT
from dagrun.kernel.checks.check_plan import check_plan, find_problems
from dagrun.kernel.model.value import MAX_DEPTH, encode


def step(id_: str = "a", tool: str = "anything", **fields: Any) -> dict[str, Any]:
    """Return a step."""
    return {"id": id_, "tool": tool, **fields}


def text_of(*steps: Any, **fields: Any) -> str:
    """Return a plan as JSON."""
    return json.dumps({"steps": steps, **fields})


def value(value: Any) -> dict[str, Any]:
    """Return a step with one argument."""
    return step(args={"value": value})


def nested(depth: int) -> Any:
    """Return nested lists."""
    made: Any = 1
    for _ in range(depth):
        made = [made]
    return made


def test_s01_a_gigantic_plan_is_refused_unread(tmp_path: Path) -> None:
    """59 MB cost nothing: the size of a file is known before it is read, and that of a text before it is parsed."""
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(59_000_000)
    text = "[" * 2_000_000

    tracemalloc.start()
    try:
        assert refused(huge) == ["DR005 "]
        assert refused(text) == ["DR005 "]
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert "the plan has 59000000 bytes, the ceiling is 1000000" in str(refusal(huge))


def test_s01_a_device_that_never_ends_is_refused() -> None:
    """It reports a size of 0; no more is read than the limit allows."""
    zero = Path("/dev/zero")
    if not zero.exists():
        pytest.skip("there is no such device here")

    assert refused(zero, limits=PlanLimits(max_bytes=5_000)) == ["DR005 "]


@pytest.mark.parametrize("count", [1_001, 10_001])
def test_s02_more_steps_than_the_ceiling_are_refused_unless_the_host_raises_it(count: int) -> None:
    """No step is checked: each would have two problems."""
    text = text_of(*({} for _ in range(count)))

    assert refused(text) == ["DR108 steps"]
    good = text_of(*(step(f"s{i}") for i in range(count)))
    assert len(read_plan(good, limits=PlanLimits(max_steps=count)).steps) == count


@pytest.mark.parametrize("depth", [33, 1_000, 100_000])
@pytest.mark.parametrize("text", ["[", '{"a":', '{"steps":[', "[{"])
def test_s03_deep_json_is_refused_by_a_scan_of_its_text(text: str, depth: int) -> None:
    """Python's parser would end in a RecursionError, at a depth that depends on the depth of its caller."""
    assert refused(text * depth, limits=PlanLimits(max_bytes=10_000_000)) == ["DR006 "]


def test_s03_a_ceiling_that_python_cannot_hold_is_not_believed() -> None:
    """However high the limit of the host is."""
    assert refused("[" * 5_000, limits=PlanLimits(max_depth=100_000)) == ["DR006 "]


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 100_000])
def test_s04_deep_python_values_are_refused(depth: int) -> None:
    """Pydantic accepts them, but then every recursive function fails."""
    made = Step.model_construct(
        _fields_set={"id", "tool", "args"}, id="a", tool="anything", args={"value": nested(depth)}
    )
    plan = Plan(steps=(made,))

    with pytest.raises(PlanRefused, match="nested deeper than 64 levels"):
        check_plan(plan, TOOLBOX)


def test_s04_values_that_hold_themselves_are_refused() -> None:
    """They are refused by depth or by number: a structure that doubles 60 times is endless in practice."""
    loop: list[Any] = []
    loop += [loop, loop, {"x": loop}]
    wide: Any = [1]
    for _ in range(60):
        wide = [wide, wide]

    for made in (loop, {"x": loop}, wide):
        a = Step.model_construct(id="a", tool="anything", args={"value": made})
        found = errors(a, policy=Policy(max_argument_bytes=10_000))
        assert found in (["DR006 steps[0].args"], ["DR220 steps[0].args"])


def test_s04_deep_conditions_are_refused() -> None:
    """Conditions can be nested like values."""
    condition = Condition(ref="b", op="exists")
    for _ in range(5_000):
        condition = Condition.model_construct(not_=condition)

    for made in (Step(id="a", tool="anything", when=condition), Step(id="a", tool="anything", success=condition)):
        assert [problem.split()[0] for problem in errors(made, step("b"))] == ["DR006"]


def test_s04_the_ceiling_of_depth_itself_is_fine() -> None:
    """A value that passes the check can be recorded and filled in."""
    _, checked = find(step(args={"value": nested(MAX_DEPTH - 1)}), step("b", args={"value": nested(MAX_DEPTH - 2)}))

    assert checked is not None
    assert checked.steps["a"].args.fill(lambda _: None).startswith(b'{"value":[[[')


@pytest.mark.parametrize("order", [1, -1])
def test_s05_a_complete_dag_is_checked_or_refused_without_searching_for_a_cycle(
    order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`find_cycle` takes 22 seconds on such a graph, and the graph takes gigabytes: neither is ever made."""

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a graph was searched for a cycle")

    monkeypatch.setattr(nx, "find_cycle", never)
    monkeypatch.setattr(nx, "simple_cycles", never)
    ids = [f"s{i}" for i in range(1_500)]
    steps = [Step(id=ids[i], tool="anything", depends_on=ids[:i]) for i in range(1_500)]
    made = Plan(steps=tuple(steps[::order]))

    if order == 1:
        monkeypatch.setattr(nx, "is_directed_acyclic_graph", lambda graph: not graph or never())
        assert len(check_plan(made, TOOLBOX).steps["s1499"].depends_on) == 1_499
    else:
        monkeypatch.setattr(nx.DiGraph, "add_edges_from", never)
        with pytest.raises(PlanRefused, match="only if every step comes after"):
            check_plan(made, TOOLBOX)


@pytest.mark.rigs
@pytest.mark.parametrize("shape", ["no arguments", "references", "backwards", "fan", "problems"])
def test_s02_a_check_takes_time_in_proportion_to_the_plan(shape: str) -> None:
    """A plan that the host builds may have 100,000 steps; eight times as many take eight times as long, not 64."""

    def build(size: int) -> Plan:
        match shape:
            case "references":
                steps = [step(f"s{i}", args={"value": f"${{s{i - 1}.x}}"} if i else {}) for i in range(size)]
            case "backwards":
                steps = [step(f"s{i}", depends_on=[f"s{i - 1}"] if i else []) for i in reversed(range(size))]
            case "fan":
                steps = [*(step(f"s{i}") for i in range(size)), step("end", depends_on=[f"s{i}" for i in range(size)])]
            case "problems":
                steps = [step(f"s{i}", "nope", depends_on=["nope"], args={"x": "${nope}"}) for i in range(size)]
            case _:
                steps = [step(f"s{i}") for i in range(size)]
        return Plan(steps=tuple(Step(**fields) for fields in steps))

    def seconds(plan: Plan) -> float:
        # Without the collector, which also goes through whatever the tests before this one have left.
        gc.collect()
        gc.disable()
        try:
            start = time.process_time()
            find_problems(plan, TOOLBOX)
            return time.process_time() - start
        finally:
            gc.enable()

    small, large = build(5_000), build(40_000)
    seconds(small)  # once before, for everything that is done only once

    # Three times the linear time is far below the square, and far above the noise.
    assert min(seconds(large) for _ in range(3)) < 24 * min(seconds(small) for _ in range(3))


def test_s05_a_dense_cycle_is_found() -> None:
    """The dense parts before and after the knot are not part of the cycle."""
    ids = [f"s{i}" for i in range(300)]
    steps = [step(ids[i], depends_on=[*ids[:i], *(["s200"] if i == 150 else [])]) for i in range(300)]

    assert errors(*steps) == ["DR106 steps[150].depends_on"]
    assert "s150 -> s200 -> s150" in texts(*steps)


def test_s06_a_long_ring_names_ten_steps_at_most() -> None:
    """A list of 5,000 names would be useless."""
    size = 5_000
    steps = [Step(id=f"s{i}", tool="anything", depends_on=[f"s{(i - 1) % size}"]) for i in range(size)]

    problems = [problem for problem in find(*steps)[0] if not problem.is_advice]

    assert [problem.code for problem in problems] == ["DR106"]
    assert problems[0].facts["cycle"].count("->") == 10
    assert problems[0].facts["cycle"].endswith("-> … -> s0 (5000 steps)")


def test_s06_small_rings_are_refused() -> None:
    """A step that waits for itself, and two steps that wait for each other, one by a reference."""
    assert errors(step("a", depends_on=["a"])) == ["DR105 steps[0].depends_on[0]"]
    assert errors(step("a", args={"value": "${b.x}"}), step("b", depends_on=["a"])) == ["DR106 steps[0].depends_on"]


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 1_001, "9" * 5_000, "0." + "9" * 2_000]
)
def test_s07_numbers_that_json_readers_differ_on_are_refused(number: str) -> None:
    """Python accepts NaN and infinity, reads 1e999 as infinity, and cannot print an integer of 5,000 digits."""
    refusal_ = refusal(text_of(step(args={"x": ["?"]})).replace('"?"', number))

    assert [str(p.path) for p in refusal_.problems] == ["steps[0].args.x[0]"]
    assert refusal_.problems[0].code == "DR008"
    assert len(str(refusal_)) < 300


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), 10**5_000, -(10**1_300)], ids=["nan", "infinity", "10^5000", "-10^1300"]
)
def test_s07_the_same_numbers_from_the_host_are_refused(number: Any) -> None:
    """In arguments, lists, conditions, defaults and the output; and the message can be printed."""
    steps = (
        value(number),
        step("b", args={"value": [{"x": number}]}),
        step("c", for_each=[number]),
        step("d", when={"ref": "a", "op": "==", "value": number}),
        step("e", on_failure="default", default=number),
    )
    problems, _ = find(*steps, output={"x": number})

    assert [p.code for p in problems if not p.is_advice] == ["DR008"] * 6
    assert len(str(PlanRefused(problems))) <= MAX_ERROR_TEXT


def test_s08_a_key_that_stands_twice_is_refused() -> None:
    """A reviewer sees the first tool, but the parser would use the last."""
    text = '{"steps": [{"id": "a", "tool": "safe", "tool": "pay", "args": {"x": {"y": 1, "z": 2, "y": 3, "z": 4}}}]}'

    assert refused(text) == ["DR007 steps[0]", "DR007 steps[0].args.x", "DR007 steps[0].args.x"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (text_of(value("\ud800")), "DR013 steps[0].args.value"),
        (text_of(value({"\udfff": 1})), "DR013 steps[0].args.value"),
        (text_of(step(), goal="\ud800x"), "DR013 goal"),
        (text_of(value("a\0b")), "DR013 steps[0].args.value"),
        (text_of(step()) + "\0", "DR003 "),
        (text_of(step()) + "x", "DR003 "),
        ("\0" + text_of(step()), "DR003 "),
        (text_of(step())[:-5], "DR003 "),
    ],
)
def test_s09_texts_that_cannot_be_stored_are_refused(text: str, problem: str) -> None:
    """They are refused when the plan is read, not when the record of the run is written."""
    assert refused(text) == [problem]


def test_s09_lone_surrogates_from_the_host_are_refused() -> None:
    """Also in a plan that is built and not read."""
    assert errors(value("\ud800")) == errors(value({"\ud800": 1})) == ["DR013 steps[0].args.value"]
    assert errors(step(for_each=["\ud800"])) == ["DR013 steps[0].for_each[0]"]
    assert errors(step(), output={"x": "\ud800"}) == ["DR013 output.x"]


@pytest.mark.parametrize(
    "id_",
    [
        "a\n",
        "\na",
        "../x",
        "a b",
        "",
        "a" * 49,
        "a" * 10_000,
        "\u0430",
        "a\u200f",
        "a\0",
        "é",
        "a.b",
        "a[0]",
        "${a}",
        "٣",
    ],
)
def test_s10_ids_are_plain_ascii_and_nothing_else(id_: str) -> None:
    """A Cyrillic look-alike, a mark that reverses the line, a line break that `$` would allow."""
    assert errors(step(id_)) == ["DR101 steps[0].id"]
    assert len(texts(step(id_))) < 400
    assert texts(step(id_)).isprintable()


def test_s10_an_id_of_underscores_is_only_an_id() -> None:
    """`__class__` is only the name of a step: nothing is ever looked up by attribute."""
    assert errors(step("__class__"), step("b", args={"value": "${__class__.__dict__}"})) == []
    assert refused(text_of(step(id_=3))) == ["DR009 steps[0].id"]  # type: ignore[arg-type]


def test_s11_ids_that_differ_in_case_alone_are_refused() -> None:
    """Readers and many file systems confuse them; other forms of a letter are not allowed in ids at all."""
    assert errors(step("load"), step("Load"), step("LOAD")) == ["DR103 steps[1].id", "DR103 steps[2].id"]
    assert errors(step("cafe\u0301"), step("caf\u00e9")) == ["DR101 steps[0].id", "DR101 steps[1].id"]


def test_s12_bad_dependencies_are_refused() -> None:
    """Unknown, itself, repeated; and 100,000 of them, which exceeds the limit for plans from outside."""
    assert errors(step("a"), step("b", depends_on=["x", "b", "a", "a"])) == [
        "DR104 steps[1].depends_on[0]",
        "DR105 steps[1].depends_on[1]",
        "DR107 steps[1].depends_on[3]",
    ]
    assert refused(text_of(step(depends_on=["b"] * 100_000))) == ["DR109 steps[0].depends_on"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("approved", True),
        ("retries", 1e9),
        ("isolation", "none"),
        ("kind", "tool"),
        ("__class__", "x"),
        ("model_config", {}),
        ("needs_approval", False),
    ],
)
def test_s13_fields_that_do_not_exist_are_refused(field: str, value: Any) -> None:
    """No field is silently ignored."""
    assert refused(text_of({**step(), field: value})) == [f"DR010 steps[0].{field}"]


def test_s13_a_step_makes_the_policy_stricter_and_never_looser() -> None:
    """A timeout of 30,000 years is limited by tool and policy."""
    _, checked = find(step(timeout=1e12), step("b", timeout=0.5), policy=Policy(timeout=3))

    assert checked is not None
    assert [s.timeout for s in checked.steps.values()] == [3, 0.5]
    assert refused(text_of(step(retry={"max_attempts": 1_000_000_000}))) == ["DR012 steps[0].retry.max_attempts"]


@pytest.mark.parametrize("timeout", ["-1", "0", "NaN", '"5s"', "true", '"5"', "[5]", "-0.0", "1e999"])
def test_s14_times_are_positive_numbers(timeout: str) -> None:
    """Neither texts nor booleans count as numbers."""
    text = text_of(step(timeout="?")).replace('"?"', timeout)

    assert [problem.split()[1] for problem in refused(text)] == ["steps[0].timeout"]


def test_s15_a_plan_of_doubling_references_checks_in_time() -> None:
    """Their growth is limited when they are filled in; the check looks at each of them once."""
    steps = [step("s0", args={"value": "0123456789"})]
    steps += [step(f"s{i}", args={"value": f"${{s{i - 1}}}${{s{i - 1}}}"}) for i in range(1, 22)]

    _, checked = find(*steps)

    assert checked is not None
    assert len(checked.steps["s21"].args.holes) == 2


def test_s16_a_list_that_fans_out_too_far_is_refused() -> None:
    """Elements that are written in the plan count as steps."""
    wide = step(for_each=list(range(1_001)))

    assert errors(wide) == ["DR309 steps[0].for_each"]
    assert errors(wide, policy=Policy(max_fan_out=10_000, max_steps=1_000)) == ["DR108 steps"]


@pytest.mark.rigs
def test_s17_100000_faults_make_one_short_message() -> None:
    """The error of a hopeless plan fits on a page, and still counts all problems."""
    limits = PlanLimits(max_bytes=100_000_000, max_steps=1_000_000)

    message = str(refusal(text_of(*({"id": 1, "tool": "x" * 50} for _ in range(100_000))), limits=limits))

    assert len(message) <= MAX_ERROR_TEXT
    assert message.startswith("100000 problems:")


@pytest.mark.parametrize(
    "name", ["os.system", "tools.__init__", "eval", "", "Load", " load", "load\n", "x" * 10_000, "__call__"]
)
def test_s21_tools_are_found_by_their_exact_name_in_the_toolbox(name: str) -> None:
    """No import, no attribute, no evaluation."""
    found = errors(step(tool=name, args={"path": "x"}))

    assert found == ["DR201 steps[0].tool"]
    assert len(texts(step(tool=name))) < 400


def test_s22_a_tool_that_this_run_does_not_allow_is_refused() -> None:
    """A tool that is only registered may not be called."""
    assert errors(step(), toolbox=Toolbox(TOOLS, allow=["add"])) == ["DR202 steps[0].tool"]


def test_s23_arguments_outside_the_schema_are_refused() -> None:
    """Before the run starts."""
    assert errors(step(tool="add", args={"a": "1", "c": 2})) == ["DR204 steps[0].args.c", "DR205 steps[0].args.a"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("context", "DR206"), ("_ctx", "DR204"), ("run", "DR204"), ("secrets", "DR204"), ("self", "DR204")],
)
def test_s24_what_the_runtime_fills_in_is_not_for_plans(name: str, problem: str) -> None:
    """They are refused, and never merged: the context of a call, or anything like it."""
    assert errors(step(tool="send", args={"to": "x", name: {}})) == [f"{problem} steps[0].args.{name}"]
    assert errors(step("b"), step(tool="send", args={"to": "${b}", name: "${b}"})) == [
        f"{problem} steps[1].args.{name}"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{{7*7}}",
        "{0.__class__.__init__.__globals__}",
        "%(x)s",
        "$x",
        "#{x}",
        "<%= x %>",
        "{:>300000000}",
        "$(id)",
        "`id`",
    ],
)
def test_s30_s31_templates_of_other_systems_are_texts(text: str) -> None:
    """They are passed to the tool as they are written."""
    _, checked = find(value(text))

    assert checked is not None
    assert json.loads(checked.steps["a"].args.fill(lambda _: None)) == {"value": text}


def test_s30_what_begins_like_a_reference_is_one_or_refused() -> None:
    """There are no environment variables to read."""
    assert errors(value("${env:HOME}")) == ["DR301 steps[0].args.value"]
    assert errors(value("${7*7}")) == ["DR301 steps[0].args.value"]


def test_s32_references_are_keys_and_indices_and_nothing_more() -> None:
    """No slices, no filters, no calls, no parent."""
    references = ["b.x[-1]", "b[1e3]", "b[99999999999]", "b..x", "b.*", "b[*]", "b[?(@.x)]", "b.x()", "b|x", "b['x']"]
    references += ["b[0:2]", "b.x y", "b" + ".x" * 40, "../b", "b/x", "b[01]", "b.", "b["]

    for reference in references:
        assert errors(step("b"), value(f"${{{reference}}}")) == ["DR301 steps[1].args.value"], reference


@pytest.mark.parametrize("key", ["__class__", "__dict__", "__globals__", "keys", "_"])
def test_s32_keys_are_keys_of_json(key: str) -> None:
    """Without an output type, the name of an attribute is just a key."""
    assert errors(step("b"), value(f"${{b.{key}}}")) == []
    load = step("b", tool="load", args={"path": "x"})
    assert errors(load, value(f"${{b.{key}}}")) == ["DR303 steps[1].args.value"]


def test_s33_references_to_itself_and_to_nothing_are_refused() -> None:
    """Before the run, because they could never be filled in."""
    assert errors(value("${a}")) == ["DR305 steps[0].args.value"]
    assert errors(value("${b}")) == ["DR302 steps[0].args.value"]


@pytest.mark.parametrize("output", ["${secret}", {"$step": "secret"}, {"$ref": "steps.secret.output"}, ["$${x}", "${"]])
def test_s34_s35_what_a_tool_returns_is_data_for_ever(output: Any) -> None:
    """An output that looks like a reference is put in, and never searched for references."""
    _, checked = find(step("b"), value(["${b}"]), step("secret"))

    assert checked is not None
    filled = checked.steps["a"].args.fill(lambda reference: encode(output) if reference.step == "b" else 1 / 0)
    assert json.loads(filled) == {"value": [output]}


def test_s35_a_json_pointer_in_a_plan_is_data() -> None:
    """Only `$step` and braces are special."""
    assert errors(value({"$ref": "steps.secret.output"})) == []
