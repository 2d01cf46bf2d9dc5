"""``dagrun sim``: figures as a table and as JSON, from options and from what the records of runs have learned."""

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from command_line import TOOLS, Shell, shell
from dagrun import Durability
from dagrun.extend import Durations
from dagrun.journal import summary_cache

__all__ = ["shell"]

PLAN: list[dict[str, Any]] = [
    {"id": "one", "tool": "nap", "args": {"seconds": 3600}},
    {"id": "two", "tool": "nap", "args": {"seconds": 3600}},
    {"id": "end", "tool": "add", "args": {"a": 1}, "depends_on": ["one", "two"]},
]
TIMES = ("--duration", "nap=lognorm(2,0.5)", "--duration", "add=0.5")


def test_a_table_has_intervals_critical_steps_and_what_is_taken_for_granted(shell: Shell) -> None:
    ended = shell("sim", shell.plan(*PLAN), *TOOLS, *TIMES, "--repeat", "400", "--seed", "3")

    assert (ended.code, ended.err) == (0, "")
    title, _, head, figures, _, critical, durations, granted, *notes = ended.out.splitlines()
    assert title == "plan.json: 3 steps, 400 simulated runs, seed 3"
    assert head.split("  ")[0] == "p50 in seconds"
    assert "100.0% (99.0% to 100.0%)" in figures
    assert critical.startswith("Critical, in so many runs: end 100%, ")
    assert durations == "Durations: nap lognorm(2,0.5); add 0.5 s"
    assert granted == "Taken for granted:"
    assert "- no call fails, as no failure rate is given" in notes


def test_variants_are_compared_with_the_first(shell: Shell) -> None:
    args = ["sim", shell.plan(*PLAN), *TOOLS, *TIMES, "--repeat", "100", "--vary", "max_running=1,2,none"]
    ended = shell(*args)

    lines = ended.out.splitlines()
    assert [line.split()[0] for line in lines[3:6]] == ["max_running=1", "max_running=2", "max_running=none"]
    at = lines.index("Against max_running=1, run by run:")
    assert all(" s faster" in line and "p99 too few runs" in line for line in lines[at + 1 : at + 3])
    figures = shell(*args, "--json").json
    assert [variant["settings"] for variant in figures["variants"]] == [{"max_running": n} for n in (1, 2, None)]
    assert figures["variants"][1]["makespan"] == figures["variants"][2]["makespan"]
    assert figures["variants"][2]["slower_than_first"]["p50"][1] < 0
    assert (figures["status"], figures["plan"], figures["runs"]) == ("succeeded", "plan.json", 100)


def test_a_limit_of_the_policy_and_of_the_command_line_counts(shell: Shell) -> None:
    shell.trusted("policy.toml", "max_seconds = 1.0\n")
    plan = shell.plan(*PLAN)
    constant = ["--duration", "nap=2", "--duration", "add=1", "--repeat", "3", "--json"]

    (variant,) = shell("sim", plan, *TOOLS, *constant, "-j", "1").json["variants"]
    assert variant["makespan"]["p50"]["value"] == 5
    (ended,) = shell("sim", plan, *TOOLS, *constant, "--policy", "policy.toml").json["variants"]
    assert ended["success"]["value"] == 0


def test_durations_come_from_the_records_of_runs(shell: Shell, tmp_path: Path) -> None:
    seen = Durations()
    for n in range(100):
        seen.add("nap", 1 + n / 100)
        seen.add("add", 0.1)
    shell.runs.mkdir(parents=True, mode=0o700)
    shell.runs.parent.chmod(0o700)
    summary_cache.add_durations(shell.runs, seen, Durability.PROCESS)

    figures = shell("sim", shell.plan(*PLAN), *TOOLS, "--repeat", "200", "--json").json

    assert figures["durations"] == {"nap": "learned from 100 calls", "add": "learned from 100 calls"}
    assert figures["variants"][0]["makespan"]["p50"]["value"] == pytest.approx(0.1 + 1 + 2**-0.5, rel=0.06)
    elsewhere = shell("sim", "plan.json", *TOOLS, "--runs", str(tmp_path / "none"))
    assert elsewhere.code == 2
    assert "how long nap, add takes is not known" in elsewhere.err


def test_failures_people_outputs_items_and_costs_are_options(shell: Shell) -> None:
    steps = [
        {"id": "list", "tool": "add", "args": {"a": 1}, "retry": {"max_attempts": 1}},
        {"id": "each", "tool": "nap", "for_each": {"$step": "list"}, "args": {"seconds": 1}, "depends_on": ["list"]},
        {"id": "look", "tool": "nap", "args": {"seconds": 1}, "when": {"ref": "list", "op": "!=", "value": [7, 8]}},
    ]
    shell.file(
        "lists.py",
        "import dagrun\n\n\n@dagrun.tool(effect='read')\nasync def add(a: int) -> list[int]: ...\n\n\n"
        "@dagrun.tool(effect='effectful', needs_approval=True)\nasync def nap(seconds: float) -> None: ...\n",
    )
    args = ["sim", shell.plan(*steps), "-t", "./lists.py", "--duration", "nap=1", "--duration", "add=1", "--json"]

    (variant,) = shell(*args, "--repeat", "2", "--items", "list=5", "--person", "30", "--cost", "nap=2").json[
        "variants"
    ]
    assert (variant["calls_per_run"], variant["cost_per_run"]) == (7, 12)
    assert variant["makespan"]["p50"]["value"] == 32
    (given,) = shell(*args, "--repeat", "2", "--returns", "list=[7, 8]").json["variants"]
    assert given["calls_per_run"] == 3
    (failed,) = shell(*args, "--repeat", "2", "--fail", "list=1:refused").json["variants"]
    assert failed["statuses"] == {"failed": 2}


@pytest.fixture(scope="module")
def fonts() -> None:
    """matplotlib keeps the files of its fonts open for good, from the first picture on."""
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().set_title("x")
    figure.savefig(io.BytesIO(), format="svg")


@pytest.mark.usefixtures("fonts")
def test_a_picture_has_a_line_for_each_variant(shell: Shell) -> None:
    ended = shell(
        "sim", shell.plan(*PLAN), *TOOLS, *TIMES, "--repeat", "20", "--vary", "max_running=1,2", "--plot", "x.svg"
    )

    assert ended.code == 0
    root = ET.parse(shell.folder / "x.svg").getroot()
    drawn = [line.get("id", "") for line in root.iter("{http://www.w3.org/2000/svg}g")]
    assert sum(id_.startswith("line2d") for id_ in drawn) >= 4  # two variants, and their signs in the legend
    assert "max_running=2" in (shell.folder / "x.svg").read_text()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--duration", "nap"], "--duration 'nap' has not the form name=value"),
        (["--duration", "nap=1", "--duration", "nap=2"], "--duration nap is given twice"),
        (["--duration", "nap=soon", "--duration", "add=1"], "nap: a duration is seconds (0.3)"),
        (["--items", "one=few"], "--items one: a number of elements is wanted, not 'few'"),
        (["--cost", "nap=-1"], "--cost nap: an amount of 0 or more is wanted, not '-1'"),
        ([*TIMES, "--fail", "nap=often"], "nap: a failure rate is a part from 0 to 1"),
        ([*TIMES, "--vary", "max_runing=1"], "did you mean max_running?"),
        ([*TIMES, "--vary", "max_running="], "has not the form name=value"),
        ([*TIMES, "--vary", "max_running=" + ",".join("1" * 65)], "65 values are over the limit of 64"),
        ([*TIMES, "--person", "late"], "a duration is seconds (0.3)"),
        ([*TIMES, "--repeat", "0"], "--repeat"),
        ([*TIMES, "--plot", "x.txt"], ".png"),
        ([], "how long nap, add takes is not known"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(args: list[str], says: str, shell: Shell) -> None:
    ended = shell("sim", shell.plan(*PLAN), *TOOLS, *args)

    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert "Traceback" not in ended.err


def test_a_plan_that_cannot_run_is_refused_as_elsewhere(shell: Shell) -> None:
    refused = shell("sim", shell.plan({"id": "a", "tool": "nobody"}), *TOOLS, "--json")

    assert refused.code == 3
    assert json.loads(refused.out)["status"] == "refused"


def test_failures_are_learned_from_the_records_if_asked_for(shell: Shell) -> None:
    """As often as ``dagrun metrics`` says; a rate of its own comes first."""
    plan = shell.plan({"id": "one", "tool": "fail"}, {"id": "two", "tool": "add", "args": {"a": 1}})
    for number in range(3):
        shell("run", plan, *TOOLS, "--run-id", f"r{number}")
    calls = int(shell("metrics", "--by", "tool", "--json").json["groups"]["fail"]["calls"]["value"])
    times = ["--duration", "fail=1", "--duration", "add=1", "--repeat", "20"]

    never = shell("sim", plan, *TOOLS, *times)
    assert "Failures" not in never.out
    assert "100.0%" in never.out
    learned = shell("sim", plan, *TOOLS, *times, "--fail", "learned")
    assert (
        f"Failures: fail {calls} of {calls} recorded calls (refused {calls}); add 0 of 3 recorded calls" in learned.out
    )
    assert "0.0% (" in learned.out
    own = shell("sim", plan, *TOOLS, *times, "--fail", "learned", "--fail", "fail=0", "--json").json
    assert own["failures"]["fail"] == "0:connection"
    assert own["variants"][0]["success"]["value"] == 1
