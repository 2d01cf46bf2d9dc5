"""Public names that are imported on first use (PEP 562), so that an import costs only the used parts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
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
            raise _unknown(package, name, home_of)
        home = home_of[name]
        value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def _unknown(package: str, name: str, names: Iterable[str]) -> AttributeError:
    """Return the error for a name that a module does not have, with the one that was probably meant."""
    import difflib

    known = getattr(sys.modules[package], "__all__", names)
    close = [] if name.startswith("_") or len(name) > 64 else difflib.get_close_matches(name, known, n=1)
    near = f"; did you mean {close[0]}?" if close else ""
    return AttributeError(f"module {package!r} has no attribute {name!r}{near}", name=name, obj=None)
