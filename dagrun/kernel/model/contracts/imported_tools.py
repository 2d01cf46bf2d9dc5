"""Tools as another process finds them: by the name of their function, with a contract that both sides compare.

A name in a module stands for a tool, or for a function of which a tool was made elsewhere, perhaps under another name.
So there are two ways of finding a tool again. In the first, the tool that was imported is compared as it is; in the
second, nothing but the signature of the function can be.
"""

from __future__ import annotations

import dis
import hashlib
import json
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final
from weakref import WeakKeyDictionary

from dagrun.errors import ContractError
from dagrun.kernel.model.contracts.schema_types import Schema
from dagrun.kernel.model.tool import Tool, make_tool

# Texts for people and planners, which make no difference to a call.
_WORDS: Final = frozenset(("title", "description", "examples"))
# Their keys are names that the author of the tool has chosen, so a key may well be "title".
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "dependentSchemas"))
_VALUES: Final = frozenset(("default", "const", "enum", "required"))

_HASHES: Final[WeakKeyDictionary[Tool[..., Any], str]] = WeakKeyDictionary()


def without_texts(schema: Any) -> Any:
    """Return a schema without its texts for people."""
    if isinstance(schema, list):
        return [without_texts(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    bare: dict[str, Any] = {}
    for key, part in schema.items():
        if key in _NAMED and isinstance(part, Mapping):
            bare[key] = {name: without_texts(inner) for name, inner in part.items()}
        elif key in _VALUES:
            bare[key] = part
        elif key not in _WORDS:
            bare[key] = without_texts(part)
    return bare


def import_fault(tool: Tool[..., Any], *, is_child: bool) -> str:
    """Return why another process cannot import the function of *tool*; empty if it can.

    Args:
        tool: The tool.
        is_child: Whether the process is a child of this one, which gets a copy of a function of the program itself.
    """
    function = tool.function
    module, name = function.__module__, function.__qualname__
    if not tool.is_importable:
        return "it was made from a schema, and runs only as a coroutine of the host"
    if module == "__main__":
        if not is_child:
            return "it is defined in the program or the notebook itself; move it to a module"
        if find_spec("cloudpickle") is not None:
            return ""
        return (
            "it is defined in the program or the notebook itself; move it to a module, or install cloudpickle "
            "(pip install 'dagrun-engine[notebook]')"
        )
    if "<" in name:
        return f"{name} is defined inside a function; move it to the top of its module"
    if module not in sys.modules:
        return ""  # a check imports nothing
    target = _known_target(tool)
    if target is tool or target is function or getattr(target, "function", None) is function:
        return ""
    return f"{tool.import_name} is something else"


def is_named(tool: Tool[..., Any]) -> bool:
    """Whether the module attribute with the function's name is *tool* itself, as it is under the decorator."""
    return _known_target(tool) is tool


def found_tool(target: object, name: str, effect: str, *, is_named: bool) -> Tool[..., Any]:
    """Return the tool for an imported object: a `Tool`, or a plain function to wrap.

    Args:
        target: What the name of the function stands for.
        name: The name of the tool.
        effect: Its effect.
        is_named: What `is_named` says where the run is.

    Raises:
        ContractError: The object cannot be this tool.
    """
    if is_named:
        if not isinstance(target, Tool):
            raise ContractError(f"{name} is no tool here")
        return target
    return make_tool(
        target.function if isinstance(target, Tool) else target,  # type: ignore[arg-type]  # it says what is wrong
        name=name,
        effect=effect,
        executor="process",
    )


def contract_hash(tool: Tool[..., Any]) -> str:
    """Return a hash of all that a call of *tool* depends on: 16 hex digits.

    These are its name, effect and version, and the shapes of its arguments and its output. Texts do not count. Nor do
    defaults: the default of a parameter may be made when its module is imported, and then differs each time.
    """
    known = _HASHES.get(tool)
    if known is None:
        shapes = [_without_defaults(without_texts(schema)) for schema in (tool.arguments.schema, tool.output.schema)]
        facts = [tool.name, str(tool.effect), tool.version, tool.arguments.context is not None, *shapes]
        known = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]
        _HASHES[tool] = known
    return known


def asks_people(tool: Tool[..., Any]) -> bool:
    """Whether the function itself calls ``context.ask``, which only a coroutine of the host can."""
    code, name = getattr(tool.function, "__code__", None), tool.arguments.context
    if code is None or name is None or "ask" not in code.co_names:
        return False
    before: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.argval == "ask" and before is not None and before.opname.startswith("LOAD_"):
            loaded = before.argval if isinstance(before.argval, tuple) else (before.argval,)
            if loaded[-1] == name:
                return True
        before = instruction
    return False


def _known_target(tool: Tool[..., Any]) -> Any:
    """Return the current module attribute with the function's name; `None` if its module is not loaded."""
    function = tool.function
    target: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        target = getattr(target, part, None)
    return target


def _without_defaults(schema: Schema | Any) -> Any:
    if isinstance(schema, list):
        return list(map(_without_defaults, schema))
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: {name: _without_defaults(inner) for name, inner in part.items()}
        if key in _NAMED
        else part
        if key in _VALUES
        else _without_defaults(part)
        for key, part in schema.items()
        if key != "default"
    }
