"""The README tells the truth: its example runs and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.real_time
def test_the_example_of_the_readme_runs_and_prints_what_it_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the first thing that a newcomer tries."""
    monkeypatch.chdir(ROOT)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 1
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 20

    # Annotations of tools are looked up in the module of the function, as they would be in a script.
    exec(compile(blocks[0], "README.md", "exec"), {"__name__": "__main__"})

    printed = capsys.readouterr().out.strip()
    assert f"It prints `{printed}`" in text
