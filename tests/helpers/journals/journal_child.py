"""A process that writes a run and says what was acknowledged, to be killed, stopped or starved by a test.

python journal_child.py FOLDER LEVEL [--lease SECONDS] [--file-size BYTES]
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path

import anyio

from dagrun import SQLiteJournal
from dagrun.errors import JournalError

RUN = "run-1"


def text_of(seq: int) -> bytes:
    """What record *seq* says."""
    return b'{"seq":%d,"value":"%b"}' % (seq, b"x" * (seq % 700))


async def write(folder: Path, level: str, lease: float) -> None:
    """Add units of one to nine records for ever, and print the last number of each that is durable."""
    journal = SQLiteJournal(folder, level, lease_seconds=lease, busy_seconds=1)
    run_log = await journal.create(RUN)
    run_log.on_failure = lambda error: print("TOLD", type(error).__name__, flush=True)
    print("READY", flush=True)
    seq = 0
    try:
        while True:
            for _ in range(seq % 9 + 1):
                seq = run_log.append(text_of(seq + 1))
            await run_log.durable(seq)
            print(seq, flush=True)
    except JournalError as error:
        await anyio.sleep(0)
        print("FAILED", type(error).__name__, error, flush=True)
    await run_log.aclose()
    print("CLOSED", flush=True)


def main() -> None:
    """Read the arguments, and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("level")
    parser.add_argument("--lease", type=float, default=10)
    parser.add_argument("--file-size", type=int)
    options = parser.parse_args()
    if options.file_size:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_size, options.file_size))
    anyio.run(write, options.folder, options.level, options.lease)


if __name__ == "__main__":
    main()
