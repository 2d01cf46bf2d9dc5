"""Calls as the runtime makes them, for tests of executors alone."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagrun import Tool, ToolContext
from dagrun.extend import ToolCall
from dagrun.kernel.model.value import encode, to_json
from dagrun.kernel.runtime.artifacts import ArtifactFolder

Reported = list[tuple[str, Mapping[str, Any]]]


def make_call(
    tool: Tool[..., Any],
    arguments: Mapping[str, Any] | None = None,
    *,
    grace: float = 5.0,
    seconds: float | None = None,
    reported: Reported | None = None,
    folder: Path | None = None,
) -> ToolCall:
    """Make a call of *tool* that appends its reports to *reported*."""
    told: Reported = [] if reported is None else reported
    context = ToolContext(
        run_id="run",
        step="step",
        attempt=2,
        idempotency_key="key",
        deadline=None if seconds is None else time.monotonic() + seconds,
        logger=logging.LoggerAdapter(logging.getLogger("test"), {}),
        artifacts=ArtifactFolder(folder),
        report=lambda kind, facts: told.append((kind, facts)),
        clock=time.monotonic,
    )
    filled = dict(arguments or {})
    if tool.arguments.context is not None:
        filled[tool.arguments.context] = context
    data = to_json(encode(dict(arguments or {})))
    return ToolCall(tool, data, filled, lambda: context, grace, tool.output_limit)
