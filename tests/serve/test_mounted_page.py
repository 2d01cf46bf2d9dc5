"""L13: the live page below a path of another application, behind a log-in of that."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest

import mounted_app

HEADERS = {"x-dagrun": "1", "host": "127.0.0.1"}


@pytest.mark.anyio
@pytest.mark.parametrize("prefix", ["", "/app"])
async def test_it_works_below_any_path(prefix: str) -> None:
    """Also behind a proxy that adds a prefix (``root_path``)."""
    app = mounted_app.application()
    transport = httpx.ASGITransport(app=app, root_path=prefix)
    async with app.router.lifespan_context(app):
        options: dict[str, Any] = {"transport": transport, "base_url": "http://127.0.0.1", "headers": HEADERS}
        async with httpx.AsyncClient(**options, follow_redirects=True) as client:
            shell = await client.get(f"{prefix}/runs/")
            assert 'src="static/live.js"' in shell.text
            assert 'src="../static/live.js"' in (await client.get(f"{prefix}/runs/r/r1")).text
            assert (await client.get(f"{prefix}/runs/static/live.js")).status_code == 200
            assert (await client.get(f"{prefix}/runs/api/runs")).status_code == 401
            client.cookies.set("ticket", "ticket-of-ann")
            while not (asked := (await client.get(f"{prefix}/runs/api/questions")).json()["questions"]):
                await anyio.sleep(0.01)
            answer = {"question": asked[0]["question"]["id"], "choice": "approve"}
            url = f"{prefix}/runs/api/runs/r1/answers"
            refused = await client.post(url, json=answer, headers={"sec-fetch-site": "cross-site"})
            assert refused.status_code == 403
            assert (await client.post(url, json=answer)).json() == {"taken": True}
