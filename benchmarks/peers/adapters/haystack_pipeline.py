"""Haystack: a component per step, with an input for each step that it waits for."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # before it is imported

from haystack import Pipeline, component

from peers.interface import Run, Shape, Step, Values

IS_BLOCKING = False
TRIGGER = "start"  # a component without any input that is connected or given would never run

session = nullcontext


class Call:
    """A component that runs one step."""

    def __init__(self, id_: str, before: tuple[str, ...], step: Step) -> None:
        self.id, self.step = id_, step
        component.set_input_types(self, **dict.fromkeys(before or (TRIGGER,), str))
        component.set_output_types(self, value=str)

    def run(self, **values: Any) -> dict[str, Any]:
        """Not used, but there has to be one with the same parameters."""
        raise NotImplementedError

    async def run_async(self, **values: Any) -> dict[str, Any]:
        """Run the step."""
        values.pop(TRIGGER, None)
        return {"value": await self.step(self.id, values)}


HaystackCall: Any = component(Call)


def prepare(shape: Shape, step: Step) -> Run:
    """Build the pipeline."""
    pipeline = Pipeline()
    for id_, before in shape.items():
        pipeline.add_component(f"n_{id_}", HaystackCall(id_, before, step))
        for one in before:
            pipeline.connect(f"n_{one}.value", f"n_{id_}.{one}")
    started = {f"n_{id_}": {TRIGGER: ""} for id_, before in shape.items() if not before}
    everything = {f"n_{id_}" for id_ in shape}

    async def run() -> Values:
        outputs = await pipeline.run_async(started, include_outputs_from=everything, concurrency_limit=len(shape))
        return {name.removeprefix("n_"): one["value"] for name, one in outputs.items()}

    return run
