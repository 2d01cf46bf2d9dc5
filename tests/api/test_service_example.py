"""The example of a web service, served for real: a stream of events, approvals over HTTP, no run without a client."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import anyio
import httpx
import pytest
import uvicorn

import dagrun
from folders import ROOT

pytestmark = [pytest.mark.real_time, pytest.mark.costly]

EXAMPLE = ROOT / "docs" / "examples" / "service.py"
SHOP, ANN = ("shop", "shop's word"), ("ann", "ann's word")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("service_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # the annotations of its functions are looked up there
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


class _Events:
    """Reads the events of a refund, one after another."""

    def __init__(self, response: httpx.Response) -> None:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        self._lines = response.iter_lines()
        self.run = response.headers["x-run"]
        self.seen: list[str] = []

    def until(self, name: str) -> Any:
        """Read on to an event of that name, and return its data."""
        kind = ""
        for line in self._lines:
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
                self.seen.append(kind)
            elif line.startswith("data: ") and kind == name:
                return json.loads(line.removeprefix("data: "))
        raise AssertionError(f"no {name} in {self.seen}")


def _refund(client: httpx.Client, order: str) -> Any:
    return client.stream("POST", "/refunds", params={"order": order}, auth=SHOP, timeout=20)


@pytest.mark.parametrize(("choice", "status"), [("approve", "succeeded"), ("deny", "failed")])
def test_a_refund_streams_its_events_and_waits_for_a_reviewer(choice: str, status: str) -> None:
    with _serving(_load()) as (address, left), httpx.Client(base_url=address) as client:
        with _refund(client, "B2") as response:
            events = _Events(response)
            asked = events.until("QuestionAsked")["question"]
            assert asked["arguments"] == {"order": "B2", "amount": 900.0}
            (listed,) = client.get("/questions", auth=ANN).json()
            assert (listed["run"], listed["id"]) == (events.run, asked["id"])
            place = f"/runs/{events.run}/questions/{asked['id']}"
            reply = {"choice": choice, "note": "seen"}
            assert client.post(place, json=reply, auth=ANN).status_code == 204
            assert client.post(place, json=reply, auth=ANN).status_code in (404, 409)
            answered = events.until("QuestionAnswered")["answer"]
            assert (answered["by"], answered["note"]) == ("ann", "seen")
            result = events.until("result")
        assert result["status"] == status
        assert (result["output"] == "paid 900.00 back for B2") is (choice == "approve")
        assert events.seen[:2] == ["RunStarted", "AttemptStarted"]
        assert events.seen[-2:] == ["RunEnded", "result"]
        assert client.get("/questions", auth=ANN).json() == []
    assert left == [set()]


def test_a_run_that_fails_says_why_in_its_stream() -> None:
    with (
        _serving(_load()) as (address, _),
        httpx.Client(base_url=address) as client,
        _refund(client, "no such order") as response,
    ):
        result = _Events(response).until("result")
    assert result["status"] == "failed"
    assert "there is no order" in result["steps"]["look_up"]["failure"]["message"]


@pytest.mark.parametrize(
    ("method", "place", "auth", "code"),
    [
        ("POST", "/refunds?order=A1", None, 401),
        ("POST", "/refunds?order=A1", ("shop", "wrong"), 401),
        ("POST", "/refunds?order=A1", ("nobody", ""), 401),
        ("GET", "/questions", SHOP, 403),
        ("POST", "/runs/x/questions/y", SHOP, 403),
        ("POST", "/runs/x/questions/y", ANN, 404),
        ("POST", "/refunds", SHOP, 422),
    ],
)
def test_strangers_and_wrong_requests_are_refused(
    method: str, place: str, auth: tuple[str, str] | None, code: int
) -> None:
    with _serving(_load()) as (address, left), httpx.Client(base_url=address) as client:
        body = {"choice": "approve"} if "questions/" in place else None
        assert client.request(method, place, auth=auth, json=body).status_code == code
    assert left == [set()]


def test_a_client_that_disconnects_in_mid_run_cancels_its_run_and_nothing_leaks() -> None:
    """Work for a client that has gone is wasted, and its tasks would pile up; other clients must not notice."""
    module = _load()
    started, ended = threading.Event(), threading.Event()
    ends: list[str] = []

    async def look_up(order: str) -> float:
        if order != "slow":
            return 1.0
        started.set()
        try:
            await anyio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        finally:
            ended.set()
        return 0.0

    slow = dagrun.tool(effect="read")(look_up)
    vars(module)["PLAN"] = dagrun.plan(output=slow.step(dagrun.input("order", str)))

    with _serving(module) as (address, left), httpx.Client(base_url=address) as client:
        with _refund(client, "slow") as response:
            assert response.status_code == 200
            assert started.wait(20), "the run never started"
        assert ended.wait(20), "the run went on after its client had gone"
        with _refund(client, "A1") as response:
            assert _Events(response).until("result")["output"] == 1.0
    assert ends == ["cancelled"]
    assert left == [set()]


def test_a_run_that_waits_for_a_reviewer_ends_with_its_client() -> None:
    with _serving(_load()) as (address, left), httpx.Client(base_url=address) as client:
        with _refund(client, "A1") as response:
            events = _Events(response)
            asked = events.until("QuestionAsked")["question"]
            assert [question["id"] for question in client.get("/questions", auth=ANN).json()] == [asked["id"]]
        while client.get("/questions", auth=ANN).json():  # for ever, if it goes on without its client
            time.sleep(0.01)
    assert left == [set()]
