"""The failures that a stand-in raises, by the names that files of cases use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from dagrun.errors import ToolError
from dagrun.model.executor import WorkerDied


class HttpStatusError(Exception):
    """A service has answered with an HTTP status that is an error.

    Args:
        status_code: The status, from 400 to 599.
        text: What the service says.
    """

    def __init__(self, status_code: int, text: str = "") -> None:
        super().__init__(status_code, text)
        self.status_code = status_code
        self.text = text

    def __str__(self) -> str:
        return self.text or f"the service has answered with status {self.status_code}"


def _missing(text: str) -> ToolError:
    return ToolError(f"{text} is missing", missing_input=text or "value")


_MAKERS: Final[Mapping[str, Callable[[str], BaseException]]] = {
    "tool_error": lambda text: ToolError(text or "it cannot be done"),
    "retryable": lambda text: ToolError(text or "it cannot be done now", retryable=True),
    "timeout": lambda text: TimeoutError(text or "the service has not answered in time"),
    "connection": lambda text: ConnectionError(text or "the connection was lost"),
    "permission": lambda text: ToolError(text or "that is not allowed", permission=True),
    "unreachable": lambda text: ToolError(text or "it cannot be reached any more", unreachable=True),
    "missing_input": _missing,
    "exception": lambda text: RuntimeError(text or "something is broken"),
    "dies": lambda text: WorkerDied(text or "the process of the call has died"),
}
WRONG_TYPE: Final = "wrong_type"  # the call returns what the tool does not declare, so nothing is raised
FAILURE_NAMES: Final = (*_MAKERS, WRONG_TYPE)


def is_failure(said: Any) -> bool:
    """Whether *said* names a failure that `failure_of` can make."""
    if isinstance(said, dict):
        if len(said) != 1:
            return False
        name, text = next(iter(said.items()))
        return is_failure(_status(name)) and isinstance(text, str)
    if isinstance(said, int) and not isinstance(said, bool):
        return 400 <= said <= 599
    return isinstance(said, str) and (said == WRONG_TYPE or said in _MAKERS)


def _status(name: Any) -> Any:
    """Return the key of a mapping as a status, if it is one: keys of YAML are texts."""
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def failure_of(said: Any) -> BaseException:
    """Make the exception that *said* stands for.

    Args:
        said: A name such as ``timeout``, an HTTP status, or one of both with a text (``{tool_error: gone}``).
    """
    name, text = next(iter(said.items())) if isinstance(said, dict) else (said, "")
    name = _status(name)
    return HttpStatusError(name, text) if isinstance(name, int) else _MAKERS[name](text)
