"""``dagrun cancel`` and ``dagrun suspend``: tell the process at a run to stop the run, or one step of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import records_option, run_argument

F = TypeVar("F", bound=Callable[..., Any])

CANCEL: Final = """
\b
Examples:
  dagrun cancel last
  dagrun cancel last fetch --reason "the page is gone"

\b
Exit codes:
  0 the run was told, and has done so, 1 it did not react,
  2 there is nothing to cancel, 5 no process is at the run
"""
SUSPEND: Final = """
\b
Example:
  dagrun suspend last --reason "the machine is needed"

\b
Exit codes:
  0 the run was told, and is suspended, 1 it did not react,
  2 it has ended, 5 no process is at the run
"""


def _shared(function: F) -> F:
    return options.combined(
        click.option("--reason", default="", metavar="TEXT", help="The reason, for the record."),
        click.option("--by", metavar="NAME", help="Your name, for the record.  [default: your login name]"),
        records_option,
        options.as_json,
        options.directory,
    )(function)


@click.command(epilog=CANCEL)
@run_argument
@click.argument("step", required=False)
@_shared
def cancel(*, run: str, step: str | None, **flags: Any) -> int:
    """Cancel RUN, or one STEP of it, which another process carries out now.

    A cancelled run ends. If a STEP is cancelled, the steps that depend on it are skipped, and all others run on. A call
    that is running gets the grace period of the policy to clean up.
    """
    from dagrun.cli.records.run_orders import RunOrder

    return RunOrder("cancel", run, step, flags).carry_out()


@click.command(epilog=SUSPEND)
@run_argument
@_shared
def suspend(*, run: str, **flags: Any) -> int:
    """Suspend RUN, which another process carries out now, so that dagrun resume can resume it later.

    Nothing starts any more. A call without an effect is stopped, and is made again later; a call with an effect gets
    the grace period of the policy to end.
    """
    from dagrun.cli.records.run_orders import RunOrder

    return RunOrder("suspend", run, None, flags).carry_out()
