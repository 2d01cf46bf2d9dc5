"""Calls on the nodes of a Ray cluster (the extra ``ray``).

In: a `ToolCall`. Out: the value as JSON, or a failure, in the wire form of `dagrun.executors.wire`.
`executor.py` keeps a number of workers on the cluster, and gives each call to one of them. `link.py` is the way to one
worker, `worker.py` is the program that Ray runs on a node, and `cluster.py` connects to the cluster.

Open `executor.py` first. Only this folder knows Ray, and imports it when an executor is opened. Ray starts and ends
processes here, and carries messages; it never retries a call, restarts a worker, or cancels anything.
"""
