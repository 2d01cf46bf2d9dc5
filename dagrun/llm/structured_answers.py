"""Answers with a form, also that of a Python type: always checked, and asked for again if they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final, TypeVar

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model

from dagrun.errors import ContractError, ModelError, first_lines, shorten
from dagrun.kernel.model.redaction.redactor import REDACTOR
from dagrun.kernel.model.signature import explain
from dagrun.llm.language_model import Form, LanguageModel, Message, Reply, Request, ask
from dagrun.llm.strict_answers import restored, restored_text
from dagrun.llm.strict_schemas import closed, strict_schema

_FENCE: Final = "```"
_EDGE: Final = "` \t\r\n"


class FenceStripper:
    """Removes the code fence around an answer while it streams.

    The first line is removed if it begins with three backticks; then everything from the next such line on is removed,
    too. Nothing else is changed. Text inside the fence is held back only while it may be the closing line.
    """

    __slots__ = ("_held", "_is_fenced", "_is_over", "_is_text")

    def __init__(self) -> None:
        self._held = ""
        self._is_text = False
        self._is_fenced = False
        self._is_over = False

    def feed(self, piece: str) -> str:
        """Return the part of the answer that is certain now."""
        if not self._is_text:
            return self._begin(self._held + piece)
        return self._inside(piece) if self._is_fenced else piece

    def end(self) -> str:
        """Return the rest of the answer."""
        held, self._held = self._held, ""
        if self._is_over or (held.lstrip().startswith(_FENCE) and (self._is_fenced or not self._is_text)):
            return ""
        return held

    def _begin(self, text: str) -> str:
        start = text.lstrip()
        self._held = text
        if _FENCE.startswith(start[:3]) and len(start) < len(_FENCE):
            return ""
        if not start.startswith(_FENCE):
            self._held, self._is_text = "", True
            return text
        _, newline, rest = start.partition("\n")
        if not newline:
            return ""
        self._held, self._is_text, self._is_fenced = "", True, True
        return self._inside(rest)

    def _inside(self, piece: str) -> str:
        if self._is_over:
            return ""
        text = self._held + piece
        # A JSON string contains no line break, so this cannot be a part of the answer.
        before, fence, _ = text.partition(f"\n{_FENCE}")
        if fence:
            self._is_over = True
            return before
        certain = text.rstrip(_EDGE)
        self._held = text[len(certain) :]
        return certain


T = TypeVar("T")

MAX_ANSWER: Final = 1_000_000  # characters; a longer answer is not read

# The most characters of a wrong answer that the model is shown again: enough to recognize it.
_MAX_REPEATED: Final = 4_000


async def ask_in_form(model: LanguageModel, request: Request, read: Callable[[str], T], tries: int = 2) -> T:
    """Ask *model* until *read* accepts the answer, and return its value.

    Args:
        model: The model.
        request: The request, with the form of the answer.
        read: Returns the value of an answer's text, or raises `ValueError`.
        tries: The most calls.

    Raises:
        ModelError: There is no answer; it was cut off or refused; or no answer had the form.
        OverCeiling: A call does not fit under a ceiling of the run.
    """
    fault = answer = ""
    for _ in range(tries):
        reply = await ask(model, request)
        if why := why_no_answer(reply, request):
            raise ModelError(f"{model.name}: {why}{beginning_of(reply.text)}", answer=reply.text)
        try:
            return read(json_text(reply.text))
        except ValueError as error:
            fault, answer = fault_of(error), reply.text
        request = told(request, reply, f"That does not fit the form: {fault}\nAnswer again, in the form.")
    text = f"{model.name} gave no answer that fits the form, {tries} times: {fault}{beginning_of(answer)}"
    raise ModelError(text, answer=answer)


def beginning_of(answer: str) -> str:
    """Return the first lines of an answer, as the end of a sentence about it; empty for an empty answer."""
    shown = first_lines(REDACTOR.get().text(answer[:MAX_ANSWER]))  # redacted first: half a secret is not found
    return f"; it answered: {shown}" if shown else ""


def why_no_answer(reply: Reply, request: Request) -> str:
    """Return why a reply is no complete answer; empty if it is one."""
    match reply.stop:
        case "length":
            return f"the answer was cut off at the ceiling of {request.max_output_tokens} output tokens"
        case "refused":
            return "the model refused to answer"
        case _:
            return ""


def json_text(text: str) -> str:
    """Return the JSON text of an answer, without the code fence that some models put around it.

    Raises:
        ValueError: The answer has more than `MAX_ANSWER` characters.
    """
    if len(text) > MAX_ANSWER:
        raise ValueError(f"the answer has {len(text)} characters, the ceiling is {MAX_ANSWER}")
    fences = FenceStripper()
    return fences.feed(text) + fences.end()


def fault_of(error: ValueError) -> str:
    """Return the fault of an answer, without the values in it."""
    return explain(error) if isinstance(error, ValidationError) else str(error)


def told(request: Request, answer: Reply, reply: str) -> Request:
    """Return *request* with two more messages: the model's *answer*, and the *reply* to it."""
    # Providers accept no empty messages, and half a surrogate pair cannot be sent.
    shown = answer.text[:_MAX_REPEATED].encode(errors="replace").decode().strip() or "(nothing)"
    turns = Message("assistant", shown, answer.reasoning), Message("user", reply)
    return replace(request, messages=(*request.messages, *turns))


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
