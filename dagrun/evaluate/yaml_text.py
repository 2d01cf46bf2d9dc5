"""Write plain JSON as YAML that people like to read: what fits on a line stands on one, long texts keep their lines.

`dagrun.plans.yaml_reader` reads it back as the same value: a text that it would take for a number, a truth value or
null is quoted, and nothing is written twice by an alias.
"""

from __future__ import annotations

from io import StringIO
from typing import Any, Final

import yaml

from dagrun.plans.yaml_reader import read_plain

_WIDTH: Final = 110  # columns of an object or a list on one line
_STR: Final = "tag:yaml.org,2002:str"


class _Dumper(yaml.SafeDumper):
    """Writes a value as YAML; see the module."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write each value in full, however often it occurs."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists in objects, too."""
        super().increase_indent(flow, False)


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    if text.count("\n") > 1 and all(line == line.rstrip() and line.isprintable() for line in text.split("\n")):
        return dumper.represent_scalar(_STR, text, style="|")
    looks_like_other = not isinstance(read_plain(text), str)
    return dumper.represent_scalar(_STR, text, style='"' if looks_like_other else None)


_Dumper.add_representer(str, _text)


def yaml_of(value: Any, *, open_levels: int = 0) -> str:
    """Return *value* as YAML.

    Args:
        value: Plain JSON.
        open_levels: How many levels of objects and lists never stand on one line, however short they are.
    """
    dumper = _Dumper(StringIO(), sort_keys=False)
    node = dumper.represent_data(value)
    _break(node, 0, open_levels)
    return str(yaml.serialize(node, Dumper=_Dumper, allow_unicode=True, width=_WIDTH + 10, indent=2))


def _break(node: yaml.Node, depth: int, open_levels: int) -> int:
    """Decide for a node and those in it whether they stand on one line; return the columns that it takes, about."""
    if isinstance(node, yaml.ScalarNode):
        return 10_000 if node.style == "|" else len(node.value) + 2
    if isinstance(node, yaml.MappingNode):
        inner = [_break(key, depth + 1, 0) + _break(part, depth + 1, open_levels) for key, part in node.value]
    else:
        assert isinstance(node, yaml.SequenceNode)
        inner = [_break(part, depth + 1, open_levels) for part in node.value]
    size = 2 + sum(inner) + 2 * len(inner)
    node.flow_style = not node.value or (depth >= open_levels and size + 2 * depth <= _WIDTH)
    return size if node.flow_style else 10_000
