"""The entry point of the command line: starts the program, and turns errors into exit codes."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dagrun._version import __version__

CANCELLED = 130  # as shells report a program that Ctrl-C has ended


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        args: The arguments after the name of the program; `None` for this process's.
    """
    args = sys.argv[1:] if args is None else args
    if list(args) == ["--version"]:
        # Without click: its import takes three times as long as the start of Python.
        sys.stdout.write(f"dagrun {__version__}\n")
        return 0
    try:
        return _call(args)
    except KeyboardInterrupt:  # before click was imported, which would catch it
        sys.stderr.write("Cancelled.\n")
        return CANCELLED


def _call(args: Sequence[str]) -> int:
    import click

    from dagrun.cli.command_table import cli
    from dagrun.cli.terminal.text import SECRETS
    from dagrun.errors import DagrunError

    SECRETS.forget()
    try:
        with _print_old_fields():
            code = cli.main(args or ["--help"], prog_name="dagrun", standalone_mode=False, obj=tuple(args))
    except (click.ClickException, DagrunError) as error:
        from dagrun.cli.terminal.user_errors import report

        return report(error, as_json="--json" in args, as_line=any(a.startswith("--events") for a in args))
    except click.Abort:
        click.echo("Cancelled.", err=True)
        return CANCELLED
    return code if isinstance(code, int) else 0


@contextmanager
def _print_old_fields() -> Iterator[None]:
    """Print a line, once, where a policy has fields at the place of the last release."""
    import click

    from dagrun.errors import OldPolicyField

    told = set[str]()

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, OldPolicyField):
            usual(message, category, *place, **more)
        elif str(message) not in told:
            told.add(str(message))
            click.echo(str(message), err=True)

    with warnings.catch_warnings():
        usual = warnings.showwarning
        warnings.simplefilter("always", OldPolicyField)
        warnings.showwarning = tell
        yield
