"""Worker processes: they are reused or killed, no step hangs, and no process is left behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

import dagrun
import process_tools as tools
from calls import Reported, make_call
from dagrun import Artifact, Tool
from dagrun.executors.processes.executor import ProcessExecutor
from dagrun.executors.processes.worker_handle import WorkerHandle
from dagrun.extend import StillRunning, WorkerDied
from dagrun.kernel.model.executor import CallFailed, Encoded, ResultRefused
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime.artifacts import ArtifactFolder
from dagrun.kernel.runtime.backend import clock
from dagrun.kernel.runtime.coroutine_driver import Suspended
from dagrun.kernel.runtime.stop_scope import stop_scopes

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.costly]


@asynccontextmanager
async def processes(max_processes: int = 1, **options: Any) -> AsyncIterator[ProcessExecutor]:
    executor = ProcessExecutor(max_processes, **options)
    try:
        yield executor
    finally:
        await executor.aclose()


async def ask(executor: ProcessExecutor, tool: Tool[..., Any], reported: Reported | None = None, **args: Any) -> Any:
    answer = await executor.call(make_call(tool, args, reported=reported))
    assert isinstance(answer, Encoded)
    return json.loads(answer.data)


async def failure_of(executor: ProcessExecutor, tool: Tool[..., Any], **args: Any) -> Failure:
    with pytest.raises(CallFailed) as caught:
        await executor.call(make_call(tool, args))
    return caught.value.failure


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a grandchild may remain as a zombie of its new parent."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def is_reaped(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def has_length(reported: Reported, number: int) -> bool:
    return len(reported) == number


async def until(claim: Callable[[], object]) -> None:
    with anyio.fail_after(30):
        while not claim():
            await anyio.sleep(0.005)


async def test_plain_and_async_tools_run_in_one_warm_process(capfd: pytest.CaptureFixture[str]) -> None:
    """A process takes half a second to start, so it is used again; and printed output is not an answer."""
    async with processes() as executor:
        first = await ask(executor, tools.which_process)
        assert await ask(executor, tools.add, a=1, b=2) == 3
        assert await ask(executor, tools.add_later, a=3, b=4) == 7
        assert await ask(executor, tools.negate, a=5) == -5
        assert await ask(executor, tools.chatter) == "said"
        assert await ask(executor, tools.which_process) == first != os.getpid()
        assert executor.pids == {first}

    out, err = capfd.readouterr()
    assert out == ""
    assert err.split("\n") == ["printed", "written", "raw", "by a child", ""]


async def test_context_reaches_the_process_and_its_reports_come_back(tmp_path: Path) -> None:
    """An idempotent tool needs its key, attempt and deadline; its usage counts against the budget."""
    reported: Reported = []
    async with processes() as executor:
        call = make_call(tools.describe_context, seconds=60, reported=reported, folder=tmp_path)
        seen = await executor.call(call)
        saved = await executor.call(make_call(tools.save_text, {"text": "hello"}, folder=tmp_path))

    assert isinstance(seen, Encoded)
    assert json.loads(seen.data) == {"run_id": "run", "step": "step", "attempt": 2, "key": "key", "has_deadline": True}
    assert [kind for kind, _ in reported] == ["progress", "usage"]
    assert 0 < len(reported[0][1]["message"]) <= 1000
    assert reported[1][1] == {"tokens": 7, "cost": 0.25}
    assert isinstance(saved, Encoded)
    assert ArtifactFolder(tmp_path).path(Artifact.model_validate_json(saved.data)).read_text() == "hello"


async def test_a_surprise_is_reported_from_a_process_too() -> None:
    """A report that the executor did not know ended the process, and left an effect in doubt."""
    reported: Reported = []
    async with processes() as executor:
        assert await ask(executor, tools.be_surprised, reported=reported) == 1
        assert len(executor.pids) == 1
    assert reported == [("surprise", {"reason": "ten times as many rows"})]


async def test_failures_keep_what_the_recovery_table_needs() -> None:
    """Kind, class and fields are sent, and no pickle; the process can be used again."""
    async with processes() as executor:
        refused = await failure_of(executor, tools.fail_clearly)
        assert Path(refused.where.rpartition(":")[0]) == Path(tools.__file__)
        assert replace(refused, where="") == Failure(
            ErrorKind.MISSING_INPUT,
            "the door is shut",
            "ToolError",
            is_transient=True,
            nothing_happened=True,
            retry_after=3.0,
            missing_input="key",
        )
        pids = executor.pids
        raised = await failure_of(executor, tools.fail_with, name="ConnectionResetError")
        assert (raised.kind, raised.error, raised.is_transient) == (ErrorKind.CONNECTION, "ConnectionResetError", True)
        assert (await failure_of(executor, tools.return_nonsense)).kind is ErrorKind.BAD_OUTPUT
        assert (await failure_of(executor, tools.return_text, characters=200_000)).kind is ErrorKind.BAD_OUTPUT
        assert executor.pids == pids


async def test_calls_that_were_never_begun_say_that_nothing_happened() -> None:
    """An effectful tool that could not be entered is not in doubt."""

    def local() -> int:
        return 1

    async with processes() as executor:
        refused = await failure_of(executor, tools.add, a=1, b="two")
        assert (refused.kind, refused.nothing_happened) == (ErrorKind.BAD_ARGUMENTS, True)
        unknown = await failure_of(executor, make_tool(local, executor="process"))
        assert unknown.nothing_happened
        assert "cannot import test_process_executor:" in unknown.message


async def test_forbidden_exception_retires_the_process() -> None:
    """After a SystemExit, the state of the interpreter is unknown."""
    async with processes() as executor:
        failure = await failure_of(executor, tools.fail_with, name="SystemExit")
        assert (failure.kind, failure.error) == (ErrorKind.FORBIDDEN_EXCEPTION, "SystemExit")
        assert executor.pids == frozenset()


@pytest.mark.parametrize(
    ("tool", "arguments", "how"),
    [
        (tools.exit_hard, {"code": 3}, "ended with exit code 3"),
        (tools.exit_hard_with_a_fork, {}, "ended with exit code 4"),
        (tools.crash, {}, "was killed by SIGSEGV"),
    ],
    ids=["exit", "exit with a fork", "crash"],
)
@pytest.mark.rigs
async def test_process_that_dies_is_named_and_replaced(
    tool: Tool[..., Any], arguments: Mapping[str, Any], how: str
) -> None:
    """The message tells a crash from an exit. A forked child that kept the socket would hide the end."""
    forks: Reported = []
    async with processes() as executor:
        with pytest.raises(WorkerDied, match=f"{tool.name} {how}"):
            await executor.call(make_call(tool, arguments, reported=forks))
        assert executor.pids == frozenset()
        await until(lambda: all(is_gone(int(facts["message"])) for _, facts in forks))
        assert await ask(executor, tools.add, a=1, b=2) == 3


async def test_cancellation_kills_the_process_and_what_it_started() -> None:
    """A tool that ignores SIGTERM does not outlive its step, nor does a program that it started."""
    reported: Reported = []
    async with processes() as executor:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(executor.call, make_call(tools.hang_with_a_child, reported=reported))
            await until(lambda: reported)
            tasks.cancel_scope.cancel()
        assert tasks.cancel_scope.cancelled_caught
        worker, child = map(int, reported[0][1]["message"].split())
        assert is_reaped(worker)
        await until(lambda: is_gone(child))
        assert executor.pids == frozenset()


@pytest.mark.rigs
async def test_call_that_the_runtime_drops_loses_its_process() -> None:
    """The runtime closes an overdue coroutine, which cannot wait any more but must not leave a process."""
    reported: Reported = []
    scope = stop_scopes(0.0, clock())()

    async def call_and_drop(executor: ProcessExecutor) -> None:
        with scope:
            coroutine = executor.call(make_call(tools.hang_with_a_child, reported=reported))
            context = copy_context()
            got = context.run(coroutine.send, None)
            with pytest.raises(StillRunning, match="was dropped"):
                await Suspended(coroutine, context, got, scope)

    async with processes(max_processes=1) as executor:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_and_drop, executor)
            await until(lambda: reported)
            scope.give_up()
            scope.stop()
        worker = int(reported[0][1]["message"].split()[0])
        await until(lambda: is_gone(worker))
        assert await ask(executor, tools.add, a=1, b=2) == 3
    assert is_reaped(worker)
    assert executor.pids == frozenset()


@pytest.mark.rigs
async def test_memory_is_bounded() -> None:
    """Without the limit, the machine would swap; with it, one step fails. The process is not used again."""
    async with processes(max_memory=1 << 30) as executor:
        assert await ask(executor, tools.fill_memory, megabytes=1) == 1 << 20
        failure = await failure_of(executor, tools.fill_memory, megabytes=2048)
        assert (failure.kind, failure.error) == (ErrorKind.EXCEPTION, "MemoryError")
        assert executor.pids == frozenset()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # both sides read the frames alike
@pytest.mark.parametrize(
    ("frame", "error"),
    [
        ({"kind": "v", "size": 1 << 40, "text": ""}, ResultRefused),
        ({"kind": "r", "size": 1 << 40, "text": ""}, ResultRefused),
        ({"kind": "?", "size": 0, "text": ""}, WorkerDied),
        ({"kind": "r", "size": 4, "text": "nono"}, WorkerDied),
        ({"kind": "r", "size": len(tools.LIE), "text": tools.LIE}, WorkerDied),
        ({"kind": "f", "size": 2, "text": "{}"}, WorkerDied),
    ],
    ids=["huge answer", "huge report", "unknown kind", "no JSON", "negative usage", "no failure"],
)
@pytest.mark.rigs
async def test_mad_process_cannot_hurt_its_executor(frame: Mapping[str, Any], error: type[Exception]) -> None:
    """Whatever the process sends, the executor does not fill its memory, accept it, or wait for more."""
    async with processes() as executor:
        with pytest.raises(error):
            await executor.call(make_call(tools.send_raw, frame))
        assert executor.pids == frozenset()


@pytest.mark.rigs
async def test_death_of_an_idle_process_goes_unnoticed() -> None:
    """The call never began, so it is made in a new process, even if its effect must not be repeated."""
    async with processes() as executor:
        first = await ask(executor, tools.which_process)
        os.kill(first, signal.SIGKILL)
        assert await ask(executor, tools.which_process) != first
        assert is_reaped(first)
        assert len(executor.pids) == 1


@pytest.mark.rigs
async def test_calls_wait_their_turn_and_a_waiting_call_can_be_cancelled(tmp_path: Path) -> None:
    """The number of processes is a hard limit. Calls are served in order, and a cancelled call never runs."""
    reported: Reported = []
    names = [str(tmp_path / name) for name in "abcd"]
    leaving = anyio.CancelScope()

    async def wait(executor: ProcessExecutor, name: str) -> None:
        await ask(executor, tools.wait_for_file, reported=reported, path=name)

    async def leave(executor: ProcessExecutor, name: str) -> None:
        with leaving:
            await wait(executor, name)

    async with processes(max_processes=1) as executor, anyio.create_task_group() as tasks:
        for name, function in zip(names, (wait, wait, leave, wait), strict=True):
            tasks.start_soon(function, executor, name)
            await anyio.wait_all_tasks_blocked()
        leaving.cancel()
        for number, name in enumerate(names[:2] + names[3:], start=1):
            await until(partial(has_length, reported, number))
            assert len(executor.pids) == 1
            Path(name).touch()

    assert [facts["message"] for _, facts in reported] == [names[0], names[1], names[3]]


async def test_processes_work_side_by_side(tmp_path: Path) -> None:
    """Two calls must overlap where two processes are allowed: each waits here until both have begun."""
    reported: Reported = []
    async with processes(max_processes=2) as executor, anyio.create_task_group() as tasks:
        for name in "ab":
            call = make_call(tools.wait_for_file, {"path": str(tmp_path / name)}, reported=reported)
            tasks.start_soon(executor.call, call)
        await until(lambda: len(reported) == 2)
        for name in "ab":
            (tmp_path / name).touch()


async def test_aclose_leaves_no_process() -> None:
    """A host program must find its process table as it was before."""
    async with processes() as executor:
        pid = await ask(executor, tools.which_process)
        assert not is_gone(pid)
    assert is_reaped(pid)
    assert executor.pids == frozenset()


@pytest.mark.rigs
async def test_process_imports_only_what_it_needs() -> None:
    """The first call waits for its start, so it does not import the loop, the graph and the clients."""
    async with processes() as executor:
        loaded = await ask(executor, tools.loaded_modules)
    assert {"anyio", "networkx", "httpx", "openai", "rich", "yaml", "trio"}.isdisjoint(loaded)


HOST = """
import sys
sys.path[:] = {path!r}
import anyio, process_tools
from calls import make_call
from dagrun.executors.processes.executor import ProcessExecutor
from dagrun.executors.processes.worker_handle import WorkerHandle

class Telling(list):
    def append(self, report):
        print(report[1]["message"], flush=True)

anyio.run(ProcessExecutor(1).call, make_call(process_tools.hang_with_a_child, reported=Telling()), backend={backend!r})
"""


@pytest.mark.rigs
async def test_process_ends_when_its_host_is_killed(anyio_backend_name: str) -> None:
    """After kill -9 the host cannot clean up, and a tool that continues would act for a run that has ended."""
    code = HOST.format(path=sys.path, backend=anyio_backend_name)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pids = [int(pid) for pid in (await anyio.to_thread.run_sync(host.stdout.readline)).split()]
        host.kill()
    assert len(pids) == 2
    await until(lambda: all(map(is_gone, pids)))


async def test_a_cold_start_does_not_count_against_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process takes longer to start than the call may take; the function is given all of its time."""
    start = WorkerHandle.start

    async def slow_start(max_memory: int | None) -> WorkerHandle:
        await anyio.sleep(1.5)
        return await start(max_memory)

    monkeypatch.setattr(WorkerHandle, "start", slow_start)
    plan = dagrun.Plan(steps=[dagrun.Step(id=f"s{i}", tool="seconds_left", timeout=1.2) for i in range(2)])
    policy = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=1), workers=dagrun.WorkerLimits(max_processes=2))
    result = await dagrun.run(plan, tools=[tools.seconds_left], policy=policy)
    assert {id_: str(step.state) for id_, step in result.steps.items()} == {"s0": "succeeded", "s1": "succeeded"}
    assert all(0.2 < step.output <= 1.2 for step in result.steps.values())


async def test_the_time_limit_runs_once_the_function_has_begun() -> None:
    missing = dagrun.Step(id="s", tool="wait_for_file", args={"path": "/nowhere/at/all"}, timeout=0.25)
    policy = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=1))
    result = await dagrun.run(dagrun.Plan(steps=[missing]), tools=[tools.wait_for_file], policy=policy)
    assert result.steps["s"].state == "timed_out"


async def test_a_process_that_never_begins_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagrun.executors.processes.executor.START_SECONDS", 0.3)

    async def never(_: int | None) -> WorkerHandle:
        await anyio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(WorkerHandle, "start", never)
    async with processes() as executor:
        failure = await failure_of(executor, tools.add, a=1, b=2)
    assert failure.kind is ErrorKind.WORKER_DIED
    assert failure.nothing_happened
    assert "has not begun within 0.3 s" in failure.message
