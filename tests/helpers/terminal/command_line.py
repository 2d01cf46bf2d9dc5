"""The command line as tests use it: in this process, in one of its own, and on a terminal."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dagrun.cli.main import main
from dagrun.cli.setup.settings import read_settings
from folders import python_path

TOOLS = ("--tools", "cli_tools")
SECONDS = 30.0  # nothing takes so long, unless it hangs


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Shell:
    """A folder to work in, and the command to try there."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *args: str) -> Ended:
        """Run the command in this process."""
        self.capture.readouterr()
        code = main(args)
        out, err = self.capture.readouterr()
        return Ended(code, out, err)

    @property
    def runs(self) -> Path:
        """The folder of the records of runs."""
        return Path(os.environ["XDG_STATE_HOME"]) / "dagrun" / "runs"

    @property
    def run_id(self) -> str:
        """The name of the one run on record."""
        (name,) = os.listdir(self.runs)
        return name

    def plan(self, *steps: Mapping[str, Any], name: str = "plan.json", **fields: Any) -> str:
        """Write a plan, and give its name."""
        return self.file(name, json.dumps({"steps": list(steps), **fields}))

    def file(self, name: str, content: str | bytes) -> str:
        """Write a file, and give its name."""
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    def trusted(self, name: str, content: str) -> str:
        """Write a file of settings or a policy, say that it is trusted, and give its name."""
        self.file(name, content)
        found = read_settings(self.folder / name)
        assert found is not None
        found.trust()
        return name


@pytest.fixture
def shell(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    """An empty folder, no runs, nobody's settings, and a place for what commands put on the module search path."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-settings"))
    for name in [name for name in os.environ if name.startswith("DAGRUN_") and name != "DAGRUN_NIGHT"]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Shell(tmp_path, capsys)


def command(*args: str) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-m", "dagrun", *args]


def environment(**more: str) -> dict[str, str]:
    """The environment of such a process: it finds dagrun and the tools of these tests, from any folder."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return kept | {"PYTHONPATH": python_path(), "TERM": "xterm-256color"} | more


@contextmanager
def started(shell: Shell, *args: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """Start the command in a process of its own, and end that in any case."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command(*args), stdout=pipe, stderr=pipe, text=True, cwd=shell.folder, env=environment(**more)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def finished(shell: Shell, *args: str, **more: str) -> Ended:
    """Run the command in a process of its own."""
    with started(shell, *args, **more) as process:
        out, err = process.communicate(timeout=SECONDS)
        return Ended(process.returncode, out, err)


@dataclass
class Terminal:
    """A command on a terminal of its own."""

    process: subprocess.Popen[bytes]
    descriptor: int
    shown: str = ""

    def read_until(self, text: str) -> str:
        """Read what is drawn until *text* was."""
        until = time.monotonic() + SECONDS
        while text not in self.shown:
            assert time.monotonic() < until, f"{text!r} was not shown, but {self.shown!r}"
            self._read()
        return self.shown

    def wait(self) -> int:
        """Read to the end, and give the exit code."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def send_interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def _read(self) -> bool:
        if not select.select([self.descriptor], [], [], 0.2)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # the other end has been closed
            return False
        self.shown += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def on_terminal(shell: Shell, args: Sequence[str], *, columns: int = 80, **more: str) -> Iterator[Terminal]:
    """Start the command with its standard error on a terminal, and its standard output in ``out.txt``."""
    ours, theirs = pty.openpty()
    variables = environment(COLUMNS=str(columns), LINES="24", **more)
    with (shell.folder / "out.txt").open("wb") as out:
        process = subprocess.Popen(
            command(*args), stdin=theirs, stdout=out, stderr=theirs, cwd=shell.folder, env=variables
        )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
