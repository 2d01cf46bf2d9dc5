"""`--deps`: the objects that tools get by type, made for a run and closed after it."""

from __future__ import annotations

import pytest

from command_line import Shell, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

MODULE = """
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated
import dagrun

class Client:
    factor = 3

@dagrun.tool(effect="effectful", needs_approval=True)
async def multiply(number: int, client: Annotated[Client, dagrun.dep] = dagrun.PROVIDED) -> int:
    return number * client.factor

@dagrun.tool(effect="read")
async def factor(client: Annotated[Client, dagrun.dep] = dagrun.PROVIDED) -> int:
    return client.factor

def plain():
    return Client()

client = Client()

@contextmanager
def opened():
    print("opened")
    yield Client()
    print("closed")

@asynccontextmanager
async def awaited():
    print("opened")
    yield {"client": Client()}
    print("closed")

def broken():
    raise OSError("no route to host")
"""
FACTOR = {"id": "a", "tool": "factor"}


def module(shell: Shell, name: str) -> list[str]:
    """Write the module, and give the option that names its tools."""
    shell.file(f"{name}.py", MODULE)
    return ["--tools", name]


@pytest.mark.parametrize("made", ["plain", "client", "Client", "opened", "awaited"])
def test_a_function_an_object_a_class_or_a_context_manager_makes_them(shell: Shell, made: str) -> None:
    """Whatever a program has at hand."""
    tools = module(shell, "deps_made")
    ended = shell("run", shell.plan(FACTOR), *tools, "--deps", f"deps_made:{made}")

    assert (ended.code, ended.out) == (0, "3\n")
    assert ended.err.count("opened") == ended.err.count("closed") == (1 if made in ("opened", "awaited") else 0)


def test_what_is_wrong_with_them_is_said_in_a_line(shell: Shell) -> None:
    """No traceback for a wrong name."""
    plan, tools = shell.plan(FACTOR), module(shell, "deps_wrong")
    missing = shell("run", plan, *tools)
    assert missing.code == 3
    assert "takes a dependency of the host, of type deps_wrong.Client: deps has no deps_wrong.Client" in missing.err
    for named, said in (
        ("deps_wrong:nothing", "--deps: deps_wrong has no nothing"),
        ("deps_wrong", "--deps deps_wrong: name what is in the module, too: MODULE:NAME"),
        ("deps_wrong:broken", "--deps deps_wrong:broken: it cannot be made: OSError: no route to host"),
    ):
        ended = shell("run", plan, *tools, "--deps", named)
        assert ended.code == 2
        assert said in ended.err
        assert "Traceback" not in ended.err


def test_a_resumed_run_is_told_of_them_again(shell: Shell) -> None:
    """The command that is printed has the option."""
    tools = module(shell, "deps_again")
    waiting = shell(
        "run", shell.plan({"id": "a", "tool": "multiply", "args": {"number": 2}}), *tools, "--deps", "deps_again:plain"
    )
    assert waiting.code == 5
    assert "--deps deps_again:plain" in waiting.err
    assert shell("answer", shell.run_id, "--yes").code == 0
    ended = shell("resume", shell.run_id, *tools, "--deps", "deps_again:plain")

    assert (ended.code, ended.out) == (0, "6\n")
