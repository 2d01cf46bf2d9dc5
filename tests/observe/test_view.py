"""The view of a run: what is in it, from whatever source, and what is not."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import MemoryJournal, Plan, Policy, Secrets, Step, tool
from dagrun.errors import ContractError
from dagrun.observe.view.document import view_of
from dagrun.observe.view.shape import RunView, StepFacts
from view_runs import Played, play, rich, valid

pytestmark = pytest.mark.anyio


def by_id(view: RunView) -> dict[str, StepFacts]:
    return {step["id"]: step for step in view["steps"]}


async def seen() -> tuple[Played, RunView, dict[str, StepFacts]]:
    played = await rich()
    view = view_of(played.past)
    return played, view, by_id(view)


async def test_every_field_is_as_the_schema_says() -> None:
    """The published schema is not a wish: a view with everything in it is valid, and plain JSON."""
    _, view, _ = await seen()

    valid(json.loads(json.dumps(view)))


async def test_record_and_result_show_the_same() -> None:
    """The result of a run without a journal knows all that the record knows."""
    played, view, _ = await seen()

    assert view_of(played.result) == view


async def test_live_run_has_a_view() -> None:
    """Steps that run have no end, and those that wait wait until now."""

    @tool(effect="read")
    async def work() -> int:
        """Work."""
        await anyio.sleep(2)
        return 1

    plan = Plan(steps=[Step(id="a", tool="work"), Step(id="b", tool="work"), Step(id="c", tool="work")])
    async with dagrun.start(plan, tools=[work], policy=Policy(max_running=1)) as run:
        await anyio.sleep(3)
        view = view_of(run)
        await run.result()

    a, b, c = view["steps"]
    assert view["run"]["state"] == "running"
    assert (a["state"], b["state"], c["state"]) == ("succeeded", "running", "ready")
    assert (b["attempts"][0]["ended"], b["attempts"][0]["state"]) == (None, None)
    assert c["waits"] == [["slot", 0.0, None]]
    assert view["run"]["slots"] == {"max_running": [1, 1]}
    assert c["limits"] == ["max_running"]


async def test_arguments_are_filled_in_again() -> None:
    """They are not on record, and still the view shows what each call was made with."""
    _, _, steps = await seen()

    args = {id_: json.loads(step["args"]["$value"]["json"]) for id_, step in steps.items() if step["args"]}
    assert args["pay"] == {"amount": 15.0, "to": "ann@example.org"}
    assert args["scores[3]"] == {"row": {"i": 3, "v": 4.5}}
    assert args["total"]["rate"] == 1.0


async def test_planned_arguments_of_a_step_that_never_ran() -> None:
    """They keep their references, and say that they are planned."""

    @tool(effect="read")
    async def fail() -> int:
        """Fail."""
        raise dagrun.ToolError("no")

    @tool(effect="read")
    async def use(value: int) -> int:
        """Use."""
        return value

    played = await play(
        Plan(steps=[Step(id="a", tool="fail"), Step(id="b", tool="use", args={"value": "${a}"})]), [fail, use]
    )

    value = view_of(played.past)["steps"][1]["args"]
    assert value == {"$value": {"json": '{"value":"${a}"}', "bytes": 16, "planned": True}}


async def test_long_values_are_cut_after_they_were_redacted() -> None:
    """A secret on the edge of the cut is not shown in half; the hash and the size are those of the redacted text."""
    secret = "correct-horse-battery-staple"

    @tool(effect="read")
    async def tell(size: int) -> str:
        """Tell a long story."""
        return "x" * size + secret + "y" * 100

    plan = Plan(steps=[Step(id="a", tool="tell", args={"size": 1_990})])
    played = await play(plan, [tell], secrets=Secrets({"key": secret}))

    value = view_of(played.result)["steps"][0]["output"]
    assert value is not None
    shown = value["$value"]
    assert shown["cut"]
    assert len(shown["json"]) == 2_000
    assert "corr" not in shown["json"]
    assert view_of(played.result)["left_out"]["values"] >= 1
    assert "horse" not in json.dumps(view_of(played.result, values="full"))


async def test_nothing_hidden_is_in_any_view() -> None:
    """Not in arguments that were filled in again, not in questions, texts or the goal."""
    canary, card = "s3cr3t-canary-value", "4111 1111 1111 1111"

    @tool(effect="effectful", needs_approval=True)
    async def pay(note: str, card: str) -> str:
        """Pay."""
        return note

    @tool(effect="read")
    async def read() -> str:
        """Read something with a secret in it."""
        return f"the key is {canary}, the card {card}"

    plan = Plan(
        steps=[
            Step(id="read", tool="read"),
            Step(id="pay", tool="pay", args={"note": "${read}", "card": card}),
        ],
    )

    async def approve(question: dagrun.Question) -> dagrun.Answer:
        return dagrun.Answer("approve", note=f"card {card}, key {canary}")

    played = await play(
        plan, [read, pay], approver=approve, secrets=Secrets({"key": canary}), policy=Policy(redact=["card"])
    )

    for view in (view_of(played.past, values="full"), view_of(played.result, values="full")):
        text = json.dumps(view)
        assert canary not in text
        assert "4111" not in text


async def test_values_are_left_out_on_request() -> None:
    """For a report to strangers: no output, no argument, no answer."""
    played, _, _ = await seen()
    view = view_of(played.past, values="none")

    assert by_id(view)["pay"]["output"] == {"$value": {"left_out": True}}
    assert "ann@example.org" not in json.dumps(view["steps"])
    assert view["left_out"]["values"] > 20


async def test_numbers_of_steps_lead_to_needs_elements_and_substitutes() -> None:
    """Every reference between steps is a number of the list."""
    _, view, steps = await seen()
    ids = [step["id"] for step in view["steps"]]

    assert [step["n"] for step in view["steps"]] == list(range(len(ids)))
    assert [ids[n] for n in steps["total"]["needs"]] == ["clean-orders", "clean-moody", "clean-big", "rates"]
    assert [ids[n] for n in steps["scores"]["children"] or ()] == ["scores[0]", "scores[4]"]
    assert steps["scores[2]"]["parent"] == steps["scores"]["n"]
    assert steps["orders"]["substitute"] == steps["orders-mirror"]["n"]
    assert (steps["orders"]["gone"], steps["orders-mirror"]["revision"]) == (1, 1)


async def test_change_of_the_plan_says_what_ran_on() -> None:
    """With the diff, who asked for it, and when."""
    _, view, steps = await seen()
    (change,) = view["revisions"]

    assert (change["origin"], change["is_draft"]) == ("planner", False)
    assert [line[0] for line in change["diff"]] == ["-", "-", "+", "+"]
    assert change["at"] - change["asked_at"] == pytest.approx(0.35)
    assert steps["big"]["n"] in change["ran_on"]


async def test_question_has_its_answer() -> None:
    """Who answered, when, and why."""
    _, view, _ = await seen()
    (question,) = view["questions"]

    assert question["answer"] == {
        "choice": "approve",
        "value": None,
        "by": "ann",
        "note": "invoice seen",
        "ticked": [],
    }
    assert question["answered_at"] is not None
    assert question["answered_at"] - question["asked_at"] == pytest.approx(0.4)


async def test_log_tells_what_did_not_go_well() -> None:
    """Failures and rare events are told, successes are not."""
    _, view, _ = await seen()
    told = {(line["about"], line["event"]) for line in view["log"]}

    assert ("moody", "AttemptEnded") in told
    assert ("plan", "Spliced") in told
    assert ("clean-big", "AttemptEnded") not in told
    assert [line["at"] for line in view["log"]] == sorted(line["at"] for line in view["log"])


async def test_run_json_of_the_last_release_has_a_state() -> None:
    """Its name was `stand`, which views keep for one release."""
    _, view, _ = await seen()
    old = json.loads(json.dumps(view))
    assert old["run"].pop("state") == old["run"]["stand"] == "ended"

    assert view_of({"run_id": "r", "view": old})["run"] == view["run"]


async def test_run_json_of_the_first_schema_is_refused_with_what_to_do() -> None:
    """It has no view, and so neither needs nor a plan."""
    played, _, _ = await seen()
    old: dict[str, Any] = {"schema_version": 1, **played.result.as_dict()}

    with pytest.raises(ContractError, match=r"is of schema 1, .*; name the recorded run instead, or run it again"):
        view_of(json.loads(json.dumps(old)))


@pytest.mark.parametrize("wrong", [{}, {"a": 1}, {"view": 3}])
async def test_what_is_no_run_has_no_view(wrong: Any) -> None:
    """And the error says so."""
    with pytest.raises(ContractError, match="no run"):
        view_of(wrong)


async def test_interrupted_run_ends_where_its_record_does() -> None:
    """The bars of what ran then have no end."""
    journal = MemoryJournal()

    @tool(effect="read")
    async def work() -> int:
        """Work."""
        await anyio.sleep(5)
        return 1

    plan = Plan(steps=[Step(id="a", tool="work"), Step(id="b", tool="work", depends_on=["a"])])
    with anyio.move_on_after(7):
        await dagrun.run(plan, tools=[work], journal=journal, run_id="cut")
    past = await dagrun.replay("cut", journal=journal)
    lines = [event for event in past.events if event.at <= 5.0 and type(event).__name__ != "RunSuspended"]
    from dagrun.api.replaying import replayed

    view = view_of(replayed("cut", lines))

    assert view["run"]["state"] == "interrupted"
    assert view["steps"][1]["attempts"][0]["ended"] is None
