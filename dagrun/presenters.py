"""Lazy links from objects of lower floors to their presenters above, by name.

So a result can write its report or show itself in a notebook, and a run that nobody looks at loads nothing of that.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

_MODULE: Final = "dagrun.observe.presenters"


def face(name: str) -> Any:
    """Return a function of `dagrun.observe.presenters`."""
    return getattr(import_module(_MODULE), name)


def write_report(source: object, path: str | Path | None, options: dict[str, Any]) -> str:
    """Write a report of *source*; see `dagrun.report`."""
    written: str = face("report")(source, path, **options)
    return written


def notebook_bundle(source: object) -> dict[str, str]:
    """Return *source* as a notebook shows it: its text, and a piece of HTML, by media type."""
    bundle: dict[str, str] = face("notebook_bundle")(source)
    return bundle
