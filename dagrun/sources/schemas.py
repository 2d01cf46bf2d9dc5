"""`schema_tool`: a tool from a JSON Schema and an async function that takes the unchanged arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal, cast

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, SchemaValidator, from_json

from dagrun.errors import ContractError, ToolError, ValueRefused, shorten
from dagrun.kernel.decide.classify import kind_of
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.kernel.model.reference import escaped_key
from dagrun.kernel.model.signature import Arguments, Output
from dagrun.kernel.model.tool import MAX_NAME, Tool, assembled_tool
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.value import MAX_VALUE_BYTES, Stored, decode, encode, to_json
from dagrun.sources.foreign_schema import NOTHING, Schema, as_shown, definition_of, in_place, read_schema
from dagrun.sources.schema_check import SchemaFault, SchemaRules

Call = Callable[[dict[str, Any], ToolContext], Awaitable[Any]]

_CONTEXT: Final = "(context)"  # where the function gets the context; no argument of a plan can have this name
_MOST_FORMS: Final = 6


def schema_tool(
    name: str,
    call: Call,
    arguments: Any,
    *,
    output: Any = None,
    effect: Effect | str | None = None,
    description: str = "",
    guarded: Iterable[str] = (),
    **options: Any,
) -> Tool[..., Any]:
    """Make a tool of a JSON Schema, for a function that is not typed: a client of a server, a registry of a host.

    The schema is enforced as the signature of a typed function is: the check of a plan and every call hold arguments
    to it. ``$defs``, recursion, forms that exclude each other, free-form properties and property names of any kind
    work. The root is closed: an argument that it does not name is refused, unless the schema says otherwise, or names
    none. A schema counts as hostile: it may take 64 KiB and 32 levels, refers only to itself, and its ``pattern``,
    ``format``, ``patternProperties``, ``uniqueItems`` and ``unevaluated…`` are shown to planners but never executed.

    The function runs as a coroutine of the host; no worker process can import it.

    Args:
        name: The name. Characters that a name cannot have become ``_``; see `fitting_name`.
        call: An async function. It takes the arguments, as plain JSON, and the `ToolContext` of the call.
        arguments: The JSON Schema of the arguments, of draft 4 to 2020-12.
        output: The JSON Schema of its output; `None` if that is anything. Outputs are checked against it, and a
            plan can refer only to what it names.
        effect: What a call does to the world; without it, the tool counts as effectful.
        description: The description for planners.
        guarded: The names of arguments that say who, where or which account, as `dagrun.guarded` marks parameters.
        options: More attributes of `Tool`: *timeout*, *pool*, *needs_approval*, *fallback*, *reconcile*,
            *reconcile_after*, *max_tokens*, *max_cost*, *output_limit*, *version*, *stream_safe*, *cache*, *untrusted*,
            *private*, *outbound*.

    Examples:
        >>> async def call(arguments, context):
        ...     return {"sum": sum(arguments["numbers"])}
        >>> schema = {"properties": {"numbers": {"type": "array", "items": {"type": "number"}}}}
        >>> schema_tool("math/sum", call, schema, effect="pure")
        <Tool math_sum(numbers), pure>

    Raises:
        ContractError: The schema cannot be used, an option is invalid, or *call* is no async function.
    """
    fitting = fitting_name(name)
    return tool_of_schemas(
        fitting,
        call,
        read_schema(arguments, f"{fitting}: the arguments"),
        output_of_schema(fitting, output),
        effect=effect,
        description=description,
        options={**options, "guarded": guarded},
    )


def tool_of_schemas(
    name: str,
    call: Call,
    arguments: dict[str, Any],
    output: Output,
    *,
    effect: Effect | str | None,
    description: str,
    options: dict[str, Any],
) -> Tool[..., Any]:
    """Make a tool as `schema_tool` does, of a name that fits, and of schemas that have been read.

    Raises:
        ContractError: The arguments are no object, an option is invalid, or *call* is no async function.
    """
    contract, forms = _arguments(arguments, name)
    guarded = options.pop("guarded", ())
    if marked := frozenset(guarded):
        if isinstance(guarded, str) or (not contract.is_open and marked - contract.names.keys()):
            raise ContractError(f"{name}: guarded is a list of names of arguments, got {guarded!r}")
        contract = replace(contract, guarded=marked)
    return assembled_tool(
        _function(name, call),
        name=name,
        effect=effect,
        arguments=contract,
        output=output,
        description=" ".join((*description.split(), forms)).strip(),
        options=options,
    )


def said_of(said: Mapping[str, Any], name: str) -> Any:
    """Return what is said under a name, or else under the first pattern that fits it, as for files; or `None`."""
    return said.get(name, next((part for key, part in said.items() if fnmatchcase(name, key)), None))


def fits_nothing(patterns: Iterable[str], names: Collection[str]) -> list[str]:
    """Return the patterns that fit none of the names."""
    return [key for key in patterns if key not in names and not any(fnmatchcase(name, key) for name in names)]


def fitting_name(name: str) -> str:
    """Return a name of a tool that is as close to *name* as can be.

    Letters, digits, ``_``, ``.`` and ``-`` stay. A name that has characters outside ASCII, or is longer than 128
    characters, is cut and ends with a hash of the whole, so that two of them stay apart.

    Raises:
        ContractError: *name* is empty.
    """
    if not str(name).strip():
        raise ContractError(f"a tool needs a name, got {name!r}")
    made = re.sub(r"[^A-Za-z0-9_.-]", "_", name.strip())
    if not re.match(r"[A-Za-z_]", made):
        made = f"_{made}"
    if len(made) > MAX_NAME or not name.isascii():
        made = f"{made[: MAX_NAME - 9]}_{sha256(name.encode(errors='replace')).hexdigest()[:8]}"
    return made


def _function(name: str, call: Any) -> Callable[..., Any]:
    """Return a function that takes the arguments by name, as the runtime passes them."""
    _refuse_plain(name, call)

    async def function(**arguments: Any) -> Any:
        context = arguments.pop(_CONTEXT)
        return await call(arguments, context)

    inner = call.func if isinstance(call, partial) else call
    function.__module__ = getattr(inner, "__module__", None) or __name__
    function.__name__ = name
    function.__qualname__ = getattr(inner, "__qualname__", type(inner).__qualname__)
    function.__doc__ = None
    return function


def _refuse_plain(name: str, call: Any) -> None:
    inner = call.func if isinstance(call, partial) else call
    if not callable(inner):
        raise ContractError(f"{name}: call must be an async function, got {type(call).__name__}")
    # A lambda may well return a coroutine; that shows when it is called.
    is_lambda = getattr(inner, "__name__", "") == "<lambda>"
    if inspect.isroutine(inner) and not is_lambda and not inspect.iscoroutinefunction(inner):
        raise ContractError(f"{name}: call must be an async function; a plain one would block every other step")


# Arguments -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Root:
    """The constraints of the root of a schema, and of the schemas that apply to the same object.

    Attributes:
        properties: The schemas of each named argument.
        required: The arguments that must be there in any case.
        forms: The names that each form requires or has, where forms exclude each other.
        rest: The schemas of arguments that are not named; true for any.
        is_closed: Whether a part says that there are no others.
        has_names: Whether a part names the arguments, be it none.
    """

    properties: dict[str, list[Schema]] = field(default_factory=dict)
    required: dict[str, None] = field(default_factory=dict)
    forms: list[tuple[str, ...]] = field(default_factory=list)
    rest: list[Any] = field(default_factory=list)
    is_closed: bool = False
    has_names: bool = False

    def note(self, schema: Schema, definitions: Mapping[str, Any], *, is_certain: bool) -> None:
        """Add the constraints of a schema; *is_certain* if it must hold, else it is an alternative."""
        self._note_names(schema, is_certain=is_certain)
        for union in (schema.get("oneOf"), schema.get("anyOf")):
            self.forms += [_names_of(part, definitions) for part in union or ()]
        if (target := definition_of(schema, definitions)) is not None:
            self.note(target, definitions, is_certain=is_certain)
        certain = schema.get("allOf", [])
        for part in in_place(schema):
            if part is not schema.get("not"):
                self.note(part, definitions, is_certain=is_certain and any(part is other for other in certain))

    def _note_names(self, schema: Schema, *, is_certain: bool) -> None:
        self.has_names = self.has_names or "properties" in schema
        for name, part in schema.get("properties", {}).items():
            known = self.properties.setdefault(name, [])
            if part != NOTHING and part not in known:
                known.append(part)
        if is_certain:
            self.required |= dict.fromkeys(schema.get("required", ()))
        for key in ("additionalProperties", "unevaluatedProperties"):
            if key in schema:
                self.is_closed = self.is_closed or schema[key] is False
                self.rest += [] if schema[key] is False else [schema[key]]
        if "patternProperties" in schema:
            self.rest.append(True)


def _names_of(part: Schema, definitions: Mapping[str, Any]) -> tuple[str, ...]:
    while (target := definition_of(part, definitions)) is not None:
        part = target
    return tuple(part.get("required", part.get("properties", ())))


def _arguments(schema: dict[str, Any], tool: str) -> tuple[Arguments, str]:
    """Return the contract of arguments, and a sentence about forms that exclude each other."""
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    if "type" in schema and "object" not in schema["type"]:
        raise ContractError(f"{tool}: the arguments are an object, and its schema says {shorten(str(schema['type']))}")
    if schema == NOTHING:
        raise ContractError(f"{tool}: the arguments have a schema that no value fits")
    root = _Root()
    root.note(schema, definitions, is_certain=True)
    properties = {
        name: parts[0] if len(parts) == 1 else {"anyOf": parts} for name, parts in root.properties.items() if parts
    }
    for name in root.required:
        properties.setdefault(name, {})
    if _CONTEXT in properties:
        raise ContractError(f"{tool}: an argument cannot be called {_CONTEXT}")
    is_open = bool(root.rest) or not (root.has_names or root.is_closed)
    rest = root.rest[0] if len(root.rest) == 1 else is_open
    shown = {key: part for key, part in schema.items() if key not in ("description", "$defs")}
    shown |= {"type": "object", "properties": properties, "required": list(root.required), "additionalProperties": rest}
    if definitions:
        shown["$defs"] = as_shown(schema)["$defs"]
    required = frozenset(root.required)
    rules = ArgumentRules(SchemaRules(schema), None if is_open else frozenset(properties), required)
    contract = Arguments(
        shown,
        cast(SchemaValidator, rules),
        # A key that looks like that of a reference is written in another way in a plan.
        {alias: name for name in properties for alias in dict.fromkeys((name, escaped_key(name)))},
        required,
        _CONTEXT,
        is_json_only=True,
    )
    return contract, _forms_text(root)


def _forms_text(root: _Root) -> str:
    forms = [names for names in dict.fromkeys(root.forms) if names]
    if len(forms) < 2:
        return ""
    shown = " or ".join(f"({', '.join(names)})" for names in forms[:_MOST_FORMS])
    return f"Takes one of these sets of arguments: {shown}{' or others' if len(forms) > _MOST_FORMS else ''}."


class ArgumentRules:
    """Checks arguments against a schema, and reports faults as pydantic does, with the usual texts.

    Args:
        rules: The schema.
        known: The names of the arguments; `None` if there may be others.
        required: The names of those that must be there.
    """

    def __init__(self, rules: SchemaRules, known: frozenset[str] | None, required: frozenset[str]) -> None:
        self._rules = rules
        self._known = known
        self._required = required

    def validate_json(self, data: bytes, **_: Any) -> dict[str, Any]:
        """Return the arguments.

        Raises:
            ValidationError: They do not fit the schema.
        """
        value: dict[str, Any] = from_json(data)
        faults = [*self._unknown(value), *map(self._in_words, self._rules.faults(value, len(data)))]
        if faults:
            raise ValidationError.from_exception_data("arguments", [_detail(fault) for fault in dict.fromkeys(faults)])
        return value

    def _in_words(self, fault: SchemaFault) -> SchemaFault:
        """Put a fault of one form into words: a check of names knows only the constraints that hold for all forms."""
        if len(fault.place) != 1 or fault.kind == "other":
            return fault
        name = str(fault.place[0])
        if fault.kind == "missing":
            return fault if name in self._required else SchemaFault("other", (), f"{shorten(name, 60)} is missing")
        is_known = self._known is None or name in self._known
        return SchemaFault("other", fault.place, "it does not go with the other arguments") if is_known else fault

    def _unknown(self, value: dict[str, Any]) -> list[SchemaFault]:
        names = value.keys() - self._known if self._known is not None else value.keys() & {_CONTEXT}
        return [SchemaFault("unknown", (name,), "there is no such field") for name in sorted(names)]


def _detail(fault: SchemaFault) -> InitErrorDetails:
    kind: Any = PydanticCustomError("schema", fault.text)
    if fault.kind != "other":
        kind = "missing" if fault.kind == "missing" else "extra_forbidden"
    return InitErrorDetails(type=kind, loc=fault.place, input=None)


# Output --------------------------------------------------------------------------------------------------------------


def output_of_schema(tool: str, schema: Any) -> Output:
    """Return the output contract of a tool.

    Args:
        tool: The name of the tool.
        schema: The JSON Schema; `None` for anything.

    Raises:
        ContractError: The schema cannot be used.
    """
    if schema is None or schema is True:
        return Output({}, encode)
    return output_of_read(tool, read_schema(schema, f"{tool}: the output"))


def output_of_read(tool: str, read: dict[str, Any]) -> Output:
    """Return the output contract of a tool, from a schema that has been read.

    Raises:
        ContractError: No value fits the schema.
    """
    if read == NOTHING:
        raise ContractError(f"{tool}: the output has a schema that no value fits")
    rules = SchemaRules(read)

    def encode_checked(value: object, limit: int = MAX_VALUE_BYTES) -> Stored:
        stored = encode(value, limit)
        faults = rules.faults(decode(stored), len(to_json(stored)))
        if faults:
            text = "; ".join(shorten(str(fault)) for fault in faults[:5])
            raise ValueRefused(f"does not return what it declares: {text}")
        return stored

    return Output(as_shown(read), encode_checked)


# Definitions of others -----------------------------------------------------------------------------------------------

NamedCall = Callable[[str, dict[str, Any]], Awaitable[Any]]

# Under these keys stand the schemas: OpenAI's two APIs, Anthropic, MCP.
_ARGUMENTS: Final = ("parameters", "input_schema", "inputSchema")
_OUTPUTS: Final = ("outputSchema", "output_schema")
_NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


def schema_tools(
    definitions: Iterable[Any],
    call: NamedCall | None = None,
    *,
    effects: Mapping[str, Effect | str] | None = None,
    prefix: str = "",
    errors: Literal["unknown", "clean"] = "unknown",
    **options: Any,
) -> list[Tool[..., Any]]:
    """Make tools of definitions in the formats of others.

    A definition is an object as OpenAI (``{"type": "function", "function": {…}}``, or with its fields beside ``type``),
    Anthropic (``input_schema``) or MCP (``inputSchema``, ``outputSchema``) write it; or a tool of LangChain, which
    brings its own ``ainvoke``. What a definition says about its effects does not count: it may come from anywhere.

    Args:
        definitions: The definitions.
        call: The async function that makes the calls; it takes the name of a tool, as the definition has it, and the
            arguments. Only tools of LangChain do without.
        effects: The effects by name, as the definitions have it, or by patterns, as for files. A tool that is not in
            it counts as effectful.
        prefix: Text before every name: ``"crm."``.
        errors: ``clean``: what a call raises means that nothing has happened; ``unknown``: for a tool with an effect,
            it may have.
        options: Options of every tool; see `schema_tool`.

    Raises:
        ContractError: A definition is of no known format, its schema cannot be used, two have one name, or *effects*
            names a tool that is not there.
    """
    tools: dict[str, Tool[..., Any]] = {}
    names: list[str] = []
    for definition in definitions:
        name, description, arguments, output = _parts_of(definition)
        names.append(name)
        made = _call_of(definition, name, call)
        tool = schema_tool(
            f"{prefix}{name}",
            partial(_call_cleanly, made) if errors == "clean" else made,
            arguments,
            output=output,
            effect=said_of(effects or {}, name),
            description=description,
            **options,
        )
        if tool.name in tools:
            raise ContractError(f"two tools are called {tool.name}; give one of them another name")
        tools[tool.name] = tool
    if unknown := fits_nothing(effects or {}, names):
        raise ContractError(f"effects names {shorten(', '.join(unknown))}, which no definition has")
    return list(tools.values())


def _parts_of(definition: Any) -> tuple[str, str, Any, Any]:
    """Return name, description, schema of the arguments and schema of the output."""
    if isinstance(definition, Mapping):
        fields = definition.get("function", definition)
        if isinstance(fields, Mapping) and isinstance(fields.get("name"), str):
            arguments = next((fields[key] for key in _ARGUMENTS if fields.get(key) is not None), _NO_ARGUMENTS)
            output = next((fields[key] for key in _OUTPUTS if fields.get(key) is not None), None)
            return fields["name"], str(fields.get("description") or ""), arguments, output
    elif callable(getattr(definition, "ainvoke", None)) and isinstance(getattr(definition, "name", None), str):
        return definition.name, str(getattr(definition, "description", "") or ""), _langchain_schema(definition), None
    raise ContractError(
        f"{shorten(repr(definition), 80)} is no definition of a tool: those of OpenAI, Anthropic and MCP are objects "
        "with a name, tools of LangChain have a name and ainvoke"
    )


def _langchain_schema(tool: Any) -> Any:
    """Return the schema of a tool of LangChain for a model's arguments, without injected arguments."""
    for name in ("tool_call_schema", "args_schema"):
        schema = getattr(tool, name, None)
        if isinstance(schema, Mapping):
            return schema
        if callable(make := getattr(schema, "model_json_schema", None)):
            return make()
    return {"type": "object", "properties": getattr(tool, "args", {})}


def _call_of(definition: Any, name: str, call: NamedCall | None) -> Call:
    if call is not None:
        return partial(_call_by_name, call, name)
    if callable(getattr(definition, "ainvoke", None)):
        return partial(_invoke, definition)
    raise ContractError(f"{name}: nothing can call it; give schema_tools a call(name, arguments)")


async def _call_cleanly(call: Call, arguments: dict[str, Any], context: ToolContext) -> Any:
    """Make a call whose errors mean that nothing has happened, but for a connection that broke and a time-out."""
    try:
        return await call(arguments, context)
    except ToolError:
        raise
    except Exception as error:
        if kind_of(error)[0] is not ErrorKind.EXCEPTION:
            raise
        raise ToolError(shorten(f"{type(error).__name__}: {error}", 1_000)) from error


async def _call_by_name(call: NamedCall, name: str, arguments: dict[str, Any], context: ToolContext) -> Any:
    result = call(name, arguments)
    if not inspect.isawaitable(result):
        raise ContractError(f"{name}: call must be an async function; a plain one would block every other step")
    return await result


async def _invoke(tool: Any, arguments: dict[str, Any], context: ToolContext) -> Any:
    return await tool.ainvoke(arguments)
