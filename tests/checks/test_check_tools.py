"""Tools, fallbacks, executors and options: known, allowed, and suitable for the step."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from checking import TOOLBOX, TOOLS, errors, find, texts
from dagrun import Step, Toolbox, tool


def call(tool_name: str, args: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a step that calls a tool."""
    return {"id": "a", "tool": tool_name, "args": args or {}, **fields}


def test_unknown_tools_come_with_the_one_that_was_meant() -> None:
    """Planners misspell names, and invent them."""
    assert errors(call("ad")) == ["DR201 steps[0].tool"]
    assert "calls 'ad', which is not a known tool; did you mean add?" in texts(call("ad"))


def test_a_fallback_takes_the_same_arguments() -> None:
    """The fallback is called with the arguments of the step."""
    good = call("load", {"path": "x"}, fallback="load_copy")
    _, checked = find(good)
    assert checked is not None
    assert checked.steps["a"].fallback is TOOLBOX["load_copy"]

    for name in ("nope", "load", "count", "add"):
        assert set(errors(call("load", {"path": "x"}, fallback=name))) == {"DR207 steps[0].fallback"}
    assert "does not fit: there is no such tool; did you mean load_copy?" in texts(
        call("load", {"path": "x"}, fallback="load_cpy")
    )


def test_a_fallback_is_checked_behind_references_too() -> None:
    """The names of arguments are known, whatever their values will be."""
    source = {"id": "any", "tool": "anything"}

    assert errors(source, call("load", {"path": "${any}"}, fallback="load_copy")) == []
    assert set(errors(source, call("load", {"path": "${any}"}, fallback="count"))) == {"DR207 steps[1].fallback"}


def test_the_tools_own_fallback_is_checked_like_the_steps() -> None:
    """A run that does not allow the fallback must never call it."""
    narrow = Toolbox(TOOLS, allow=["load"])

    assert errors(call("load", {"path": "x"}), toolbox=narrow) == ["DR207 steps[0].fallback"]
    assert "this run does not allow it" in texts(call("load", {"path": "x"}), toolbox=narrow)


@pytest.mark.parametrize(
    ("tool_name", "executor", "chosen"),
    [
        ("add", None, "coroutine"),
        ("plain", None, "thread"),
        ("crunch", None, "process"),
        ("plain", "thread", "thread"),
        ("plain", "process", "process"),
        ("add", "process", "process"),
        ("add", "coroutine", "coroutine"),
        ("add", "thread", None),
        ("plain", "coroutine", None),
        ("crunch", "thread", None),  # a step cannot leave the process that its tool needs
        ("plain", "gpu", None),
        ("plain", "", None),
    ],
)
def test_a_tool_runs_where_it_can(tool_name: str, executor: str | None, chosen: str | None) -> None:
    """A plain function would block all other steps of the loop, and an async one needs a loop."""
    args = {"a": 1} if tool_name == "add" else {"n": 1}
    _, checked = find(call(tool_name, args, executor=executor))

    if chosen is None:
        assert errors(call(tool_name, args, executor=executor)) == ["DR112 steps[0].executor"]
    else:
        assert checked is not None
        assert checked.steps["a"].executor == chosen


@pytest.mark.parametrize("kind", ["inside a function", "something else"])
def test_a_worker_process_must_be_able_to_import_the_tool(kind: str) -> None:
    """It gets a name and JSON; a function that cannot be imported is refused before the run.

    Functions of the program itself are copied: see tests/executors/test_main_functions.py.
    """

    @tool(effect="pure", executor="process")
    def local(n: int = 0) -> int:
        raise NotImplementedError

    if kind == "something else":
        local.function.__module__, local.function.__qualname__ = "elsewhere", "local"
        sys.modules["elsewhere"] = ModuleType("elsewhere")
    box = Toolbox(local)

    try:
        assert errors(call("local"), toolbox=box) == ["DR208 steps[0].tool"]
        assert kind in texts(call("local"), toolbox=box)
    finally:
        sys.modules.pop("elsewhere", None)


def test_a_step_may_not_send_a_local_tool_into_a_process() -> None:
    """Its fallback may not run there either."""

    @tool(effect="pure")
    def here(n: int = 0) -> int:
        raise NotImplementedError

    @tool(effect="pure", executor="process")
    def there(n: int = 0) -> int:
        raise NotImplementedError

    box = Toolbox(here, there)

    assert errors(call("here"), toolbox=box) == []
    assert errors(call("here", executor="process"), toolbox=box) == ["DR208 steps[0].tool"]
    assert errors(call("here", fallback="there"), toolbox=box) == ["DR208 steps[0].tool"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"max_parallel": 2}, "max_parallel"),
        ({"on_failure": "default"}, "on_failure"),
        ({"default": 1}, "default"),
        ({"default": None, "on_failure": "skip"}, "default"),
    ],
)
def test_options_that_mean_nothing_alone_are_refused(fields: dict[str, Any], place: str) -> None:
    """A reader would believe that they have an effect."""
    assert errors(call("anything", **fields)) == [f"DR112 steps[0].{place}"]


@pytest.mark.parametrize("default", [0, None, {"x": ["${not.a.reference"]}])
def test_a_default_is_data(default: Any) -> None:
    """Null is a default, too; and a default is never searched for references."""
    assert errors(call("anything", on_failure="default", default=default)) == []


def test_options_given_as_nothing_mean_nothing() -> None:
    """A planner that fills in every field writes null for options that it does not use."""
    step = Step(
        id="a", tool="anything", when=None, for_each=None, max_parallel=None, fallback=None, executor=None, pause=None
    )

    assert errors(step) == []
