"""References and templates: a closed grammar; the values that are filled in are never searched for references."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun.errors import ValueRefused
from dagrun.kernel.model.reference import (
    BadReference,
    Reference,
    compile_template,
    escaped_key,
    parse_reference,
    quote_template,
)
from dagrun.kernel.model.value import Stored, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def fill(value: Any, **outputs: Any) -> Any:
    """Compile a template, fill it, and decode the result."""
    template, faults = compile_template(value)
    assert not faults

    def look_up(reference: Reference) -> Stored:
        assert not reference.path
        return encode(outputs[reference.step])

    return json.loads(template.fill(look_up))


@pytest.mark.parametrize(
    ("text", "step", "path"),
    [
        ("load", "load", ()),
        ("${load.rows[0].total}", "load", ("rows", 0, "total")),
        ('a[0]["a key"].b-c', "a", (0, "a key", "b-c")),
        ("1", "1", ()),
    ],
)
def test_a_reference_is_an_id_then_keys_and_indices(text: str, step: str, path: tuple[str | int, ...]) -> None:
    """A reference is written in the same form as it is read."""
    reference = parse_reference(text)
    assert reference == Reference(step, path)
    assert parse_reference(str(reference)) == reference


@pytest.mark.parametrize(
    "text",
    ["", ".a", "a..b", "a[-1]", "a[01]", "a[*]", "a[?(@.x)]", "a.b c", "a b", "a[0", "a['k']", "a.b()", "{{7*7}}",
     "a[99999999999]", "a" + ".b" * 40, "a|b", "a\n"],
)  # fmt: skip
def test_anything_else_is_no_reference(text: str) -> None:
    """With wildcards, filters, slices and calls, references would become a language (S32)."""
    with pytest.raises(BadReference):
        parse_reference(text)


def test_an_id_that_is_too_long_is_called_so() -> None:
    """The end of it would be taken for the beginning of a path, which explains nothing."""
    with pytest.raises(BadReference, match="an id has at most 48 characters"):
        parse_reference("i" * 49 + ".rows")
    assert parse_reference("i" * 48 + ".rows").path == ("rows",)


def test_alone_a_reference_keeps_its_type_and_inside_text_it_is_interpolated() -> None:
    """A number stays a number; inside a text, every value is text."""
    assert fill({"a": "${x}", "b": "x is ${x}, y is ${y}"}, x=[1, "ü"], y='say "hi"\n') == {
        "a": [1, "ü"],
        "b": 'x is [1,"ü"], y is say "hi"\n',
    }


def test_an_object_reference_does_the_same_as_the_braces() -> None:
    """Models that write JSON find this form easier."""
    assert fill({"a": {"$step": "x"}}, x={"deep": 1}) == {"a": {"deep": 1}}


@pytest.mark.parametrize(
    "text", ["$100", "$ {x}", "{x}", "%(x)s", "{{7*7}}", "$x", "a$", "$$", "{0.__class__}", "{:>300000000}"]
)
def test_only_the_braces_form_is_special(text: str) -> None:
    """Money, templates of other languages and format strings stay as they are (S30, S31)."""
    assert fill({"a": text}) == {"a": text}


def test_an_escaped_brace_is_written_literally() -> None:
    """Every text can be written in a plan."""
    assert fill({"a": "$${x} costs ${x}"}, x=3) == {"a": "${x} costs 3"}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_quoted(text: str) -> None:
    """Host programs put texts of others into arguments."""
    assert fill({"a": quote_template(text)}) == {"a": text}


@given(JSON)
def test_an_output_that_looks_like_a_reference_is_data(value: Any) -> None:
    """The output of a tool is put in unchanged, as a value and in a key (S34, S35)."""
    hostile = {"$step": "secret", "text": "${secret}", "more": value}
    assert fill({"a": "${x}", "b": ["${x}"]}, x=hostile) == {"a": hostile, "b": [hostile]}


def test_doubling_references_hit_the_ceiling_while_they_are_filled_in() -> None:
    """22 steps that each join the one before twice make 42 MB of 10 characters (S15)."""
    template, _ = compile_template(["${x}"] * 3)
    with pytest.raises(ValueRefused, match="over 1000 bytes"):
        template.fill(lambda _: "x" * 400, limit=1000)


@pytest.mark.parametrize(
    "value", ["${x", "${a b}", "a ${} b", {"$step": "x", "other": 1}, {"$step": 3}, {"$step": "a.b"}]
)
def test_what_looks_like_a_reference_and_is_none_is_a_fault(value: Any) -> None:
    """A typo must not be passed to the tool as text."""
    assert compile_template({"a": value})[1]


@pytest.mark.parametrize(
    ("path", "parts"),
    [("rows[0].total", ("rows", 0, "total")), (["rows", 0, "unit.price"], ("rows", 0, "unit.price")), ([], ())],
)
def test_the_path_of_an_object_may_be_a_text_or_a_list(path: object, parts: tuple[str | int, ...]) -> None:
    """A list needs no quoting, which models get wrong: each part stands for itself."""
    template, faults = compile_template({"a": {"$step": "load", "path": path}})

    assert not faults
    assert template.references == (Reference("load", parts),)


@pytest.mark.parametrize(
    "path", [["rows", -1], ["rows", True], ["rows", 1.0], [None], [["rows"]], 7, ["a"] * 33, [10**9]]
)
def test_a_list_holds_keys_and_indices_alone(path: object) -> None:
    _, faults = compile_template({"$step": "load", "path": path})

    assert len(faults) == 1


@given(st.integers(1, 4), JSON)
def test_a_key_that_would_make_a_reference_can_be_data(dollars: int, value: Any) -> None:
    """As with texts, one more dollar makes it literal; other keys with dollars stay as they are."""
    key = "$" * dollars + "step"
    written = {escaped_key(key): value, "$steps": 1, "a$step": 2, "$$": 3}

    if "${" not in json.dumps(value) and "$step" not in json.dumps(value):
        assert fill({"inside": [written]}) == {"inside": [{key: value, "$steps": 1, "a$step": 2, "$$": 3}]}
