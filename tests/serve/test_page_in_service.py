"""L13: the FastAPI service of the documentation, with the page mounted behind the log-in that it has."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import anyio
import httpx
import pytest
from fastapi import HTTPException
from fastapi.security import HTTPBasic
from starlette.requests import Request

import dagrun

pytestmark = pytest.mark.anyio
EXAMPLE: Final = Path(__file__).resolve().parents[2] / "docs" / "examples" / "service.py"
ANN, SHOP, STRANGER = (("ann", "ann's word"), ("shop", "shop's word"), ("ann", "a guess"))
POSTED: Final = {"x-dagrun": "1"}


def service() -> ModuleType:
    """Return the example, as a program that imports it has it."""
    spec = importlib.util.spec_from_file_location("service", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_page(example: ModuleType) -> None:
    """Mount the page, for those who may answer questions in the service; call it when its engine is open."""
    log_in = HTTPBasic(auto_error=False)

    async def who(request: Request) -> str | None:
        login = await log_in(request)
        try:
            return None if login is None else example.reviewer(example.user(login))
        except HTTPException:
            return None

    example.app.mount("/watch", dagrun.web(engine=example.app.state.engine, authorize=who))


async def test_the_page_behind_the_log_in_of_the_service() -> None:
    """Reviewers see and answer what the service asks; nobody else does; the record has who it was."""
    example = service()
    options: dict[str, Any] = {"base_url": "http://127.0.0.1", "transport": httpx.ASGITransport(app=example.app)}
    async with example.app.router.lifespan_context(example.app), httpx.AsyncClient(**options) as client:
        with_page(example)
        assert (await client.get("/watch/")).status_code == 200  # it holds no data
        auth: Any
        for auth in (None, SHOP, STRANGER):
            assert (await client.get("/watch/api/runs", auth=auth)).status_code == 401
        refunded: list[httpx.Response] = []

        async def refund() -> None:
            refunded.append(await client.post("/refunds", params={"order": "B2"}, auth=SHOP))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refund)
            asked = await _asked(client)
            assert asked["question"]["step"] == "pay_back"
            assert '"amount": 900.0' in asked["question"]["arguments"]["text"]
            run = asked["run"]
            assert (await client.get(f"/watch/api/runs/{run}/graph.svg", auth=ANN)).text.count("<a ") == 2
            answer = {"question": asked["question"]["id"], "choice": "approve", "note": "receipt seen"}
            url = f"/watch/api/runs/{run}/answers"
            for auth in (None, SHOP, STRANGER):
                assert (await client.post(url, json=answer, auth=auth, headers=POSTED)).status_code == 401
            foreign = {**POSTED, "sec-fetch-site": "cross-site"}
            assert (await client.post(url, json=answer, auth=ANN, headers=foreign)).status_code == 403
            assert (await client.post(url, json=answer, auth=ANN, headers=POSTED)).json() == {"taken": True}
        assert "paid 900.00 back for B2" in refunded[0].text
        given = next(line for line in refunded[0].text.splitlines() if '"receipt seen"' in line)
        assert '"by": "ann"' in given
        view = (await client.get(f"/watch/api/runs/{run}", auth=ANN)).json()
        assert (view["run"]["status"], view["questions"][0]["answer"]["by"]) == ("succeeded", "ann")


async def _asked(client: httpx.AsyncClient) -> dict[str, Any]:
    with anyio.fail_after(30):
        while True:
            answer = await client.get("/watch/api/questions", auth=ANN)
            if asked := answer.json()["questions"]:
                return dict(asked[0])
            await anyio.sleep(0.01)
