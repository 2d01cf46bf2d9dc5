"""The cost of model calls, from a table of the host or the package ``genai-prices``; never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagrun.errors import ContractError
from dagrun.kernel.model.signature import explain
from dagrun.llm.language_model import Usage

_MTOK: Final = 1_000_000

PerMtok = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """The prices of a model for a million tokens, in the currency of the host's choice.

    Attributes:
        input_per_mtok: For input tokens.
        output_per_mtok: For output tokens, reasoning included.
        cached_per_mtok: For input tokens from the model's cache; `None` if they cost as much as other input tokens.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input_per_mtok: PerMtok
    output_per_mtok: PerMtok
    cached_per_mtok: PerMtok | None = None

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of a call; `None` if its usage is unknown."""
        if usage.input is None or usage.output is None:
            return None
        cached = min(usage.cached, usage.input)
        cached_price = self.input_per_mtok if self.cached_per_mtok is None else self.cached_per_mtok
        input_cost = (usage.input - cached) * self.input_per_mtok + cached * cached_price
        return (input_cost + usage.output * self.output_per_mtok) / _MTOK


Prices: TypeAlias = Mapping[str, "Price | Mapping[str, Any]"]


class PriceTable:
    """The prices of models.

    Args:
        prices: For each name of a model, a `Price`, or its fields as in a settings file (``[prices."my-model"]``,
            ``input_per_mtok = 0.4``). They take precedence over the package.
        use_package: Whether the package ``genai-prices``, if it is installed (``pip install 'dagrun-engine[prices]'``),
            is asked for models that are not in the table. Its prices are in US dollars.

    Raises:
        ContractError: An entry is not a valid price.
    """

    def __init__(
        self, prices: Mapping[str, Price | Mapping[str, Any]] | None = None, *, use_package: bool = True
    ) -> None:
        self._prices = {name: _read(name, price) for name, price in (prices or {}).items()}
        self._use_package = use_package and find_spec("genai_prices") is not None
        self._unknown: set[tuple[str, str | None, str | None]] = set()

    def cost(self, model: str, usage: Usage, *, provider: str | None = None, url: str | None = None) -> float | None:
        """Return the cost of a call; `None` if it is unknown.

        Args:
            model: The name of the model.
            usage: The tokens that the call has used.
            provider: The provider's name in ``genai-prices``: ``openai``, ``anthropic``.
            url: The address of the server, in place of *provider*. The prices of an unknown server are unknown, even if
                its models have known names.
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
    import genai_prices  # imported here: it takes 30 ms, and 40 more for the first price

    input_, output = usage.input or 0, usage.output or 0
    tokens = genai_prices.Usage(input_tokens=input_, output_tokens=output, cache_read_tokens=min(usage.cached, input_))
    try:
        if url is not None:
            price = genai_prices.calc_price(tokens, model, provider_api_url=url)
        else:
            price = genai_prices.calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):
        return None
    return float(price.total_price)
