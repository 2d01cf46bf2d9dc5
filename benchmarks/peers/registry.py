"""The peers that are measured, the most telling ones first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ENVIRONMENTS: Final = HERE.parent.parent / ".peers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One way to run a graph of steps.

    Attributes:
        name: As the tables show it.
        adapter: Its module in `peers.adapters`.
        environment: Its folder in `ENVIRONMENTS`, and its list in ``requirements``; `None`: dagrun's own.
        packages: Whose versions are told.
        how: How it is driven, for who reads the results.
        starting: Seconds for its imports, and for what it opens, on top of the limit of its first figure.
        max_steps: How big its plans are at most; `None` if it is as quick as the others.
        trouble: Why it is not run, though there is an adapter; shown in place of its figures.
    """

    name: str
    adapter: str
    environment: str | None = None
    packages: tuple[str, ...] = ()
    how: str
    starting: float = 30.0
    max_steps: int | None = None
    trouble: str = ""

    @property
    def requirements(self) -> Path | None:
        """The list of exact versions that its environment is made from."""
        return HERE / "requirements" / f"{self.environment}.txt" if self.environment else None


PEERS: Final = (
    Peer(
        name="dagrun",
        adapter="with_dagrun",
        packages=("dagrun-engine", "anyio"),
        how="a plan, checked, and run with a subscriber to all events",
    ),
    Peer(
        name="10 ms polling",
        adapter="polling",
        packages=("anyio",),
        how="every 10 ms, start the tasks whose dependencies are done (as LLMCompiler describes its task loop)",
    ),
    Peer(
        name="LangGraph graph",
        adapter="langgraph_graph",
        environment="langgraph",
        packages=("langgraph",),
        how="StateGraph: a node and a channel per step, an edge from all that it waits for; no checkpointer",
    ),
    Peer(
        name="Dask threaded",
        adapter="dask_threaded",
        environment="dask",
        packages=("dask",),
        how="dask.threaded.get on blocking steps, a thread for each that may run at once",
    ),
    Peer(
        name="Hamilton",
        adapter="hamilton_async",
        environment="hamilton",
        packages=("sf-hamilton",),
        how="AsyncDriver on a module with a generated async function per step",
    ),
    Peer(
        name="pydantic-graph",
        adapter="pydantic_graph_steps",
        environment="pydantic_graph",
        packages=("pydantic-graph",),
        how="GraphBuilder: a node that runs a step and maps over those it has released, back to itself",
    ),
    Peer(
        name="Haystack",
        adapter="haystack_pipeline",
        environment="haystack",
        packages=("haystack-ai",),
        how="Pipeline.run_async, a component per step, no limit on how many run at once",
    ),
    Peer(
        name="LangGraph @task",
        adapter="langgraph_functional",
        environment="langgraph",
        packages=("langgraph",),
        how="functional API: an @entrypoint whose own code starts a @task when the last it waits for is done",
    ),
    Peer(
        name="LlamaIndex",
        adapter="llama_index_workflow",
        environment="llama_index",
        packages=("llama-index-workflows",),
        how="a Workflow that sends an event per step to one step method with as many workers as steps",
    ),
    Peer(
        name="Dask distributed",
        adapter="dask_distributed",
        environment="dask",
        packages=("distributed",),
        how="Client and one worker in the process, coroutine steps submitted with the futures they wait for",
    ),
    Peer(
        name="Prefect",
        adapter="prefect_flow",
        environment="prefect",
        packages=("prefect",),
        how="a flow that submits a blocking task per step with the futures it waits for; a temporary server of its own",
        starting=180.0,  # its server takes 15 s of CPU to start, and more than a minute where others use the cores
        max_steps=100,  # which take 2 s
    ),
)
