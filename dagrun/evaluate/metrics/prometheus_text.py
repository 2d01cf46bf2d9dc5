"""Metrics in the text form that Prometheus reads.

Each metric of runs is a gauge ``dagrun_NAME_UNIT`` over the time that was asked for; a group adds its name as a label.
A value that is not known has no line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dagrun.evaluate.metrics.definitions import RUN_METRICS, Definition, Unit
from dagrun.evaluate.metrics.metrics import Group, Metrics

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SUFFIX: Final[dict[Unit, str]] = {
    "count": "", "ratio": "_ratio", "seconds": "_seconds", "tokens": "", "cost": "",
}  # fmt: skip


def prometheus_text(metrics: Metrics) -> str:
    """Return the metrics, a line each, with their definitions before them; ends with a line end."""
    lines = list(_family("dagrun", RUN_METRICS, [metrics.total], ""))
    if metrics.by:
        label = metrics.by.partition(":")[2] if ":" in metrics.by else metrics.by
        lines += _family(f"dagrun_by_{_name(label)}", metrics.definitions, metrics.groups, _name(label))
    lines += [
        "# HELP dagrun_records_left_out Records that are damaged or cannot be read.",
        "# TYPE dagrun_records_left_out gauge",
        f"dagrun_records_left_out {len(metrics.left_out)}",
    ]
    return "\n".join(lines) + "\n"


def _family(prefix: str, definitions: Sequence[Definition[Any]], groups: Sequence[Group], label: str) -> Iterator[str]:
    for one in definitions:
        suffix = _SUFFIX[one.unit]
        name = f"{prefix}_{one.name}{'' if one.name.endswith(suffix) else suffix}"
        known = [(group, value) for group in groups if (value := group[one.name].value) is not None]
        if known:
            yield f"# HELP {name} {_escaped(one.text)}"
            yield f"# TYPE {name} gauge"
        for group, value in known:
            labels = f'{{{label}="{_quoted(group.name)}"}}' if label else ""
            yield f"{name}{labels} {value!r}"


def _name(text: str) -> str:
    """Return *text* as a name of a metric or a label: letters, digits and ``_``."""
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in text)
    return f"_{name}" if name[:1].isdigit() else name


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
