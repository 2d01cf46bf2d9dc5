"""The answer key of a run: where it is stored, and that old runs get one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import pytest

from dagrun import PostgresJournal, SQLiteJournal
from dagrun.errors import JournalFailed
from postgres_schemas import fresh_schema, say

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

RUN: Final = "r1"


async def _created(folder: Path) -> tuple[SQLiteJournal, Path]:
    journal = SQLiteJournal(folder)
    await (await journal.create(RUN)).aclose()
    return journal, folder / RUN / "answer_key"


async def test_only_the_user_can_read_the_key(tmp_path: Path) -> None:
    """It lies beside the inbox, not in it."""
    journal, file = await _created(tmp_path / "runs")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == await journal.answer_key(RUN)
    assert len(await journal.answer_key(RUN)) == 64
    assert [path.name for path in file.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("left", [None, b"", b"short", b"\xff" * 64])
async def test_a_run_without_a_whole_key_gets_one(tmp_path: Path, left: bytes | None) -> None:
    """An earlier version has made the run, or the power was cut: it can be answered and resumed nevertheless."""
    journal, file = await _created(tmp_path / "runs")
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    key = await journal.answer_key(RUN)
    run_log = await journal.open(RUN)
    await run_log.aclose()
    assert run_log.answer_key == key == file.read_text()
    assert (len(key), stat.S_IMODE(file.stat().st_mode)) == (64, 0o600)


@pytest.mark.parametrize("kind", ["link", "open to all", "folder"])
async def test_a_key_that_another_user_could_have_put_there_is_refused(tmp_path: Path, kind: str) -> None:
    journal, file = await _created(tmp_path / "runs")
    if kind == "open to all":
        file.chmod(0o666)
    else:
        file.unlink()
        os.symlink(tmp_path / "elsewhere", file) if kind == "link" else file.mkdir()
    with pytest.raises(JournalFailed):
        await journal.answer_key(RUN)
    with pytest.raises(JournalFailed):
        await journal.open(RUN)


async def test_a_schema_of_an_earlier_version_gets_the_table_of_keys(postgres: str) -> None:
    """A run of that version gets a key when it is first asked for; it is deleted together with the run."""
    with fresh_schema(postgres) as schema:
        async with PostgresJournal(postgres, schema=schema) as journal:
            await (await journal.create(RUN)).aclose()
            say(postgres, f'DROP TABLE "{schema}".answer_keys')
            key = await journal.answer_key(RUN)
            run_log = await journal.open(RUN)
            await run_log.aclose()
            assert (len(key), run_log.answer_key) == (64, key)
            await journal.delete(RUN)
            assert not say(postgres, f'SELECT key FROM "{schema}".answer_keys')
