"""The documents name what exists: files, modules and public names; and the examples for contributors are Python."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

import dagrun
from folders import ROOT

DOCUMENTS: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(
    path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")
))  # fmt: skip
CURRENT: Final = [name for name in DOCUMENTS if name != "docs/decisions-archive.md"]  # it names what was there then
ROOMS: Final = {path.name for path in (ROOT / "dagrun").iterdir() if path.is_dir()}
TREES: Final = {"benchmarks", "dagrun", "docs", "tests", "tools"}
NOT_NAMES: Final = {"dagrun.toml", "dagrun.tools", "dagrun.commands"}  # a file, and two groups of entry points


def _quoted(document: str) -> list[str]:
    """What stands in single backticks."""
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def _exists(path: str) -> bool:
    return any((folder / path).exists() for folder in (ROOT, ROOT / "dagrun", ROOT / "benchmarks/results"))


@pytest.mark.parametrize("document", CURRENT)
def test_every_file_that_a_document_names_exists(document: str) -> None:
    """Paths begin at the top of the checkout, or below `dagrun/`."""
    named = [text for text in _quoted(document) if re.fullmatch(r"[\w./-]+/[\w./-]*|[\w-]+\.(py|json|md)", text)]
    paths = [text for text in named if text.split("/")[0] in TREES | ROOMS]

    assert [path for path in paths if not _exists(path)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_to_a_file_leads_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]

    assert [target for target in targets if target and not (ROOT / document).parent.joinpath(target).exists()] == []


@pytest.mark.parametrize("document", CURRENT)
def test_every_name_of_dagrun_that_a_document_uses_exists(document: str) -> None:
    names = {found[0] for text in _quoted(document) if (found := re.match(r"dagrun(_tools)?(\.[A-Za-z_]+)+", text))}

    if document == "CHANGELOG.md":  # it tells of names that were given up, and that work for one release more
        names -= {f"dagrun.{name}" for name in dagrun._RENAMED}
    assert [name for name in sorted(names - NOT_NAMES) if not _is_known(name)] == []


def _is_known(name: str) -> bool:
    found: Any = dagrun
    for number, part in enumerate(parts := name.split("."), 1):
        if number > 1 and not hasattr(found, part) and _is_module(".".join(parts[:number])):
            found = import_module(".".join(parts[:number]))
        elif number > 1 and not hasattr(found, part):
            return False
        elif number > 1:
            found = getattr(found, part)
    return True


def _is_module(name: str) -> bool:
    path = Path(ROOT, *name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


@dagrun.tool(effect="pure")
def breaks() -> int:
    """Fail."""
    raise dagrun.ToolError("it is broken")


@pytest.mark.real_time
def test_the_examples_for_contributors_run() -> None:
    """The others are parts of files: they are Python, and no more can be said of them alone."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    whole: dict[str, Any] = {}

    for number, example in enumerate(examples):
        code = compile(example, f"example {number}", "exec")
        if example.startswith("import "):
            exec(code, whole)

    assert len(examples) == 5
    assert whole["count_words"](text="three small words") == 3
    assert whole["hello"].name == "hello"
    count = dagrun.Step(id="count", tool="count_words", args={"text": "three small words"})
    plan = dagrun.Plan(steps=[count, dagrun.Step(id="broken", tool="breaks")])
    result = dagrun.run_sync(plan, tools=[whole["count_words"], breaks], planner=whole["DropOptional"]())
    assert (result.status, result.output) == ("succeeded", 3)
