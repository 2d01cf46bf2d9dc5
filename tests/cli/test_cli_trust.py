"""What a checkout, or the current folder, brings along is not run, and gets no key, before the user has said yes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import SECONDS, TOOLS, Shell, command, environment, shell
from dagrun.cli.setup.settings import configure, read_settings
from dagrun.cli.terminal.user_errors import BadInput
from dagrun_tools.files import confined_files

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

STEP = {"id": "a", "tool": "echo", "args": {"value": 1}}
CODE = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\nTOOLS = []\n"

# Settings that a file may only name if it is trusted; and what reads them.
DOUBTFUL = {
    "tools = ['evil']": "tools",
    "[openapi.evil]\nfile = 'a.json'": "openapi",
    "mcp_files = ['a.json']": "mcp_files",
    "mcp_pins = 'a.json'": "mcp_pins",
    "[mcp.evil]\ntrust = 'hints'": "mcp",
    "planner = 'evil:planner'": "planner",
    "planner = 'openai'": "planner",
    "base_url = 'http://127.0.0.1:1/v1'": "base_url",
    "secrets = ['key=env:OPENAI_API_KEY']": "secrets",
    "runs = 'runs'": "runs",
    "output = '../elsewhere'": "output",
    "[prices.m]\ninput_per_mtok = 0\noutput_per_mtok = 0": "prices",
    "[policy]\nmin_confidence = 0": "policy",
    "[policy.tools.files]\nroot = '/'": "policy",
    "[policy]\ndefault_answer = 'approve'": "policy",
    "[policy]\napprove = [{tool = '*', default_answer = 'approve'}]": "policy",
    "[policy]\nbrief = 'full'": "policy",
    "[policy]\nstream_safe = ['pay']": "policy",
    "[policy.questions]\ndefault_answer = 'approve'": "policy",
    "[policy.planning]\nbrief = 'full'": "policy",
    "[policy.planning]\nstream_safe = ['pay']": "policy",
}
PLAIN = [
    "mode = 'waves'",
    "max_running = 2",
    "[policy]\nmax_steps = 3",
    "output = 'out'",
    "model = 'm'",
    "api = 'chat'",
]


@pytest.mark.parametrize("content", DOUBTFUL)
@pytest.mark.parametrize("file", ["dagrun.toml", "pyproject.toml"])
def test_a_setting_that_names_something_is_refused_until_the_user_says_yes(
    shell: Shell, content: str, file: str
) -> None:
    """Whoever reads it: it is refused where all read it. The error names the file, the setting, and the command."""
    table = "tool.dagrun"
    wanted = content if file == "dagrun.toml" else _below(table, content)
    shell.file(file, wanted)
    name = DOUBTFUL[content]
    with pytest.raises(BadInput) as caught:
        getattr(configure({}).settings, name)
    told = caught.value.message
    assert f"{shell.folder / file} is not trusted" in told
    assert f"  {name} = " in told
    assert f"dagrun config trust {shell.folder / file}" in told

    ended = shell("config", "trust")
    assert (ended.code, ended.out) == (0, f"trusted: {shell.folder / file}\n")
    assert getattr(configure({}).settings, name)

    shell.file(file, wanted + "\n# a comment is no change\n")
    assert getattr(configure({}).settings, name)
    mode = "mode = 'waves'\n"
    shell.file(file, mode + wanted if file == "dagrun.toml" else _below(table, mode + content))
    with pytest.raises(BadInput, match="has changed since you trusted it"):
        getattr(configure({}).settings, name)
    shell.file(file, wanted)
    assert getattr(configure({}).settings, name)
    ended = shell("config", "trust", "--undo")
    assert ended.out.startswith("no longer trusted")
    with pytest.raises(BadInput, match="is not trusted"):
        getattr(configure({}).settings, name)


def _below(table: str, content: str) -> str:
    """Settings as a table of another file."""
    for name in ("policy", "prices", "openapi", "mcp"):
        content = content.replace(f"[{name}", f"[{table}.{name}")
    return f"[{table}]\n{content}"


@pytest.mark.parametrize("content", PLAIN)
def test_other_settings_need_no_yes(shell: Shell, content: str) -> None:
    shell.file("dagrun.toml", content)
    configuration = configure({})
    assert configuration.untrusted == ()
    configuration.limits()


@pytest.mark.parametrize("content", [content for content in DOUBTFUL if not content.startswith("planner = 'e")])
@pytest.mark.parametrize("place", ["DAGRUN_CONFIG", "the user's own"])
def test_a_file_that_the_user_has_named_needs_no_yes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, content: str, place: str
) -> None:
    if place == "DAGRUN_CONFIG":
        shell.file("mine.toml", content)
        monkeypatch.setenv("DAGRUN_CONFIG", "mine.toml")
    else:
        folder = Path(os.environ["XDG_CONFIG_HOME"]) / "dagrun"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(content)
    assert getattr(configure({}).settings, DOUBTFUL[content])


def test_what_the_command_line_or_the_environment_names_needs_no_yes(shell: Shell) -> None:
    """And it hides what the file says."""
    shell.file("dagrun.toml", "tools = ['evil']\nbase_url = 'http://evil'\nruns = 'runs'")
    names = {"DAGRUN_RUNS": "mine", "OPENAI_BASE_URL": "http://mine"}
    configuration = configure({"tools": ["cli_tools"]}, names)
    settings = configuration.settings
    assert (settings.tools, settings.base_url, settings.runs) == (["cli_tools"], "http://mine", "mine")


def test_a_policy_beside_the_settings_is_asked_by_itself(shell: Shell) -> None:
    """Its content may change while that of the settings does not."""
    shell.file("dagrun.toml", "policy = 'limits.toml'\n")
    shell.file("limits.toml", "max_steps = 3\n")
    assert configure({}).limits().policy.max_steps == 3
    shell.file("limits.toml", "max_steps = 3\n[tools.network]\nallow_private = true\n")
    with pytest.raises(BadInput, match=r"limits\.toml is not trusted"):
        configure({}).limits()
    assert configure({"policy": "limits.toml"}).limits().for_tools
    assert shell("config", "trust").out.count("trusted:") == 2
    assert configure({}).limits().for_tools
    shell.file("limits.toml", "max_steps = 3\n[tools.network]\nallow_private = false\n")
    with pytest.raises(BadInput, match="has changed"):
        configure({}).limits()


def test_a_copy_elsewhere_is_not_trusted(shell: Shell) -> None:
    shell.trusted("dagrun.toml", "tools = ['cli_tools']")
    (shell.folder / "other").mkdir()
    shell.file("other/dagrun.toml", "tools = ['cli_tools']")
    found = read_settings(shell.folder / "other" / "dagrun.toml")
    assert found is not None
    assert not found.is_trusted


def test_no_command_runs_code_of_a_checkout_without_a_yes(shell: Shell) -> None:
    """And the settings are shown nevertheless, so that the user can look."""
    shell.file("evil.py", CODE)
    shell.file("dagrun.toml", "tools = ['evil']\nplanner = 'evil:planner'\n")
    plan = shell.plan(STEP)
    commands = ["run", plan], ["check", plan], ["show", plan], ["tools", "list"], ["prompt"], ["do", "x"], ["plan", "x"]
    for words in commands:
        ended = shell(*words)
        assert ended.code == 2, words
        assert "dagrun config trust" in ended.err, words
    assert not (shell.folder / "evil.ran").exists()
    assert shell("run", plan, *TOOLS).code == 0
    assert shell("runs").code == 0
    ended = shell("config", "show", "--json")
    assert ended.json["settings"]["tools"] == {
        "value": ["evil"],
        "origin": f"{shell.folder / 'dagrun.toml'} (not trusted)",
    }


def test_file_tools_cannot_say_yes(shell: Shell) -> None:
    """A tool that may write below the home folder could trust a file, or write the user's own settings."""
    configure({})
    state, own = Path(os.environ["XDG_STATE_HOME"]), Path(os.environ["XDG_CONFIG_HOME"])
    (own / "dagrun").mkdir(parents=True)
    (state / "dagrun").mkdir()
    for root, path in ((state, "dagrun/trusted/x"), (own, "dagrun/config.toml")):
        with pytest.raises(confined_files.OutsideRoot):
            confined_files.write(root, path, b"x", overwrite=True)


@pytest.mark.parametrize("words", [["tools"], ["plan", "--show-prompt"], ["schema", "toolset"], ["--help"]])
@pytest.mark.parametrize("start", ["-m", "-c"])
@pytest.mark.costly
def test_commands_import_nothing_of_the_current_folder(shell: Shell, words: list[str], start: str) -> None:
    """Say, of a folder of downloads: no tools are named."""
    for name in ("httpx", "click", "anyio", "dagrun_tools", "uvloop", "rich", "networkx"):
        shell.file(f"{name}.py", CODE)
    program = command(*words)
    if start == "-c":  # as a script that is installed
        program = [sys.executable, "-P", "-c", "import sys; from dagrun.cli.main import main; sys.exit(main())", *words]
    ended = subprocess.run(
        program, cwd=shell.folder, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert list(shell.folder.glob("*.ran")) == []


@pytest.mark.parametrize("tools", ["mine_to_import", "dagrun_tools"])
def test_a_module_that_is_named_lets_no_other_file_stand_in_for_a_library(shell: Shell, tools: str) -> None:
    """Not even for one that is not installed, if the named module is."""
    for name in ("httpx", "matplotlib", "dagrun_tools", "surely_not_installed"):
        shell.file(f"{name}.py", CODE)
    shell.file("mine_to_import.py", "import dagrun\n@dagrun.tool(effect='pure')\ndef f() -> int:\n    return 1\n")
    before = list(sys.path)
    assert shell("tools", "--tools", tools).code == 0
    assert list(shell.folder.glob("*.ran")) == []
    assert sys.path == [*before, *([str(shell.folder)] if tools == "mine_to_import" else [])]
