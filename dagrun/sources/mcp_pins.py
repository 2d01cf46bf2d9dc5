"""Pins: the descriptions of MCP tools at a person's last approval, kept in a lock file.

A server can describe a tool in one way when it is looked at, and in another way later: a planner reads what it says
now. So a pin is the hash of all that a planner, or a check, is told about a tool. With a lock file, no plan may call a
tool that differs from its pin, or that has none; the file holds the text that was agreed to, so that a refusal can say
what has changed. A pin says nothing about what a server does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagrun.errors import ContractError, shorten, visible
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.signature import explain

Definition = Mapping[str, Any]

_MOST_BYTES: Final = 64 << 20
_SHOWN: Final = 44  # characters of a text that a refusal quotes
_BEFORE: Final = 14  # of them before the first difference
_PLACE: Final = 40  # characters of its place
_MOST_LETTERS: Final = 8  # a longer difference can be read; a shorter one may be of letters that look alike
_NOTHING: Final = object()


def definition_of(tool: Any) -> dict[str, Any]:
    """Return the part of a server's description of a tool that planners and checks read, as plain JSON."""
    hints = tool.annotations
    parts = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": None if hints is None else hints.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    return {name: part for name, part in parts.items() if part is not None}


def pin_of(definition: Definition) -> str:
    """Return the SHA-256 of a definition as canonical JSON, in hexadecimal digits."""
    return sha256(json.dumps(definition, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that a server offers now.

    Attributes:
        server: The name of the server.
        target: Its command or its address, as the file of servers says it, before variables are filled in.
        definition: The description of the tool.
        effect: The effect that the tool counts with.
    """

    server: str
    target: str
    definition: Definition
    effect: Effect

    @property
    def name(self) -> str:
        """The name of the tool at its server."""
        return str(self.definition["name"])


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between a pin and the current offer.

    Attributes:
        server: The name of the server.
        tool: The name of the tool at its server; empty if the server itself differs.
        place: The part that differs: ``inputSchema.properties.to.description``; empty if a whole tool or server does.
        was: The pinned text around the difference, escaped; `None` if there was none.
        now: The present one.
    """

    server: str
    tool: str
    place: str
    was: str | None
    now: str | None

    @property
    def sentence(self) -> str:
        """The difference in words that follow the place."""
        if self.was is None:
            return f"was not there, is {self.now}" if self.place else "is new"
        if self.now is None:
            return f"was {self.was}, no longer exists" if self.place else "no longer exists"
        return f"was {self.was}, is {self.now}"


# The lock file --------------------------------------------------------------------------------------------------------

_STRICT: Final = ConfigDict(extra="forbid", frozen=True)


class PinnedTool(BaseModel):
    """A tool in a lock file."""

    model_config = _STRICT

    pin: str
    effect: Effect
    definition: dict[str, Any]


class PinnedServer(BaseModel):
    """A server in a lock file, by its command or its address, with its tools by their names there."""

    model_config = _STRICT

    target: str
    tools: dict[str, PinnedTool]


class _File(BaseModel):
    model_config = _STRICT

    version: Annotated[Literal[1], Field(alias="dagrun_mcp_lock")]
    servers: dict[str, PinnedServer]


@dataclass(frozen=True, slots=True)
class LockFile:
    """The pins of a lock file.

    Attributes:
        path: The file.
        servers: The servers in it, by name.
    """

    path: Path
    servers: Mapping[str, PinnedServer] = field(default_factory=dict)

    def refusal(self, offer: Offer) -> str:
        """Return why a tool is refused, as a clause after "which"; empty if it matches its pin."""
        server = self.servers.get(offer.server)
        known = None if server is None else server.tools.get(offer.name)
        if server is None or known is None:
            return f"has no pin in {shorten(self.path.name, 60)}; see dagrun mcp pin"
        if server.target != offer.target:
            was, now = _excerpts(server.target, offer.target)
            return f"is of a server that has changed since it was pinned: it was {was}, is {now}"
        found = [*_between(known.definition, offer.definition, offer)]
        if not found:
            return ""
        place, more = found[0].place, f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        place = place if len(place) <= _PLACE else f"…{place[-_PLACE:]}"
        return f"has changed since it was pinned: {place} {found[0].sentence}{more}"

    def differences(self, offers: Sequence[Offer]) -> list[Difference]:
        """Return all differences between the file and the current offers, including effects."""
        by_server: dict[str, dict[str, Offer]] = {}
        for offer in offers:
            by_server.setdefault(offer.server, {})[offer.name] = offer
        found: list[Difference] = []
        for name in dict.fromkeys((*self.servers, *by_server)):
            now = by_server.get(name, {})
            known = self.servers.get(name)
            if known is None or not now:
                found.append(Difference(name, "", "", *(_side(known, name), _side(now or None, name))))
            if known is not None and now and known.target != (target := next(iter(now.values())).target):
                found.append(Difference(name, "", "target", *_excerpts(known.target, target)))
            pinned = known.tools if known is not None and now else {}
            found += [one for tool in dict.fromkeys((*pinned, *now)) for one in _of_tool(name, tool, pinned, now)]
        return found


def read_lock(path: str | Path) -> LockFile:
    """Read a lock file.

    Raises:
        ContractError: There is none, it is none, or it was changed by hand.
    """
    place = Path(path).expanduser()
    try:
        with place.open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise ContractError(f"{place}: there is no such file; dagrun mcp pin writes it") from None
    except OSError as error:
        raise ContractError(f"{place}: it cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise ContractError(f"{place}: it has more than {_MOST_BYTES} bytes")
    try:
        servers = _File.model_validate(json.loads(data)).servers
    except ValidationError as error:
        raise ContractError(f"{place}: it is no lock file: {explain(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{place}: it is no JSON: {shorten(str(error))}") from error
    for name, server in servers.items():
        for tool, pinned in server.tools.items():
            if pinned.pin != pin_of(pinned.definition) or pinned.definition.get("name") != tool:
                which = shorten(f"{name}.{tool}", 100)
                raise ContractError(f"{place}: the pin of {which} is not that of its text: it was changed by hand")
    return LockFile(place, servers)


def write_lock(path: Path, offers: Sequence[Offer]) -> None:
    """Write the pins of the current offers, whole or not at all.

    Raises:
        ContractError: The file cannot be written.
    """
    servers: dict[str, dict[str, Any]] = {}
    for offer in sorted(offers, key=lambda one: (one.server, one.name)):
        server = servers.setdefault(offer.server, {"target": offer.target, "tools": {}})
        pinned = {"pin": pin_of(offer.definition), "effect": str(offer.effect), "definition": offer.definition}
        server["tools"][offer.name] = pinned
    text = json.dumps({"dagrun_mcp_lock": 1, "servers": servers}, indent=2) + "\n"  # ASCII: nothing in it is invisible
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_text(text, encoding="ascii")
        made.replace(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise ContractError(f"{path}: it cannot be written: {error.strerror}") from error


# Differences ----------------------------------------------------------------------------------------------------------


def _side(there: object | None, name: str) -> str | None:
    return None if there is None else shorten(name, 60)


def _of_tool(
    server: str, tool: str, pinned: Mapping[str, PinnedTool], offers: Mapping[str, Offer]
) -> Iterator[Difference]:
    known, offer = pinned.get(tool), offers.get(tool)
    if known is None or offer is None:
        yield Difference(server, tool, "", *(_side(known, tool), _side(offer, tool)))
        return
    yield from _between(known.definition, offer.definition, offer)
    if known.effect != offer.effect:
        yield Difference(server, tool, "effect", str(known.effect), str(offer.effect))


def _between(was: Definition, now: Definition, offer: Offer) -> Iterator[Difference]:
    if pin_of(was) == pin_of(now):
        return
    for place, before, after in _walked(was, now, ""):
        yield Difference(offer.server, offer.name, place, *_excerpts(_text(before), _text(after)))


def _walked(was: Any, now: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield each place that differs, with both values."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*was, *now)):
            inner = f"{place}.{visible(key)}" if place else visible(key)
            yield from _walked(was.get(key, _NOTHING), now.get(key, _NOTHING), inner)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from _walked(before, after, f"{place}[{index}]")
    elif _canonical(was) != _canonical(now):
        yield place, was, now


def _canonical(value: Any) -> str | None:
    return None if value is _NOTHING else json.dumps(value, sort_keys=True)  # 1, 1.0 and true differ


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else _canonical(value)


def _excerpts(was: str | None, now: str | None) -> tuple[str | None, str | None]:
    """Return two texts in quotes, cut around the first difference, with invisible characters escaped."""
    if was is None or now is None:
        return _quoted(was, 0, 0), _quoted(now, 0, 0)
    start = next((at for at, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
    same = 0
    while same < min(len(was), len(now)) - start and was[-1 - same] == now[-1 - same]:
        same += 1
    return _quoted(was, start, len(was) - same), _quoted(now, start, len(now) - same)


def _quoted(text: str | None, start: int, end: int) -> str | None:
    if text is None:
        return None
    first = max(0, start - _BEFORE)
    part = text[first:start] + _marked(text[start:end]) + text[end : first + _SHOWN]
    whole = visible(part)
    is_cut = len(whole) > _SHOWN or first + _SHOWN < len(text)
    return f"'{'…' if first else ''}{whole[:_SHOWN]}{'…' if is_cut else ''}'"


def _marked(text: str) -> str:
    """Escape a few letters that a reader may confuse with others, such as letters of another script."""
    return text.encode("ascii", "backslashreplace").decode() if len(text) <= _MOST_LETTERS else text
