"""The fields of a policy: few at the top, others in rules; those of the last release are taken, with a warning."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest
from pydantic import ValidationError

import dagrun
from dagrun import PlanningRule, Policy, PoolLimits, QuestionRule, RetryRule, TriggerKind, WorkerLimits
from dagrun.kernel.model.policy import present_path

MOST_FIELDS: Final = 36

# What the last release took at the top, and what it is now.
MOVED: Final[dict[str, tuple[Any, dict[str, Any]]]] = {
    "max_replans_per_step": (2, {"planning": PlanningRule(max_replans_per_step=2)}),
    "max_planner_calls": (7, {"planning": PlanningRule(max_calls=7)}),
    "max_edits": (9, {"planning": PlanningRule(max_edits=9)}),
    "replan_on": (["failed"], {"planning": PlanningRule(replan_on=[TriggerKind.FAILED])}),
    "planner_timeout": (5.0, {"planning": PlanningRule(timeout=5.0)}),
    "brief": ("full", {"planning": PlanningRule(brief="full")}),
    "max_brief_bytes": (10, {"planning": PlanningRule(max_brief_bytes=10)}),
    "stream_safe": (["pay"], {"planning": PlanningRule(stream_safe=["pay"])}),
    "unknown_tools": ("escalate", {"planning": PlanningRule(unknown_tools="escalate")}),
    "answer_within": (60.0, {"questions": QuestionRule(answer_within=60.0)}),
    "default_answer": ("approve", {"questions": QuestionRule(default_answer="approve")}),
    "max_pending": (3, {"questions": QuestionRule(max_pending=3)}),
    "max_threads": (4, {"workers": WorkerLimits(max_threads=4)}),
    "max_stuck_threads": (2, {"workers": WorkerLimits(max_stuck_threads=2)}),
    "max_processes": (1, {"workers": WorkerLimits(max_processes=1)}),
    "max_process_memory": (10**9, {"workers": WorkerLimits(max_process_memory=10**9)}),
    "max_running_by_pool": ({"shop": 2}, {"pools": {"shop": PoolLimits(max_running=2)}}),
    "rate_by_pool": ({"shop": PoolLimits(tokens_per_minute=9)}, {"pools": {"shop": PoolLimits(tokens_per_minute=9)}}),
}


def test_a_policy_has_few_fields() -> None:
    """A list that nobody reads to its end hides what it has; a new field joins a rule, or takes the place of one."""
    assert len(Policy.model_fields) <= MOST_FIELDS


@pytest.mark.parametrize("name", MOVED)
def test_a_field_of_the_last_release_is_taken_to_its_place(name: str) -> None:
    given, now = MOVED[name]
    group = next(iter(now))

    with pytest.warns(
        DeprecationWarning, match=rf"policy: {name} is now {group}\..*the old name is removed in 0.4"
    ) as told:
        policy = Policy.model_validate({name: given})
    assert policy == Policy(**now)
    with pytest.warns(DeprecationWarning, match=f"policy: {name} is now {group}"):
        changed = Policy(max_steps=3).model_copy(update={name: given, "max_running": 2})
    assert changed == Policy(max_steps=3, max_running=2, **now)
    with pytest.warns(DeprecationWarning, match=f"policy: {name} is now {group}"):
        read = getattr(policy, name)
    assert read == (tuple(given) if isinstance(given, list) else given)
    assert len(told) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: Policy(max_threads=3),  # type: ignore[call-arg]
        lambda: Policy().with_fields({"max_threads": 2}),
        lambda: Policy().model_copy(update={"max_threads": 2}),
        lambda: dagrun.RunVariant(policy={"max_threads": 1}),
        lambda: present_path("max_threads"),
    ],
)
def test_the_warning_names_the_line_of_the_user(call: Callable[[], object]) -> None:
    with pytest.warns(DeprecationWarning, match="max_threads") as told:
        call()

    assert [(each.filename, each.lineno) for each in told] == [(__file__, call.__code__.co_firstlineno)]


def test_both_pool_limits_of_the_last_release_meet_in_one_pool() -> None:
    rate = {"requests_per_minute": 60}

    with pytest.warns(DeprecationWarning, match="max_running_by_pool is now pools.NAME.max_running"):
        policy = Policy.model_validate({"max_running_by_pool": {"a": 1, "b": 2}, "rate_by_pool": {"a": rate}})

    limits = {"a": PoolLimits(max_running=1, requests_per_minute=60), "b": PoolLimits(max_running=2)}
    assert policy == Policy(pools=limits)
    with pytest.warns(DeprecationWarning, match="Rate is now dagrun.PoolLimits"):
        assert getattr(dagrun, "Rate") is PoolLimits  # noqa: B009 - type checkers know no old name


def test_a_copy_replaces_limits_of_pools_by_their_old_names() -> None:
    """As in the last release: the limits of the other kind stay, and a pool without limits goes."""
    pools = {"a": PoolLimits(max_running=1, tokens_per_minute=9), "b": PoolLimits(requests_per_minute=6)}
    policy = Policy(pools=pools)

    with pytest.warns(DeprecationWarning, match="rate_by_pool is now pools"):
        without_rates = policy.model_copy(update={"rate_by_pool": {}})
    with pytest.warns(DeprecationWarning, match="max_running_by_pool is now pools"):
        other = policy.model_copy(update={"max_running_by_pool": {"b": 2}})

    assert without_rates == Policy(pools={"a": PoolLimits(max_running=1)})
    assert other.pools == {
        "a": PoolLimits(tokens_per_minute=9),
        "b": PoolLimits(max_running=2, requests_per_minute=6),
    }


@pytest.mark.parametrize("name", MOVED)
def test_two_places_for_one_rule_are_refused(name: str) -> None:
    """One of them would be lost."""
    given, now = MOVED[name]
    group = next(iter(now))

    with pytest.raises(ValidationError, match=f"has {group} and, by its old name, {name}: move {name} to {group}"):
        Policy.model_validate({name: given, group: {}})


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"max_running_by_pool": 3}, "max_running_by_pool: input should be a table"),
        ({"rate_by_pool": {"a": 3}}, "rate_by_pool.a: input should be a table"),
        ({"breif": "full"}, r"breif\n  unknown field breif; did you mean planning.brief\?"),
        ({"planing": {}}, "planing\n  unknown field planing; did you mean planning"),
        (
            {"planning": {"planner_timeout": 3}},
            r"planning.planner_timeout\n  unknown field planner_timeout; did you mean timeout\?",
        ),
    ],
)
def test_a_field_that_fits_no_place_is_refused(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Policy.model_validate(fields)


def test_a_record_of_the_last_release_is_read_without_a_word() -> None:
    """Nobody can change what is written there; in the policy of a record, every field is said."""
    text = (
        '{"max_running":4,"max_running_by_pool":{"a":1},"rate_by_pool":{},"max_planner_calls":null,"max_edits":1000,'
        '"planner_timeout":60.0,"replan_on":["failed"],"answer_within":null,"max_threads":40,"primary_metric":""}'
    )

    policy = Policy.model_validate_json(text)

    pools = {"a": PoolLimits(max_running=1)}
    assert policy == Policy(max_running=4, pools=pools, planning=PlanningRule(replan_on=[TriggerKind.FAILED]))


def test_a_policy_is_changed_field_by_field() -> None:
    """A table leaves its other fields as they are, and a pool its other limits."""
    pools = {"a": PoolLimits(max_running=1, requests_per_minute=60), "b": PoolLimits(max_running=2)}
    policy = Policy(planning=PlanningRule(timeout=5, brief="full"), pools=pools, retry=RetryRule(max_attempts=4))

    fields = {"planning": {"timeout": 9}, "pools": {"a": {"max_running": 3}}, "retry": {"factor": 3}}
    changed = policy.with_fields(fields)

    pools["a"] = PoolLimits(max_running=3, requests_per_minute=60)
    assert changed == Policy(planning=PlanningRule(timeout=9, brief="full"), pools=pools, retry=RetryRule(factor=3))
    for same in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), policy.model_copy()):
        assert same == policy
    assert policy.model_copy(update={"workers": WorkerLimits(max_threads=2)}).workers.max_threads == 2


def test_a_misspelt_field_is_told_beside_the_other_faults() -> None:
    with pytest.raises(ValidationError) as caught:
        Policy(timout=3, grace=-1)  # type: ignore[call-arg]

    found = [(fault["loc"], fault["type"], fault["msg"]) for fault in caught.value.errors()]
    assert found == [
        (("grace",), "greater_than", "Input should be greater than 0"),
        (("timout",), "extra_forbidden", "unknown field timout; did you mean timeout?"),
    ]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("answer_within", "questions.answer_within"),
        ("max_planner_calls", "planning.max_calls"),
        ("max_running_by_pool.shop", "pools.shop.max_running"),
        ("rate_by_pool.shop.requests_per_minute", "pools.shop.requests_per_minute"),
    ],
)
def test_the_path_of_a_field_is_taken_to_its_place(path: str, place: str) -> None:
    """As in `vary` of a simulation."""
    with pytest.warns(DeprecationWarning, match="policy: "):
        assert present_path(path) == place
    assert present_path(place) == place


@pytest.mark.costly
def test_the_signature_shows_the_fields_before_the_first_use() -> None:
    """In a process of its own: here, policies were made before."""
    code = "import inspect, dagrun; print(*inspect.signature(dagrun.Policy).parameters)"

    shown = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)

    assert shown.stdout.split() == [*Policy.model_fields]
