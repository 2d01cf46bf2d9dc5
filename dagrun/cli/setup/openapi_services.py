"""Tools of HTTP services that ``--openapi FILE`` or the table ``[openapi.NAME]`` of the settings names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagrun import Effect
from dagrun.cli.setup.secrets import secret_named
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.toml_files import check_fields
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, shorten
from dagrun.sources.network.network_rules import NetworkRules

if TYPE_CHECKING:
    from dagrun import Secrets, Toolbox


Patterns = Annotated[tuple[str, ...], Field(min_length=1)]


class ServiceSettings(BaseModel):
    """One service.

    Attributes:
        file: The path of its OpenAPI document.
        base_url: Its address, if that is not the first server of the document.
        secret: The name of the secret that proves who is calling; or a name for each security scheme.
        include: Patterns of the names of operations, or of tags (``tag:issues``); `None` for all.
        effects: Effects by the names of operations, or by patterns of names.
        prefix: Text before the name of every tool; `None` for the name of the service and a dot.
        network: Where connections may go.
        check_answers: Whether answers are held to the schemas of the document.
        errors: ``clean``: an answer that is an error means that nothing has happened.
        timeout: Seconds for each attempt.
        untrusted: Whether others can write its output.
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
    errors: Literal["unknown", "clean"] = "unknown"
    timeout: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    untrusted: bool = True


def service_toolboxes(configuration: Configuration) -> Iterator[Toolbox]:
    """Yield a toolbox for each service that the settings name.

    Raises:
        BadInput: A table has a fault, or its document cannot be used.
    """
    for name, table in configuration.settings.openapi.items():
        yield _toolbox(configuration, name, table)


def _toolbox(configuration: Configuration, name: str, table: Mapping[str, Any]) -> Toolbox:
    from dagrun import openapi_tools

    origin = configuration.origins["openapi"]
    said = check_fields(ServiceSettings, table, f"{origin.name}: openapi.{shorten(name, 60)}")
    prefix = f"{name}." if said.prefix is None else said.prefix
    options = {} if said.timeout is None else {"timeout": said.timeout}
    try:
        return openapi_tools(
            origin.folder / said.file,
            base_url=said.base_url,
            auth=_auth(configuration, name, said.secret),
            include=said.include,
            effects=said.effects,
            prefix=prefix,
            network=said.network,
            check_answers=said.check_answers,
            errors=said.errors,
            untrusted=said.untrusted,
            **options,
            **({"pool": name} if prefix else {}),
        )
    except ContractError as error:
        raise BadInput(str(error)) from error


def _auth(configuration: Configuration, service: str, secret: str | Mapping[str, str] | None) -> Secrets | None:
    """Return the secrets of a service. One without a value is missing only when a call needs it."""
    if secret is None:
        return None

    from dagrun import Secrets
    from dagrun.sources.openapi.service_calls import ANY_SCHEME

    named = {ANY_SCHEME: secret} if isinstance(secret, str) else dict(secret)
    values = {}
    for scheme, name in named.items():
        value = secret_named(configuration, name)
        if value is None:
            known = ", ".join(text.partition("=")[0] for text in configuration.settings.secrets) or "none"
            raise BadInput(f"openapi.{service}: there is no secret {shorten(name, 64)}; the secrets are: {known}")
        values[scheme] = value
    try:
        return Secrets(values)
    except ContractError:  # a command that makes no call needs no value; one that does has said so before
        return Secrets.named(values)
