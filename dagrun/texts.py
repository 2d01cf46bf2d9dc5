"""Helpers to read files that people write, and to report faults in them.

In: text, or what a validator says of it. Out: plain JSON, and sentences with a place and a proposal. Each name
is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun._lazy import lazy_names

if TYPE_CHECKING:
    from dagrun.errors import hint, join_lines, listing, short_repr, shorten, visible
    from dagrun.kernel.model.policy import present_path
    from dagrun.kernel.model.reference import path_text
    from dagrun.kernel.model.signature import explain
    from dagrun.kernel.model.tool import import_target
    from dagrun.kernel.model.value import describe
    from dagrun.plans.plan_fields import EXPECTED, faults_of
    from dagrun.plans.plan_text import as_yaml
    from dagrun.plans.yaml_reader import read_yaml
    from dagrun.sources.schema_check import schema_faults

_NAMES = {
    "dagrun.errors": "hint join_lines listing short_repr shorten visible",
    "dagrun.kernel.model.policy": "present_path",
    "dagrun.plans.plan_text": "as_yaml",
    "dagrun.kernel.model.reference": "path_text",
    "dagrun.kernel.model.signature": "explain",
    "dagrun.kernel.model.tool": "import_target",
    "dagrun.kernel.model.value": "describe",
    "dagrun.plans.plan_fields": "EXPECTED faults_of",
    "dagrun.plans.yaml_reader": "read_yaml",
    "dagrun.sources.schema_check": "schema_faults",
}

__all__ = [
    "EXPECTED",
    "as_yaml",
    "describe",
    "explain",
    "faults_of",
    "hint",
    "import_target",
    "join_lines",
    "listing",
    "path_text",
    "present_path",
    "read_yaml",
    "schema_faults",
    "short_repr",
    "shorten",
    "visible",
]
if not TYPE_CHECKING:  # or type checkers would take any name
    __getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted(__all__)
