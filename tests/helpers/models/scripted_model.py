"""A language model that says what it was told to say: in pieces, with time between them, on whatever clock there is."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from dagrun.extend import Reply, Request, Usage
from dagrun.kernel.model.usage import METER

USED = Usage(100, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer of a scripted model.

    Attributes:
        text: The whole of it.
        piece: Characters of one piece; 0 for all at once.
        delay: Seconds before each piece.
        stop: How it ends.
        fault: Raised in place of the end.
        usage: What it is said to have used.
        cost: What that is said to have cost.
        then: Seconds between the last piece and the end.
    """

    text: str
    piece: int = 7
    delay: float = 0.0
    stop: Literal["end", "length", "refused"] = "end"
    fault: Exception | None = None
    usage: Usage = USED
    cost: float | None = None
    then: float = 0.0


class ScriptedModel:
    """Gives its answers one after another, and breaks off where it has none left.

    A text is said in pieces of seven characters without delay; anything else is said as JSON.

    Attributes:
        requests: What it was asked, newest last.
        closed: How many answers were begun and are over, be it by their end, by closing or by cancelling.
    """

    def __init__(self, *answers: Said | object, name: str = "scripted") -> None:
        self.name = name
        self._answers = [answer if isinstance(answer, Said) else Said(text=text_of(answer)) for answer in answers]
        self.requests: list[Request] = []
        self.closed = 0

    @property
    def prompts(self) -> list[str]:
        """All that it was told, by request."""
        return ["\n".join([request.system, *(m.text for m in request.messages)]) for request in self.requests]

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Say the next answer."""
        self.requests.append(request)
        said = self._answers[len(self.requests) - 1]
        charge = METER.get().reserve(self.name, request.max_output_tokens + len(request.system), said.cost)
        used: tuple[int | None, float | None] = (None, None)
        try:
            size = said.piece or max(1, len(said.text))
            for start in range(0, len(said.text), size):
                await anyio.sleep(said.delay)
                yield said.text[start : start + size]
            await anyio.sleep(said.then)
            if said.fault is not None:
                raise said.fault
            used = (said.usage.total, said.cost)
            yield Reply(text=said.text, stop=said.stop, usage=said.usage, cost=said.cost, model=self.name)
        finally:
            charge.settle(*used)
            self.closed += 1


def text_of(answer: Any) -> str:
    """An answer as a model writes it."""
    return answer if isinstance(answer, str) else json.dumps(answer)
