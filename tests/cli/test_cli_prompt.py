"""`dagrun plan --show-prompt`: what is printed is what the model is told, to the letter; and nobody is asked."""

import tomllib

import pytest

from command_line import TOOLS, Shell, shell
from dagrun.planners.prompt_texts import PROMPT_VERSION, TEXTS
from dagrun.testing import ModelAnswer
from goal_shell import BAD, GOOD, served, without_keys

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

GOAL = "Add one and one, and then five"


def told(prompt: dict[str, object]) -> list[tuple[object, object]]:
    """The conversation of ``dagrun plan --show-prompt --json``, as a server sees it."""
    messages = prompt["messages"]
    assert isinstance(messages, list)
    return [("system", prompt["system"]), *((turn["role"], turn["text"]) for turn in messages)]


@pytest.mark.parametrize("dialect", ["json", "compiler", "calls"])
def test_prompt_is_what_the_model_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch, dialect: str) -> None:
    """With inputs and ceilings, which are told, too."""
    shell.file("policy.toml", "max_attempts = 7\nmax_steps = 9\n")
    args = (GOAL, *TOOLS, "-i", "region=EU", "--policy", "policy.toml", "--dialect", dialect)
    act = GOOD if dialect == "json" else ModelAnswer("1. add(1)\n2. join($1)\n")

    with served(monkeypatch, act) as server:
        assert shell("plan", *args).code == 0
    shown = shell("plan", "--show-prompt", *args, "--json").json

    (call,) = server.calls
    assert told(shown) == list(call.turns)
    assert (shown["form"] and shown["form"]["schema"]) == call.schema
    assert (shown["prompt_version"], shown["kind"], shown["dialect"]) == (PROMPT_VERSION, "first", dialect)


def test_second_prompt_shows_what_was_wrong(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that was refused is an example; what goes before and after it is what a model is told."""
    with served(monkeypatch, BAD, GOOD) as server:
        assert shell("plan", GOAL, *TOOLS).code == 0
    shown = told(shell("plan", "--show-prompt", GOAL, *TOOLS, "--kind", "repair", "--json").json)

    really = list(server.calls[1].turns)
    assert [role for role, _ in shown] == [role for role, _ in really] == ["system", "user", "assistant", "user"]
    assert shown[:2] == really[:2]
    assert "no_such_tool" in str(shown[2][1])
    assert str(shown[3][1]).splitlines()[-1] == really[3][1].splitlines()[-1]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("first", ["Write the plan."]),
        ("repair", ["Your answer was refused", "no_such_tool"]),
        ("replan", ["Say how the plan changes.", '"failed_twice"', '"example"']),
        ("next", ["Say what is next."]),
    ],
)
def test_every_kind_is_shown_without_a_key(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, kind: str, words: list[str]
) -> None:
    without_keys(monkeypatch)

    ended = shell("plan", "--show-prompt", GOAL, *TOOLS, "--kind", kind)

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"--- system (version {PROMPT_VERSION}) ---\n")
    assert "--- user ---" in ended.out
    assert GOAL in ended.out
    assert '{"name": "add"' in ended.out
    for word in words:
        assert word in ended.out


def test_goal_and_tools_may_be_left_out(shell: Shell) -> None:
    """The tools are those of installed packages, then."""
    ended = shell("plan", "--show-prompt")

    assert ended.code == 0
    assert "(the goal, in words)" in ended.out


def test_tools_are_not_called_and_no_file_is_written(shell: Shell) -> None:
    for kind in ("first", "repair", "replan", "next"):
        shell("plan", "--show-prompt", GOAL, *TOOLS, "--kind", kind)

    assert not list(shell.folder.iterdir())


def test_texts_can_be_replaced_in_the_settings_and_the_version_says_so(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What --texts prints is valid in dagrun.toml, and the model is told what stands there."""
    printed = tomllib.loads(shell("plan", "--show-prompt", "--texts").out)
    assert printed == {"prompts": dict(TEXTS)}
    own = (
        'instructions = "Amounts are in euros."\nconstraints = ["Add no more than twice."]\n[prompts]\nrole = "Plan."\n'
    )
    shell.file("dagrun.toml", own)

    with served(monkeypatch, GOOD) as server:
        planned = shell("plan", GOAL, *TOOLS, "--json")
        shown = shell("plan", "--show-prompt", GOAL, *TOOLS, "--json").json

    assert planned.code == 0, planned.err
    assert told(shown) == list(server.calls[0].turns)
    assert shown["system"].startswith("Plan.\n\n# What you are given")
    assert "# What the host says\n\nAmounts are in euros.\n\nEvery plan keeps these rules." in shown["system"]
    assert shown["prompt_version"].startswith(f"{PROMPT_VERSION}+")
    assert "role = '''\nPlan.'''" in shell("plan", "--show-prompt", "--texts").out


def test_a_text_that_does_not_exist_is_refused(shell: Shell) -> None:
    shell.file("dagrun.toml", '[prompts]\nroles = "Plan."\n')

    ended = shell("plan", "--show-prompt", GOAL, *TOOLS)

    assert ended.code == 2
    assert "prompts.roles: there is no such text; did you mean role?" in ended.err
