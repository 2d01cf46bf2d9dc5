"""What the executor of Ray uses of Ray, in this process and on any clock: actors that can die, and be cut off."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from dagrun.executors.ray.worker import STOP, RayWorker


class FakeRayError(Exception):
    """Stands for every error of Ray."""


class FakeRay:
    """The library.

    Attributes:
        actors: All actors that were made, the oldest first.
        options: What the last ones were made with.
        faults: Raised, one after another, by new actors that are asked where they are.
    """

    def __init__(self) -> None:
        self.actors: list[FakeActor] = []
        self.options: dict[str, Any] = {}
        self.faults: list[str] = []
        self.exceptions = SimpleNamespace(RayError=FakeRayError)

    def remote(self, kind: type[RayWorker]) -> Any:
        """Return what makes actors."""

        def make(*args: Any) -> FakeActor:
            actor = FakeActor(self, kind(*args), len(self.actors))
            self.actors.append(actor)
            return actor

        def options(**given: Any) -> Any:
            self.options = given
            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=options)

    def kill(self, actor: FakeActor, *, no_restart: bool) -> None:
        """Kill an actor that can be reached."""
        assert no_restart
        if not actor.is_cut_off:
            actor.die("killed by its owner")


class FakeActor:
    """A worker.

    Attributes:
        worker: The object of the actor.
        is_cut_off: Whether nothing reaches it, and nothing comes back.
        delays: Seconds before the answers to its next questions arrive.
        questions: The messages that each question has carried.
    """

    def __init__(self, ray: FakeRay, worker: RayWorker, number: int) -> None:
        self.worker = worker
        self.is_cut_off = False
        self.delays: list[float] = []
        self.questions: list[list[tuple[str, bytes]]] = []
        self._ray = ray
        self._number = number
        self._open: dict[Future[Any], tuple[asyncio.Task[None], Coroutine[Any, Any, Any]] | None] = {}
        self._fault = ""
        self.place, self.run, self.exchange = (
            SimpleNamespace(remote=remote) for remote in (self._place, self._run, self._exchange)
        )

    @property
    def stops(self) -> int:
        """The number of stops that were sent."""
        return sum(data == STOP for question in self.questions for _, data in question)

    def die(self, reason: str) -> None:
        """End at once, as a process does."""
        self._fault = self._fault or reason
        for future, asked in list(self._open.items()):
            if asked is not None:
                task, answer = asked
                task.cancel()
                if inspect.getcoroutinestate(answer) == inspect.CORO_CREATED:
                    answer.close()
            with suppress(Exception):
                future.set_exception(FakeRayError(self._fault))
        self._open.clear()

    def _place(self) -> _Ref:
        async def place() -> str:
            if self._ray.faults:
                raise FakeRayError(self._ray.faults.pop(0))
            return f"node {self._number}"

        return self._ask(place())

    def _run(self) -> _Ref:
        return self._ask(self.worker.run())

    def _exchange(self, messages: list[tuple[str, bytes]]) -> _Ref:
        self.questions.append(messages)
        return self._ask(self.worker.exchange(messages), self.delays.pop(0) if self.delays else 0.0)

    def _ask(self, answer: Coroutine[Any, Any, Any], delay: float = 0.0) -> _Ref:
        future: Future[Any] = Future()
        if self._fault:
            answer.close()
            future.set_exception(FakeRayError(self._fault))
        elif self.is_cut_off:
            answer.close()
            self._open[future] = None
        else:
            task = asyncio.get_running_loop().create_task(self._answer(future, answer, delay))
            self._open[future] = task, answer
        return _Ref(future)

    async def _answer(self, future: Future[Any], answer: Coroutine[Any, Any, Any], delay: float) -> None:
        try:
            result = await answer
            await asyncio.sleep(delay)
            if not self.is_cut_off:
                future.set_result(result)
        except FakeRayError as error:
            future.set_exception(error)
        finally:
            if not self.is_cut_off:
                self._open.pop(future, None)


class _Ref:
    """What a call of an actor returns."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def future(self) -> Future[Any]:
        return self._future

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()
