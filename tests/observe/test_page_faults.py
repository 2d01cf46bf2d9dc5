"""The check of pages finds each kind of fault, planted on purpose, and none in a good page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from browsing import Pages, browsing
from page_faults import faults_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

OUTSIDE: Final = "http://outside.invalid"
HEAD: Final = "<!DOCTYPE html><meta charset=utf-8><title>t</title><link rel=icon href=data:,>"
POLICY: Final = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">"

BAD_PAGES: Final = (
    ("external picture", "loads", f'{HEAD}<img src="{OUTSIDE}/a.png">'),
    ("picture far below", "loads", f'{HEAD}<p style="height:9000px">x<p><img loading=lazy src="{OUTSIDE}/a.png">'),
    ("picture that a policy blocks", "console", f'{HEAD}{POLICY}<img src="{OUTSIDE}/a.png">'),
    ("external style", "loads", f'{HEAD}<link rel=stylesheet href="{OUTSIDE}/a.css">x'),
    (
        "external font",
        "loads",
        f"{HEAD}<style>@font-face{{font-family:f;src:url({OUTSIDE}/f)}}p{{font-family:f}}</style><p>x",
    ),
    ("external frame", "loads", f'{HEAD}x<iframe src="{OUTSIDE}/"></iframe>'),
    ("picture in a file beside it", "loads", f'{HEAD}<img src="beside.gif">'),
    ("connection ahead of use", "reaches", f'{HEAD}<link rel=preconnect href="{OUTSIDE}">x'),
    ("request of a script", "loads", f'{HEAD}x<script>fetch("{OUTSIDE}/").catch(() => 0)</script>'),
    ("socket of a script", "connects", f'{HEAD}x<script>new WebSocket("ws://outside.invalid/")</script>'),
    ("script error", "script error", f"{HEAD}x<script>missing()</script>"),
    ("rejected promise", "script error", f"{HEAD}x<script>Promise.reject(new Error('no'))</script>"),
    ("message of an error", "console", f"{HEAD}x<script>console.error('wrong')</script>"),
    ("broken picture", "picture", f'{HEAD}<img src="data:image/png;base64,AAAA">'),
    ("missing title", "no title", "<!DOCTYPE html><p>x"),
    ("empty page", "nothing on it", HEAD),
)


@pytest.fixture(scope="module")
def pages() -> Iterator[Pages]:
    """One browser for the module."""
    with browsing() as open_pages:
        yield open_pages


@pytest.fixture(autouse=True)
def _no_leaks() -> None:
    """The browser lives longer than a test."""


@pytest.mark.parametrize(("name", "fault", "text"), BAD_PAGES, ids=[name for name, _, _ in BAD_PAGES])
def test_fault_is_found(pages: Pages, tmp_path: Path, name: str, fault: str, text: str) -> None:
    (tmp_path / "page.html").write_text(text, "utf-8")

    assert any(one.startswith(fault) for one in faults_of(pages, tmp_path / "page.html"))


def test_good_page_has_no_fault(pages: Pages, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f"{HEAD}<p>Good</p>", "utf-8")

    assert faults_of(pages, tmp_path / "page.html") == []
