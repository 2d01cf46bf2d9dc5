"""The smaller commands; and those that other packages add."""

import importlib.metadata
import io
import json
import sys
import xml.etree.ElementTree as ET
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from command_line import TOOLS, Shell, shell
from dagrun.cli.command_table import COMMANDS, cli
from dagrun.cli.main import main

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

PLAN: list[dict[str, Any]] = [
    {"id": "one", "tool": "nap", "args": {"seconds": 0.05}},
    {"id": "two", "tool": "nap", "args": {"seconds": 0.05}},
    {"id": "end", "tool": "add", "args": {"a": 1}, "depends_on": ["one", "two"]},
]


def test_tree_shows_every_step(shell: Shell) -> None:
    shown = shell("show", shell.plan(*PLAN)).out

    for id_ in ("one", "two", "end"):
        assert f"{id_}: " in shown


@pytest.mark.parametrize(("form", "begin"), [("mermaid", "flowchart"), ("dot", "digraph")])
def test_drawings(shell: Shell, form: str, begin: str) -> None:
    assert shell("show", shell.plan(*PLAN), "--format", form).out.startswith(begin)


@pytest.mark.parametrize("form", ["tree", "mermaid", "dot", "json"])
def test_a_drawing_is_the_same_in_a_file(shell: Shell, form: str) -> None:
    """Whatever its name is; and it is never written over the plan."""
    plan = shell.plan(*PLAN)
    shown = shell("show", plan, "-f", form)

    assert shell("show", plan, "-f", form, "-o", "drawn.txt").code == 0
    assert (shell.folder / "drawn.txt").read_text() == shown.out
    refused = shell("show", plan, "-f", form, "-o", plan)
    assert (refused.code, "it is the plan itself" in refused.err) == (2, True)


def test_a_tree_is_drawn_in_ascii_where_there_is_nothing_else(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = shell.plan(*PLAN)
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", output)

    assert main(["show", plan]) == 0
    output.flush()
    drawn = output.buffer.getvalue().decode()
    assert "`- end" in drawn
    assert "\\" not in drawn


def test_plan_as_json_can_be_read_again(shell: Shell) -> None:
    """It is the plan as dagrun understands it, in its own dialect."""
    numbered = {"steps": [{"step_number": 1, "action": "nap", "parameters": {"seconds": 1}}]}
    shell.file("numbered.json", json.dumps(numbered))

    shown = shell("show", "numbered.json", "-f", "json")
    shell.file("again.json", shown.out)

    assert shown.json["steps"][0]["tool"] == "nap"
    assert shell("show", "again.json", "-f", "json").json == shown.json


def test_check_gives_advice_and_strict_refuses_it(shell: Shell) -> None:
    plan = shell.plan({"id": "a", "tool": "doubtful"})

    lax, strict = shell("check", plan, *TOOLS), shell("check", plan, *TOOLS, "--strict")

    assert lax.code == 0
    assert "DR910" in lax.out
    assert strict.code == 3
    assert "DR910" in strict.err


def test_check_without_inputs_does_not_ask_for_them(shell: Shell) -> None:
    plan = shell.plan({"id": "a", "tool": "echo", "args": {"value": "${input.x}"}})

    assert shell("check", plan, *TOOLS).code == 0
    assert shell("check", plan, *TOOLS, "-i", "y=1").code == 3


POLICY = """
max_cost = 5
approve = [{tool = "doubtful", when = {ref = "args", op = "exists"}, why = "it is doubtful"}]
"""


def test_check_with_a_policy_prints_the_open_questions(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """After what it prints without one, and as wide as the terminal; a pipe gets 80 columns."""
    plan = shell.plan({"id": "a", "tool": "doubtful"}, {"id": "b", "tool": "nap"})
    shell.file("policy.toml", POLICY)

    without = shell("check", plan, *TOOLS).out
    monkeypatch.setenv("COLUMNS", "40")
    narrow = shell("check", plan, *TOOLS, "--policy", "policy.toml").out
    monkeypatch.delenv("COLUMNS")
    wide = shell("check", plan, *TOOLS, "--policy", "policy.toml").out

    assert "Nobody has answered" not in without
    for shown, width in ((narrow, 40), (wide, 80)):
        before, _, questions = shown.partition("\nNobody has answered\n")
        assert before.startswith("plan.json: 2 steps, ")
        assert max(map(len, questions.splitlines())) <= width
    assert "  policy (max_seconds): how long may a run take?" in wide.splitlines()
    assert any(line.endswith("what happens after its final failure?") for line in wide.splitlines())


def test_check_as_json_holds_the_open_questions(shell: Shell) -> None:
    """Only if there is a policy: of the command line, or of the settings of the project."""
    plan = shell.plan({"id": "a", "tool": "doubtful"})
    shell.file("policy.toml", POLICY)

    assert "questions" not in shell("check", plan, *TOOLS, "--json").json
    questions = shell("check", plan, *TOOLS, "--json", "--policy", "policy.toml").json["questions"]
    assert questions["failure"] == ["a"]
    assert (questions["max_seconds"], "max_cost" in questions) == ([], False)
    shell.file("dagrun.toml", "policy = 'policy.toml'\n")
    assert shell("check", plan, *TOOLS, "--json").json["questions"] == questions


def test_a_policy_file_with_a_field_that_no_longer_exists_is_refused(shell: Shell) -> None:
    """It says which, and what to do."""
    shell.file("policy.toml", "guardrail_metric = 'cost below 0.50'\n")
    refused = shell("check", shell.plan({"id": "a", "tool": "nap"}), *TOOLS, "--policy", "policy.toml")

    assert refused.code == 2
    assert refused.err.endswith("take out guardrail_metric: a policy has no such field any more, as it had no effect\n")


def test_strict_refuses_what_the_policy_leaves_open(shell: Shell) -> None:
    """Together with the advice about the plan; without a policy there is nobody who left it open."""
    plan = shell.plan({"id": "a", "tool": "nap", "timeout": 1})
    shell.file("open.toml", "max_attempts = 5\n")
    shell.file("closed.toml", "max_attempts = 5\nmax_seconds = 60\n")

    refused = shell("check", plan, *TOOLS, "--strict", "--policy", "open.toml")

    assert refused.code == 3
    assert refused.err == "Error: DR915 policy.max_seconds: open question: how long may a run take?\n"
    assert shell("check", plan, *TOOLS, "--strict", "--policy", "closed.toml").code == 0
    assert shell("check", plan, *TOOLS, "--strict").code == 0


def test_check_gives_advice_about_the_shape_of_a_plan(shell: Shell) -> None:
    """What could run side by side, and what is a list in disguise; a strict check refuses it."""
    row = [{"id": f"s{n}", "tool": "nap", "depends_on": [f"s{n - 1}"] if n else [], "timeout": n + 1} for n in range(3)]
    adds = [{"id": f"a{n}", "tool": "add", "args": {"a": n, "b": 1}, "timeout": 1} for n in range(3)]
    plan = shell.plan(*row, *adds)

    told = shell("check", plan, *TOOLS, "--json").json["problems"]

    assert [each["code"] for each in told if each["code"] in ("DR904", "DR905")] == ["DR904", "DR905"]
    assert shell("check", plan, *TOOLS, "--strict").code == 3


GOOD = '''
import dagrun

@dagrun.tool(effect="read", timeout=5)
async def find_price(item: str) -> float:
    """Find what an item costs today.

    Args:
        item: The number of the item, such as A-17.

    Raises:
        ToolError: There is no such item.
    """
'''


def test_tools_are_checked(shell: Shell) -> None:
    """Each finding has a code, a reason and a mend, and the exit code says whether there is any."""
    shell.file("good_ones.py", GOOD)
    shell.file("bad_ones.py", GOOD + "\n@dagrun.tool\ndef process(data):\n    pass\n")

    good = shell("tools", "--check", "--tools", "good_ones")
    assert (good.code, good.out) == (0, "1 tool, nothing to say\n")

    bad = shell("tools", "--check", "--tools", "bad_ones")
    assert bad.code == 1
    assert (
        "\nprocess\n  DR801  the name process would fit any tool\n         fix: name it after what it does" in bad.out
    )
    assert "find_price" not in bad.out

    codes = ["DR801", "DR803", "DR805", "DR807", "DR808", "DR809", "DR810", "DR811", "DR812", "DR813"]
    found = shell("tools", "--check", "process", "--tools", "bad_ones", "--json").json
    assert [each["code"] for each in found["findings"]] == codes
    assert all(each["fix"] and each["message"] and each["path"] == "process" for each in found["findings"])
    ignored = [part for code in codes for part in ("--ignore", code)]
    assert shell("tools", "--check", "--tools", "bad_ones", *ignored).code == 0

    wrong = shell("tools", "--check", "--tools", "good_ones", "--ignore", "DR1")
    assert (wrong.code, "--ignore DR1: there is no such code" in wrong.err) == (2, True)


def test_tools_are_listed_and_shown(shell: Shell) -> None:
    listed = shell("tools", *TOOLS)
    shown = shell("tools", "add", *TOOLS)

    assert ["add", "pure", "coroutine", "Add", "two", "numbers."] in [line.split() for line in listed.out.splitlines()]
    assert [line.split() for line in shown.out.splitlines()[-2:]] == [
        ["a", "integer", "required", "The", "first."],
        ["b", "integer", "default", "1", "The", "second."],
    ]
    assert shell("tools", "add", *TOOLS, "--json").json["arguments"]["required"] == ["a"]


def test_tools_of_installed_packages_are_listed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    points = EntryPoints([EntryPoint("mine", "cli_tools", "dagrun.tools")])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **filters: points.select(**filters))

    assert "needs_a_person" in shell("tools").out


def test_schemas_are_json(shell: Shell) -> None:
    plan = shell("schema", "plan").json
    toolset = shell("schema", "toolset", *TOOLS).json

    assert "steps" in plan["properties"]
    assert {step["properties"]["tool"]["const"] for step in toolset["properties"]["steps"]["items"]["anyOf"]} >= {"add"}


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_script_is_for_this_command(shell: Shell, name: str) -> None:
    ended = shell("completion", name)

    assert ended.code == 0
    assert "_DAGRUN_COMPLETE" in ended.out


def test_completion_knows_lazy_commands(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_DAGRUN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "dagrun run --pol")
    monkeypatch.setenv("COMP_CWORD", "2")

    with pytest.raises(SystemExit):
        shell("run", "--pol")
    assert shell.capture.readouterr().out == "plain,--policy\n"


@pytest.mark.parametrize("args", [[], *([name] for name in COMMANDS), ["tools", "list"], ["tools", "show"]])
def test_every_command_has_help_with_an_example(shell: Shell, args: list[str]) -> None:
    ended = shell(*args, "--help")

    assert ended.code == 0
    assert "Example" in ended.out or "Commands:" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


# bench ----------------------------------------------------------------------------------------------------------------


def test_bench_compares_the_modes(shell: Shell) -> None:
    figures = shell("bench", shell.plan(*PLAN), *TOOLS, "--repeat", "2", "--json").json

    modes = figures["modes"]
    assert figures["repeats"] == 2
    assert list(modes) == ["sequential", "waves", "parallel"]
    assert all(len(mode["makespans"]) == 2 for mode in modes.values())
    assert modes["sequential"]["speed_up"] == 1
    for mode in modes.values():
        assert mode["critical_path"] <= mode["makespan"]
        assert mode["efficiency"] <= 1
    # A tenth of a second one after another, a twentieth side by side; how much of it is left depends on the machine.
    assert modes["sequential"]["makespan"] >= 0.1
    assert figures["best_speed_up"] > 1.1


@pytest.fixture(scope="module")
def fonts() -> None:
    """matplotlib keeps the files of its fonts open for good, from the first picture on."""
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().set_title("x")
    figure.savefig(io.BytesIO(), format="svg")


@pytest.mark.usefixtures("fonts")
def test_bench_draws_a_table_and_a_picture(shell: Shell) -> None:
    ended = shell("bench", shell.plan(*PLAN), *TOOLS, "--repeat", "1", "--plot", "modes.svg")

    assert [line.split()[0] for line in ended.out.splitlines()[1:4]] == ["sequential", "waves", "parallel"]
    assert ET.parse(shell.folder / "modes.svg").getroot().tag.endswith("svg")


def test_bench_repeats_no_effect_unasked(shell: Shell) -> None:
    shell.file(
        "effects.py",
        "import dagrun\n\n\n@dagrun.tool\nasync def send() -> int:\n"
        "    with open('sent', 'a') as file:\n        return file.write('x')\n",
    )
    args = ["bench", shell.plan({"id": "a", "tool": "send"}), "-t", "effects", "--repeat", "1"]

    refused = shell(*args)
    assert refused.code == 2
    assert "send may change the world, and would be called in each of 4 runs" in refused.err
    assert not (shell.folder / "sent").exists()

    assert shell(*args, "--repeat-effects").code == 0
    assert (shell.folder / "sent").read_text() == "xxxx"


def test_bench_stops_at_a_run_that_fails(shell: Shell) -> None:
    ended = shell("bench", shell.plan({"id": "a", "tool": "fail"}), *TOOLS)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("parallel: failed: a failed: there is nothing")
    assert ended.err.count("\n") == 1


# Commands of other packages -------------------------------------------------------------------------------------------


@pytest.fixture
def plugins(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.file(
        "greeting.py", "import click\n\n\n@click.command\ndef hello():\n    '''Say hello.'''\n    click.echo('hi')\n"
    )
    shell.file("no_good.py", "raise ImportError('needs more \\x1b[2J')\n")
    named = {"hello": "greeting:hello", "broken": "no_good:x", "run": "no_good:x", "no": "json:dumps"}
    points = EntryPoints(EntryPoint(name, value, "dagrun.commands") for name, value in named.items())
    monkeypatch.syspath_prepend(str(shell.folder))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **filters: points.select(**filters))
    monkeypatch.delitem(cli.__dict__, "_plugins", raising=False)


@pytest.mark.usefixtures("plugins")
def test_commands_of_other_packages_are_listed_and_run(shell: Shell) -> None:
    assert shell("hello").out == "hi\n"
    listed = shell("--help").out
    assert "Say hello." in listed


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("args", [["broken"], ["broken", "--help"], ["no", "-x"]])
def test_broken_command_of_another_package_costs_a_line(shell: Shell, args: list[str]) -> None:
    ended = shell(*args)

    assert ended.code != 0
    assert ended.err.startswith(f"Error: the command {args[0]} (")
    assert ended.err.count("\n") == 1
    assert "\x1b" not in ended.err
    assert "cannot be loaded" in shell("--help").out


@pytest.mark.usefixtures("plugins")
def test_our_own_commands_cannot_be_replaced(shell: Shell) -> None:
    assert shell("run", shell.plan(PLAN[0]), *TOOLS).code == 0


def test_entry_points_are_not_looked_at_for_our_own_commands(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(**filters: str) -> None:
        raise AssertionError("looked at entry points")

    monkeypatch.setattr(importlib.metadata, "entry_points", looked)
    monkeypatch.delitem(cli.__dict__, "_plugins", raising=False)

    assert shell("show", shell.plan(*PLAN)).code == 0


@pytest.mark.parametrize(
    ("args", "begins"),
    [
        ([], "Usage: dagrun "),
        (["tools", *TOOLS], "tool "),
        (["schema"], '{\n  "$schema"'),
        (["config"], "setting "),
        (["runs", "--verify"], "no runs"),
        (["tools", "--help"], "Usage: dagrun tools "),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else None,
)
def test_a_command_alone_does_what_is_most_useful(shell: Shell, args: list[str], begins: str) -> None:
    shown = shell(*args)

    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(begins)


OWN_TOOLS = '''
import dagrun

@dagrun.tool(effect="pure")
async def twice(number: int) -> int:
    """Double a number."""
    return 2 * number

@dagrun.tool(effect="pure", executor="process")
def thrice(number: int) -> int:
    return 3 * number
'''


@pytest.mark.costly
def test_tools_are_named_by_their_file(shell: Shell) -> None:
    """Also those that a worker process has to import."""
    shell.file("own_tools_here.py", OWN_TOOLS)
    steps = [{"id": name, "tool": name, "args": {"number": 2}} for name in ("twice", "thrice")]

    ended = shell("run", shell.plan(*steps), "--tools", "./own_tools_here.py", "--json")

    assert [ended.json["steps"][id_]["output"] for id_ in ("twice", "thrice")] == [4, 6]
    assert "thrice" not in shell("tools", "-t", "./own_tools_here.py:twice").out


def test_a_file_of_tools_stands_in_for_no_other_module(shell: Shell) -> None:
    shell.file("json.py", OWN_TOOLS)
    shell.file("not-a-name.py", OWN_TOOLS)

    for file, says in (("./json.py", "Python has another module json; rename the file"), ("not-a-name.py", "no name")):
        ended = shell("tools", "--tools", file)
        assert ended.code == 2
        assert says in ended.err


TALKER = '''
import asyncio
import dagrun

replies = None

@dagrun.tool(effect="read")
async def weather(city: str) -> str:
    """Ask for the weather."""
    global replies
    replies = replies or asyncio.Queue()
    asyncio.get_running_loop().call_later(0.01, replies.put_nowait, city)
    return await replies.get()
'''


def test_a_rehearsal_says_what_a_call_that_is_cut_off_leaves(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(TALKER)
    both = ("--rehearse", '{"city": "Oslo"}', "--then", '{"city": "Rome"}')

    done = shell("tools", "weather", "--tools", str(tmp_path / "talker.py"), "--check", *both)
    wrong = shell("tools", "weather", "--tools", str(tmp_path / "talker.py"), "--check", "--rehearse", "Oslo")

    last = "  the next call got the answer of the one that was cut off (await 1)"
    assert (done.code, done.out.splitlines()[-1]) == (1, last)
    assert wrong.code == 2
    assert '--rehearse takes a JSON object, such as \'{"city": "Oslo"}\', not Oslo' in wrong.err
