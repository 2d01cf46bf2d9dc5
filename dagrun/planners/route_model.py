"""`ModelChooser`: a language model that picks a route of a `RouterPlanner`, by the descriptions of the routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict

from dagrun.llm.language_model import Form, LanguageModel, Message, Request, must_be_counts, must_be_model
from dagrun.llm.quoting import DATA_RULE, block
from dagrun.llm.structured_answers import ask_in_form
from dagrun.model.usage import note_prompt

if TYPE_CHECKING:
    from dagrun.planners.router import Route

_NONE: Final = "none"
_RULES: Final = """\
You sort requests. You are given a request and the sorts of task that there are, each with its name. Answer with the \
name of the one that the request asks for, all of it and nothing else; or with "none" if none fits or you are not sure.

Answer with one JSON object and nothing else: {"route": "…"}"""


class _Choice(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    route: str


class ModelChooser:
    """Picks the route for a goal with one short call of a model, for ``RouterPlanner(…, chooser=…)``.

    The model sees the goal and, for each route, its name, its words and its description. It never sees the inputs.

    Args:
        model: The language model; a small one will do.
        max_output_tokens: The most tokens of its answer.

    Raises:
        ContractError: An option is not valid.
    """

    __slots__ = ("_max_output_tokens", "model")

    def __init__(self, model: LanguageModel, *, max_output_tokens: int = 64) -> None:
        must_be_model(model, "ModelChooser")
        must_be_counts("ModelChooser", max_output_tokens=max_output_tokens)
        self.model = model
        self._max_output_tokens = max_output_tokens

    async def __call__(self, goal: str, inputs: Any, routes: Sequence[Route]) -> str | None:
        """Return the name of the route; `None` if the model reports that none fits.

        Raises:
            ModelError: There is no answer.
            OverCeiling: The call does not fit under a ceiling of the run.
        """
        names = [route.name for route in routes]
        shown = [{"name": r.name, "words": list(r.words), "description": r.description} for r in routes]
        request = Request(
            system=f"{_RULES}\n\n{DATA_RULE}",
            messages=(Message("user", f"{block('routes', shown)}\n\n{block('request', goal)}"),),
            form=Form("route", "The sort of task.", _schema([*names, _NONE])),
            max_output_tokens=self._max_output_tokens,
            temperature=0.0,
        )

        def read(text: str) -> _Choice:
            choice = _Choice.model_validate_json(text)
            if choice.route not in (*names, _NONE):
                raise ValueError(f'"route" is one of {", ".join([*names, _NONE])}')
            return choice

        note_prompt("route", request.system)
        picked = (await ask_in_form(self.model, request, read)).route
        return picked if picked in names else None


def _schema(names: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"route": {"type": "string", "enum": list(names)}},
        "required": ["route"],
        "additionalProperties": False,
    }
