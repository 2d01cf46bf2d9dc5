"""Every command behaves alike: its help, its errors, and what it prints where there is no terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from command_line import Shell, shell
from dagrun.cli.command_table import COMMANDS, GROUPS, OLD_NAMES, LazyCommand, cli
from dagrun.cli.option_table import OPTIONS
from dagrun.cli.table_command import OLD_OPTIONS

__all__ = ["shell"]


def paths() -> Iterator[tuple[str, ...]]:
    """Every command of ours, and every command below one."""
    for name, target in COMMANDS.items():
        yield (name,)
        command = LazyCommand(name, *target).load()
        if isinstance(command, click.Group):
            yield from ((name, inner) for inner in command.commands)


PATHS = list(paths())
IDS = [" ".join(path) for path in PATHS]


@pytest.mark.parametrize("path", PATHS, ids=IDS)
def test_help_has_a_usage_an_example_and_80_columns(path: tuple[str, ...], shell: Shell) -> None:
    """An example is what people read first; a line that is too long is broken where it means something else."""
    shown = shell(*path, "--help")

    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"Usage: dagrun {' '.join(path)}")
    assert max(map(len, shown.out.splitlines())) <= 80
    has_commands = "\nCommands:\n" in shown.out
    assert not has_commands or "..." not in shown.out.partition("\nCommands:\n")[2], "give the command a short_help"
    assert has_commands or re.search(rf"\n  Examples?:\n(.*\n)*? .*dagrun {' '.join(path)}", shown.out), shown.out
    assert "\x1b" not in shown.out


@pytest.mark.parametrize("name", ["run", "do", "resume", "retry"])
def test_help_of_a_run_has_two_parts(name: str, shell: Shell) -> None:
    """Nobody reads forty options: the usual ones fit on a page, and one of them shows the others."""
    option = re.compile(r"^  (?:-\w, )?(--?[\w-]+)", re.MULTILINE)

    usual = set(option.findall(shell(name, "--help").out.partition("\nOptions:\n")[2]))
    every = set(option.findall(shell(name, "--help-all").out.partition("\nOptions:\n")[2]))

    assert {"--tools", "--json", "--help-all"} <= usual < every
    assert len(usual) <= 17
    params = LazyCommand(name, *COMMANDS[name]).load().params
    assert every == {one.opts[-1] for one in params if isinstance(one, click.Option) and not one.hidden} | {"--help"}


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_an_old_name_runs_and_says_the_new_one(old: str, new: str, shell: Shell) -> None:
    """Scripts go on for one release; the help page lists only the new name."""
    told = shell(*old.split(), "--help")

    assert told.err == f"dagrun {old} is now called: dagrun {new}; the old name is removed in 0.4\n"
    assert (told.code, told.out) == (0, shell(*new.split(), "--help").out)
    assert f"  {old} " not in shell("--help").out


@pytest.mark.parametrize("words", [["--standing", "lost"], ["--standing=lost"]])
def test_an_old_option_is_read_and_says_the_new_one(words: list[str], shell: Shell) -> None:
    """Scripts go on for one release; the help page lists only the new name."""
    told = shell("runs", *words)

    assert told.err.startswith(
        "--standing is now called: --state; the old name is removed in 0.4\nError: --state lost: write queued, "
    )
    assert (told.code, "--standing" in shell("runs", "--help").out) == (2, False)
    assert "no such option" in shell("inspect", "last", *words).err.lower()


def test_old_options_are_replaced_by_options_that_exist() -> None:
    has = {(command, row.shown.split()[0]) for row in OPTIONS for command in row.usual}

    assert has >= {(command, new) for command, renamed in OLD_OPTIONS.items() for new in renamed.values()}


def test_rows_of_options_name_commands_that_exist() -> None:
    """A row with a command that is misspelt would be lost without a word."""
    named = {name for row in OPTIONS for name in row.usual | row.more}

    assert named - {"*"} <= {".".join(path) for path in PATHS}


@pytest.mark.parametrize("path", PATHS, ids=IDS)
def test_an_unknown_option_is_told_with_the_usage(path: tuple[str, ...], shell: Shell) -> None:
    ended = shell(*path, "--no-such-option")

    assert (ended.code, ended.out) == (2, "")
    assert "Usage: dagrun" in ended.err
    assert "Error: No such option" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", ["resume", "retry", "inspect", "answer", "stop"])
def test_a_run_that_does_not_exist_is_a_wrong_input(name: str, shell: Shell) -> None:
    """And the folder in which it was looked for is named."""
    ended = shell(name, "nothing")

    assert ended.code == 2
    assert "there are no runs in" in ended.err


@pytest.mark.parametrize("name", ["run", "check", "show", "bench"])
def test_a_plan_that_does_not_exist_is_a_wrong_input(name: str, shell: Shell) -> None:
    ended = shell(name, "nothing.json", "--tools", "cli_tools")

    assert ended.code == 2
    assert "nothing.json" in ended.err


def test_every_command_has_one_heading_on_the_help_page(shell: Shell) -> None:
    """A command that nobody finds does not exist."""
    listed = [name for names in GROUPS.values() for name in names]

    assert len(listed) == len(set(listed))
    assert COMMANDS.keys() <= set(listed), "give the command a heading in GROUPS"
    shown = shell("--help").out
    assert "..." not in shown.partition("Plans:")[2], "the line of a command, be it of another package, is cut off"
    for name in COMMANDS:
        assert len(re.findall(rf"^  {name} ", shown, re.MULTILINE)) == 1, name
    assert cli.name == "cli"


@pytest.mark.parametrize("columns", ["20", "40", "80", "300"])
def test_pages_fit_any_width(columns: str, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words stay whole, and commands stay on one line."""
    shell.plan({"id": "a_step_with_a_long_name", "tool": "fail"}, {"id": "b", "tool": "add", "args": {"a": 1}})
    assert shell("run", "plan.json", "--tools", "cli_tools").code == 1
    monkeypatch.setenv("COLUMNS", columns)

    pages = [
        shell("inspect", "last"),
        shell("inspect", "last", "--timeline"),
        shell("runs"),
        shell("inspect", "last", "--state"),
    ]

    assert all(page.code == 0 for page in pages)
    words = pages[0].out.split()
    assert {"a_step_with_a_long_name:", shell.run_id} <= set(words)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plan", "name the GOAL, in quotation marks; or --show-prompt"),
        ("plan goal --kind next", "--kind is for --show-prompt"),
        ("plan goal --texts", "--texts is for --show-prompt"),
        ("tools --ignore DR801", "--ignore is for --check"),
        ("tools --rehearse {}", "--rehearse is for --check"),
        ("tools --check --then {}", "--then is for --rehearse"),
        ("tools x --check --rehearse {} --ignore DR801", "--ignore is for findings; a rehearsal has none"),
        ("tools --check --rehearse {}", "--rehearse calls one tool: name it"),
        ("mcp pin --json", "--json is for --check"),
        ("mcp pin --check --yes", "--check writes nothing; leave --yes out"),
        ("runs --verify --state ended", "--verify reads every record; leave --state out"),
        ("schema nothing", "'nothing' is not one of 'plan', 'view', 'toolset', 'eval', 'events'"),
    ],
)
def test_an_option_without_the_one_that_it_belongs_to_is_refused(line: str, said: str, shell: Shell) -> None:
    """An option that is taken and ignored is believed to have done something."""
    ended = shell(*line.split())

    assert (ended.code, said in ended.err) == (2, True), ended.err
