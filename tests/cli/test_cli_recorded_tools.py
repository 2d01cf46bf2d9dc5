"""Tools from the record, and the last run of a project: a run goes on without typing again what was typed once."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from command_line import Ended, Shell, shell

__all__ = ["shell"]

TOOLS = """
import dagrun
from pathlib import Path

@dagrun.tool(effect="pure")
async def fetch() -> str:
    if not (Path(__file__).parent / "ready").exists():
        raise dagrun.ToolError("not yet")
    return "{word}"
"""


def project(folder: Path, word: str = "mine") -> Path:
    """A project whose only step fails until there is a file ``ready``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own_tools.py").write_text(TOOLS.format(word=word))
    (folder / "plan.json").write_text('{"steps": [{"id": "a", "tool": "fetch"}], "output": "a"}')
    return folder


@pytest.fixture(autouse=True)
def _forget_module() -> None:
    """Each command imports the tools anew, as a process of its own would."""
    sys.modules.pop("own_tools", None)


def fresh(shell: Shell, *args: str) -> Ended:
    sys.modules.pop("own_tools", None)
    sys.path[:] = [path for path in sys.path if not (Path(path) / "own_tools.py").exists()]
    return shell(*args)


def failed_run(shell: Shell, folder: Path, *more: str) -> str:
    """Fail a run in *folder*, and return its name."""
    known = {path.name for path in shell.runs.iterdir()} if shell.runs.exists() else set()
    assert fresh(shell, "run", "plan.json", "-C", str(folder), *(more or ("--tools", "own_tools"))).code == 1
    (new,) = {path.name for path in shell.runs.iterdir()} - known
    return new


def test_a_run_is_retried_with_the_tools_that_it_began_with(shell: Shell) -> None:
    folder = project(shell.folder / "p")
    name = failed_run(shell, folder)
    (folder / "ready").touch()

    again = fresh(shell, "retry", "last", "-C", str(folder))

    assert (again.code, again.out) == (0, "mine\n")
    assert f"last: {name}" in again.err, "the user must see which run that is"


def test_tools_come_from_the_folder_where_the_run_began(shell: Shell) -> None:
    """A module of the same name in the current folder is code that nobody has named."""
    folder, other = project(shell.folder / "p"), project(shell.folder / "q", "evil")
    name = failed_run(shell, folder)
    (folder / "ready").touch()
    (other / "ready").touch()

    again = fresh(shell, "retry", name, "-C", str(other))

    assert (again.code, again.out) == (0, "mine\n")


def test_other_tools_are_compared_with_the_record(shell: Shell) -> None:
    """What the user names now counts, and differences are a question, not a surprise."""
    folder = project(shell.folder / "p")
    name = failed_run(shell, folder)
    (folder / "ready").touch()
    (folder / "own_tools.py").write_text(TOOLS.format(word="mine").replace("-> str", "-> list[str]"))

    again = fresh(shell, "retry", name, "-C", str(folder))

    assert again.code == 2
    assert "--allow-differences" in again.err


def test_a_record_that_others_may_have_written_names_no_code(shell: Shell) -> None:
    """Records may come with a checkout, and would import what they like; the error has the command to type."""
    folder = project(shell.folder / "p")
    name = failed_run(shell, folder)
    (folder / "ready").touch()
    shell.runs.rename(shell.folder / "brought")

    again = fresh(shell, "retry", name, "--runs", str(shell.folder / "brought"))

    assert again.code == 2
    assert "own_tools" not in sys.modules
    assert f"--tools own_tools --runs {shell.folder / 'brought'}" in again.err


def test_tools_of_a_project_need_its_trust_again(shell: Shell) -> None:
    """What a checkout has named is named by it again, so a changed file is asked about anew."""
    folder = project(shell.folder / "p")
    (folder / "dagrun.toml").write_text("tools = ['own_tools']")
    assert shell("config", "trust", str(folder / "dagrun.toml")).code == 0
    name = failed_run(shell, folder, "--max-running", "2")
    (folder / "ready").touch()

    assert fresh(shell, "retry", name, "-C", str(shell.folder)).code == 0  # from elsewhere, too

    (folder / "dagrun.toml").write_text("tools = ['own_tools', 'evil']")
    changed = fresh(shell, "retry", name, "-C", str(shell.folder))

    assert changed.code == 2
    assert "has changed since you trusted it" in changed.err


def test_a_folder_that_is_gone_is_named(shell: Shell) -> None:
    folder = project(shell.folder / "p")
    name = failed_run(shell, folder)
    shutil.rmtree(folder)

    again = fresh(shell, "retry", name)

    assert again.code == 2
    assert f"was started in {folder}" in again.err


def test_last_is_the_last_run_of_this_project(shell: Shell) -> None:
    """The last run of all may be one of another project: to retry that would be a mistake."""
    first, second = project(shell.folder / "one"), project(shell.folder / "two")
    (first / ".git").mkdir()
    (first / "deep").mkdir()
    mine, other = failed_run(shell, first), failed_run(shell, second)

    assert f"last: {mine}" in shell("inspect", "last", "-C", str(first / "deep")).err
    assert f"last: {other}" in shell("inspect", "last", "-C", str(second)).err


def test_last_without_a_run_of_the_project_says_what_there_is(shell: Shell) -> None:
    elsewhere = project(shell.folder / "one")
    other = failed_run(shell, elsewhere)
    empty = shell.folder / "two"
    empty.mkdir()

    asked = shell("inspect", "last", "-C", str(empty))

    assert asked.code == 2
    assert f"no run was started in {empty}" in asked.err
    assert other in asked.err


def test_last_of_a_named_folder_is_the_last_in_it(shell: Shell) -> None:
    """The folder that is named is what counts, wherever its runs were started."""
    folder = project(shell.folder / "one")
    assert fresh(shell, "run", "plan.json", "-C", str(folder), "--tools", "own_tools", "--runs", "kept").code == 1

    assert shell("inspect", "last", "--runs", str(folder / "kept")).code == 0
