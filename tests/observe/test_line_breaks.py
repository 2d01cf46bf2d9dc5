"""Lines are broken between words, whatever the width and the script."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun.observe.line_breaks import cells, wrap_words

WORDS = st.lists(st.text("abcdé_-[]{}:字", min_size=1, max_size=6), max_size=20)


@given(WORDS, st.integers(20, 60))
def test_words_stay_whole_and_lines_fit(words: list[str], width: int) -> None:
    """Only between East Asian letters may a word be broken."""
    lines = wrap_words(" ".join(words), width, "  1.0  ", "    ")

    shown = " ".join([lines[0][7:], *(line[4:] for line in lines[1:])])
    joined = re.sub(r"(?<=字) | (?=字)", "", shown)
    assert joined == re.sub(r"(?<=字) | (?=字)", "", " ".join(words))
    assert all(cells(line) <= width for line in lines)


def test_long_json_is_broken_anywhere() -> None:
    text = "{" + "9" * 300 + "}"

    lines = wrap_words(text, 40, "", "  ")

    assert "".join(line.strip() for line in lines) == text
    assert max(map(len, lines)) <= 40


def test_east_asian_text_is_broken_between_letters() -> None:
    """It has no blanks, and each letter takes two cells."""
    lines = wrap_words("字" * 30, 20, "", "")

    assert [cells(line) for line in lines] == [20, 20, 20]


@pytest.mark.parametrize("text", ["", " ", "a"])
def test_short_texts_are_one_line(text: str) -> None:
    assert wrap_words(text, 20, "- ", "  ") == [f"- {text}".rstrip()]
