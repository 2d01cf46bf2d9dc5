"""``dagrun metrics``, as a user calls it."""

import sqlite3

import pytest

from command_line import TOOLS, Shell, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

ADD = {"id": "sum", "tool": "add", "args": {"a": 1}}
FAIL = {"id": "bad", "tool": "fail"}


@pytest.fixture
def two_runs(shell: Shell) -> Shell:
    """A run that succeeded, and one that failed."""
    assert shell("run", shell.plan(ADD), *TOOLS, "--run-id", "good").code == 0
    assert shell("run", shell.plan(FAIL), *TOOLS, "--run-id", "bad").code == 1
    return shell


def test_metrics_of_all_runs(two_runs: Shell) -> None:
    """A rate has its interval, and what the records do not say is a dash."""
    ended = two_runs("metrics")

    assert ended.code == 0
    lines = {line.split("  ")[0]: line for line in ended.out.splitlines()}
    assert ended.out.startswith("2 runs; 2 have ended\n")
    assert "50.0 %" in lines["task success"]
    assert "of 2" in lines["task success"]
    assert lines["question wait"].endswith("-")


def test_metrics_as_json(two_runs: Shell) -> None:
    found = two_runs("metrics", "--json", "--by", "tool", "--fail-if", "task_success < 0.9").json

    assert found["metrics"]["task_success"]["value"] == 0.5
    assert found["groups"].keys() == {"add", "fail"}
    assert found["groups"]["fail"]["call_success"]["value"] == 0
    assert found["alerts"][0]["is_on"] is True


def test_rules_set_the_exit_code(two_runs: Shell) -> None:
    """A rule that holds ends with 1; one that cannot be judged says so, and does not."""
    alert = two_runs("metrics", "--fail-if", "task_success < 0.9")
    unknown = two_runs("metrics", "--fail-if", "cost_per_success > 1.3 x last week")

    assert (alert.code, unknown.code) == (1, 0)
    assert "ALERT: task_success is 0.5, < 0.9" in alert.err
    assert "not judged: cost_per_success" in unknown.err


def test_before_and_after_a_change(two_runs: Shell) -> None:
    ended = two_runs("metrics", "--split", "2020-01-01")

    assert "since 2020-01-01" in ended.out
    assert "medians and sums, which have no interval, chance is not judged." in ended.out.replace("\n", " ")
    assert two_runs("metrics", "--split", "1h", "--json").json["split"]["since"]["runs"]["value"] == 2


def test_prometheus(two_runs: Shell) -> None:
    assert "dagrun_runs 2.0\n" in two_runs("metrics", "--prom").out


def test_a_damaged_record_is_named_and_left_out(two_runs: Shell) -> None:
    with sqlite3.connect(two_runs.runs / "bad" / "journal.db") as database:
        database.execute("UPDATE records SET text = replace(text, 'bad', 'dab') WHERE seq = 2")
    database.close()
    ended = two_runs("metrics", "--json")

    assert ended.json["left_out"].keys() == {"bad"}
    assert ended.json["metrics"]["runs"]["value"] == 1
    assert "1 record is damaged or unreadable, and not counted: bad" in two_runs("metrics").err


def test_no_runs(shell: Shell) -> None:
    assert shell("metrics").out == "no runs\n"
    assert shell("metrics", "--by", "tool").code == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--by", "colour"), "grouped by tool"),
        (("--since", "yesterday"), "is no time"),
        (("--fail-if", "tokens = 3"), "cannot be read"),
        (("--json", "--prom"), "name one"),
        (("--split", "7d", "--by", "tool"), "name one"),
        (("--split", "7d", "--prom"), "leave out --prom"),
        (("--since", "1d", "--until", "2d"), "is not before"),
        (("--runs", "x", "--journal", "postgresql://nowhere"), "name one"),
    ],
)
def test_wrong_use(shell: Shell, options: tuple[str, ...], why: str) -> None:
    ended = shell("metrics", *options)

    assert ended.code == 2
    assert why in ended.err


@pytest.mark.parametrize("time", ["999999w", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_no_calendar_has_is_refused(shell: Shell, time: str) -> None:
    ended = shell("metrics", "--since", time)
    assert ended.code == 2
    assert "is no time" in ended.err
