"""The first pages of a newcomer use plain words: ten terms are explained, and no word of the source is needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from folders import ROOT

TERMS: Final = {"tool", "effect", "step", "plan", "run", "policy", "planner", "patch", "run log", "journal"}
FIRST_PAGES: Final = (
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "explanation" / "terms.md",
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("cli-*.md")),  # they have the text of `--help-all`; a test compares them
)
HOUSE_WORDS: Final = re.compile(
    r"\b(tapes?|letters?|doubt(s|ful)?|deeds?|standings?|rungs?|ladders?|ways?|second calls?|stand-ins?|upcalls?"
    r"|chronicles?|spli(ce|ces|ced|cing)|slots?|luck|strange|overheard|hand(s|ed)? on|taken? up|mend(s|ed)?|anew|amid"
    r"|whoever|for want of|once more|in place of|that of|those of|of which|told)\b",
    re.IGNORECASE,
)


def _prose(text: str) -> str:
    """Return a page without its blocks of code, quoted code and the targets of links."""
    text = re.sub(r"^(```+).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<[^>]*>", "", re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "code", text)))


def house_words(text: str) -> list[str]:
    """Return the words in a text that only a reader of the source knows, or that nobody searches for."""
    return [found[0] for found in HOUSE_WORDS.finditer(text)]


@pytest.mark.parametrize("page", FIRST_PAGES, ids=[path.relative_to(ROOT).as_posix() for path in FIRST_PAGES])
def test_a_first_page_uses_no_word_of_the_source(page: Path) -> None:
    assert house_words(_prose(page.read_text(encoding="utf-8"))) == []


def test_words_of_the_source_are_found_in_prose_and_not_in_code() -> None:
    assert house_words(_prose("Ladders are open.\n\n```python\nladder = open()\n```\n")) == ["Ladders"]
    assert house_words(_prose("A [way](ways.md) with `a letter`")) == ["way"]


def test_the_page_of_terms_explains_ten() -> None:
    text = (ROOT / "docs" / "explanation" / "terms.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| \*\*([^*]+)\*\* \|", text, re.MULTILINE)) == TERMS


def _sentences(page: str) -> list[str]:
    """Return the sentences of a page; an item of a list, a cell of a table and a heading end one, too."""
    parts = re.split(r"\n\s*\n|^\s*(?:[-#|]+|\d+\.)\s|\|", _prose(page), flags=re.MULTILINE)
    return [" ".join(one.split()) for part in parts for one in re.split(r"(?<=[.!?])\s+", part) if one.strip()]


def test_no_sentence_of_the_readme_has_more_than_thirty_words() -> None:
    """A list of links is read item by item, so the names of the pages count as one word each."""
    text = re.sub(r"\[[^\]]*\](?=\()", "link", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert [sentence for sentence in _sentences(text) if len(sentence.split()) > 30] == []
    assert max(len(sentence.split()) for sentence in _sentences("One two. " + "word " * 31)) == 31


def test_the_first_screen_of_the_readme_has_code() -> None:
    assert "\n```python\n" in "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30])
