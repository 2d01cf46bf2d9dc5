"""Objects in memory between steps: the same object everywhere, in no record, and made once more after a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest

import dagrun
from dagrun import Artifact, MemoryJournal, Plan, PlanRefused, Policy, State, Status, Step, Unavailable
from dagrun.errors import ContractError, ValueRefused
from dagrun.events import QuestionAsked
from objects import CANARY, OtherThing, Stranger, Thing, Workshop, texts_of
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio


async def test_coroutines_and_threads_get_the_object_itself() -> None:
    """A copy of a data frame of two gigabytes would fill the memory."""
    shop = Workshop()
    first = shop.make.step(name="a")
    last = shop.pass_on.step(thing=shop.pass_on_in_thread.step(thing=first))

    result = await dagrun.run(dagrun.plan(output=last))

    assert isinstance(result.output, Thing)
    assert result[last] is result.output
    assert result.steps["pass_on"].output is result.output
    assert set(shop.taken) == {id(result.output)}
    assert len(shop.taken) == 2


async def test_a_journal_keeps_the_name_of_the_type_and_nothing_else() -> None:
    """Records are JSON; an object is written neither by its fields nor by its repr."""
    shop, journal = Workshop(), MemoryJournal()
    things = shop.make_all.step(names=["a", "b"])
    each = shop.pass_on.each(things).step(thing=dagrun.item)
    plan = dagrun.plan(output={"things": things, "each": each, "names": shop.names.step(things=each)})

    result = await dagrun.run(plan, journal=journal, run_id="one")

    assert [thing.name for thing in result.output["each"]] == result.output["names"] == ["a", "b"]
    records = b"\n".join(await texts_of(journal)).decode()
    assert CANARY not in records
    assert '"unavailable":"an object in memory, which no record holds: objects.Thing"' in records
    shown = json.dumps(result.as_dict())
    assert CANARY not in shown
    assert '"$object": "objects.Thing"' in shown
    past = await dagrun.replay("one", journal=journal)
    assert isinstance(past.graph.nodes["make_all"].value, Unavailable)


async def test_elements_of_a_for_each_and_lists_of_objects_keep_their_identity() -> None:
    """A partitioned table is a list of frames."""
    shop = Workshop()
    made = shop.make.each(["a", "b", "c"]).step(name=dagrun.item)
    passed = shop.pass_on.each(made).step(thing=dagrun.item)

    result = await dagrun.run(dagrun.plan(output=[made, passed, shop.names.step(things=passed)]))

    before, after, names = result.output
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert names == ["a", "b", "c"]
    assert result.steps["make"].output[1] is before[1]


async def test_a_model_is_passed_as_it_is_to_a_parameter_of_its_class() -> None:
    """No coercion: what a validator would change stays, and the consumer sees the same object."""
    from pydantic import BaseModel

    class Rows(BaseModel):
        count: int

    seen: list[Any] = []

    def rows() -> Any:
        return Rows.model_construct(count="not a number")  # type: ignore[arg-type]

    def use(rows: Any, factor: int = 2) -> int:
        seen.append(rows)
        return factor

    rows.__annotations__["return"] = use.__annotations__["rows"] = Rows
    make, take = dagrun.tool(effect="pure", object_output=True)(rows), dagrun.tool(effect="pure")(use)
    made = make.step()
    result = await dagrun.run(dagrun.plan(output=[made, take.step(rows=made)]))

    assert result.output[0] is seen[0]
    assert result.output[1] == 2


async def test_an_object_of_another_class_is_refused_when_it_comes() -> None:
    """The return type is a promise; `isinstance` keeps it, at both ends."""

    @dagrun.tool(effect="pure")
    async def wrong() -> dagrun.Object[Thing]:
        return Stranger()  # type: ignore[return-value]

    @dagrun.tool(effect="pure")
    async def plain() -> dagrun.Object[Thing]:
        return Thing("plain")

    @dagrun.tool(effect="pure")
    async def only_special(thing: OtherThing) -> str:
        return thing.name

    result = await dagrun.run(Plan(steps=[Step(id="a", tool="wrong")]), tools=[wrong])
    assert "declared to return objects.Thing, returned objects.Stranger" in result.steps["a"].reason

    steps = [Step(id="a", tool="plain"), Step(id="b", tool="only_special", args={"thing": "${a}"})]
    result = await dagrun.run(Plan(steps=steps), tools=[plain, only_special])
    assert "it should be an object of objects.OtherThing, and is a objects.Thing" in result.steps["b"].reason


async def test_what_looks_like_a_token_is_data() -> None:
    """A plan or a tool that writes one by hand gets no object of another step."""
    shop = Workshop()

    @dagrun.tool(effect="read")
    async def forge() -> dict[str, str]:
        return {"$object": "objects.Thing", "of": "make#1"}

    @dagrun.tool(effect="pure")
    async def look(value: Any, other: Any = None) -> str:
        return f"{type(value).__name__} {type(other).__name__}"

    made, forged = shop.make.step(name="a"), forge.step()
    plan = dagrun.plan(output=[look.step(value=forged, other=made), made, forged])
    result = await dagrun.run(plan)

    assert result.output[0] == "dict Thing"
    assert result.output[2] == {"$object": "objects.Thing", "of": "make#1"}


@pytest.mark.parametrize("effect", ["idempotent", "effectful"])
def test_a_tool_that_changes_the_world_returns_no_object(effect: str) -> None:
    """After a crash the object is gone, and the call must not be repeated to have it again."""
    with pytest.raises(ContractError, match=f"returns an object in memory.* not {effect}"):

        @dagrun.tool(effect=effect)
        async def create() -> dagrun.Object[Thing]:
            return Thing("a")


async def test_steps_that_can_take_none_or_an_object() -> None:
    """`Object[T] | None` is data or an object, and a default can only be null."""

    @dagrun.tool(effect="pure")
    async def maybe(there: bool) -> dagrun.Object[Thing] | None:
        return Thing("there") if there else None

    @dagrun.tool(effect="pure")
    async def broken() -> dagrun.Object[Thing]:
        raise dagrun.ToolError("it is gone")

    @dagrun.tool(effect="pure")
    async def name_of(thing: Thing | None = None) -> str:
        return "nothing" if thing is None else thing.name

    steps = [
        Step(id="yes", tool="maybe", args={"there": True}),
        Step(id="no", tool="maybe", args={"there": False}),
        Step(id="bad", tool="broken", on_failure="default", default=None),
        *(Step(id=f"of_{id_}", tool="name_of", args={"thing": f"${{{id_}}}"}) for id_ in ("yes", "no", "bad")),
    ]
    plan = Plan(steps=steps, output=["${of_yes}", "${of_no}", "${of_bad}"])

    assert (await dagrun.run(plan, tools=[maybe, broken, name_of])).output == ["there", "nothing", "nothing"]


async def test_a_fallback_returns_an_object_too() -> None:
    """The consumer gets the object of whichever call succeeded."""
    shop = Workshop()

    @dagrun.tool(effect="pure", fallback="make")
    async def broken(name: str) -> dagrun.Object[Thing]:
        raise ValueError(name)

    steps = [Step(id="a", tool="broken", args={"name": "x"}), Step(id="b", tool="pass_on", args={"thing": "${a}"})]
    result = await dagrun.run(Plan(steps=steps), tools=[broken, *shop.tools])

    assert result.output.name == "x"


async def test_a_critic_looks_at_the_object_itself() -> None:
    """A critic is Python of the host, like a tool."""
    shop, seen = Workshop(), []

    def is_named(thing: Thing) -> bool:
        seen.append(thing.name)
        return True

    critic = dagrun.RuleCritic("named", is_named)
    result = await dagrun.run(dagrun.plan(output=shop.make.step(name="a")), critics=[critic])

    assert result.status is Status.SUCCEEDED
    assert seen == ["a"]


async def test_a_planner_is_told_the_type_and_nothing_else() -> None:
    """Objects never reach a model."""
    shop = Workshop()
    briefs = []

    class Gives:
        async def revise(self, brief: dagrun.Brief) -> None:
            briefs.append(brief)

    @dagrun.tool(effect="pure")
    async def fail(thing: Thing) -> str:
        raise ValueError("no")

    steps = [Step(id="a", tool="make", args={"name": "x"}), Step(id="b", tool="fail", args={"thing": "${a}"})]
    for brief in ("structural", "full"):
        policy = Policy().with_fields({"planning": {"brief": brief}})
        await dagrun.run(Plan(steps=steps), tools=[fail, *shop.tools], planner=Gives(), policy=policy)

    assert briefs
    assert all(CANARY not in repr(brief) for brief in briefs)
    assert "objects.Thing" in repr(briefs[-1])


async def test_a_patch_reads_an_object_while_the_run_goes_on() -> None:
    """A planner at work keeps all objects: its patch may name any."""
    shop = Workshop()

    class Repairs:
        async def revise(self, brief: dagrun.Brief) -> dagrun.Patch:
            new = Step(id="c", tool="pass_on", args={"thing": "${a}"})
            return dagrun.Patch(edits=[dagrun.Replace(id="b", step=new)], reason="another way")

    @dagrun.tool(effect="pure")
    async def fail(thing: Thing) -> str:
        raise ValueError("no")

    steps = [Step(id="a", tool="make", args={"name": "x"}), Step(id="b", tool="fail", args={"thing": "${a}"})]
    result = await dagrun.run(Plan(steps=steps), tools=[fail, *shop.tools], planner=Repairs())

    assert result.output.name == "x"


async def test_a_released_object_says_how_to_keep_it() -> None:
    """Intermediate frames are what fills the memory; what the plan answers with stays."""
    shop = Workshop()
    made = shop.make.step(name="a")
    result = await dagrun.run(dagrun.plan(output=shop.names.step(things=[made])))

    assert result.output == ["a"]
    assert not shop.alive("a")
    with pytest.raises(ValueRefused, match="name it in the output of the plan to keep it"):
        _ = result[made]


async def test_output_as_takes_an_object_as_it_is() -> None:
    """The answer is typed already."""
    shop = Workshop()
    result = await dagrun.run(dagrun.plan(output=shop.make.step(name="a")))

    assert result.output_as(Thing) is result.output
    with pytest.raises(ValueRefused, match=r"is an object of objects[.]Thing"):
        result.output_as(Stranger)


async def test_a_person_is_shown_the_type_and_asked_anew_after_a_crash() -> None:
    """The yes was to a call with that very object."""
    shop, journal = Workshop(), MemoryJournal()
    made = shop.make.step(name="a")
    plan = dagrun.plan(output=shop.send.step(thing=made))
    policy = Policy(approve=[dagrun.ApprovalRule(tool="send")])
    result = await dagrun.run(plan, journal=journal, run_id="one", policy=policy)
    assert result.status is Status.WAITING

    asked = []
    async with dagrun.resume("one", journal=journal, tools=shop.tools, attended=True) as run:
        async for event in run.events():
            if isinstance(event, QuestionAsked):
                asked.append(event.question.as_dict()["arguments"])
                await run.answer(event.question, True)
        result = await run.result()

    assert result.output == "a"
    assert asked == [{"thing": {"$object": "objects.Thing", "of": "make#2"}}]
    assert shop.calls == ["make a", "make a", "send a"]
    assert CANARY not in b"".join(await texts_of(journal)).decode()


async def test_redacted_records_hold_no_object_either() -> None:
    """Redaction looks at texts; an object has none."""
    shop, journal = Workshop(), MemoryJournal()
    policy = Policy(redact=["email"], redact_records=True)
    made = shop.make.step(name="ann@example.org")
    result = await dagrun.run(dagrun.plan(output=made), journal=journal, run_id="one", policy=policy)

    assert result.output.name == "ann@example.org"
    assert b"ann@" not in b"".join(await texts_of(journal))


async def test_a_retry_makes_the_object_once_more() -> None:
    """The first run has ended, and its objects with it."""
    shop, journal = Workshop(), MemoryJournal()
    fails = [True]

    @dagrun.tool(effect="pure")
    async def count(thing: Thing) -> int:
        if fails:
            raise ValueError(fails.pop())
        return len(thing.name)

    steps = [Step(id="a", tool="make", args={"name": "x"}), Step(id="b", tool="count", args={"thing": "${a}"})]
    policy = Policy(retry=dagrun.RetryRule(max_attempts=1))
    tools = [count, *shop.tools]
    result = await dagrun.run(Plan(steps=steps), tools=tools, journal=journal, run_id="one", policy=policy)
    assert result.status is Status.FAILED

    async with dagrun.retry("one", journal=journal, tools=tools) as run:
        again = await run.result()

    assert again.output == 1
    assert shop.calls == ["make x", "make x"]


async def test_agents_are_given_no_tool_with_objects() -> None:
    """A model can neither see an object nor pass it on."""
    shop = Workshop()
    with pytest.raises(ContractError, match="an object in memory, which no model can pass on"):
        dagrun.agent_tool(ScriptedModel("x"), [shop.pass_on], name="agent")


async def test_a_condition_can_ask_whether_there_is_an_object() -> None:
    """That says nothing about the object."""
    shop = Workshop()
    steps = [
        Step(id="a", tool="make", args={"name": "x"}),
        Step(id="b", tool="pass_on", args={"thing": "${a}"}, when=dagrun.Condition(ref="a", op="exists")),
    ]
    result = await dagrun.run(Plan(steps=steps), tools=shop.tools)

    assert result.steps["b"].state is State.SUCCEEDED


def test_an_object_cannot_be_declared_where_no_plan_could_pass_it() -> None:
    """In a set, say, it would have to be found by its hash."""
    with pytest.raises(ContractError, match=r"Object\[…\] stands alone"):

        @dagrun.tool(effect="pure")
        async def many() -> set[dagrun.Object[Thing]]:
            return set()


async def test_objects_and_artifacts_may_stand_for_each_other() -> None:
    """`Object[T] | Artifact` is one or the other."""

    @dagrun.tool(effect="pure")
    async def load(context: dagrun.ToolContext, keep: bool) -> dagrun.Object[Thing] | Artifact:
        return context.artifacts.save(b"x") if keep else Thing("x")

    @dagrun.tool(effect="pure")
    async def kind(value: Thing | Artifact) -> str:
        return type(value).__name__

    steps = [
        *(Step(id=f"a{keep}", tool="load", args={"keep": keep}) for keep in (True, False)),
        *(Step(id=f"b{keep}", tool="kind", args={"value": f"${{a{keep}}}"}) for keep in (True, False)),
    ]
    result = await dagrun.run(Plan(steps=steps, output=["${bTrue}", "${bFalse}"]), tools=[load, kind])

    assert result.output == ["Artifact", "Thing"]


def test_the_check_and_the_run_agree_about_strangers() -> None:
    """What can never fit is a problem before anything runs."""
    shop = Workshop()

    @dagrun.tool(effect="pure")
    async def take(value: Stranger) -> str:
        return "no"

    with pytest.raises(PlanRefused, match=r"takes objects[.]Stranger, a gives an object in memory"):
        dagrun.check(
            Plan(
                steps=[
                    Step(id="a", tool="make", args={"name": "x"}),
                    Step(id="b", tool="take", args={"value": "${a}"}),
                ]
            ),
            [take, *shop.tools],
        )
