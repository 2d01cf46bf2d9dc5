"""Objects that pass from step to step, tools that make and take them, and what a crash leaves of a run with them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import dagrun
from dagrun import MemoryJournal

CANARY = "canary-7d1f44c-inside-the-object"


class Thing:
    """An object without a JSON form, with a text in it that no record may hold."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.content = CANARY

    def __repr__(self) -> str:
        return f"Thing({CANARY})"


class OtherThing(Thing):
    """A special kind of it."""


class Stranger:
    """An object of another class."""


class Workshop:
    """Tools, what was called of them, and the things that they made.

    Attributes:
        calls: The name of each call, in order.
        made: By name: a weak reference to the last thing of that name.
        taken: The things that tools got, by identity.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.made: dict[str, weakref.ref[Thing]] = {}
        self.taken: list[int] = []

        @dagrun.tool(effect="pure")
        async def make(name: str) -> dagrun.Object[Thing]:
            return self._new(f"make {name}", name)

        @dagrun.tool(effect="read")
        def make_in_thread(name: str) -> dagrun.Object[Thing]:
            return self._new(f"make {name}", name)

        @dagrun.tool(effect="pure")
        async def make_all(names: list[str]) -> list[dagrun.Object[Thing]]:
            return [self._new(f"make {name}", name) for name in names]

        @dagrun.tool(effect="pure")
        async def pass_on(thing: Thing) -> dagrun.Object[Thing]:
            return self._take(f"pass on {thing.name}", thing)

        @dagrun.tool(effect="pure")
        def pass_on_in_thread(thing: dagrun.Object[Thing]) -> dagrun.Object[Thing]:
            return self._take(f"pass on {thing.name}", thing)

        @dagrun.tool(effect="pure")
        async def names(things: list[Thing]) -> list[str]:
            for thing in things:
                self._take("", thing)
            self.calls.append("names")
            return [thing.name for thing in things]

        @dagrun.tool(effect="effectful")
        async def send(thing: Thing) -> str:
            self._take(f"send {thing.name}", thing)
            return thing.name

        self.tools = [make, make_in_thread, make_all, pass_on, pass_on_in_thread, names, send]
        self.make, self.make_in_thread, self.make_all = make, make_in_thread, make_all
        self.pass_on, self.pass_on_in_thread = pass_on, pass_on_in_thread
        self.names, self.send = names, send

    def _new(self, call: str, name: str) -> Thing:
        self.calls.append(call)
        thing = Thing(name)
        self.made[name] = weakref.ref(thing)
        return thing

    def _take(self, call: str, thing: Thing) -> Thing:
        if call:
            self.calls.append(call)
        self.taken.append(id(thing))
        return thing

    def alive(self, name: str) -> bool:
        """Whether the last thing of that name is still in memory."""
        return self.made[name]() is not None


async def texts_of(journal: MemoryJournal, run_id: str = "one") -> list[bytes]:
    """Return the records of a run."""
    return [line.text for line in await journal.read(run_id)]


async def cut_off(texts: Iterable[bytes], run_id: str = "one") -> MemoryJournal:
    """Return a journal with these records alone, as a crash would leave them."""
    journal = MemoryJournal()
    run_log = await journal.create(run_id)
    for text in texts:
        run_log.append(text)
    run_log.flush()
    await run_log.durable()
    await run_log.aclose()
    return journal
