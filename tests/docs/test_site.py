"""The site of the documentation: links of the checkout hold on it, every page is found, and faults are named."""

from __future__ import annotations

from pathlib import Path

import pytest

import build_site

HEAD = "<!DOCTYPE html><title>A page</title>"


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        ("[tests](../../tests/conftest.py)", "`tests`"),
        ("[`conftest`](../../tests/conftest.py)", "`conftest`"),
        ("[how](../../CONTRIBUTING.md#tests)", "[how](../CONTRIBUTING.md#tests)"),
        ("[costs](../explanation/performance.md#a)", "[costs](../explanation/performance.md#a)"),
        ("[service](../examples/service.py)", "[service](../examples/service.md)"),
        ("![plot](../../benchmarks/results/overhead.png)", "![plot](../pictures/overhead.png)"),
        ("[home](https://example.org/README.md)", "[home](https://example.org/README.md)"),
        ("[below](#below)", "[below](#below)"),
        ("| `a \\| b` | a \\| b |", "| `a | b` | a \\| b |"),
        ("```text\n[tests](../../tests/conftest.py)\n```", "```text\n[tests](../../tests/conftest.py)\n```"),
    ],
)
def test_a_link_of_the_checkout_leads_to_the_same_thing_on_the_site(text: str, turned: str, tmp_path: Path) -> None:
    """One text serves readers of the checkout and of the site."""
    page = tmp_path / "how-to" / "page.md"
    source = build_site.DOCS / "how-to" / "page-of-a-test.md"
    page.parent.mkdir()

    assert build_site.turned(text, source, page, tmp_path) == turned


def test_a_picture_from_elsewhere_is_copied_to_the_site(tmp_path: Path) -> None:
    build_site.turned("![](../benchmarks/results/modes.png)", build_site.DOCS / "a.md", tmp_path / "a.md", tmp_path)

    assert (tmp_path / "pictures" / "modes.png").stat().st_size > 1000


def test_a_page_that_nobody_has_named_is_in_its_section_all_the_same(tmp_path: Path) -> None:
    """Who writes a page need not know the list."""
    for name in ("index.md", "old.md", "new.md"):
        (tmp_path / "how-to").mkdir(exist_ok=True)
        (tmp_path / "how-to" / name).touch()
    nav = ["index.md", {"How-to": ["how-to/index.md", {"Deep": ["how-to/old.md"]}]}]

    full = build_site.with_every_page(nav, tmp_path)

    assert full == ["index.md", {"How-to": ["how-to/index.md", {"Deep": ["how-to/old.md"]}, "how-to/new.md"]}]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<script src="https://unpkg.com/x.js"></script>', "loads https://unpkg.com/x.js"),
        ('<link rel=stylesheet href="//fonts.example/x.css">', "loads //fonts.example/x.css"),
        ('<img src="https://example.org/a.png">', "loads https://example.org/a.png"),
        ('<img src="a.png">', "links to a.png, which is not there"),
        ('<a href="gone.html">x</a>', "links to gone.html, which is not there"),
        ('<a href="b.html#gone">x</a>', "links to b.html#gone, but there is no such place"),
    ],
)
def test_a_fault_of_a_built_page_is_named(body: str, fault: str, tmp_path: Path) -> None:
    """One planted fault each; the page beside it has none."""
    (tmp_path / "a.html").write_text(f"{HEAD}{body}")
    (tmp_path / "b.html").write_text(
        f'{HEAD}<link rel=canonical href="https://example.org/"><p id=here><a href="b.html#here">x</a>'
        '<a href="https://example.org">out</a>'
    )

    (found,) = build_site.faults_of(tmp_path)

    assert found.startswith("a.html ")
    assert fault in found


def test_a_style_that_loads_from_outside_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text('@font-face{src:url("https://fonts.example/f")} p{background:url(a.png)}')

    assert build_site.faults_of(tmp_path) == ["a.css loads https://fonts.example/f"]
