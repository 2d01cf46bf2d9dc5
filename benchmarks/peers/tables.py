"""The tables of the comparison: plain text of at most 100 columns."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any, Final

WIDTH: Final = 100

COST_HEAD: Final = (
    f"{'peer':18}{'shape':9}{'n':>6}{'rounds':>7}{'μs build':>10}{'μs run':>10}{'μs wall':>10}"
    f"{'μs x':>8}{'run/x':>8}{'all/x':>8}"
)
SPAN_HEAD: Final = f"{'peer':18}{'graph':27}{'runs':>5}{'makespan':>11}{'ratio':>8}{'asked':>8}{'bare':>8}"
FAILURE_HEAD: Final = f"{'peer':18}{'the run':15}{'after':>7}  {'sibling':15}{'its child':15}{'dependent':11}alive"


def peer_line(peer: Mapping[str, Any]) -> str:
    """Who is measured, in which version, and how."""
    versions = ", ".join(f"{name} {number}" for name, number in peer["versions"].items())
    how = fill(peer["how"], WIDTH, initial_indent=" " * 18, subsequent_indent=" " * 18)
    return f"{peer['name']:18}{versions or 'does not run here: ' + peer['trouble']}\n{how}"


def cost_line(row: Mapping[str, Any]) -> str:
    """CPU per step of one shape and size."""
    head = f"{row['peer']:18}{row['shape']:9}{row['steps']:>6,}"
    if "ratio" not in row:
        return f"{head}   {row['trouble']}"
    figures = "".join(f"{row[key]:>10,.1f}" for key in ("build", "run", "wall"))
    return f"{head}{row['rounds']:>7}{figures}{row['base']:>8.1f}{row['running']:>8.2f}{row['ratio']:>8.2f}"


def span_line(row: Mapping[str, Any]) -> str:
    """Makespans of one kind of graph."""
    head = f"{row['peer']:18}{row['graph']:27}"
    if "ratio" not in row:
        return f"{head}  {row['trouble']}"
    figures = "".join(f"{row[key]:>8.3f}" if key in row else f"{'-':>8}" for key in ("ratio", "asked", "bare"))
    trouble = f"  {row['trouble']}" if "trouble" in row else ""
    return f"{head}{row['runs']:>5}{row['makespan']:>9.3f} s{figures}{trouble}"


def failure_line(row: Mapping[str, Any]) -> str:
    """What became of the rest."""
    if "told" not in row:
        return f"{row['peer']:18}{row['trouble']}"
    # A run that had to be cancelled left nothing alive by that alone.
    alive = "-" if row["told"] == "never returns" else alive_text(row)
    fates = f"{row['sibling']:15}{row['child']:15}{row['dependent']:11}"
    told = "raises" if row["told"].startswith("raises") else row["told"]
    return f"{row['peer']:18}{told:15}{row['seconds']:>5.1f} s  {fates}{alive}"


def alive_text(row: Mapping[str, Any]) -> str:
    """How many steps and tasks were alive when the run returned."""
    steps, tasks = len(row["steps_alive"]), row["tasks_alive"]
    if not steps and not tasks:
        return "0"
    return f"{steps} step{'s' * (steps != 1)}, {tasks} task{'s' * (tasks != 1)}"


def virtual_line(row: Mapping[str, Any]) -> str:
    """One pipeline on the virtual clock."""
    return f"{'dagrun':18}{row['graph']:27}{row['makespan']:>14.3f} s{row['makespan'] / row['critical_path']:>8.3f}"
