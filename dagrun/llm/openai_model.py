"""Models of OpenAI, and of every server that is compatible with one of its two interfaces."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from dagrun.errors import ContractError
from dagrun.llm.http_clients import Client, Clients, SdkClient, http_client, timeouts, tried
from dagrun.llm.http_model import HttpModel, checked_options
from dagrun.llm.language_model import Structure
from dagrun.llm.prices import Prices, PriceTable
from dagrun.llm.server_features import ApiName, FeatureChoice

_APIS: Final[dict[str, tuple[ApiName, ...]]] = {
    "auto": ("responses", "chat"),
    "responses": ("responses",),
    "chat": ("chat",),
}

# A server that needs no key gets this one: the library does not send calls without.
_NO_KEY: Final = "none"


class OpenAIModel(HttpModel):
    """A model of OpenAI, or of a compatible server: vLLM, Ollama, llama.cpp and many others.

    The key is taken from the environment (``OPENAI_API_KEY``) unless the host gives one; the address of another server
    from ``OPENAI_BASE_URL`` in the same way. A server that is named by its address may do without a key.

    ``async with model:`` keeps the connections from one call to the next; without it, they are closed with the last of
    the calls that overlap. Both are safe on any number of event loops.

    Args:
        name: As the server calls it.
        base_url: The address of the server, with the version in it: ``http://127.0.0.1:8000/v1``.
        api: ``responses`` or ``chat`` (Chat Completions); ``auto`` tries the first, and takes the second with a server
            that does not know the first, or only its name.
        structure: How an answer gets its form: ``schema`` (strict JSON by a schema), ``tool`` (a call of a tool that
            must be called), ``json`` (no more than JSON, and the schema in the prompt); ``auto`` for the first of them
            that the server takes.
        timeout: Seconds without a word of the server.
        max_seconds: Seconds for a whole call.
        prices: What models cost; `None` for what ``genai-prices`` knows, if it is installed.
        api_key: From the host program, never from a plan.
        http_client: An ``AsyncClient`` of httpx or httpx2, for proxies and the like; for one event loop, and closed by
            who has made it.

    Raises:
        ContractError: An option makes no sense, or there is no key.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api: Literal["auto", "responses", "chat"] = "auto",
        structure: Structure | Literal["auto"] = "auto",
        timeout: float = 120.0,
        max_seconds: float = 600.0,
        prices: PriceTable | Prices | None = None,
        api_key: str | None = None,
        http_client: Any = None,
    ) -> None:
        if api not in _APIS:
            raise ContractError(f"api is one of {', '.join(_APIS)}, not {api!r}")
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        checked_options(name, base_url=base_url, structure=structure, timeout=timeout, max_seconds=max_seconds)
        key = (api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not key and base_url is None:
            raise ContractError(f"{name} needs a key: set OPENAI_API_KEY, or give the base_url of another server")
        super().__init__(
            name,
            clients=Clients(_maker(key or _NO_KEY, base_url, timeout, http_client)),
            choice=FeatureChoice(
                _APIS[api], structure, frozenset(("max_tokens",)) if _is_openai(base_url) else frozenset()
            ),
            prices=prices if isinstance(prices, PriceTable) else PriceTable(prices),
            sold_by={"provider": "openai"} if base_url is None else {"url": base_url},
            max_seconds=max_seconds,
            secret=key,
        )


def _maker(key: str, base_url: str | None, timeout: float, given: Any) -> Callable[[], Client]:
    """How to make clients of the library. It is loaded here, not in the middle of a run: it takes a second."""
    import openai

    def make() -> Client:
        try:
            client = openai.AsyncOpenAI(
                api_key=key,
                base_url=base_url,
                timeout=timeouts(timeout),
                max_retries=0,  # they would be charged to nobody
                http_client=http_client(timeout) if given is None else given,
            )
        except TypeError as error:
            kind = type(given).__name__
            raise ContractError(f"http_client is an AsyncClient of httpx or httpx2, not {kind}") from error
        return SdkClient(client, is_ours=given is None)

    return tried(make, given)


def _is_openai(base_url: str | None) -> bool:
    host = "api.openai.com" if base_url is None else urlsplit(base_url).hostname or ""
    return host == "openai.com" or host.endswith((".openai.com", ".openai.azure.com"))
