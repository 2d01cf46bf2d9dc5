"""Golden tasks in pytest: each case of a file in YAML becomes a parameter of a test.

    # evals/refund.yaml
    tools: shop_tools
    cases:
      - id: refund
        plan: refund.json
        world: {get_order: {id: 17, total: 30.0}, pay_back: ok}
        expect: {output: {refunded: 30.0}, calls: {once: [pay_back]}}

The cases themselves are a part of the floor above, `dagrun.evaluate.cases`, which carries them out on the virtual clock
of this package. So this module finds them by name, when a test asks for them.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

_HOME: Final = "dagrun.evaluate.cases.evaluation"


class GoldenTask(Protocol):
    """A golden task, as a test gets it.

    Attributes:
        id: The name of its file, and its own.
    """

    id: str

    def check(self) -> None:
        """Carry the task out, with all its runs.

        Raises:
            AssertionError: Something was not as expected; the text has a line for each miss.
        """
        ...


def cases(*paths: str | Path) -> list[Any]:
    """Return the golden tasks of files as parameters for ``pytest.mark.parametrize``.

    Each becomes a test of its own, which is called after its file and its id. A gate and a baseline are for ``dagrun
    eval``: here, every run of every case must be as expected.

    Args:
        paths: Files, or folders with ``.yaml`` files; relative to the current directory.

    Returns:
        A parameter for each case; its value is a `GoldenTask`.

    Raises:
        CasesRefused: A file, or something that it names, cannot be used; every fault is in the error.
        ModuleNotFoundError: pytest is not installed.

    Examples:
        >>> import pytest
        >>> from dagrun.testing import GoldenTask, cases
        >>> @pytest.mark.parametrize("task", cases())
        ... def test_golden_task(task: GoldenTask) -> None:
        ...     task.check()
    """
    found: list[Any] = import_module(_HOME).pytest_cases(paths)
    return found
