"""Find and read files of golden tasks; a fault is reported with the file, the case and the place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dagrun.errors import CasesRefused, PlanRefused, shorten
from dagrun.evaluate.cases.case_file import CaseFile
from dagrun.model.reference import path_text
from dagrun.model.toolbox import hint
from dagrun.model.value import describe
from dagrun.plans.json_reader import take_out_marks
from dagrun.plans.plan_fields import EXPECTED
from dagrun.plans.yaml_reader import parse_yaml

_SUFFIXES: Final = frozenset((".yaml", ".yml"))
_MAX_BYTES: Final = 10_000_000
_MAX_DEPTH: Final = 64
_Place = tuple[int | str, ...]


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return the files of cases: those that are named, and every ``.yaml`` and ``.yml`` in the folders that are.

    Raises:
        CasesRefused: A path does not exist, or a folder has no such file.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.suffix in _SUFFIXES and one.is_file())
            if not inside:
                raise CasesRefused([f"{path}: there is no .yaml file in the folder"])
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise CasesRefused([f"{path}: there is no such file or folder"])
    return list(dict.fromkeys(found))


def read_file(path: Path) -> CaseFile:
    """Read one file of cases.

    Raises:
        CasesRefused: It cannot be read; every fault is in the error, with the case and the place in it.
    """
    try:
        data = path.read_bytes()
        if len(data) > _MAX_BYTES:
            raise CasesRefused([f"{path} has more than {_MAX_BYTES} bytes"])
        tree, problems = parse_yaml(data.decode("utf-8-sig"), _MAX_DEPTH)
    except OSError as error:
        raise CasesRefused([f"cannot read {path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise CasesRefused([f"{path} is not text: byte {error.start} is not UTF-8"]) from None
    except PlanRefused as error:
        raise CasesRefused([f"{path}: {problem.sentence}" for problem in error.problems]) from None
    problems += take_out_marks(tree)
    if problems:
        raise CasesRefused([f"{path}: {_where(problem.path, tree)}{problem.sentence}" for problem in problems])
    try:
        return CaseFile.model_validate(tree)
    except ValidationError as error:
        raise CasesRefused([f"{path}: {line}" for line in _lines(error, tree)]) from None


def _lines(error: ValidationError, tree: Any) -> Iterator[str]:
    """Yield a line for each place that is wrong. Pydantic reports a fault for each branch of a union: they are one."""
    faults: dict[_Place, list[ErrorDetails]] = {}
    for fault in error.errors(include_url=False, include_input=False):
        faults.setdefault(_real(fault["loc"], tree), []).append(fault)
    for place, found in faults.items():
        yield _where(path_text(place).removeprefix("."), tree) + _sentence(place, found, tree)


def _real(location: _Place, tree: Any) -> _Place:
    """Return a location without the names that pydantic gives to the branches of unions."""
    place: list[int | str] = []
    for number, part in enumerate(location):
        is_there = isinstance(tree, dict) and part in tree
        is_there = is_there or (isinstance(tree, list) and isinstance(part, int) and part < len(tree))
        if is_there:
            tree = tree[part]
        if is_there or (number == len(location) - 1 and isinstance(tree, dict)):
            place.append(part)
    return tuple(place)


def _sentence(place: _Place, faults: Sequence[ErrorDetails], tree: Any) -> str:
    kinds = [fault["type"] for fault in faults]
    if "extra_forbidden" in kinds:
        return f"there is no such field{hint(str(place[-1]), _fields_at(place[:-1]))}"
    if "missing" in kinds:
        return "it is missing"
    expected = [EXPECTED.get(kind) or _literal(fault) for kind, fault in zip(kinds, faults, strict=True)]
    if all(expected):
        return f"it must be {' or '.join(dict.fromkeys(map(str, expected)))}, and is {describe(_at(tree, place))}"
    message = next(fault["msg"] for fault, word in zip(faults, expected, strict=True) if not word)
    return message.removeprefix("Value error, ").replace("Input should be", "it must be", 1)


def _literal(fault: ErrorDetails) -> str:
    return str(fault.get("ctx", {}).get("expected", "")) if fault["type"] in ("literal_error", "enum") else ""


def _where(place: str, tree: Any) -> str:
    """Return a place in words, to begin a line: ``case refund: expect.status: ``."""
    case = ""
    if place.startswith("cases["):
        number, _, rest = place.removeprefix("cases[").partition("]")
        named = _at(tree, ("cases", int(number), "id"))
        case = f"case {shorten(named, 100) if isinstance(named, str) else int(number) + 1}: "
        place = rest.removeprefix(".")
    return f"{case}{place}: " if place else case


def _at(tree: Any, place: _Place) -> Any:
    for part in place:
        try:
            tree = tree[part]
        except (LookupError, TypeError):
            return None
    return tree


def _fields_at(place: _Place) -> list[str]:
    """Return the names of the fields of the model at *place*."""
    model: type[BaseModel] = CaseFile
    for part in place:
        field = next((one for name, one in model.model_fields.items() if (one.alias or name) == part), None)
        if field is not None:  # else an index of a list, or a key of a mapping: all of its values have one model
            model = _model_in(field.annotation) or model
    return [one.alias or name for name, one in model.model_fields.items()]


def _model_in(kind: Any) -> type[BaseModel] | None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for part in get_args(kind) if (found := _model_in(part)) is not None), None)
