"""Pins of the tools of MCP servers on the command line: shown, agreed to by a person, and written."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import click

from dagrun.cli.setup.mcp_servers import offered_tools
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.text import SCHEMA_VERSION, data_output, printable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, shorten
from dagrun.sources.mcp_pins import Difference, LockFile, Offer, read_lock, write_lock

LOCK: Final = "mcp.lock.json"
_NO: Final = 130
_TEXT: Final = 400  # characters of a description that nobody has agreed to yet


class PinJob:
    """Compares the tools of servers with their lock file.

    Args:
        flags: The flags of the command line.

    Raises:
        BadInput: No servers are named, one cannot be reached, or a file cannot be used.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        configuration = configure(flags)
        files = configuration.settings.mcp_files
        if not files:
            raise BadInput('name the MCP servers: --mcp FILE, or mcp_files = ["FILE"] in dagrun.toml')
        named = configuration.path("mcp_pins")
        self._is_named = named is not None
        beside = (configuration.origins["mcp_files"].folder / files[0]).parent
        self._path: Path = named if named is not None else beside / LOCK
        with redirect_stdout(sys.stderr):
            self._offers: Sequence[Offer] = offered_tools(configuration)

    def pin(self, *, is_sure: bool) -> int:
        """Show the changes, ask, and write; return the exit code."""
        is_there = self._path.exists()
        lock = self._lock() if is_there else LockFile(self._path)
        found = lock.differences(self._offers)
        if is_there and not found:
            click.echo(f"nothing has changed: {_count(self._offers)} in {printable(str(self._path))}")
            return 0
        click.echo(printable("\n".join(self._lines(found))))
        if not is_sure:
            if not sys.stdin.isatty():
                raise BadInput("here is nobody to ask; look at what has changed, and add --yes")
            if not click.confirm(f"Do you agree to this, and write it to {printable(str(self._path))}?", err=True):
                click.echo("not written", err=True)
                return _NO
        try:
            write_lock(self._path, self._offers)
        except ContractError as error:
            raise BadInput(str(error)) from error
        click.echo(f"pinned {_count(self._offers)} in {printable(str(self._path))}")
        if not self._is_named:
            click.echo(f'hold runs to it: mcp_pins = "{self._path.name}" in dagrun.toml, or --mcp-pins', err=True)
        return 0

    def check(self, *, as_json: bool) -> int:
        """Show the differences; return the exit code."""
        found = self._lock().differences(self._offers)
        with data_output() as data:
            if as_json:
                shown = [
                    {"server": one.server, "tool": one.tool, "place": one.place, "was": one.was, "now": one.now}
                    for one in found
                ]
                data.json({"schema_version": SCHEMA_VERSION, "lock": str(self._path), "differences": shown})
            else:
                data.text("\n".join(self._lines(found)) or f"{_count(self._offers)}, all as pinned in {self._path}")
        return int(bool(found))

    def _lock(self) -> LockFile:
        try:
            return read_lock(self._path)
        except ContractError as error:
            raise BadInput(str(error)) from error

    def _lines(self, found: Sequence[Difference]) -> Iterator[str]:
        offers = {(offer.server, offer.name): offer for offer in self._offers}
        last = None
        for one in found:
            name = shorten(f"{one.server}.{one.tool}" if one.tool else one.server, 140)
            if not one.place:
                offer = offers.get((one.server, one.tool))
                yield f"{'+' if one.was is None else '-'} {name} {one.sentence}{_about(one, offer)}"
                last = None
                continue
            if name != last:
                yield f"~ {name} has changed"
                last = name
            yield f"    {one.place} {one.sentence}"


def _about(one: Difference, offer: Offer | None) -> str:
    """Return the text that a person must read before the first approval of a tool."""
    if one.now is None or offer is None:
        return ""
    text = str(offer.definition.get("description") or offer.definition.get("title") or "(it says nothing)")
    return f", {offer.effect}:\n    {shorten(text, _TEXT)}"


def _count(offers: Sequence[Offer]) -> str:
    servers = len({offer.server for offer in offers})
    tools = f"{len(offers)} tool{'s' * (len(offers) != 1)}"
    return f"{tools} of {servers} server{'s' * (servers != 1)}"
