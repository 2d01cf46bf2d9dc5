"""``dagrun new``: makes a project to start from."""

from __future__ import annotations

import re
from pathlib import Path

import click

from dagrun.cli.commands.config import settings_files
from dagrun.cli.setup.new_project import project_files
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import printable
from dagrun.cli.terminal.user_errors import BadInput


@command("new")
def new(*, name: str) -> None:
    """Make a project in the folder NAME: tools, a plan, a policy, settings, and tests on the virtual clock.

    The folder must be new or empty. Its settings are trusted, as you have made them.

    Example:
      dagrun new prices
      cd prices
      dagrun run plan.yaml -i item=tea
    """
    folder = Path(name)
    title = folder.name
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", title):
        raise BadInput(f"{title or name}: a name has letters, digits, '_' and '-', and begins with a letter")
    texts = project_files(title, f"{title.replace('-', '_').lower()}_tools")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadInput(f"{folder} is not empty")
        for path, text in texts.items():
            file = folder / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write in {folder}: {error.strerror}") from error
    for settings in settings_files(folder / "dagrun.toml"):
        settings.trust()
    for path in texts:
        click.echo(printable(str(folder / path)))
    click.echo(f"next: cd {printable(str(folder))} && dagrun run plan.yaml -i item=tea", err=True)
