"""Answers of models as values of Python types, and the JSON Schemas of these types."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, create_model

from dagrun.errors import ContractError, shorten
from dagrun.llm.language_model import Form
from dagrun.llm.strict_answers import restored, restored_text
from dagrun.llm.strict_schemas import closed, strict_schema

_Sure = Annotated[float, Field(ge=0, le=1, strict=False, allow_inf_nan=False)]
_CONFIDENCE: Final = {
    "type": "number",
    "description": "From 0 to 1: how sure you are that the answer is right. A low one is no shame: a person will look.",
}


class TypedAnswer:
    """A form with a field ``answer`` of a Python type: models accept no form that is a scalar or a list.

    Args:
        name: The name of the tool, for messages.
        shape: The type: a pydantic model, a dataclass, ``list[int]``.
        with_confidence: Whether the model also says how sure it is of its answer, in a second field.

    Attributes:
        form: The form of the answer, for the model.

    Raises:
        ContractError: Values of the type cannot be made from JSON.
    """

    __slots__ = ("_model", "_schema", "form")

    def __init__(self, name: str, shape: Any, *, with_confidence: bool = False) -> None:
        self._schema = shape_schema(name, shape)
        sure: dict[str, Any] = {"confidence": (_Sure, ...)} if with_confidence else {}
        self._model = create_model("Answer", __config__=ConfigDict(extra="forbid"), answer=(shape, ...), **sure)
        fields = {"answer": strict_schema(self._schema)} | ({"confidence": _CONFIDENCE} if with_confidence else {})
        self.form = Form("answer", "The answer.", closed(fields))

    def read(self, text: str) -> Any:
        """Return the value of an answer.

        Raises:
            ValueError: *text* is not an answer in this form.
        """
        return self.read_both(text)[0]

    def read_both(self, text: str) -> tuple[Any, float | None]:
        """Return the value of an answer, and the confidence in it, if the form asks for that.

        Raises:
            ValueError: *text* is not an answer in this form.
        """
        answer: Any = self._model.model_validate_json(restored_text(text, self._restored), strict=True)
        return answer.answer, getattr(answer, "confidence", None)

    def _restored(self, tree: Any) -> Any:
        return restore_answer(tree, self._schema)


def restore_answer(tree: Any, schema: dict[str, Any]) -> Any:
    """Turn the field ``answer`` of a parsed answer from the strict form into the form of *schema*."""
    if isinstance(tree, dict) and "answer" in tree:
        tree["answer"] = restored(tree["answer"], schema, schema)
    return tree


def shape_schema(name: str, shape: Any) -> dict[str, Any]:
    """Return the JSON Schema of a Python type.

    Raises:
        ContractError: Values of the type cannot be made from JSON.
    """
    try:
        return TypeAdapter(shape).json_schema()
    except (PydanticUserError, NameError) as error:
        reason = shorten(str(error).split("\n", maxsplit=1)[0])
        raise ContractError(f"{name}: {shape!r:.100} is no type of JSON values: {reason}") from error
