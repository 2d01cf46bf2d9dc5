"""Plans in lines of calls: literals and references to earlier lines, and nothing that could be evaluated."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from checking import TOOLBOX, refusal, refused
from command_line import Shell, shell
from dagrun import Plan, PlanLimits, PlanRefused, Toolbox, read_plan, tool
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.model.reference import compile_template
from dagrun.planners.answers.plan_stream import PlanReader
from dagrun.plans.compiler_dialect import MAX_LINE
from judged_answers import end_of

__all__ = ["shell"]


def plan(*lines: str, toolbox: Toolbox | None = TOOLBOX) -> Plan:
    """Return the plan of these lines, with an end."""
    return read_plan("\n".join((*lines, "9. join()")), toolbox=toolbox)


def args(call: str) -> dict[str, Any]:
    """Return the arguments of a call after steps 1 and 2."""
    made = plan("1. load('a')", "2. load('b')", f"3. {call}")
    check_plan(Plan(steps=made.steps), TOOLBOX)
    return made.steps[2].args


def literally(text: str) -> str:
    """Return the meaning of a text without references in a plan."""
    template, faults = compile_template(text)
    assert not faults
    assert not template.holes
    return str(json.loads(template.pieces[0]))


def fault(*lines: str, **options: Any) -> str:
    """Return the problems with which these lines and an end are refused."""
    return str(refusal("\n".join((*lines, "9. join()")), toolbox=TOOLBOX, **options))


def test_a_plan_in_lines_of_calls_is_a_plan() -> None:
    """Ids are the numbers; arguments without names are in the order of the signature; thoughts are descriptions."""
    made = read_plan(
        """Sure, here is the plan:
```
Thought: both at once
1. load("a.csv")
2. load(path='b.csv')  # the other one

Thought: then the text
Thought: of both
3. show("$1 and $2", level="low")
4. join()
<END_OF_PLAN>
```
5. anything("that follows is passed over")
""",
        toolbox=TOOLBOX,
    )

    assert [(step.id, step.tool, step.args, step.description) for step in made.steps] == [
        ("1", "load", {"path": "a.csv"}, "both at once"),
        ("2", "load", {"path": "b.csv"}, ""),
        ("3", "show", {"text": "${1} and ${2}", "level": "low"}, "then the text\nof both"),
    ]
    assert made.output is None
    assert check_plan(made, TOOLBOX).steps["3"].value_sources == {"1", "2"}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"a \\"b\\" \\n é"', 'a "b" \n é'),
        ("'a' \"b\"", "ab"),
        ('r"\\d+"', "\\d+"),
        ('"\\d+ \\777"', "\\d+ \\777"),
        ('"""a "b" c"""', 'a "b" c'),
        ("-3", -3),
        ("007", 7),
        ("0x1F", 31),
        ("+2.5e-3", 0.0025),
        ("[1, (2, 'x',), [], {'a': {'b': None}}]", [1, [2, "x"], [], {"a": {"b": None}}]),
        ("True", True),
        ("false", False),
        ("null", None),
        ("(1)", 1),
        ("(((('a'))),)", ["a"]),
    ],
)
def test_arguments_are_literals(written: str, value: object) -> None:
    """Those of Python, and the words of JSON, because models mix them up."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert args(f"anything({written})") == {"value": value}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"$1"', "${1}"),
        ("$1", "${1}"),
        ("${2}", "${2}"),
        ("[$1, $2, '$1!']", ["${1}", "${2}", "${1}!"]),
        ("{'a': ${1.rows[0].total}}", {"a": "${1.rows[0].total}"}),
        ('"$1 + $2."', "${1} + ${2}."),
        ('"${x} $1 ${x}"', "$${x} ${1} $${x}"),
        ('"of ${1}s and $1的"', "of ${1}s and ${1}的"),
    ],
)
def test_the_number_of_an_earlier_step_is_a_reference(written: str, value: object) -> None:
    """Alone it keeps its type, in a text it is put in; it is also one outside of quotes."""
    assert args(f"anything({written})") == {"value": value}


@pytest.mark.parametrize(
    "text",
    [
        "$100",
        "$3 and $4",
        "$12, $01, $0",
        "$1.50 or $1,000 or $1k",
        "${x} ${1:2} ${9} $${1x} $ {1} {1}",
        "US$ 5",
        "$$",
        "${",
    ],
)
def test_every_other_dollar_is_a_dollar(text: str) -> None:
    """Prices stay, and so does text that would be a reference or an escape in our dialect."""
    assert literally(args(f"anything({text!r})")["value"]) == text


@given(st.text(alphabet='$1{}a2.x" \\\n', max_size=12))
@example("$$1")
@example("$${1}")
def test_a_text_means_what_was_written_or_is_refused(text: str) -> None:
    """Without an earlier step, no text is a reference, whatever it looks like."""
    assert literally(plan(f"1. anything({text!r})").steps[0].args["value"]) == text


def test_a_dollar_right_before_a_reference_has_no_words() -> None:
    """In our dialect this would be the escape, so the tool would silently get "${1}"."""
    assert "line 2, column 9: write something between the dollar sign and $1" in fault('1. load("a")', '2. show("$$1")')


@pytest.mark.parametrize("number", ["1", "3", "7"])
def test_a_bare_number_that_no_earlier_step_has_is_refused(number: str) -> None:
    """Own, later and missing numbers: outside of quotes, they cannot be texts."""
    wanted = f"line 1, column 10: ${number} refers to no earlier step"

    assert wanted in fault("1. count($" + number + ")", '3. load("x")')


def test_who_refers_to_a_broken_line_waits_for_it() -> None:
    """The number of a line with a fault is still a reference, not a text for a tool."""
    from dagrun.planners.answers.plan_stream import PlanReader

    reader = PlanReader(TOOLBOX)

    assert [step.args for step in reader.feed('1. load(oops\n2. show("$1")\n')] == [{"text": "${1}"}]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("anything(x)", "column 13: x is no literal: a text stands in quotes"),
        ("anything(f'{1}')", "f is no literal"),
        ("anything(b'x')", "b is no literal"),
        ("anything(__import__('os').system('id'))", "__import__ is no literal"),
        ("anything(add(1))", "add is no literal"),
        ("anything(1 + 1)", "not a literal"),
        ("anything(1-1)", "a comma is missing"),
        ("anything([1][0])", "a comma is missing"),
        ("anything('a'.upper())", "not a literal"),
        ("anything(lambda: 1)", "lambda is no literal"),
        ("anything({1, 2})", "not a list of literals"),
        ("anything({1: 2})", "the keys of an object are texts"),
        ("anything({'a': 1, 'a': 2})", "the key 'a' occurs twice"),
        ("anything(*[1])", "not a literal"),
        ("anything(**{'value': 1})", "not a literal"),
        ("anything('Bob's')", "a comma is missing"),
        ("anything('Bob)", "the text is not closed"),
        ("anything([1, 2)", "the closing bracket is missing"),
        ("anything(1", "the closing bracket is missing"),
        ("anything(1) and more", "there is more behind the call"),
        ("anything(value=1, 2)", "positional argument follows keyword"),
        ("anything(1j)", "a comma is missing"),
        ("anything(...)", "not a literal"),
        ("anything('\\x4')", "not a list of literals"),
        ("anything('\0')", "not a list of literals"),
        ("anything" + "(" * 40, "nested deeper than 28 levels"),
        ("anything('" + "x" * MAX_LINE + "')", f"at most {MAX_LINE} characters"),
        ("anything(" + "9" * 1001 + ")", "at most 1000 digits"),
        ("anything " + "1", "a numbered line is a call"),
    ],
)
def test_what_is_no_call_with_literals_is_told_with_its_line(call: str, words: str) -> None:
    """Nothing is evaluated, and no fault is silently ignored."""
    message = fault("1. load('x')", f"2. {call}")

    assert message.startswith("1 problem:\nDR003 steps[1]: broken plan text at line 2, ")
    assert words in message


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("Thought: the other one, too. 2. load('b')", 30),
        ("Then 2. load('b') and the rest", 6),
        ("- 2. load('b')", 3),
        ("**2.** `load('b')`", 3),
        ("2) load('b')", 1),
        ("2: load('b')", 1),
        ("Step 2: load ('b')", 6),
        ("1. load('a')  # and 2. load('b')", 21),
        ("```2. typo('b')", 4),
        ("load('b')", 1),
        ("  load(path='b')  # the other one", 1),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_call_that_is_not_read_is_told_with_its_line(line: str, column: int, place: int) -> None:
    """Before the first call, between two, and after the last one; a call that vanished would be missed by nobody."""
    lines = ["1. load('c')", "3. load('d')"]
    lines.insert(place, line)

    assert f"broken plan text at line {place + 1}, column {column}: a call " in fault(*lines)


@pytest.mark.parametrize(
    "line",
    [
        "Thought: load(path) reads a file, and load('x') reads x",
        "Thought: sold in 2019. Revenue (in dollars) grew by 3.5. Then it fell (see 4)",
        "load(path: str) -> str",
        "load (the tool) is needed",
        "see Fig. 3.load",
        "At 10:30 load('x') was called",
        "It costs $1. load('x') is free",
    ],
)
def test_words_about_tools_are_no_calls(line: str) -> None:
    """What has no number is prose, unless it is nothing but a call."""
    assert len(plan("1. load('a')", line).steps) == 1


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("The Long Road Home", "The Long Road Home"),
        ("Star Wars Episode IV - A New Hope", "Star Wars Episode IV - A New Hope"),
        ("Harry Potter and the Sorcerer's Stone", "Harry Potter and the Sorcerer's Stone"),
        (" 12 Angry Men, the first one ", "12 Angry Men, the first one"),
        ("Rosetta (film)", "Rosetta (film)"),
        ("Rosetta", "Rosetta"),
        ("the height of $1 in $100", "the height of ${1} in $100"),
    ],
)
def test_a_text_needs_no_quotes_where_it_is_all_that_the_tool_takes(written: str, path: str) -> None:
    """As in the example plans that LLMCompiler shows to its models."""
    made = read_plan(f"1. load('a')\n2. load({written})  # so\n3. join()<END_OF_PLAN>\n", toolbox=TOOLBOX)

    assert made.steps[1].args == {"path": path}


@pytest.mark.parametrize(
    "call",
    [
        "load(path=The Long Road)",
        "load(add(1))",
        "load(the 'Road')",
        'load(the "Road")',
        "load([The Road])",
        "load(The Road",
        "load('The' Road)",
        "show(The Road)",
        "anything(The Road)",
        "add(The Road)",
    ],
)
def test_words_that_may_be_something_else_stand_in_quotes(call: str) -> None:
    """Another argument, another type, another call, or a text that is not closed."""
    assert "DR003 steps[1]: broken plan text at line 2, " in fault("1. load('x')", f"2. {call}")


WORDS = [
    "Thought: ",
    "Thought: so ",
    "and then ",
    "- ",
    "* ",
    "`",
    "**",
    "Step ",
    "# ",
    "First, ",
    "Note: ",
    "x = ",
    "(",
]
READ = ["", "  ", " # so", "\r", "<END_OF_PLAN>"]
REFUSED = ["`", " and that is it", ".", ")", " # 77. load('z')"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "", *WORDS]), st.sampled_from([". ", ".", ") "]), st.sampled_from(READ + REFUSED)
        ),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_each_call_in_a_text_is_in_the_plan_or_named_in_a_problem(
    lines: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    """Whole and in pieces, with other words before and behind each call; what follows the end says nothing."""
    written = [f"{before}{number}{mark}load('{number}'){behind}" for number, (before, mark, behind) in enumerate(lines)]
    text = "\n".join((*written, "99. join()"))
    ended = next((number for number, line in enumerate(written) if line.endswith("<END_OF_PLAN>")), len(lines))
    calls = {number: line for number, line in enumerate(lines) if number <= ended}
    bad = {number for number, (before, mark, behind) in calls.items() if before or mark == ") " or behind in REFUSED}

    made, told = outcome(lambda: read_plan(text, toolbox=TOOLBOX, syntax="compiler"))

    assert {number for number in calls if f"at line {number + 1}," in told} == bad
    assert bad or made == set(map(str, calls))
    reader = PlanReader(TOOLBOX, dialect="compiler")
    for piece in pieces(text, data):
        reader.feed(piece)
    assert outcome(reader.close) == (made, told)


def outcome(read: Callable[[], Plan]) -> tuple[set[str], str]:
    """Return the steps of the plan that is read, or its problems."""
    try:
        return {step.id for step in read().steps}, ""
    except PlanRefused as refused:
        return set(), str(refused)


def pieces(text: str, data: st.DataObject) -> list[str]:
    """Cut a text anywhere."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize(
    ("part", "count"),
    [
        *(("-", 60_000), ("(", 30_000), ("[", 60_000), ("not ", 15_000), ("1if 1else ", 6_000), ("1+", 30_000)),
        *(("lambda:", 8_000), ("a.", 30_000), ("'' ", 20_000), ("${1.", 15_000), ("{'a':", 10_000), ("a=", 30_000)),
        *(("\\", 60_000), ("x", 60_000), ("$", 60_000), ("1,", 20_000), ("'$", 20_000), ("'${1.", 10_000)),
    ],
)
def test_no_line_makes_pythons_parser_recurse(part: str, count: int) -> None:
    """It may fail, or even crash, on deep expressions; so it never gets them."""
    end = end_of(lambda: read_plan(f"1. load('x')\n2. anything({part * count}1)\n3. join()", toolbox=TOOLBOX))

    assert isinstance(end, Plan | tuple)


def test_numbers_that_no_plan_may_hold_are_marked_as_in_json() -> None:
    """Infinity by overflow, and numbers with too many digits."""
    assert refused("1. anything(1e999)\n2. join()", toolbox=TOOLBOX) == ["DR008 steps[0].args.value"]
    assert refused(f"1. anything(0x{'f' * 990})\n2. join()", toolbox=TOOLBOX) == ["DR008 steps[0].args.value"]


def test_arguments_without_names_are_named_by_the_tool() -> None:
    """In the order of its signature, by the names that plans use; the context of the call is none of them."""
    assert plan("1. send('x', 'y')").steps[0].args == {"recipient": "x", "body": "y"}
    assert plan("1. send('x', body='y')").steps[0].args == {"recipient": "x", "body": "y"}
    assert refused("1. send('x', 'y', 'z')\n2. join()", toolbox=TOOLBOX) == ["DR204 steps[0].args"]
    assert "passes argument 3, which send does not take" in fault("1. send('x', 'y', 'z')")
    for twice in ("send('x', to='y')", "send('x', recipient='y')", "add(a=1, a=2)"):
        assert refused(f"1. {twice}\n2. join()", toolbox=TOOLBOX) == ["DR007 steps[0].args"]
    assert "did you mean send" in fault("1. sendd('x')")
    assert plan("1. sendd(x=1)").steps[0].tool == "sendd"  # the check reports what is wrong with it


def test_without_tools_only_named_arguments_can_be_read() -> None:
    """The names of the others are not known."""
    assert plan("1. add(a=1)", toolbox=None).steps[0].args == {"a": 1}
    assert refused("1. add(1)\n2. join()") == ["DR112 steps[0].args"]


@pytest.mark.parametrize(
    ("end", "output"),
    [
        ("3. join()", None),
        ("join()", None),
        ("3. join($2)", "${2}"),
        ("3. join('$1', \"$2\", 'and then say so')", {"1": "${1}", "2": "${2}"}),
        ("3. join([$1, $2, $1])<END_OF_PLAN>", {"1": "${1}", "2": "${2}"}),
        ("<END_OF_PLAN>", None),
        ("That is all. <END_OF_PLAN>", None),
    ],
)
def test_join_ends_the_plan_and_names_the_answer(end: str, output: object) -> None:
    """The named steps are the answer; without names, the answer is that of the last steps."""
    made = read_plan(f"1. load('a')\n2. load('b')\n{end}", toolbox=TOOLBOX)

    assert (len(made.steps), made.output) == (2, output)
    check_plan(made, TOOLBOX)


def test_a_plan_without_an_end_has_broken_off() -> None:
    """The missing half may be what makes the first half harmless."""
    assert refused("1. load('a')\n2. load('b')", toolbox=TOOLBOX) == ["DR421 "]
    assert refused("1. load('a')\n2. lo", syntax="compiler", toolbox=TOOLBOX) == ["DR421 ", "DR003 steps[1]"]


def test_a_call_after_join_is_refused_unless_the_end_was_marked() -> None:
    """It may or may not be meant."""
    lines = "1. load('a')\n2. join()\n3. load('b')"

    assert "join() has ended the plan before this call" in str(refusal(lines, toolbox=TOOLBOX))
    assert len(read_plan(lines.replace("()", "()\n<END_OF_PLAN>", 1), toolbox=TOOLBOX).steps) == 1


@tool(effect="pure", name="join")
async def join_texts(left: str, right: str = "") -> str:
    """Join."""
    raise NotImplementedError


def test_a_tool_called_join_is_called_by_naming_an_argument() -> None:
    """The end of a plan never has named arguments, so one line is enough to distinguish them."""
    toolbox = Toolbox(*TOOLBOX.values(), join_texts)
    made = read_plan("1. load('a')\n2. join('$1', right='x')\n3. join()", toolbox=toolbox)

    assert made.steps[1].args == {"left": "${1}", "right": "x"}
    assert len(read_plan("1. load('a')\n2. join('$1', 'x')", toolbox=toolbox).steps) == 1
    assert len(read_plan("1. load('a')\n2. join('$1', right='x')", toolbox=TOOLBOX).steps) == 1


def test_the_ceilings_hold_for_lines_too() -> None:
    """The limits are those of JSON plans, and so are the problems."""
    text = "1. add(1)\n2. add(2)\n3. join()"

    assert refused(text, toolbox=TOOLBOX, limits=PlanLimits(max_steps=1)) == ["DR108 steps"]
    assert len(read_plan(text, toolbox=TOOLBOX, limits=PlanLimits(max_steps=2)).steps) == 2
    for broken in ("1. nonsense\n" * 3, "1. add(x)\n" * 3, "1. add(1)\n2. join()\n" + "3. add(1)\n" * 2):
        assert refused(broken, syntax="compiler", limits=PlanLimits(max_steps=2), toolbox=TOOLBOX) == ["DR108 steps"]
    assert refused(text, toolbox=TOOLBOX, limits=PlanLimits(max_bytes=10)) == ["DR005 "]
    assert refused("1. anything([[1]])\n2. join()", limits=PlanLimits(max_depth=5), toolbox=TOOLBOX) == [
        "DR003 steps[0]"
    ]
    assert plan("1. anything([['$1']])").steps[0].args == {"value": [["$1"]]}


def test_files_and_texts_are_taken_for_lines_only_if_there_are_some(tmp_path: Path) -> None:
    """JSON stays JSON, whatever the suffix, and has JSON problems if it is invalid."""
    text = "1. load('a')\n2. join()"
    for name in ("plan.txt", "plan", "plan.plan"):
        (tmp_path / name).write_text("\ufeff" + text)
        assert read_plan(tmp_path / name, toolbox=TOOLBOX) == read_plan(text, toolbox=TOOLBOX)
    (tmp_path / "plan.json").write_text(text)
    (tmp_path / "other.txt").write_text(json.dumps({"steps": [], "goal": text}))

    assert refused(tmp_path / "plan.json") == ["DR003 "]
    assert read_plan(tmp_path / "other.txt").goal == text
    assert refused("Nothing to do.") == ["DR003 "]


def test_line_ends_of_windows_say_nothing() -> None:
    """A missing line break at the end makes no difference either."""
    text = "Thought: x\r\n1. load('a')\r\n2. join()"

    assert read_plan(text, toolbox=TOOLBOX) == read_plan(text.replace("\r", "") + "\n", toolbox=TOOLBOX)


def test_the_command_line_checks_and_runs_such_a_file(shell: Shell) -> None:
    """`dagrun check plan.txt` and `dagrun run plan.txt`."""
    shell.file("compiler_tools.py", TOOLS_MODULE)
    sys.path.insert(0, str(shell.folder))
    plan = shell.file("plan.txt", '1. add(1, b=2)\n2. show("$1 of $100")\n3. join()\n')
    bad = shell.file("bad.txt", "1. add(one)\n2. join()\n")
    tools = ("--tools", "compiler_tools")

    assert shell("check", plan, *tools).code == 0
    assert shell("run", plan, *tools, "--quiet").out == "3 of $100\n"
    refused = shell("check", bad, *tools)
    assert refused.code == 3
    assert "line 1, column 8: one is no literal" in refused.out + refused.err


TOOLS_MODULE = """
import dagrun

@dagrun.tool(effect="pure", timeout=5)
async def add(a: int, b: int = 0) -> int:
    return a + b

@dagrun.tool(effect="pure", timeout=5)
async def show(text: str) -> str:
    return text
"""
