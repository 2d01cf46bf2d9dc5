"""The reference is complete and says what the code says."""

from __future__ import annotations

import ast
import re
from collections import Counter
from inspect import isclass, ismodule, isroutine
from itertools import pairwise
from types import ModuleType
from typing import Final

import pytest

import dagrun
import dagrun.testing
import make_reference
from dagrun.executors import wire
from folders import ROOT

API: Final = ROOT / "docs" / "reference" / "api"
PAGES: Final = make_reference.pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_made_of_the_code_is_up_to_date(name: str) -> None:
    """After a change of the code: `make reference`."""
    assert (make_reference.FOLDER / name).read_text(encoding="utf-8") == PAGES[name]


def test_every_public_name_is_on_exactly_one_page_of_the_reference() -> None:
    """A new name joins the page of docs/reference/api that fits, as a line ``::: dagrun.Name``."""
    shown = Counter(
        name for page in API.glob("*.md") for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.M)
    )
    tiers = (dagrun.errors, dagrun.events, dagrun.extend, dagrun.network, dagrun.records, dagrun.texts)
    public = [f"dagrun.{name}" for name in dagrun.__all__ if not isinstance(getattr(dagrun, name), ModuleType)]
    public += [f"{tier.__name__}.{name}" for tier in tiers for name in tier.__all__ if name not in dagrun.__all__]
    public += [f"{module.__name__}.{name}" for module in (dagrun.testing, wire) for name in module.__all__]

    assert [name for name in public if shown[name] != 1] == []
    assert shown.keys() - public == {"dagrun.api.RunOptions"}


def test_every_public_name_has_a_text() -> None:
    """The site leaves out a name without one. The text of a value stands below it."""
    below = {
        target.id
        for path in (ROOT / "dagrun").rglob("*.py")
        for value, text in pairwise(ast.parse(path.read_text(encoding="utf-8")).body)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        for target in (value.targets if isinstance(value, ast.Assign) else [getattr(value, "target", None)])
        if isinstance(target, ast.Name)
    }
    tiers = (dagrun, dagrun.errors, dagrun.events, dagrun.extend, dagrun.network, dagrun.records, dagrun.texts)
    public = {name: getattr(tier, name) for tier in tiers for name in tier.__all__}
    values = {name for name, value in public.items() if not (isclass(value) or isroutine(value) or ismodule(value))}

    assert values - below == {"__version__"}
    assert [name for name in public.keys() - values if not public[name].__doc__] == []


def test_every_variable_that_the_code_reads_is_on_the_page_of_settings() -> None:
    page = PAGES["settings.md"]
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "dagrun").rglob("*.py"))
    used = {name for source in sources for name in re.findall(r"\bDAGRUN_[A-Z_]*[A-Z]\b", source)}

    assert {name for name in used if name not in page} == {"DAGRUN_READ_FROM"}  # for processes of our own
