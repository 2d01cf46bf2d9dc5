"""Outputs that are too large for JSON between steps, and are kept as artifacts instead.

1. A tool says that it may happen by its return type: a union with `Artifact`, such as ``list[int] | Artifact``.
2. Its output is checked as always. If its JSON is over the ``output_limit`` of the tool, the JSON becomes a file,
   and the output of the step is the `Artifact`. Over ``max_spill_bytes`` of the policy it is a failure. What may not
   be recorded may not become a file either: the output of an unrecorded tool, one that holds a secret, and
   one with personal data where records are redacted.
3. A step gets such an output only where its parameter takes an `Artifact`. Anywhere else it would be taken for the data
   itself, so the step fails, and the failure names the limit.

That an output was spilled follows from its value and its tool alone, so a resumed run knows it without a record.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from dagrun.errors import ValueRefused
from dagrun.kernel.model.secrets import NO_SECRETS, Secrets
from dagrun.kernel.model.value import (
    MAX_ARGUMENT_BYTES,
    MAX_SPILL_BYTES,
    Artifact,
    ArtifactStore,
    Stored,
    decode,
    encode,
    to_json,
)


class SpillingOutput(Protocol):
    """The part of an output contract that spilling needs: whether the return type names `Artifact`."""

    @property
    def spills(self) -> bool:
        """Whether it does."""
        ...


class SpillingTool(Protocol):
    """The part of a tool that spilling needs; the class `Tool` is defined above this module."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def output(self) -> SpillingOutput:
        """Its output contract."""
        ...

    @property
    def output_limit(self) -> int:
        """The most bytes of JSON that it may return without a file."""
        ...


_FIELDS = frozenset(Artifact.model_fields)
_MOST = 2_000  # bytes of JSON of an artifact: its texts are short


@dataclass(frozen=True, slots=True)
class ValueLimits:
    """Bytes of JSON of the values of a run; see `Policy`.

    Attributes:
        arguments: Of the arguments of one call.
        spilled: Of an output that becomes an artifact.
        unrecorded: The names of the tools whose outputs are in no record.
    """

    arguments: int = MAX_ARGUMENT_BYTES
    spilled: int = MAX_SPILL_BYTES
    unrecorded: Sequence[str] = ()

    def spills(self, tool: SpillingTool) -> bool:
        """Whether an output of *tool* that is over its ``output_limit`` becomes an artifact."""
        return tool.output.spills and self.spilled > tool.output_limit and tool.name not in self.unrecorded

    def most_of(self, tool: SpillingTool) -> int:
        """Return the most bytes that *tool* may return, whether they are spilled or not."""
        return self.spilled if self.spills(tool) else tool.output_limit

    def name_of(self, tool: SpillingTool) -> str:
        """Return the name of the limit that `most_of` returns, for a person."""
        return "max_spill_bytes of the policy" if self.spills(tool) else f"output_limit of {tool.name}"


def may_spill(hint: Any) -> bool:
    """Whether a return type is a union with `Artifact`."""
    while typing.get_origin(hint) is Annotated or hasattr(hint, "__value__"):
        hint = hint.__value__ if hasattr(hint, "__value__") else typing.get_args(hint)[0]
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return False
    return any(part is Artifact or may_spill(part) for part in typing.get_args(hint))


def spill(
    stored: Stored, tool: SpillingTool, artifacts: ArtifactStore, step: str, secrets: Secrets = NO_SECRETS
) -> Stored:
    """Return the output of *tool*, or an artifact in its place if it is over its ``output_limit``.

    Raises:
        ValueRefused: The file cannot be written, or would hold one of *secrets*.
    """
    data = to_json(stored)
    if len(data) <= tool.output_limit:
        return stored
    if secrets.are_hidden and (name := secrets.found_in(data.decode())):
        raise ValueRefused(
            f"{len(data)} bytes of JSON are over its output_limit, and hold the secret {name}, so they are in no file"
        )
    try:
        artifact = artifacts.save(data, media_type="application/json", name=f"{step}.json")
    except OSError as error:
        raise ValueRefused(
            f"{len(data)} bytes of JSON are over its output_limit, and cannot be kept as an artifact: {error.strerror}"
        ) from error
    return encode(artifact.model_dump())


def why_spilled(stored: Stored, tool: SpillingTool) -> str:
    """Return why an output became an artifact (its size); empty if it did not."""
    if not tool.output.spills or type(stored) is not bytes or len(stored) > _MOST:
        return ""
    value = decode(stored)
    if not isinstance(value, Mapping) or value.keys() != _FIELDS or value["size"] <= tool.output_limit:
        return ""
    return (
        f"the output is an Artifact, because its {value['size']} bytes of JSON are over the output_limit of "
        f"{tool.output_limit} that {tool.name} has"
    )
