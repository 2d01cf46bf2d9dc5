"""``dagrun compare``: variants really ask a server, ceilings and Ctrl-C keep what was found, and refusals say why."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from command_line import Ended, Shell, finished, shell, started
from dagrun.testing import FakeModelServer, ModelAnswer, RecordedCall

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

CASES = """
tools: cli_tools
world: {add: 3}
cases:
  - id: sum
    goal: Add one and two
    expect: {output: 3, calls: {must: [add]}}
"""
ADD = {"tool": "add", "args": {"a": 1, "b": 2}}


def step(id_: str) -> str:
    return json.dumps({"thought": "", "step": {"id": id_, **ADD}})


PLAN = json.dumps({"steps": [{"id": "sum", **ADD}], "output": "${sum}"})
TWO = json.dumps({"steps": [{"id": "sum", **ADD}, {"id": "more", **ADD}], "output": "${sum}"})
DONE = json.dumps({"thought": "", "stop": "goal_met", "output": "${one}"})


def answer(call: RecordedCall) -> ModelAnswer:
    """Play each model: by its name, and by how far the conversation is."""
    turns = [text for role, text in call.turns if role == "assistant"]
    steps = call.prompt.count('"state": "succeeded"') + call.prompt.count('"state":"succeeded"')
    match call.model:
        case "loop-model":
            return ModelAnswer([step("one"), step("again"), DONE][min(steps, 2)], usage=(100, 20))
        case "agent-model":
            said = {"thought": "", "answer": 3} if turns else {"thought": "", "call": ADD}
            return ModelAnswer(json.dumps(said), usage=(50, 10))
        case "unsure-model":
            return ModelAnswer(json.dumps({**json.loads(PLAN), "confidence": 0.1}), usage=(10, 10))
        case "wrong-model":
            return ModelAnswer(json.dumps({"steps": [{"id": "sum", **ADD}], "output": ["${sum}"]}), usage=(10, 10))
        case "dear-agent":
            said = {"thought": "", "answer": 3} if turns else {"thought": "", "call": ADD}
            return ModelAnswer(json.dumps(said), usage=(3_000, 10))
        case "dear-model":
            return ModelAnswer(PLAN, usage=(7_000, 300))
        case "judge-model":
            return ModelAnswer(json.dumps({"reason": "", "scores": {"rubric": 1.0}}), usage=(5, 5))
        case "slow-model":
            return ModelAnswer(PLAN, usage=(70, 30), delay=0.1)
        case _:
            return ModelAnswer(TWO if "Check everything" in call.prompt else PLAN, usage=(70, 30))


WAYS = """
[loop]
planner = "stepwise"
model = "loop-model"
policy = {brief = "full"}
[agent]
planner = "agent"
model = "agent-model"
[plan]
planner = "openai"
[ensemble]
planner = "ensemble"
fast_model = "unsure-model"
[ladder]
planner = "empty_routes:router,openai=plan-model"
[prompt]
instructions = "Check everything twice."
[wrong]
model = "wrong-model"
"""
REAL = '''
import dagrun

@dagrun.tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@dagrun.tool(effect="idempotent")
async def pay(n: int) -> str:
    """Pay."""
    raise AssertionError
'''
JUDGE = """
import dagrun
sums = dagrun.StaticPlanner(dagrun.Plan(steps=[dagrun.Step(id="s", tool="add", args={"a": 1, "b": 2})], output="${s}"))

def judge():
    return dagrun.RubricCritic(dagrun.OpenAIModel("judge-model"), "Good.")
"""
ROUTER = "import dagrun\nrouter = dagrun.RouterPlanner([dagrun.Route('none', ['xyz'], dagrun.Plan(steps=[])) ])\n"
PRICES = '[prices."dear-model"]\ninput_per_mtok = 1\noutput_per_mtok = 1\n'


@pytest.fixture
def asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeModelServer]:
    """A server, which the environment names, and cases."""
    shell.file("cases.yaml", CASES)
    with FakeModelServer(answer) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DAGRUN_MODEL", "plan-model")
        yield server


def test_every_kind_of_variant_is_carried_out_by_asking_a_server(shell: Shell, asked: FakeModelServer) -> None:
    shell.file("variants.toml", WAYS)
    shell.file("empty_routes.py", ROUTER.replace("steps=[]", "steps=[dagrun.Step(id='x', tool='add')]"))
    ended = shell("compare", "cases.yaml", "--variants", "variants.toml", "--repeat", "2", "--json")
    ways = ended.json["variants"]

    assert ended.code == 0, ended.err
    assert {name: figures["success"]["successes"] for name, figures in ways.items()} == {
        "loop": 2, "agent": 2, "plan": 2, "ensemble": 2, "ladder": 2, "prompt": 2, "wrong": 0
    }  # fmt: skip
    assert {name: figures["mean_tokens"] for name, figures in ways.items()} == {
        "loop": 360, "agent": 120, "plan": 100, "ensemble": 120, "ladder": 100, "prompt": 100, "wrong": 20
    }  # fmt: skip
    assert {name: figures["mean_planner_calls"] for name, figures in ways.items()} == {
        "loop": 3, "agent": 0, "plan": 1, "ensemble": 2, "ladder": 2, "prompt": 1, "wrong": 1
    }  # fmt: skip
    assert [ways["prompt"]["mean_idle"], ways["plan"]["mean_idle"]] == [0, 0]  # a case expects the tool
    assert ways["wrong"]["early_stops"]["runs"] == 2
    assert {call.model for call in asked.calls} == {
        "loop-model", "agent-model", "plan-model", "unsure-model", "wrong-model"
    }  # fmt: skip
    assert "14 runs will ask a model, in real time" in ended.err


def test_two_models_are_told_apart(shell: Shell, asked: FakeModelServer) -> None:
    shell.file("variants.toml", '[quick]\nmodel = "plan-model"\n[slow]\nmodel = "slow-model"\n')
    ended = shell("compare", "cases.yaml", "--variants", "variants.toml", "--repeat", "9")  # one cold run does no harm

    assert ended.code == 0
    assert "slow against quick: it is slower, by " in ended.out
    assert "success               9/9 (70-100 %)  9/9 (70-100 %)" in ended.out


def test_without_a_file_a_loop_is_compared_with_a_plan(shell: Shell, asked: FakeModelServer) -> None:
    ended = shell("compare", "cases.yaml", "--model", "plan-model", "--repeat", "1", "--json")

    assert list(ended.json["variants"]) == ["loop", "plan"]
    assert {call.model for call in asked.calls} == {"plan-model"}
    assert shell("compare", "cases.yaml", "--planner", "stepwise").code == 2


def test_a_ceiling_of_cost_ends_the_comparison(shell: Shell, asked: FakeModelServer) -> None:
    """A call costs 0.0073, and its worst case some 0.022: the last calls are not made, though their cost would fit."""
    shell.file("variants.toml", "[a]\nmax_output_tokens = 100\n[b]\nmax_output_tokens = 200\n")
    shell.trusted("dagrun.toml", PRICES)
    ended = shell(
        "compare", "cases.yaml", "--variants", "variants.toml", "--model", "dear-model", "--max-cost", "0.05", "--json"
    )
    spent = sum(run["cost"] for run in [*ended.json["samples"], *ended.json["unpaired"]])

    assert (ended.code, ended.json["exit_code"], ended.json["status"]) == (4, 4, "stopped")
    assert len(asked.calls) >= 2
    assert spent == pytest.approx(0.0073 * len(asked.calls))
    assert spent <= 0.05
    assert all(run["passed"] for run in ended.json["samples"])
    assert "ceiling of 0.05 in cost of all runs" in ended.json["stopped"]


def test_an_agent_keeps_to_the_ceiling_of_the_comparison(shell: Shell, asked: FakeModelServer) -> None:
    ways = "".join(f'[{name}]\nplanner = "agent"\nmodel = "dear-agent"\n' for name in ("a", "b"))
    ended = shell(
        "compare", "cases.yaml", "--variants", shell.file("variants.toml", ways), "--max-tokens", "30000", "--json"
    )
    runs = [*ended.json["samples"], *ended.json["unpaired"]]

    assert ended.code == 4
    assert 12_000 < sum(run["tokens"] for run in runs) <= 30_000
    assert all(run["passed"] for run in ended.json["samples"])  # the run that did not fit is no failure of its way
    assert len(ended.json["samples"]) >= 2
    assert "ceiling max_tokens of" in ended.json["stopped"]


def test_a_ceiling_of_cost_needs_prices(shell: Shell, asked: FakeModelServer) -> None:
    ended = shell("compare", "cases.yaml", "--max-cost", "3")

    assert ended.code == 4
    assert "costs is not known" in ended.out


@pytest.mark.parametrize(
    ("ways", "text"),
    [
        ("", "it has 0 variants, and 2 to 20 can be compared"),
        ("[a]\n", "it has 1 variant, and 2"),
        ("a = 1\n[b]\n", "a is no table"),
        ("[a]\n[b]\nmodle = 'x'\n", "variants.toml: b: unknown field modle; did you mean model?"),
        ("[a]\n[b]\nmodel = 3\n", "variants.toml: b: model"),
        ("[a]\nx = 1\n[b]\ny = 2\n", "a: unknown field x"),
        ("[a]\n[b]\ntools = ['x']\n", "tools is not of a variant"),
        ("[a]\n[b]\nplanner = 'opnai'\n", "there is no such planner"),
        ("[a]\n[b]\nplanner = 'cli_tools:lost'\n", "variants.toml: b: --planner: cli_tools has no lost"),
        ("[a]\n[b]\npolicy = {max_stps = 1}\n", "unknown field max_stps"),
        ("[a]\n[b]\npolicy = 'none.toml'\n", "none.toml"),
        ("[a\n", "broken TOML"),
    ],
)
def test_a_file_of_variants_that_cannot_be_used_is_refused(
    shell: Shell, asked: FakeModelServer, ways: str, text: str
) -> None:
    ended = shell("compare", shell.file("cases.yaml", CASES), "--variants", shell.file("variants.toml", ways))

    assert ended.code == 2
    assert text in ended.err
    assert asked.calls == []


def test_a_misspelt_option_leads_to_none_that_is_hidden(shell: Shell) -> None:
    ended = shell("compare", "cases.yaml", "--way", "x")

    assert (ended.code, "No such option '--way'" in ended.err, "key" in ended.err) == (2, True, False)


def test_wrong_usage(shell: Shell, asked: FakeModelServer) -> None:
    for args in ([], ["none.yaml"], ["cases.yaml", "--repeat", "0"], ["cases.yaml", "--max-cost", "0"]):
        assert shell("compare", *args).code == 2
    assert shell("compare", "cases.yaml", "--only", "none", "--json").json["exit_code"] == 2
    assert shell("compare", "cases.yaml", "--github").code == 2


def test_github_gets_the_tables(shell: Shell, asked: FakeModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(shell.folder / "summary.md"))
    assert shell("compare", "cases.yaml", "--repeat", "1", "--github").code == 0

    table = (shell.folder / "summary.md").read_text(encoding="utf-8")
    assert "| by case | loop | plan |" in table
    assert "- plan against loop: no difference can be told from 1 run in success" in table


def test_a_policy_of_a_variant_may_be_a_file_beside_the_variants(shell: Shell, asked: FakeModelServer) -> None:
    (shell.folder / "sub").mkdir()
    shell.file("sub/tight.toml", "max_steps = 1\n")
    shell.file("sub/variants.toml", '[tight]\npolicy = "tight.toml"\ninstructions = "Check everything."\n[wide]\n'
               'instructions = "Check everything."\n')  # fmt: skip
    ended = shell("compare", "cases.yaml", "--variants", "sub/variants.toml", "--repeat", "1", "--json")

    assert {run["variant"]: run["status"] for run in ended.json["samples"]} == {"tight": "failed", "wide": "succeeded"}


def test_real_tools_are_announced_and_may_only_read(shell: Shell, asked: FakeModelServer) -> None:
    shell.file("real_tools.py", REAL)
    real = CASES.replace("tools: cli_tools", "tools: real_tools").replace("world: {add: 3}", "real: [add]")
    ended = shell("compare", shell.file("real.yaml", real), "--repeat", "2")
    assert ended.code == 0
    assert "4 runs may call real tools, as their cases want: add\n" in ended.err
    assert "real tools" not in shell("compare", "cases.yaml", "--repeat", "1").err

    count = len(asked.calls)
    refused = shell("compare", shell.file("pays.yaml", real.replace("[add]", "[add, pay]")), "--repeat", "2")
    assert refused.code == 2
    assert "case pays.yaml:sum: pay is real and changes the world" in refused.err
    assert len(asked.calls) == count


def test_a_model_that_judges_is_announced(shell: Shell, asked: FakeModelServer) -> None:
    shell.file("judged_sums.py", JUDGE)
    shell.file("judged.yaml", CASES.replace("output: 3,", "output: 3, critic: 'judged_sums.py:judge',"))
    ended = shell("compare", "judged.yaml", "--repeat", "1", "--json")
    ways = "".join(f'[{name}]\nplanner = "judged_sums:sums"\n' for name in ("a", "b"))
    free = shell(
        "compare", "judged.yaml", "--repeat", "1", "--variants", shell.file("free.toml", ways), "--max-tokens", "9999"
    )

    cost = "in real time and at its real cost"
    assert f"2 runs will ask a model and a model will judge the answers of 2 runs, {cost}; --max-cost" in ended.err
    assert ended.json["judges"]["tokens"] == 20
    assert free.err == f"a model will judge the answers of 2 runs, {cost}\n"
    assert free.out.count("1/1 (21-100 %)") == 2


@pytest.mark.rigs
def test_ctrl_c_reports_what_was_found(shell: Shell, asked: FakeModelServer) -> None:
    variables = {name: os.environ[name] for name in (*asked.environment, "DAGRUN_MODEL")}
    with started(shell, "compare", "cases.yaml", "--repeat", "1000", "--json", **variables) as process:
        assert asked.wait_until_called(9, 30)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    ended = Ended(process.returncode, out, err)

    assert (ended.code, ended.json["exit_code"]) == (130, 130)
    assert ended.json["stopped"] == "it was interrupted"
    assert ended.json["samples"]


@pytest.mark.rigs
def test_in_a_pipe_there_is_no_progress_and_the_data_is_alone(shell: Shell, asked: FakeModelServer) -> None:
    variables = {name: os.environ[name] for name in (*asked.environment, "DAGRUN_MODEL")}
    ended = finished(shell, "compare", "cases.yaml", "--repeat", "1", **variables)

    assert ended.code == 0
    assert "\x1b" not in ended.out + ended.err
    assert ended.err.count("\n") == 1
