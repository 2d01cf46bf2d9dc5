"""Pages of the documentation stay readable: none is longer than a few screens, and each has a title of its own."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from folders import ROOT

PAGES: Final = sorted((ROOT / "docs").rglob("*.md"))
NAMES: Final = [path.relative_to(ROOT).as_posix() for path in PAGES]
MOST_LINES: Final = 250
LISTS: Final = {"docs/decisions.md": 600, "docs/decisions-archive.md": 2000}  # one entry is read at a time


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_is_at_most_250_lines_long(page: Path) -> None:
    """A page that grows over the limit has two topics. Decisions that bind no longer go to the archive."""
    most = LISTS.get(page.relative_to(ROOT).as_posix(), MOST_LINES)

    assert len(page.read_text(encoding="utf-8").splitlines()) <= most


def test_every_page_has_one_title_and_no_two_pages_have_the_same() -> None:
    """The title is the page's name in the navigation."""
    titles = {}
    for name, page in zip(NAMES, PAGES, strict=True):
        text = re.sub(r"^(```+).*?^\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        (titles[name],) = re.findall(r"^# (.+)$", text, re.MULTILINE)

    assert len(set(titles.values())) == len(titles)


@pytest.mark.parametrize("section", ["tutorials", "how-to", "explanation"])
def test_the_first_page_of_a_section_leads_to_all_of_its_pages(section: str) -> None:
    """A page that it leaves out is found by nobody who reads on GitHub, where there is no navigation beside it."""
    first = (ROOT / "docs" / section / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs" / section).glob("*.md")} - {"index.md"}

    assert pages <= set(re.findall(r"\(([\w-]+\.md)\)", first))


def test_every_extra_is_on_the_page_of_the_reference() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "docs" / "reference" / "index.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == project["optional-dependencies"].keys() - {
        "dev",
        "docs",
    }


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_has_no_diagram_that_is_drawn_by_a_program_from_elsewhere(page: Path) -> None:
    """A Mermaid block would make the site load a library from another host."""
    assert "```mermaid" not in page.read_text(encoding="utf-8")


def _decisions(page: str) -> list[int]:
    """Return the numbers of the entries of a page, in their order there."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert not re.search(r"^## [^\n]*\n+(?=## |\Z)", text, re.MULTILINE), "an entry has no text"
    return [int(number) for number in re.findall(r"^## (\d+)\. ", text, re.MULTILINE)]


def test_each_decision_has_one_number_and_the_page_says_the_next() -> None:
    """Comments in the code name entries by number, so none is given twice, and none is given anew."""
    binding, archived = _decisions("decisions.md"), _decisions("decisions-archive.md")
    (following,) = re.findall(r"next free number is (\d+)\.", (ROOT / "docs" / "decisions.md").read_text("utf-8"))

    assert binding == sorted(binding)
    assert archived == sorted(archived)
    assert sorted(binding + archived) == list(range(1, int(following)))


def test_a_decision_that_code_or_a_page_names_is_on_the_page_that_it_names() -> None:
    """An entry that moves to the archive takes the references to it along."""
    pages = {name: set(_decisions(name)) for name in ("decisions.md", "decisions-archive.md")}
    files = [*(ROOT / "dagrun").rglob("*.py"), *(ROOT / "tools").rglob("*.py"), *PAGES, ROOT / "pyproject.toml"]
    named = [
        (path.name, name, int(number))
        for path in files
        for name, numbers in re.findall(
            r"docs/(decisions(?:-archive)?\.md)`?, (\d+(?:(?:, | and )\d+)*)", path.read_text("utf-8")
        )
        for number in re.findall(r"\d+", numbers)
    ]

    assert len(named) >= 5
    assert [(path, name, number) for path, name, number in named if number not in pages[name]] == []


def test_every_entry_of_the_changelog_stands_once() -> None:
    """A merge of two changes to the list easily leaves one of them twice."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [entry.splitlines()[0] for entry in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]

    assert len(set(entries)) == len(entries)
    assert "## 0.2.0" in text.split("## 0.1.0")[0]
