"""Mutated turns of an agent: each is a valid call, an answer, or refused; nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from random import Random
from typing import Final

import pytest

import dagrun
from agents import answer, call, run
from dagrun import agent_tool
from dagrun.extend import Reply, Request, Usage
from seeds import choose_seeds

pytestmark = [pytest.mark.rigs, pytest.mark.anyio]

VALUES: Final = (
    "null", "0", "-1e999", "NaN", "1" * 5_000, '"\\ud800"', '"${find}"', "{}", "[]", "[" * 300 + "]" * 300, "true",
    '{"$step": "find"}', '"' + "x" * 5_000 + '"', '"</data>"',
)  # fmt: skip


def mutated(text: str, random: Random) -> str:
    """Return *text* with one to three faults."""
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(text) + 1)
        end = min(len(text), place + random.randint(0, 12))
        match random.randrange(6):
            case 0:
                text = text[:place]
            case 1:
                text = text[:place] + text[end:]
            case 2:
                text = text[:place] + text[place:end] * 2 + text[end:]
            case 3:
                text = text[:place] + random.choice('{}[]",:\\0\x00') + text[place:]
            case 4:
                text = text.replace(random.choice(["null", "7", '"west"', "{}", '"done"']), random.choice(VALUES), 1)
            case _:
                text = text.replace(random.choice(["find", "call", "args", "answer", "limit"]), "pay", 1)
    return text


class Repeater:
    """A model that repeats *answers*."""

    name = "repeater"
    answers: Iterator[str] = iter(())

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Yield the next answer."""
        text = next(self.answers)
        yield Reply(text=text, stop="end", usage=Usage(), cost=None, model=self.name)


async def test_mutated_turns_never_make_a_call_that_the_contract_does_not_allow() -> None:
    """Its tool is called by its contract or not at all, and every run ends with a known status."""
    made: list[tuple[str, int]] = []

    @dagrun.tool(effect="read")
    async def find(where: str, limit: int = 3) -> str:
        made.append((where, limit))
        return where

    turns = [json.dumps(call("find", where="west", limit=7)), json.dumps(answer())]
    ends: set[str] = set()
    model = Repeater()
    agent = agent_tool(model, [find], max_steps=5, max_tokens=None)
    for seed in choose_seeds(60, at_night=5_000):
        random = Random(seed)
        model.answers = iter([*(mutated(random.choice(turns), random) for _ in range(4)), turns[1]])
        result = await run(agent)
        failure = result.steps["work"].failure
        assert failure is None or str(failure.kind) in {"tool", "bad_output"}, (seed, failure)
        ends.add(str(result.status))

    assert ends == {"succeeded", "failed"}
    assert made, "nothing was called at all"
    assert all(type(where) is str and type(limit) is int for where, limit in made)
