"""Folders of the tests: data, and where processes that a test starts find the helpers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

HELPERS: Final = Path(__file__).resolve().parents[1]
TESTS: Final = HELPERS.parent
ROOT: Final = TESTS.parent
DATA: Final = TESTS / "data"


def python_path() -> str:
    """Return a PYTHONPATH by which another process finds every helper, and dagrun in the checkout."""
    return os.pathsep.join([*(str(folder) for folder in sorted(HELPERS.iterdir()) if folder.is_dir()), str(ROOT)])
