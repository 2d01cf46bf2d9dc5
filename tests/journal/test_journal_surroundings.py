"""What is around a journal: file systems that it does not trust, and clocks that jump."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from dagrun import SQLiteJournal
from dagrun.errors import OwnerLost, RunHeld
from dagrun.journal.lease import Owner, this_process
from dagrun.journal.run_folder import network_of

RUN = "one"
HOUR = 3600.0
YEAR = 365 * 24 * HOUR

MOUNTS = r"""
21 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 21 0:40 / /srv rw - nfs4 server:/export rw
31 30 0:41 / /srv/local rw - xfs /dev/sdb rw
32 21 0:42 / /home/a\040b rw shared:5 - fuse.sshfs ann@host:/ rw
33 21 0:43 / /mnt/late rw - ext4 /dev/sdc rw
34 33 0:44 / /mnt/late rw - cifs //host/share rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "network"),
    [
        ("/var/lib", ""),
        ("/srv", "nfs4"),
        ("/srv/runs", "nfs4"),
        ("/srvs", ""),
        ("/srv/local/runs", ""),
        ("/home/a b/runs", "fuse.sshfs"),
        ("/mnt/late/runs", "cifs"),
    ],
)
def test_what_is_mounted_deepest_and_last_says_where_a_folder_is(path: str, network: str) -> None:
    """Locks and shared memory do not work over a network, or only seem to: a run would lose records in silence."""
    assert network_of(Path(path), MOUNTS) == network


def test_where_nobody_says_what_is_mounted_nothing_is_refused() -> None:
    assert network_of(Path("/"), "") == ""


# Clocks ---------------------------------------------------------------------------------------------------------------


def _set_lease(folder: Path, expires: float, owner: str | None = None) -> None:
    """What a jump of the clock makes of a lease: it seems to have run out long ago, or to run for ages."""
    with sqlite3.connect(folder / RUN / "journal.db") as database:
        database.execute("UPDATE lease SET expires = ?, owner = coalesce(?, owner)", (expires, owner))
    database.close()


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_lease_that_seems_to_have_run_out_lets_another_in_and_keeps_the_former_out(tmp_path: Path) -> None:
    """The clock was set on by an hour: that two believe to be the owner is harmless, because only one can write."""
    journal = SQLiteJournal(tmp_path / "runs")
    former = await journal.create(RUN)
    former.append(b"1")
    await former.durable()
    _set_lease(tmp_path / "runs", time.time() - HOUR)

    run_log = await journal.open(RUN)
    former.append(b"2")
    with pytest.raises(OwnerLost):
        await former.durable()
    run_log.append(b"two")
    await run_log.durable()
    await former.aclose()
    await run_log.aclose()

    assert [line.text for line in await journal.read(RUN)] == [b"1", b"two"]


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_lease_that_seems_to_run_for_a_year_ends_with_its_owner(tmp_path: Path) -> None:
    """The clock was set back: a run must not wait for a year because of a process that has ended."""
    journal = SQLiteJournal(tmp_path / "runs")
    run_log = await journal.create(RUN)
    run_log.append(b"1")
    await run_log.aclose()
    here = this_process()
    ended = Owner(here.host, here.boot, here.space, here.pid, here.started + 1)  # its number has another one now

    _set_lease(tmp_path / "runs", time.time() + YEAR, ended.encode())
    again = await journal.open(RUN)
    await again.aclose()
    _set_lease(tmp_path / "runs", time.time() + YEAR, here.encode())
    with pytest.raises(RunHeld):
        await journal.open(RUN)
    stolen = await journal.open(RUN, steal=True)
    await stolen.aclose()


@pytest.mark.anyio
@pytest.mark.real_time
async def test_a_folder_may_be_named_by_a_text(tmp_path: Path) -> None:
    """That is how it stands in settings and examples."""
    run_log = await SQLiteJournal(str(tmp_path / "runs")).create(RUN)
    run_log.append(b"1")
    await run_log.aclose()

    assert [line.text for line in await SQLiteJournal(tmp_path / "runs").read(RUN)] == [b"1"]
