"""Recorded contracts: stand-ins that pass every check that the tools passed, and differences from the tools of now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagrun_tools
from acts import TOOLS as ACTS
from checking import TOOLBOX
from dagrun import (
    Add,
    ApprovalRule,
    CheckedPlan,
    Patch,
    Plan,
    PlanningRule,
    Policy,
    PoolLimits,
    RetryRule,
    Step,
    Toolbox,
    Unavailable,
    read_plan,
)
from dagrun.api.tool_contracts import (
    check_recorded_plan,
    contract_of,
    opening_differences,
    policy_in_full,
    recorded_tool,
    recorded_toolbox,
)
from dagrun.codec import decode_event, encode_event
from dagrun.errors import CannotResume, ContractError, RecordRefused
from dagrun.events import RunStarted
from dagrun.kernel.checks.check_plan import find_problems
from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.waves import in_waves
from dagrun.kernel.graph.patches.check_patch import Splicer
from dagrun.kernel.model.event import Opening
from dagrun.kernel.model.tool import AnyTool, make_tool
from dagrun.kernel.model.value import store_text
from folders import DATA
from played import Played
from random_cases import make_case

Q4: Final = DATA / "q4_plan.json"


def opening_of(
    toolbox: Toolbox, plan: Plan | None = None, policy: Policy | None = None, inputs: bytes = b"{}", **facts: Any
) -> Opening:
    """Return the opening of a run, as it is read from its record."""
    tools = {name: contract_of(toolbox[name]) for name in toolbox if name in toolbox.allowed}
    made = Opening(
        plan=plan or Plan(steps=()), policy=policy or Policy(), inputs=store_text(inputs), tools=tools, **facts
    )
    back = decode_event(encode_event(RunStarted(1, 0.0, "r", 0, "", 0.0, made)))
    assert isinstance(back, RunStarted)
    assert back.opening is not None
    assert back.opening == made
    return back.opening


def facts_of(step: CheckedStep) -> Mapping[str, Any]:
    """Return everything that the check works out about a step; of its tools, what the runtime and patches use."""
    facts = {name: getattr(step, name) for name in CheckedStep.__slots__ if name not in ("tool", "fallback")}
    return facts | {"tool": contract_of(step.tool), "fallback": step.fallback and contract_of(step.fallback)}


def assert_alike(plan: Plan, toolbox: Toolbox, policy: Policy | None = None, inputs: Any = None) -> CheckedPlan:
    """Check a plan with the tools and with their stand-ins, and compare the results."""
    problems, checked = find_problems(plan, toolbox, policy, inputs=inputs)
    stand_ins = recorded_toolbox(opening_of(toolbox))
    same_problems, same = find_problems(plan, stand_ins, policy, inputs=inputs)

    assert same_problems == problems
    assert checked is not None, problems
    assert same is not None
    assert {id_: facts_of(step) for id_, step in same.steps.items()} == {
        id_: facts_of(step) for id_, step in checked.steps.items()
    }
    assert (same.after, same.output, same.is_ordered) == (checked.after, checked.output, checked.is_ordered)
    return same


# Stand-ins ------------------------------------------------------------------------------------------------------------

PLANS: Final = {
    "references": [
        {"id": "load", "tool": "load", "args": {"path": "${input.path}"}},
        {
            "id": "clean",
            "tool": "clean",
            "args": {"rows": "${load.rows}", "options": {"depth": 2}},
            "executor": "process",
        },
        {
            "id": "count",
            "tool": "count",
            "args": {"rows": "${clean}"},
            "when": {"ref": "load.count", "op": ">", "value": 0},
        },
    ],
    "aliases": [{"id": "send", "tool": "send", "args": {"recipient": "ann", "body": "hi"}, "confidence": 0.2}],
    "plain functions": [
        {"id": "crunch", "tool": "crunch", "args": {"n": 3}, "executor": "process"},
        {"id": "plain", "tool": "plain", "executor": "thread", "depends_on": ["crunch"]},
    ],
    "for_each": [
        {"id": "all", "tool": "add", "for_each": [1, 2], "args": {"a": "${item}"}, "max_parallel": 1},
        {"id": "show", "tool": "anything", "args": {"value": "${all}"}, "on_failure": "skip"},
    ],
    "the same twice": [{"id": "a", "tool": "add", "args": {"a": 1}}, {"id": "b", "tool": "add", "args": {"a": 1}}],
}


@pytest.mark.parametrize("steps", PLANS.values(), ids=PLANS.keys())
def test_a_plan_is_checked_alike_without_its_tools(steps: list[dict[str, Any]]) -> None:
    """A record is folded on machines without the tools, and must give the same state."""
    policy = Policy(approve=[ApprovalRule(tool="send")], timeout=3.0, max_cost=1.0, max_calls_by_tool={"load": 2})

    assert_alike(Plan.model_validate({"steps": steps}), TOOLBOX, policy, {"path": "a.csv"})


def test_the_known_plan_is_checked_alike_without_its_tools() -> None:
    """The plan of six steps, with the ready-made tools."""
    toolbox = Toolbox(dagrun_tools)

    assert_alike(read_plan(Q4, toolbox=toolbox), toolbox)


@given(st.integers(0, 10**6))
def test_random_plans_are_checked_alike_without_their_tools(seed: int) -> None:
    """Whatever their structure, their limits and their effects."""
    case = make_case(seed)

    assert_alike(case.plan, ACTS, case.policy)


REFUSED: Final = {
    "no such field": {"id": "x", "tool": "count", "args": {"rows": "${load.row}"}},
    "wrong type": {"id": "x", "tool": "show", "args": {"text": "${load.rows}"}},
    "wrong name": {"id": "x", "tool": "count", "args": {"row": "${load.rows}"}},
    "left out": {"id": "x", "tool": "send", "args": {"body": "${load.note}"}},
    "the context": {"id": "x", "tool": "send", "args": {"recipient": "${load.note}", "context": 1}},
    "no such tool": {"id": "x", "tool": "counts"},
    "wrong executor": {"id": "x", "tool": "crunch", "args": {"n": "${load.count}"}, "executor": "coroutine"},
    "no thread": {"id": "x", "tool": "add", "args": {"a": "${load.count}"}, "executor": "thread"},
    "fallback": {"id": "x", "tool": "count", "args": {"rows": "${load.rows}"}, "fallback": "send"},
}


@pytest.mark.parametrize("step", REFUSED.values(), ids=REFUSED.keys())
def test_a_plan_with_faults_is_refused_alike(step: dict[str, Any]) -> None:
    """Names and types in a schema count for the stand-in, too."""
    plan = Plan(steps=[Step(id="load", tool="load", args={"path": "a"}), Step.model_validate(step)])
    problems, checked = find_problems(plan, TOOLBOX)

    assert checked is None
    assert find_problems(plan, recorded_toolbox(opening_of(TOOLBOX))) == (problems, None)


def test_a_patch_is_checked_alike_without_the_tools() -> None:
    """A recorded splice is checked again when it is folded."""
    steps = [Step(id="load", tool="load", args={"path": "a"})]
    patch = Patch(edits=[Add(step=Step(id="more", tool="load", args={"path": "${load.note}"}))])
    checked = []
    for toolbox in (TOOLBOX, recorded_toolbox(opening_of(TOOLBOX))):
        made, problems = Splicer(Played(steps, toolbox).graph).check(patch)
        assert made is not None, problems
        checked.append({id_: facts_of(step) for id_, step in made.steps.items()})

    assert checked[0] == checked[1]


def _double(value: list[int], times: tuple[int, ...] = (1, 2), *, name: str = "x") -> dict[str, list[int]]:
    """Double.

    Args:
        value: What.
    """
    raise NotImplementedError


async def _find_out(key: str) -> bool:
    raise NotImplementedError


FULL: Final = make_tool(
    _double,
    name="double",
    effect="idempotent",
    executor="process",
    timeout=5,
    pool="cpu",
    needs_approval=True,
    fallback="other",
    reconcile=_find_out,
    reconcile_after=3,
    max_tokens=10,
    max_cost=0.5,
    output_limit=1000,
    version="2",
    stream_safe=True,
)


def test_a_stand_in_has_the_contract_of_the_real_one() -> None:
    """If it is recorded again, the contract is equal."""
    for tool in (FULL, *TOOLBOX.values(), *Toolbox(dagrun_tools).values()):
        contract = contract_of(tool)
        stand_in = recorded_tool(contract)

        assert contract_of(stand_in) == contract == json.loads(json.dumps(contract))
        assert type(contract["effect"]) is str
        assert stand_in.is_async == tool.is_async
        assert stand_in.describe() == json.loads(json.dumps(tool.describe()))


def test_a_stand_in_cannot_be_called() -> None:
    """It stands for the contract of a tool, not for its function."""
    plain, later = recorded_tool(contract_of(FULL)), recorded_tool(contract_of(TOOLBOX["add"]))
    with pytest.raises(ContractError, match="double is known from a record only"):
        plain([1])
    with pytest.raises(ContractError, match="add is known from a record only"):
        anyio.run(later.function)
    for tool in (plain, later):
        with pytest.raises(ContractError):
            tool.output.encode(1, 10)
    assert plain.reconcile is not None
    with pytest.raises(ContractError):
        plain.reconcile("key")


@pytest.mark.parametrize(
    ("field", "value"),
    [("effect", "harmless"), ("required", "value"), ("arguments", []), ("timeout", "5"), ("function", "os:system")],
)
def test_what_is_no_contract_is_refused(field: str, value: object) -> None:
    """A record comes from outside, and no name in it is looked up."""
    with pytest.raises(RecordRefused, match=field):
        recorded_tool({**contract_of(FULL), field: value})
    short = contract_of(FULL)
    del short["version"]
    with pytest.raises(RecordRefused, match="version"):
        recorded_tool(short)


# What is different now ------------------------------------------------------------------------------------------------


def _other(function: Any, **options: Any) -> AnyTool:
    """The full tool with another function or other options."""
    kept = ("effect", "executor", "timeout", "pool", "needs_approval", "fallback", "max_tokens", "max_cost")
    more = ("output_limit", "version", "stream_safe", "reconcile", "reconcile_after")
    said = {name: getattr(FULL, name) for name in (*kept, *more)}
    return make_tool(function, **{**said, "name": "double", **options})


_NOTHING_ELSE: Final = {"timeout": None, "needs_approval": None, "reconcile": None, "reconcile_after": None}


def _takes_texts(value: list[str], times: tuple[int, ...] = (1, 2), *, name: int = 0) -> dict[str, list[int]]:
    raise NotImplementedError


def _takes_less(value: list[int], name: str) -> dict[str, list[int]]:
    raise NotImplementedError


def _takes_more(
    value: list[int], times: tuple[int, ...] = (1, 3), *, name: str = "x", level: Literal["a"] = "a"
) -> dict[str, list[int]]:
    raise NotImplementedError


def _gives_less(value: list[int], times: tuple[int, ...] = (1, 2), *, name: str = "x") -> None:
    raise NotImplementedError


def _says_more(value: list[int], times: tuple[int, ...] = (1, 2), *, name: str = "x") -> dict[str, list[int]]:
    """Double, in other words.

    Args:
        value: What is doubled.
        name: Of it.
    """
    raise NotImplementedError


TOOL_DIFFERENCES: Final = {
    "none": (_other(_double), []),
    "other words": (_other(_says_more), []),
    "effect": (_other(_double, effect="effectful"), ["effect was idempotent, is effectful"]),
    "options": (
        _other(_double, pool="gpu", version="3", stream_safe=False, **_NOTHING_ELSE),
        [
            "version was 2, is 3",
            "timeout was 5, is none",
            "pool was cpu, is gpu",
            "needs_approval was true, is none",
            "stream_safe was true, is false",
            "can_reconcile was true, is false",
            "reconcile_after was 3, is none",
        ],
    ),
    "executor and ceilings": (
        _other(_double, executor="thread", fallback=None, max_tokens=None, max_cost=1, output_limit=5),
        [
            "executor was process, is thread",
            "fallback was other, is none",
            "max_tokens was 10, is none",
            "max_cost was 0.5, is 1",
            "output_limit was 1000, is 5",
        ],
    ),
    "types of arguments": (
        _other(_takes_texts),
        [
            'argument value was {"items":{"type":"integer"},"type":"array"}, '
            'is {"items":{"type":"string"},"type":"array"}',
            "argument name was string, is integer",
        ],
    ),
    "arguments that are gone": (
        _other(_takes_less),
        [
            "argument times no longer exists",
            'argument name was {"default":"x","type":"string"}, is {"type":"string"}',
            "argument name was optional, is required",
        ],
    ),
    "arguments that are new": (
        _other(_takes_more),
        [
            'argument times was {"default":[1,2],"items":{"type":"integer"},"type":"array"}, '
            'is {"default":[1,3],"items":{"type":"integer"},"type":"array"}',
            "argument level was not there",
        ],
    ),
    "output": (_other(_gives_less), ["output was object, is null"]),
}


@pytest.mark.parametrize(("tool", "lines"), TOOL_DIFFERENCES.values(), ids=TOOL_DIFFERENCES.keys())
def test_a_changed_tool_is_told_in_a_line_each(tool: AnyTool, lines: list[str]) -> None:
    """These lines help to decide whether to resume a run; other descriptions of the same call are no difference."""
    recorded = opening_of(Toolbox([FULL]))

    assert opening_differences(recorded, Policy(), Toolbox([tool])) == [f"tool double: {line}" for line in lines]


def _titled(title: str, description: str = "") -> str:
    raise NotImplementedError


def _titled_otherwise(title: int, description: int = 0) -> str:
    raise NotImplementedError


def test_an_argument_may_be_called_like_a_word_of_schemas() -> None:
    """Texts of a schema are not compared; an argument with the name of such a text is."""
    was, now = (make_tool(function, name="note", effect="read") for function in (_titled, _titled_otherwise))

    assert opening_differences(opening_of(Toolbox([was])), Policy(), Toolbox([now])) == [
        "tool note: argument title was string, is integer",
        "tool note: argument description was string, is integer",
    ]


def test_a_field_of_an_output_is_told_by_its_name() -> None:
    """References use these names."""
    recorded = opening_of(Toolbox([TOOLBOX["load"]]))
    contract = json.loads(json.dumps(recorded.tools["load"]))
    contract["output"]["properties"]["count"] = {"type": "string"}
    del contract["output"]["properties"]["note"]
    contract["output"]["$defs"]["Row"]["properties"]["total"] = {"type": "integer"}

    found = opening_differences(replace(recorded, tools={"load": contract}), Policy(), TOOLBOX)

    assert found[:2] == [
        "tool load: output field count was string, is integer",
        "tool load: output field note was not there",
    ]
    assert found[2].startswith('tool load: the rest of the schema of its output fields was {"$defs":{"Row":')


def test_a_tool_that_is_missing_or_not_allowed_is_told() -> None:
    """Additional tools are no difference, because no recorded step calls them."""
    recorded = opening_of(Toolbox([TOOLBOX["add"], TOOLBOX["count"]]))

    assert opening_differences(recorded, Policy(), TOOLBOX) == []
    assert opening_differences(recorded, Policy(), Toolbox([TOOLBOX["add"]])) == ["tool count no longer exists"]
    assert opening_differences(recorded, Policy(), Toolbox(TOOLBOX, allow=["count"])) == [
        "tool add is not allowed any more"
    ]


RULE: Final = ApprovalRule(tool="pay")
_POOL: Final = '{"max_running":1,"requests_per_minute":null,"tokens_per_minute":null}'
POLICY_DIFFERENCES: Final[dict[str, tuple[Policy, Policy, list[str]]]] = {
    "none": (Policy(max_cost=5.0), Policy(max_cost=5), []),
    "said or by default": (Policy(max_replans=3, retry=RetryRule(max_attempts=2)), Policy(), []),
    "in full": (policy_in_full(Policy(max_cost=1)), Policy(max_cost=1), []),
    "in the places of the last release": (
        Policy.model_validate_json(
            '{"max_planner_calls":3,"max_pending":100,"max_running_by_pool":{"a":1},"rate_by_pool":{}}'
        ),
        Policy(planning=PlanningRule(max_calls=3), pools={"a": PoolLimits(max_running=1)}),
        [],
    ),
    "a pool": (Policy(), Policy(pools={"a": PoolLimits(max_running=1)}), [f"pools.a was none, is {_POOL}"]),
    "a ceiling": (Policy(max_cost=5.0), Policy(), ["max_cost was 5.0, is none"]),
    "a word": (Policy(), Policy(planning=PlanningRule(brief="full")), ["planning.brief was errors, is full"]),
    "a part": (Policy(), Policy(retry=RetryRule(max_attempts=5)), ["retry.max_attempts was 2, is 5"]),
    "by tool": (
        Policy(max_calls_by_tool={"a": 1, "b": 2}),
        Policy(max_calls_by_tool={"b": 3, "c": 4}),
        ["max_calls_by_tool.a was 1, is none", "max_calls_by_tool.b was 2, is 3", "max_calls_by_tool.c was none, is 4"],
    ),
    "a list": (Policy(planning=PlanningRule(stream_safe=["a"])), Policy(), ['planning.stream_safe was ["a"], is []']),
}


@pytest.mark.parametrize(("was", "now", "lines"), POLICY_DIFFERENCES.values(), ids=POLICY_DIFFERENCES.keys())
def test_a_changed_policy_is_told_in_a_line_each(was: Policy, now: Policy, lines: list[str]) -> None:
    """The values of the policy count, not which of them were written."""
    recorded = opening_of(Toolbox(), policy=was)

    assert opening_differences(recorded, now, Toolbox()) == [f"policy: {line}" for line in lines]


def test_a_rule_that_is_gone_is_told() -> None:
    """A resumed run must not lose an approval."""
    found = opening_differences(opening_of(Toolbox(), policy=Policy(approve=[RULE])), Policy(), Toolbox())

    assert len(found) == 1
    assert found[0].startswith('policy: approve was [{"tool":"pay",')


def test_critics_and_executors_are_told() -> None:
    """An additional critic would judge outputs that were not judged before; an additional executor changes nothing."""
    recorded = opening_of(Toolbox(), critics=("rules", "rubric"), executors=("ray",))

    assert opening_differences(recorded, Policy(), Toolbox(), ["rubric", "rules"], ["ray", "dask"]) == []
    assert opening_differences(recorded, Policy(), Toolbox(), ["rules", "taste"], []) == [
        "critic rubric no longer exists",
        "critic taste was not there",
        "executor ray no longer exists",
    ]


def test_a_policy_in_full_says_all_and_means_the_same() -> None:
    """A record must not depend on the defaults of the release that reads it."""
    policy = Policy(max_running=2, approve=[RULE])
    full = policy_in_full(policy)

    assert full == policy
    assert full.model_fields_set == set(Policy.model_fields)
    assert full.retry.model_fields_set == set(RetryRule.model_fields)
    assert policy.model_fields_set == {"max_running", "approve"}
    recorded = opening_of(Toolbox(), policy=full).policy
    assert (recorded, recorded.model_fields_set) == (policy, set(Policy.model_fields))


# The plan of the record -----------------------------------------------------------------------------------------------

STEPS: Final = [
    Step(id="load", tool="load", args={"path": "${input.path}"}, executor="ray"),
    Step(id="count", tool="count", args={"rows": "${load.rows}"}),
    Step(id="add", tool="add", args={"a": 1}),
    Step(id="last", tool="add", args={"a": "${add}"}),
]


def test_the_plan_of_a_record_is_checked_with_all_that_it_was_opened_with() -> None:
    """The inputs, the executors of the host, and whether it runs in waves."""
    opening = opening_of(TOOLBOX, Plan(steps=STEPS), inputs=b'{"path":"a.csv"}', executors=("ray",))
    toolbox = recorded_toolbox(opening)

    checked = check_recorded_plan(opening, toolbox, opening.policy)
    waves = check_recorded_plan(replace(opening, in_waves=True), toolbox, opening.policy)

    assert list(checked.steps) == ["load", "count", "add", "last"]
    assert checked.steps["load"].executor == "ray"
    assert checked.executors == {"ray": None}
    assert not any(step.gates for step in checked.steps.values())
    assert waves == in_waves(checked)
    assert waves.steps["count"].gates == {"add"}


def test_a_record_without_steps_gives_a_plan_without_steps() -> None:
    """The planner had not written it yet."""
    opening = opening_of(TOOLBOX, Plan(steps=(), goal="count"), executors=("ray",))

    checked = check_recorded_plan(opening, TOOLBOX, Policy(max_running=2))

    assert (checked.plan, list(checked.steps), list(checked.executors)) == (opening.plan, [], ["ray"])
    assert checked.policy == Policy(max_running=2)


def test_a_plan_that_does_not_pass_any_more_cannot_be_resumed() -> None:
    """Every problem is named, as in the first check."""
    opening = opening_of(TOOLBOX, Plan(steps=STEPS), inputs=b"{}", executors=("ray",))

    with pytest.raises(CannotResume) as caught:
        check_recorded_plan(opening, Toolbox([TOOLBOX["load"], TOOLBOX["load_copy"], TOOLBOX["add"]]), Policy())

    assert [line.partition(" ")[0] for line in caught.value.differences] == ["DR306", "DR201"]
    assert "step count calls 'count', which is not a known tool" in str(caught.value)


def test_inputs_that_are_not_in_the_record_are_missed() -> None:
    """A policy may keep them out of the record; then they must be given again."""
    opening = replace(opening_of(TOOLBOX, Plan(steps=STEPS)), inputs=Unavailable("they hold a secret"))

    with pytest.raises(CannotResume, match="they hold a secret"):
        check_recorded_plan(opening, TOOLBOX, Policy())
