"""No secret is in any text about a failure, whatever raised it and wherever the secret stands in it."""

from __future__ import annotations

import json
import logging
import random
import traceback
from collections.abc import Callable
from typing import Any, Final

import pytest

import dagrun
from dagrun import Event, MemoryJournal, ModelPlanner, Plan, Policy, RubricCritic, RunFailed, Step, ToolError, Verdict
from dagrun.cli.terminal.event_lines import as_dict
from dagrun.codec import encode_event
from dagrun.errors import ModelError
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.observe.narrative import answers, chronicle
from process_tools import raises_a_secret
from scripted_model import Said, ScriptedModel
from small_tools import ONCE

pytestmark = pytest.mark.anyio

SEEDS: Final = 150
PART: Final = 10  # characters of a secret that would be too many to show: half of one must not stay when a text is cut

Raise = Callable[[str], None]


def plainly(text: str) -> None:
    raise ValueError(text)


def as_a_key(text: str) -> None:
    raise KeyError(text)


def from_a_cause(text: str) -> None:
    try:
        raise OSError(text)
    except OSError as error:
        raise RuntimeError("behind it lies more") from error


def in_a_context(text: str) -> None:
    try:
        raise OSError(text)
    except OSError:
        raise RuntimeError(text)  # noqa: B904


def in_a_group(text: str) -> None:
    raise ExceptionGroup(text, [ValueError(text), ExceptionGroup("more", [OSError(text), KeyError(text)])])


def with_a_note(text: str) -> None:
    error = ValueError("no")
    error.add_note(text)
    raise error


def as_a_tool(text: str) -> None:
    raise ToolError(text, missing_input=text)


def as_a_name(text: str) -> None:
    raise type(text.strip("ab "), (Exception,), {})("no")


def as_a_model(text: str) -> None:
    raise ModelError(text, answer=text)


RAISES: Final[tuple[Raise, ...]] = (
    plainly, as_a_key, from_a_cause, in_a_context, in_a_group, with_a_note, as_a_tool, as_a_name, as_a_model,
)  # fmt: skip


class Scene:
    """One way in which something fails with a secret in its text.

    Args:
        seed: Chooses the secret, the text around it, what is raised and who raises it.
    """

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.secret = "".join(draw.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=draw.choice((16, 24, 80))))
        before, after = (draw.choice((0, 1, 90, 110, 190, 290, 299, 480, 4_000)) for _ in range(2))
        self.text = f"{'a ' * (before // 2)}{self.secret}{' b' * (after // 2)}"
        self._raise = draw.choice(RAISES)
        self._where = draw.choice(
            ("tool", "thread", "agent", "critic", "planner", "approver", "llm", "rubric", "draft")
        )
        self.name = f"{self._raise.__name__} in {self._where}"

    def _fail(self) -> Any:
        self._raise(self.text)

    def options(self) -> dict[str, Any]:
        """What `dagrun.run` is called with."""
        scene = self

        async def work() -> Any:
            """Work."""
            return scene._fail() if scene._where == "tool" else 1

        def plain() -> Any:
            """Work."""
            return scene._fail()

        async def inner() -> Any:
            """Work."""
            return scene._fail()

        class Other:
            name = "strict"

            def applies_to(self, _: Step) -> bool:
                return True

            async def review(self, *_: Any) -> Verdict:
                return scene._fail()  # type: ignore[no-any-return]

            async def revise(self, _: Any) -> Any:
                return scene._fail()

            async def __call__(self, _: Any) -> Any:
                return scene._fail()

        said = [Said(text=self.text, piece=0)] * 3
        call = {"thought": "", "call": {"tool": "inner", "args": {}}, "answer": None, "cannot": None}
        tool = dagrun.tool(effect="effectful", needs_approval=self._where == "approver")(work)
        step, tools = Step(id="s", tool="work"), [tool]
        more: dict[str, Any] = {}
        match self._where:
            case "thread":
                tools, step = [dagrun.tool(effect="pure")(plain)], Step(id="s", tool="plain")
            case "agent":
                own = dagrun.tool(effect="pure")(inner)
                tools = [dagrun.agent_tool(ScriptedModel(call, call), [own], name="agent")]
                step = Step(id="s", tool="agent", args={"task": "work"})
            case "llm":
                tools = [dagrun.llm_tool(ScriptedModel(*said), output=int)]
                step = Step(id="s", tool="llm", args={"prompt": "How many?"})
            case "critic":
                more["critics"] = [Other()]
            case "rubric":
                more["critics"] = [RubricCritic(ScriptedModel(*said), "Good.")]
            case "approver":
                more["approver"] = Other()
            case "planner":
                return {"goal": "Work", "planner": Other(), "tools": tools}
            case "draft":
                return {"goal": "Work", "planner": ModelPlanner(ScriptedModel(*said)), "tools": tools}
        return {"plan": Plan(steps=[step]), "tools": tools, **more}


class Ear(logging.Handler):
    """Formats each record as a handler of a host does."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))
        if record.exc_info:
            self.heard.append(logging.Formatter().formatException(record.exc_info))


async def texts_of(scene: Scene) -> dict[str, str]:
    """Everything that a run of *scene* says, by the place where it says it."""
    seen: list[Event] = []
    ear, journal, log = Ear(), MemoryJournal(), logging.getLogger("dagrun")
    level = log.level
    log.addHandler(ear)
    log.setLevel(logging.DEBUG)
    try:
        result = await dagrun.run(
            **scene.options(),
            secrets={"db": scene.secret},
            policy=Policy(retry=ONCE),
            on_event=seen.append,
            journal=journal,
            run_id="one",
        )
    finally:
        log.setLevel(level)
        log.removeHandler(ear)
    failures = [step.failure for step in result.steps.values() if step.failure is not None]
    past = await dagrun.replay("one", journal=journal)
    shown = {
        "events": repr(seen) + json.dumps([as_dict(event) for event in seen]),
        "record": "".join(encode_event(event).decode() for event in past.events),
        "failures": repr(failures) + "".join(f"{each.message} {each.where} {each.answer}" for each in failures),
        "tracebacks": "".join(each.traceback for each in failures),
        "result": json.dumps(result.as_dict()) + "".join(result.planner_answers),
        "inspect": "".join(map(repr, chronicle(past))) + "".join(answer.text for answer in answers(past)),
        "log": "\n".join(ear.heard),
    }
    try:
        result.raise_for_status()
    except RunFailed as error:
        shown["error"] = "".join(traceback.format_exception(error))
    await journal.aclose()
    return shown


def parts_of(secret: str) -> list[str]:
    return [secret[at : at + PART] for at in range(len(secret) - PART + 1)]


@pytest.mark.real_time
@pytest.mark.rigs
async def test_no_part_of_a_secret_is_in_any_text_about_a_failure() -> None:
    for seed in range(SEEDS):
        scene = Scene(seed)
        for place, text in (await texts_of(scene)).items():
            found = [part for part in parts_of(scene.secret) if part in text]
            assert not found, f"seed {seed} ({scene.name}): {place}: {text[max(0, text.find(found[0]) - 200) :][:400]}"


@pytest.mark.real_time
@pytest.mark.costly
async def test_a_worker_process_gives_no_secret_away_in_a_traceback() -> None:
    step = Step(id="s", tool="raises_a_secret", args={"key": {"$secret": "db"}})
    secret = "hunter2-hunter2"
    result = await dagrun.run(Plan(steps=[step]), tools=[raises_a_secret], secrets={"db": secret})
    failure = result.steps["s"].failure
    assert failure is not None

    assert "[secret:db]" in failure.traceback
    assert secret not in failure.traceback + failure.message + repr(failure)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda self, failure: failure,
        lambda self, failure: type(failure)(
            failure.kind, self.text(failure.message), failure.error, answer=failure.answer
        ),
    ],
)
async def test_texts_that_are_not_redacted_are_found(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr(Redactor, "failure", mutant)
    with pytest.raises(AssertionError, match="seed"):
        await test_no_part_of_a_secret_is_in_any_text_about_a_failure()
