"""``dagrun new``, ``config`` and ``completion``: a project to start from, the settings and their trust, the shell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from dagrun.cli.setup.new_project import project_files
from dagrun.cli.setup.settings import Configuration, configure, find_project, read_settings
from dagrun.cli.setup.toml_files import read_toml
from dagrun.cli.setup.trust import SettingsFile
from dagrun.cli.table_command import DefaultGroup, command
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns, data_output, printable
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


@click.group(cls=DefaultGroup, default=["show"])
def config() -> None:
    """Show the settings, or trust a file of settings; without a command, show them."""


@command("config.show", config)
def show_config(*, as_json: bool) -> None:
    """Show each setting and its source.

    Example:
      dagrun config show

    A setting comes from the first of these places that has it:
      the command line
      the environment: DAGRUN_TOOLS=one,two and so on; OPENAI_BASE_URL or
        ANTHROPIC_BASE_URL
      dagrun.toml, or [tool.dagrun] in pyproject.toml, of the project; or the file
        that DAGRUN_CONFIG names
      config.toml in your folder for settings of dagrun
    """
    configuration = configure({})
    values = configuration.settings.as_dict()
    with data_output() as data:
        if as_json:
            shown = {name: {"value": values[name], "origin": _origin(configuration, name)} for name in values}
            data.json({"schema_version": SCHEMA_VERSION, "settings": shown})
            return
        rows = [(name, _shown(value), _origin(configuration, name)) for name, value in values.items()]
        data.text(columns(rows, head=("setting", "value", "from")))


def _origin(configuration: Configuration, name: str) -> str:
    return configuration.origins[name].name + (" (not trusted)" if name in configuration.untrusted else "")


@command("config.trust", config, short_help="Let what a file of settings names be imported and used.")
def trust(*, file: Path | None, undo: bool) -> None:
    """Trust FILE with its present content: dagrun may import and use the names in it.

    FILE is a file of settings, or of a policy; by default, the settings of the project here. The policy that the
    settings name is trusted with them. When the content changes, you are asked again. The modules that FILE names are
    not part of it: trust it only if you trust the whole folder. --undo takes the trust back.

    Examples:
      dagrun config trust
      dagrun config trust ../other/dagrun.toml
      dagrun config trust --undo
    """
    for found in settings_files(file):
        said = "trusted"
        if undo:
            said = "no longer trusted" if found.distrust() else "not trusted before, either"
        else:
            found.trust()
        click.echo(f"{said}: {printable(str(found.path))}")


def settings_files(file: Path | None) -> list[SettingsFile]:
    """Return the file that is meant, and the policy that it names.

    Raises:
        BadInput: There is no such file, or it cannot be read.
    """
    found = find_project(Path.cwd()) if file is None else read_settings(file)
    if found is None:
        what = "there is no dagrun.toml here" if file is None else f"{file} has no settings of dagrun"
        raise BadInput(f"{what}; name the file of settings")
    policy = found.fields.get("policy")
    if not isinstance(policy, str):
        return [found]
    path = found.path.absolute().parent / policy
    return [found, SettingsFile(path, read_toml(path))]


def _shown(value: Any) -> str:
    return "-" if value is None else json.dumps(value, ensure_ascii=False)


@command("completion")
def completion(*, shell: str) -> None:
    """Print a script that completes commands, options and files in SHELL.

    Examples:
      eval "$(dagrun completion bash)"      # in ~/.bashrc
      eval "$(dagrun completion zsh)"       # in ~/.zshrc
      dagrun completion fish | source       # in ~/.config/fish/config.fish
    """
    completer = get_completion_class(shell)
    assert completer is not None
    click.echo(completer(click.get_current_context().find_root().command, {}, "dagrun", "_DAGRUN_COMPLETE").source())
