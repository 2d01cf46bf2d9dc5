"""The command line starts fast, imports only what it needs, and ends with the right exit code."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dagrun._version import __version__
from dagrun.cli.command_table import COMMANDS, LazyGroup, cli
from dagrun.cli.main import main

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
def test_version_is_one_line(args: list[str]) -> None:
    """The short way round click prints what click prints."""
    result = python("-m", "dagrun", *args)

    assert (result.returncode, result.stdout, result.stderr) == (0, f"dagrun {__version__}\n", "")


@pytest.mark.parametrize(("module", "banned"), [("main", HEAVY | {"click"}), ("command_table", HEAVY)])
def test_start_imports_nothing_heavy(module: str, banned: set[str]) -> None:
    """`dagrun --version` loads the first module, `dagrun --help` both: that is what they cost."""
    result = python("-c", f"import sys, dagrun.cli.{module}; print(*sys.modules)")

    assert result.returncode == 0, result.stderr
    assert banned.isdisjoint(result.stdout.split())


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


@pytest.mark.parametrize("args", [["--no-such-option"], ["no-such-command"], ["tools", "no-such-command"]])
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
