"""What a model is told of a tool besides its contract: the rules and the experience of the run."""

from __future__ import annotations

from typing import Any

import pytest

import dagrun
from dagrun import Brief, Engine, Policy, PoolLimits
from dagrun.errors import CannotPlan
from dagrun.extend import Durations
from dagrun.planners.prompts import prompt_for
from test_prompts import blocks

pytestmark = pytest.mark.anyio


@dagrun.tool(effect="read", pool="api", fallback="cached")
async def fetch(page: str) -> str:
    """Fetch a page."""
    return page


@dagrun.tool(effect="read")
async def cached(page: str) -> str:
    """Fetch yesterday's copy of a page."""
    return page


@dagrun.tool(effect="effectful", needs_approval=True)
async def mail(body: str) -> str:
    """Send a mail."""
    return body


@dagrun.tool(effect="effectful", needs_approval=False)
async def post(body: str) -> str:
    """Post a note."""
    return body


class Listener:
    """Keeps its brief, and has no plan."""

    brief: Brief

    async def revise(self, brief: Brief) -> None:
        self.brief = brief
        raise CannotPlan("only the brief was wanted")


async def told(policy: Policy, durations: Durations | None = None) -> dict[str, dict[str, Any]]:
    """Return the lines about the tools in a first prompt, by name."""
    listener = Listener()
    async with Engine(durations=durations) as engine:
        tools = [fetch, cached, mail, post]
        with pytest.raises(dagrun.RunFailed):
            (await engine.run(goal="g", planner=listener, tools=tools, policy=policy)).raise_for_status()
    lines = blocks(prompt_for("first", "json", listener.brief).messages[0].text)["tools"]
    return {line["name"]: line for line in lines}


async def test_a_model_is_told_of_fallbacks_pools_and_approvals() -> None:
    rule = {"tool": "post", "when": {"ref": "args.body", "op": "==", "value": "x"}}
    lines = await told(Policy.model_validate({"pools": {"api": PoolLimits(max_running=2)}, "approve": [rule]}))

    assert (lines["fetch"]["fallback"], lines["fetch"]["pool"]) == ("cached", "api, 2 at once")
    assert (lines["mail"]["approval"], lines["post"]["approval"]) == ("always", "sometimes")
    assert lines["cached"].keys() == {"name", "effect", "call", "description"}


async def test_a_model_is_told_how_long_calls_took() -> None:
    """As far as it is known: a plan may start the slow ones first. Two digits will do."""
    durations = Durations()
    for _ in range(9):
        durations.add("fetch", 12.345)

    lines = await told(Policy(), durations)

    assert lines["fetch"]["seconds"] == pytest.approx(12.345, rel=0.06)
    assert lines["fetch"]["pool"] == "api"
    assert "seconds" not in lines["cached"]


async def test_a_model_is_told_of_the_trust_boundary_where_there_is_one() -> None:
    """Whose data a tool gives, and which arguments ask a person about that; so it may plan without a question."""
    without, with_it = await told(Policy()), await told(Policy(flow=dagrun.Flow(untrusted=["fetch"])))

    assert "untrusted" not in without["fetch"]
    assert with_it["fetch"]["untrusted"] is True
    assert "untrusted" not in with_it["cached"]
