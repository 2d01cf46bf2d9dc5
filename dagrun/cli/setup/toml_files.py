"""TOML files of users: read with a limit, and checked against a model, with a line for each fault."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin

from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import hint, shorten

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo

MAX_BYTES: Final = 1_000_000

M = TypeVar("M", bound="BaseModel")


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises:
        BadInput: The file cannot be read, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_BYTES:
        raise BadInput(f"{path} has more than {MAX_BYTES} bytes")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not text: byte {error.start} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is broken TOML: {error}") from None
    except RecursionError:
        raise BadInput(f"{path} is nested too deeply") from None


def check_fields(model: type[M], fields: Mapping[str, Any], source: str) -> M:
    """Return *fields* as a *model*.

    Args:
        model: The class of the model.
        fields: The fields by name.
        source: Where they come from, for people.

    Raises:
        BadInput: The fields do not fit; the error has a line for each fault, with its field.
    """
    from pydantic import ValidationError

    try:
        with _warnings_of(source):
            return model.model_validate(fields)
    except ValidationError as error:
        raise BadInput(*fault_lines(error, source, model)) from None


@contextmanager
def _warnings_of(source: str) -> Iterator[None]:
    """Say in each warning where the fields come from."""
    with warnings.catch_warnings():
        show = warnings.showwarning
        warnings.showwarning = lambda text, *rest: show(f"{source}: {str(text).removeprefix('policy: ')}", *rest)
        yield


def fault_lines(error: ValidationError, source: str, model: type[BaseModel] | None = None) -> list[str]:
    """Return a line for each fault that pydantic found, without the values.

    Args:
        error: The error of pydantic.
        source: Where the values come from, for people.
        model: The class of the model, to name the field that was probably meant.
    """
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return [f"{source}: {_sentence(model, fault['loc'], fault['type'], fault['msg'])}" for fault in faults]


def _sentence(model: type[BaseModel] | None, place: tuple[int | str, ...], kind: str, message: str) -> str:
    name = shorten(".".join(map(str, place)), 100)
    if kind == "extra_forbidden":
        _, sign, near = message.partition("; did you mean ")  # said by a `StrictModel`
        return f"unknown field {name}{f'{sign}{near}' or hint(str(place[-1]), _fields_at(model, place[:-1]))}"
    if kind == "tuple_type":  # users write a list where the model has a tuple
        message = "input should be a list"
    if kind == "model_type":
        message = f"input should be a table{'' if len(place) > 1 else f' [{name}]'}"
    if kind == "value_error":  # a message of our own, without the prefix of pydantic
        message = message.removeprefix("Value error, ")
    return f"{name}: {message[:1].lower()}{message[1:]}" if name else message


def _fields_at(model: type[BaseModel] | None, place: Iterable[int | str]) -> list[str]:
    """Return the names of the fields of the model at *place*."""
    current: Any = model
    is_key = False
    for part in place:
        if isinstance(part, int) or is_key:  # an index or a key: all elements have the same model
            is_key = False
            continue
        field = _by_name(current).get(part) if _is_model(current) else None
        if field is None:
            return []
        current, is_key = _model_in(field.annotation), get_origin(field.annotation) is dict
    return list(_by_name(current)) if _is_model(current) else []


def _by_name(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of *model*, by the names that users write."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_in(kind: Any) -> Any:
    """Return the model in a type: the type itself, or the model of its elements or alternatives; `None` if none."""
    if _is_model(kind):
        return kind
    return next((found for part in get_args(kind) if (found := _model_in(part)) is not None), None)


def _is_model(kind: Any) -> bool:
    from pydantic import BaseModel

    return isinstance(kind, type) and issubclass(kind, BaseModel)
