"""What a server says of itself, and the trust boundary: only the hints of a server that the host trusts count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mcp.types import ToolAnnotations

from dagrun.sources import mcp
from dagrun.sources.mcp_config import read_config


def _tools(trust: str, **annotations: Any) -> Any:
    """The tool of a server that describes it with these annotations."""
    config = {"mcpServers": {"box": {"command": "box"}}}
    (server,) = read_config(config, {"box": {"trust": trust}})
    hints = ToolAnnotations(**{"read_only_hint": True, **annotations})
    described = SimpleNamespace(
        name="look",
        title="",
        description="",
        input_schema={"type": "object"},
        output_schema=None,
        annotations=hints if annotations else None,
        execution=None,
    )
    connection: Any = SimpleNamespace(name="box")
    ((_, tool),) = mcp._tools_of(server, connection, [described], ())
    return tool


@pytest.mark.parametrize(
    ("trust", "annotations", "is_open"),
    [
        ("none", {"open_world_hint": False}, True),  # who says so is not trusted
        ("none", {}, True),
        ("hints", {}, True),  # the protocol's own default
        ("hints", {"open_world_hint": None}, True),
        ("hints", {"open_world_hint": True}, True),
        ("hints", {"open_world_hint": False}, False),
    ],
)
def test_answers_are_of_others_unless_a_trusted_server_denies_it(
    trust: str, annotations: dict[str, Any], is_open: bool
) -> None:
    """An open world is one where anybody writes, and reads what a call carries there."""
    tool = _tools(trust, **annotations)

    assert (tool.untrusted, tool.outbound) == (is_open, is_open)
