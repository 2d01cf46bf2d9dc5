"""Worker processes: the place where the time and the memory of a tool can be limited.

In: a `ToolCall`. Out: the value as JSON, or a failure. Both have the wire form of `dagrun.executors.wire`.
`executor.py` keeps a pool of warm processes. `worker_handle.py` is one process as the executor sees it, and `worker.py`
is the program that the process runs. The two exchange messages over a socket.

Open `executor.py` first. `worker.py` is imported in the worker process only, and never imports an event loop unless a
tool is async. A worker process protects against buggy tools, not against hostile ones.
"""
