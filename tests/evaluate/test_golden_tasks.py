"""Golden tasks: each expectation can be missed, no real tool is called, faults of files name their place."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.evaluation import CaseResult, evaluate
from dagrun.testing import GoldenTask, cases

GOLDEN = Path(__file__).parent / "golden"

pytestmark = pytest.mark.real_time  # a virtual clock of its own


@pytest.mark.parametrize("task", cases(GOLDEN))
def test_golden_task(task: GoldenTask) -> None:
    task.check()


def play(folder: Path, tools: str = "golden_tools", **case: Any) -> CaseResult:
    """Carry out one case, with the tools of the golden tasks unless others are named."""
    shared = {"tools": tools, **({"real": ["length"]} if tools == "golden_tools" else {})}
    file = folder / "case.yaml"
    file.write_text(json.dumps({**shared, "cases": [{"id": "it", **case}]}), encoding="utf-8")
    (result,) = evaluate([file]).files[0].cases
    return result


SHIP: dict[str, Any] = {"id": "ship", "tool": "ship", "args": {"order": 17}}
TELL: dict[str, Any] = {"id": "tell", "tool": "notify", "args": {"to": "ann", "text": "${ship}"}}
PLAN = {"steps": [SHIP, TELL]}
WORLD: dict[str, Any] = {"ship": {"takes": 2, "return": "gone", "tokens": 5}, "notify": "sent"}


def misses(folder: Path, expect: dict[str, Any], **case: Any) -> list[str]:
    return play(folder, **{"plan": PLAN, "world": WORLD, "expect": expect, **case}).misses


@pytest.mark.parametrize(
    ("expect", "miss"),
    [
        ({"status": "failed"}, "status is succeeded, not failed"),
        ({"output": "lost"}, 'output is "sent", not "lost"'),
        ({"output": None}, 'output is "sent", not null'),
        ({"schema": {"type": "integer"}}, "output does not fit the schema: it should be"),
        ({"steps": {"ship": {"state": "failed"}}}, "step ship is succeeded, not failed"),
        ({"steps": {"ship": {"attempts": 2}}}, "step ship has 1 attempts, not 2"),
        ({"steps": {"ship": {"output": "x"}}}, 'the output of step ship is "gone", not "x"'),
        ({"steps": {"shop": {}}}, "step shop is not in the plan; its steps are ship, tell"),
        ({"calls": {"must": ["search"]}}, "search is never called"),
        ({"calls": {"never": ["ship"]}}, "ship is called, which must never be"),
        ({"calls": {"once": ["search"]}}, "search is called 0 times, not once"),
        ({"calls": {"before": [["notify", "ship"]]}}, "ship is called before notify has ended"),
        ({"calls": {"before": [["search", "ship"]]}}, "ship is called, and search before it is not"),
        ({"calls": {"args": {"ship": {"order": 18}}}}, "other arguments: order is 17, not 18"),
        (
            {"calls": {"args": {"notify": [{"to": "bob"}]}}},
            'notify is not called with {"to": "bob"}; other calls: {"to',
        ),
        ({"patches": {"at_least": 1}}, "the plan is changed 0 times, not at least 1"),
        ({"escalates": True}, "no person was needed, and that was not expected"),
        ({"ceilings": {"calls": 1}}, "calls: 2 used, the ceiling is 1"),
        ({"ceilings": {"seconds": 1.9}}, "seconds: 2 used, the ceiling is 1.9"),
        ({"ceilings": {"tokens": 4}}, "tokens: 5 used, the ceiling is 4"),
        ({"ceilings": {"cost": 1}}, "cost: how much was used is not known, and the ceiling is 1"),
        (
            {"critic": "critics_of_cases:Grumbler"},
            "the critic critics_of_cases:Grumbler objects: fail: not polite: sent",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-",
)
def test_what_is_not_as_expected_is_said(tmp_path: Path, expect: dict[str, Any], miss: str) -> None:
    (tmp_path / "critics_of_cases.py").write_text(
        "import dagrun\n"
        "class Grumbler:\n"
        "    name = 'grumbler'\n"
        "    async def review(self, step, outcome):\n"
        "        return dagrun.Verdict('fail', reason=f'not polite: {outcome.output}')\n",
        encoding="utf-8",
    )
    (said,) = misses(tmp_path, expect)

    assert miss in said


CRITICS = """
import time
import anyio
import dagrun

class Spins:
    async def review(self, step, outcome):
        while True:
            await anyio.sleep(0)

class Clings:
    async def review(self, step, outcome):
        while True:
            try:
                await anyio.sleep(0)
            except anyio.get_cancelled_exc_class():
                pass

class Computes:
    async def review(self, step, outcome):
        await anyio.to_thread.run_sync(time.sleep, 0.01)
        return dagrun.Verdict("pass")

class Fails:
    async def review(self, step, outcome):
        raise OSError("it is away")
"""


@pytest.mark.parametrize("critic", ["Spins", "Clings"])
def test_a_critic_of_the_answer_that_spins_hangs_its_case_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, critic: str
) -> None:
    monkeypatch.setattr("dagrun.evaluate.cases.trial._MAX_TURNS", 20_000)
    (tmp_path / "endless_critics.py").write_text(CRITICS, encoding="utf-8")
    result = play(tmp_path, plan=PLAN, world=WORLD, expect={"critic": f"endless_critics:{critic}"})

    why = "something in it spins, 20000 turns of the loop without a pause"
    told = f"the critic endless_critics:{critic} has not ended: {why}"
    assert result.misses == [f"status is hung, not succeeded ({told})"]
    assert result.as_dict()["statuses"] == ["hung"]
    assert result.trials[0].seconds == 2  # of the run, which has ended


def test_a_critic_of_the_answer_may_wait_for_a_thread(tmp_path: Path) -> None:
    """On a virtual clock, too, which jumps over whatever has a limit in place of waiting for it."""
    (tmp_path / "endless_critics.py").write_text(CRITICS, encoding="utf-8")

    assert misses(tmp_path, {"critic": "endless_critics:Computes"}) == []


def test_a_critic_of_the_answer_that_fails_objects(tmp_path: Path) -> None:
    """The other cases go on."""
    (tmp_path / "endless_critics.py").write_text(CRITICS, encoding="utf-8")
    (said,) = misses(tmp_path, {"critic": "endless_critics:Fails"})

    assert said.startswith("the critic endless_critics:Fails objects: it failed: it raised OSError: it is away")


def test_a_part_of_the_answer_is_enough(tmp_path: Path) -> None:
    plan = {"steps": [{"id": "order", "tool": "get_order", "args": {"order": 1}}]}
    world = {"get_order": {"return": {"id": 1, "total": 0.1 + 0.2}}}

    assert misses(tmp_path, {"contains": {"total": 0.3}}, plan=plan, world=world) == []
    assert misses(tmp_path, {"contains": {"total": 4}}, plan=plan, world=world) != []


def test_a_tool_that_is_not_in_the_world_is_refused_and_never_called(tmp_path: Path) -> None:
    """The real one raises an AssertionError, which would be in the reason."""
    result = play(tmp_path, plan=PLAN, world={"notify": "sent"}, expect={"status": "failed"})

    (said,) = result.misses
    assert said == "a call that the world of the case does not have: step ship: ship is not in the world of the case"
    assert result.trials[0].status == "failed"
    assert "golden task" not in result.trials[0].reason


def test_acts_are_played_one_a_call_and_the_last_goes_on(tmp_path: Path) -> None:
    plan = {"output": "${all}", "steps": [
        {"id": "all", "tool": "read_page", "for_each": ["a", "b", "a", "b", "a"], "max_parallel": 1,
         "args": {"name": "${item}"}},
    ]}  # fmt: skip
    acts = [
        {"return": "x"},
        {"when": {"name": "b"}, "return": "b1"},
        {"return": "y"},
        {"when": {"name": "b"}, "return": "b2"},
    ]

    assert misses(tmp_path, {"output": ["x", "b1", "y", "b2", "y"]}, plan=plan, world={"read_page": acts}) == []


def test_a_call_that_no_act_is_for_fails_with_what_there_is(tmp_path: Path) -> None:
    acts = [{"when": {"order": 1}, "return": "x"}]
    found = misses(tmp_path, {"status": "failed"}, world={"ship": acts})

    assert 'no act of ship is for the arguments {"order": 17}; the nearest is that when {"order": 1}' in found[0]


def test_every_seed_has_a_delay_of_its_own_and_the_same_each_time(tmp_path: Path) -> None:
    world = {"ship": [{"raise": "retryable"}, {"return": "gone"}], "notify": "sent"}
    once, again = (play(tmp_path, plan=PLAN, world=world, runs=4, seed=7) for _ in range(2))

    seconds = [trial.seconds for trial in once.trials]
    assert seconds == [trial.seconds for trial in again.trials]
    assert len(set(seconds)) == 4
    assert once.misses == []


def test_a_run_that_never_ends_is_noticed(tmp_path: Path) -> None:
    plan = {"steps": [{"id": "a", "tool": "notify", "args": {"to": "x", "text": "y"}}]}
    (said,) = misses(tmp_path, {}, plan=plan, world={"notify": {"takes": "forever"}})

    assert said == "status is hung, not succeeded (the run has not ended: it waits for what never comes)"


def test_secrets_of_a_plan_are_made_up(tmp_path: Path) -> None:
    (tmp_path / "tools_with_key.py").write_text(
        "import dagrun\nfrom pydantic import SecretStr\n"
        "@dagrun.tool(effect='read')\n"
        "async def ask(key: SecretStr) -> str:\n"
        "    raise AssertionError\n",
        encoding="utf-8",
    )
    file = tmp_path / "secret.yaml"
    file.write_text(
        "tools: tools_with_key\n"
        "cases:\n"
        "  - id: it\n"
        "    secrets: [api_key]\n"
        "    world: {ask: hello}\n"
        "    plan: {steps: [{id: a, tool: ask, args: {key: {$secret: api_key}}}]}\n"
        "    expect: {output: hello}\n",
        encoding="utf-8",
    )
    (result,) = evaluate([file]).files[0].cases

    assert result.misses == []
    assert "made-up" not in json.dumps(result.as_dict())
    assert "made-up" not in json.dumps(result.trials[0].world.calls[0].arguments)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"expect": {"status": "suceeded"}}, "case it: expect.status: it must be 'succeeded'"),
        ({"expect": {"stat": "failed"}}, "case it: expect.stat: there is no such field; did you mean status?"),
        ({"goal": "x"}, "case it: a case has a goal or a plan: one of both"),
        ({"world": {"shop": 1}}, "case it: world.shop: there is no such tool; did you mean ship?"),
        ({"world": {"ship": 1}}, "case it: world.ship[0].return: ship cannot return that"),
        ({"world": {"ship": {"raise": "timeuot"}}}, "case it: world.ship.raise: a failure is one of tool_error"),
        ({"world": {"ship": {"raise": "timeout", "return": 1}}}, "an act returns or raises, not both"),
        ({"expect": {"calls": {"once": ["shop"]}}}, "case it: expect.calls.once: there is no tool shop"),
        ({"policy": {"max_step": 3}}, "case it: policy: max_step: unknown field max_step; did you mean max_steps?"),
        ({"policy": "none.toml"}, "case it: policy none.toml: No such file or directory"),
        ({"planner": "nowhere:planner"}, "cannot import 'nowhere'"),
        ({"planner": "openai"}, "models are for the command line"),
        ({"plan": "none.json"}, "case it: plan: DR001"),
        ({"runs": 0}, "case it: runs: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "-",
)
def test_a_fault_of_a_file_names_file_case_and_place(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    with pytest.raises(CasesRefused) as caught:
        play(tmp_path, **{"plan": PLAN, "world": WORLD, **change})

    (said,) = caught.value.faults
    assert said.startswith(str(tmp_path / "case.yaml"))
    assert fault in said


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cases: [", "broken YAML"),
        ("cases: []", "cases: List should have at least 1 item"),
        ("tools: golden_tools", "cases: it is missing"),
        ("cases: [{id: a, goal: x}, {id: a, goal: y}]", "two cases have the id a"),
        ("cases: [{id: a, goal: x}]", "it names no tools"),
        ("tools: no_such_tools\ncases: [{id: a, goal: x}]", "cannot import 'no_such_tools'"),
        (
            "tools: golden_tools\ngate: {task_sucess: 1}\ncases: [{id: a, plan: {steps: []}}]",
            "did you mean task_success?",
        ),
        (
            "tools: golden_tools\ngate: {task_success: +3}\ncases: [{id: a, plan: {steps: []}}]",
            "gate.task_success: a bound is a number, or",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_anything_runs(tmp_path: Path, text: str, fault: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CasesRefused, match=r"file\.yaml") as caught:
        evaluate([GOLDEN / "q4.yaml", file])

    assert fault in str(caught.value)


def test_a_golden_task_that_fails_says_what_was_missed(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    case = {"id": "it", "plan": PLAN, "world": WORLD, "expect": {"output": "lost"}}
    file.write_text(json.dumps({"tools": "golden_tools", "cases": [case]}), encoding="utf-8")
    (parameter,) = cases(file)

    assert parameter.id == "case.yaml:it"
    with pytest.raises(AssertionError, match='output is "sent", not "lost"'):
        parameter.values[0].check()


def test_tools_may_be_in_a_file_beside_the_cases(tmp_path: Path) -> None:
    """By its name, which no other module may have; and a file that there is not is said."""
    (tmp_path / "tools_beside_cases.py").write_text(
        "import dagrun\n@dagrun.tool(effect='pure')\ndef nothing() -> int:\n    return 1\n", encoding="utf-8"
    )
    (tmp_path / "json.py").touch()
    file = tmp_path / "case.yaml"
    plan = {"steps": [{"id": "a", "tool": "nothing"}]}
    case = {"id": "it", "plan": plan, "world": {"nothing": 2}, "expect": {"output": 2}}

    file.write_text(json.dumps({"tools": "./tools_beside_cases.py", "cases": [case]}), encoding="utf-8")
    assert evaluate([file]).holds
    for name, fault in (("none.py", "there is no file none.py"), ("json.py", "another module is called json, too")):
        file.write_text(json.dumps({"tools": name, "cases": [case]}), encoding="utf-8")
        with pytest.raises(CasesRefused, match=fault):
            evaluate([file])


STREAMED: dict[str, Any] = {
    "steps": [
        {"id": "each", "tool": "weigh", "for_each": [1, 2, 3], "args": {"of": "${item}"}},
        {"id": "sum", "tool": "add_up", "args": {"values": "${each}"}},
    ],
    "output": "${sum}",
}


def streaming(folder: Path, **case: Any) -> CaseResult:
    """Carry out a case with a tool that reads a stream."""
    (folder / "streaming_tools.py").write_text(
        "from collections.abc import AsyncIterator\n"
        "import dagrun\n"
        "@dagrun.tool(effect='read')\n"
        "async def weigh(of: int) -> int: ...\n"
        "@dagrun.tool(effect='read')\n"
        "async def add_up(values: AsyncIterator[int]) -> int: ...\n",
        encoding="utf-8",
    )
    world = {"weigh": {"takes": 5, "return": 2}, "add_up": {"takes": 1, "return": 6}}
    file = folder / "case.yaml"
    text = {"tools": "streaming_tools.py", "cases": [{"id": "it", "plan": STREAMED, "world": world, **case}]}
    file.write_text(json.dumps(text), encoding="utf-8")
    return evaluate([file]).files[0].cases[0]


def test_a_stand_in_reads_its_stream_to_the_end(tmp_path: Path) -> None:
    """Its time begins with the last element; and an element that has failed is a failure for it, too."""
    calls = {"before": [["weigh", "add_up"]], "args": {"add_up": {"values": [2, 2, 2]}}}
    expect = {"output": 6, "calls": calls, "ceilings": {"seconds": 6}}
    assert streaming(tmp_path, expect=expect, faults="matrix").misses == []

    world = {"weigh": {"raise": "tool_error"}, "add_up": 6}
    broken = streaming(tmp_path, world=world, expect={"status": "failed", "steps": {"sum": {"state": "skipped"}}})
    assert broken.misses == []


def test_a_released_output_is_a_miss_and_no_crash(tmp_path: Path) -> None:
    policy = {"release_outputs": True}
    plan = {
        "steps": [
            {"id": "list", "tool": "search", "args": {"query": "x"}},
            {"id": "each", "tool": "length", "for_each": "${list}", "args": {"text": "${item}"}},
            {"id": "sum", "tool": "total", "args": {"numbers": "${each}"}},
        ],
        "output": "${sum}",
    }
    world = {"search": {"return": ["a", "bb"]}, "length": 1, "total": 2}
    expect = {"steps": {"list": {"output": ["a", "bb"]}}}
    (miss,) = play(tmp_path, plan=plan, policy=policy, world=world, faults="matrix", expect=expect).misses
    assert "was released" in miss


def test_a_step_that_stops_the_run_changes_what_ran_beside_it(tmp_path: Path) -> None:
    """It was asked to; so no cell of the matrix counts that."""
    stop = {"id": "first", "tool": "search", "args": {"query": "x"}, "on_failure": "stop"}
    plan = {"steps": [stop, {"id": "lone", "tool": "ship", "args": {"order": 1}}]}
    world = {"search": {"takes": 1, "return": []}, "ship": {"takes": 5, "return": "gone"}}
    assert play(tmp_path, plan=plan, world=world, faults="matrix").misses == []


def test_a_failure_that_is_a_list_has_its_place(tmp_path: Path) -> None:
    with pytest.raises(CasesRefused, match="raise"):
        play(tmp_path, plan=PLAN, world={"ship": {"raise": ["timeout"]}, "notify": "sent"})


def test_arguments_that_a_tool_does_not_have_are_refused(tmp_path: Path) -> None:
    """A call that an act is for would never come, and nobody would know why."""
    with pytest.raises(CasesRefused) as caught:
        play(
            tmp_path,
            plan=PLAN,
            world={"ship": {"when": {"ordre": 17}, "return": "gone"}, "notify": "sent"},
            expect={"calls": {"args": {"notify": [{"whom": "ann"}]}}},
        )

    first, second = caught.value.faults
    assert "world.ship[0].when: ship has no argument ordre; did you mean order?" in first
    assert "expect.calls.args.notify: notify has no argument whom" in second


def test_replies_of_a_planner_stand_in_a_case(tmp_path: Path) -> None:
    """As ``dagrun eval from`` writes them, and as people may."""
    other = {"id": "again", "tool": "search_copy", "args": {"query": "socks"}}
    plan = {"steps": [{"id": "find", "tool": "read_page", "args": {"name": "x"}}, {**SHIP, "depends_on": ["find"]}]}
    found = play(
        tmp_path,
        plan=plan,
        world={"read_page": {"raise": "unreachable"}, "search_copy": [["a"]], "ship": {"takes": 5, "return": "gone"}},
        policy={"planning": {"replan_on": ["unreachable"]}},
        planner=[
            {"about": ["find"], "takes": 2, "patch": {"edits": [{"op": "replace", "id": "find", "step": other}]}},
        ],
        expect={"steps": {"again": {"output": ["a"]}}, "patches": {"at_least": 1}},
    )

    assert found.misses == []


def test_a_request_without_a_reply_names_the_nearest_one(tmp_path: Path) -> None:
    plan = {"steps": [{"id": "find", "tool": "read_page", "args": {"name": "x"}}]}
    facts: dict[str, Any] = {
        "world": {"read_page": {"raise": "unreachable"}},
        "policy": {"planning": {"replan_on": ["unreachable"]}},
    }
    found = play(tmp_path, plan=plan, planner=[{"about": ["other"]}], expect={"status": "failed"}, **facts)

    assert any("the planner is asked about find; the nearest reply is about other" in miss for miss in found.misses)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"plan": {"steps": []}, "fail": "no"}, "a reply has plan or fail, not both"),
        ({"kind": "person"}, "kind is for a reply with fail"),
    ],
)
def test_a_reply_of_a_planner_that_says_two_things_is_refused(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(CasesRefused, match=words):
        play(tmp_path, goal="x", planner=[fields], world={})


def test_a_case_may_say_what_composes_the_answer(tmp_path: Path) -> None:
    """The answer itself is enough; it is composed once, so no arguments tell its calls apart."""
    plan = {"steps": [SHIP]}
    expect = {"output": "Two."}
    assert play(tmp_path, plan=plan, world={"ship": "gone"}, compose="Two.", expect=expect).misses == []
    with pytest.raises(CasesRefused, match="compose: when and step are for tools"):
        play(tmp_path, plan=plan, world={"ship": "gone"}, compose={"when": {"a": 1}, "return": 1})


_AGENT = """
import dataclasses
from typing import Annotated
from dagrun import dep, tool

@tool(effect="effectful")
async def pay(client: Annotated[dict, dep], amount: int) -> str:
    raise AssertionError

@tool(effect="effectful")
async def agent(task: str) -> str:
    raise AssertionError

agent = dataclasses.replace(agent, inner_tools=(pay,))
"""


@pytest.mark.parametrize(("says", "status"), [("approve", "succeeded"), ("deny", "failed")])
def test_a_person_is_asked_about_what_an_agent_may_call(tmp_path: Path, says: str, status: str) -> None:
    (tmp_path / "tools_of_agents.py").write_text(_AGENT, encoding="utf-8")
    case = {
        "tools": "tools_of_agents",
        "policy": {"approve": [{"tool": "pay"}], "max_replans": 0},
        "plan": {"steps": [{"id": "work", "tool": "agent", "args": {"task": "pay"}}]},
        "world": {"agent": "done"},
        "people": {"work": says},
    }
    assert misses(tmp_path, {"status": status, "escalates": True}, **case) == []
