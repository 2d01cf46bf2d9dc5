"""`OpenAIPlanner` and `AnthropicPlanner`: a `ModelPlanner` together with its model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal, Unpack

from dagrun.errors import ContractError
from dagrun.kernel.model.policy import PlanLimits
from dagrun.llm.http_model import HttpOptions
from dagrun.llm.provider_models import AnthropicModel, OpenAIModel
from dagrun.planners.model_choice import SelectTools
from dagrun.planners.model_planner import ModelPlanner
from dagrun.planners.prompt_examples import Dialect
from dagrun.planners.prompt_texts import WordingOptions

MODEL_VARIABLE: Final = "DAGRUN_MODEL"


class PlannerOptions(WordingOptions, HttpOptions, total=False):
    """The options of a planner that brings its own model: those of `ModelPlanner`, and those of the model."""

    dialect: Dialect
    max_output_tokens: int
    limits: PlanLimits | None
    temperature: float | None
    select_tools: SelectTools | None


class OpenAIPlanner(ModelPlanner):
    """Plans with a model of OpenAI, or of a compatible server: vLLM, Ollama, llama.cpp and many others.

    Args:
        model: The name by which the server knows it; `None` for the name in ``DAGRUN_MODEL``.
        api: ``responses``, ``chat``, or ``auto``.
        options: The other options of `OpenAIModel`, such as *base_url*, *structure*, *prices*, *api_key* and
            *http_client*; and those of `ModelPlanner`: *dialect*, *instructions*, *constraints* and so on.

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
        api: Literal["auto", "responses", "chat"] = "auto",
        **options: Unpack[PlannerOptions],
    ) -> None:
        of_model, planning = _split(options)
        super().__init__(OpenAIModel(name_of_model(model), api=api, **of_model), **planning)


class AnthropicPlanner(ModelPlanner):
    """Plans with a model of Anthropic. It needs the extra ``anthropic``.

    Args:
        model: The name by which Anthropic knows it; `None` for the name in ``DAGRUN_MODEL``.
        options: The options of `AnthropicModel`, such as *base_url*, *structure*, *prices*, *api_key* and
            *http_client*; and those of `ModelPlanner`: *dialect*, *instructions*, *constraints* and so on.

    Raises:
        ContractError: An option is not valid, or the name of the model or the key is missing.
        MissingExtra: The library of Anthropic is not installed.
    """

    def __init__(self, model: str | None = None, **options: Unpack[PlannerOptions]) -> None:
        of_model, planning = _split(options)
        super().__init__(AnthropicModel(name_of_model(model), **of_model), **planning)


def _split(options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the options of the model, and the options of the planner."""
    of_model = {name: options[name] for name in options if name in HttpOptions.__annotations__}
    return of_model, {name: options[name] for name in options if name not in of_model}


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
