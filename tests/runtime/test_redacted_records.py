"""Personal data that the policy keeps out of records: nowhere in them, and never computed with when it is gone."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import dagrun
from dagrun import (
    Add,
    Answer,
    ApprovalRule,
    Brief,
    MemoryJournal,
    Patch,
    Plan,
    PlanRefused,
    Policy,
    Replace,
    Run,
    RunResult,
    State,
    Status,
    Step,
    Toolbox,
    ToolContext,
    ToolError,
    Unavailable,
)
from dagrun.codec import marks_of
from dagrun.errors import CannotResume, WrongRecordKey
from dagrun.events import QuestionAsked
from dagrun.extend import Journal
from dagrun.features.redacted_records import records
from dagrun.features.redacted_records.records import as_recorded
from dagrun.kernel.model.secrets import Personal

pytestmark = pytest.mark.anyio

MAIL, CARD, IBAN, PHONE = "ann.canary@example.com", "4111 1111 1111 1111", "DE89370400440532013000", "+49 170 1234567"
ALL = f"{MAIL} {CARD} {IBAN} {PHONE}"
CANARIES = (b"canary", b"4111 1111", b"41111111", b"DE8937", b"170 1234567")
KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
OTHER = "HxAREhMUFRYXGBkaGxwdHh8AAQIDBAUGBwgJCgsMDQ4="
KINDS: tuple[Personal, ...] = ("email", "phone", "iban", "card")
POLICY = Policy(redact=KINDS, redact_records=True)

sealing = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('cryptography')")


class World:
    """Tools, and what was called of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @dagrun.tool(effect="read")
        async def person(name: str) -> dict[str, Any]:
            self.calls.append("person")
            return {"name": name, "mail": MAIL, "card": 4111111111111111, "all": [ALL]}

        @dagrun.tool(effect="effectful")
        async def register(name: str) -> dict[str, str]:
            self.calls.append("register")
            return {"name": name, "mail": MAIL}

        @dagrun.tool(effect="read")
        async def people(count: int = 2) -> list[str]:
            self.calls.append("people")
            return [f"{number}.{MAIL}" for number in range(count)]

        @dagrun.tool(effect="read")
        async def look(at: str) -> str:
            self.calls.append(f"look {at}")
            return f"seen {at}"

        @dagrun.tool(effect="read")
        async def fail(at: str, context: ToolContext) -> str:
            context.progress(0.5, f"about {ALL}")
            raise ToolError(f"no answer from {at}, {ALL}")

        @dagrun.tool(effect="effectful")
        async def send(to: str, text: str = "") -> str:
            self.calls.append(f"send {to}")
            return "sent"

        @dagrun.tool(effect="read")
        async def wants(region: str = "") -> str:
            self.calls.append(f"wants {region}")
            if not region:
                raise ToolError("which one?", missing_input="region")
            return "good"

        self.tools = Toolbox(person, register, people, look, fail, send, wants)


async def written(journal: Journal, run_id: str = "one") -> bytes:
    return b"\n".join([line.text for line in await journal.read(run_id)])


def found_in(data: bytes) -> list[bytes]:
    return [canary for canary in CANARIES if canary in data]


# Nothing in the record ------------------------------------------------------------------------------------------------


class Repairing:
    """Writes a plan step by step, repairs what fails, and looks at a new goal."""

    def __init__(self) -> None:
        self.asked = 0

    async def revise(self, brief: Brief) -> AsyncIterator[Any]:
        self.asked += 1
        if brief.is_first:
            yield Add(step=Step(id="who", tool="person", args={"name": "Ann"}, description=f"about {ALL}"))
            yield Add(step=Step(id="all", tool="people"))
            yield Add(step=Step(id="each", tool="look", args={"at": "${item} " + ALL}, for_each="${all}"))
            yield Add(step=Step(id="bad", tool="fail", args={"at": MAIL}))
            yield Add(step=Step(id="ask", tool="wants", depends_on=["bad"]))
            yield Add(step=Step(id="mail", tool="send", args={"to": "${who.mail}", "text": f"{ALL} ${{ask}}"}))
        else:
            yield Patch(
                edits=[
                    Replace(id=trigger.step, step=Step(id=f"n{self.asked}", tool="look", args={"at": ALL}))
                    for trigger in brief.triggers
                    if trigger.step
                ],
                reason=f"because of {ALL}",
                output={"to": [ALL, "${who}"]},
            )


async def everything(journal: Journal, run_id: str = "one", **options: Any) -> RunResult:
    """A run with events of nearly every kind, with personal data wherever a text can stand."""
    world = World()

    async def answer(run: Run, question: Any) -> None:
        value = f"at {ALL}" if question.name else None
        await run.answer(question, Answer("approve", value=value, by=MAIL, note=f"for {ALL}"))

    facts: dict[str, Any] = {
        "tools": world.tools,
        "planner": Repairing(),
        "policy": POLICY.model_copy(update={"approve": (ApprovalRule(tool="send", why="money"),)}),
        "journal": journal,
        "run_id": run_id,
        "inputs": {"who": ALL, "deep": {MAIL: [CARD, 4111111111111111], "password": "hunter2"}},
        "labels": {"command": ["dagrun", "do", f"write to {ALL}"]},
        "attended": True,
    }
    async with dagrun.start(goal=f"write to {ALL}", **facts, **options) as run:
        async for event in run.events():
            if isinstance(event, QuestionAsked):
                await answer(run, event.question)
                if event.question.tool == "wants":
                    new = Step(id="more", tool="look", args={"at": ALL}, description=ALL)
                    await run.splice(Patch(edits=[Add(step=new)], reason=f"the host wants {ALL}"))
        return await run.result()


async def test_no_personal_data_is_in_any_event_of_the_record() -> None:
    journal = MemoryJournal()

    result = await everything(journal)

    data = await written(journal)
    kinds = {line.text.split(b'"')[5] for line in await journal.read("one") if marks_of(line.text) is not None}
    assert result.status is Status.SUCCEEDED, result.reason
    assert found_in(data) == []
    assert b"hunter2" not in data
    assert {b"RunStarted", b"DraftStarted", b"Spliced", b"AttemptEnded", b"StepExpanded", b"QuestionAsked"} <= kinds
    assert {b"QuestionAnswered", b"StepSettled"} <= kinds


async def test_the_same_run_without_the_policy_records_it() -> None:
    """The test above would find it."""
    journal = MemoryJournal()

    world = World()
    plan = Plan(steps=[Step(id="who", tool="person", args={"name": "Ann"})])
    await dagrun.run(plan, tools=world.tools, policy=Policy(redact=KINDS), journal=journal, run_id="one")

    assert found_in(await written(journal)) != []


@sealing
async def test_with_a_key_nothing_is_readable_either_and_all_comes_back() -> None:
    journal = MemoryJournal()

    result = await everything(journal, record_key=KEY)
    past = await dagrun.replay("one", journal=journal, record_key=KEY)
    bare = await dagrun.replay("one", journal=journal)

    assert found_in(await written(journal)) == []
    assert past.states == bare.states == {id_: step.state for id_, step in result.steps.items()} | past.states
    assert past.steps["who"].output == result.steps["who"].output
    assert isinstance(bare.graph.nodes["who"].value, Unavailable)
    assert past.graph.goal == f"write to {ALL}"
    assert bare.graph.goal == "write to [email] [card] [iban] [phone]"


@pytest.mark.real_time
@pytest.mark.costly
async def test_no_byte_of_the_files_of_a_run_holds_it(tmp_path: Path) -> None:
    """Neither the database, nor its write-ahead log, nor any file beside it."""
    journal = dagrun.SQLiteJournal(tmp_path)
    try:
        await everything(journal)
        found = {path.name: found_in(path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    finally:
        await journal.aclose()

    assert "journal.db" in found
    assert {name: canaries for name, canaries in found.items() if canaries} == {}


async def test_a_large_output_with_personal_data_becomes_no_file(tmp_path: Path) -> None:
    """A file beside the record would hold what the record must not."""

    @dagrun.tool(effect="read", output_limit=1_000)
    async def large(text: str) -> list[str] | dagrun.Artifact:
        return [text] * 500

    steps = [Step(id=name, tool="large", args={"text": text}) for name, text in (("a", "x"), ("b", MAIL))]
    facts: dict[str, Any] = {"tools": [large], "artifacts": tmp_path}
    result = await dagrun.run(Plan(steps=steps), journal=MemoryJournal(), policy=POLICY, **facts)

    assert result.steps["a"].output["size"] > 1_000
    assert "holds personal data" in result.steps["b"].reason
    assert len(list(tmp_path.iterdir())) == 1


# Resuming -------------------------------------------------------------------------------------------------------------


def mailing(source: str = "person", to: str = "${who.mail}") -> Plan:
    return Plan(
        goal=f"write to {MAIL}",
        steps=[
            Step(id="who", tool=source, args={"name": "Ann"}, description=f"looks for {MAIL}"),
            Step(id="greet", tool="look", args={"at": "${who.name}"}),
            Step(id="mail", tool="send", args={"to": to, "text": "${greet}"}),
        ],
    )


ASKING = POLICY.model_copy(update={"approve": (ApprovalRule(tool="send"),)})


async def suspended(world: World, plan: Plan, **options: Any) -> MemoryJournal:
    """A run that waits for somebody to let it send the mail."""
    journal = MemoryJournal()
    facts: dict[str, Any] = {"policy": ASKING, "run_id": "one", **options}
    result = await dagrun.run(plan, tools=world.tools, journal=journal, **facts)
    assert result.status is Status.WAITING
    assert found_in(await written(journal)) == []
    return journal


async def yes(question: Any) -> bool:
    return True


async def resumed(world: World, journal: MemoryJournal, **options: Any) -> RunResult:
    async with dagrun.resume("one", journal=journal, tools=world.tools, approver=yes, **options) as run:
        return await run.result()


@sealing
@pytest.mark.parametrize("plan", [mailing(), mailing("register"), mailing(to=MAIL)])
async def test_with_the_key_a_run_goes_on_as_if_nothing_had_been_taken_out(plan: Plan) -> None:
    world, other = World(), World()
    whole = await dagrun.run(plan, tools=other.tools, policy=ASKING, approver=yes)
    journal = await suspended(world, plan, record_key=KEY, inputs={"who": MAIL})

    result = await resumed(world, journal, record_key=KEY)

    assert result.status is Status.SUCCEEDED
    assert world.calls == other.calls  # nothing is called twice
    assert result.output == whole.output
    assert found_in(await written(journal)) == []


async def test_without_the_key_what_only_looks_is_called_again() -> None:
    world = World()
    journal = await suspended(world, mailing())

    result = await resumed(world, journal)

    assert result.status is Status.SUCCEEDED
    assert world.calls == ["person", "look Ann", "person", f"send {MAIL}"]


async def test_without_the_key_what_needs_the_output_of_an_effect_is_skipped() -> None:
    world = World()
    journal = await suspended(world, mailing("register"))

    result = await resumed(world, journal)

    assert result.steps["mail"].state is State.SKIPPED
    assert result.steps["mail"].reason == "what who gave is not in the record"
    assert world.calls == ["register", "look Ann"]


@pytest.mark.parametrize(
    ("plan", "options", "what"),
    [
        (mailing(to=MAIL), {}, "its plan"),
        (mailing(), {"inputs": {"who": MAIL}}, "its inputs"),
        (mailing(to="${input.who}"), {"inputs": {"who": MAIL}}, "its inputs"),
    ],
)
async def test_without_the_key_nothing_is_computed_with_what_was_taken_out(
    plan: Plan, options: dict[str, Any], what: str
) -> None:
    world = World()
    journal = await suspended(world, plan, **options)
    called = list(world.calls)

    with pytest.raises(CannotResume, match=f"run one cannot be resumed: {what}, .* not in its record, .*record_key"):
        await resumed(world, journal)

    assert world.calls == called
    assert (await dagrun.replay("one", journal=journal)).status is Status.WAITING


@sealing
async def test_a_sealed_plan_is_asked_for_and_another_key_is_told() -> None:
    world = World()
    journal = await suspended(world, mailing(to=MAIL), record_key=KEY)

    with pytest.raises(CannotResume, match=r"its plan, .* is sealed in its record: pass the record_key"):
        await resumed(world, journal)
    with pytest.raises(WrongRecordKey, match="not the key that the run was recorded with"):
        await resumed(world, journal, record_key=OTHER)
    with pytest.raises(WrongRecordKey):
        await dagrun.replay("one", journal=journal, record_key=OTHER)
    assert (await resumed(world, journal, record_key=KEY)).status is Status.SUCCEEDED


@pytest.mark.parametrize("source", ["planner", "host"])
async def test_a_patch_that_was_redacted_stops_a_resumption(source: str) -> None:
    world = World()
    journal = MemoryJournal()
    patch = Patch(edits=[Add(step=Step(id="more", tool="look", args={"at": MAIL}))])

    async def revise(brief: Brief) -> Patch:
        return Patch(edits=[Replace(id="bad", step=Step(id="good", tool="look", args={"at": MAIL}))])

    steps = [Step(id="bad", tool="fail", args={"at": "x"})] if source == "planner" else []
    plan = Plan(steps=[*steps, Step(id="mail", tool="send", args={"to": "x"})])
    planner = type("P", (), {"revise": staticmethod(revise)})() if source == "planner" else None
    facts: dict[str, Any] = {"tools": world.tools, "policy": ASKING, "journal": journal, "run_id": "one"}
    async with dagrun.start(plan, planner=planner, **facts) as run:
        if source == "host":
            await run.splice(patch)
        assert (await run.result()).status is Status.WAITING

    assert found_in(await written(journal)) == []
    with pytest.raises(CannotResume, match="a patch of its plan"):
        await resumed(world, journal)


async def test_elements_whose_output_is_gone_are_called_again_and_joined() -> None:
    """The list of a for_each is that of its elements."""
    world = World()
    steps = [
        Step(id="all", tool="look", args={"at": "x"}),
        Step(id="each", tool="person", args={"name": "${item}"}, for_each=["Ann", "Bob"]),
        Step(id="mail", tool="send", args={"to": "${each[1].mail}"}),
    ]
    journal = await suspended(world, Plan(steps=steps))

    result = await resumed(world, journal)

    assert result.status is Status.SUCCEEDED
    assert [element["name"] for element in result.steps["each"].output] == ["Ann", "Bob"]
    assert world.calls == ["look x", "person", "person", "person", "person", f"send {MAIL}"]


async def test_elements_that_were_taken_out_are_not_computed_with() -> None:
    """The elements come from an output with personal data, and one of them waits for a person."""
    world = World()
    steps = [
        Step(id="all", tool="people"),
        Step(id="each", tool="send", args={"to": "${item}"}, for_each="${all}"),
    ]
    journal = await suspended(world, Plan(steps=steps))

    result = await resumed(world, journal)

    assert world.calls == ["people"]
    assert result.status is not Status.SUCCEEDED
    assert "not in the record" in result.steps["each[0]"].reason


async def test_a_for_each_that_has_its_elements_ends_although_its_list_is_got_again() -> None:
    """Another step needs the list. The for_each counts its elements, and the end of the list is none of them."""
    world = World()

    @dagrun.tool(effect="read")
    async def both() -> list[str]:
        world.calls.append("both")
        return ["x", MAIL]

    world.tools = Toolbox(world.tools, both)
    steps = [
        Step(id="all", tool="both"),
        Step(id="each", tool="send", args={"to": "${item}"}, for_each="${all}", on_failure="skip"),
        Step(id="first", tool="send", args={"to": "${all[1]}"}),
    ]
    journal = await suspended(world, Plan(steps=steps))

    result = await resumed(world, journal)

    assert result.steps["each[0]"].output == "sent"
    assert result.steps["each[1]"].reason == "its element is not in the record"
    assert result.steps["each"].state.is_settled
    assert sorted(world.calls) == ["both", "both", f"send {MAIL}", "send x"]
    assert (await dagrun.replay("one", journal=journal)).states == {k: v.state for k, v in result.steps.items()}


async def test_an_answer_that_was_taken_out_is_not_computed_with() -> None:
    """A person has given the region, and the process ended before the step could use it."""
    world = World()
    journal = MemoryJournal()

    async def region(question: Any) -> Answer:
        return Answer("approve", value=MAIL, by="Ann")

    plan = Plan(steps=[Step(id="ask", tool="wants")])
    facts: dict[str, Any] = {"tools": world.tools, "policy": POLICY, "journal": journal, "run_id": "one"}
    result = await dagrun.run(plan, approver=region, **facts)
    assert result.status is Status.SUCCEEDED
    whole = journal._runs["one"].texts
    answered = next(at for at, line in enumerate(whole) if b'"event":"QuestionAnswered"' in line)
    del whole[answered + 1 :]

    async with dagrun.resume("one", journal=journal, tools=world.tools, approver=region) as run:
        await run.result()

    assert found_in(await written(journal)) == []
    assert "wants " in world.calls
    assert not {call for call in world.calls if "None" in call or "[email]" in call}


@sealing
async def test_a_retry_needs_the_key_as_a_resumption_does() -> None:
    world = World()
    journal = MemoryJournal()
    plan = Plan(
        steps=[Step(id="bad", tool="fail", args={"at": MAIL}), Step(id="who", tool="person", args={"name": "A"})]
    )
    facts: dict[str, Any] = {"tools": world.tools, "journal": journal}
    await dagrun.run(plan, policy=POLICY, run_id="one", record_key=KEY, **facts)

    with pytest.raises(CannotResume, match="run one cannot be retried: its plan"):
        async with dagrun.retry("one", **facts):
            pass
    async with dagrun.retry("one", new_id="two", record_key=KEY, **facts) as run:
        result = await run.result()

    assert result.steps["who"].output["mail"] == MAIL
    assert world.calls == ["person"]
    assert found_in(await written(journal, "two")) == []


async def test_a_retry_without_the_key_calls_again_what_only_looks() -> None:
    world = World()
    journal = MemoryJournal()
    plan = Plan(
        steps=[Step(id="bad", tool="fail", args={"at": "x"}), Step(id="who", tool="person", args={"name": "A"})]
    )
    facts: dict[str, Any] = {"tools": world.tools, "journal": journal}
    await dagrun.run(plan, policy=POLICY, run_id="one", **facts)

    async with dagrun.retry("one", **facts) as run:
        await run.result()

    assert world.calls == ["person", "person"]


# Options --------------------------------------------------------------------------------------------------------------


async def test_records_that_would_lose_nothing_are_a_problem() -> None:
    world = World()
    policy = Policy(redact_records=True)

    with pytest.raises(PlanRefused) as refused:
        dagrun.check(mailing(), world.tools, policy=policy)
    with pytest.raises(PlanRefused):
        async with dagrun.start(goal="x", planner=Repairing(), tools=world.tools, policy=policy):
            pass

    assert [problem.code for problem in refused.value.problems] == ["DR216"]
    dagrun.check(mailing(), world.tools, policy=policy, redact=lambda text: text)


async def test_what_the_hook_takes_out_is_not_recorded() -> None:
    world = World()
    journal = MemoryJournal()
    policy = Policy(redact_records=True)

    def hook(text: str) -> str:
        return text.replace("Ann", "[name]")

    plan = Plan(steps=[Step(id="who", tool="look", args={"at": "Ann"})])
    result = await dagrun.run(plan, tools=world.tools, policy=policy, journal=journal, run_id="one", redact=hook)

    assert result.steps["who"].output == "seen Ann"
    assert b"Ann" not in await written(journal)
    assert (await dagrun.replay("one", journal=journal)).status is Status.SUCCEEDED


@pytest.mark.parametrize("key", ["", "short", "ä" * 44, KEY[:-4], KEY + "AAAA"])
async def test_a_malformed_key_is_refused_before_anything_is_recorded(key: str) -> None:
    journal = MemoryJournal()
    world = World()

    with pytest.raises(dagrun.errors.ContractError, match="record_key"):
        await dagrun.run(mailing(), tools=world.tools, policy=POLICY, journal=journal, run_id="one", record_key=key)

    assert await journal.runs() == []


async def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)

    with pytest.raises(dagrun.errors.MissingExtra, match=r"dagrun-engine\[encrypt\]"):
        await dagrun.run(mailing(), tools=World().tools, policy=POLICY, journal=MemoryJournal(), record_key=KEY)


async def test_a_key_without_a_journal_is_refused() -> None:
    with pytest.raises(dagrun.errors.ContractError, match="journal"):
        await dagrun.run(mailing(), tools=World().tools, policy=POLICY, record_key=KEY)


# Mutants --------------------------------------------------------------------------------------------------------------


def _forgets(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """The recorder forgets the events of one kind."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        real = as_recorded
        monkeypatch.setattr(
            records, "as_recorded", lambda event, by: (event, ()) if type(event).__name__ == name else real(event, by)
        )

    return patch


@pytest.mark.parametrize(
    "name",
    ["RunStarted", "QuestionAsked", "QuestionAnswered", "AttemptEnded", "StepExpanded", "Spliced", "DraftStarted"],
)
async def test_a_recorder_that_forgets_a_kind_of_event_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _forgets(name)(monkeypatch)
    journal = MemoryJournal()

    await everything(journal)

    assert found_in(await written(journal)) != []


async def test_a_recorder_that_says_nothing_of_lost_parts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would let the run compute with a redacted argument."""
    real = as_recorded
    monkeypatch.setattr(records, "as_recorded", lambda event, by: (real(event, by)[0], ()))
    world = World()
    journal = await suspended(world, mailing(to=MAIL))

    await resumed(world, journal)

    assert world.calls[-1] == "send [email]"
