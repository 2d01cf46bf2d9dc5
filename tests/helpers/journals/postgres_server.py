"""A server of PostgreSQL for tests: one that is named, or one of our own in a temporary folder.

``DAGRUN_TEST_POSTGRES`` names one (a DSN; its user makes and drops schemas and databases). Otherwise the programs of
the distribution start one that listens on a socket in its folder, with all its safety on, for as long as the tests run.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

HOW = "install postgresql from your distribution, or set DAGRUN_TEST_POSTGRES to the DSN of a server for tests"
SETTINGS = "-c listen_addresses='' -c fsync=on -c max_connections=200 -c shared_buffers=32MB -c restart_after_crash=on"


class NoServer(Exception):
    """There is no server, and none can be started; the message says why, and how to have one."""


class Server:
    """A server of our own.

    Args:
        folder: For its data and its socket; removed at the end.
        programs: Where ``initdb`` and ``pg_ctl`` are.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._programs = programs
        # It refuses to run as root.
        self._user = _unprivileged() if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)

    @property
    def dsn(self) -> str:
        return f"postgresql://dagrun@/postgres?host={self.folder}"

    def make(self) -> None:
        # Its files need not survive a power cut before there is anything in them.
        self._call("initdb", "--no-sync", "-A", "trust", "-U", "dagrun", "-E", "UTF8", "--no-locale")

    def start(self, more: str = "") -> None:
        """Start it, with *more* settings."""
        log = self.folder / "log"
        self._call("pg_ctl", "start", "-w", "-l", str(log), "-o", f"{SETTINGS} -k {self.folder} {more}")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; by "immediate" as a crash would."""
        self._call("pg_ctl", "stop", "-w", "-m", mode)

    def restart(self, mode: str = "fast") -> None:
        self.stop(mode)
        self.start()

    def remove(self) -> None:
        """Stop it, if it runs, and forget all that it has."""
        if (self.data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *options: str) -> None:
        user = None if self._user is None else self._user.pw_uid
        group = None if self._user is None else self._user.pw_gid
        with open(self.folder / "out", "ab") as out:  # no pipe: the server would hold it open
            done = subprocess.run(
                [self._programs / program, "-D", self.data, *options],
                user=user,
                group=group,
                extra_groups=None if user is None else [],
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=60,
                check=False,
            )
        if done.returncode:
            said = (self.folder / "out").read_text(errors="replace")[-2000:]
            raise NoServer(f"{program} failed ({said.strip()}); {HOW}")


def started() -> Server:
    """A server of our own, for the caller to remove.

    Raises:
        NoServer: The programs are not there, or do not work.
    """
    programs = _programs()
    server = Server(Path(tempfile.mkdtemp(prefix="dagrun-pg-")), programs)
    try:
        server.make()
        server.start()
    except BaseException:
        server.remove()
        raise
    return server


def _programs() -> Path:
    """The folder of the newest programs: Debian keeps them out of the PATH."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: [int(part) for part in path.parent.name.split(".") if part.isdigit()])
    named = shutil.which("initdb")
    if named is None:
        raise NoServer(f"no server of PostgreSQL: {HOW}")
    return Path(os.path.realpath(named)).parent


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoServer(f"PostgreSQL does not run as root, and there is no user postgres or nobody; {HOW}")
