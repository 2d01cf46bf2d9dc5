"""The command line starts fast, imports only what it needs, and ends with the right exit code."""

import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import get_args

import click
import pytest
from click.testing import CliRunner

from command_line import Shell, environment, shell
from dagrun._version import __version__
from dagrun.cli.command_table import COMMANDS, LazyGroup, cli
from dagrun.cli.main import main
from dagrun.cli.option_table import OPTIONS
from dagrun.cli.setup.setting_fields import Api, Dialect, Level, Mode, Structure
from dagrun.kernel.model.secrets import Personal
from dagrun.observe.report.report import FORMS
from dagrun.planners.prompts import Kind

__all__ = ["shell"]

HEAVY = {"anyio", "httpx", "matplotlib", "networkx", "openai", "pydantic", "rich", "yaml"}


def python(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, timeout=30)


@pytest.fixture
def lazy_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LazyGroup:
    """A group with one working command, ``greet``, and one whose module can't be imported, ``broken``."""
    (tmp_path / "greet_command.py").write_text(
        "import click\n\n@click.command\n@click.argument('name')\ndef greet(name):\n    click.echo(f'hello {name}')\n"
    )
    (tmp_path / "broken_command.py").write_text("raise ImportError('imported too early')\n")
    monkeypatch.syspath_prepend(tmp_path)
    group = LazyGroup("demo")
    group.add_lazy("greet", "greet_command:greet", "Say hello.")
    group.add_lazy("broken", "broken_command:broken", "Never works.")
    return group


@pytest.mark.parametrize("args", [["--version"], ["--version", "--version"]], ids=["fast path", "click"])
@pytest.mark.costly
def test_version_is_one_line(args: list[str]) -> None:
    """The short way round click prints what click prints."""
    result = python("-m", "dagrun", *args)

    assert (result.returncode, result.stdout, result.stderr) == (0, f"dagrun {__version__}\n", "")


@pytest.mark.parametrize(("module", "banned"), [("main", HEAVY | {"click"}), ("command_table", HEAVY)])
@pytest.mark.costly
def test_start_imports_nothing_heavy(module: str, banned: set[str]) -> None:
    """`dagrun --version` loads the first module, `dagrun --help` both: that is what they cost."""
    result = python("-c", f"import sys, dagrun.cli.{module}; print(*sys.modules)")

    assert result.returncode == 0, result.stderr
    assert banned.isdisjoint(result.stdout.split())


# What lists and help pages may not import: the engine, and all that takes longer to load than they take to print.
LIGHT = HEAVY | {"asyncio", "dagrun.api", "dagrun.kernel.graph", "dagrun.kernel.runtime", "dagrun.kernel.model.plan"}
# What a plain run does not need. networkx judges only plans whose steps are out of order.
UNUSED = (HEAVY - {"anyio", "pydantic"}) | {
    "dagrun.executors.processes",
    "dagrun.executors.wire",
    "dagrun.kernel.graph.patches.check_patch",
    "dagrun.kernel.graph.patches.apply_patch",
    "dagrun.llm.language_model",
    "dagrun.kernel.runtime.planning.coordinator",
    "dagrun.features.hedging",
}


def modules_of(shell: Shell, *calls: Sequence[str]) -> set[str]:
    """The modules that commands, called one after another in a process of their own, have imported."""
    code = f"""if True:
        import sys
        from dagrun.cli.main import main
        codes = [main(call) or 0 for call in {[list(call) for call in calls]}]
        print(*codes, *sys.modules, file=sys.stderr)"""
    command, folder = [sys.executable, "-c", code], shell.folder
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, env=environment())
    words = done.stderr.splitlines()[-1].split()
    assert words[: len(calls)] == ["0"] * len(calls), done.stderr[-2_000:]
    return set(words[len(calls) :])


# What is not installed without an extra, as `None` in sys.modules makes it.
_OPTIONAL = ["starlette", "uvicorn", "resvg_py", "mcp", "asyncpg", "opentelemetry", "anthropic", "matplotlib"]
_NEEDS = [
    (["serve"], "ui"),
    (["run", "plan.json", "--tools", "cli_tools", "--serve"], "ui"),
    (["run", "plan.json", "--tools", "cli_tools", "--report", "run.png"], "png"),
    (["show", "plan.json", "-f", "png", "-o", "plan.png"], "png"),
    (["run", "plan.json", "--tools", "cli_tools", "--trace"], "otel"),
    (["runs", "--journal", "postgresql://nobody@127.0.0.1:1/none"], "postgres"),
    (["mcp", "serve", "--tools", "cli_tools:add"], "mcp"),
    (["do", "Count", "--tools", "cli_tools", "--planner", "anthropic", "--model", "any"], "anthropic"),
    (["bench", "plan.json", "--tools", "cli_tools", "--plot", "modes.png"], "tools"),
]


@pytest.mark.costly
def test_what_needs_an_extra_says_so_in_one_line_before_anything_runs(shell: Shell) -> None:
    """Whoever has just installed dagrun has no extra: a traceback tells them nothing."""
    shell.plan({"id": "a", "tool": "add", "args": {"a": 1}})
    code = f"""if True:
        import os, sys
        from dagrun.cli.main import main
        os.environ["ANTHROPIC_API_KEY"] = "none"
        sys.modules.update(dict.fromkeys({_OPTIONAL}))
        for call in {[call for call, _ in _NEEDS]}:
            print(main(call), file=sys.stderr)"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=shell.folder, check=False, env=environment()
    )

    lines = done.stderr.splitlines()
    assert lines[1::2] == ["2"] * len(_NEEDS), done.stderr
    for line, (call, extra) in zip(lines[::2], _NEEDS, strict=True):
        assert line.startswith("Error: "), call
        assert f"dagrun-engine[{extra}]" in line
    assert done.stdout == ""
    assert not shell.runs.exists() or not any(shell.runs.iterdir())


@pytest.mark.costly
def test_the_help_of_no_command_loads_the_engine(shell: Shell) -> None:
    """A help page that takes a second is not read twice."""
    assert LIGHT.isdisjoint(modules_of(shell, ["--help"], *([name, "--help"] for name in COMMANDS)))


def test_choices_of_options_are_those_of_what_they_choose() -> None:
    """They stand in the table of options, too, as the help must not load the engine."""
    choices = {(name, row.setting): row.parameter().type for row in OPTIONS for name in row.usual | row.more}

    def told(command: str, setting: str) -> tuple[str, ...]:
        kind = choices[command, setting]
        assert isinstance(kind, click.Choice)
        return tuple(kind.choices)

    assert told("report", "form") == FORMS
    assert told("report", "redact") == get_args(Personal)
    assert told("plan", "kind") == get_args(Kind)
    for setting, values in (("api", Api), ("structure", Structure), ("dialect", Dialect), ("durability", Level)):
        assert told("run", setting) == get_args(values)
    assert told("run", "mode") == get_args(Mode)


@pytest.mark.costly
def test_lists_load_no_engine(shell: Shell) -> None:
    """Also with runs to list, in a project with settings."""
    shell.plan({"id": "a", "tool": "add", "args": {"a": 1}})
    assert shell("run", "plan.json", "--tools", "cli_tools").code == 0
    shell.trusted("dagrun.toml", "tools = ['cli_tools']\nmax_running = 3\nsecrets = ['KEY']\n")

    assert LIGHT.isdisjoint(modules_of(shell, ["runs"], ["runs", "--json"], ["config"], ["prune", "-n"]))


@pytest.mark.costly
def test_a_plain_run_loads_only_what_it_needs(shell: Shell) -> None:
    """Half of its CPU time would go into planners, patches, processes and the graphs of others."""
    shell.plan({"id": "a", "tool": "add", "args": {"a": 1}})

    ran = modules_of(shell, ["run", "plan.json", "--tools", "cli_tools"])
    checked = modules_of(shell, ["check", "plan.json", "--tools", "cli_tools"])
    assert UNUSED.isdisjoint(ran)
    assert (UNUSED | {"dagrun.kernel.runtime.run"}).isdisjoint(checked)
    assert not [name for name in ran | checked if name.startswith("dagrun.planners")]


@pytest.mark.costly
def test_networkx_judges_a_plan_out_of_order(shell: Shell) -> None:
    """It is loaded where there is something to judge, and only there."""
    shell.plan({"id": "b", "tool": "add", "args": {"a": "${a}"}}, {"id": "a", "tool": "add", "args": {"a": 1}})

    assert "networkx" in modules_of(shell, ["check", "plan.json", "--tools", "cli_tools"])


@pytest.mark.costly
def test_version_costs_under_100_ms_of_cpu() -> None:
    """CPU of the whole process, the interpreter's own start included; the best of ten, as noise only adds."""
    resource = pytest.importorskip("resource", reason="CPU time of children needs Unix")

    def cpu_of_one_start() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert python("-m", "dagrun", "--version").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return float(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert min(cpu_of_one_start() for _ in range(10)) < 0.100


def test_every_command_of_the_table_can_be_loaded() -> None:
    """A typing error in the table would otherwise wait for a user to find it."""
    for name, (target, help_line) in COMMANDS.items():
        module, _, attribute = target.partition(":")

        assert isinstance(getattr(import_module(module), attribute), click.Command), name
        assert help_line.endswith("."), name


def test_help_lists_commands_without_importing_them(lazy_group: LazyGroup) -> None:
    result = CliRunner().invoke(lazy_group, ["--help"])

    assert result.exit_code == 0
    assert "Say hello." in result.stdout
    assert "Never works." in result.stdout


def test_lazy_command_is_imported_when_called(lazy_group: LazyGroup) -> None:
    result = CliRunner().invoke(lazy_group, ["greet", "Ada"])

    assert result.stdout == "hello Ada\n"


def test_lazy_command_shows_its_own_help(lazy_group: LazyGroup) -> None:
    result = CliRunner().invoke(lazy_group, ["greet", "--help"])

    assert "NAME" in result.stdout


@pytest.mark.parametrize("args", [["--no-such-option"], ["no-such-command"], ["mcp", "no-such-command"]])
def test_wrong_usage_ends_with_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    assert "Usage: dagrun" in capsys.readouterr().err


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (5, 5)])
def test_exit_code_is_what_the_command_returns(
    returned: int | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cli.commands, "demo", click.Command("demo", callback=lambda: returned))

    assert main(["demo"]) == code


def test_interrupted_command_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.commands, "demo", click.Command("demo", callback=interrupted))

    assert main(["demo"]) == 130
    assert "Cancelled." in capsys.readouterr().err
