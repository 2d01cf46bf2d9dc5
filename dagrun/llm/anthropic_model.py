"""Models of Anthropic."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final, Literal

from dagrun.errors import ContractError, MissingExtra
from dagrun.llm.http_clients import Client, Clients, SdkClient, http_client, timeouts, tried
from dagrun.llm.http_model import HttpModel, checked_options
from dagrun.llm.language_model import Structure
from dagrun.llm.prices import Prices, PriceTable
from dagrun.llm.server_features import FeatureChoice

# A server that needs no key gets this one: the library does not send calls without.
_NO_KEY: Final = "none"


class AnthropicModel(HttpModel):
    """A model of Anthropic, over its Messages API.

    The key is taken from the environment (``ANTHROPIC_API_KEY`` or ``ANTHROPIC_AUTH_TOKEN``) unless the host gives one;
    the address of another server from ``ANTHROPIC_BASE_URL`` in the same way. A server that is named by its address may
    do without a key. Profiles that lie on the disk are not looked at.

    ``async with model:`` keeps the connections from one call to the next; without it, they are closed with the last of
    the calls that overlap. Both are safe on any number of event loops.

    Args:
        name: As the server calls it.
        base_url: The address of the server, without a version.
        structure: How an answer gets its form: ``schema`` (JSON by a schema), ``tool`` (a call of a tool that must be
            called), ``json`` (by nothing but the prompt); ``auto`` for the first of them that the server takes.
        timeout: Seconds without a word of the server.
        max_seconds: Seconds for a whole call.
        prices: What models cost; `None` for what ``genai-prices`` knows, if it is installed.
        api_key: From the host program, never from a plan.
        http_client: An ``AsyncClient`` of httpx2, for proxies and the like; for one event loop, and closed by who has
            made it.

    Raises:
        ContractError: An option makes no sense, or there is no key.
        MissingExtra: The library of Anthropic is not installed.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        structure: Structure | Literal["auto"] = "auto",
        timeout: float = 120.0,
        max_seconds: float = 600.0,
        prices: PriceTable | Prices | None = None,
        api_key: str | None = None,
        http_client: Any = None,
    ) -> None:
        if find_spec("anthropic") is None:
            raise MissingExtra("models of Anthropic need their library: pip install 'dagrun-engine[anthropic]'")
        base_url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or None
        checked_options(name, base_url=base_url, structure=structure, timeout=timeout, max_seconds=max_seconds)
        key = (api_key or os.environ.get("ANTHROPIC_API_KEY") or "").strip()
        token = "" if key else os.environ.get("ANTHROPIC_AUTH_TOKEN", "").strip()
        if not key and not token and base_url is None:
            raise ContractError(f"{name} needs a key: set ANTHROPIC_API_KEY, or give the base_url of another server")
        credentials = {"auth_token": token} if token else {"api_key": key or _NO_KEY}
        super().__init__(
            name,
            clients=Clients(_maker(credentials, base_url, timeout, http_client)),
            choice=FeatureChoice(("messages",), structure),
            prices=prices if isinstance(prices, PriceTable) else PriceTable(prices),
            sold_by={"provider": "anthropic"} if base_url is None else {"url": base_url},
            max_seconds=max_seconds,
            secret=key or token,
        )


def _maker(credentials: dict[str, str], base_url: str | None, timeout: float, given: Any) -> Callable[[], Client]:
    """How to make clients of the library. It is loaded here, not in the middle of a run: it takes two seconds."""
    import anthropic

    def make() -> Client:
        try:
            client = anthropic.AsyncAnthropic(
                api_key=credentials.get("api_key"),
                auth_token=credentials.get("auth_token"),
                base_url=base_url,
                timeout=timeouts(timeout),
                max_retries=0,  # they would be charged to nobody
                http_client=http_client(timeout) if given is None else given,
            )
        except TypeError as error:
            raise ContractError(f"http_client is an AsyncClient of httpx2, not {type(given).__name__}") from error
        return SdkClient(client, is_ours=given is None)

    return tried(make, given)
