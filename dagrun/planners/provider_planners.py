"""`OpenAIPlanner` and `AnthropicPlanner`: a `ModelPlanner` together with its model."""

from __future__ import annotations

import os
from typing import Any, Final, Literal, Unpack

from dagrun.errors import ContractError
from dagrun.llm.anthropic_model import AnthropicModel
from dagrun.llm.language_model import Structure
from dagrun.llm.openai_model import OpenAIModel
from dagrun.llm.prices import Prices, PriceTable
from dagrun.model.policy import PlanLimits
from dagrun.planners.model_planner import ModelPlanner
from dagrun.planners.prompt_examples import Dialect
from dagrun.planners.prompt_texts import WordingOptions
from dagrun.planners.tool_choice import SelectTools

MODEL_VARIABLE: Final = "DAGRUN_MODEL"


class PlanningOptions(WordingOptions, total=False):
    """The options of `ModelPlanner`, except the model, for planners that bring their own."""

    dialect: Dialect
    max_output_tokens: int
    limits: PlanLimits | None
    temperature: float | None
    select_tools: SelectTools | None


class OpenAIPlanner(ModelPlanner):
    """Plans with a model of OpenAI, or of a compatible server: vLLM, Ollama, llama.cpp and many others.

    Args:
        model: The name by which the server knows it; `None` for the name in ``DAGRUN_MODEL``.
        base_url: As for `OpenAIModel`, like the next five options.
        api: ``responses``, ``chat``, or ``auto``.
        structure: ``schema``, ``tool``, ``json``, or ``auto``.
        prices: The prices of models.
        api_key: The key; `None` for the one in ``OPENAI_API_KEY``.
        http_client: An ``AsyncClient`` of httpx or httpx2.
        planning: The other options of `ModelPlanner`: *dialect*, *instructions*, *constraints* and so on.

    Raises:
        ContractError: An option is not valid, or the name of the model or the key is missing.

    Examples:
        >>> planner = OpenAIPlanner("qwen3", base_url="http://127.0.0.1:8000/v1")
        >>> planner.model.name
        'qwen3'
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api: Literal["auto", "responses", "chat"] = "auto",
        structure: Structure | Literal["auto"] = "auto",
        prices: PriceTable | Prices | None = None,
        api_key: str | None = None,
        http_client: Any = None,
        **planning: Unpack[PlanningOptions],
    ) -> None:
        super().__init__(
            OpenAIModel(
                name_of_model(model),
                base_url=base_url,
                api=api,
                structure=structure,
                prices=prices,
                api_key=api_key,
                http_client=http_client,
            ),
            **planning,
        )


class AnthropicPlanner(ModelPlanner):
    """Plans with a model of Anthropic. It needs the extra ``anthropic``.

    Args:
        model: The name by which Anthropic knows it; `None` for the name in ``DAGRUN_MODEL``.
        base_url: As for `AnthropicModel`, like the next four options.
        structure: ``schema``, ``tool``, ``json``, or ``auto``.
        prices: The prices of models.
        api_key: The key; `None` for the one in ``ANTHROPIC_API_KEY``.
        http_client: An ``AsyncClient`` of httpx2.
        planning: The other options of `ModelPlanner`: *dialect*, *instructions*, *constraints* and so on.

    Raises:
        ContractError: An option is not valid, or the name of the model or the key is missing.
        MissingExtra: The library of Anthropic is not installed.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        structure: Structure | Literal["auto"] = "auto",
        prices: PriceTable | Prices | None = None,
        api_key: str | None = None,
        http_client: Any = None,
        **planning: Unpack[PlanningOptions],
    ) -> None:
        super().__init__(
            AnthropicModel(
                name_of_model(model),
                base_url=base_url,
                structure=structure,
                prices=prices,
                api_key=api_key,
                http_client=http_client,
            ),
            **planning,
        )


def name_of_model(given: str | None) -> str:
    """Return *given*, or the name of a model in the environment.

    There is no default: names come and go, and the choice is a question of money.

    Raises:
        ContractError: There is no name in either place.
    """
    name = given or os.environ.get(MODEL_VARIABLE, "").strip()
    if not name:
        raise ContractError(
            f"no model is named: give one (OpenAIPlanner('gpt-5', …), --model on the command line), or set "
            f"{MODEL_VARIABLE} to the name that the server knows it by"
        )
    return name
