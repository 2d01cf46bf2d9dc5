"""Click groups whose commands are imported when they are called, not when the program starts."""

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

import click


class LazyCommand(click.Command):
    """The name and help line of a command; its module is imported by :meth:`load`."""

    def __init__(self, name: str, target: str, help_line: str) -> None:
        super().__init__(name, short_help=help_line)
        self.target = target

    def load(self) -> click.Command:
        """Import the command itself from ``module:attribute``."""
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{self.target} is not a click command"
        return command


class LazyGroup(click.Group):
    """Lists its lazy commands by their help lines, and swaps one for the real command when it is called."""

    def add_lazy(self, name: str, target: str, help_line: str) -> None:
        """Offer the command at *target* (``module:attribute``) as *name*."""
        self.add_command(LazyCommand(name, target, help_line))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that *args* call; this is where its module is imported."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


class PluginGroup(LazyGroup):
    """A lazy group to which installed packages add commands, by entry points.

    They are looked for only when a name is not one of ours, and for the help page. A plug-in that cannot be loaded
    costs a line, and never one of our own commands.

    Args:
        entry_points: The group of entry points.
        attributes: For click.
    """

    def __init__(self, *args: Any, entry_points: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._entry_points = entry_points

    @cached_property
    def _plugins(self) -> Mapping[str, Any]:
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self._entry_points)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Our own commands in their order, then those of other packages."""
        return [*self.commands, *sorted(self._plugins.keys() - self.commands.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command by its name."""
        found = super().get_command(ctx, cmd_name)
        if found is not None or cmd_name not in self._plugins:
            return found
        try:
            command = self._plugins[cmd_name].load()
            if not isinstance(command, click.Command):
                raise TypeError(f"{self._plugins[cmd_name].value} is no click command")
        except Exception as error:  # noqa: BLE001  (whatever another package raises while it is imported)
            return _broken(cmd_name, self._plugins[cmd_name].value, error)
        return command


def _broken(name: str, target: str, error: Exception) -> click.Command:
    """Stand in for a command that cannot be loaded."""
    from dagrun.errors import shorten

    fault = shorten(f"{type(error).__name__}: {error}")

    def fail(**_: Any) -> None:
        raise click.ClickException(f"the command {name} ({target}) cannot be loaded: {fault}")

    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    short = f"(cannot be loaded: {fault})"
    return click.Command(name, callback=fail, short_help=short, context_settings=settings)
