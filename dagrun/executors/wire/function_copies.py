"""Copies of functions that no process can import, made by cloudpickle (the extra ``notebook``).

Only a host makes them, for worker processes that are its own children, and only those unpickle them. The module is
imported when the first copy is made.

Functions and classes of the program itself are copied with all that they refer to. The marks of dataclasses are
compared by identity, and must not be copied with them: they are passed by their names.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any, Final

import cloudpickle

_MARKS: Final = ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR")
_NAMES: Final = {id(getattr(dataclasses, name)): name for name in _MARKS if hasattr(dataclasses, name)}


class _FunctionPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle brings no types
    """Pickles functions and classes, and the marks of dataclasses by their names."""

    def reducer_override(self, thing: Any) -> Any:
        """Return how *thing* is pickled; a text is the name of something in its module."""
        name = _NAMES.get(id(thing))
        if name is not None and thing is getattr(dataclasses, name):
            return getattr, (dataclasses, name)
        return super().reducer_override(thing)


def copy_of(thing: Any) -> bytes:
    """Return a copy of a function, or of a tuple with functions, that ``pickle.loads`` reads in a child process."""
    file = io.BytesIO()
    _FunctionPickler(file).dump(thing)
    return file.getvalue()
