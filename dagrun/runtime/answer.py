"""What a run answers."""

from __future__ import annotations

from typing import Any, Final

from dagrun.graph.live import LiveGraph
from dagrun.model.outcome import State
from dagrun.model.value import decode, readable

# Each value in it is at most 1 MiB, but a plan can name as many of them as it likes.
MAX_OUTPUT_BYTES: Final = 256 << 20


def answer_of(graph: LiveGraph) -> Any:
    """Give what the run answers: its plan says, or the outputs of its sinks are it.

    Raises:
        ValueRefused: It would take over 256 MiB of JSON.
    """
    if graph.output is not None:
        try:
            return decode(graph.output.fill(graph.look_up, MAX_OUTPUT_BYTES))
        except LookupError:
            return None
    sinks = graph.sinks()
    if len(sinks) == 1:
        return readable(sinks[0].value)
    return {node.id: readable(node.value) for node in sinks if node.state is State.SUCCEEDED}
