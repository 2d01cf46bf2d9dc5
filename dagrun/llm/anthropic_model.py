"""Models of Anthropic."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, Unpack

from dagrun.errors import ContractError, MissingExtra
from dagrun.llm.http_clients import Client, Clients, SdkClient, checked_maker, http_client, timeouts
from dagrun.llm.http_model import HttpModel, HttpOptions, HttpSettings
from dagrun.llm.server_features import FeatureChoice

# The key for a server that needs none: the library makes no call without a key.
_NO_KEY: Final = "none"


class AnthropicModel(HttpModel):
    """A model of Anthropic, over its Messages API.

    The key is taken from the environment (``ANTHROPIC_API_KEY`` or ``ANTHROPIC_AUTH_TOKEN``) unless the host gives one;
    so is the address of another server (``ANTHROPIC_BASE_URL``), without a version. A server with an address of its own
    may need no key. Profiles on the disk are not read.

    ``async with model:`` keeps the connections from one call to the next; without it, they are closed with the last of
    the calls that overlap. Both are safe on any number of event loops.

    Args:
        name: The server's name for the model.
        options: *base_url*, *structure*, *timeout*, *max_seconds*, *prices*, *api_key* and *http_client*: see
            `HttpOptions`.

    Raises:
        ContractError: An option is invalid, or there is no key.
        MissingExtra: The library of Anthropic is not installed.
    """

    def __init__(self, name: str, **options: Unpack[HttpOptions]) -> None:
        if find_spec("anthropic") is None:
            raise MissingExtra("models of Anthropic need their library: pip install 'dagrun-engine[anthropic]'")
        options["base_url"] = options.get("base_url") or os.environ.get("ANTHROPIC_BASE_URL") or None
        settings = HttpSettings(name=name, **options)
        key = (settings.api_key or os.environ.get("ANTHROPIC_API_KEY") or "").strip()
        token = "" if key else os.environ.get("ANTHROPIC_AUTH_TOKEN", "").strip()
        if not key and not token and settings.base_url is None:
            raise ContractError(f"{name} needs a key: set ANTHROPIC_API_KEY, or give the base_url of another server")
        credentials = {"auth_token": token} if token else {"api_key": key or _NO_KEY}
        super().__init__(
            settings,
            "anthropic",
            clients=Clients(_maker(settings, credentials)),
            choice=FeatureChoice(("messages",), settings.structure),
            secret=key or token,
        )


def _maker(settings: HttpSettings, credentials: dict[str, str]) -> Callable[[], Client]:
    """Return the factory of clients. The library is loaded here and not during a run, as that takes two seconds."""
    import anthropic

    given, timeout = settings.http_client, settings.timeout

    def make() -> Client:
        try:
            client = anthropic.AsyncAnthropic(
                api_key=credentials.get("api_key"),
                auth_token=credentials.get("auth_token"),
                base_url=settings.base_url,
                timeout=timeouts(timeout),
                max_retries=0,  # retries of the library would not be metered
                http_client=http_client(timeout) if given is None else given,
            )
        except TypeError as error:
            raise ContractError(f"http_client is an AsyncClient of httpx2, not {type(given).__name__}") from error
        return SdkClient(client, is_ours=given is None)

    return checked_maker(make, given)
