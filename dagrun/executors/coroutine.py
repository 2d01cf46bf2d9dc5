"""Coroutine functions run in the loop itself."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from dagrun.model.protocols import ToolCall


class CoroutineExecutor:
    """Hands out the coroutine of the tool as it is: a layer around it would cost every step."""

    def call(self, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Give the coroutine of the tool."""
        return call.tool.function(**call.arguments)  # type: ignore[no-any-return]

    async def aclose(self) -> None:
        """Nothing to let go of."""
