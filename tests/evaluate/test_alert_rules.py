"""Alert rules: a closed grammar, errors that show it, and no verdict where the values are not known."""

from __future__ import annotations

import pytest

from dagrun.errors import ContractError
from dagrun.evaluate.metrics.alert_rules import AlertRule, judge, read_rule
from dagrun.evaluate.metrics.metrics import measure, read_time, shown_time
from dagrun.evaluate.metrics.metrics_text import prometheus_text
from dagrun.observe.run_summary import Calls, RunSummary

DAY = 86_400.0
NOW = 100 * DAY
FORM = "cannot be read: a rule is METRIC > NUMBER, or METRIC > NUMBER x last week"


def run(days_ago: float, cost: float | None = 1.0, *, status: str = "succeeded") -> RunSummary:
    use = Calls(tokens=10, known_cost=cost or 0.0, is_cost_known=cost is not None)
    return RunSummary(f"r{days_ago}", began=NOW - days_ago * DAY, status=status, use=use)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cost_per_success > 1.3 x last week", ("cost_per_success", ">", 1.3, 7)),
        ("cost_per_success>1.3x last 3 days", ("cost_per_success", ">", 1.3, 3)),
        ("tokens >= last month", ("tokens", ">=", 1.0, 30)),
        ("task_success < 95%", ("task_success", "<", 0.95, None)),
        (" makespan_p95 <= .5 ", ("makespan_p95", "<=", 0.5, None)),
        ("tokens > 2 * last day", ("tokens", ">", 2.0, 1)),
    ],
)
def test_rules_that_can_be_read(text: str, rule: tuple[object, ...]) -> None:
    assert read_rule(text) == AlertRule(text.strip(), *rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", FORM),
        ("cost_pr_success > 1", "is no metric; did you mean cost_per_success"),
        ("nobody > 1", "is no metric: runs, ended_runs"),
        ("tokens = 3", FORM),
        ("tokens >", FORM),
        ("tokens > many", FORM),
        ("tokens > -3", FORM),
        ("tokens > 1 last week", FORM),
        ("tokens > 1 x yesterday", FORM),
        ("tokens > 1 x last 2.5 days", FORM),
        ("tokens > 1 x last 0 days", FORM),
        ("tokens > 1 % x last day", FORM),
        ("tokens > 3 and __import__('os')", FORM),
        ("__import__('os') > 3", FORM),
    ],
)
def test_rules_that_cannot_be_read(text: str, why: str) -> None:
    """Nothing of a rule is evaluated, and the message says what a rule is."""
    with pytest.raises(ContractError, match="cannot be read") as caught:
        read_rule(text)
    assert why in str(caught.value)


@pytest.mark.parametrize(("now", "is_on"), [(1.31, True), (1.3, False), (0.5, False)])
def test_a_jump_since_the_week_before(now: float, is_on: bool) -> None:
    """The runs of the last 7 days against those of the 7 days before; older ones do not count."""
    runs = [run(1, now), run(8, 1.0), run(20, 100.0)]
    alert = judge(read_rule("cost_per_success > 1.3 x last week"), runs, now=NOW)

    assert alert.is_on is is_on


@pytest.mark.parametrize("runs", [[run(1)], [run(8)], [], [run(1, None), run(8)], [run(1), run(8, None)]])
def test_what_is_not_known_is_not_judged(runs: list[RunSummary]) -> None:
    """A cost that nobody knows is neither a jump nor none."""
    alert = judge(read_rule("cost_per_success > 1.3 x last week"), runs, now=NOW)

    assert alert.is_on is None
    assert "not known" in alert.text


def test_what_is_known_of_a_cost_may_be_enough() -> None:
    """At least 5 is more than 3, whatever the rest has cost."""
    runs = [run(1, 5.0), run(2, None)]

    assert judge(read_rule("cost > 3"), runs, now=NOW).is_on is True
    assert judge(read_rule("cost > 6"), runs, now=NOW).is_on is None
    assert judge(read_rule("cost < 9"), runs, now=NOW).is_on is None, "it may be more"


def test_an_absolute_rule_is_about_the_time_that_was_asked_for() -> None:
    runs = [run(1, status="failed"), run(8)]

    assert judge(read_rule("task_success < 60 %"), runs, now=NOW).is_on is True
    assert judge(read_rule("task_success < 60 %"), runs, now=NOW, until=NOW - 5 * DAY).is_on is False


def test_times_as_people_write_them() -> None:
    assert read_time("7d", NOW) == NOW - 7 * DAY
    assert read_time("90m", NOW) == NOW - 5_400
    assert shown_time(read_time("2026-11-20", NOW)) == "2026-11-20"
    assert shown_time(read_time("2026-11-20T08:30+02:00", NOW)) == "2026-11-20 06:30 UTC"
    for text in ("yesterday", "7", "", "2026-13-01"):
        with pytest.raises(ContractError, match="is no time"):
            read_time(text, NOW)


def test_prometheus_text() -> None:
    """Names and labels as Prometheus takes them; a value that is not known has no line."""
    named = RunSummary("r", began=NOW, status="succeeded", labels={"team": 'a "b"\n\\c'}, makespan=2.0)
    lines = prometheus_text(measure([named], by="label:team")).splitlines()

    assert "dagrun_task_success_ratio 1.0" in lines
    assert "dagrun_makespan_p95_seconds 2.0" in lines
    assert r'dagrun_by_team_runs{team="a \"b\"\\n\\c"} 1.0' in lines
    assert not any(line.startswith("dagrun_question_wait") for line in lines)
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert all(line.startswith("#") or line.count(" ") >= 1 for line in lines)
