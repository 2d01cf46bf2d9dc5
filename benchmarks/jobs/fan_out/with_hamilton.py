"""Count the words of a list of documents, all at the same time, and add them up."""

import sys
import time

from hamilton import driver
from hamilton.execution.executors import MultiThreadingExecutor
from hamilton.htypes import Collect, Parallelizable


def document() -> Parallelizable[str]:
    """List the documents; how many there are is known only then."""
    yield from ("word " * length for length in range(20))


def count(document: str) -> int:
    """Count the words of a document."""
    time.sleep(0.01)
    return len(document.split())


def total(count: Collect[int]) -> int:
    """Add up."""
    return sum(count)


_driver = (
    driver.Builder()
    .with_modules(sys.modules[__name__])
    .enable_dynamic_execution(allow_experimental_mode=True)
    .with_remote_executor(MultiThreadingExecutor(max_tasks=20))
    .build()
)
print(_driver.execute(["total"])["total"])
