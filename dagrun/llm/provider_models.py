"""Models of OpenAI, of every server that is compatible with one of its two APIs, and of Anthropic."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, Literal, Unpack
from urllib.parse import urlsplit

from dagrun.errors import ContractError, MissingExtra
from dagrun.llm.http_clients import Client, Clients, SdkClient, certificates, http_client, timeouts
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
        import openai  # loaded here and not during a run, as that takes a second

        client = partial(openai.AsyncOpenAI, api_key=key or _NO_KEY)
        super().__init__(
            settings,
            "openai",
            clients=Clients(_maker(settings, client, "httpx or httpx2")),
            choice=FeatureChoice(_APIS[api], settings.structure, without),
            secret=key,
        )


def _is_openai(base_url: str | None) -> bool:
    host = "api.openai.com" if base_url is None else urlsplit(base_url).hostname or ""
    return host == "openai.com" or host.endswith((".openai.com", ".openai.azure.com"))


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
        import anthropic  # loaded here and not during a run, as that takes two seconds

        client = partial(anthropic.AsyncAnthropic, api_key=None if token else key or _NO_KEY, auth_token=token or None)
        super().__init__(
            settings,
            "anthropic",
            clients=Clients(_maker(settings, client, "httpx2")),
            choice=FeatureChoice(("messages",), settings.structure),
            secret=key or token,
        )


def _maker(settings: HttpSettings, make_client: Callable[..., Any], wanted: str) -> Callable[[], Client]:
    """Return the factory of clients, after a check of the HTTP client of the host.

    Args:
        settings: The options of the host.
        make_client: Makes a client of the library, which knows the key.
        wanted: The libraries whose HTTP clients it takes.

    Raises:
        ContractError: The HTTP client of the host cannot be used.
    """
    given, timeout = settings.http_client, settings.timeout

    def make() -> Client:
        try:
            client = make_client(
                base_url=settings.base_url,
                timeout=timeouts(timeout),
                max_retries=0,  # retries of the library would not be metered
                http_client=http_client(timeout) if given is None else given,
            )
        except TypeError as error:
            raise ContractError(f"http_client is an AsyncClient of {wanted}, not {type(given).__name__}") from error
        return SdkClient(client, is_ours=given is None)

    if given is None:
        certificates()
    else:
        make()
    return make
