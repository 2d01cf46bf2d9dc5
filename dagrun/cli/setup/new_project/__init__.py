"""The files of a project that ``dagrun new`` makes; they pass their own tests.

In: the name of the project. Out: the texts of its files, by their paths. The files beside this one are those texts.
Their names end in ``.txt``, so that no tool takes them for code of dagrun. ``$name`` stands for the name of the
project, and ``$module`` for its module of tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Final

_FILES: Final[Mapping[str, str]] = {
    "README.md": "README.md.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "dagrun.toml": "dagrun.toml.txt",
    "policy.toml": "policy.toml.txt",
    "plan.yaml": "plan.yaml.txt",
    "$module.py": "tools.py.txt",
    "tests/test_plan.py": "test_plan.py.txt",
}


def project_files(name: str, module: str) -> dict[str, str]:
    """Return the text of each file of a new project, by its path.

    Args:
        name: The name of the project.
        module: The name of its module of tools.
    """
    names = {"name": name, "module": module}
    texts = {path: (files(__package__) / file).read_text("utf-8") for path, file in _FILES.items()}
    return {Template(path).substitute(names): Template(text).substitute(names) for path, text in texts.items()}
