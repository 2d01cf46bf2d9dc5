"""``dagrun completion``: prints a completion script for the shell. Imports only click, to start fast."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

EPILOG: Final = """
\b
Examples:
  eval "$(dagrun completion bash)"      # in ~/.bashrc
  eval "$(dagrun completion zsh)"       # in ~/.zshrc
  dagrun completion fish | source       # in ~/.config/fish/config.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and files in SHELL."""
    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(context.find_root().command, {}, "dagrun", "_DAGRUN_COMPLETE").source())
