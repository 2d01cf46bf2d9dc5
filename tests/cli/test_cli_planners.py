"""Whom the command line asks for plans: the user says so, nothing of a plan does, and keys are shown to nobody."""

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import TOOLS, Shell, shell
from dagrun.cli.setup.settings import configure
from dagrun.testing import ModelAnswer
from goal_shell import BAD, GOOD, ONE, SECRET, TWO, served, without_keys

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

GOAL = "Add one and one, and then five"


@pytest.mark.parametrize("command", ["do", "plan"])
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["OPENAI_API_KEY", "--base-url"]),
        (["--planner", "anthropic"], ["ANTHROPIC_API_KEY"]),
        (["--base-url", "http://127.0.0.1:9/v1"], ["--model", "DAGRUN_MODEL"]),
        (["--planner", "ensemble", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"], ["--fast-model"]),
        (["--planner", "antropic"], ["did you mean anthropic?"]),
        (["--planner", "nowhere:planner"], ["nowhere"]),
        (["--base-url", "127.0.0.1:9"], ["command line: base_url", "http://"]),
        (["--base-url", "http://[::1"], ["base_url"]),
        (["--api-key", "x"], ["OPENAI_API_KEY"]),
        (["--max-output-tokens", "0"], ["0"]),
    ],
    ids=lambda value: " ".join(value)[:60],
)
def test_what_is_missing_is_said_in_a_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str, args: list[str], words: list[str]
) -> None:
    without_keys(monkeypatch)

    ended = shell(command, GOAL, *TOOLS, *args)

    assert (ended.code, ended.out) == (2, "")
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err.splitlines()[-1]


@pytest.mark.parametrize("option", ["--api-key", "--apikey", "--key", "--openai-api-key", "--token"])
@pytest.mark.parametrize("sign", ["=", " "])
def test_key_on_the_command_line_is_refused_and_not_repeated(shell: Shell, option: str, sign: str) -> None:
    given = [f"{option}={SECRET}"] if sign == "=" else [option, SECRET]

    ended = shell("do", GOAL, *TOOLS, *given, "--json")

    assert ended.code == 2
    assert SECRET not in ended.err + ended.out
    assert "--api-key" not in shell("do", "--help").out


def test_key_is_in_no_log(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not in what the libraries of providers log, all of which -vv shows."""
    with served(monkeypatch, GOOD):
        ended = shell("do", GOAL, *TOOLS, "-vv", "--events", "jsonl")

    assert "debug openai" in ended.err
    assert SECRET not in ended.err + ended.out


def test_password_in_an_address_is_refused_and_not_repeated(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (f"https://me:{SECRET}@example.com/v1", f"https://example.com/v1?key={SECRET}"):
        monkeypatch.setenv("OPENAI_BASE_URL", address)

        for ended in (shell("do", GOAL, *TOOLS), shell("config", "show")):
            assert ended.code == 2
            assert "OPENAI_BASE_URL: base_url" in ended.err
            assert SECRET not in ended.err + ended.out


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ({}, {}, ("http://file", "dagrun.toml")),
        ({}, {"OPENAI_BASE_URL": "http://sdk"}, ("http://sdk", "OPENAI_BASE_URL")),
        (
            {},
            {"OPENAI_BASE_URL": "http://sdk", "DAGRUN_BASE_URL": "http://ours"},
            ("http://ours", "DAGRUN_BASE_URL"),
        ),
        ({"base_url": "http://flag"}, {"DAGRUN_BASE_URL": "http://ours"}, ("http://flag", "command line")),
        ({"planner": "anthropic"}, {"OPENAI_BASE_URL": "http://sdk"}, ("http://file", "dagrun.toml")),
        ({"planner": "anthropic"}, {"ANTHROPIC_BASE_URL": "http://sdk"}, ("http://sdk", "ANTHROPIC_BASE_URL")),
        ({}, {"DAGRUN_PLANNER": "anthropic", "ANTHROPIC_BASE_URL": "http://a"}, ("http://a", "ANTHROPIC_BASE_URL")),
    ],
)
def test_address_comes_from_the_nearest_that_names_one(
    shell: Shell, flags: dict[str, str], environment: dict[str, str], expected: tuple[str, str]
) -> None:
    """And never from the variable of a provider that is not asked: it would get the other one's key."""
    shell.trusted("dagrun.toml", "base_url = 'http://file'\n")

    found = configure(flags, environment)

    assert (found.settings.base_url, Path(found.origins["base_url"].name).name) == expected


@pytest.mark.parametrize(
    ("file", "args", "is_refused"),
    [
        ("", ["--planner", "anthropic"], True),
        ("planner = 'anthropic'\n", ["--planner", "openai"], True),
        ("planner = 'anthropic'\n", ["--planner", "stepwise"], True),
        ("", ["--planner", "anthropic", "--base-url", "http://127.0.0.1:9"], False),
        ("planner = 'anthropic'\n", [], False),
        ("planner = 'ensemble'\n", ["--planner", "openai"], False),
        ("", [], False),
    ],
)
def test_address_of_one_provider_gets_no_key_of_another(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, file: str, args: list[str], is_refused: bool
) -> None:
    without_keys(monkeypatch)
    shell.trusted("dagrun.toml", f"{file}base_url = 'http://127.0.0.1:9/v1'\n")

    ended = shell("do", GOAL, *TOOLS, *args)  # where it is not refused, no model is named

    assert ended.code == 2
    assert ("another key" in ended.err) is is_refused, ended.err


def test_planner_of_anthropic(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anthropic")
    with served(monkeypatch, GOOD) as server:
        ended = shell("do", GOAL, *TOOLS, "--planner", "anthropic")

    assert (ended.code, ended.out) == (0, "7\n")
    assert [call.api for call in server.calls] == ["messages"]


def test_planner_of_two_models(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strong one is asked when the fast one has failed."""
    with served(monkeypatch, BAD, GOOD) as server:
        ended = shell("do", GOAL, *TOOLS, "--planner", "ensemble", "--fast-model", "quick", "--model", "strong")

    assert (ended.code, ended.out) == (0, "7\n")
    assert [call.model for call in server.calls] == ["quick", "strong"]


def test_planners_of_a_ladder(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is named with its model; who hands on to whom is said at once, and is in the record."""
    shell.file(
        "routes.py",
        "import dagrun\n"
        "router = dagrun.RouterPlanner([dagrun.Route('x', ['zebra'], dagrun.Plan(steps=[]))], chooser=lambda *_: None)",
    )
    with served(monkeypatch, BAD, BAD, GOOD) as server:
        ended = shell("do", GOAL, *TOOLS, "--planner", "routes:router, openai=quick, openai=strong, person")
    told = shell("inspect", "last")

    assert (ended.code, ended.out) == (0, "7\n"), ended.err
    assert [call.model for call in server.calls] == ["quick", "quick", "strong"]
    for text in (ended.err, told.out):
        assert "RouterPlanner hands on to ModelPlanner quick" in text
        assert "ModelPlanner quick hands on to ModelPlanner strong" in " ".join(text.split())


@pytest.mark.parametrize("name", ["openai=", "person=m", "openai=m,antropic", "openai=m,,person"])
def test_a_ladder_that_is_misspelt_is_refused(shell: Shell, name: str) -> None:
    ended = shell("do", GOAL, *TOOLS, "--base-url", "http://127.0.0.1:9/v1", "--planner", name)

    assert (ended.code, ended.out) == (2, "")
    assert "--planner" in ended.err.splitlines()[-1]


def test_no_provider_of_a_ladder_gets_the_key_of_another(shell: Shell) -> None:
    """An address is for one provider: the others of the chain are not asked there."""
    ours = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}

    assert configure({"planner": "openai=m,person"}, ours).settings.base_url == ours["OPENAI_BASE_URL"]
    assert configure({"planner": "anthropic=m,person"}, ours).settings.base_url is None
    assert configure({"planner": "openai=a,anthropic=b"}, ours).settings.base_url is None
    ended = shell("do", GOAL, *TOOLS, "--planner", "openai=a,anthropic=b", "--base-url", "http://127.0.0.1:9/v1")
    assert (ended.code, "one address cannot be that of two providers" in ended.err) == (2, True)


def test_planner_that_goes_step_by_step(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(step: Any, **more: Any) -> str:
        facts = {"thought": "", "stop": None, "output": None, "reason": None, "confidence": 0.9}
        return json.dumps({**facts, "step": step, **more})

    with served(monkeypatch, said(ONE), said(TWO), said(None, stop="goal_met", output="two")) as server:
        ended = shell("do", GOAL, *TOOLS, "--planner", "stepwise")

    assert (ended.code, ended.out) == (0, "7\n"), ended.err
    assert len(server.calls) == 3


def test_planner_of_the_host(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no key, and may be named by a file of settings that lies further up."""
    without_keys(monkeypatch)
    (shell.folder / ".git").mkdir()
    (shell.folder / "sub").mkdir()
    shell.trusted("dagrun.toml", "planner = 'mine:Planner'\n")
    shell.file(
        "mine.py",
        "import dagrun\n\n\nclass Planner:\n    async def revise(self, brief):\n"
        "        yield dagrun.Add(step=dagrun.Step(id='one', tool='add', args={'a': 1}))\n",
    )

    ended = shell("do", "-C", "sub", GOAL, *TOOLS)

    assert (ended.code, ended.out) == (0, "2\n"), ended.err


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--structure", "tool"], ("responses", "tool")),
        (["--structure", "json"], ("responses", "json")),
        (["--api", "chat"], ("chat", "schema")),
        (["--dialect", "compiler"], ("responses", None)),
    ],
)
def test_options_reach_the_model(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, args: list[str], found: tuple[str, str | None]
) -> None:
    act = ModelAnswer("1. add(1)\n2. add($1, 5)\n3. join($2)\n") if "compiler" in args else GOOD
    with served(monkeypatch, act) as server:
        ended = shell("do", GOAL, *TOOLS, *args, "--max-output-tokens", "321")

    assert (ended.code, ended.out) == (0, "7\n"), ended.err
    (call,) = server.calls
    assert (call.api, call.structure) == found
    assert 321 in call.body.values()


def test_prices_come_from_the_settings(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.trusted("dagrun.toml", '[prices."model-one"]\ninput_per_mtok = 10\noutput_per_mtok = 100.0\n')

    with served(monkeypatch, GOOD):
        ended = shell("do", GOAL, *TOOLS, "--json")

    assert ended.json["cost"] == pytest.approx(0.006)
    assert "150 tokens, cost 0.006)" in ended.err


def test_price_that_is_none_is_faulted_with_its_place(shell: Shell) -> None:
    shell.file("dagrun.toml", '[prices."model-one"]\ninput_per_mtoc = 10\noutput_per_mtok = -1\n')

    ended = shell("config", "show")

    assert ended.code == 2
    assert "dagrun.toml" in ended.err
    assert "output_per_mtok" in ended.err


# Nothing of a plan says whom to ask (S87) ----------------------------------------------------------------------------


def evil(url: str) -> list[dict[str, Any]]:
    """Ways to name another server, or another model, in a plan."""
    names = {"base_url": url, "model": "evil"}
    return [
        names,
        {"settings": names},
        {"steps": [{**ONE, **names}]},
        {"steps": [{**ONE, "args": {"a": 1, **names}}]},
        {"steps": [{**ONE, "executor": f"openai:{url}"}]},
    ]


@pytest.mark.parametrize("way", range(5))
def test_plan_of_a_file_cannot_say_who_is_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch, way: int) -> None:
    """The address gets the key of the user, so it comes from the command line, the environment or the settings."""
    with served(monkeypatch, GOOD) as elsewhere, served(monkeypatch, GOOD) as server:
        shell.file("plan.json", json.dumps({"steps": [ONE], **evil(elsewhere.base_url)[way]}))
        ended = shell("run", "plan.json", *TOOLS, "--planner", "openai")

    assert ended.code == 3
    assert not elsewhere.calls
    assert not server.calls


@pytest.mark.parametrize("way", range(5))
def test_planner_cannot_say_who_is_asked_next(shell: Shell, monkeypatch: pytest.MonkeyPatch, way: int) -> None:
    with served(monkeypatch, GOOD) as elsewhere:
        hostile = ModelAnswer(json.dumps({"steps": [ONE], "confidence": 0.9, **evil(elsewhere.base_url)[way]}))
        with served(monkeypatch, hostile, GOOD) as server:
            ended = shell("do", GOAL, *TOOLS)

    assert (ended.code, ended.out) == (0, "7\n"), "it was refused, and told so"
    assert not elsewhere.calls
    assert [call.model for call in server.calls] == ["model-one", "model-one"]


def test_policy_and_inputs_cannot_say_who_is_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, GOOD) as elsewhere, served(monkeypatch, GOOD) as server:
        shell.file("policy.toml", f"base_url = '{elsewhere.base_url}'\n")
        by_policy = shell("do", GOAL, *TOOLS, "--policy", "policy.toml")
        by_input = shell("do", GOAL, *TOOLS, "-i", f"base_url={elsewhere.base_url}", "-i", "model=evil")

    assert (by_policy.code, by_input.code) == (2, 0)
    assert "base_url" in by_policy.err
    assert not elsewhere.calls
    assert [call.model for call in server.calls] == ["model-one"]


def test_run_asks_nobody_unless_it_is_told_to(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner in the settings is for `plan` and `do`: `run` carries out the plan that was looked at."""
    shell.file("dagrun.toml", "planner = 'openai'\n")
    plan = shell.plan({"id": "a", "tool": "fail"})
    better = json.dumps({"edits": [{"op": "replace", "id": "a", "step": ONE}], "reason": "", "confidence": 0.9})

    with served(monkeypatch, ModelAnswer(better)) as server:
        alone = shell("run", plan, *TOOLS)
        calls = len(server.calls)
        helped = shell("run", plan, *TOOLS, "--planner", "openai")

    assert (alone.code, calls) == (1, 0)
    assert (helped.code, helped.out) == (0, "2\n"), helped.err


# The answer ----------------------------------------------------------------------------------------------------------


def test_the_answer_is_composed_by_the_model_or_by_a_tool(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the last step, from the results; it goes to the standard output like any answer."""
    shell.file("writes.py", "async def answer(results: object, goal: str) -> str:\n    return f'{goal}: {results}'\n")
    with served(monkeypatch, GOOD, "It is seven.", GOOD) as server:
        by_model = shell("do", GOAL, *TOOLS, "--compose", "model")
        by_tool = shell("do", GOAL, *TOOLS, "--compose", "writes:answer")

    assert (by_model.code, by_model.out) == (0, "It is seven.\n"), by_model.err
    assert (by_tool.code, by_tool.out) == (0, f"{GOAL}: 7\n"), by_tool.err
    assert len(server.calls) == 3
    assert "7" in server.calls[1].prompt


@pytest.mark.parametrize("name", ["modl", "nowhere:answer", "json:loads"])
def test_what_cannot_compose_is_said(shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with served(monkeypatch, GOOD):
        ended = shell("do", GOAL, *TOOLS, "--compose", name)

    assert (ended.code, ended.out) == (2, "")
    assert "compose" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
