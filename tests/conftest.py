"""Fixtures of every test: both backends, on the virtual clock unless a module says otherwise; and no leaks."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import psutil
import pytest
from hypothesis import settings

import dagrun
import postgres_server
from dagrun.kernel.runtime.backend import loop_options
from dagrun.testing import virtual_backend
from stages_of_tests import choose_stages, is_later, only_at_night
from transitions import watch_transitions

# Few examples in everyday runs; the big numbers are for the night. No deadline: what a case takes says more about the
# machine, and what else it does, than about the code.
settings.register_profile("dagrun", max_examples=1000 if os.environ.get("DAGRUN_NIGHT") else 40, deadline=None)
settings.load_profile("dagrun")


# Until all is collected: of what is imported and collected nothing becomes garbage, and it is very much. The process
# that only hands tests out to others never comes to the end of a collection.
if "PYTEST_XDIST_WORKER" in os.environ or not any(one.startswith(("-n", "--numprocesses")) for one in sys.argv):
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the collector pass over what is there: going through 20,000 tests took half a second each time."""
    gc.collect()  # classes with slots leave the class behind that they were made of, which tests would count
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _nobodys_records(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands that tests call write their runs down, and never into the home of whoever calls the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True, scope="session")
def _heard_signals() -> None:
    """Tests run with nohup, or in the background of a shell, would hand on to commands that a signal is ignored."""
    for name, default in (("SIGHUP", signal.SIG_DFL), ("SIGINT", signal.default_int_handler)):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)


@pytest.fixture(autouse=True, scope="session")
def _known_transitions() -> None:
    """No run makes a transition that the tables beside the rules of changes do not have."""
    watch_transitions()


@pytest.fixture(autouse=True, scope="session")
def _first_loop() -> None:
    """The first loop of uvloop in a process opens what all later ones share, and nobody closes it.

    Modules are loaded as in a service, so that no test on a real loop waits for them.
    """
    dagrun.preload()
    anyio.run(anyio.sleep, 0, backend_options=loop_options())


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both backends on virtual time; tests marked `real_time` get real loops."""
    if request.node.get_closest_marker("real_time") is not None:
        return request.param, {}
    return virtual_backend(request.param)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The DSN of a server of PostgreSQL for tests; without one they are skipped."""
    named = os.environ.get("DAGRUN_TEST_POSTGRES")
    if named:
        yield named
        return
    try:
        server = postgres_server.started()
    except postgres_server.NoServer as error:
        pytest.skip(str(error))
    try:
        yield server.dsn
    finally:
        server.remove()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose where each test runs, let the longest come first, and watch the tasks of every async test."""
    choose_stages(items)
    is_whole = not any("[" in name for name in config.args)  # and not cases that somebody has named
    if is_whole and (left := only_at_night(items)):
        raise pytest.UsageError(f"all cases of these are for the night; leave each one for the day: {', '.join(left)}")
    items.sort(key=_seconds, reverse=True)
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
            # When Chromium shows what it shows, on a busy machine, is not ours alone: one more try, which is told.
            item.add_marker(pytest.mark.flaky(reruns=1))
        if isinstance(item, pytest.Function) and _is_watched(item):
            item.fixturenames.append("_no_tasks_left")


def _seconds(item: pytest.Item) -> float:
    """What a long rig takes: were it the last to begin, the other processes would have nothing to do meanwhile."""
    rig = item.get_closest_marker("rigs")
    return float(rig.kwargs.get("seconds", 0)) if rig else 0.0


def _is_watched(item: pytest.Function) -> bool:
    is_async = item.get_closest_marker("anyio") is not None and "anyio_backend" in item.fixturenames
    return is_async and item.get_closest_marker("leaves_tasks") is None


@pytest.fixture
async def _no_tasks_left() -> AsyncIterator[None]:
    """No task that a test has started outlives it. What leaves some on purpose is marked `leaves_tasks`."""
    before = {task.id for task in anyio.get_running_tasks()}
    yield
    left = [task for task in anyio.get_running_tasks() if task.id not in before]
    # anyio's own plugin takes a new task for each call of a fixture.
    left = [task for task in left if "TestRunner." not in getattr(task.coro, "__qualname__", "")]
    assert not left, f"tasks left behind: {left}"


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing else that a test has started outlives it either: no thread, no child process, no descriptor."""
    threads, starts, pythons, files = set(threading.enumerate()), _Starts.count, _Starts.pythons, _open_files()
    yield
    if _Starts.count > starts:
        # The browser of the tests of pages is started once for all of them.
        left = [child for child in psutil.Process().children(recursive=True) if not _is_of_browser(child)]
        assert not left, f"child processes left behind: {left}"
    if _Starts.pythons > pythons:
        assert is_later(request.node), "Python was started, which costs as much as fifty other tests: mark it costly"
    for thread in set(threading.enumerate()) - threads:
        if not thread.daemon:  # trio keeps idle daemons for the next one who needs a thread
            thread.join(5)  # it may be about to end
            assert not thread.is_alive(), f"thread left behind: {thread}"
    if _open_files() > files:
        gc.collect()  # costs too much to do after every test
    # One descriptor of slack: a library may open a cache for good.
    assert _open_files() <= files + 1, "file descriptors left behind"


def _is_of_browser(process: psutil.Process) -> bool:
    try:
        return process.name().startswith(("chrom", "node"))
    except psutil.NoSuchProcess:
        return True


class _Starts:
    """Counts the processes that were started, because looking for children after every test takes too long.

    And those of them that run Python, which are dear; libraries also ask small programs for versions and fonts. Only
    what `subprocess.Popen` starts as ``python…`` is seen as Python: no process that is forked or spawned otherwise, as
    by `multiprocessing`, and none behind a shell or a script, such as ``sh -c python`` or ``dagrun``.
    """

    count = pythons = 0

    @classmethod
    def notice(cls, event: str, args: tuple[Any, ...]) -> None:
        if event in {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}:
            cls.count += 1
            is_python = event == "subprocess.Popen" and os.path.basename(os.fsdecode(args[0])).startswith("python")
            cls.pythons += is_python


sys.addaudithook(_Starts.notice)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
