"""Messages and answers of a call, taken where the run is. They are checked: the other side may run anything."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from dagrun.codec import codec_of
from dagrun.errors import shorten
from dagrun.executors.wire import messages
from dagrun.executors.wire.messages import MAX_FILES, MAX_TEXT, parts_of
from dagrun.kernel.model.executor import CallFailed, Encoded, StillRunning, ToolCall, WorkerDied, WorkerLost
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.tool_context import ToolContext

_FAILURES: Final = codec_of(Failure)


async def answer_of(
    call: ToolCall,
    receive: Callable[[], Awaitable[bytes]],
    stop: Callable[[], Awaitable[object]],
    *,
    place: str = "",
) -> Encoded:
    """Take the messages of a call until its answer; if the call is cancelled, have it stopped, and wait for its end.

    Args:
        call: The call, whose request has been sent.
        receive: Returns the next message of the call. If it is cancelled, no message may be lost. It raises
            `WorkerLost` if none will come any more.
        stop: Tells the other side to stop the call, by its id: `CallServer.stop`. It may overtake the request.
        place: Where the call is made, for failures and progress: ``node 10.0.0.7``.

    Raises:
        CallFailed: The call has failed.
        ResultRefused: A message is too large.
        StillRunning: The call was told to stop, and has not ended within its grace period.
        WorkerDied: A message is not valid.
        WorkerLost: The other side can no longer be reached, or has stopped the call by itself. Once the call is
            cancelled, no error of the way takes the place of the cancellation, so that nobody makes the call again.
    """
    import anyio

    try:
        while (value := await accept(await receive(), call, place=place)) is None:
            pass
    except anyio.get_cancelled_exc_class():
        ended = False
        with anyio.move_on_after(call.grace, shield=True):
            ended = await _ends(receive, stop)
        if not ended:
            raise StillRunning(f"{call.tool.name} still runs{_on(place)}, where it was told to stop") from None
        raise
    return value


async def _ends(receive: Callable[[], Awaitable[bytes]], stop: Callable[[], Awaitable[object]]) -> bool:
    """Have a call stopped, and wait for its answer; return whether it has ended, as far as can be known."""
    try:
        await stop()
        while not messages.is_answer(message := await receive()):
            pass
    except Exception:  # noqa: BLE001  (the way is gone: in place of the cancellation, that would ask for another attempt)
        return True
    return message[:1] != messages.STILL_RUNS


async def accept(message: bytes, call: ToolCall, *, place: str = "") -> Encoded | None:
    """Take a message of the other side: pass on a report, or return the value of the call.

    Args:
        message: The message.
        call: The call that it is about.
        place: Where the call is made: named in its failure, and in its progress.

    Returns:
        The value, if the message is the answer; `None` if more messages follow.

    Raises:
        CallFailed: The call has failed.
        ResultRefused: The message is too large.
        StillRunning: The call was stopped there, and has not ended.
        WorkerDied: The message is not valid.
        WorkerLost: The call was stopped by the other side.
    """
    kind, data = message[:1], message[1:]
    messages.check_size(kind, len(data), call)
    try:
        match kind:
            case messages.VALUE:
                return Encoded(data)
            case messages.VALUE_WITH_FILES:
                return Encoded(await _unpacked(data, call))
            case messages.REPORT:
                _pass_on(data, call.context(), place)
            case messages.BEGUN:
                if place:
                    call.context().progress(None, f"runs on {place}")
            case _:
                raise _ending(kind, data, call, place)
    except ValueError as error:
        raise WorkerDied(f"the worker of {call.tool.name}{_on(place)} talked nonsense") from error
    return None


def _ending(kind: bytes, data: bytes, call: ToolCall, place: str) -> Exception:
    """Return how a call ended that has no value."""
    name = call.tool.name
    match kind:
        case messages.FAILURE:
            failure = _failure(data)
            if place:
                failure = replace(failure, message=f"{failure.message} (on {place})")
            return CallFailed(failure)
        case messages.NEVER_BEGUN:
            text = f"{name} was stopped{_on(place)} before it began, and not by its run"
            failure = Failure(
                ErrorKind.WORKER_DIED, text, WorkerLost.__name__, is_transient=True, nothing_happened=True
            )
            return CallFailed(failure)
        case messages.STOPPED:
            return WorkerLost(f"{name} was stopped{_on(place)}, and not by its run")
        case messages.STILL_RUNS:
            return StillRunning(f"{name} still runs{_on(place)}, where it was told to stop")
    raise ValueError(f"a message of kind {kind!r}")


def _on(place: str) -> str:
    return f" on {place}" if place else ""


def _failure(data: bytes) -> Failure:
    """Read a failure, and the traceback that may follow it."""
    text = data.decode()
    failure, end = _FAILURES.read(text, 0)
    if not isinstance(failure, Failure):
        raise ValueError("no failure")
    return replace(failure, render=partial(str, text[end:])) if text[end:] else failure


def _pass_on(data: bytes, context: ToolContext, place: str) -> None:
    """Pass a report of the tool to its context. It is checked again, because figures count against ceilings."""
    match json.loads(data):
        case {"kind": "progress", "facts": {"fraction": int() | float() | None as done, "message": str() as message}}:
            shown = shorten(message, MAX_TEXT)
            context.progress(done, f"{shown} (on {place})" if place and shown else shown or _on(place).strip())
        case {"kind": "usage", "facts": {"tokens": int() as tokens, "cost": int() | float() | None as cost}}:
            context.report_usage(tokens=tokens, cost=cost)
        case {"kind": "confidence", "facts": {"confidence": int() | float() as confidence}}:
            context.report_confidence(confidence)
        case {"kind": "surprise", "facts": {"reason": str() as reason}}:
            context.report("surprise", {"reason": reason})
        case _:
            raise ValueError("a report of an unknown kind")


async def _unpacked(data: bytes, call: ToolCall) -> bytes:
    """Save the artifacts of an answer, and return its value."""
    parts = list(parts_of(data))
    if not parts or sum(map(len, parts[1:])) > MAX_FILES or len(parts[0]) > call.output_limit:
        raise ValueError("an answer with files that are not as they should be")
    from anyio import to_thread

    save = call.context().artifacts.save
    for content in parts[1:]:
        await to_thread.run_sync(save, content)
    return parts[0]
