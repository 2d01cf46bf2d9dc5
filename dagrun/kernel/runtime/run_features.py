"""The parts of a run that belong to optional features, as the runtime calls them.

1. The runtime knows the protocol of a feature, and never imports the feature. `RunFeatures`, in `run.py`,
   makes the part of a feature for one run, if the run wants it; `dagrun.api` passes it in.
2. A run without a feature has `None` in its place, and pays for one test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, Self

from dagrun.kernel.model.usage import ModelPlaces

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

    from dagrun.kernel.graph.node import Node
    from dagrun.kernel.model.executor import ToolCall
    from dagrun.kernel.model.outcome import Decision, Failure, Outcome
    from dagrun.kernel.model.tool import AnyTool
    from dagrun.kernel.model.value import Stored
    from dagrun.kernel.runtime.backend import Timers
    from dagrun.kernel.runtime.live_attempt import LiveAttempt
    from dagrun.kernel.runtime.result import RunResult


class Attempts(Protocol):
    """Makes the calls of attempts: an `AttemptRunner`."""

    def prepare(self, live: LiveAttempt) -> Failure | None:
        """Fill in and check the arguments of a call; return a failure if that cannot be done."""

    async def perform(self, live: LiveAttempt) -> Outcome:
        """Make a call."""
        ...


class Hedging(Protocol):
    """Makes second calls beside slow ones; see `dagrun.features.hedging`."""

    def open(self, tasks: TaskGroup, alarms: Timers, attempts: Attempts) -> None:
        """Set the task group of the run, and the parts that exist only inside it."""

    async def perform(self, live: LiveAttempt) -> Outcome:
        """Make the call of an attempt, and a second call, if it is slow and the run waits for it."""
        ...

    def left(self, live: LiveAttempt) -> None:
        """Note that the task of the first call has left the attempt."""


class CallSharer(Protocol):
    """Makes the calls of tools that have a cache or a batch form; see `dagrun.features.shared_calls`."""

    def call(self, live: LiveAttempt, name: str, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Return a coroutine that makes or shares the call of an attempt, through the executor *name*."""

    def close(self) -> None:
        """Stop the running calls: the run has ended."""


class ProviderGate(Protocol):
    """The limits of the providers that one run calls; see `dagrun.features.provider_limits`."""

    def may_start(self, node: Node) -> bool:
        """Whether a ready step may call its provider now; if not, it stands in line from now on."""
        ...

    def has_room(self, node: Node) -> bool:
        """Whether the provider of a step takes one more call now, beside the one that runs."""
        ...

    def is_full(self, node: Node) -> bool:
        """Whether the provider of a ready step takes no call until another one ends."""
        ...

    def begin(self, live: LiveAttempt) -> None:
        """Count a call that begins."""

    def end(self, live: LiveAttempt, outcome: Outcome | None, running: Collection[LiveAttempt]) -> bool:
        """Take a call out that has ended; return whether concurrent calls made its provider refuse it."""
        ...

    def hold(self, live: LiveAttempt) -> Callable[[], None] | None:
        """Count what a call has left behind; return what ends that, or `None` if its provider has no limit."""
        ...

    def leave(self) -> None:
        """Stop waiting: the run has ended."""


class PlacesOfCall(ModelPlaces, Protocol):
    """The places of the models that one call of a planner or a critic asks; see `dagrun.features.provider_limits`.

    Attributes:
        crowded: Whether the last call of a model was refused because of others beside it.
    """

    crowded: bool


class CallStream(Protocol):
    """The elements of a for_each, one by one, for a call that takes them; see `dagrun.features.live_streams`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any: ...

    async def until_final(self, call: Awaitable[object]) -> object:
        """Await the call; then wait until none of its null elements can still be replaced."""

    def close(self, outcome: Outcome | None = None) -> Outcome | None:
        """End the stream with its call, and return how that has ended.

        Args:
            outcome: Its end, as far as the call knows; `None` if that is not recorded.
        """

    def decision(self, *, is_stopping: bool) -> Decision | None:
        """Return the decision if the stream has ended the call; `None` if it has not.

        Args:
            is_stopping: Whether the run is being ended early.
        """


class FrameFiles(Protocol):
    """Keeps data frames of a run in files; see `dagrun.features.frame_files`."""

    def opened(self, stored: Stored) -> Stored:
        """Return a value with its frames, if it names files of frames; `Unavailable` if one of them is gone."""

    async def filed(self, call: Coroutine[Any, Any, object], tool: AnyTool, name: str) -> object:
        """Await the call *name* of *tool*, and return its result as `Encoded`, with its frames in files."""


class AnswerPiece(str):
    """A piece of an answer, as text.

    Attributes:
        is_anew: Whether the answer begins again with it, because the call that wrote the pieces before has failed.
    """

    __slots__ = ("is_anew",)
    is_anew: bool

    def __new__(cls, text: str, *, is_anew: bool = False) -> Self:
        """Make a piece of *text*."""
        piece = super().__new__(cls, text)
        piece.is_anew = is_anew
        return piece


class Composer(Protocol):
    """Composes the answer of a run as its last step; see `dagrun.features.composing`."""

    def tell(self) -> None:
        """Wake the readers of the answer: the run has ended."""

    def stream(self, ended: anyio.Event, result: Callable[[], Awaitable[RunResult]]) -> AsyncIterator[AnswerPiece]:
        """Yield the pieces of the answer."""
        ...
