"""How calls fail in a simulation: how often, and with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dagrun.errors import ContractError, ToolError, shorten

TIMEOUT: Final = "timeout"

_ERRORS: Final[Mapping[str, Callable[[], Exception]]] = {
    TIMEOUT: lambda: TimeoutError("simulated"),
    "connection": lambda: ConnectionError("simulated"),
    "busy": lambda: ToolError("simulated", retryable=True),
    "refused": lambda: ToolError("simulated"),
    "bug": lambda: RuntimeError("simulated"),
}

KINDS: Final = ", ".join(_ERRORS)


@dataclass(frozen=True, slots=True)
class FailureModel:
    """How often the calls of a tool fail, each by itself, and with what.

    Attributes:
        rate: The part of the calls that fail, from 0 to 1.
        kind: ``timeout``: the call does not come back; ``connection``: it breaks, and may have had its effect;
            ``busy``: the tool says that it cannot now; ``refused``: it says no for good; ``bug``: it raises anything.
    """

    rate: float
    kind: str = "connection"

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ContractError(f"a failure rate is a part from 0 to 1, not {self.rate:g}")
        if self.kind not in _ERRORS:
            raise ContractError(f"calls fail with {KINDS}; not with {shorten(self.kind, 40)!r}")

    def __str__(self) -> str:
        return f"{self.rate:g}:{self.kind}"

    def error(self) -> Exception:
        """Return a new exception of the kind."""
        return _ERRORS[self.kind]()


def read_failures(given: Mapping[str, object]) -> dict[str, FailureModel]:
    """Read failure rates by the name of a tool, or the id of a step: ``0.02``, or ``0.02:timeout``.

    Raises:
        ContractError: One cannot be read; the error names it.
    """
    read = {}
    for name, text in given.items():
        if isinstance(text, FailureModel):
            read[name] = text
            continue
        rate, _, kind = str(text).partition(":")
        try:
            read[name] = FailureModel(float(rate), kind or "connection")
        except ContractError as error:
            raise ContractError(f"{name}: {error}") from None
        except ValueError:
            raise ContractError(
                f"{name}: a failure rate is a part from 0 to 1, and what the calls fail with ({KINDS}): 0.02 or"
                f" 0.02:timeout; not {shorten(str(text), 40)!r}"
            ) from None
    return read
