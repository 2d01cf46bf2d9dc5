"""Planners and critics that the command line names: ``--planner MODULE:NAME`` and ``--critic MODULE:NAME``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

from dagrun.cli.problems import BadInput
from dagrun.errors import ContractError, shorten
from dagrun.model.brief import Planner
from dagrun.model.toolbox import load
from dagrun.model.verdict import Critic


def load_planner(target: str | None) -> Planner | None:
    """Import a planner, or what makes one.

    Args:
        target: ``module:name`` of something with a method ``revise``, or of a class or function without parameters
            that gives one. Call it after the tools were loaded: it is looked for in the same places.

    Raises:
        BadInput: There is none.
    """
    if target is None:
        return None
    found: Planner = _load("--planner", target, "revise")
    return found


def load_critics(targets: Sequence[str]) -> tuple[Critic, ...]:
    """Import critics; as for `load_planner`, with the method ``review``."""
    return tuple(_load("--critic", target, "review") for target in targets)


def _load(option: str, target: str, method: str) -> Any:
    if not target.partition(":")[2]:
        raise BadInput(f"{option} {shorten(target, 100)}: name what is in the module, too: MODULE:NAME")
    try:
        with redirect_stdout(sys.stderr):  # a module may print while it is imported
            found = load(target)
            if isinstance(found, type) or not hasattr(found, method):
                found = found()
    except ContractError as error:
        raise BadInput(f"{option}: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {shorten(str(error))}"
        raise BadInput(f"{option}: cannot make a thing with {method} of {shorten(target, 100)}: {reason}") from error
    if not callable(getattr(found, method, None)):
        raise BadInput(f"{option} {shorten(target, 100)}: it has no method {method}")
    return found
