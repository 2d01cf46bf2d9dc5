"""A failure explains itself to the author of the tool: type, text, place, traceback, and the exception itself."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import MemoryJournal, Plan, Policy, RetryRule, RunFailed, State, Step, ToolError, Verdict
from dagrun.codec import decode_event, encode_event
from dagrun.errors import FailureCause
from dagrun.events import AttemptEnded
from dagrun.kernel.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery
from process_tools import fail_with
from scripted_model import ScriptedModel
from small_tools import AT_ONCE, ONCE

pytestmark = pytest.mark.anyio

HERE: Final = Path(__file__).name


GIVEN_UP: Final = Decision(Recovery.GIVE_UP)


def helper(row: dict[str, int]) -> int:
    return row["price"] * 2  # the place


PLACE: Final = next(
    number for number, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the place" in line
)


@dagrun.tool(effect="pure")
async def double() -> int:
    """Look for a price that is not there."""
    await anyio.sleep(0.1)
    return helper({"prize": 1})


@dagrun.tool(effect="pure")
async def parse() -> Any:
    """Fail inside of a library."""
    return json.loads("{")


@dagrun.tool(effect="pure")
async def many() -> None:
    """Fail in five ways."""
    raise ExceptionGroup("some failed", [ValueError("one"), KeyError("two"), *(OSError(str(n)) for n in range(3))])


@dagrun.tool(effect="pure")
async def in_a_group() -> None:
    """Fail in a task group."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(double.function)


@dagrun.tool(effect="pure")
async def refuses() -> None:
    """Say in its own words that it cannot."""
    try:
        helper({})
    except KeyError as error:
        raise ToolError("there is no price") from error


@dagrun.tool(effect="pure")
async def quits() -> None:
    """Do what would end the program."""
    raise SystemExit(3)


def step(tool: str, id_: str = "s", **fields: Any) -> Step:
    return Step(id=id_, tool=tool, **fields)


async def play(*steps: Step, tools: Any, **options: Any) -> dagrun.RunResult:
    policy = Policy(**({"retry": ONCE} | options.pop("policy", {})))
    return await dagrun.run(Plan(steps=steps), tools=tools, policy=policy, **options)


async def failure_of(tool: Any, **options: Any) -> Failure:
    result = await play(step(tool.name), tools=[tool], **options)
    failure = result.steps["s"].failure
    assert failure is not None
    return failure


# What a failure says --------------------------------------------------------------------------------------------------


async def test_it_has_type_message_place_and_exception() -> None:
    failure = await failure_of(double)

    assert (failure.type, failure.message) == ("KeyError", f"KeyError: 'price' ({HERE}:{PLACE})")
    assert failure.where == f"{__file__}:{PLACE}"
    assert isinstance(failure.exception, KeyError)
    assert 'return row["price"] * 2' in failure.traceback
    assert failure.traceback.rstrip().endswith("KeyError: 'price'")
    assert "attempt.py" not in failure.traceback


async def test_the_place_is_in_the_users_code_even_if_a_library_raised() -> None:
    failure = await failure_of(parse)

    assert failure.type == "JSONDecodeError"
    assert failure.where.rpartition(":")[0] == __file__
    assert "decoder.py" in failure.traceback


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/srv/shop/prices.py", " (prices.py:1)"),
        ("/srv/shop/__init__.py", " (shop/__init__.py:1)"),
        ("__main__.py", " (__main__.py:1)"),
        ("/srv/site-packages/shop/prices.py", ""),
    ],
)
async def test_the_message_has_the_name_of_the_file_and_no_path(path: str, shown: str) -> None:
    """Models and other people read it; a name that many folders have comes with its folder, and a library has none."""
    names: dict[str, Any] = {"__name__": "prices"}
    exec(compile("def look(): raise LookupError('no price')", path, "exec"), names)

    failure = await failure_of(dagrun.tool(effect="pure")(names["look"]))

    assert failure.message == f"LookupError: no price{shown}"
    assert failure.where == f"{path}:1"


async def test_leaves_of_a_group_are_named_and_the_others_counted() -> None:
    failure = await failure_of(many)

    assert failure.type == "ExceptionGroup"
    assert "some failed: ValueError: one; KeyError: 'two'; OSError: 0; and 2 more" in failure.message
    assert "Part 5 of 5" in failure.traceback


async def test_of_a_group_of_one_the_one_counts() -> None:
    failure = await failure_of(in_a_group)

    assert (failure.type, failure.where) == ("KeyError", f"{__file__}:{PLACE}")
    assert isinstance(failure.exception, KeyError)


async def test_a_tool_error_is_in_the_words_of_its_author() -> None:
    failure = await failure_of(refuses)

    assert (failure.type, failure.message) == ("ToolError", "there is no price")
    assert failure.where.startswith(__file__)
    assert "It was caused by this exception" in failure.traceback


async def test_what_would_end_the_program_says_where() -> None:
    failure = await failure_of(quits)

    assert failure.type == "SystemExit"
    assert failure.where.startswith(__file__)


@pytest.mark.real_time
async def test_a_plain_function_in_a_thread_says_the_same() -> None:
    @dagrun.tool(effect="pure")
    def plain() -> int:
        """Fail in a thread."""
        return helper({})

    failure = await failure_of(plain)

    assert (failure.type, failure.where) == ("KeyError", f"{__file__}:{PLACE}")
    assert isinstance(failure.exception, KeyError)


@pytest.mark.real_time
@pytest.mark.costly
async def test_of_a_worker_process_the_traceback_comes_as_text() -> None:
    result = await play(step("fail_with", args={"name": "KeyError"}), tools=[fail_with])
    failure = result.steps["s"].failure
    assert failure is not None

    assert (failure.type, failure.exception) == ("KeyError", None)
    assert "process_tools.py:" in failure.where
    assert failure.where.rpartition("/")[2] in failure.message
    assert "Traceback (most recent call last)" in failure.traceback
    assert "KeyError: 'on purpose'" in failure.traceback
    with pytest.raises(RunFailed) as caught:
        result.raise_for_status()
    assert isinstance(caught.value.__cause__, FailureCause)
    assert caught.value.__cause__.type == "KeyError"
    assert "in fail_with" in "".join(traceback.format_exception(caught.value))


class _Broken:
    """An exception of it cannot be read."""

    async def call(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise SystemExit(1)

            @property
            def __notes__(self) -> Any:  # type: ignore[override]
                raise KeyboardInterrupt

            def __setattr__(self, name: str, value: object) -> None:
                raise RuntimeError("frozen")

        raise Odd


async def test_an_exception_that_hurts_who_reads_it_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    failure = await failure_of(dagrun.tool(name="broken", effect="pure")(_Broken().call))

    assert failure.message.startswith("Odd (test_failures_explained.py:")
    assert failure.exception is not None
    assert failure.exception.__traceback__ is None


async def test_a_context_in_an_exception_leads_to_no_circle() -> None:
    @dagrun.tool(effect="pure")
    async def looks(ctx: dagrun.ToolContext) -> None:
        """Look for what no context has."""
        print(ctx.nothing)  # type: ignore[attr-defined]

    failure = await failure_of(looks)

    assert isinstance(failure.exception, AttributeError)
    assert failure.exception.obj is None


# What is kept of it, and where ----------------------------------------------------------------------------------------


async def test_the_exception_is_kept_without_its_frames() -> None:
    """Else it would keep the run alive, and everything that its functions held."""
    failure = await failure_of(refuses)

    assert failure.exception is not None
    assert failure.exception.__traceback__ is None
    assert failure.exception.__cause__ is not None
    assert failure.exception.__cause__.__traceback__ is None


async def test_the_exception_is_in_no_record_pickle_copy_or_repr() -> None:
    failure = await failure_of(double)
    event = AttemptEnded(1, 0.0, "s", 1, State.FAILED, Outcome(State.FAILED, failure=failure), GIVEN_UP)

    back = decode_event(encode_event(event))
    assert isinstance(back, AttemptEnded)
    for other in (pickle.loads(pickle.dumps(failure)), copy.deepcopy(failure), back.outcome.failure):
        assert other == failure
        assert (other.exception, other.traceback) == (None, "")
        assert other.where == failure.where
    assert "exception=" not in repr(failure)
    assert "exception" not in failure.as_dict()
    assert failure.as_dict()["where"] == failure.where


async def test_records_without_the_new_fields_can_be_read() -> None:
    failure = Failure(ErrorKind.EXCEPTION, "'price'", "KeyError")
    event = AttemptEnded(1, 0.0, "s", 1, State.FAILED, Outcome(State.FAILED, failure=failure), GIVEN_UP)

    assert b"where" not in encode_event(event)
    assert decode_event(encode_event(event)) == event


async def test_a_record_has_the_place() -> None:
    journal = MemoryJournal()
    await play(step("double"), tools=[double], journal=journal, run_id="one")
    past = await dagrun.replay("one", journal=journal)

    assert past.steps["s"].failure.where == f"{__file__}:{PLACE}"  # type: ignore[union-attr]
    await journal.aclose()


# RunFailed ------------------------------------------------------------------------------------------------------------


async def test_run_failed_chains_the_exception_and_shows_its_traceback() -> None:
    result = await play(step("refuses", "first", optional=True), step("double"), tools=[double, refuses])
    with pytest.raises(RunFailed) as caught:
        result.raise_for_status()

    assert caught.value.__cause__ is result.steps["s"].failure.exception  # type: ignore[union-attr]
    assert 'row["price"]' in "".join(traceback.format_exception(caught.value))


async def test_an_exception_that_holds_a_secret_is_not_chained() -> None:
    @dagrun.tool(effect="pure")
    async def tells() -> None:
        """Say the secret."""
        raise KeyError("hunter2-hunter2")

    result = await play(step("tells"), tools=[tells], secrets={"db": "hunter2-hunter2"})
    with pytest.raises(RunFailed) as caught:
        result.raise_for_status()

    assert isinstance(caught.value.__cause__, FailureCause)
    shown = "".join(traceback.format_exception(caught.value))
    assert "hunter2-hunter2" not in shown
    assert "in tells" in shown


async def test_a_fault_of_the_planner_is_chained() -> None:
    class Broken:
        async def revise(self, brief: dagrun.Brief) -> Any:
            return helper({})

    result = await dagrun.run(goal="any", planner=Broken(), tools=[double])
    with pytest.raises(RunFailed) as caught:
        result.raise_for_status()
    with pytest.raises(RunFailed) as drafted:
        await dagrun.draft("any", planner=Broken(), tools=[double])

    assert f"it raised KeyError: 'price' ({HERE}:{PLACE})" in result.reason
    assert isinstance(caught.value.__cause__, KeyError)
    assert isinstance(drafted.value.__cause__, KeyError)


# The log --------------------------------------------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "dagrun.run" and record.levelno >= level]


async def test_a_failed_step_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """An attempt that is repeated is for those who look at everything."""
    caplog.set_level(logging.DEBUG)
    await play(step("double", retry=AT_ONCE), step("double", "fine", on_failure="default", default=1), tools=[double])

    await play(step("refuses", retry=RetryRule(max_attempts=3)), tools=[refuses])

    assert logged(caplog) == [
        f"step s failed: KeyError: 'price' ({HERE}:{PLACE})",
        "step s failed: there is no price",
    ]
    assert "step fine ended with its default, as a call failed" in "\n".join(logged(caplog, logging.INFO))
    record = next(record for record in caplog.records if record.levelno == logging.WARNING)
    assert 'row["price"]' in caplog.text
    assert (record.step, record.exc_info is not None) == ("s", True)  # type: ignore[attr-defined]


async def test_retried_attempts_are_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    @dagrun.tool(effect="pure")
    async def busy() -> None:
        """Fail for now."""
        raise ToolError("busy", retryable=True)

    caplog.set_level(logging.DEBUG)
    await play(step("busy", retry=RetryRule(max_attempts=3)), tools=[busy])

    levels = [r.levelno for r in caplog.records if "busy" in r.getMessage() and r.name == "dagrun.run"]
    assert levels == [logging.DEBUG, logging.DEBUG, logging.WARNING]


async def test_skipped_and_cancelled_steps_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    @dagrun.tool(effect="pure")
    async def waits() -> None:
        """Wait."""
        await anyio.sleep(100)

    caplog.set_level(logging.INFO)
    steps = (
        step("double", "bad", on_failure="stop"),
        step("waits", "slow"),
        step("double", "after", depends_on=["bad"]),
    )
    await play(*steps, tools=[double, waits])

    assert [text.partition(":")[0] for text in logged(caplog)] == ["step bad failed"]


async def test_a_handler_that_raises_or_changes_the_run_hurts_nobody() -> None:
    class Wild(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            running.cancel()
            raise RuntimeError("no")

    log, wild = logging.getLogger("dagrun.run"), Wild()
    log.addHandler(wild)
    try:
        async with dagrun.start(
            Plan(steps=[step("double"), step("double", "t", depends_on=["s"])]), tools=[double]
        ) as running:
            result = await running.result()
    finally:
        log.removeHandler(wild)

    assert result.steps["s"].state is State.FAILED


# Critics, approvers and agents ----------------------------------------------------------------------------------------


class _Critic:
    name = "strict"

    def applies_to(self, _: Step) -> bool:
        return True

    async def review(self, _: Step, __: Any) -> Verdict:
        helper({})
        raise AssertionError


@dagrun.tool(effect="pure")
async def fine() -> int:
    """Give a number."""
    return 1


async def test_a_critic_that_raises_says_where(caplog: pytest.LogCaptureFixture) -> None:
    result = await play(step("fine"), tools=[fine], critics=[_Critic()])
    failure = result.steps["s"].failure
    assert failure is not None

    assert failure.message == f"strict: the critic failed: it raised KeyError: 'price' ({HERE}:{PLACE})"
    assert (failure.type, failure.where) == ("KeyError", f"{__file__}:{PLACE}")
    assert isinstance(failure.exception, KeyError)
    assert failure.exception.__traceback__ is None
    assert 'row["price"]' in caplog.text
    with pytest.raises(RunFailed) as caught:
        result.raise_for_status()
    assert isinstance(caught.value.__cause__, KeyError)


async def test_an_approver_that_raises_says_where(caplog: pytest.LogCaptureFixture) -> None:
    async def approver(_: dagrun.Question) -> bool:
        return bool(helper({}))

    paying = dagrun.tool(name="pay", effect="effectful", needs_approval=True)(fine.function)
    await play(step("pay"), tools=[paying], approver=approver)

    assert f"the approver failed: it raised KeyError: 'price' ({HERE}:{PLACE})" in caplog.text
    assert 'row["price"]' in caplog.text


async def test_a_call_of_an_agent_that_fails_says_where(caplog: pytest.LogCaptureFixture) -> None:
    """The agent may well go on, so this is for those who look at everything."""
    call = {"thought": "", "call": {"tool": "double", "args": {}}, "answer": None, "cannot": None}
    agent = dagrun.agent_tool(ScriptedModel(call, call), [double], name="agent")
    caplog.set_level(logging.DEBUG)
    result = await play(step("agent", args={"task": "double it"}), tools=[agent])
    failure = result.steps["s"].failure
    assert failure is not None

    assert f"after that had failed: KeyError: 'price' ({HERE}:{PLACE})" in failure.message
    assert 'row["price"]' in caplog.text
    assert failure.exception is not None
    assert isinstance(failure.exception.__cause__, KeyError)


# What a planner sees --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("brief", "is_told"), [("structural", False), ("full", True)])
async def test_a_planner_sees_types_always_and_texts_where_the_policy_says_so(brief: str, is_told: bool) -> None:
    seen: list[Any] = []

    class Looks:
        async def revise(self, brief: dagrun.Brief) -> None:
            seen.append(json.dumps(brief.as_dict()))

    await play(step("double"), tools=[double], planner=Looks(), policy={"planning": {"brief": brief}})

    assert "KeyError" in seen[0]
    assert ("'price'" in seen[0]) is is_told
    assert (HERE in seen[0]) is is_told
