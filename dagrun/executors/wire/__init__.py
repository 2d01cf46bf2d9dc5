"""The wire form of a call: the data sent to another process or machine, and the data sent back.

In: a `ToolCall`. Out: the value as JSON, or a failure. Everything between is bytes: one request, any number of messages
while the call runs, and one answer. An executor only has to carry them: see ``docs/how-to/write-an-executor.md``.

- `requests.py` makes the request; `answers.py` takes messages and the answer: both on the side of the run.
- `call_server.py` makes calls on the other side, many at once; `serving.py` reads a request, and makes one call.
- `messages.py` has the kinds of messages, and sends them over a stream.

Open `requests.py` first. Secrets travel in the request and nowhere else. Nothing is unpickled, but for functions of a
program itself in its own child processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun._lazy import lazy_names

if TYPE_CHECKING:
    from dagrun.executors.wire.answers import accept, answer_of
    from dagrun.executors.wire.call_server import CallServer
    from dagrun.executors.wire.messages import MessageStream, has_begun, is_answer
    from dagrun.executors.wire.requests import CallRequest, id_of, refusal_of, request
    from dagrun.executors.wire.serving import serve

# The public names by module, each imported on first use: a worker process needs no event loop (PEP 562).
_NAMES = {
    "dagrun.executors.wire.answers": "accept answer_of",
    "dagrun.executors.wire.call_server": "CallServer",
    "dagrun.executors.wire.messages": "MessageStream has_begun is_answer",
    "dagrun.executors.wire.requests": "CallRequest id_of refusal_of request",
    "dagrun.executors.wire.serving": "serve",
}

__all__ = [
    "CallRequest",
    "CallServer",
    "MessageStream",
    "accept",
    "answer_of",
    "has_begun",
    "id_of",
    "is_answer",
    "refusal_of",
    "request",
    "serve",
]
__getattr__ = lazy_names(__name__, _NAMES)
