"""What calls of models cost: by a table of the host, or else by the package ``genai-prices``; never by a guess."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagrun.errors import ContractError
from dagrun.llm.language_model import Usage
from dagrun.model.signature import explain

_MTOK: Final = 1_000_000

PerMtok = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """What a model costs, for a million tokens each, in whatever currency the host counts in.

    Attributes:
        input_per_mtok: Of what it is told.
        output_per_mtok: Of what it says, reasoning included.
        cached_per_mtok: Of what it is told and has in its cache; `None` for the price of all other input.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input_per_mtok: PerMtok
    output_per_mtok: PerMtok
    cached_per_mtok: PerMtok | None = None

    def cost(self, usage: Usage) -> float | None:
        """What a call costs; `None` if its usage is unknown."""
        if usage.input is None or usage.output is None:
            return None
        cached = min(usage.cached, usage.input)
        of_cached = self.input_per_mtok if self.cached_per_mtok is None else self.cached_per_mtok
        told = (usage.input - cached) * self.input_per_mtok + cached * of_cached
        return (told + usage.output * self.output_per_mtok) / _MTOK


Prices: TypeAlias = Mapping[str, "Price | Mapping[str, Any]"]


class PriceTable:
    """The prices of models.

    Args:
        prices: By the name of the model: a `Price`, or its fields as they stand in a file of settings
            (``[prices."my-model"]``, ``input_per_mtok = 0.4``). They go before all that is found elsewhere.
        use_package: Whether the package ``genai-prices`` is asked for models that are not in the table, if it is there
            (``pip install 'dagrun-engine[prices]'``). Its prices are in US dollars.

    Raises:
        ContractError: An entry is no price.
    """

    def __init__(
        self, prices: Mapping[str, Price | Mapping[str, Any]] | None = None, *, use_package: bool = True
    ) -> None:
        self._prices = {name: _read(name, price) for name, price in (prices or {}).items()}
        self._use_package = use_package and find_spec("genai_prices") is not None
        self._unknown: set[tuple[str, str | None, str | None]] = set()

    def cost(self, model: str, usage: Usage, *, provider: str | None = None, url: str | None = None) -> float | None:
        """What a call costs; `None` if nobody knows.

        Args:
            model: Its name.
            usage: What the call has used.
            provider: Whose model it is, as ``genai-prices`` calls them: ``openai``, ``anthropic``.
            url: The address of its server in place of *provider*. A server that nobody knows sells at prices that
                nobody knows, whatever the names of its models.
        """
        if (price := self._prices.get(model)) is not None:
            return price.cost(usage)
        key = (model, provider, url)
        if not self._use_package or key in self._unknown or usage.input is None or usage.output is None:
            return None
        cost = _ask_package(model, usage, provider, url)
        if cost is None:
            self._unknown.add(key)
        return cost


def _read(name: str, price: Price | Mapping[str, Any]) -> Price:
    try:
        return Price.model_validate(price)
    except ValidationError as error:
        raise ContractError(f"the price of {name!r}: {explain(error)}") from error


def _ask_package(model: str, usage: Usage, provider: str | None, url: str | None) -> float | None:
    import genai_prices  # here, because it costs 30 ms, and 40 more at the first question

    told, said = usage.input or 0, usage.output or 0
    used = genai_prices.Usage(input_tokens=told, output_tokens=said, cache_read_tokens=min(usage.cached, told))
    try:
        if url is not None:
            price = genai_prices.calc_price(used, model, provider_api_url=url)
        else:
            price = genai_prices.calc_price(used, model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return float(price.total_price)
