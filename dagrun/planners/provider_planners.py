"""Planners with models behind HTTP: a `ModelPlanner` and its model in one, for those who want nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Literal, TypedDict, Unpack

from dagrun.errors import ContractError
from dagrun.llm.anthropic_model import AnthropicModel
from dagrun.llm.language_model import Structure
from dagrun.llm.openai_model import OpenAIModel
from dagrun.llm.prices import Prices, PriceTable
from dagrun.model.policy import PlanLimits
from dagrun.planners.model_planner import ModelPlanner
from dagrun.planners.prompt_examples import Dialect, Example

MODEL_VARIABLE: Final = "DAGRUN_MODEL"


class PlanningOptions(TypedDict, total=False):
    """The options of `ModelPlanner`, the model excepted, for planners that bring one."""

    dialect: Dialect
    max_output_tokens: int
    limits: PlanLimits | None
    examples: Sequence[Example]
    temperature: float | None


class OpenAIPlanner(ModelPlanner):
    """Plans with a model of OpenAI, or of a compatible server: vLLM, Ollama, llama.cpp and many others.

    Args:
        model: As the server calls it; `None` for what the environment says (``DAGRUN_MODEL``).
        base_url: As for `OpenAIModel`, like the four that follow.
        api: ``responses``, ``chat``, or ``auto``.
        structure: ``schema``, ``tool``, ``json``, or ``auto``.
        prices: What models cost.
        api_key: From the host program; `None` for ``OPENAI_API_KEY``.
        http_client: An ``AsyncClient`` of httpx or httpx2.
        planning: *dialect*, *max_output_tokens*, *limits*, *examples* and *temperature*, as for `ModelPlanner`.

    Raises:
        ContractError: An option makes no sense, or there is no name of a model, or no key.

    Example:
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
    """Plans with a model of Anthropic; its library is the extra ``anthropic``.

    Args:
        model: As Anthropic calls it; `None` for what the environment says (``DAGRUN_MODEL``).
        base_url: As for `AnthropicModel`, like the four that follow.
        structure: ``schema``, ``tool``, ``json``, or ``auto``.
        prices: What models cost.
        api_key: From the host program; `None` for ``ANTHROPIC_API_KEY``.
        http_client: An ``AsyncClient`` of httpx2.
        planning: *dialect*, *max_output_tokens*, *limits*, *examples* and *temperature*, as for `ModelPlanner`.

    Raises:
        ContractError: An option makes no sense, or there is no name of a model, or no key.
        MissingExtra: The library is not installed.
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
    """The name of the model: the one that was given, or that of the environment.

    There is no default: names come and go, and which one is wanted is a question of money.

    Raises:
        ContractError: There is neither.
    """
    name = given or os.environ.get(MODEL_VARIABLE, "").strip()
    if not name:
        raise ContractError(
            f"no model is named: give one (OpenAIPlanner('gpt-5', …), --model on the command line), or set "
            f"{MODEL_VARIABLE} to the name that the server knows it by"
        )
    return name
