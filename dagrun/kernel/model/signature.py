"""Read the contract of a tool from the signature of its function: argument and output schemas."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NotRequired, Required

from pydantic import ConfigDict, Field, PydanticUserError, SecretStr, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaValidator, from_json
from typing_extensions import TypedDict

from dagrun.errors import ContractError, ValueRefused, shorten
from dagrun.kernel.model.contracts.deps import dependency_of
from dagrun.kernel.model.contracts.held_objects import HeldObjects
from dagrun.kernel.model.contracts.json_schemas import (
    BASE64,
    ContractSchemas,
    adapter_for,
    computed_names,
    without_computed,
)
from dagrun.kernel.model.contracts.objects import (
    IN_MEMORY,
    FileOf,
    Kept,
    has_objects,
    has_only_frames,
    holds_objects,
    keeper_of,
    only_places,
    places_for_rest,
    with_places,
)
from dagrun.kernel.model.contracts.received import Aliases, ReceivedArguments, aliases_in
from dagrun.kernel.model.contracts.schema_types import with_defaults
from dagrun.kernel.model.contracts.spilling import may_spill
from dagrun.kernel.model.contracts.streams import element_type, list_type
from dagrun.kernel.model.flow.marks import guarded, is_guarded
from dagrun.kernel.model.secrets import Handle
from dagrun.kernel.model.tool_context import PROVIDED, ToolContext
from dagrun.kernel.model.value import (
    BYTES_ADVICE,
    MAX_VALUE_BYTES,
    Stored,
    check_size,
    decode,
    describe,
    encode,
    numpy_fallback,
    plain_scalar,
    without_numpy,
)

_KEYWORDS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_PLAIN_TYPES: Final = frozenset((str, int, float, bool, type(None), dict, list, Any))


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments that a tool takes.

    Attributes:
        schema: The JSON Schema of a closed object.
        validator: Turns JSON text into keyword arguments.
        names: The parameter that each accepted name stands for; aliases are names too.
        required: The parameters without a default.
        context: The parameter that gets the `ToolContext`, if any.
        secrets: The parameters that get secrets of the host; plans fill them with handles.
        computed: The names of the computed fields of its models. They are in what a tool returns, and a model that
            forbids extra fields would refuse them: it computes them again.
        objects: The parameters that take objects in memory, there or inside.
        hints: The types of the parameters, as pydantic gets them.
        deps: The parameters that get objects of the host, with their types; see `Deps`.
        optional_deps: The parameters with a default.
        context_deps: The type of ``context.deps``, if the context is a ``ToolContext[…]``; else `None`.
        is_json_only: Whether it takes no object in memory in place of JSON: the tool is made of a JSON Schema.
        guarded: The parameters that say who, where or which account, and so are guarded; see `dagrun.guarded`.
        stream: The parameter that takes the elements of a list one after another; empty if there is none.
        element: Turns the JSON text of an object with one element of the stream into that; `None` without a stream.
        aliases: The aliases of all fields, also of the models in it; see `ReceivedArguments`.
        defaults: What the parameters get that a plan leaves out; without secrets.
        is_open: Whether it takes arguments that *names* does not have.
        takes_more: Whether a call gets anything that the plan does not say: a secret, the context, dependencies.
    """

    schema: Mapping[str, Any]
    validator: SchemaValidator = field(repr=False)
    names: Mapping[str, str]
    required: frozenset[str]
    context: str | None = None
    secrets: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    hints: Mapping[str, Any] = field(default_factory=dict, repr=False)
    deps: Mapping[str, Any] = field(default_factory=dict, repr=False)
    optional_deps: frozenset[str] = frozenset()
    context_deps: Any = None
    is_json_only: bool = False
    guarded: frozenset[str] = frozenset()
    stream: str = ""
    element: SchemaValidator | None = field(default=None, repr=False)
    aliases: Aliases = ()
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False)
    is_open: bool = field(init=False)
    takes_more: bool = field(init=False)
    _for_objects: dict[frozenset[str], SchemaValidator] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Pydantic closes the arguments of a typed function; a schema from elsewhere may leave them open.
        object.__setattr__(self, "is_open", self.schema.get("additionalProperties", False) is not False)
        more = self.secrets or self.context is not None or self.deps or self.stream
        object.__setattr__(self, "takes_more", bool(more))

    def parse(self, data: bytes) -> dict[str, Any]:
        """Turn JSON text into keyword arguments; handles of secrets stay handles.

        Raises:
            ValidationError: The text does not fit the schema.
        """
        if self.computed:
            return self._validated(self.validator, data, None)
        return self.validator.validate_json(data, by_alias=True, by_name=True)  # type: ignore[no-any-return]

    def parse_with(self, data: bytes, objects: Mapping[str, object], given: frozenset[str]) -> dict[str, Any]:
        """Turn JSON text with tokens into keyword arguments, with objects for the tokens.

        Args:
            data: The text.
            objects: The objects by token; see `HeldObjects`.
            given: The parameters that get objects. One with a JSON form, such as a model, takes an object as it is.

        Raises:
            ValidationError: The text does not fit the schema, or an object is of another class.
        """
        others = given - self.objects
        validator = self.validator
        if others:
            if others not in self._for_objects:
                hints = {
                    name: _inside_presence(hint, only_places) if name in others else hint
                    for name, hint in self.hints.items()
                }
                adapter = _adapter(_shape("arguments", hints), "the arguments")
                self._for_objects[others] = typing.cast(SchemaValidator, adapter.validator)
            validator = self._for_objects[others]
        return self._validated(validator, data, objects)

    def parse_element(self, data: bytes) -> Any:
        """Turn the JSON text of one element of the stream into a value of its type.

        Raises:
            ValidationError: The text does not fit the type.
        """
        assert self.element is not None
        return self._validated(self.element, b'{"element":' + data + b"}", None)["element"]

    def _validated(self, validator: SchemaValidator, data: bytes, context: Any) -> dict[str, Any]:
        while True:
            try:
                # By both names: outputs are written by the names of fields, and plans use aliases.
                return validator.validate_json(data, context=context, by_alias=True, by_name=True)  # type: ignore[no-any-return]
            except ValidationError as error:
                shorter = without_computed(data, error, self.computed) if self.computed else data
                if shorter == data:
                    raise
                data = shorter

    def received(self, data: bytes, parsed: Mapping[str, Any], objects: Iterable[object] = ()) -> ReceivedArguments:
        """Return the values that the tool receives when it is called.

        Args:
            data: The JSON text of the call.
            parsed: The keyword arguments that were made of it.
            objects: The objects in memory among them.
        """
        written = from_json(data)
        if self.is_json_only:
            return ReceivedArguments(data, with_defaults(written, self.schema, self.schema), is_sent=False)
        call = ReceivedArguments(data, aliases=self.aliases)
        whole = {**parsed, **self.defaults, **parsed}  # what the plan says comes first
        call.received = call.read(whole, written, (), frozenset(map(id, objects)))
        return call

    def property_schema(self, name: str) -> Mapping[str, Any]:
        """Return the JSON Schema of one argument, by any of its names."""
        if name not in self.names and self.is_open:
            others = self.schema["additionalProperties"]
            return others if isinstance(others, Mapping) else {}
        found: Mapping[str, Any] = _property(self.schema, self.names, self.names[name])
        return found


@dataclass(frozen=True, slots=True)
class Output:
    """The output that a tool returns.

    Attributes:
        schema: The JSON Schema of the stored value; empty if any value is allowed.
        encode: Checks a returned value against the declared type and encodes it, or raises `ValueRefused`.
        spills: Whether an output that is too large becomes an `Artifact`: the type is a union with one.
        hint: The declared type; `Any` if there is none.
        hold: For an output with objects in memory: does the same as *encode*, and keeps the objects in the stored
            value. It takes the value, the call that returned it, the limit, and what writes frames to files, if they
            are kept there.
        has_frames: Whether all objects in it are frames.
        has_objects: Whether objects in memory are in the output.
        is_direct: Whether *encode* is all there is to do, as for nearly every tool.
    """

    schema: Mapping[str, Any]
    encode: Callable[[object, int], Stored] = field(repr=False)
    spills: bool = False
    hint: Any = Any
    hold: Callable[[object, str, int, FileOf | None], Stored] | None = field(default=None, repr=False)
    has_frames: bool = field(init=False)
    has_objects: bool = field(init=False)
    is_direct: bool = field(init=False)

    def __post_init__(self) -> None:
        holds = has_objects(self.schema)  # of a recorded contract, too, which has no functions
        object.__setattr__(self, "has_objects", holds)
        object.__setattr__(self, "has_frames", holds and has_only_frames(self.hint))
        object.__setattr__(self, "is_direct", not (self.spills or holds))

    def typed(self, value: Any) -> Any:
        """Turn plain JSON data that was stored for this output into a value of the declared type.

        Raises:
            ValidationError: The data does not fit the type, for example when a default is used as the output.
        """
        return value if self.has_objects else typed_value(value, self.hint)


def arguments_of(function: Callable[..., Any]) -> Arguments:
    """Read the argument contract of *function* from its signature and docstring.

    Raises:
        ContractError: A plan could not fill one of the parameters: it is positional-only, ``*args``, ``**kwargs``, of a
            type without a JSON form, or of a type with a secret inside.
    """
    name = function.__name__
    hints, texts = _hints(function), _argument_texts(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    streams: dict[str, Any] = {}
    names: dict[str, str] = {}
    required, secrets = set[str](), set[str]()
    host = _FromHost()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _KEYWORDS:
            raise ContractError(f"{name}: {parameter} cannot be filled by name; plans pass arguments by name only")
        if parameter.name in ("self", "cls") and parameter.annotation is parameter.empty:
            raise ContractError(f"{name} is a method; make a tool of a bound one: dagrun.tool(…)(thing.{name})")
        hint = hints.get(parameter.name, Any)
        if host.takes(parameter, hint):
            continue
        if _is_secret(hint):
            secrets.add(parameter.name)
            hint = _handle_of(hint, name, parameter.name)
        elif (inner := element_type(hint)) is not parameter.empty:
            streams[parameter.name], hint = inner, list_type(function, parameter, hint)
        fields[parameter.name] = _field(with_places(hint), parameter, texts.get(parameter.name))
        names |= dict.fromkeys((parameter.name, *_aliases(hint)), parameter.name)
        if parameter.default is parameter.empty:
            required.add(parameter.name)
    adapter, fields = _arguments_adapter(name, fields)
    # A plug-in of pydantic may wrap the validator, but keeps its methods.
    validator = typing.cast(SchemaValidator, adapter.validator)
    described = _schema_of(adapter, f"{name}: its arguments")
    schema = {key: value for key, value in described.items() if key != "title"}
    _refuse_inner_secret(name, schema)
    stream, element = _stream_of(name, streams)
    return Arguments(
        schema,
        validator,
        names,
        frozenset(required),
        host.context,
        frozenset(secrets),
        frozenset(computed_names(adapter.core_schema)),
        frozenset(parameter for parameter in fields if has_objects(_property(schema, names, parameter))),
        fields,
        host.deps,
        frozenset(host.optional),
        host.context_deps,
        guarded=frozenset(name for name in fields if is_guarded(hints.get(name))),
        stream=stream,
        element=element,
        aliases=tuple(dict.fromkeys(aliases_in(adapter.core_schema))),
        defaults=_defaults(function, fields.keys() - secrets - required),
    )


def _defaults(function: Callable[..., Any], names: Collection[str]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {name: parameters[name].default for name in parameters if name in names}


def _stream_of(name: str, streams: Mapping[str, Any]) -> tuple[str, SchemaValidator | None]:
    """Return the stream parameter, and the validator of its elements."""
    if len(streams) > 1:
        raise ContractError(f"{name} takes {len(streams)} streams ({', '.join(streams)}); a tool takes one at most")
    for parameter, inner in streams.items():
        shape = _shape(f"{name}_element", {"element": Required[with_places(inner)]})
        return parameter, typing.cast(SchemaValidator, _adapter(shape, f"{name}: {parameter}").validator)
    return "", None


def _arguments_adapter(name: str, fields: dict[str, Any]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """Return the adapter of all arguments, and their types: those without a JSON form take objects in memory."""
    try:
        return TypeAdapter(_shape(f"{name}_arguments", fields)), fields
    except PydanticSchemaGenerationError:
        pass
    except PydanticUserError:
        return _adapter(_shape(f"{name}_arguments", fields), f"{name}: its arguments"), fields
    known = {parameter: _inside_presence(hint, places_for_rest) for parameter, hint in fields.items()}
    return _adapter(_shape(f"{name}_arguments", known), f"{name}: its arguments"), known


def _property(schema: Mapping[str, Any], names: Mapping[str, str], name: str) -> Any:
    """Return the schema of one argument, by its first name."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return next((part for key, part in properties.items() if names.get(key) == name), {})


class _FromHost:
    """The parameters that are no arguments of a plan: the context, and the objects of the host."""

    def __init__(self) -> None:
        self.context: str | None = None
        self.context_deps: Any = None
        self.deps: dict[str, Any] = {}
        self.optional: set[str] = set()

    def takes(self, parameter: inspect.Parameter, hint: Any) -> bool:
        """Note a parameter if it is one of these; return whether it is."""
        for kind in (hint, *typing.get_args(hint)):
            if kind is ToolContext or typing.get_origin(kind) is ToolContext:
                self.context = parameter.name
                self.context_deps = next(iter(typing.get_args(kind)), None)
                return True
        kind = dependency_of(hint)
        if kind is None:
            return False
        self.deps[parameter.name] = kind
        if parameter.default not in (parameter.empty, PROVIDED):
            self.optional.add(parameter.name)
        return True


def _is_secret(hint: Any) -> bool:
    """Whether a parameter takes a secret: `SecretStr`, or `SecretStr | None`."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _is_secret(typing.get_args(hint)[0])
    kinds = typing.get_args(hint) if origin in (types.UnionType, typing.Union) else (hint,)
    return SecretStr in kinds and all(kind in (SecretStr, type(None)) for kind in kinds)


def _handle_of(hint: Any, tool: str, parameter: str) -> Any:
    """Return the type of the handle that a plan passes for a secret."""
    inner: Any = hint
    metadata: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        inner, metadata = hint.__origin__, hint.__metadata__
    handle: Any = Handle if inner is SecretStr else Handle | None
    for part in metadata:
        if part is guarded:
            continue
        if not isinstance(part, FieldInfo | str) or bool(getattr(part, "metadata", None)):
            raise ContractError(f"{tool}: {parameter} is a secret, which takes no limits and no validators")
        handle = Annotated[handle, part]
    return handle


def _refuse_inner_secret(name: str, schema: Any) -> None:
    if _holds_secret(schema):
        raise ContractError(
            f"{name}: a SecretStr must be a parameter of its own; a plan has no handle for a part of one"
        )


def _holds_secret(schema: Any) -> bool:
    """Whether a schema has a `SecretStr` inside: in a list, a model, or a union with texts."""
    if isinstance(schema, list):
        return any(map(_holds_secret, schema))
    if not isinstance(schema, dict):
        return False
    return (schema.get("format"), schema.get("writeOnly")) == ("password", True) or any(
        map(_holds_secret, schema.values())
    )


def _shape(name: str, fields: dict[str, Any]) -> Any:
    """Make a TypedDict, not a model: it validates into keyword arguments, and adds none that the plan left out."""
    config = ConfigDict(extra="forbid", strict=True, validate_by_name=True, validate_by_alias=True, **BASE64)
    make: Any = TypedDict  # called at run time, which type checkers do not support
    shape = make(name, fields)
    shape.__pydantic_config__ = config
    return shape


def output_of(function: Callable[..., Any], *, is_object: bool = False) -> Output:
    """Read the output contract of *function* from its return type.

    Args:
        function: The function of a tool.
        is_object: Whether it returns an object in memory, whatever its return type says.

    Raises:
        ContractError: The return type has no JSON form.
    """
    hint = _hints(function).get("return", Any)
    if is_object and not holds_objects(hint):
        hint = Annotated[hint, IN_MEMORY]
    if holds_objects(hint):
        return _held_output(function.__name__, hint)
    if hint in (Any, object, typing.NoReturn, typing.Never):
        return Output({}, encode)
    if hint is None:
        hint = type(None)
    adapter = _adapter(with_places(hint), f"{function.__name__}: what it returns")
    # By the names of fields, as the values are written.
    schema = _schema_of(adapter, f"{function.__name__} returns {hint}", mode="serialization", by_alias=False)
    if hint in (str, int, bool, float, type(None)):
        return Output(schema, _scalar_encoder(hint), hint=hint)
    return Output(schema, _adapter_encoder(adapter, is_plain=_is_plain(hint)), may_spill(hint), hint)


def _held_output(name: str, hint: Any) -> Output:
    """Return the contract of an output with objects in memory."""
    adapter = _adapter(with_places(hint), f"{name}: what it returns")
    schema = _schema_of(adapter, f"{name} returns {hint}", mode="serialization", by_alias=False)

    def as_json(part: Any) -> Callable[[object], Any]:
        inner = _adapter(part, f"{name}: what it returns")
        encode_part = _adapter_encoder(inner, is_plain=_is_plain(part))
        return lambda value: decode(encode_part(value, MAX_VALUE_BYTES))

    try:
        keep = keeper_of(hint, as_json)
    except ValueRefused as error:
        raise ContractError(f"{name}: {error}") from None

    def hold(value: object, owner: str, limit: int, file_of: FileOf | None = None) -> Stored:
        kept = Kept(file_of=file_of)
        stored = encode(keep(value, owner, kept), limit)
        return HeldObjects(stored, kept.objects, kept.is_filed) if kept.objects and type(stored) is bytes else stored

    return Output(schema, lambda value, limit: hold(value, "", limit), hint=hint, hold=hold)


def typed_value(value: Any, hint: Any) -> Any:
    """Turn plain JSON data into a value of the type *hint*: a model, a date, a dataclass, and so on.

    Raises:
        ValidationError: The data does not fit the type.
    """
    if hint is Any:
        return value
    adapter = adapter_for(with_places(hint))
    data = json.dumps(value).encode()
    computed = frozenset(computed_names(adapter.core_schema))
    while True:
        try:
            return adapter.validate_json(data, by_alias=True, by_name=True)
        except ValidationError as error:
            shorter = without_computed(data, error, computed) if computed else data
            if shorter == data:
                raise
            data = shorter


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise ContractError(
            f"{function.__name__}: cannot resolve its annotations: {error}; define the types at module level"
        ) from error


def _field(hint: Any, parameter: inspect.Parameter, text: str | None) -> Any:
    extra: dict[str, Any] = {}
    if parameter.default is not parameter.empty and _is_json(parameter.default):
        extra["default"] = parameter.default
    if text and not any(isinstance(m, FieldInfo) and m.description for m in getattr(hint, "__metadata__", ())):
        extra["description"] = text
    if extra:
        hint = Annotated[hint, Field(json_schema_extra=extra)]
    return Required[hint] if parameter.default is parameter.empty else NotRequired[hint]


def _inside_presence(hint: Any, change: Callable[[Any], Any]) -> Any:
    """Return the type of a parameter, required or not, with a changed type inside."""
    return typing.get_origin(hint)[change(typing.get_args(hint)[0])]


def _aliases(hint: Any) -> list[str]:
    aliases = [m.validation_alias or m.alias for m in getattr(hint, "__metadata__", ()) if isinstance(m, FieldInfo)]
    return [alias for alias in aliases if isinstance(alias, str)]


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _adapter(shape: Any, what: str) -> TypeAdapter[Any]:
    try:
        return adapter_for(shape)
    except PydanticUserError as error:
        reason = shorten(str(error).split("\n", maxsplit=1)[0])
        raise ContractError(
            f"{what}: {reason}; plans carry JSON, so use plain types, an Artifact, or dagrun.Object[…] for an object "
            "in memory"
        ) from error


def _schema_of(adapter: TypeAdapter[Any], what: str, **options: Any) -> dict[str, Any]:
    try:
        return adapter.json_schema(schema_generator=ContractSchemas, **options)
    except ContractError as error:
        raise ContractError(f"{what}: {error}") from None
    except PydanticUserError as error:
        advice = "use plain types, an Artifact, or dagrun.Object[…]"
        raise ContractError(f"{what}, which has no JSON form; {advice}") from error
    except Exception as error:  # a type may describe itself, and the description may be anything
        reason = shorten(f"{type(error).__name__}: {error}")
        raise ContractError(f"{what}: its JSON Schema cannot be made ({reason})") from error


def _scalar_encoder(kind: type) -> Callable[[object, int], Stored]:
    accepted = (int, float) if kind is float else (kind,)

    def encode_scalar(value: object, limit: int = MAX_VALUE_BYTES) -> Stored:
        if type(value) not in accepted and type(value := plain_scalar(value)) not in accepted:
            raise ValueRefused(f"declared to return {kind.__name__}, returned {describe(value)}")
        return encode(value, limit)

    return encode_scalar


def _adapter_encoder(adapter: TypeAdapter[Any], *, is_plain: bool) -> Callable[[object, int], Stored]:
    # The methods of the adapter only wrap these two, and this runs at every step.
    validate, dump = adapter.validator.validate_python, adapter.serializer.to_python

    def dumped(checked: object) -> object:
        try:
            # By the names of fields, as in the schema of the output, whatever a model says.
            return dump(checked, mode="json", by_alias=False, fallback=numpy_fallback)
        except UnicodeDecodeError as error:
            raise ValueRefused(f"bytes that are no UTF-8 are not a JSON value; {BYTES_ADVICE}") from error

    def encode_again(value: object, limit: int) -> Stored:
        """Validate again after converting NumPy scalars."""
        check_size(value, limit)  # so that copying it takes a bounded time
        checked = validate(without_numpy(value), strict=True, by_alias=True, by_name=True)
        return encode(checked if is_plain else dumped(checked), limit)

    def encode_checked(value: object, limit: int = MAX_VALUE_BYTES) -> Stored:
        try:
            checked = validate(value, strict=True, by_alias=True, by_name=True)
        except ValidationError as error:
            try:
                return encode_again(value, limit)
            except ValidationError:
                raise ValueRefused(f"does not return what it declares: {explain(error)}") from error
        # A value made of JSON types already need not be copied into JSON types.
        return encode(checked if is_plain else dumped(checked), limit)

    return encode_checked


def typed_as(what: str, value: Any, as_typed: Callable[[Any], Any]) -> Any:
    """Return *value* as *as_typed* converts it.

    Raises:
        ValueRefused: It does not fit; *what* says which value it is.
    """
    try:
        return as_typed(value)
    except ValidationError as error:
        raise ValueRefused(f"{what} does not fit its type: {explain(error)}") from error


def explain(error: ValidationError, limit: int = 5) -> str:
    """Describe a validation error without the values themselves: they may hold a secret, or be 55 MB long."""
    faults = error.errors(include_url=False, include_input=False)
    lines = []
    for fault in faults[:limit]:
        place = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"]
        if fault["type"] == "union_tag_invalid":  # the message of pydantic shows the tag, which is a value
            message = "{discriminator} should be one of {expected_tags}".format_map(fault["ctx"])
        lines.append(shorten(f"{place}: {message}" if place else message))
    return "; ".join(lines) + (f"; and {len(faults) - limit} more" if len(faults) > limit else "")


def _is_plain(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return _is_plain(typing.get_args(hint)[0])
    if origin in (dict, list, types.UnionType, typing.Union):
        return all(_is_plain(part) for part in typing.get_args(hint))
    try:
        return hint in _PLAIN_TYPES
    except TypeError:
        return False


def _argument_texts(docstring: str) -> dict[str, str]:
    """Return the description of each parameter in the ``Args:`` section of a docstring in Google's style."""
    section = re.search(r"^(?:Args|Arguments|Parameters):\s*\n((?:[ \t]+.*\n?|\s*\n)+)", docstring, re.MULTILINE)
    if section is None:
        return {}
    texts: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(section.group(1)).splitlines():
        start = re.match(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)", line)
        if start:
            name, texts[start.group(1)] = start.group(1), start.group(2)
        elif name and line.strip():
            texts[name] = f"{texts[name]} {line.strip()}".strip()
    return texts


def summary_of(function: Callable[..., Any]) -> str:
    """Return the docstring of *function* up to its first section, on one line."""
    doc = inspect.getdoc(function) or ""
    head = re.split(r"\n\s*(?:Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples|Attributes):", doc)[0]
    return " ".join(head.split())


def refuse_async(function: object, what: str) -> None:
    """Refuse an async function where a plain one is needed, because nothing would await its result.

    Args:
        function: The function of the host.
        what: The use of the function, to begin the message with.

    Raises:
        ContractError: *function* is async, or cannot be called.
    """
    if not callable(function):
        raise ContractError(f"{what} must be a function, got {type(function).__name__}")
    # If it is an object, its `__call__` method may be async.
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise ContractError(f"{what} must be a plain function, not an async one")
