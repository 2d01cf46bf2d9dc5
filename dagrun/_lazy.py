"""Public names that are imported on first use (PEP 562), so that an import costs only what is used of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that shows names of other modules.

    Args:
        package: The name of the module that shows them.
        homes: The names by the module that has them, with blanks between them. A name that is a module itself is
            given as a part of the package: ``{"dagrun": "events"}``.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
