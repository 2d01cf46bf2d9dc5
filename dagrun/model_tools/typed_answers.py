"""Answers of models as values of Python types, and the JSON Schemas of these types."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, create_model

from dagrun.errors import ContractError, shorten
from dagrun.llm.language_model import Form
from dagrun.plans.plan_schemas import strict_schema

# No tool can have this name, so the definitions of the answer stay apart from those of tools.
ANSWER: Final = "-answer"


class TypedAnswer:
    """A form with one field, ``answer``, of a Python type: models accept no form that is a scalar or a list.

    Args:
        name: The name of the tool, for messages.
        shape: The type: a pydantic model, a dataclass, ``list[int]``.

    Attributes:
        form: The form of the answer, for the model.

    Raises:
        ContractError: Values of the type cannot be made from JSON.
    """

    __slots__ = ("_model", "form")

    def __init__(self, name: str, shape: Any) -> None:
        schema, definitions = shape_schema(name, shape)
        self._model = create_model("Answer", __config__=ConfigDict(extra="forbid"), answer=(shape, ...))
        body = {
            "type": "object",
            "properties": {"answer": schema},
            "required": ["answer"],
            "additionalProperties": False,
        }
        self.form = Form("answer", "The answer.", {**body, "$defs": definitions} if definitions else body)

    def read(self, text: str) -> Any:
        """Return the value of an answer.

        Raises:
            ValueError: *text* is not an answer in this form.
        """
        return getattr(self._model.model_validate_json(text, strict=True), "answer")  # noqa: B009  (made at run time)


def shape_schema(name: str, shape: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schema of a Python type in the strict form for models, and its definitions.

    Raises:
        ContractError: Values of the type cannot be made from JSON.
    """
    try:
        schema = TypeAdapter(shape).json_schema()
    except (PydanticUserError, NameError) as error:
        reason = shorten(str(error).split("\n", maxsplit=1)[0])
        raise ContractError(f"{name}: {shape!r:.100} is no type of JSON values: {reason}") from error
    return strict_schema(schema, ANSWER)
