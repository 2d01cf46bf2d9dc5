"""The executor of Ray, with actors in this process: what it sends, how it hears that a worker is gone, what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import dagrun
import wire_tools as tools
from calls import make_call
from dagrun import Plan, Policy, PoolLimits, RayExecutor, RetryRule, RunResult, State, Status, Step, Tool
from dagrun.errors import ContractError, ExecutorFailed, MissingExtra
from dagrun.events import Progress
from dagrun.executors.ray import cluster
from dagrun.executors.ray.worker import Message, RayWorker
from dagrun.executors.wire import is_answer, request
from dagrun.executors.wire.messages import NEVER_BEGUN
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.testing import virtual_backend
from fake_ray import FakeRay
from on_ray.tools import count

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Ray knows asyncio alone."""
    return virtual_backend("asyncio")


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    tools.done.clear()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Actors in this process, instead of a cluster; none is left at the end."""
    fake = FakeRay()

    async def connect(_: object) -> FakeRay:
        return fake

    monkeypatch.setattr(cluster.ClusterConnection, "open", connect)
    monkeypatch.setattr(cluster, "find_spec", lambda name: name)
    return fake


@asynccontextmanager
async def opened(ray: FakeRay, workers: int = 2, **options: Any) -> AsyncIterator[RayExecutor]:
    async with RayExecutor("10.0.0.5:6379", workers=workers, **options) as executor:
        yield executor
    for actor in ray.actors:
        actor.die("the end of the test")
    await anyio.sleep(1)  # what the tools clean up


async def run(executor: RayExecutor, *steps: Step, attempts: int = 2, **policy: Any) -> RunResult:
    every = [tool for tool in vars(tools).values() if isinstance(tool, Tool)] + [count]
    rules = Policy(retry=RetryRule(max_attempts=attempts, first_delay=0), **policy)
    return await dagrun.run(Plan(steps=steps), tools=every, executors={"ray": executor}, policy=rules)


def far(name: str, id: str = "", **fields: Any) -> Step:
    args = {key: fields.pop(key) for key in tuple(fields) if key not in Step.model_fields}
    return Step(id=id or name, tool=f"far_{name}", args=args, executor="ray", **fields)


def counts(id: str = "count") -> Step:
    return Step(id=id, tool="count", executor="ray")


def about(seconds: float, give: float = 0.1) -> Any:
    return pytest.approx(seconds, abs=give)


def pays(count: int, seconds: float) -> list[Step]:
    return [far("pay", f"pay{number}", order=number, seconds=seconds) for number in range(count)]


# Calls ----------------------------------------------------------------------------------------------------------------


async def test_a_chain_costs_one_question_for_each_call(ray: FakeRay) -> None:
    """A question is a call of an actor, which costs half a millisecond: nothing is asked for its own sake."""
    chain = [far("add", f"add{n}", a=n, b=1, depends_on=[f"add{n - 1}"] if n else []) for n in range(50)]

    async with opened(ray, workers=1) as executor:
        result = await run(executor, *chain)
        questions = len(ray.actors[0].questions)

    assert (result.status, result.steps["add49"].output) == (Status.SUCCEEDED, 50)
    assert questions <= 53  # the first, which is held, and its like at the end


@pytest.mark.rigs
async def test_calls_that_had_to_wait_travel_together_and_never_too_many(ray: FakeRay) -> None:
    """A worker answers no question while it begins calls: with too many at once it would seem lost."""
    async with opened(ray, workers=1) as executor:
        ray.actors[0].delays = [0, 1, 1]
        result = await run(executor, *[far("add", f"add{n}", a=n, b=1) for n in range(1000)])
        sizes = [len(question) for question in ray.actors[0].questions]

    assert result.status is Status.SUCCEEDED
    assert (sum(sizes), max(sizes)) == (1000, 200)
    assert len(sizes) < 20


async def test_two_workers_share_the_calls(ray: FakeRay) -> None:
    async with opened(ray) as executor:
        result = await run(executor, *pays(8, 3))
        calls = [sum(len(question) for question in actor.questions) for actor in ray.actors]

    assert (result.status, result.makespan, calls) == (Status.SUCCEEDED, about(3, 0.1), [4, 4])


async def test_progress_and_usage_arrive_while_the_call_runs(ray: FakeRay) -> None:
    plan = Plan(steps=[counts()])
    async with (
        opened(ray) as executor,
        dagrun.start(plan, tools=[count], executors={"ray": executor}) as live,
    ):
        seen = [(event.at, event.message) async for event in live.events() if isinstance(event, Progress)]
        result = await live.result()

    assert result.tokens == 30
    assert seen[0] == (about(0), "runs on node 0")
    assert seen[-1] == (about(2), "part 2 (on node 0)")


async def test_answers_that_overtake_each_other_are_taken_in_order(ray: FakeRay) -> None:
    """What the first call has reported on a slow way is told before the second one begins, which came later."""
    first = Step(id="first", tool="count", args={"parts": 2, "every": 0.8}, executor="ray")
    wait = Step(id="wait", tool="far_pay", args={"order": 1, "seconds": 1})
    plan = Plan(steps=[first, wait, counts("second").model_copy(update={"depends_on": ("wait",)})])
    async with opened(ray, workers=1) as executor:
        ray.actors[0].delays = [0, 0, 1]
        async with dagrun.start(plan, tools=[count, tools.far_pay], executors={"ray": executor}) as live:
            told = [(event.step, event.message) async for event in live.events() if isinstance(event, Progress)]
            result = await live.result()

    assert result.status is Status.SUCCEEDED
    assert told[2:4] == [("first", "part 1 (on node 0)"), ("second", "runs on node 0")]


async def test_a_call_that_is_cancelled_ends_and_cleans_up_where_it_runs(ray: FakeRay) -> None:
    async with opened(ray) as executor, anyio.create_task_group() as tasks:
        tasks.start_soon(run, executor, *pays(1, 60))
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()

    assert tools.done == [("began", 0), ("told to stop", 0), ("cleaned up", 0)]
    assert sum(actor.stops for actor in ray.actors) >= 1


async def test_a_limit_for_the_pool_of_its_name_limits_its_calls(ray: FakeRay) -> None:
    async with opened(ray) as executor:
        result = await run(executor, *pays(4, 1), pools={"ray": PoolLimits(max_running=2)})

    assert result.makespan == about(2, 0.1)


async def test_actors_are_never_restarted_by_ray(ray: FakeRay) -> None:
    async with opened(ray, options={"num_gpus": 1}):
        given = ray.options

    assert (given["max_restarts"], given["max_task_retries"], given["num_gpus"]) == (0, 0, 1)


# Workers that are gone ------------------------------------------------------------------------------------------------


async def test_a_worker_that_dies_fails_its_calls_at_once_and_is_replaced(ray: FakeRay) -> None:
    async with opened(ray, workers=1) as executor, anyio.create_task_group() as tasks:

        async def kill() -> None:
            await anyio.sleep(1)
            ray.actors[0].die("the process ended\nwith many words")

        tasks.start_soon(kill)
        result = await run(executor, counts())

    assert (result.status, len(ray.actors)) == (Status.SUCCEEDED, 2)
    assert (len(result.steps["count"].attempts), result.makespan) == (2, about(4, 0.1))


async def test_an_effect_on_a_lost_worker_is_in_doubt_and_is_not_made_again(ray: FakeRay) -> None:
    async with opened(ray, workers=1) as executor, anyio.create_task_group() as tasks:

        async def kill() -> None:
            await anyio.sleep(1)
            ray.actors[0].die("the process ended")

        tasks.start_soon(kill)
        result = await run(executor, *pays(1, 5))

    step = result.steps["pay0"]
    assert (result.status, step.state, len(step.attempts)) == (Status.UNKNOWN, State.UNKNOWN, 1)
    assert step.failure is not None
    assert (step.failure.kind, step.failure.message) == (
        ErrorKind.WORKER_DIED,
        "the Ray worker on node 0 is lost: the process ended",
    )
    assert tools.done.count(("began", 0)) == 1


async def test_a_worker_that_is_cut_off_is_lost_after_two_seconds(ray: FakeRay) -> None:
    """Ray itself notices a node that is gone after a quarter of a minute."""
    async with opened(ray, workers=2) as executor, anyio.create_task_group() as tasks:

        async def cut() -> None:
            await anyio.sleep(1)
            ray.actors[0].is_cut_off = True

        tasks.start_soon(cut)
        result = await run(executor, *[counts(f"count{n}") for n in range(4)])

    assert result.status is Status.SUCCEEDED
    assert sorted(len(step.attempts) for step in result.steps.values()) == [1, 1, 2, 2]
    assert 3 + 2 < result.makespan <= 3 + 3.01  # heard of last at 0.5 to 1 s, lost 2 s later, and the call takes 3 s


async def test_an_idle_worker_that_is_cut_off_gets_no_call(ray: FakeRay) -> None:
    async with opened(ray, workers=2) as executor:
        ray.actors[0].is_cut_off = True
        await anyio.sleep(3)
        result = await run(executor, *pays(4, 1))

    assert result.status is Status.SUCCEEDED
    assert len(ray.actors) == 3


async def test_calls_that_a_lost_worker_never_got_go_to_another_one(ray: FakeRay) -> None:
    """Nothing has happened with them, so not even an effect is in doubt, and no attempt is spent."""
    async with opened(ray, workers=1) as executor:
        ray.actors[0].die("the process ended")  # which the executor does not know yet
        result = await run(executor, *pays(2, 1), attempts=1)

    assert result.status is Status.SUCCEEDED
    assert len(tools.done) == 4


@pytest.mark.parametrize("ends", ["cancelled", "timed out"])
@pytest.mark.parametrize("name", ["pay", "threaded"])
async def test_a_call_that_was_told_to_stop_goes_to_no_other_worker(ray: FakeRay, name: str, ends: str) -> None:
    """Not even if it had never left: the worker is gone, and the run does not want the call any more."""
    results: dict[str, RunResult] = {}

    async def start(step: Step) -> None:
        async with dagrun.start(Plan(steps=[step]), tools=every, executors={"ray": executor}, policy=policy) as started:
            if step.id == "last" and ends == "cancelled":
                await anyio.sleep(1)
                started.cancel("last")
            results[step.id] = await started.result()

    every = [tools.far_pay, tools.far_threaded, count]
    policy = Policy(retry=RetryRule(max_attempts=2 if ends == "cancelled" else 1, first_delay=0), grace=5)
    last = {"order": 9, "seconds": 1} if name == "pay" else {}
    async with opened(ray, workers=1) as executor, anyio.create_task_group() as tasks:
        ray.actors[0].is_cut_off = True
        for number in range(2):  # a question hangs already, and one with the first call: the next one has to wait
            tasks.start_soon(start, far("pay", f"first{number}", order=number, seconds=1))
            await anyio.sleep(0.1)
        tasks.start_soon(start, far(name, "last", timeout=1 if ends == "timed out" else None, **last))
        await anyio.sleep(10)
        sent = [len(question) for actor in ray.actors for question in actor.questions if question]

    assert len(ray.actors) == 2
    assert sent == [1, 1]  # the second call never left, and is still wanted
    assert tools.done == [("began", 1), ("paid", 1)]
    step, stopped = results["last"].steps["last"], State.CANCELLED if ends == "cancelled" else State.TIMED_OUT
    assert (step.state, len(step.attempts)) == (State.UNKNOWN if name == "pay" else stopped, 1)


async def test_a_call_that_is_told_to_stop_when_its_worker_is_lost_is_not_made(ray: FakeRay) -> None:
    """In the same turn of the loop, the loss comes first, and the cancellation at the next await."""
    async with opened(ray, workers=2) as executor:
        ray.actors[0].is_cut_off = ray.actors[1].is_cut_off = True
        link, other = executor._links
        link._under_way = other._under_way = 2  # questions that hang
        plan = Plan(steps=[far("pay", order=9, seconds=1)])
        async with dagrun.start(plan, tools=[tools.far_pay], executors={"ray": executor}) as started:
            await anyio.sleep(0.1)
            assert (link.calls, other.calls) == (1, 0)
            other._under_way = 0
            link.lose("the process ended")
            started.cancel("pay")
            result = await started.result()

    assert result.steps["pay"].state is State.UNKNOWN
    assert [data for question in ray.actors[1].questions for _, data in question] == []


async def test_a_worker_that_has_lost_its_run_begins_no_more_calls() -> None:
    """A thread that does not stop keeps it from ending, and nobody watches it any more."""
    tools.gate.clear()
    worker, stubborn, late = RayWorker(1, 4), await request(make_call(tools.far_stubborn, grace=0.1)), "late"
    pay = await request(make_call(tools.far_pay, {"order": 1}))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await worker.exchange([(stubborn.id, stubborn.data)])
        try:
            worker._heard -= 10
            with anyio.fail_after(20):
                while not worker._is_over:
                    await anyio.sleep(0.1)
            came = [message async for message in _come(worker, (late, pay.data))]
        finally:
            tools.gate.set()

    assert [data for id, data in came if id == late] == [NEVER_BEGUN]
    assert tools.done == []


async def _come(worker: RayWorker, question: Message) -> AsyncIterator[Message]:
    """All that a worker says until it has answered the call of *question*."""
    messages, is_answered = [question], False
    while not is_answered:
        _, said = await worker.exchange(messages)
        messages = []
        for message in said:
            is_answered = is_answered or (message[0] == question[0] and is_answer(message[1]))
            yield message


async def test_a_worker_that_has_lost_its_run_ends_its_calls(ray: FakeRay) -> None:
    """Ten seconds after the last word of the run, which has given the call up long before."""
    async with opened(ray, workers=1) as executor:
        async with anyio.create_task_group() as tasks:

            async def cut() -> None:
                await anyio.sleep(1)
                ray.actors[0].is_cut_off = True

            tasks.start_soon(cut)
            await run(executor, *pays(1, 60), attempts=1)
        lost = anyio.current_time()
        assert tools.done == [("began", 0)]
        while len(tools.done) < 3:
            await anyio.sleep(0.1)
        seconds = anyio.current_time() - lost

    assert tools.done == [("began", 0), ("told to stop", 0), ("cleaned up", 0)]
    assert seconds == about(8.25, 0.2)


async def test_without_any_worker_calls_wait_and_then_fail_as_never_made(ray: FakeRay) -> None:
    async with opened(ray, workers=1) as executor:
        ray.faults = ["no node has a free CPU"] * 99
        ray.actors[0].die("the node is gone")
        await anyio.sleep(0.1)
        result = await run(executor, far("pay", order=1, timeout=5), attempts=1)

    failure = result.steps["pay"].failure
    assert failure is not None
    assert (result.status, result.makespan) == (Status.FAILED, about(60, 0.1))  # no effect is in doubt
    assert failure.message == (
        "0 of 1 workers run on the Ray cluster at 10.0.0.5:6379, and none came within 60 s: no node has a free CPU"
    )


# Opened wrongly -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["", "auto", "local", "ray://10.0.0.5:10001", "10.0.0.5", None])
def test_an_address_is_given_and_never_guessed(ray: FakeRay, address: Any) -> None:
    with pytest.raises(ContractError, match="needs the address of the cluster, HOST:PORT") as caught:
        RayExecutor(address)

    assert repr(address) in str(caught.value)


@pytest.mark.parametrize(("value", "is_taken"), [(None, False), ("1", False), ("0", True)])
def test_an_address_that_ray_would_replace_is_refused(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, value: str | None, is_taken: bool
) -> None:
    """Ray takes 127.0.0.1 for the outer address of the machine, unless it is told not to."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", raising=False)
    if value is not None:
        monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", value)
    if is_taken:
        RayExecutor("127.0.0.1:6379")
        return
    with pytest.raises(ContractError, match="for the outer address of this machine"):
        RayExecutor("127.0.0.1:6379")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": 0}, "at least one worker"),
        ({"lost_after": 0.1}, "1 s for lost_after"),
        ({"options": {"max_restarts": 3}}, "sets max_restarts by itself"),
    ],
)
def test_options_that_would_break_its_promises_are_refused(ray: FakeRay, options: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        RayExecutor("10.0.0.5:6379", **options)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match=r"pip install 'dagrun-engine\[ray\]'"):
        RayExecutor("10.0.0.5:6379")


def test_trio_is_refused_before_anything_runs(ray: FakeRay) -> None:
    async def main() -> None:
        async with opened(ray):
            raise AssertionError("it was opened")

    with pytest.raises(ContractError, match="RayExecutor needs asyncio"):
        anyio.run(main, backend="trio")
    assert not ray.actors


async def test_an_executor_that_is_not_open_makes_no_call(ray: FakeRay) -> None:
    result = await run(RayExecutor("10.0.0.5:6379"), far("pay", order=1), attempts=1)

    failure = result.steps["pay"].failure
    assert failure is not None
    assert result.status is Status.FAILED  # and not unknown
    assert "open the RayExecutor around the run" in failure.message


async def test_workers_that_do_not_start_are_told_of_with_the_reason(ray: FakeRay) -> None:
    ray.faults = ["ModuleNotFoundError: No module named 'dagrun'"] * 99

    with pytest.raises(ExecutorFailed, match=r"0 of 2 workers run .*No module named 'dagrun'"):
        async with opened(ray):
            raise AssertionError("it was opened")


async def test_a_tool_that_no_node_can_import_is_refused(ray: FakeRay) -> None:
    @dagrun.tool(effect="read")
    async def inside() -> int:
        return 1

    executor = RayExecutor("10.0.0.5:6379")

    assert "defined inside a function" in (executor.accepts(inside) or "")
    assert executor.accepts(tools.far_add) is None


@pytest.mark.real_time
class TestNoCluster:
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_a_cluster_that_does_not_answer_is_told_of_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ray itself would try for a minute."""
        monkeypatch.setattr(cluster, "find_spec", lambda name: name)
        monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

        with pytest.raises(ExecutorFailed, match=r"no Ray cluster answers at 127\.0\.0\.1:1 .*`ray start --head`"):
            async with RayExecutor("127.0.0.1:1"):
                raise AssertionError("it was opened")
