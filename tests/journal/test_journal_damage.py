"""Whatever happens to the files of a run: nobody is ever given a record that was not written, or too few of them."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from dagrun.errors import JournalDamaged, JournalFailed
from dagrun.journal import anchor
from dagrun.journal.anchor import SLOT, AnchorMark
from dagrun.journal.hash_chain import chained
from damaged_journals import ANCHOR, DATABASE, LOG, RUN, Crashed, Patient, crashed

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.both_backends]

PAGE = 4096
FRAME = PAGE + 24  # a page of the log, and its header
LOG_HEADER = 32


@pytest.fixture
def anyio_backend() -> str:
    """Damage does not depend on the loop."""
    return "asyncio"


@pytest.fixture
async def patient(tmp_path: Path) -> Patient:
    """The files of a crashed run, ready to be damaged."""
    return Patient(tmp_path / "patient", await crashed(tmp_path / "healthy"))


async def examine(patient: Patient, cases: Iterator[dict[str, bytes | None]], *, opens_every: int) -> Counter[str]:
    """Look at each case, and open every so many of them, too; count what came of it."""
    outcomes: Counter[str] = Counter()
    for number, files in enumerate(cases):
        patient.restore(**files)
        outcomes[await patient.look()] += 1
        if number % opens_every == 0:
            patient.restore(**files)
            outcomes[await patient.take()] += 1
    wrong = {outcome: count for outcome, count in outcomes.items() if outcome.startswith("WRONG")}
    assert not wrong, wrong
    return outcomes


async def test_the_patient_is_healthy(patient: Patient) -> None:
    """And has what the others damage: records in the database, in the log, and beyond the anchor."""
    whole = patient.whole
    assert len(whole.lines) == 67
    assert whole.anchored == 48
    assert len(whole.files[DATABASE]) >= 4 * PAGE
    assert len(whole.files[LOG]) >= LOG_HEADER + 8 * FRAME
    patient.restore()
    assert await patient.look() == "whole"
    assert await patient.take() == "whole"


@pytest.mark.rigs
async def test_truncation_is_never_taken_for_less(patient: Patient) -> None:
    """At every boundary of a page or a frame and two bytes around it, and at 2,000 places by chance."""
    files = patient.whole.files

    def cases() -> Iterator[dict[str, bytes | None]]:
        chance = random.Random(1)
        for name, file, first, step in (("database", DATABASE, 0, PAGE), ("log", LOG, LOG_HEADER, FRAME)):
            data = files[file]
            at_boundaries = {cut + off for cut in range(first, len(data) + 1, step) for off in range(-2, 3)}
            by_chance = {chance.randrange(len(data)) for _ in range(1000)}
            while len(by_chance) < 1000:
                by_chance.add(chance.randrange(len(data)))
            for cut in sorted(at_boundaries & set(range(len(data) + 1))) + sorted(by_chance):
                yield {name: data[:cut]}
        yield {"log": None}
        yield {"database": None}

    outcomes = await examine(patient, cases(), opens_every=10)
    print(outcomes)
    assert sum(outcomes.values()) > 2000
    # Each was met: only the log was cut beyond the anchor, the tail was lost, the file could not be opened at all.
    assert min(outcomes[kind] for kind in ("whole", "prefix", "damaged", "failed")) > 0


@pytest.mark.rigs
async def test_a_flipped_bit_is_never_taken_for_a_record(patient: Patient) -> None:
    """3,000 of them, in the database and in its log: SQLite itself does not notice every second one."""
    files = patient.whole.files

    def cases() -> Iterator[dict[str, bytes | None]]:
        chance = random.Random(2)
        for number in range(3200):
            name, file = (("database", DATABASE), ("log", LOG))[number % 2]
            data = bytearray(files[file])
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            yield {name: bytes(data)}
        # Headers and pages of the schema are small targets.
        for place in range(100):
            for bit in (0, 3, 7):
                data = bytearray(files[DATABASE])
                data[place] ^= 1 << bit
                yield {"database": bytes(data)}

    outcomes = await examine(patient, cases(), opens_every=10)
    print(outcomes)
    assert sum(outcomes.values()) > 3500
    assert min(outcomes[kind] for kind in ("whole", "prefix", "damaged")) > 0


@pytest.mark.rigs
async def test_blocks_that_are_zero_or_of_another_place_are_never_taken_for_records(patient: Patient) -> None:
    """As a disk leaves them after a power cut: a page that was not written, or one that was written elsewhere."""
    files = patient.whole.files

    def cases() -> Iterator[dict[str, bytes | None]]:
        for name, file in (("database", DATABASE), ("log", LOG)):
            data = files[file]
            for place in range(0, len(data), 512):
                yield {name: data[:place] + bytes(min(512, len(data) - place)) + data[place + 512 :]}
                yield {name: data[:place] + data[:512] + data[place + 512 :]}

    outcomes = await examine(patient, cases(), opens_every=10)
    print(outcomes)
    assert min(outcomes[kind] for kind in ("whole", "prefix", "damaged")) > 0


EDITS = {
    "text": ["UPDATE records SET text = replace(text, 'abc', 'abd') WHERE seq = 7"],
    "digest": ["UPDATE records SET digest = replace(digest, 'a', 'b') WHERE seq = 7"],
    "text, where the anchor knows nothing": ["UPDATE records SET text = replace(text, 'abc', 'abd') WHERE seq = 56"],
    "cut out": ["DELETE FROM records WHERE seq = 7"],
    "cut out, and moved up": [
        "DELETE FROM records WHERE seq = 7",
        "UPDATE records SET seq = -seq WHERE seq > 7",
        "UPDATE records SET seq = -seq - 6 WHERE seq < 0",
    ],
    "one of six cut out": ["UPDATE records SET text = substr(text, instr(text, char(30)) + 1) WHERE seq = 7"],
    "six made one": ["UPDATE records SET text = replace(text, char(30), ' ') WHERE seq = 7"],
    "two rows made one": [
        "UPDATE records SET text = text || char(30) || (SELECT text FROM records WHERE seq = 13), "
        "digest = (SELECT digest FROM records WHERE seq = 7) WHERE seq = 7",
        "DELETE FROM records WHERE seq = 13",
    ],
    "cut off": ["DELETE FROM records WHERE seq > 36"],
    "all gone": ["DELETE FROM records"],
    "begins later": ["DELETE FROM records WHERE seq < 3"],
    "swapped": [
        "UPDATE records SET seq = -7 WHERE seq = 7",
        "UPDATE records SET seq = 7 WHERE seq = 13",
        "UPDATE records SET seq = 13 WHERE seq = -7",
    ],
    "duplicated": [
        "UPDATE records SET seq = -seq WHERE seq > 7",
        "UPDATE records SET seq = -seq + 6 WHERE seq < 0",
        "INSERT INTO records SELECT 13, text, digest FROM records WHERE seq = 7",
    ],
    "number 0": ["INSERT INTO records VALUES (0, '{}', '')"],
    "not text": ["UPDATE records SET text = CAST(text AS BLOB) || x'ff' WHERE seq = 7"],
    "a number for text": ["UPDATE records SET text = 7, digest = 7 WHERE seq = 7"],
    "another format": ["PRAGMA user_version = 2"],
    "a trigger": ["CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records WHERE seq = 1; END"],
    "a view": ["ALTER TABLE records RENAME TO others", "CREATE VIEW records AS SELECT * FROM others"],
    "one more table": ["CREATE TABLE more (x)"],
    "no owner's row": ["DELETE FROM lease"],
    "an older owner": ["UPDATE lease SET token = 0"],
}


@pytest.mark.parametrize("edit", EDITS)
async def test_an_edit_is_noticed(patient: Patient, edit: str) -> None:
    """By whoever reads the run, or takes it over; the error names the run."""
    patient.edit(*EDITS[edit])
    with pytest.raises(JournalDamaged) as caught:
        await patient.journal.open(RUN, steal=True)
    assert caught.value.run_id == RUN
    if edit not in {"no owner's row", "an older owner"}:  # readers do not ask who owns a run
        with pytest.raises(JournalDamaged):
            await patient.journal.read(RUN)


@pytest.mark.parametrize(
    ("edit", "seq", "words"),
    [
        ("text", 7, "one of records 7 to 12 was changed"),
        ("digest", 7, "one of records 7 to 12 was changed"),
        ("cut out", 7, "record 7 is missing; the next one is record 13"),
        ("begins later", 1, "record 1 is missing; the next one is record 7"),
        ("swapped", 7, "was changed or replaced"),
        ("number 0", 1, "record 0 occurs twice, or out of order"),
        ("cut off", 37, "the records end at 36, and 48 were acknowledged"),
        ("another format", 0, "format 2"),
    ],
)
async def test_the_error_names_the_first_bad_record(patient: Patient, edit: str, seq: int, words: str) -> None:
    """And says why in words."""
    patient.edit(*EDITS[edit])
    with pytest.raises(JournalDamaged) as caught:
        await patient.journal.read(RUN)
    assert caught.value.seq == seq
    assert words in caught.value.reason


async def test_a_chain_that_was_made_anew_is_noticed_by_the_anchor(patient: Patient) -> None:
    """Whoever can write the database can compute digests; the anchor knows another one."""
    texts = [line.text for line in patient.whole.lines]
    texts[6] = texts[6].replace(b"abc", b"abd")
    anew = [(line.text.decode(), line.digest, line.seq) for line in chained(RUN, texts)]

    def replace(database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM records")
        database.executemany("INSERT INTO records (text, digest, seq) VALUES (?, ?, ?)", anew)

    patient.change(replace)
    with pytest.raises(JournalDamaged, match="created again"):
        await patient.journal.read(RUN)


async def test_the_records_of_another_run_are_noticed(patient: Patient) -> None:
    """A whole folder under another name is not that run."""
    patient.restore()
    patient.folder.rename(patient.folder.with_name("run-2"))
    with pytest.raises(JournalDamaged) as caught:
        await patient.journal.read("run-2")
    assert caught.value.seq == 1


def _marks(crashed: Crashed) -> tuple[bytes, bytes]:
    data = crashed.files[ANCHOR]
    return data[:SLOT], data[SLOT:]


def _spoilt(slot: bytes) -> bytes:
    return slot[:40] + b"~" + slot[41:]


ANCHORS: dict[str, Callable[[Crashed], bytes | None]] = {
    "gone": lambda _: None,
    "empty": lambda _: b"",
    "both torn": lambda crashed: b"".join(map(_spoilt, _marks(crashed))),
    "zero": lambda _: bytes(2 * SLOT),
    "ahead": lambda crashed: AnchorMark(68, "0" * 64, 2).encode() * 2,
    "of another chain": lambda crashed: AnchorMark(40, sha256(b"").hexdigest(), 2).encode() * 2,
    "of a negative number": lambda crashed: AnchorMark(-1, "0" * 64, 2).encode() * 2,
    "without its sum": lambda crashed: crashed.files[ANCHOR].replace(b" 48 ", b" 47 ").replace(b" 42 ", b" 41 "),
}


@pytest.mark.parametrize("name", ANCHORS)
async def test_an_anchor_that_does_not_fit_is_noticed(patient: Patient, name: str) -> None:
    """Without it, lost records could not be told from records that were never written."""
    patient.restore(anchor=ANCHORS[name](patient.whole))
    with pytest.raises(JournalDamaged):
        await patient.journal.read(RUN)
    with pytest.raises(JournalDamaged):
        await patient.journal.open(RUN, steal=True)


@pytest.mark.parametrize("torn", [0, 1])
async def test_one_torn_slot_leaves_the_other(patient: Patient, torn: int) -> None:
    """A crash in the middle of a write to the anchor is no damage."""
    slots = list(_marks(patient.whole))
    slots[torn] = _spoilt(slots[torn])
    patient.restore(anchor=b"".join(slots))
    assert await patient.look() == "whole"


def test_a_slot_that_is_half_written_is_the_old_one_or_none(tmp_path: Path) -> None:
    """Wherever the write breaks off, and whether the disk has the beginning of it or the end."""
    old, new = AnchorMark(7, "a" * 64, 1), AnchorMark(8, "b" * 64, 1)
    before, after = old.encode(), new.encode()
    for cut in range(SLOT + 1):
        for torn in (after[:cut] + before[cut:], before[:cut] + after[cut:]):
            assert anchor.decode(torn) in {None, old, new}
    path = tmp_path / "anchor"
    path.write_bytes(before + after[:20] + before[20:])
    assert anchor.read(path) == old


async def test_a_database_that_is_gone_is_no_empty_run(patient: Patient) -> None:
    """The folder says that there was one."""
    patient.restore(database=None, log=None)
    for act in (patient.journal.read, patient.journal.open):
        with pytest.raises((JournalFailed, JournalDamaged)):
            await act(RUN)
    assert not (patient.folder / DATABASE).exists()


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0", b"not a database at all" * 500, bytes(8192)])
async def test_something_else_in_the_place_of_the_database_is_noticed(patient: Patient, data: bytes) -> None:
    """An empty file is a valid database for SQLite, and not for us."""
    patient.restore(database=data, log=None)
    with pytest.raises(JournalDamaged):
        await patient.journal.read(RUN)
    with pytest.raises(JournalDamaged):
        await patient.journal.open(RUN)


async def test_a_damaged_run_can_be_deleted_and_does_not_hide_the_others(patient: Patient) -> None:
    """The list goes on, and so does everybody else."""
    patient.restore(database=b"not a database at all" * 500, log=None)
    other = await patient.journal.create("other")
    await other.aclose()
    assert [held.run_id for held in await patient.journal.runs()] == ["other", RUN]
    await patient.journal.delete(RUN)
    assert [held.run_id for held in await patient.journal.runs()] == ["other"]
