"""Critics in a run: they look before anything else does, and can neither hurt the run nor repeat a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from dagrun import CountCritic, Event, RuleCritic, Status, Step, ToolContext, Verdict
from dagrun.errors import SpliceRefused
from dagrun.events import AttemptEnded, AttemptStarted, Reviewed
from dagrun.kernel.model.outcome import ErrorKind, Outcome
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.usage import METER
from dagrun.testing import Takes
from judges import Judge
from misbehaving import BEHAVIOURS, end_what_was_left_behind, skip_what_only_asyncio_has
from replans import Thinker, instead, nap, run, start, uses
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio


def _echo(id_: str, value: Any, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="echo", args={"value": value}, depends_on=after, **fields)


# When -------------------------------------------------------------------------------------------------------


async def test_dependents_start_after_the_review() -> None:
    """All critics look at the same time; what does not depend on the step does not wait."""
    critics = [Judge(seconds=2, name="one"), Judge(seconds=3, name="two")]
    steps = [nap("load", 1.0), nap("after", 1.0, "load"), nap("other", 1.0), nap("more", 1.0, "other")]

    result = await run(steps, None, critics=critics)

    assert (result.steps["load"].ended, result.steps["after"].started) == near((1, 4))
    assert (result.steps["more"].started, result.makespan) == near((1, 5))


async def test_the_states_and_events_of_a_review() -> None:
    """The attempt is over and recorded before the critics look; the step runs until they have."""
    events: list[Event] = []

    async with start([nap("load", 1.0)], None, critics=[Judge(seconds=2)], on_event=events.append) as handle:
        await anyio.sleep(2)
        meanwhile = str(handle.states["load"])
        result = await handle.result()

    told = [(type(e).__name__, e.at) for e in events if isinstance(e, AttemptStarted | AttemptEnded | Reviewed)]
    assert told == [("AttemptStarted", near(0)), ("AttemptEnded", near(1)), ("Reviewed", near(3))]
    reviewed = next(e for e in events if isinstance(e, Reviewed))
    assert meanwhile == "running"
    assert reviewed.verdicts == result.steps["load"].verdicts == (Verdict("pass", None, "because", "judge"),)
    assert (len(result.steps["load"].attempts), result.steps["load"].work, result.work) == (1, near(1), near(1))


async def test_a_critic_that_does_not_care_costs_nothing() -> None:
    events: list[Event] = []

    await run([nap("load", 1.0)], None, critics=[Judge(step="another")], on_event=events.append)

    assert not any(isinstance(e, Reviewed) for e in events)


async def test_only_success_is_reviewed() -> None:
    judge = Judge()

    await run([Step(id="load", tool="fail")], None, critics=[judge])

    assert judge.seen == []


async def test_a_review_does_not_count_as_time_of_the_step() -> None:
    """Neither towards the timeout of the attempt nor towards the deadline of the step."""
    step = nap("load", 1.0, timeout=2.0, deadline=3.0)

    result = await run([step], None, critics=[Judge(seconds=20)])

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(21))


async def test_what_comes_late_is_not_reviewed() -> None:
    async def late() -> int:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3)
        return 7

    judge = Judge()

    result = await run(
        [Step(id="load", tool="late", timeout=2.0)], None, make_tool(late, effect="read"), critics=[judge], grace=5.0
    )

    assert (states(result), judge.seen) == ({"load": "timed_out"}, [])


async def test_each_element_is_reviewed_by_itself() -> None:
    critic = RuleCritic("even", lambda value: value % 2 == 0, steps=["load"])
    each = Step(id="load", tool="echo", args={"value": "${item}"}, for_each=[2, 3, 4], on_failure="skip")

    result = await run([each], None, critics=[critic])

    assert (result.output, [r for _, r in result.steps["load"].errors]) == (
        [2, None, 4],
        ["failed: even: the rule did not pass it"],
    )


async def test_a_critic_gets_a_copy_of_the_output() -> None:
    class Vandal(Judge):
        async def review(self, step: Step, outcome: Outcome) -> Any:
            outcome.output.append("gone")
            outcome.value = None
            return Verdict("pass")

    result = await run([_echo("load", [1]), uses("report", "load")], None, critics=[Vandal(), Vandal()])

    assert result.output == [1]


# Verdicts ---------------------------------------------------------------------------------------------------


async def test_one_critic_that_does_not_pass_it_is_enough() -> None:
    """The first in the order of the critics gives the reason; all verdicts are kept."""
    critics = [Judge("surprising", name="a"), Judge("fail", name="b"), Judge("pass", name="c"), Judge("fail", name="d")]

    result = await run([_echo("load", 1), uses("report", "load")], None, critics=critics)

    step = result.steps["load"]
    assert step.failure is not None
    assert (step.failure.kind, step.reason) == (ErrorKind.CRITIC, "b: because")
    assert [(v.critic, v.result) for v in step.verdicts] == [
        ("a", "surprising"),
        ("b", "fail"),
        ("c", "pass"),
        ("d", "fail"),
    ]
    assert states(result) == {"load": "failed", "report": "skipped"}
    assert result.as_dict()["steps"]["load"]["verdicts"][1] == {
        "critic": "b",
        "result": "fail",
        "score": None,
        "reason": "because",
    }


async def test_the_verdict_of_a_critic_comes_before_what_the_tool_says() -> None:
    """Both find it surprising; nobody is asked, so it is a warning."""

    async def odd(context: ToolContext) -> int:
        context.surprise("says the tool")
        return 7

    tool = make_tool(odd, effect="read")

    alone = await run([Step(id="load", tool="odd")], None, tool, critics=[Judge("pass")])
    both = await run([Step(id="load", tool="odd")], None, tool, critics=[Judge("surprising")])

    assert "says the tool" in alone.warnings[0]
    assert "judge: because" in both.warnings[0]


@pytest.mark.parametrize(
    ("said", "count"),
    [(["pass", "pass"], 0), (["fail", "fail"], 0), (["pass"], 0), (["pass", "fail"], 1), (["pass", "surprising"], 1)],
)
async def test_disagreement_is_counted(said: list[str], count: int) -> None:
    """By step: two critics that differ about one output are one disagreement."""
    critics = [Judge(what, name=f"critic {n}") for n, what in enumerate(said)]

    result = await run([_echo("load", 1), _echo("other", 1)], None, critics=critics)

    assert result.disagreements == count


# Critics that misbehave -------------------------------------------------------------------------------------


async def _judged(critic: Any, **options: Any) -> str:
    """Run a step under *critic*, beside another; give why the step failed."""
    steps = [_echo("load", 1), uses("report", "load"), nap("other", 30.0)]

    result = await run(steps, None, critics=[critic], **{"critic_timeout": 5, "grace": 1, **options})

    assert states(result) == {"load": "failed", "report": "skipped", "other": "succeeded"}
    assert result.makespan == near(30)
    return result.steps["load"].reason


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_no_behaviour_of_a_critic_hurts_the_run(name: str) -> None:
    """Everything that a tool can do to a run. What nobody has judged has not been passed."""
    skip_what_only_asyncio_has(name)

    reason = await _judged(Judge(BEHAVIOURS[name]))
    await end_what_was_left_behind()

    assert reason.startswith("judge: the critic failed: it ")


async def test_a_critic_that_hangs_has_not_passed_it() -> None:
    assert await _judged(Judge(seconds=1_000)) == "judge: the critic failed: it took longer than 5 s"


async def test_a_critic_that_will_not_stop_is_left_behind(anyio_backend: tuple[str, Any]) -> None:
    """Its step is given up at the end of the grace period; on trio its own task goes on, on asyncio it is dropped."""

    async def clings() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(100)

    steps = [_echo("load", 1), nap("after", 1.0, "load", on_failure="skip"), nap("other", 10.0)]

    async with start(steps, None, critics=[Judge(clings)], critic_timeout=5, grace=1) as handle:
        result = await handle.result()

    assert (result.makespan, anyio.current_time()) == near((10, 100 if anyio_backend[0] == "trio" else 10))
    assert result.steps["load"].reason.endswith("it took longer than 5 s and would not stop")


def _no_name() -> Any:
    class Nameless(Judge):
        @property
        def name(self) -> str:
            raise SystemExit("nobody asks me that")

        @name.setter
        def name(self, value: str) -> None:
            pass

    return Nameless("fail")


async def test_a_critic_without_a_name_goes_by_its_class() -> None:
    assert await _judged(_no_name()) == "Nameless: because"


async def test_a_critic_that_cannot_say_what_it_looks_at_is_asked_about_everything() -> None:
    class Confused(Judge):
        def applies_to(self, step: Step) -> bool:
            raise SystemExit("who knows?")

    result = await run([_echo("load", 1), _echo("other", 1)], None, critics=[Confused("fail")])

    assert set(states(result).values()) == {"failed"}


@pytest.mark.parametrize(
    "review",
    [
        lambda self, step, outcome: Verdict("pass"),
        lambda self, step, outcome: 1 / 0,
        lambda self: None,
        None,
    ],
)
async def test_a_critic_that_is_not_async_has_not_passed_it(review: Callable[..., Any] | None) -> None:
    kind = type("Plain", (Judge,), {"review": review})

    assert (await _judged(kind())).startswith("judge: the critic failed: it raised ")


@pytest.mark.parametrize("said", [True, {"result": "pass"}, 7])
async def test_what_is_no_verdict_is_no_pass(said: Any) -> None:
    assert await _judged(Judge(said)) == f"judge: the critic failed: it gave a {type(said).__name__}, not a Verdict"


async def test_what_is_no_verdict_has_cost_something_all_the_same() -> None:
    """The models of the critic have worked for it, and the bill of the run says so."""

    class Babbler(Judge):
        async def review(self, step: Step, outcome: Outcome) -> Any:
            METER.get().reserve("a-model", 100, 1.0).settle(40, 0.5)
            return "quite nice"

    result = await run([_echo("load", 1)], None, critics=[Babbler()])

    assert (result.status, result.tokens, result.cost) == (Status.FAILED, 40, 0.5)


# Effects ----------------------------------------------------------------------------------------------------


async def test_a_call_with_an_effect_is_not_repeated_because_a_critic_does_not_like_it() -> None:
    """It took place: neither another attempt nor the fallback may do it again."""
    pay = scripted("pay", "paid", effect="effectful", needs_approval=False, fallback="cash")
    cash = scripted("cash", "paid", effect="effectful", needs_approval=False)

    result = await run([Step(id="load", tool="pay")], None, pay, cash, critics=[Judge("fail")])

    assert (len(pay.calls), len(cash.calls), states(result)) == (1, 0, {"load": "failed"})
    assert result.status is Status.FAILED  # what happened is known, so nothing is in doubt


async def test_what_a_critic_does_not_like_of_a_free_tool_may_come_from_the_fallback() -> None:
    spare = scripted("spare", list(range(9)))
    load = scripted("source", [], fallback="spare")

    result = await run([Step(id="load", tool="source")], None, load, spare, critics=[CountCritic("rows", at_least=5)])

    assert (result.status, [a.tool for a in result.steps["load"].attempts]) == (Status.SUCCEEDED, ["source", "spare"])


async def test_cancelling_a_step_during_its_review() -> None:
    """The call was over: what it gave is kept and not used, and an effect is not in doubt."""
    pay = scripted("pay", "paid", effect="effectful", needs_approval=False)
    judge = Judge(seconds=50)

    async with start([Step(id="load", tool="pay"), uses("report", "load")], None, pay, critics=[judge]) as handle:
        await anyio.sleep(2)
        assert handle.cancel("load", reason="enough")
        result = await handle.result()

    step = result.steps["load"]
    assert (states(result), step.reason) == ({"load": "cancelled", "report": "skipped"}, "enough")
    assert (step.output, step.attempts[0].outcome and step.attempts[0].outcome.output) == (None, "paid")
    assert anyio.current_time() == near(2)


async def test_after_a_review_that_was_cut_short_the_call_is_not_made_again() -> None:
    """A substitute is the same call or none: the effect took place."""
    pay = scripted("pay", "paid", effect="effectful", needs_approval=False)
    again = instead("load", Step(id="again", tool="pay"))

    async with start(
        [Step(id="load", tool="pay"), nap("other", 9.0)], None, pay, critics=[Judge(seconds=50)]
    ) as handle:
        await anyio.sleep(2)
        handle.cancel("load")
        await anyio.sleep(1)
        with pytest.raises(SpliceRefused, match="DR418"):
            await handle.splice(again)
        await handle.result()

    assert len(pay.calls) == 1


@pytest.mark.parametrize("step", [None, "load"])
async def test_cancelling_while_a_critic_clings(step: str | None) -> None:
    """The grace period is that of tools; what depends on the step is told at its end."""

    async def clings() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)

    async with start([_echo("load", 1), uses("report", "load")], None, critics=[Judge(clings)]) as handle:
        await anyio.sleep(2)
        handle.cancel(step)
        result = await handle.result()
        assert anyio.current_time() == near(2)

    assert states(result)["load"] == "cancelled"


async def test_a_splice_may_replace_a_step_during_its_review() -> None:
    """A free one is stopped; its critic is told to stop, too."""
    async with start([_echo("load", 1), uses("report", "load")], None, critics=[Judge(seconds=50)]) as handle:
        await anyio.sleep(2)
        await handle.splice(instead("load", nap("good", 1.0)))
        result = await handle.result()

    assert (states(result)["load"], result.output, result.makespan) == ("superseded", "good", near(3))


async def test_a_critic_and_a_planner_repair_together() -> None:
    """A verdict asks the planner; its substitute is reviewed like any step."""
    critic = CountCritic("rows", at_least=2, tools=["source"])
    source = scripted("source", [1], Takes(1, [1]), [1, 2])
    planner = Thinker(
        instead("load", Step(id="load2", tool="source", args={"value": 2})),
        instead("load2", Step(id="load3", tool="source", args={"value": 3})),
    )

    result = await run([Step(id="load", tool="source"), uses("report", "load")], planner, source, critics=[critic])

    assert (planner.kinds, result.output) == ([["success_condition"]] * 2, [1, 2])
