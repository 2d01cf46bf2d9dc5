"""What a host says about one service, as data: the table ``[openapi.NAME]`` of the settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dagrun.model.effect import Effect
from dagrun.sources.network.network_rules import NetworkRules

Patterns = Annotated[tuple[str, ...], Field(min_length=1)]


class ServiceSettings(BaseModel):
    """One service.

    Attributes:
        file: The path of its OpenAPI document.
        base_url: Its address, if that is not the first server of the document.
        secret: The name of the secret that proves who is calling; or a name for each security scheme.
        include: Patterns of the names of operations, or of tags (``tag:issues``); `None` for all.
        effects: Effects by the names of operations.
        prefix: Text before the name of every tool; `None` for the name of the service and a dot.
        network: Where connections may go.
        check_answers: Whether answers are held to the schemas of the document.
        timeout: Seconds for each attempt.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    base_url: str | None = None
    secret: str | dict[str, str] | None = None
    include: Patterns | None = None
    effects: dict[str, Effect] = Field(default_factory=dict)
    prefix: str | None = None
    network: NetworkRules | None = None
    check_answers: bool = True
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
