"""``dagrun eval from``: a recorded run becomes a file that passes at once, and that other limits change."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys

import pytest
import yaml

from command_line import Shell, shell
from dagrun.errors import CasesRefused

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

TOOLS = '''
import dagrun


@dagrun.tool(effect="read")
async def get_order(order: int) -> dict:
    """Look an order up."""
    return {"id": order, "total": 30.0, "note": "no"}


@dagrun.tool(effect="read")
async def rate(currency: str, rows: list[int]) -> float:
    """Get a rate."""
    raise ConnectionError("the bank does not answer")


@dagrun.tool(effect="effectful")
async def pay_back(order: int, total: float) -> str:
    """Pay it back."""
    raise AssertionError("this is called by nobody")
'''
STEPS = [
    {"id": "order", "tool": "get_order", "args": {"order": "${input.order}"}},
    {"id": "rate", "tool": "rate", "args": {"currency": "EUR", "rows": [*range(100)]}},
    {"id": "pay", "tool": "pay_back", "args": {"order": 17, "total": "${order.total}"}, "depends_on": ["rate"]},
]


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has modules of its own by the same names."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("shop", "others"):
        sys.modules.pop(name, None)


@pytest.fixture
def failed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A run on record that has failed. Cases leave out what its calls took: a busy machine may take 10 ms for one."""
    monkeypatch.setattr("dagrun.evaluate.cases.recorded_case._seconds", lambda _: {})
    shell.file("shop.py", TOOLS)
    shell.plan(*STEPS, name="refund.json")
    assert shell("run", "refund.json", "--tools", "./shop.py", "-i", "order=17").code == 1
    return shell


def test_a_run_becomes_a_case_that_passes_at_once(failed: Shell) -> None:
    made = failed("eval", "from", "last", "-o", "evals/incident.yaml")
    text = (failed.folder / "evals/incident.yaml").read_text()

    assert made.code == 0, made.err
    assert f"evals/incident.yaml: {failed.run_id}, 2 acts, 2 tools" in made.out
    assert "it comes to the same as on record" in made.out
    assert "redact function" not in made.err + text  # the command line has none
    assert "tools: ../shop.py" in text
    assert "get_order: {return: {id: 17, total: 30.0, note: 'no'}}" in text
    assert "rate: {raise: {connection: the bank does not answer}}" in text
    assert "pay: {state: skipped, attempts: 0}" in text
    assert failed("eval", "evals/incident.yaml").code == 0


def test_other_limits_are_seen_in_the_case(failed: Shell) -> None:
    failed("eval", "from", "last", "-o", "case.yaml", "--id", "bank-is-down")
    failed.file("strict.toml", 'last_resort = "escalate"\n')
    ended = failed("eval", "case.yaml", "--policy", "strict.toml")

    assert ended.code == 1
    assert "bank-is-down  0/1 FAILED" in ended.out
    assert "status is escalated, not failed" in ended.out


def test_without_a_file_the_case_is_printed(failed: Shell) -> None:
    printed = failed("eval", "from", "last")
    as_json = failed("eval", "from", "last", "--json")

    assert printed.out.startswith(f"# Run {failed.run_id} of ")
    assert as_json.json["case"]["cases"][0]["expect"]["status"] == "failed"


def test_a_case_that_does_not_come_to_the_same_says_where(failed: Shell) -> None:
    """The tools have changed since: the order is called by another name, and the plan does not pass."""
    changed = TOOLS.replace("def rate(currency: str, rows: list[int]) -> float", "def rate(currency: str) -> float")
    failed.file("others.py", changed)
    ended = failed("eval", "from", "last", "-o", "case.yaml", "--tools", "./others.py")

    assert ended.code == 1
    assert "it does not come to the same as on record:" in ended.out
    assert "status is refused, not failed" in ended.out


def test_wrong_usage(failed: Shell) -> None:
    failed.file("there.yaml", "")
    for args, told in (
        (["nope"], "there is no run nope"),
        (["last", "-o", "there.yaml"], "there.yaml is there already; --force writes over it"),
        (["last", "-o", "case.json"], "case.json: a file of cases is called .yaml"),
        (["last", "--runs", str(failed.runs)], "no code that they name is imported; name the tools: --tools ./shop.py"),
    ):
        ended = failed("eval", "from", *args)
        assert (ended.code, told in ended.err) == (2, True), ended.err
    assert failed("eval", "from", "last", "-o", "there.yaml", "--force").code == 0


def test_a_run_that_goes_on_is_refused(shell: Shell) -> None:
    shell.file("shop.py", TOOLS.replace('"effectful"', '"effectful", needs_approval=True'))
    shell.plan({"id": "pay", "tool": "pay_back", "args": {"order": 1, "total": 2.0}}, name="pay.json")
    assert shell("run", "pay.json", "--tools", "./shop.py").code == 5
    ended = shell("eval", "from", "last")

    assert ended.code == 2
    assert "has not ended (waiting: nobody is there to answer about pay): a case says how it ends" in ended.err


def test_a_redacted_record_is_refused(shell: Shell) -> None:
    shell.file("shop.py", TOOLS)
    shell.trusted("policy.toml", 'redact = ["email"]\nredact_records = true\n')
    shell.plan({"id": "r", "tool": "rate", "args": {"currency": "ann@example.org", "rows": []}}, name="p.json")
    shell("run", "p.json", "--tools", "./shop.py", "--policy", "policy.toml")
    ended = shell("eval", "from", "last")

    assert ended.code == 2
    assert "cannot become a case: its record has redacted parts (plan)" in ended.err


def test_a_run_of_a_program_may_have_had_a_function_that_redacts(
    failed: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record does not say, so the command does: on stderr and in the file."""
    monkeypatch.setattr("dagrun.cli.commands.evaluate.eval_from.label", lambda labels, name: [])
    made = failed("eval", "from", "last", "-o", "case.yaml", "--tools", "./shop.py")
    said = "A redact function of the program that ran it is not applied: check the file before you share it."

    assert (made.code, said in made.err) == (0, True)
    assert f"# {said}" in (failed.folder / "case.yaml").read_text()


SERVICE = """{"openapi": "3.1.0", "info": {"title": "shop", "version": "1"}, "servers": [{"url": "http://127.0.0.1:9"}],
"paths": {"/o/{id}": {"get": {"operationId": "find", "parameters": [{"name": "id", "in": "path", "required": true,
"schema": {"type": "integer"}}], "responses": {"200": {"description": "ok", "content": {"application/json":
{"schema": {"type": "object"}}}}}}}}}"""


@pytest.mark.parametrize("is_named", [False, True])
def test_services_are_those_that_the_run_was_begun_with(shell: Shell, is_named: bool) -> None:
    """Also from another folder; and what is said of how to carry the case out can be typed there."""
    shell.file("shop.py", TOOLS)
    shell.file("api.json", SERVICE)
    steps = [STEPS[1], {"id": "found", "tool": "find", "args": {"id": 3}, "depends_on": ["rate"]}]
    tools = ["--tools", "./shop.py", "--openapi", "api.json", "--include", "fi*"]
    assert shell("run", shell.plan(*steps), *tools).code == 1
    other = shell.folder / "other"
    other.mkdir()
    with contextlib.chdir(shell.folder if is_named else other):
        made = shell("eval", "from", shell.run_id, "-o", "case.yaml", *(tools if is_named else ()))
        hint = next(line for line in made.err.splitlines() if line.startswith("carry it out: dagrun "))
        again = shell(*shlex.split(hint.removeprefix("carry it out: dagrun ")))

    assert (made.code, again.code) == (0, 0), made.out + made.err + again.err
    assert ((shell.folder if is_named else other) / "case.yaml").exists()


def test_a_case_that_cannot_be_used_leaves_no_file(failed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **more: object) -> None:
        raise CasesRefused(["it has a fault"])

    failed.file("there.yaml", "mine")
    monkeypatch.setattr("dagrun.cli.commands.evaluate.eval_from.evaluate", refused)
    before = sorted(failed.folder.iterdir())

    assert failed("eval", "from", "last", "-o", "case.yaml").code == 2
    assert failed("eval", "from", "last", "-o", "there.yaml", "--force").code == 2
    assert sorted(failed.folder.iterdir()) == before
    assert (failed.folder / "there.yaml").read_text() == "mine"


ANSWERS = '''
import dagrun


@dagrun.tool(effect="read")
async def ask() -> object:
    """Ask."""
    return {answer!r}
'''


@pytest.mark.parametrize(
    ("answer", "other"),
    [([], [1]), ({}, {"a": 1}), (None, 1), (0, 1), ("", "a"), ("x" * 3_000, "x" * 2_999), ([7] * 3_000, [7])],
)
def test_each_answer_is_expected(shell: Shell, answer: object, other: object) -> None:
    """Also one that is nothing, and of a long one its size; the file and the user are told of that."""
    shell.file("shop.py", ANSWERS.format(answer=answer))
    shell.plan({"id": "a", "tool": "ask"}, name="p.json", output="${a}")
    assert shell("run", "p.json", "--tools", "./shop.py").code == 0
    made = shell("eval", "from", "last", "-o", "case.yaml")
    assert made.code == 0, made.out + made.err
    case = shell.folder / "case.yaml"
    is_long = len(repr(answer)) > 2_000
    assert ("too long to be expected" in made.err, "too long to be expected" in case.read_text()) == (is_long, is_long)

    tree = yaml.safe_load(case.read_text())
    tree["cases"][0]["world"]["ask"] = {"return": other}
    case.write_text(json.dumps(tree))
    ended = shell("eval", "case.yaml")
    assert (ended.code, "output" in ended.out) == (1, True), ended.out
