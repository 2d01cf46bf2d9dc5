"""Executors: where the functions of tools run: in the event loop, in a worker thread, or in a worker process.

In: a `ToolCall` (the tool, its arguments, and how long it may take to stop). Out: the value that the function returned,
or an error. The protocol is `dagrun.kernel.model.executor.Executor`.

- `executors.py` has the executors by name, and the one for coroutines. `threads.py` runs plain functions in threads.
- `processes` runs functions in worker processes, where time and memory can be limited.
- `ray` runs functions on the nodes of a Ray cluster.
- `wire` is a call as bytes, for `processes` and for executors of host programs that run tools elsewhere.

Open `executors.py` first. An executor makes one call and nothing more: it never retries, never records, and never looks
at the plan. Executors of the host program follow the same protocol.
"""
