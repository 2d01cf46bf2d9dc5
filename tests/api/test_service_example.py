"""The example of a web service, served for real: requests share an engine, and a client that leaves ends its run."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import anyio
import httpx
import pytest
import uvicorn

import dagrun
from folders import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "service.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("service_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _serving(module: ModuleType) -> Iterator[tuple[str, list[set[str]]]]:
    """Serve the example on loopback; yields its address, and a list that gets the names of tasks left at the end."""
    left: list[set[str]] = []

    async def serve(listener: socket.socket) -> None:
        await server.serve([listener])
        left.append({task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()})

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # clients may queue before the server is up
        server = uvicorn.Server(uvicorn.Config(module.app, log_level="warning", lifespan="on"))
        thread = threading.Thread(target=lambda: asyncio.run(serve(listener)))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", left
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.real_time
def test_the_example_answers() -> None:
    """What the documentation shows must work as it stands."""
    with _serving(_load()) as (address, left), httpx.Client(base_url=address) as client:
        answer = client.get("/compare", params={"left": "Austin", "right": "Dallas"})
        assert answer.status_code == 200
        assert answer.json()["output"] == "right"
        assert answer.json()["parallelism"] > 1.2
    assert left == [set()]


@pytest.mark.real_time
def test_a_client_that_disconnects_in_mid_run_cancels_its_run_and_nothing_leaks() -> None:
    """Work for a client that has gone is wasted, and its tasks would pile up; other clients must not notice."""
    module = _load()
    started, ended = threading.Event(), threading.Event()
    ends: list[str] = []

    async def population(city: str) -> int:
        if city != "Nowhere":
            return 1
        started.set()
        try:
            await anyio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        finally:
            ended.set()
        return 0

    vars(module)["population"] = dagrun.tool(effect="read", name="population")(population)

    with _serving(module) as (address, left), httpx.Client(base_url=address) as client:
        with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1]))) as leaving:
            leaving.sendall(b"GET /compare?left=Nowhere&right=Nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
            assert started.wait(20), "the run never started"
        assert ended.wait(20), "the run went on after its client had gone"
        assert client.get("/compare", params={"left": "a", "right": "b"}).status_code == 200
    assert set(ends) == {"cancelled"}
    assert left == [set()]
