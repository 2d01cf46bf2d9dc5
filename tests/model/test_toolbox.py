"""Toolboxes: tools by name, from many kinds of sources, and never two tools of one name."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

import dagrun
from dagrun.errors import ContractError, UnknownTool


@dagrun.tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@dagrun.tool(effect="read", name="look.up")
def look_up(key: str) -> str:
    """Look something up."""
    return key


def plain(x: int) -> int:
    """A function that is not marked as a tool."""
    return x


def _module() -> types.ModuleType:
    module = types.ModuleType("some_tools")
    vars(module).update(add=add, look_up=look_up, plain=plain, number=3)
    return module


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (add, {"add"}),
        (plain, {"plain"}),
        ([add, plain], {"add", "plain"}),
        (_module(), {"add", "look.up"}),
        (dagrun.Toolbox(add, look_up), {"add", "look.up"}),
        ("process_tools", None),
        ("test_toolbox:add", {"add"}),
    ],
)
def test_tools_come_from_functions_modules_and_names(source: Any, names: set[str] | None) -> None:
    """These are all the ways in which tools are kept."""
    toolbox = dagrun.Toolbox(source)
    assert toolbox if names is None else set(toolbox) == names


def test_a_plain_function_is_taken_for_effectful() -> None:
    """It is not declared that it is safe to call it twice."""
    assert dagrun.Toolbox(plain)["plain"].effect == "effectful"


def test_two_tools_of_one_name_are_refused() -> None:
    """A plan could not say which of them it means, and a server could replace a tool by its own (S26)."""
    other = dagrun.tool(name="add")(plain)
    with pytest.raises(ContractError, match="two tools are called add: test_toolbox:add and test_toolbox:plain"):
        dagrun.Toolbox(add, other)


def test_one_function_with_two_contracts_is_refused_unless_they_are_equal() -> None:
    """The first one would win, and might be the one that needs no approval."""
    loose, strict = dagrun.tool(effect="read")(plain), dagrun.tool(effect="read", needs_approval=True)(plain)

    with pytest.raises(ContractError, match="two tools are called plain"):
        dagrun.Toolbox(loose, strict)
    assert set(dagrun.Toolbox(loose, dagrun.tool(effect="read")(plain))) == {"plain"}


def test_an_unknown_tool_is_named_with_the_nearest() -> None:
    """Names are compared as texts only: no import, no attribute, no evaluation (S21)."""
    toolbox = dagrun.Toolbox(add)
    with pytest.raises(UnknownTool, match="'ad'; did you mean add"):
        toolbox["ad"]
    for name in ("os.system", "tools.__init__", "eval", "add.__call__"):
        assert name not in toolbox


def test_the_allow_list_names_tools_that_exist() -> None:
    """A typo there would silently forbid the wrong tool."""
    with pytest.raises(ContractError, match="addd"):
        dagrun.Toolbox(add, allow=["addd"])
    assert dagrun.Toolbox(add, look_up, allow=["add"]).allowed == {"add"}


def _in_a_row(tools: dict[str, Any]) -> Any:
    return deque(tools.values())


@pytest.mark.parametrize("make", [dict.values, _in_a_row, lambda tools: (tool for tool in tools.values())])
def test_any_iterable_of_tools_is_a_source(make: Any) -> None:
    """As for ``dagrun.run(tools=…)``, also inside another one."""
    tools = {"add": add, "look_up": look_up}

    assert dagrun.Toolbox([make(tools)]).keys() == {"add", "look.up"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (3, "int is no source"),
        ({"add": add}, "dict is no source"),
        (b"test_toolbox", "bytes is no source"),
        (iter([3]), "int is no source"),
        (types.ModuleType("empty"), "holds no tool"),
        ("no_such_module", "cannot import"),
        ("test_toolbox:ad", "did you mean add"),
    ],
)
def test_what_holds_no_tool_says_so(source: Any, said: str) -> None:
    """This is the first mistake of a newcomer."""
    with pytest.raises(ContractError, match=said):
        dagrun.Toolbox(source)


def test_tools_of_installed_packages_are_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """So packages can offer tools without being imported by every program."""
    points = [EntryPoint("mine", "test_toolbox:add", "dagrun.tools")]
    found: Callable[..., Any] = lambda group: points if group == "dagrun.tools" else []  # noqa: E731
    monkeypatch.setattr("importlib.metadata.entry_points", found)

    assert set(dagrun.Toolbox.from_entry_points()) == {"add"}
    assert set(dagrun.Toolbox.from_entry_points("mine")) == {"add"}
    with pytest.raises(ContractError, match=r"yours \(known: mine\)"):
        dagrun.Toolbox.from_entry_points("yours")
