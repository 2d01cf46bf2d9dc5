"""`run_code`: what code can do, what it cannot, and what is said about it. Each case is a process."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
import dagrun_tools
from dagrun import Plan, Policy, Step, Tool
from dagrun_tools import run_code
from dagrun_tools.code import run_code as module
from dagrun_tools.code import sandbox
from dagrun_tools.code.run_code import CodeRules

CAN_CONFINE = sys.platform == "linux" and platform.machine() == "x86_64"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.costly,
    pytest.mark.skipif(not CAN_CONFINE, reason="code is confined on Linux on x86-64 alone"),
]


@pytest.fixture(autouse=True)
def _rules() -> Iterator[None]:
    token = module.rules.set(CodeRules())
    yield
    module.rules.reset(token)


async def go(code: str, *, files: list[str] | None = None, inputs: Any = None, **rules: Any) -> dagrun.StepResult:
    """Run *code* as the one step of a plan."""
    module.rules.set(CodeRules(**rules))
    given = {"code": code, "inputs": inputs, "files": files}
    args = {name: value for name, value in given.items() if value is not None}
    plan = Plan(steps=(Step(id="a", tool="run_code", args=args),))
    result = await dagrun.run(plan, tools=[run_code])
    return result.steps["a"]


async def test_code_computes_with_what_it_is_given() -> None:
    """Data in, JSON out; what it prints is kept, and threads are fine."""
    code = """
import math, statistics, threading
found = []
thread = threading.Thread(target=lambda: found.append(statistics.mean(inputs["numbers"])))
thread.start()
thread.join()
print("half", "way")
result = {"mean": found[0], "root": math.sqrt(16)}
"""
    step = await go(code, inputs={"numbers": [1, 2, 6]})
    assert step.output == {"result": {"mean": 3, "root": 4.0}, "output": "half way\n", "files": []}


async def test_it_writes_the_files_that_the_plan_names() -> None:
    """They become artifacts; one that was not written is none."""
    step = await go("open('a.csv', 'w').write('x,y\\n1,2\\n')", files=["a.csv", "b.csv"])
    (file,) = step.output["files"]
    assert (file["name"], file["media_type"], file["size"]) == ("a.csv", "text/csv", 8)


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX)",
        "import socket; socket.socketpair()",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:1')",
        "import subprocess; subprocess.run(['/bin/ls'])",
        "import os; os.fork()",
        "import os; os.execv('/bin/ls', ['ls'])",
        "import os; os.posix_spawn('/bin/ls', ['ls'], {})",
        "import multiprocessing; multiprocessing.get_context('fork').Process(target=print).start()",
        "import os; os.kill(os.getppid(), 9)",
        "import os; os.kill(-1, 9)",
        "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
        "import fcntl, os; fcntl.fcntl(0, 10, 9)",
        "import fcntl, os, struct; fcntl.ioctl(0, 0x8901, struct.pack('i', os.getppid()))",
        "import fcntl, os, struct; fcntl.ioctl(0, 0x8902, struct.pack('i', os.getppid()))",
        "import os, signal; signal.pthread_kill(1, 9) if False else os.kill(os.getpid(), 0)",
        "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (1, 1))",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "open('/etc/passwd').read()",
        "import os; os.listdir('/')",
        "open('/proc/self/environ').read()",
        "import os; open(f'/proc/{os.getppid()}/environ').read()",
        "open('new.txt', 'w')",
        "open('/tmp/new.txt', 'w')",
        "open('../new.txt', 'w')",
        "import os; os.mkdir('new')",
        "import os; os.symlink('/etc/passwd', 'link')",
        "import os; os.link('a.csv', 'b.csv')",
        "import os; os.remove('a.csv')",
        "import os; os.rename('a.csv', 'b.csv')",
        "import os; os.mkfifo('pipe')",
        "import os; os.chmod('a.csv', 0o777)",
        "import os; os.memfd_create('x')",
        "import os; os.unshare(os.CLONE_NEWUSER) if hasattr(os, 'unshare') else os.fork()",
        "import os; os.setuid(0)",
    ],
)
async def test_code_can_do_nothing_but_compute(code: str) -> None:
    """No network, no process, no signal, no file but its own: each is refused by the kernel, in a sentence."""
    step = await go(code, files=["a.csv"])
    assert step.failure is not None
    assert str(step.state) == "failed"
    assert any(word in step.failure.message for word in ("not permitted", "Permission denied", "not allowed"))


@pytest.mark.parametrize("number", [41, 53, 57, 59, 101, 165, 240, 272, 310, 319, 322, 425])
async def test_system_calls_that_no_computation_needs_are_refused(number: int) -> None:
    """Also without Python's own functions: sockets, forks, programs, ptrace, mounts, queues, namespaces, io_uring."""
    code = f"import ctypes; libc = ctypes.CDLL(None, use_errno=True); result = [libc.syscall({number}, 0, 0, 0, 0), "
    step = await go(code + "ctypes.get_errno()]")
    assert step.output["result"] == [-1, 1]


@pytest.mark.parametrize(
    ("code", "rules", "said"),
    [
        ("while True: pass", {"max_cpu_seconds": 1}, "more than 1 s of CPU time"),
        ("import time; time.sleep(60)", {"max_seconds": 0.7}, "longer than 0.7 s"),
        ("x = 'a' * 2_000_000_000", {}, "MemoryError (line 1)"),
        ("with open('a.csv', 'w') as f: f.write('x' * 5000)", {"max_file_bytes": 2000}, "File too large (line 1)"),
        ("result = 'x' * 5000", {"max_file_bytes": 2000}, "the result cannot be kept"),
        ("open('a.csv')\n\n1 / 0", {}, "ZeroDivisionError: division by zero (line 3)"),
        ("def f(:", {}, "SyntaxError"),
        ("result = object()", {}, "not JSON serializable"),
        ("result = float('nan')", {}, "not JSON compliant"),
        ("import sys; sys.exit(0)", {}, "SystemExit: 0"),
        ("import ctypes; ctypes.string_at(0)", {}, "SIGSEGV"),
        ("import numpy", {}, "No module named 'numpy'"),
    ],
)
async def test_what_is_too_much_or_wrong_is_said(code: str, rules: dict[str, Any], said: str) -> None:
    """A planner reads the message, and mends the code."""
    step = await go(code, files=["a.csv"], **rules)
    assert step.failure is not None
    assert said in step.failure.message
    assert step.failure.nothing_happened


async def test_files_can_be_locked_and_asked_for_their_kind() -> None:
    """What ordinary code does with a descriptor is allowed."""
    code = """
import fcntl, os
with open("a.csv", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_UN)
    other = os.dup(file.fileno())
    os.set_inheritable(other, True)
    result = [file.isatty(), os.get_blocking(other), fcntl.fcntl(other, fcntl.F_GETFD)]
"""
    step = await go(code, files=["a.csv"])
    assert step.output["result"] == [False, True, 0]


async def test_much_output_is_cut() -> None:
    """And the code is not stopped by it."""
    step = await go("print('x' * 1_000_000)\nresult = 1", max_output=100)
    assert (step.output["result"], step.output["output"]) == (1, "x" * 100 + "… (more was printed)")


async def test_it_sees_nothing_of_its_host() -> None:
    """No variable of the environment, no argument, no descriptor but its three pipes."""
    os.environ["DAGRUN_TEST_SECRET"] = "hunter2"
    try:
        code = "import os, sys\nresult = [dict(os.environ), sys.argv, [n for n in range(3, 64) if _open(n)]]"
        step = await go(f"def _open(n):\n  try: os.fstat(n)\n  except OSError: return False\n  return True\n{code}")
    finally:
        del os.environ["DAGRUN_TEST_SECRET"]
    assert step.output["result"] == [{}, ["<code>"], []]


async def test_packages_are_the_choice_of_the_host() -> None:
    """Then the code may also read their folder."""
    step = await go("import numpy; result = int(numpy.arange(5).sum())", allow_packages=True, max_memory=4 << 30)
    assert step.output["result"] == 10


async def test_a_cancelled_step_leaves_no_process() -> None:
    """The fixture that watches child processes would find it."""
    module.rules.set(CodeRules(max_seconds=60))
    plan = Plan(steps=(Step(id="a", tool="run_code", args={"code": "import time; time.sleep(60)"}),))
    async with dagrun.start(plan, tools=[run_code], policy=Policy(grace=2.0)) as run:
        await anyio.sleep(0.3)
        run.cancel("a")
        result = await run.result()
    assert str(result.steps["a"].state) == "cancelled"


async def test_a_listening_server_is_never_reached() -> None:
    """Not by TCP to this machine either."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        await go(f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))")
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    ("what", "value"), [("platform.machine", "arm64"), ("platform.machine", "riscv64"), ("platform.system", "Darwin")]
)
async def test_where_code_cannot_be_confined_none_is_run(
    monkeypatch: pytest.MonkeyPatch, what: str, value: str
) -> None:
    """A promise that cannot be kept is not made."""
    if what == "platform.system":
        monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(what, lambda: value)
    assert "that needs Linux on x86-64" in module.why_unconfined()


@pytest.mark.parametrize(("name", "value"), [("_LANDLOCK_CREATE", 9999), ("_PR_SET_SECCOMP", 9999), ("_CAPSET", 9999)])
async def test_a_kernel_without_one_of_the_means_runs_no_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: int
) -> None:
    """The sandbox itself finds that out, before it compiles anything."""
    text = Path(sandbox.__file__).read_text("utf-8")
    broken = tmp_path / "sandbox.py"
    broken.write_text(text.replace("\n_libc = ", f"\n{name} = {value}\n_libc = "), "utf-8")
    monkeypatch.setattr(module, "_SCRIPT", broken)
    step = await go("print('it ran'); result = 1")
    assert step.failure is not None
    assert "run_code cannot confine code here, so it runs none: " in step.failure.message


def test_it_is_off_unless_the_host_adds_it() -> None:
    """Neither the toolbox of all ready-made tools has it, nor that of installed packages."""
    assert isinstance(run_code, Tool)
    assert "run_code" not in dagrun.Toolbox(dagrun_tools)
    assert "run_code" not in dagrun.Toolbox.from_entry_points()
    assert "run_code" in dagrun.Toolbox("dagrun_tools:run_code")
    assert dagrun.check_tools([run_code], ignore=["DR808"]) == ()


def test_the_host_sets_the_rules() -> None:
    """In the table tools.code of its settings."""
    dagrun_tools.configure({"code": {"max_seconds": 2.0, "allow_packages": True}})
    assert module.rules.get() == CodeRules(max_seconds=2.0, allow_packages=True)
