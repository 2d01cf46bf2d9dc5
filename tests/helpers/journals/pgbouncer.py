"""PgBouncer before the server of PostgreSQL for tests, in any of its modes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from postgres_server import NoServer, _unprivileged

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def pooled(dsn: str, mode: str, **settings: object) -> Iterator[str]:
    """The DSN of a pooler before the server at *dsn*, for as long as the body runs.

    Args:
        dsn: The server.
        mode: ``session``, ``transaction`` or ``statement``.
        settings: More of its settings.

    Raises:
        NoServer: PgBouncer is not installed.
    """
    if PROGRAM is None:
        raise NoServer("no PgBouncer: install pgbouncer from your distribution")
    parts = urlsplit(dsn)
    host = parse_qs(parts.query).get("host", [parts.hostname or "127.0.0.1"])[0]
    to = {"host": host, "port": parts.port or 5432, "user": parts.username, "password": parts.password}
    target = " ".join(f"{name}={value}" for name, value in to.items() if value is not None)
    folder = Path(tempfile.mkdtemp(prefix="dagrun-pgb-"))
    own = {"unix_socket_dir": folder, "listen_port": 6432, "pool_mode": mode, "auth_type": "any"}
    lines = [f"{name} = {value}" for name, value in {**own, **settings}.items()]
    (folder / "ini").write_text("\n".join(["[databases]", f"* = {target}", "[pgbouncer]", *lines, ""]))
    user = _unprivileged() if os.geteuid() == 0 else None  # it refuses to run as root
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    to_user = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([PROGRAM, "-q", folder / "ini"], stdout=log, stderr=log, **to_user)  # type: ignore[call-overload]
    try:
        for _ in range(200):
            if (folder / ".s.PGSQL.6432").exists():
                break
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        yield f"postgresql://dagrun@{parts.path}?host={folder}&port=6432"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)
