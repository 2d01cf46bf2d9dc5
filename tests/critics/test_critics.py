"""Critics without a model: rules, counts and schemas."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from dagrun import CountCritic, Critic, RuleCritic, SchemaCritic, State, Step, Verdict
from dagrun.errors import ContractError, MissingExtra
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.value import encode

pytestmark = pytest.mark.anyio

STEP = Step(id="load", tool="load_sales")


async def _verdict(critic: Critic, output: object) -> Verdict:
    return await critic.review(STEP, Outcome(State.SUCCEEDED, encode(output)))


async def _result(critic: Critic, output: object) -> str:
    return (await _verdict(critic, output)).result


def _schema(schema: Any) -> SchemaCritic:
    return SchemaCritic("shape", schema)


# Which steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "seen"),
    [
        ({}, ["load", "send", "clean"]),
        ({"steps": ["send"]}, ["send"]),
        ({"tools": ["load_sales"]}, ["load", "clean"]),
        ({"steps": ["send"], "tools": ["load_sales"]}, ["load", "send", "clean"]),
        ({"steps": ["nothing"]}, []),
    ],
)
def test_a_critic_looks_at_the_steps_and_the_tools_that_it_names_or_at_all(scope: Any, seen: list[str]) -> None:
    steps = [STEP, Step(id="send", tool="mail"), Step(id="clean", tool="load_sales")]

    for critic in (
        RuleCritic("r", lambda _: True, **scope),
        CountCritic("c", at_least=1, **scope),
        SchemaCritic("s", int, **scope),
    ):
        assert isinstance(critic, Critic)
        assert [step.id for step in steps if critic.applies_to(step)] == seen


async def _not_plain(_: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RuleCritic("", lambda _: True), "a critic needs a name"),
        (lambda: RuleCritic("c", lambda _: True, steps="load"), "critic c: steps must be a list of names"),
        (lambda: RuleCritic("c", lambda _: True, tools=[STEP]), "critic c: tools must be"),  # type: ignore[list-item]
        (lambda: RuleCritic("c", _not_plain), "critic c: its rule must be a plain function"),  # type: ignore[arg-type]
        (lambda: RuleCritic("c", True), "critic c: its rule must be a function, got bool"),  # type: ignore[arg-type]
        (lambda: CountCritic("c"), "critic c: it needs a threshold"),
        (lambda: CountCritic("c", "rows[x]", at_least=1), "critic c: 'rows[x]' is not a path: '[x]'"),
        (lambda: CountCritic("c", at_least=2, at_most=1), "no count is at least 2 and at most 1"),
        (lambda: CountCritic("c", expected=0), "expected must be more than 0"),
        (lambda: CountCritic("c", expected=5, factor=1), "factor must be more than 1"),
        (lambda: CountCritic("c", at_least="5"), "at_least must be a number, got '5'"),  # type: ignore[arg-type]
        (lambda: CountCritic("c", at_most=float("nan")), "at_most must be a number, got nan"),
        (lambda: CountCritic("c", expected=True), "expected must be a number, got True"),
        (lambda: _schema({"type": "nope"}), "critic shape: not a JSON Schema: type: "),
        (lambda: _schema({"const": {1}}), "critic shape: not a JSON Schema: Object of type set"),
        (lambda: _schema(5), "critic shape: 5 is no type of JSON values"),
        (lambda: _schema("NoSuchType"), "critic shape: 'NoSuchType' names a type that is not defined"),
    ],
)
def test_a_critic_that_makes_no_sense_is_refused_when_it_is_made(make: Callable[[], object], said: str) -> None:
    """Otherwise it would fail every step in the middle of a run or, worse, judge none."""
    with pytest.raises(ContractError, match=re.escape(said)):
        make()


# Rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (True, Verdict("pass")),
        (None, Verdict("pass")),
        (False, Verdict("fail", reason="the rule did not pass it")),
        ("too old", Verdict("fail", reason="too old")),
        ("", Verdict("fail", reason="the rule did not pass it")),
        (Verdict("surprising", 0.3, "so many"), Verdict("surprising", 0.3, "so many")),
    ],
)
async def test_what_a_rule_gives_becomes_a_verdict(answer: Any, verdict: Verdict) -> None:
    assert await _verdict(RuleCritic("c", lambda _: answer), 1) == verdict


async def test_a_rule_gets_the_output_as_data_of_its_own() -> None:
    """A rule that changes its copy must not change the input of later steps."""
    outcome = Outcome(State.SUCCEEDED, encode({"rows": [1, 2]}))
    critic = RuleCritic("c", lambda output: output["rows"].pop() == 2)

    assert [(await critic.review(STEP, outcome)).result for _ in range(2)] == ["pass", "pass"]


@pytest.mark.parametrize("answer", [0, 1, [], {"ok": True}])
async def test_an_answer_that_is_no_answer_is_an_error(answer: Any) -> None:
    """A count of faults would be true exactly if there are faults."""
    with pytest.raises(ContractError, match=f"critic c: its rule gave {type(answer).__name__}"):
        await _verdict(RuleCritic("c", lambda _: answer), 1)


async def test_an_async_rule_in_disguise_is_an_error() -> None:
    """Its coroutine would be true whatever it returns; it is also closed, so that Python does not warn."""
    with pytest.raises(ContractError, match="critic c: its rule gave coroutine"):
        await _verdict(RuleCritic("c", lambda output: _not_plain(output)), 1)  # type: ignore[arg-type, return-value]


async def test_what_a_rule_raises_reaches_the_run() -> None:
    """It fails the step there: an output that could not be judged has not passed."""
    with pytest.raises(KeyError):
        await _verdict(RuleCritic("c", lambda output: output["total"] > 0), {})


# Counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "result"),
    [
        (9, "fail"),
        (10, "surprising"),
        (19, "surprising"),
        (20, "pass"),
        (500, "pass"),
        (501, "surprising"),
        (1000, "surprising"),
        (1001, "fail"),
    ],
)
async def test_thresholds_hold_at_their_exact_values(count: int, result: str) -> None:
    """Hard limits come before the expected count."""
    critic = CountCritic("c", at_least=10, at_most=1000, expected=100, factor=5)

    assert await _result(critic, count) == result
    assert await _result(critic, [0] * count) == result


async def test_ten_times_the_expected_rows_is_a_surprise_unless_the_factor_says_otherwise() -> None:
    assert await _result(CountCritic("c", expected=50), 500) == "surprising"
    assert await _result(CountCritic("c", expected=50, factor=10), 500) == "pass"


@pytest.mark.parametrize("bound", [{"at_least": 0}, {"at_most": 0}])
async def test_a_threshold_of_zero_is_a_threshold(bound: Any) -> None:
    """It differs from no threshold."""
    assert await _result(CountCritic("c", **bound), 0) == "pass"
    assert await _result(CountCritic("c", **bound), -1 if "at_least" in bound else 1) == "fail"


@pytest.mark.parametrize("path", ["rows", "total.n", 'tables[1]["row count"]', "tables[0]"])
async def test_the_count_is_found_at_a_path(path: str) -> None:
    """The value there is a list, which is counted, or a number."""
    output = {"rows": [1, 2, 3], "total": {"n": 3}, "tables": [[{}, {}, {}], {"row count": 3.0}]}

    assert await _result(CountCritic("c", path, at_least=3, at_most=3), output) == "pass"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ({}, "nothing to count at rows: there is no field rows"),
        ([1], "nothing to count at rows: .rows asks for a field of a list of 1"),
        ({"rows": None}, "rows is null, neither a list nor a number"),
        ({"rows": True}, "rows is a boolean, neither a list nor a number"),
        ({"rows": "123"}, "rows is a text of 3 characters, neither a list nor a number"),
        ({"rows": {"a": 1}}, "rows is an object of 1 fields, neither a list nor a number"),
        ({"rows": 0}, "rows: 0, at least 1 wanted"),
        ({"rows": [0] * 8}, "rows: 8, at most 7 wanted"),
        ({"rows": 7}, "rows: 7, over 3 times the 2 expected"),
    ],
)
async def test_the_reason_of_a_count_says_where_and_how_many(output: Any, reason: str) -> None:
    """A value that cannot be counted fails: a renamed field must not disable the critic."""
    verdict = await _verdict(CountCritic("c", "rows", at_least=1, at_most=7, expected=2, factor=3), output)

    assert (verdict.result == "pass", verdict.reason) == (False, reason)


async def test_too_few_are_a_surprise_too() -> None:
    verdict = await _verdict(CountCritic("c", expected=100), 19)

    assert verdict.reason == "the output: 19, under 1/5 of the 100 expected"


@pytest.mark.parametrize("count", [10**400, -(10**400)])
async def test_a_count_that_no_float_can_hold_is_a_surprise_and_no_crash(count: int) -> None:
    """The count comes from an output, so it may have any size."""
    verdict = await _verdict(CountCritic("c", expected=100), count)

    assert (verdict.result, len(verdict.reason) < 150) == ("surprising", True)


# Shapes -----------------------------------------------------------------------------------------------------


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(le=9)


class Dog(BaseModel):
    kind: Literal["dog"]


PET = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "lives": {"type": "integer", "maximum": 9},
        "name": {"pattern": "^[A-Z]"},
        "owner": False,
        "toys": {"type": "array", "items": {"$ref": "#/$defs/toy"}},
    },
    "required": ["kind"],
    "additionalProperties": False,
    "$defs": {"toy": {"type": "string", "maxLength": 3}},
}


@pytest.mark.parametrize("shape", [Cat, PET, MappingProxyType(PET)], ids=["type", "schema", "mapping"])
async def test_the_shape_decides(shape: Any) -> None:
    assert await _verdict(_schema(shape), {"kind": "cat", "lives": 9}) == Verdict("pass")
    assert await _result(_schema(shape), {"kind": "cat", "lives": 10}) == "fail"
    assert await _result(_schema(shape), {"lives": 9}) == "fail"
    assert await _result(_schema(shape), []) == "fail"


SHAPES: list[Any] = [int, float, str, bool, None, list[int], dict[str, int]]


@pytest.mark.parametrize(
    ("output", "shapes"),
    [
        (1, [int, float]),
        (1.5, [float]),
        ("1", [str]),
        (True, [bool]),
        (None, [None]),
        ([1], [list[int]]),
        ([1.5], []),
        ({"a": 1}, [dict[str, int]]),
    ],
)
async def test_types_are_held_strictly(output: Any, shapes: list[Any]) -> None:
    """A text or a bool is not a number."""
    passed = [shape for shape in SHAPES if await _result(_schema(shape), output) == "pass"]

    assert passed == shapes


@pytest.mark.parametrize(
    ("shape", "output", "reason"),
    [
        (Cat, {"kind": "cat", "lives": "SECRET"}, "lives: Input should be a valid integer"),
        (Cat, {"kind": "SECRET", "lives": 1}, "kind: Input should be 'cat'"),
        (list[int], [1, "SECRET"], "1: Input should be a valid integer"),
        (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "SECRET"}, "'kind' should be one of 'cat', 'dog'"),
        (PET, {"kind": "SECRET"}, 'kind: expected enum ["cat", "dog"], got a text of 6 characters'),
        (PET, {"kind": "cat", "lives": ["SECRET"]}, 'lives: expected type "integer", got a list of 1'),
        (PET, {"kind": "cat", "lives": 4711}, "lives: expected maximum 9, got a number"),
        (PET, {"kind": "cat", "name": "sECRET"}, 'name: expected pattern "^[A-Z]", got a text of 6 characters'),
        (PET, {"kind": "cat", "toys": ["a", "SECRET"]}, "toys[1]: expected maxLength 3, got a text of 6 characters"),
        (PET, {"kind": "cat", "owner": "SECRET"}, "the output: there is something that the schema forbids"),
        (PET, {"kind": "cat", "more": "SECRET"}, "the output: there are fields that the schema does not have"),
        (PET, {"name": "Tom"}, "the output: 'kind' is a required property"),
        ({"items": {"not": {}}}, ["SECRET"], "[0]: expected not {}, got a text of 6 characters"),
    ],
)
async def test_the_reason_says_where_and_what_was_expected_but_no_value(shape: Any, output: Any, reason: str) -> None:
    """A reason is recorded, displayed and sent to the planner; an output may hold secrets."""
    verdict = await _verdict(_schema(shape), output)

    assert (verdict.result, verdict.reason) == ("fail", reason)
    assert not re.search("SECRET|4711", verdict.reason, re.IGNORECASE)


@pytest.mark.parametrize("shape", [list[str], {"items": {"type": "string"}}], ids=["type", "schema"])
async def test_of_many_faults_the_first_few_are_named(shape: Any) -> None:
    verdict = await _verdict(_schema(shape), [1] * 50_000)

    assert (verdict.reason.count(";"), len(verdict.reason) < 500) == (5, True)
    assert "more" in verdict.reason


async def test_a_long_key_does_not_push_out_what_was_expected() -> None:
    verdict = await _verdict(_schema({"additionalProperties": {"type": "string"}}), {"k\n" * 5_000: 1})

    assert verdict.reason.endswith('expected type "string", got a number')
    assert "\n" not in verdict.reason


async def test_a_schema_is_of_the_draft_that_it_names() -> None:
    """In draft 7, a list under items describes the elements one by one; 2020-12 refuses it."""
    items = {"items": [{"type": "integer"}, {"type": "string"}]}
    draft_7 = _schema({"$schema": "http://json-schema.org/draft-07/schema#", **items})

    assert [await _result(draft_7, output) for output in ([1, "a"], ["a", 1])] == ["pass", "fail"]
    with pytest.raises(ContractError, match="items"):
        _schema(items)


@pytest.mark.filterwarnings("ignore:Automatically retrieving:DeprecationWarning")
async def test_what_a_schema_refers_to_is_never_fetched(tmp_path: Path) -> None:
    """By default, jsonschema opens every address that a reference names, in the event loop."""
    other = tmp_path / "other.json"
    other.write_text('{"type": "integer"}')

    with pytest.raises(Exception, match=r"Unresolvable: file:.*other\.json"):
        await _verdict(_schema({"$ref": other.as_uri()}), 1)


async def test_what_the_caller_does_to_its_schema_later_changes_nothing() -> None:
    schema: dict[str, Any] = {"properties": {"n": {"type": "integer"}}}
    critic = _schema(schema)
    schema["properties"]["n"]["type"] = "string"

    assert await _result(critic, {"n": 1}) == "pass"


def test_without_jsonschema_a_type_still_works_and_a_schema_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The base install lacks jsonschema. The error comes when the critic is made, not at the first output."""
    monkeypatch.setitem(sys.modules, "jsonschema", None)

    _schema(Cat)
    with pytest.raises(MissingExtra, match=r"pip install 'dagrun-engine\[jsonschema\]'"):
        _schema(PET)
