"""Real processes, killed with kill -9 at each record that they write, and around each effect; then the run goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from dagrun import SQLiteJournal, replay
from dagrun.codec import events_of
from dagrun.events import AttemptEnded, AttemptStarted, RunEnded, RunStarted
from kill_child import RUN, Outside
from kill_server import Server, serving
from seeds import NIGHT

pytestmark = pytest.mark.rigs

WANTED = {"list", "each", "each[0]", "each[1]", "each[2]", "after", "pay", "send", "end", "good"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One warm process for all kills."""
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def units(server: Server, tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many changes the reference run writes."""
    found = server.run(tmp_path_factory.mktemp("reference"), do="start")
    assert found is not None
    assert found["status"] == "succeeded", found
    return int(found["units"])


def _go_on(server: Server, folder: Path, level: str, again: int = 0) -> Counter[str]:
    """Resume what a kill has left, after *again* more kills, and judge what has come of it; give counts."""
    met: Counter[str] = Counter()
    for kill in range(again):
        if server.run(folder, do="resume", level=level, kill=3 + 2 * kill) is None:
            met["killed again"] += 1
    found = server.run(folder, do="resume", level=level)
    assert found is not None
    if found.get("error") == "CannotResume":
        met["was over"] += 1
    elif found.get("error") == "RunNotFound" and "before its first record" in found["text"]:
        assert not Outside(folder).lines(), "a tool was called, and nothing is on record"
        met["had not begun"] += 1
        return met
    else:
        assert found.get("status") == "succeeded", found
        assert {id_ for id_, state in found["states"].items() if state == "succeeded"} == WANTED, found
    anyio.run(_judge, folder, found.get("hash"))
    met["went on"] += 1
    return met


async def _judge(folder: Path, state: str | None) -> None:
    journal = SQLiteJournal(folder / "runs")
    events = events_of(RUN, await journal.read(RUN))
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunEnded)
    starts = [(event.step, event.attempt) for event in events if isinstance(event, AttemptStarted)]
    ends = [(event.step, event.attempt) for event in events if isinstance(event, AttemptEnded)]
    assert sorted(starts) == sorted(ends)
    assert len(set(starts)) == len(starts)
    replayed = await replay(RUN, journal=journal)
    assert state in {None, replayed.hash}
    lines = Outside(folder).lines()
    applied: Counter[str] = Counter(step for what, step, *_ in lines if what == "applied")
    assert applied == Counter(["each[0]", "each[1]", "each[2]", "pay", "send"]), applied
    keys: dict[str, set[str]] = {}
    for what, step, key, _ in lines:
        if what == "enters":
            keys.setdefault(step, set()).add(key)
    assert all(len(found) == 1 for step, found in keys.items() if step.startswith("each")), keys
    for step in ("pay", "send"):  # a key of its own for each call; a call with the same key was never made twice
        entered = Counter(key for what, who, key, _ in lines if what == "enters" and who == step)
        assert max(entered.values()) == 1, entered
        assert sum(1 for id_, _ in starts if id_ == step) >= len(entered)


def _kill(server: Server, folder: Path, again: int = 0, level: str = "process", **job: Any) -> Counter[str]:
    folder.mkdir()
    if server.run(folder, do="start", level=level, **job) is not None:
        return Counter({"ended before": 1})
    return Counter({"killed": 1}) + _go_on(server, folder, level, again)


@pytest.mark.parametrize("level", ["process", "power"])
def test_a_kill_after_any_record_loses_nothing(server: Server, units: int, level: str, tmp_path: Path) -> None:
    """What is durable is what counts, at both levels; every step is done, and every effect happens once."""
    met: Counter[str] = Counter()
    for unit in range(1, units + 1):
        met += _kill(server, tmp_path / str(unit), level=level, kill=unit)
    print(f"{level}: {units} units, {dict(met)}")
    assert met["killed"] >= 20, met
    assert met["went on"] >= 20, met


def test_a_kill_before_any_record_loses_nothing(server: Server, units: int, tmp_path: Path) -> None:
    """What was about to be written is gone: nothing had come of it yet that could not come again."""
    met: Counter[str] = Counter()
    for unit in range(1, units + 1, 1 if NIGHT else 2):
        met += _kill(server, tmp_path / str(unit), kill=unit, before=True)
    assert met["killed"] >= 10, met


def test_a_kill_around_any_effect_loses_nothing(server: Server, tmp_path: Path) -> None:
    """Entered and not applied, or applied and not on record: the difference is found out, not guessed."""
    met: Counter[str] = Counter()
    for effect in range(1, 11):
        met += _kill(server, tmp_path / str(effect), kill_effect=effect)
    assert met["killed"] == 10, met


def test_kills_on_the_way_back_lose_nothing(server: Server, units: int, tmp_path: Path) -> None:
    """Going on is a run like any other: it is killed twice more."""
    met: Counter[str] = Counter()
    for unit in range(2, units + 1, 1 if NIGHT else 4):
        met += _kill(server, tmp_path / str(unit), again=2, kill=unit)
    assert met["killed again"] >= 6, met
