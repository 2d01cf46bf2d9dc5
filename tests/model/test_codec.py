"""Records: every event is read back unchanged from its text, and any other text is refused."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dagrun import (
    Add,
    Answer,
    Consequence,
    Event,
    HedgeRule,
    Plan,
    Policy,
    RetryRule,
    State,
    Step,
    Unavailable,
    Verdict,
)
from dagrun.codec import RECORDED, Fields, decode_event, encode_event
from dagrun.errors import ContractError, RecordRefused, UnknownFormat, ValueRefused
from dagrun.events import AttemptEnded, AttemptStarted, ModelCharged, RunStarted, Spliced, StepExpanded, StepSettled
from dagrun.kernel.model import event as events
from dagrun.kernel.model.event import Opening
from dagrun.kernel.model.outcome import PROCEED, Decision, Outcome, Recovery
from dagrun.kernel.model.value import Stored, to_json
from dagrun.kernel.model.value import decode as decode_value
from dagrun.kernel.model.value import encode as store
from folders import DATA, python_path
from fuzz import run_case
from random_cases import make_case
from records import EXAMPLES
from seeds import choose_seeds

FIXTURE: Final = DATA / "journal_format_1.jsonl"

TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['"', "\\", "\u2028\u2029\x85", "\x00\x1f\x7f", "\n\r\t", "</script>", "é€😀", "${load}", '{"v":1}']
)
NUMBERS: Final = (
    st.integers()
    | st.integers(-(2**4000), 2**4000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 1e16, 1e15, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, 2**63, 2**64])
)
PLAIN: Final = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
VALUES: Final[st.SearchStrategy[Stored]] = PLAIN.map(store)


def ended(value: Stored, **facts: Any) -> AttemptEnded:
    """Return the end of an attempt with the output *value*."""
    return AttemptEnded(3, 0.5, "load", 1, State.SUCCEEDED, Outcome(State.SUCCEEDED, value, **facts), PROCEED)


def same(event: Event) -> Any:
    """Return *event* as it is read back: equal, with equal types, and with an equal text when it is written again."""
    text = encode_event(event)
    back = decode_event(text)
    assert back == event
    assert repr(back) == repr(event)  # 1 == 1.0 == True, and a tuple is no list
    assert encode_event(back) == text
    assert b"\n" not in text
    assert json.loads(text)["v"] == 1
    return back


# Round trips ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_every_event_comes_back_as_it_was(event: Event) -> None:
    """A resumed run must continue from exactly the state of the recorded run."""
    same(event)


def test_every_class_of_events_has_an_example() -> None:
    """A new event must be added to the examples, and so to all tests in this file."""
    classes = {kind.__name__ for kind in Event.__subclasses__() if kind.__module__.startswith("dagrun.")}

    assert {type(event).__name__ for event in EXAMPLES} == classes - {"Progress", "Gap"} == set(RECORDED)


def test_a_record_begins_with_its_format_and_its_event() -> None:
    """Other programs that read records can rely on the first four fields, and on the order of the rest."""
    for event in EXAMPLES:
        fields = list(json.loads(encode_event(event)))
        assert fields[:4] == ["v", "event", "seq", "at"]

    assert encode_event(EXAMPLES[4]) == (
        b'{"v":1,"event":"AttemptStarted","seq":2,"at":3.25,"step":"first","attempt":1,"tool":"add"}'
    )


def test_the_short_way_of_the_hot_path_gives_what_the_long_one_gives() -> None:
    """Attempts have fast encoders, which must write the same text as the general one."""
    values: list[Stored] = [None, True, False, 0, -1, 2**70, 1.0, -0.0, 1e16, 1e-7, "", 'a"\\\n\x00é', b"[1]", b"{}"]
    ends = [ended(value) for value in values]
    ends += [ended(1, tokens=3), ended(1, cost=0.0), ended(1, surprise="x"), ended(Unavailable("secret"))]
    ends += [replace(ended(1), decision=decision) for decision in (Decision(Recovery.PROCEED, "why"),)]
    ends += [replace(ended(1), at=at, step=step) for at in (0.0, 1e-9, 12.000001, 1e15, 1e22) for step in ("a", 'a"é')]
    starts = [AttemptStarted(9, at, step, 2, "t") for at in (0.0, 1e-4, 0.1 + 0.2, 1e15) for step in ("a[0]", "\u2028")]

    for event in (*ends, *starts, *(e for e in EXAMPLES if isinstance(e, AttemptStarted | AttemptEnded))):
        name = type(event).__name__
        assert encode_event(event) == b'{"v":1,"event":"%b",%b}' % (name.encode(), Fields(type(event)).write(event))


@given(VALUES)
def test_a_value_comes_back_as_the_very_same(value: Stored) -> None:
    """Hashes are made of its bytes, and the next step gets its type."""
    for event in (ended(value), ended(value, tokens=1), StepSettled(1, 0.0, "a", State.SUCCEEDED, "", value=value)):
        back = same(event)
        given_back = back.value if isinstance(back, StepSettled) else back.outcome.value
        assert type(given_back) is type(value)
        assert to_json(given_back) == to_json(value)
        assert repr(decode_value(given_back)) == repr(decode_value(value))


@given(st.lists(VALUES, max_size=5))
def test_elements_come_back_as_the_very_same(values: list[Stored]) -> None:
    """After a resume, each child of a for_each must be called with an equal element."""
    assert repr(same(StepExpanded(1, 0.0, "a", tuple(values))).items) == repr(tuple(values))


@pytest.mark.parametrize("text", [b'{"a": 1}', b"[ ]", b'{"a":1,"a":2}', b"[1E5,1.50,-0]", b'["\\u0041\\/"]'])
def test_the_text_of_a_container_is_not_rewritten(text: bytes) -> None:
    """Other writers may format JSON differently; the stored bytes must not change."""
    assert same(ended(text)).outcome.value == text


@given(st.floats(allow_nan=False), st.integers(0), TEXTS)
def test_numbers_and_texts_come_back_as_they_were(number: float, count: int, text: str) -> None:
    """The numbers of events must not change either: a rounded clock would move deadlines."""
    same(AttemptStarted(count, number, text, 1, text))
    same(events.CeilingNear(count, number, text, number, number))


def test_all_that_random_runs_tell_comes_back() -> None:
    """The events of real runs, with failures, retries, patches, questions and planners, are read back unchanged."""
    for seed in choose_seeds(8, 200):
        for event in itertools.chain(*run_case(make_case(seed)).seen):
            if type(event).__name__ in RECORDED:
                same(replace(event, checked=None) if isinstance(event, Spliced) else event)


def test_half_a_character_survives() -> None:
    """A tool may ask with a text that cannot be encoded in UTF-8; that must not make the record unreadable."""
    same(events.GoalChanged(1, 0.0, "half \ud800 of it"))
    same(AttemptStarted(1, 0.0, "\udfff", 1, "t"))


def test_what_a_plan_leaves_unsaid_stays_unsaid() -> None:
    """A default of null differs from no default, and an output of null from no output."""
    unsaid, said = Step(id="a", tool="t"), Step(id="b", tool="t", default=None)
    plan = Plan(steps=[unsaid, said])
    opening = Opening(plan=plan, policy=Policy(), inputs=b"{}", tools={})
    started = same(RunStarted(1, 0.0, "r", 2, "", 0.0, opening))
    edits = same(Spliced(1, 0.0, 1, "host", "", (Add(step=unsaid), Add(step=said)), Consequence())).edits

    for steps in (started.opening.plan.steps, [edit.step for edit in edits]):
        assert [step.has_default for step in steps] == [False, True]
        assert [step.model_fields_set for step in steps] == [unsaid.model_fields_set, said.model_fields_set]
    assert started.opening.plan.model_fields_set == {"steps"}


def test_a_patch_that_was_checked_is_checked_anew() -> None:
    """A checked patch holds tools, and follows from its edits; so it is not recorded."""
    spliced = Spliced(1, 0.0, 1, "host", "", (), Consequence(), checked=object())

    back = decode_event(encode_event(spliced))

    assert isinstance(back, Spliced)
    assert back.checked is None
    assert back == replace(spliced, checked=None)


def test_a_verdict_is_not_shortened_twice() -> None:
    """The reason of a verdict was shortened when it was made, and must stay as it was recorded."""
    verdict = Verdict("fail", reason="\n" * 400 + "long " * 400)

    same(events.Reviewed(1, 0.0, "a", 1, State.FAILED, (verdict,), Outcome(State.FAILED), PROCEED))


def test_a_value_that_is_not_in_the_record_is_marked_as_such() -> None:
    """The mark is a field of its own, in place of the value, so that no output of a tool can look like it."""
    away, alike = Unavailable("it holds a secret"), store({"unavailable": "it holds a secret"})
    one, other = json.loads(encode_event(ended(away))), json.loads(encode_event(ended(alike)))

    assert (one["outcome"].get("value", "none"), one["outcome"]["unavailable"]) == ("none", "it holds a secret")
    assert "unavailable" not in other["outcome"]
    assert same(ended(away)).outcome.value == away
    assert same(ended(alike)).outcome.value == alike


def test_nobody_takes_the_mark_for_a_value() -> None:
    """A step that needs a value that is not in the record must fail, and say why."""
    for use in (decode_value, to_json, store, lambda value: store([value])):
        with pytest.raises(ValueRefused, match="it holds a secret"):
            use(Unavailable("it holds a secret"))
    with pytest.raises(ValueRefused, match="only a field"):
        encode_event(StepExpanded(1, 0.0, "a", (Unavailable("x"),)))


@pytest.mark.parametrize("value", [None, [None, "é"], 1e16, 1e-7, 2**70])
@pytest.mark.parametrize("goal", ["whole", "half \ud800 of it", "\\udead"])
def test_a_plan_comes_back_whichever_way_it_is_written(goal: str, value: object) -> None:
    """A text of a host or a person may hold a lone surrogate: the run must be readable all the same."""
    step = Step(id="a", tool="t", args={"x": value}, depends_on=["b"], retry=RetryRule(factor=3), description=goal)
    policy = Policy(max_seconds=3, max_running_by_tool={"t": 2})
    opening = Opening(plan=Plan(steps=[step], goal=goal), policy=policy, inputs=None, tools={})
    same(RunStarted(1, 0.0, "run", 1, goal, 0.0, opening))
    same(Spliced(2, 0.0, 1, "host", goal, (Add(step=step),), Consequence()))


def test_infinity_is_kept_and_nan_refused() -> None:
    """A sum of costs may be infinite; NaN does not equal itself, and is not JSON."""
    same(events.CeilingNear(1, 0.0, "c", math.inf, -math.inf))
    for event in (events.CeilingNear(1, 0.0, "c", math.nan, 0.0), ModelCharged(1, 0.0, 1, 1, math.nan)):
        with pytest.raises(ValueRefused, match="NaN"):
            encode_event(event)
    with pytest.raises(ValueRefused, match="not a JSON value"):
        encode_event(events.QuestionAnswered(1, 0.0, "q", "", Answer("approve", math.nan), None))


def test_no_limit_is_infinite() -> None:
    """The policy and the plan are recorded with the run. JSON has no infinity, so it would be read back as no limit."""
    for kind in (Policy, HedgeRule, RetryRule):
        numbers = [name for name, field in kind.model_fields.items() if "float" in str(field.annotation)]
        assert numbers
        for name, number in itertools.product(numbers, (math.inf, math.nan)):
            with pytest.raises(ValidationError):
                kind.model_validate({name: number})


def test_figures_of_other_types_are_recorded_as_plain_ones() -> None:
    """A tool may report its usage with a number of numpy, or half a token."""

    class Whole:
        def __index__(self) -> int:
            return 7

    class Cost(float):
        def __repr__(self) -> str:
            return f"Cost({float(self)})"

    reported = Outcome(State.SUCCEEDED, 1, tokens=Whole(), cost=Cost(0.5))  # type: ignore[arg-type]
    back = decode_event(encode_event(replace(ended(1), outcome=reported)))
    assert isinstance(back, AttemptEnded)
    assert (back.outcome.tokens, repr(back.outcome.cost)) == (7, "0.5")

    half = Outcome(State.SUCCEEDED, 1, tokens=2.5)  # type: ignore[arg-type]
    assert b'"tokens":3,' in encode_event(replace(ended(1), outcome=half))


@pytest.mark.parametrize("event", [events.Progress(1, 0.0, "a", 0.5, ""), events.Gap(1, 0.0, 3), Event(1, 0.0)])
def test_what_changes_no_state_is_not_recorded(event: Event) -> None:
    """A tool that reports its progress a million times must not fill a disk."""
    with pytest.raises(ContractError, match="is not recorded"):
        encode_event(event)
    name = type(event).__name__
    with pytest.raises(RecordRefused, match="is no event that is recorded"):
        decode_event(b'{"v":1,"event":"%b","seq":1,"at":0.0}' % name.encode())


# What is refused ------------------------------------------------------------------------------------------------------

STARTED: Final = '{"v":1,"event":"AttemptStarted","seq":2,"at":0.5,"step":"a","attempt":1,"tool":"t"}'
ENDED: Final = encode_event(ended(5)).decode()
REVIEWED: Final = encode_event(next(e for e in EXAMPLES if isinstance(e, events.Reviewed))).decode()
OPENED: Final = encode_event(EXAMPLES[0]).decode()
ASKED: Final = encode_event(next(e for e in EXAMPLES if isinstance(e, events.QuestionAsked))).decode()
PATCHED: Final = encode_event(next(e for e in EXAMPLES if isinstance(e, Spliced))).decode()
DEEP: Final = "[" * 100_000 + "]" * 100_000

REFUSED: Final = {
    "nothing": ("", "expected a value, got the end of the text"),
    "no JSON": ("AttemptStarted", "expected a value"),
    "a list": ("[1]", "not a record of a run"),
    "no version": ('{"event":"RunEnded"}', "not a record of a run"),
    "a version of another type": ('{"v":"1","event":"RunEnded"}', "v: expected the number of a format"),
    "version true": ('{"v":true,"event":"RunEnded"}', "v: expected the number of a format"),
    "version 0": ('{"v":0,"event":"RunEnded"}', "v: expected the number of a format"),
    "an unknown event": (STARTED.replace("AttemptStarted", "StepVanished"), "'StepVanished' is no event"),
    "a class that is no event": (STARTED.replace("AttemptStarted", "Outcome"), "'Outcome' is no event"),
    "no name": ('{"v":1,"seq":2}', "'None' is no event"),
    "a list for a name": ('{"v":1,"event":["RunEnded"]}', "is no event"),
    "another order": ('{"event":"AttemptStarted","v":1,"seq":2}', "begins with v, event, seq and at"),
    "blanks": (json.dumps(json.loads(STARTED)), "no blanks"),
    "blanks inside": (STARTED.replace('"step":"a"', '"step": "a"'), "step: expected a value"),
    "cut": (STARTED[:-1], "broken JSON"),
    "cut in a text": (STARTED[:-5], "broken JSON"),
    "two records": (STARTED + STARTED, "more after the end"),
    "a line break": (STARTED + "\n", "one line"),
    "a line break inside": (ENDED.replace('"value":5', '"value":[1,\n2]'), "one line"),
    "a missing field": (STARTED.replace(',"attempt":1', ""), "the field attempt is missing"),
    "a missing last field": (STARTED.replace(',"tool":"t"', ""), "the field tool is missing"),
    "an extra field": (STARTED.replace('"tool"', '"colour":1,"tool"'), "there is no field colour"),
    "an extra last field": (STARTED[:-1] + ',"colour":1}', "there is no field colour"),
    "a field twice": (STARTED[:-1] + ',"tool":"u"}', "not just these, in this order"),
    "fields in another order": (
        STARTED.replace('"step":"a","attempt":1', '"attempt":1,"step":"a"'),
        "not just these, in this order: seq, at, step",
    ),
    "no comma": (STARTED.replace('0.5,"step"', '0.5"step"'), "broken JSON"),
    "a mark without a comma": (
        ENDED.replace('"succeeded","value":5', '"succeeded""unavailable":"x"'),
        "outcome: broken JSON",
    ),
    "a text for a number": (STARTED.replace('"seq":2', '"seq":"2"'), "seq: expected a whole number, got a text"),
    "a fraction for a whole number": (STARTED.replace('"seq":2', '"seq":2.0'), "seq: expected a whole number"),
    "true for a number": (STARTED.replace('"attempt":1', '"attempt":true'), "attempt: expected a whole number"),
    "true for a time": (STARTED.replace("0.5", "true"), "at: expected a number, got a boolean"),
    "NaN": (STARTED.replace("0.5", "NaN"), "at: NaN is not JSON"),
    "Infinity": (STARTED.replace("0.5", "-Infinity"), "at: -Infinity is not JSON"),
    "NaN in a value": (ENDED.replace('"value":5', '"value":[NaN]'), "outcome.value: NaN is not JSON"),
    "a number too long to be read": (ENDED.replace(":5,", f":{'9' * 5000},"), "outcome.value: broken JSON"),
    "null for a text": (STARTED.replace('"step":"a"', '"step":null'), "step: expected a text, got null"),
    "a raw control character": (STARTED.replace('"a"', '"a\x01"'), "step: broken JSON"),
    "an unknown state": (
        ENDED.replace('"state":"succeeded"', '"state":"great"', 1),
        "state: 'great' is none of waiting",
    ),
    "a list for a state": (ENDED.replace('"state":"succeeded"', '"state":[]', 1), "state: expected a text"),
    "an unknown decision": (ENDED.replace("proceed", "explode"), "decision.recovery: 'explode' is none of"),
    "a text for an object": (ENDED.replace('"failure":null', '"failure":"no"'), "outcome.failure: expected an object"),
    "a field missing inside": (ENDED.replace('"tokens":0,', ""), "outcome: the field tokens is missing"),
    "a value and a mark": (ENDED.replace(":5,", ':5,"unavailable":"x",'), "outcome: its fields are not just these"),
    "neither": (ENDED.replace('"value":5,', ""), "outcome: the field value is missing"),
    "a mark without a reason": (
        ENDED.replace('"value":5', '"unavailable":null'),
        "outcome: expected a text, got null",
    ),
    "a mark where no value is": (STARTED.replace('"step":"a"', '"unavailable":"x"'), "the field step is missing"),
    "an unknown verdict": (REVIEWED.replace('"surprising"', '"great"'), "verdicts.result: 'great' is none of pass"),
    "a score above 1": (REVIEWED.replace('"score":0.5', '"score":7'), "verdicts: a score is from 0 to 1"),
    "a list with a comma too many": (REVIEWED.replace("}],", "},],"), "verdicts"),
    "nesting without end": (ENDED.replace('"value":5', f'"value":{DEEP}'), "outcome.value: nested too deep"),
    "nesting without end before the name": (f'{{"v":{DEEP}}}', "nested too deep"),
    "an unknown field of a plan": (
        OPENED.replace('"tool":"add"', '"tool":"add","shell":"rm"'),
        "opening.plan: steps.0.",
    ),
    "a plan that is none": (OPENED.replace('"plan":{"steps":[', '"plan":{"steps":[7,'), "opening.plan: steps.0"),
    "a policy that is none": (OPENED.replace('"max_running":4', '"max_running":0'), "opening.policy: max_running"),
    "a key twice": (
        OPENED.replace('"roots":{', '"roots":{"load":["x",1],'),
        "opening.roots: the key 'load' occurs twice",
    ),
    "a root without generation": (OPENED.replace('["load-1",2]', '["load-1"]'), "opening.roots: expected ,"),
    "a root too long": (OPENED.replace('["load-1",2]', '["load-1",2,3]'), "opening.roots: expected ]"),
    "an unknown question": (ASKED.replace('"kind":"input"', '"kind":"bribe"'), "question.kind: 'bribe' is none of"),
    "an unknown answer": (ASKED.replace('"choice":"approve"', '"choice":"yes"'), "question.default.choice: 'yes'"),
    "an unknown edit": (PATCHED.replace('"op":"add"', '"op":"exec"'), "edits"),
    "pickle": ("\x80\x04\x95", "expected a value"),
    "YAML": ("!!python/object/apply:os.system ['true']", "expected a value"),
    "a class by name": ('{"v":1,"event":"os.system","seq":1,"at":0.0}', "'os.system' is no event"),
    "a class of another library": ('{"lc":2,"type":"constructor","id":["os","system"]}', "not a record of a run"),
    "a reducer": ('{"v":1,"event":"__reduce__","seq":1,"at":0.0}', "'__reduce__' is no event"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_record_is_refused_with_its_place(text: str, why: str) -> None:
    """A record comes from outside: every text that `encode_event` would not write is refused."""
    with pytest.raises(RecordRefused) as caught:
        decode_event(text.encode())

    assert why in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not isinstance(caught.value, UnknownFormat)


def test_what_is_not_utf8_is_refused() -> None:
    """The error says at which byte."""
    with pytest.raises(RecordRefused, match=r"not UTF-8: .* at byte 5"):
        decode_event(STARTED.encode()[:5] + b"\xff")


@pytest.mark.parametrize("version", [2, 17, 10**400])
def test_a_later_format_is_refused_as_such(version: int) -> None:
    """The user needs a later release, not a repaired record."""
    text = STARTED.replace('"v":1', f'"v":{version}').replace("AttemptStarted", "StepVanished")

    with pytest.raises(UnknownFormat, match="this release knows 1"):
        decode_event(text.encode())


HOSTILE: Final = [
    "!!python/object/apply:os.system ['true']",
    "\x80\x04\x95cposix\nsystem\n",
    {"lc": 2, "type": "constructor", "id": ["os", "system"], "kwargs": {}},
    {"__reduce__": ["os.system", ["true"]], "py/object": "os.system", "__class__": "Opening"},
    {"event": "RunEnded", "v": 1},
    "${load.secret}",
]


@pytest.mark.parametrize("value", HOSTILE, ids=str)
def test_a_value_that_looks_like_more_is_data(value: Any) -> None:
    """No name in a record is ever imported, called or looked up outside of the list of events."""
    assert decode_value(same(ended(store(value))).outcome.value) == value


@given(st.data())
def test_no_damage_raises_anything_else(data: st.DataObject) -> None:
    """A damaged text is refused, or is a valid event."""
    text = bytearray(encode_event(data.draw(st.sampled_from(EXAMPLES))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(RecordRefused):
        assert isinstance(decode_event(bytes(text)), Event)


# The format -----------------------------------------------------------------------------------------------------------


def test_records_of_format_1_stay_readable() -> None:
    """Every released format is read by every later release; the first release has written these lines.

    They are written again as they were, but for the fields that have another place in a policy since.
    """
    lines = FIXTURE.read_bytes().splitlines()
    again = [encode_event(decode_event(line)) for line in lines]

    assert [decode_event(line) for line in lines] == list(
        EXAMPLES[: len(lines)]
    )  # later kinds of events come after these
    assert [decode_event(line) for line in again] == [decode_event(line) for line in lines]
    moved = [(json.loads(new), json.loads(old)) for new, old in zip(again, lines, strict=True) if new != old]
    assert [new["event"] for new, _ in moved] == ["RunStarted", "RunResumed"]
    for new, old in moved:
        policy, before = new["opening"].pop("policy"), old["opening"].pop("policy")
        planning = {name: before.pop(name) for name in ("replan_on", "stream_safe")}
        assert (new, policy) == (old, before | {"planning": planning})


def test_the_fixture_is_what_was_released() -> None:
    """A changed fixture would hide that records on disks have become unreadable; a new format gets its own fixture."""
    digest = hashlib.sha256(FIXTURE.read_bytes()).hexdigest()

    assert digest == "efdffaf6f1d055e4737fda96d59840c4c2fde214bd49db564d5532d304760669"


@pytest.mark.rigs
@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_a_record_is_the_same_in_every_process(seed: str) -> None:
    """The hash of a record is part of the chain, so its text must not depend on the order of a set."""
    program = "import sys; from dagrun.codec import encode_event; from records import EXAMPLES\n"
    program += "sys.stdout.buffer.write(b''.join(encode_event(event) + b'\\n' for event in EXAMPLES))"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": python_path()}

    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)

    assert done.stdout == b"".join(encode_event(event) + b"\n" for event in EXAMPLES)
