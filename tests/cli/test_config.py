"""Settings come from flags, the environment, the project's file and the user's, in this order; faults are told."""

import json
from pathlib import Path

import pytest

from command_line import TOOLS, Shell, shell
from dagrun import PoolLimits, TriggerKind
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.terminal.user_errors import BadInput

__all__ = ["shell"]
pytestmark = pytest.mark.real_time


@pytest.fixture
def user_file(shell: Shell) -> Path:
    folder = shell.folder / "no-settings" / "dagrun"
    folder.mkdir(parents=True)
    return folder / "config.toml"


def test_each_source_outranks_the_next(shell: Shell, user_file: Path) -> None:
    user_file.write_text("max_running = 1\nmode = 'waves'\noutput = 'from-user'\ntools = ['user']\n")
    shell.file("dagrun.toml", "max_running = 2\nmode = 'sequential'\noutput = 'from-project'\n")
    environment = {"DAGRUN_MAX_RUNNING": "3", "DAGRUN_MODE": "waves"}

    found = configure({"max_running": 4, "mode": None, "tools": ()}, environment)

    settings = found.settings.as_dict()
    assert {name: settings[name] for name in ("tools", "max_running", "mode", "output")} == {
        "tools": ["user"],
        "max_running": 4,
        "mode": "waves",
        "output": "from-project",
    }
    assert {name: found.origins[name].name for name in ("tools", "policy", "max_running", "mode", "output")} == {
        "tools": str(user_file),
        "policy": "default",
        "max_running": "command line",
        "mode": "DAGRUN_MODE",
        "output": str(shell.folder / "dagrun.toml"),
    }


def test_show_says_where_each_setting_comes_from(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.file("pyproject.toml", "[tool.dagrun]\nmode = 'waves'\n")
    monkeypatch.setenv("DAGRUN_TOOLS", "one, two")

    shown = shell("config", "show")
    listed = shell("config", "show", "--json").json["settings"]

    assert listed["tools"] == {"value": ["one", "two"], "origin": "DAGRUN_TOOLS"}
    assert listed["mode"] == {"value": "waves", "origin": f"{shell.folder / 'pyproject.toml'} [tool.dagrun]"}
    assert listed["output"] == {"value": None, "origin": "default"}
    assert [line.split()[0] for line in shown.out.splitlines()] == ["setting", *listed]


def test_settings_of_a_project_run_its_plans(shell: Shell) -> None:
    shell.trusted("dagrun.toml", "tools = ['cli_tools']\npolicy = {max_seconds = 0.05}\n")

    ended = shell("run", shell.plan({"id": "a", "tool": "nap", "args": {"seconds": 60}}))

    assert ended.code == 4


def test_file_names_are_relative_to_their_file(shell: Shell) -> None:
    (shell.folder / ".git").mkdir()
    (shell.folder / "sub").mkdir()
    shell.trusted("dagrun.toml", "policy = 'limits.toml'\ntools = ['cli_tools']\n")
    shell.file("limits.toml", "max_steps = 1\n")
    shell.plan({"id": "a", "tool": "nap"}, {"id": "b", "tool": "nap"}, name="sub/plan.json")

    ended = shell("check", "-C", "sub", "plan.json")

    assert ended.code == 3
    assert "DR108" in ended.err


def test_nothing_is_taken_from_outside_of_a_checkout(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in a folder further up may be anybody's, and it names code that is imported."""
    (shell.folder / "sub").mkdir()
    shell.file("dagrun.toml", "mode = 'waves'\n")
    monkeypatch.chdir(shell.folder / "sub")

    assert configure({}, {}).settings.mode == "parallel"
    (shell.folder / ".git").mkdir()
    assert configure({}, {}).settings.mode == "waves"


def test_dagrun_toml_outranks_pyproject(shell: Shell) -> None:
    shell.file("pyproject.toml", "[tool.dagrun]\nmode = 'waves'\n")
    shell.file("dagrun.toml", "mode = 'sequential'\n")

    assert configure({}, {}).settings.mode == "sequential"


def test_named_file_takes_the_place_of_the_project_file(shell: Shell) -> None:
    shell.file("dagrun.toml", "mode = 'waves'\n")
    shell.file("other.toml", "mode = 'sequential'\n")

    assert configure({}, {"DAGRUN_CONFIG": "other.toml"}).settings.mode == "sequential"


@pytest.mark.parametrize("content", ["", "[tool]\n", "[tool.other]\nx = 1\n", "tool = 3\n", "broken ="])
def test_pyproject_of_others_is_left_alone(shell: Shell, content: str) -> None:
    shell.file("pyproject.toml", content)

    assert configure({}, {}).settings.mode == "parallel"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("tols = ['x']\n", ["unknown field tols", "did you mean tools?"]),
        ("max_running = 'many'\n", ["max_running", "integer"]),
        ("max_running = 0\n", ["max_running", "greater than or equal to 1"]),
        ("mode = 'fast'\n", ["mode", "'parallel', 'waves' or 'sequential'"]),
        ("tols = 1\nmode = 'fast'\n", ["tols", "mode"]),
        ("mode = \n", ["broken TOML", "line 1"]),
        ("[policy]\nmax_runing = 1\n", []),
    ],
)
def test_faults_of_a_file_are_told_with_their_field(shell: Shell, content: str, words: list[str]) -> None:
    shell.file("dagrun.toml", content)

    ended = shell("config", "show")

    assert ended.code == (2 if words else 0)
    for word in words:
        assert word in ended.err
        assert "dagrun.toml" in ended.err


def test_faults_of_the_environment_are_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGRUN_MAX_RUNNING", "many")

    ended = shell("config", "show")

    assert ended.code == 2
    assert "environment: max_running" in ended.err


def limits_of(content: str, flags: dict[str, object]) -> Configuration:
    Path("policy.toml").write_text(content)
    return configure({"policy": "policy.toml", **flags}, {})


@pytest.mark.parametrize(
    ("policy", "flag", "expected"), [("", 4, 4), ("max_running = 2", 4, 2), ("max_running = 8", 4, 4)]
)
def test_lower_limit_holds(shell: Shell, policy: str, flag: int, expected: int) -> None:
    assert limits_of(policy, {"max_running": flag}).limits().policy.max_running == expected


def test_policy_takes_whole_numbers_for_seconds(shell: Shell) -> None:
    found = limits_of("timeout = 3\n[retry]\nmax_attempts = 5\n[max_running_by_tool]\nfetch = 2\n", {}).limits().policy

    assert (found.timeout, found.retry.max_attempts, found.max_running_by_tool) == (3.0, 5, {"fetch": 2})


def test_policy_file_says_everything_that_a_policy_can(shell: Shell) -> None:
    """TOML has whole numbers for floats, texts for the names of triggers, and lists where we keep tuples."""
    found = (
        limits_of(
            """
        max_cost = 5
        max_calls_by_tool = {pay = 3}
        warn_at = 0.8
        approve_patches = "effects"
        freeze_plan = true
        last_resort = "escalate"

        [pools.shop]
        max_running = 3

        [pools.models]
        requests_per_minute = 600

        [planning]
        replan_on = ["failed", "surprise"]

        [questions]
        answer_within = 60

        [workers]
        max_processes = 2

        [[approve]]
        tool = "pay"
        when = {all = [{ref = "args.amount", op = ">", value = 9}, {not = {ref = "args.to", op = "==", value = "me"}}]}
        why = "large, and not for me"
        checklist = ["the invoice is there"]
        answer_within = 5

        [[approve]]
        tool = "*"
        default_answer = "approve"
        """,
            {},
        )
        .limits()
        .policy
    )

    assert (found.max_cost, found.max_calls_by_tool, found.warn_at) == (5.0, {"pay": 3}, 0.8)
    assert (found.questions.answer_within, found.workers.max_processes) == (60.0, 2)
    assert found.pools == {"shop": PoolLimits(max_running=3), "models": PoolLimits(requests_per_minute=600)}
    assert found.planning.replan_on == (TriggerKind.FAILED, TriggerKind.SURPRISE)
    assert (found.approve_patches, found.freeze_plan) == ("effects", True)
    assert [(rule.tool, rule.answer_within, rule.default_answer) for rule in found.approve] == [
        ("pay", 5.0, None),
        ("*", None, "approve"),
    ]
    assert found.approve[0].checklist == ("the invoice is there",)
    assert found.approve[0].when is not None
    assert [str(leaf.reference) for leaf in found.approve[0].when.leaves()] == ["${args.amount}", "${args.to}"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("max_cost = 0", "max_cost: input should be greater than 0"),
        ("max_cost = nan", "max_cost: input should be a finite number"),
        ("max_tokens = 1.5", "max_tokens: input should be a valid integer"),
        ("max_attempts = true", "max_attempts: input should be a valid integer"),
        ("max_replans = -1", "max_replans: input should be greater than or equal to 0"),
        ("max_calls_by_tool = {pay = 0}", "max_calls_by_tool.pay: input should be greater than or equal to 1"),
        ("warn_at = 1.5", "warn_at: input should be less than or equal to 1"),
        ("planning.replan_on = 'failed'", "planning.replan_on: input should be a list"),
        ("planning.replan_on = ['faild']", "planning.replan_on.0: input should be 'success_condition', 'surprise', "),
        ("approve_patches = 'maybe'", "approve_patches: input should be 'never', 'effects' or 'always'"),
        ("freeze_plan = 'always'", "freeze_plan: input should be a valid boolean"),
        ("approve_output = 1", "approve_output: input should be a valid boolean"),
        ("approve = 'pay'", "approve: input should be a list"),
        ("approve = [{}]", "approve.0.tool: field required"),
        ("approve = [{tool = 'pay', wen = {}}]", "unknown field approve.0.wen; did you mean when?"),
        (
            "approve = [{tool = 'pay', when = {not = {all = [{reff = 'x'}]}}}]",
            "unknown field approve.0.when.not.all.0.reff; did you mean ref?",
        ),
        ("approve = [{tool = 'pay', when = {ref = 'args'}}]", "approve.0.when: op goes with ref, and ref with op"),
        (
            "approve = [{tool = 'pay', when = {any = [{ref = 'load.rows', op = 'exists'}]}}]",
            "approve.0.when: a rule looks at the arguments of the call alone: write args.amount, say, not load.rows",
        ),
        (
            "approve = [{tool = 'pay', when = {ref = 'args[-1]', op = 'exists'}}]",
            "approve.0.when: 'args[-1]' is not a reference: '[-1]' is neither .key nor [index]",
        ),
        ("approve = [{tool = 'pay', default_answer = 'yes'}]", "input should be 'approve' or 'deny'"),
        ("planing = {timeout = 3}", "unknown field planing; did you mean planning?"),
        ("[planning]\ntime_out = 3", "unknown field planning.time_out; did you mean timeout?"),
        ("[pools.shop]\nrunning = 3", "unknown field pools.shop.running; did you mean max_running?"),
        ("[workers]\nmax_threads = 0", "workers.max_threads: input should be greater than or equal to 1"),
        ("planning = 3", "planning: input should be a table [planning]"),
        ("[pools]\nshop = 3", "pools.shop: input should be a table"),
        ("approve = [3]", "approve.0: input should be a table"),
        ("[retry]\nmax_atempts = 2", "unknown field retry.max_atempts; did you mean max_attempts?"),
    ],
)
def test_fault_of_a_policy_file_is_told_with_its_place(shell: Shell, content: str, fault: str) -> None:
    """In words that somebody who writes TOML can act on."""
    with pytest.raises(BadInput) as caught:
        limits_of(content, {}).limits()

    assert any(line.startswith("policy.toml: ") or "/policy.toml: " in line for line in caught.value.lines)
    assert any(fault in line for line in caught.value.lines)


def test_faults_of_an_inline_policy_are_told(shell: Shell) -> None:
    shell.file("dagrun.toml", "[policy]\nmax_runing = 1\n")

    with pytest.raises(BadInput, match=r"unknown field max_runing; did you mean max_running"):
        configure({}, {}).limits()


def test_a_line_says_where_a_field_of_the_last_release_stands_now(shell: Shell) -> None:
    """Once, and the field counts; beside its new place it is refused."""
    plan = shell.plan({"id": "a", "tool": "echo", "args": {"value": 1}})
    shell.file("old.toml", "max_planner_calls = 3\nmax_threads = 2\n")
    shell.file("both.toml", "max_threads = 2\nworkers = {max_processes = 2}\n")

    told = shell("run", plan, *TOOLS, "--policy", "old.toml")
    refused = shell("run", plan, *TOOLS, "--policy", "both.toml")

    assert told.code == 0
    line = "/old.toml: max_planner_calls is now planning.max_calls, max_threads is now workers.max_threads"
    lines = [each for each in told.err.splitlines() if " is now " in each]
    assert [each.endswith(f"{line}; the old names are removed in 0.4") for each in lines] == [True]
    assert (refused.code, "move max_threads to workers.max_threads" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("field", "near"), [("breif", "planning.brief"), ("max_thread", "workers.max_threads"), ("gracee", "grace")]
)
def test_a_misspelt_field_of_the_last_release_is_told_its_present_place(shell: Shell, field: str, near: str) -> None:
    shell.file("dagrun.toml", f"[policy]\n{field} = 1\n")

    with pytest.raises(BadInput, match=f"unknown field {field}; did you mean {near}\\?"):
        configure({}, {}).limits()


def test_warnings_of_other_libraries_are_shown_as_python_shows_them(shell: Shell) -> None:
    """With their place and category, which a bare line lacks."""
    warn = "import warnings\nwarnings.warn('other is old', DeprecationWarning)\n"
    shell.file("old_library_tools.py", f"import dagrun\n{warn}\n@dagrun.tool\ndef one() -> int:\n    return 1\n")
    plan = shell.plan({"id": "a", "tool": "one"})

    with pytest.warns(DeprecationWarning, match="other is old"):
        told = shell("run", plan, "--tools", "old_library_tools.py")

    assert (told.code, "other is old" in told.err) == (0, False)


CONFIGURABLE = """
import dagrun
from contextvars import ContextVar
from pydantic import BaseModel, ConfigDict

class Rules(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    greeting: str

rules = ContextVar("rules")

def configure(tables):
    rules.set(Rules.model_validate(tables["polite"]))

@dagrun.tool(effect="pure")
async def greet() -> str:
    return rules.get().greeting
"""


def test_policy_file_configures_tools_too(shell: Shell) -> None:
    """Where tools may connect to, say, is a limit of the run; a module takes its part by a function `configure`."""
    shell.file("configurable_tools.py", CONFIGURABLE)
    plan = shell.plan({"id": "a", "tool": "greet"})
    shell.file("good.toml", "max_running = 1\n[tools.polite]\ngreeting = 'hello'\n")
    shell.file("bad.toml", "[tools.polite]\ngreeting = 1\n")
    args = ("run", plan, "-t", "configurable_tools", "--policy")

    assert shell(*args, "good.toml").out == "hello\n"
    bad = shell(*args, "bad.toml")
    assert bad.code == 2
    assert "bad.toml: tools: greeting: input should be a valid string" in bad.err


def test_tools_are_named_in_the_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGRUN_TOOLS", TOOLS[1])

    assert shell("check", shell.plan({"id": "a", "tool": "nap"}), "--json").json["status"] == "ok"


def test_json_of_settings_can_be_read_back(shell: Shell) -> None:
    assert json.loads(shell("config", "show", "--json").out)["schema_version"] == 1
