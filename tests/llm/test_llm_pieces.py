"""The parts of the model clients that need no server: streams of events, fences, prices."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun.errors import ContractError
from dagrun.extend import Usage
from dagrun.llm.event_stream import MAX_EVENT, SseReader
from dagrun.llm.prices import Price, PriceTable
from dagrun.llm.structured_answers import FenceStripper


def cut(text: str, at: list[int]) -> list[str]:
    """The text in pieces, cut at these places."""
    places = sorted({min(place, len(text)) for place in at} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


# Streams of events ----------------------------------------------------------------------------------------------------

LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
DATA = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)


@given(
    st.lists(st.lists(DATA, min_size=1, max_size=3), max_size=6), LINE_ENDS, st.lists(st.integers(0, 200), max_size=20)
)
def test_events_are_the_same_however_the_bytes_are_cut(events: list[list[str]], end: str, at: list[int]) -> None:
    """A network cuts where it likes: in a line break of two bytes, in a letter of four."""
    bodies = ["".join(f"data: {line}{end}" for line in lines) for lines in events]
    stream = "".join(f": ping{end}event: x{end}{body}id: 7{end}{end}" for body in bodies).encode()
    reader = SseReader()
    read = [data for piece in cut(stream.decode("latin-1"), at) for data in reader.feed(piece.encode("latin-1"))]

    assert [data.decode() for data in [*read, *reader.end()]] == ["\n".join(lines) for lines in events]


def test_a_line_break_of_two_bytes_may_be_cut_in_two() -> None:
    reader = SseReader()
    read = [data for piece in (b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") for data in reader.feed(piece)]

    assert [*read, *reader.end()] == [b"a\nb"]


def test_data_of_several_lines_is_one_event() -> None:
    assert SseReader().feed(b'data: {"a":\ndata:1}\n\n') == [b'{"a":\n1}']


def test_an_error_without_data_says_nothing_of_the_next_event() -> None:
    assert SseReader().feed(b"event: error\n\ndata: {}\n\n") == [b"{}"]


def test_the_last_event_may_lack_its_empty_line() -> None:
    """Some servers close behind ``data: [DONE]``."""
    reader = SseReader()
    assert reader.feed(b"data: [DONE]") == []
    assert reader.end() == [b"[DONE]"]


def test_an_event_without_end_does_not_fill_the_memory() -> None:
    reader = SseReader()
    for _ in range(MAX_EVENT // 65_536):
        reader.feed(b"x" * 65_536)
    with pytest.raises(ValueError, match="bytes"):
        reader.feed(b"x")


def test_lines_without_end_are_counted_together() -> None:
    reader = SseReader()
    line = b"data: " + b"x" * (65_536 - 6) + b"\n"
    for _ in range(MAX_EVENT // 65_536):
        reader.feed(line)
    with pytest.raises(ValueError, match="bytes"):
        reader.feed(line)


# Fences ---------------------------------------------------------------------------------------------------------------

TEXTS = ["{}", '{"a": "```"}', '{"a": "x``` y"}', "[1,\n 2]\n", '"`"', '{"a": "\\n```json\\n"}']


@given(
    st.sampled_from(TEXTS),
    st.sampled_from(["", "```\n", "```json\n", "  \n```JSON \n"]),
    st.sampled_from(["\n```", "\n```\n", "```", " ```\n\n", "\n```\nThat is my plan. {}"]),
    st.lists(st.integers(0, 60), max_size=12),
)
def test_what_stands_between_fences_is_kept_as_it_is(text: str, opening: str, closing: str, at: list[int]) -> None:
    """Backticks inside of strings are no fences, however the text is cut."""
    whole = opening + text + closing if opening else text
    unfenced = FenceStripper()
    said = "".join(unfenced.feed(piece) for piece in cut(whole, at)) + unfenced.end()

    assert said.strip() == text.strip()


def test_an_object_that_has_closed_is_not_held_back() -> None:
    """A step starts at its closing brace, whatever comes next."""
    unfenced = FenceStripper()
    assert unfenced.feed("```json\n{}") == "{}"
    assert FenceStripper().feed("{}") == "{}"


@pytest.mark.parametrize("text", ["", "`", "``", "  ", "``x", "no fence"])
def test_what_has_no_fences_is_left_alone(text: str) -> None:
    unfenced = FenceStripper()
    assert "".join(map(unfenced.feed, text)) + unfenced.end() == text


# Prices ---------------------------------------------------------------------------------------------------------------


def test_the_table_goes_before_the_package() -> None:
    """A host has prices of its own for models that everybody knows."""
    table = PriceTable({"gpt-4o": Price(input_per_mtok=1, output_per_mtok=2)})
    assert table.cost("gpt-4o", Usage(1_000_000, 1_000_000), provider="openai") == 3.0
    assert table.cost("gpt-4o-mini", Usage(1_000_000, 0), provider="openai") != 3.0


def test_cached_tokens_have_their_own_price() -> None:
    usage = Usage(1_000_000, 0, 400_000)
    assert PriceTable({"m": {"input_per_mtok": 1.0, "output_per_mtok": 9.0}}).cost("m", usage) == 1.0
    table = PriceTable({"m": {"input_per_mtok": 1.0, "output_per_mtok": 9.0, "cached_per_mtok": 0.1}})
    assert table.cost("m", usage) == pytest.approx(0.64)
    assert table.cost("m", Usage(10, 0, 1_000)) == pytest.approx(1e-6), "more cached than told is a fault of the server"


@pytest.mark.parametrize("usage", [Usage(), Usage(5, None), Usage(None, 5)])
def test_unknown_usage_has_no_cost(usage: Usage) -> None:
    table = PriceTable({"m": {"input_per_mtok": 1.0, "output_per_mtok": 1.0}})
    assert table.cost("m", usage) is None
    assert table.cost("gpt-4o", usage, provider="openai") is None


def test_the_package_knows_the_models_of_providers() -> None:
    usage = Usage(1_000_000, 1_000_000)
    assert (PriceTable().cost("gpt-4o", usage, provider="openai") or 0) > 1
    assert (PriceTable().cost("claude-sonnet-4-5", usage, provider="anthropic") or 0) > 1
    assert (PriceTable().cost("gpt-4o", usage, url="https://api.openai.com/v1") or 0) > 1
    assert PriceTable(use_package=False).cost("gpt-4o", usage, provider="openai") is None


def test_an_unknown_price_is_unknown_and_not_zero() -> None:
    """Also that of a known name on an unknown server."""
    table = PriceTable()
    for _ in "12":
        assert table.cost("smollm2-135m", Usage(5, 5), provider="openai") is None
        assert table.cost("gpt-4o", Usage(5, 5), url="http://127.0.0.1:8000/v1") is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"input_per_mtok": 1.0},
        {"input_per_mtok": -1.0, "output_per_mtok": 1.0},
        {"input_per_mtok": float("nan"), "output_per_mtok": 1.0},
        {"input_per_mtok": "1", "output_per_mtok": 1.0},
        {"input_per_mtok": 1.0, "output_per_mtok": 1.0, "per_image": 1.0},
    ],
)
def test_an_entry_that_is_no_price_is_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(ContractError, match="my-model"):
        PriceTable({"my-model": fields})


# Imports --------------------------------------------------------------------------------------------------------------


@pytest.mark.costly
def test_the_libraries_are_loaded_with_the_first_model_and_not_before() -> None:
    """They cost seconds; so does the list of prices. And what is missing is said in one line."""
    script = """
import json, sys
import dagrun, dagrun.llm.provider_models, dagrun.llm.provider_models, dagrun.llm.prices
from dagrun.errors import MissingExtra
loaded = sorted({name.split(".")[0] for name in sys.modules} & {"openai", "anthropic", "httpx2", "genai_prices"})
sys.modules["anthropic"] = None
try:
    dagrun.llm.provider_models.AnthropicModel("m", api_key="k")
except MissingExtra as error:
    print(json.dumps([loaded, str(error)]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded, line = json.loads(done.stdout)
    assert loaded == []
    assert re.fullmatch(r"[^\n]*pip install 'dagrun-engine\[anthropic\]'", line)
