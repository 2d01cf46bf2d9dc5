"""Models of OpenAI, and of every server that is compatible with one of its two APIs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Literal, Unpack
from urllib.parse import urlsplit

from dagrun.errors import ContractError
from dagrun.llm.http_clients import Client, Clients, SdkClient, checked_maker, http_client, timeouts
from dagrun.llm.http_model import HttpModel, HttpOptions, HttpSettings
from dagrun.llm.server_features import ApiName, FeatureChoice

_APIS: Final[dict[str, tuple[ApiName, ...]]] = {
    "auto": ("responses", "chat"),
    "responses": ("responses",),
    "chat": ("chat",),
}

# The key for a server that needs none: the library makes no call without a key.
_NO_KEY: Final = "none"


class OpenAIModel(HttpModel):
    """A model of OpenAI, or of a compatible server: vLLM, Ollama, llama.cpp and many others.

    The key is taken from the environment (``OPENAI_API_KEY``) unless the host gives one; so is the address of another
    server (``OPENAI_BASE_URL``), with the version in it: ``http://127.0.0.1:8000/v1``. A server with an address of its
    own may need no key.

    ``async with model:`` keeps the connections from one call to the next; without it, they are closed with the last of
    the calls that overlap. Both are safe on any number of event loops.

    Args:
        name: The server's name for the model.
        api: ``responses`` or ``chat`` (Chat Completions); ``auto`` tries the first, and takes the second with a server
            that does not know the first, or knows only its path.
        options: *base_url*, *structure*, *timeout*, *max_seconds*, *prices*, *api_key* and *http_client*: see
            `HttpOptions`.

    Raises:
        ContractError: An option is invalid, or there is no key.
    """

    def __init__(
        self,
        name: str,
        *,
        api: Literal["auto", "responses", "chat"] = "auto",
        **options: Unpack[HttpOptions],
    ) -> None:
        if api not in _APIS:
            raise ContractError(f"api is one of {', '.join(_APIS)}, not {api!r}")
        options["base_url"] = options.get("base_url") or os.environ.get("OPENAI_BASE_URL") or None
        settings = HttpSettings(name=name, **options)
        key = (settings.api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not key and settings.base_url is None:
            raise ContractError(f"{name} needs a key: set OPENAI_API_KEY, or give the base_url of another server")
        # Models of OpenAI refuse the older name of this option.
        without = frozenset(("max_tokens",)) if _is_openai(settings.base_url) else frozenset()
        super().__init__(
            settings,
            "openai",
            clients=Clients(_maker(settings, key or _NO_KEY)),
            choice=FeatureChoice(_APIS[api], settings.structure, without),
            secret=key,
        )


def _maker(settings: HttpSettings, key: str) -> Callable[[], Client]:
    """Return the factory of clients. The library is loaded here and not during a run, as that takes a second."""
    import openai

    given, timeout = settings.http_client, settings.timeout

    def make() -> Client:
        try:
            client = openai.AsyncOpenAI(
                api_key=key,
                base_url=settings.base_url,
                timeout=timeouts(timeout),
                max_retries=0,  # retries of the library would not be metered
                http_client=http_client(timeout) if given is None else given,
            )
        except TypeError as error:
            kind = type(given).__name__
            raise ContractError(f"http_client is an AsyncClient of httpx or httpx2, not {kind}") from error
        return SdkClient(client, is_ours=given is None)

    return checked_maker(make, given)


def _is_openai(base_url: str | None) -> bool:
    host = "api.openai.com" if base_url is None else urlsplit(base_url).hostname or ""
    return host == "openai.com" or host.endswith((".openai.com", ".openai.azure.com"))
