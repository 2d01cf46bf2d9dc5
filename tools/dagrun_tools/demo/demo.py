"""``dagrun demo``, the command. Its scenarios are imported when it is called: the help page lists it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

EPILOG: Final = """
\b
Examples:
  dagrun demo
  dagrun demo --scenario replan
  dagrun demo --scenario tools
  dagrun demo --json -o /tmp/dagrun-demo
"""


@click.command(epilog=EPILOG, short_help="Watch a plan run on real data, with sources that fail.")
@click.option(
    "-o",
    "--output",
    default="dagrun-demo",
    show_default=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the reports, the charts and run.json go.",
)
@click.option(
    "--scenario",
    type=click.Choice(["sources", "replan", "tools"]),
    default="sources",
    show_default=True,
    help="What goes wrong: two remote sources; a column with a new name, for which the plan is changed as it runs; or "
    "a mail that gives orders to a planner.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(output: Path, scenario: str, as_json: bool) -> int:
    """Analyse 15 years of home sales in Texas: a plan of 22 steps on real data, in about 20 seconds.

    Steps run as soon as what they need is there. Two sources are remote and slow: one of them fails once and is tried
    again, the other is gone for good and its fallback answers. Then the same plan runs step by step, to compare.

    With --scenario replan the table has changed, too: a column has another name, and the cleaning does not give what
    the plan counts on. A planner puts in a step that maps the names, while everything else goes on.

    With --scenario tools there is a mailbox behind a real MCP server (extra mcp), a mail of somebody who wants to have
    the payroll, and a planner that obeys whatever it reads. Its change is refused, and you are asked one question.
    """
    from dagrun_tools.demo.scenarios import show_scenario

    return show_scenario(output, scenario, as_json=as_json)
