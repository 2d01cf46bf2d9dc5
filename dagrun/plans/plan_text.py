"""Plans written as text: as YAML, and as the Python that would make them."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, Final

from dagrun.kernel.model.reference import HOLE, Reference, parse_reference, read_path
from dagrun.kernel.model.value import Path

_SIGNS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))
_NO_LINE: Final = 10_000  # columns of what takes several lines
_WIDTH: Final = 100  # columns of a call before it is broken into lines
_LIKE_A_NUMBER: Final = re.compile(r"-?[0-9][0-9.eE+-]*")  # in the YAML that we read; 1e5 is a text in YAML 1.1
_NAMES_OF_CODE: Final = frozenset(("dagrun", "plan", "tools"))


def as_yaml(value: Any, *, open_levels: int | None = None) -> str:
    """Write plain JSON as YAML that dagrun reads back unchanged: no aliases, and no text that looks like a number.

    Args:
        value: The value.
        open_levels: What fits on a line stands on one, but for so many levels of objects and lists from the top;
            `None` for a line for each part.
    """
    import yaml  # most programs never need it, and loading it takes longer than writing a plan

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, indentless and open_levels is None)  # lists in objects are indented, too

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        style = '"' if _LIKE_A_NUMBER.fullmatch(text) else "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    node = Dumper(StringIO(), sort_keys=False, default_flow_style=False).represent_data(value)
    if open_levels is not None:
        _lay_out(node, 0, open_levels)
    return str(yaml.serialize(node, None, Dumper, allow_unicode=True, width=_WIDTH))


def _lay_out(node: Any, depth: int, open_levels: int) -> int:
    """Decide for a node, and for those in it, which of them stand on one line; return the columns that it takes."""
    if isinstance(node.value, str):
        return _NO_LINE if node.style == "|" else len(node.value) + 2
    pairs = node.id == "mapping"
    parts = [part for pair in node.value for part in (pair if pairs else (pair,))]
    columns = 2 + sum(_lay_out(part, depth + 1, open_levels) + 2 for part in parts)
    node.flow_style = not parts or (depth >= open_levels and columns + 2 * depth <= _WIDTH)
    return columns if node.flow_style else _NO_LINE


def as_python(plan: Mapping[str, Any]) -> str:
    """Write the fields of a plan as Python code that makes it."""
    steps: Sequence[Mapping[str, Any]] = plan["steps"]
    printer = _Printer(steps)
    lines = ["import dagrun", ""]
    lines += [f"{printer.variables[step['id']]} = {printer.step(step)}" for step in printer.in_order]
    # All steps are named, as the order of a plan is the order in which its steps are made.
    named = [f"[{', '.join(printer.variables[step['id']] for step in steps)}]"]
    if (output := plan.get("output")) is not None:
        named.append(f"output={printer.output(output)}")
    named += [f"{key}={plan[key]!r}" for key in ("goal", "confidence") if plan.get(key)]
    lines.append(f"plan = {_call('dagrun.plan', named)}")
    return "\n".join(lines) + "\n"


class _Printer:
    """Prints steps as calls of `Tool.step`.

    Attributes:
        variables: The name of the variable of each step, by id.
        in_order: The steps, each after those that it needs.
    """

    def __init__(self, steps: Sequence[Mapping[str, Any]]) -> None:
        self.variables: dict[str, str] = {}
        tools = {step["tool"] for step in steps}
        for step in steps:
            self.variables[step["id"]] = _variable(step["id"], {*self.variables.values(), *tools, *_NAMES_OF_CODE})
        self.in_order = _after_their_sources(steps)

    def step(self, step: Mapping[str, Any]) -> str:
        """Return the expression that makes a step."""
        tool = step["tool"] if _is_name(step["tool"]) else f"tools[{step['tool']!r}]"
        options = [f"id={step['id']!r}", *self._options(step)]
        text = _call(f"{tool}.options", options)
        if step.get("for_each") is not None:
            text += f".each({self.value(step['for_each'])})"
        args = step.get("args", {})
        if all(map(_is_name, args)):
            return _call(f"{text}.step", [f"{name}={self.value(value)}" for name, value in args.items()])
        return f"{text}.step(**{self.value(args)})"

    def _options(self, step: Mapping[str, Any]) -> list[str]:
        options = []
        for name, value in step.items():
            match name:
                case "id" | "tool" | "args" | "for_each":
                    continue
                case "depends_on":
                    text = f"[{', '.join(self.variables.get(id_, repr(id_)) for id_ in value)}]"
                case "when":
                    text = self._condition(value)
                case "success":
                    text = f"lambda {self.variables[step['id']]}: {self._condition(value)}"
                case "retry":
                    text = f"dagrun.RetryRule({', '.join(f'{key}={part!r}' for key, part in value.items())})"
                case _:
                    text = repr(value)
            options.append(f"{name}={text}")
        return options

    def output(self, output: Any) -> str:
        """Return the expression of the plan's output; a bare id is a reference there."""
        if isinstance(output, str) and output in self.variables:
            return self.variables[output]
        return self.value(f"${{{output}}}" if isinstance(output, str) and "${" not in output else output)

    def value(self, value: Any) -> str:
        """Return the expression of a value with references in it."""
        match value:
            case str():
                return self._text(value)
            case Mapping() if "$step" in value:
                return self._reference(Reference(value["$step"], read_path(value.get("path", ""))))
            case Mapping():
                return f"{{{', '.join(f'{key!r}: {self.value(part)}' for key, part in value.items())}}}"
            case list() | tuple():
                return f"[{', '.join(map(self.value, value))}]"
            case _:
                return repr(value)

    def _text(self, text: str) -> str:
        holes = list(HOLE.finditer(text))
        if len(holes) == 1 and holes[0].group() == text and holes[0].group(1) is not None:
            return self._reference(parse_reference(text))
        literals, values, at = [""], list[str](), 0
        for hole in holes:
            literals[-1] += text[at : hole.start()]
            if hole.group(1) is None:
                literals[-1] += "${"  # "$${" stands for it
            else:
                values.append(self._reference(parse_reference(hole.group())))
                literals.append("")
            at = hole.end()
        literals[-1] += text[at:]
        return _text_with(literals, values)

    def _reference(self, reference: Reference) -> str:
        path = reference.path
        if reference.step == "input" and path and isinstance(path[0], str):
            return f"dagrun.input({path[0]!r}){_parts(path[1:])}"
        if reference.step == "item":
            return f"dagrun.item{_parts(path)}"
        return self.variables[reference.step] + _parts(path)

    def _condition(self, condition: Mapping[str, Any]) -> str:
        for word, sign in (("all", " & "), ("any", " | ")):
            if condition.get(word) is not None:
                return sign.join(f"({self._condition(part)})" for part in condition[word])
        if condition.get("not") is not None:
            return f"~({self._condition(condition['not'])})"
        value, op = self._reference(parse_reference(condition["ref"])), condition["op"]
        if op in _SIGNS:
            return f"{value} {op} {condition.get('value')!r}"
        return f"dagrun.where({value}, {op!r}, {condition.get('value', True)!r})"


def _after_their_sources(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps in topological order; steps of a cycle keep their order."""
    by_id = {step["id"]: step for step in steps}
    ordered: dict[str, Mapping[str, Any]] = {}
    for first in steps:
        waiting = [(first["id"], False)]
        seen: set[str] = set()
        while waiting:
            id_, is_ready = waiting.pop()
            if id_ in ordered or id_ not in by_id:
                continue
            if is_ready:
                ordered[id_] = by_id[id_]
            elif id_ not in seen:
                seen.add(id_)
                waiting.append((id_, True))
                waiting += [(source, False) for source in sorted(_sources(by_id[id_]), reverse=True)]
    return list(ordered.values())


def _sources(step: Mapping[str, Any]) -> set[str]:
    found = {*step.get("depends_on", ()), *_compared(step.get("when"))}
    waiting = [step.get("args"), step.get("for_each")]
    while waiting:
        match waiting.pop():
            case str() as text:
                for hole in HOLE.finditer(text):
                    if hole.group(1) is not None:
                        found.add(parse_reference(hole.group()).step)
            case Mapping() as fields:
                found |= {fields[key] for key in ("$step",) if key in fields}
                waiting += fields.values()
            case list() | tuple() as parts:
                waiting += parts
            case _:
                continue
    return found


def _compared(condition: Mapping[str, Any] | None) -> set[str]:
    """Return the steps that a condition looks at; the values that it compares with are data."""
    found: set[str] = set()
    waiting = [condition]
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        if isinstance(part.get("ref"), str):
            found.add(parse_reference(part["ref"]).step)
        waiting += [*(part.get("all") or ()), *(part.get("any") or ()), part.get("not")]
    return found


def _variable(id_: str, taken: set[str]) -> str:
    name = id_.replace("-", "_")
    if not _is_name(name):
        name = f"step_{name}"
    while name in taken:
        name += "_"
    return name


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _parts(path: Path) -> str:
    return "".join(f"[{part!r}]" for part in path)


def _text_with(literals: Sequence[str], values: Sequence[str]) -> str:
    """Return the expression of a text with values between its literal parts."""
    if not values:
        return repr(literals[0])
    if any('"' in value or "\\" in value for value in values):  # these cannot stand in an f-string before Python 3.12
        joined = "{}".join(literal.replace("{", "{{").replace("}", "}}") for literal in literals)
        return f"{joined!r}.format({', '.join(values)})"
    quoted = [json.dumps(part, ensure_ascii=False)[1:-1].replace("{", "{{").replace("}", "}}") for part in literals]
    return 'f"' + "".join(f"{part}{{{value}}}" for part, value in zip(quoted, values, strict=False)) + quoted[-1] + '"'


def _call(function: str, arguments: Sequence[str]) -> str:
    inline = f"{function}({', '.join(arguments)})"
    if len(inline) <= _WIDTH:
        return inline
    return f"{function}(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")"
