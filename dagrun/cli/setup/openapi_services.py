"""Tools of HTTP services that ``--openapi FILE`` or the table ``[openapi.NAME]`` of the settings names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dagrun.cli.setup.secrets import secret_named
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.toml_files import check_fields
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import ContractError, shorten

if TYPE_CHECKING:
    from dagrun.model.secrets.secret import Secrets
    from dagrun.model.toolbox import Toolbox


def service_toolboxes(configuration: Configuration) -> Iterator[Toolbox]:
    """Yield a toolbox for each service that the settings name.

    Raises:
        BadInput: A table has a fault, or its document cannot be used.
    """
    for name, table in configuration.settings.openapi.items():
        yield _toolbox(configuration, name, table)


def _toolbox(configuration: Configuration, name: str, table: Mapping[str, Any]) -> Toolbox:
    from dagrun.sources.openapi.openapi_tools import openapi_tools
    from dagrun.sources.openapi.service_settings import ServiceSettings

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
            **options,
            **({"pool": name} if prefix else {}),
        )
    except ContractError as error:
        raise BadInput(str(error)) from error


def _auth(configuration: Configuration, service: str, secret: str | Mapping[str, str] | None) -> Secrets | None:
    """Return the secrets of a service. One without a value is missing only when a call needs it."""
    if secret is None:
        return None

    from dagrun.model.secrets.secret import Secrets
    from dagrun.sources.openapi.credentials import ANY_SCHEME

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
