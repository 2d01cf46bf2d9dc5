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


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_is_at_most_250_lines_long(page: Path) -> None:
    """A page that grows over the limit has two topics. Of decisions, the oldest go to a page in docs/decisions/."""
    assert len(page.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


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


def test_decisions_are_numbered_one_after_another() -> None:
    """Comments in the code name them by number."""
    pages = [*sorted((ROOT / "docs" / "decisions").glob("*.md")), ROOT / "docs" / "decisions.md"]
    numbers = [
        number for page in pages for number in re.findall(r"^## (\d+)\. ", page.read_text("utf-8"), re.MULTILINE)
    ]

    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert not [
        page.name for page in pages if re.search(r"^## [^\n]*\n+(?=## |\Z)", page.read_text("utf-8"), re.MULTILINE)
    ]


def test_every_entry_of_the_changelog_stands_once() -> None:
    """A merge of two changes to the list easily leaves one of them twice."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [entry.splitlines()[0] for entry in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]

    assert len(set(entries)) == len(entries)
    assert "## 0.2.0" in text.split("## 0.1.0")[0]
