"""Redaction: a secret that a tool reveals is in nothing that leaves the run, in no encoding."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagrun
from dagrun import Brief, Event, OpenAIModel, Plan, Policy, Question, Secrets, State, Step, Unavailable, llm_tool
from dagrun.cli.terminal.event_lines import as_dict
from dagrun.codec import decode_event, encode_event
from dagrun.errors import shorten
from dagrun.events import AttemptEnded, Progress
from dagrun.features.redacted_records.records import redacted_record, without_secret_values
from dagrun.kernel.model.redaction.redactor import UNSHOWN, RedactingLogger, Redactor
from dagrun.testing import FakeModelServer
from leaky_tools import FORMS, TOOLS, VALUE, WAYS, traces_in

pytestmark = pytest.mark.anyio

SECRETS = {"api": VALUE}
OTHER = {"api": "quite-another-value"}


# What leaves a run ---------------------------------------------------------------------------------------------------


class Sinks:
    """Everything that leaves a run, as text, by name."""

    def __init__(self, secrets: dict[str, str], **policy: Any) -> None:
        self.texts: dict[str, str] = {}
        self._secrets = Secrets(secrets)
        self._policy = Policy(**policy)
        self._events: list[Event] = []
        self._briefs: list[Brief] = []
        self._questions: list[Question] = []

    async def revise(self, brief: Brief) -> None:
        """Leave the plan as it is."""
        self._briefs.append(brief)

    async def approve(self, question: Question) -> bool:
        """Say yes."""
        self._questions.append(question)
        return True

    async def run(self, *steps: Step) -> dagrun.RunResult:
        """Run *steps*, and return everything that leaves the run."""
        with logged() as stream:
            result = await dagrun.run(
                Plan(steps=steps),
                tools=TOOLS,
                secrets=self._secrets,
                policy=self._policy,
                planner=self,
                approver=self.approve,
                on_event=self._events.append,
            )
        redactor = Redactor(self._secrets)
        shown = [redactor.value(as_dict(event)) for event in self._events]
        self.texts = {
            "events": json.dumps(shown, ensure_ascii=False),
            "event texts": json.dumps([as_dict(e, with_values=False) for e in self._events], ensure_ascii=False),
            "record": "\n".join(
                redacted_record(event, self._secrets).decode()
                for event in self._events
                if not isinstance(event, Progress)
            ),
            "result": json.dumps(result.as_dict(), ensure_ascii=False),
            "log": stream.getvalue(),
            "briefs": json.dumps([brief.as_dict() for brief in self._briefs], ensure_ascii=False),
            "questions": json.dumps([question.as_dict() for question in self._questions], ensure_ascii=False),
            "failures": repr([step.failure for step in result.steps.values()]),
            "reasons": "\n".join([result.reason, *result.warnings, *(s.reason for s in result.steps.values())]),
        }
        return result


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """Collect all log records, with all of their fields."""
    stream = io.StringIO()

    class Everything(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            stream.write(logging.Formatter().format(record) + f" {vars(record)}\n")

    handler, logger = Everything(), logging.getLogger("dagrun")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def leaks(form: str) -> list[Step]:
    """Return steps that reveal the secret in every way, in one encoding."""
    gives = Step(id="gives", tool="gives", args={"form": form})
    takes = Step(id="takes", tool="takes", args={"value": "${gives}"})
    each = Step(id="each", tool="takes", for_each="${gives.rows}", args={"value": "${item}"})
    pays = Step(id="says", tool="says", args={"form": form})
    asks = Step(id="asks", tool="asks", args={"form": form})
    fails = [Step(id=f"fails_{how}", tool="fails", args={"form": form, "how": how}) for how in WAYS]
    return [gives, takes, each, pays, asks, *fails]


@pytest.mark.parametrize("brief", ["structural", "full"])
@pytest.mark.parametrize("form", FORMS)
async def test_no_form_of_a_secret_leaves_a_run(form: str, brief: str) -> None:
    """S60, S61, S62: returned, raised in ten ways, logged, reported, asked about; and the run computes with it."""
    sinks = Sinks(SECRETS, planning={"brief": brief})

    result = await sinks.run(*leaks(form))

    assert {name: traces_in(text) for name, text in sinks.texts.items() if traces_in(text)} == {}
    assert "[secret:api]" in sinks.texts["events"]
    assert result.steps["takes"].output == "True"  # it got the value, and not the text that hides it


async def test_the_canary_would_be_seen_in_every_sink() -> None:
    """A check of the test above: if the value is not registered, every sink shows it."""
    sinks = Sinks(OTHER, planning={"brief": "full"})

    await sinks.run(*leaks("exact"))

    assert [name for name, text in sinks.texts.items() if not traces_in(text)] == []


@pytest.mark.parametrize("form", FORMS)
async def test_every_form_would_be_seen(form: str) -> None:
    """The same check for every encoding: if the test could not recognise one, it would prove nothing."""
    sinks = Sinks(OTHER)

    await sinks.run(*leaks(form))

    assert traces_in(sinks.texts["result"])
    assert traces_in(sinks.texts["log"])


async def test_a_value_with_a_secret_is_not_in_the_record() -> None:
    """A resumed run must not use the text that hides the secret as the value; a value without a secret is recorded."""
    sinks = Sinks(SECRETS)
    await sinks.run(*leaks("exact"))

    events = [decode_event(line.encode()) for line in sinks.texts["record"].splitlines()]
    values = {event.step: event.outcome.value for event in events if isinstance(event, AttemptEnded)}
    assert values["gives"] == Unavailable("it holds the secret api")
    assert values["takes"] == "True"


@pytest.mark.real_time
async def test_no_model_is_told_a_secret() -> None:
    """Outputs of tools are passed to tools that ask models."""
    prompts = {}
    for name, secrets in (("hidden", SECRETS), ("teeth", OTHER)):
        with FakeModelServer(["Nothing."]) as server:
            model = OpenAIModel("m", api_key="any", base_url=server.base_url)
            asks = llm_tool(model, name="model")
            steps = (
                Step(id="gives", tool="gives", args={"form": "exact"}),
                Step(id="model", tool="model", args={"prompt": "Look.", "context": "${gives}"}),
            )
            result = await dagrun.run(Plan(steps=steps), tools=[*TOOLS, asks], secrets=secrets)
            prompts[name] = json.dumps([call.body for call in server.calls])
        assert result.steps["model"].state is State.SUCCEEDED, result.steps["model"].reason

    assert traces_in(prompts["hidden"]) == []
    assert traces_in(prompts["teeth"])


async def test_keys_that_are_secrets_are_not_in_a_structural_brief() -> None:
    """A structural brief shows keys, and some data has ids as keys."""

    @dagrun.tool(effect="read")
    async def keyed() -> dict[str, int]:
        return {"plainTOKEN12345": 1, "n": 1}

    @dagrun.tool(effect="read")
    async def broken(value: Any) -> None:
        raise dagrun.ToolError("no")

    told: list[Brief] = []

    class Planner:
        async def revise(self, brief: Brief) -> None:
            told.append(brief)

    steps = (Step(id="a", tool="keyed"), Step(id="b", tool="broken", args={"value": "${a.n}"}))
    secrets = {"api": "plainTOKEN12345"}
    await dagrun.run(Plan(steps=steps), tools=[keyed, broken], secrets=secrets, planner=Planner())

    assert told[0].results["a"] == {"n": "integer", "(other keys)": 1}


# A run without secrets writes what it always wrote -------------------------------------------------------------------


async def test_without_secrets_a_record_is_what_the_codec_says() -> None:
    """Without secrets, records are not searched, which costs nothing."""
    events: list[Event] = []
    await dagrun.run(Plan(steps=tuple(leaks("exact")[:3])), tools=TOOLS, on_event=events.append)

    kept = [event for event in events if not isinstance(event, Progress)]
    assert [redacted_record(event, Secrets()) for event in kept] == [encode_event(event) for event in kept]
    assert all(without_secret_values(event, Secrets()) is event for event in kept)


# Forms ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("around", ["{}", "x{}x", '{{"a": "{}"}}', "k={}&b=1", "Bearer {}\n{}"])
def test_each_form_is_found_within_anything(form: str, around: str) -> None:
    text = around.replace("{}", FORMS[form])
    shown = Secrets(SECRETS).replaced_in(text)

    assert Secrets(SECRETS).found_in(text) == "api"
    assert traces_in(shown) == []


@pytest.mark.rigs
@given(st.text(min_size=8, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_found_in_any_form(value: str, before: str, after: str) -> None:
    try:
        secrets = Secrets({"api": value})
    except dagrun.errors.ContractError:
        return
    for text in (value, json.dumps(value)[1:-1], repr(value)[1:-1], value.encode().hex()):
        assert "[secret:api]" in secrets.replaced_in(before + text + after) or value in "[secret:api]"


@pytest.mark.parametrize("split", ["\u200b", "\n", " ", "-"])
def test_a_secret_that_is_split_is_not_found(split: str) -> None:
    """S63: this is not promised. Reversed secrets are not found either."""
    value = "plainTOKEN12345"
    secrets = Secrets({"api": value})

    assert secrets.found_in(value[:7] + split + value[7:]) == ""
    assert secrets.found_in(value[::-1]) == ""


@pytest.mark.parametrize("kept", range(4, 15))
def test_a_secret_that_a_cut_has_halved_is_hidden(kept: int) -> None:
    """Messages are shortened, and half of a secret must not be seen either."""
    value = "plainTOKEN12345"
    text = shorten("y" * (200 - kept) + value + " and more")

    shown = Secrets({"api": value}).replaced_in(text)
    assert value[:4] not in shown
    assert shown.endswith("y[secret:api]… (224 characters)".replace("224", str(200 - kept + len(value) + 9)))


def test_of_two_secrets_that_begin_alike_the_longer_one_counts() -> None:
    secrets = Secrets({"short": "token-abc", "long": "token-abc-and-more"})

    assert secrets.replaced_in("token-abc token-abc-and-more") == "[secret:short] [secret:long]"


@pytest.mark.parametrize("value", ["\\" * 20 + "abc", "%" * 20 + "abc", '"' * 20 + "abc", "&" * 20 + "ab1", "a+b" * 40])
def test_no_secret_makes_a_search_slow(value: str) -> None:
    """A pattern with several ways to match each character could take exponential time. Measured in CPU time."""
    secrets = Secrets({"api": value})
    texts = [value[:-1] * 500, json.dumps(value[:-1] * 500), "\\" * 40_000, "%25" * 10_000, "&amp;" * 10_000]

    began = time.process_time()
    for text in texts:
        secrets.found_in(text)
    assert time.process_time() - began < 5


HOSTILE = ["eyJ", "a.", "sk-", "://a:", "-----BEGIN PRIVATE KEY-----", "bearer ", "password=", "a@", "+1 ", "DE12",
           "1 ", "key:", "x" * 50 + "=", "=1", '":"', "SG.", "basic 1", "4111 "]  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_no_text_makes_redaction_slow(part: str) -> None:
    """Twice the text takes about twice the time, not four times; a quadratic search would take minutes here."""
    redactor = Redactor(Secrets(SECRETS), ("email", "phone", "iban", "card"))

    began = time.process_time()
    redactor.text(part * (200_000 // len(part)))
    assert time.process_time() - began < 10


# The hook of the host ------------------------------------------------------------------------------------------------


async def _with_hook(redact: Any) -> dagrun.RunResult:
    @dagrun.tool(effect="read")
    async def fail() -> None:
        raise dagrun.ToolError("project Orion")

    return await dagrun.run(Plan(steps=(Step(id="a", tool="fail"),)), tools=[fail], redact=redact)


async def test_the_hook_has_the_last_word() -> None:
    result = await _with_hook(lambda text: text.replace("Orion", "[project]"))
    assert result.steps["a"].reason == "project [project]"


@pytest.mark.parametrize("broken", [lambda text: text[10_000], lambda text: None, lambda text: text + 1])
async def test_a_hook_that_fails_hides_the_whole_text(broken: Any) -> None:
    result = await _with_hook(broken)
    assert result.steps["a"].reason == UNSHOWN


# Logs ----------------------------------------------------------------------------------------------------------------


def test_the_logger_behind_decides_what_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Also if its level changes in the middle of a run."""
    behind = logging.getLogger("dagrun.tool")
    logger = RedactingLogger(behind, Redactor(Secrets(SECRETS)))
    with caplog.at_level(logging.ERROR, "dagrun.tool"):
        logger.warning("one %s", VALUE)
    with caplog.at_level(logging.INFO, "dagrun.tool"):
        logger.info("two %s", VALUE)

    assert [(record.name, record.getMessage()) for record in caplog.records] == [("dagrun.tool", "two [secret:api]")]


def test_an_exception_without_secrets_stays_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    """Handlers that group errors need the exception."""
    logger = RedactingLogger(logging.getLogger("dagrun.tool"), Redactor(Secrets(SECRETS)))
    for text in ("harmless", VALUE):
        try:
            raise ValueError(text)
        except ValueError:
            logger.exception("failed")

    assert [record.exc_info is not None for record in caplog.records] == [True, False]
    assert traces_in(caplog.text) == []


def test_a_record_of_100_mb_is_cut_before_it_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    logger = RedactingLogger(logging.getLogger("dagrun.tool"), Redactor(Secrets(SECRETS)))
    logger.warning("%s", "x" * 10_000_000)

    assert len(caplog.records[0].getMessage()) < 200_000


def test_extra_fields_of_a_record_are_cleaned(caplog: pytest.LogCaptureFixture) -> None:
    """Handlers that write JSON write all of them; an object that is no plain data is written as its text."""

    class Header:
        def __repr__(self) -> str:
            return f"Header({VALUE})"

    logger = RedactingLogger(logging.getLogger("dagrun.tool"), Redactor(Secrets(SECRETS)))
    logger.warning("sent", extra={"header": {"x": [VALUE]}, "made": Header()})

    assert traces_in(str(vars(caplog.records[0]))) == []
    assert vars(caplog.records[0])["made"] == "Header([secret:api])"
