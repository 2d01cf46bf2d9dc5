"""The fields of a file of golden tasks, and its reader: a fault is reported with the file, the case and the place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import ErrorDetails

from dagrun import Asked, PlanRefused, State
from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.failures import FAILURE_NAMES, is_failure
from dagrun.extend import Choice
from dagrun.texts import EXPECTED, describe, hint, path_text, read_yaml, shorten

Text: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,100}$")]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=0)]

Ending: TypeAlias = Literal[
    "succeeded", "failed", "over_budget", "waiting", "escalated", "unknown", "cancelled", "refused"
]
FOREVER: Final = "forever"
_OLD_WORDS: Final = {"approve": "took_effect", "deny": "did_not"}
_ACT: Final = frozenset(("when", "takes", "return", "raise"))  # an object with one of these is an act, and no value


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


def _failure(value: Any) -> Any:
    if not is_failure(value):
        raise ValueError(f"a failure is one of {', '.join(FAILURE_NAMES)}, an HTTP status, or {{name: text}} of these")
    return value


class Act(_Part):
    """One scripted response of a stub.

    Attributes:
        when: The act is only for calls with these arguments; a part of an object is enough.
        step: The act is only for calls of this step; of an element of a list, such as ``load[2]``.
        takes: Seconds until it returns or raises; ``forever`` for a call that never ends by itself. Such a call raises
            its failure when it is told to stop: a ``tool_error``, say, as nothing has happened.
        returns: The value that it returns.
        raises: The failure that it raises in place of that: ``timeout``, ``connection``, ``tool_error``, ``dies``, an
            HTTP status such as 429; or one of these with a text, as in ``{tool_error: no such address}``.
        surprise: Why the value is right but unexpected, in a sentence.
        tokens: The tokens that it reports; left out, it reports none, and may be charged with all that it may use.
        cost: The cost that it reports.
        confidence: How sure it is of the value, from 0 to 1.
    """

    when: dict[str, Any] | None = None
    step: str | None = None
    takes: Seconds | Literal["forever"] = 0.0
    returns: Any = Field(default=None, alias="return")
    raises: Annotated[Any, BeforeValidator(_failure)] = Field(default=None, alias="raise")
    surprise: str = ""
    tokens: Count | None = None
    cost: Seconds | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _one_end(self) -> Act:
        if self.raises is not None and "returns" in self.model_fields_set:
            raise ValueError("an act returns or raises, not both")
        return self


def _acts(value: Any) -> Any:
    """Read an act, a list of acts, or a plain value that is returned by every call."""
    if isinstance(value, list):
        return [_act(one) for one in value] or [{"return": []}]
    return [_act(value)]


def _act(value: Any) -> Any:
    return value if isinstance(value, dict) and value.keys() & _ACT else {"return": value}


Acts: TypeAlias = Annotated[list[Act], BeforeValidator(_acts, json_schema_input_type=Any)]


class PersonReply(_Part):
    """A person's scripted answer, and its delay.

    Attributes:
        choice: A choice of `Answer`, such as ``approve`` or ``deny``, or ``took_effect`` or ``did_not`` for a call in
            doubt.
        value: The value that was asked for.
        takes: Seconds until the answer; ``forever`` for none.
        note: The reason, for the record.
        kind: The reply is only for questions of this kind, such as ``approval`` or ``effect``.
    """

    choice: Choice = "approve"
    value: Any = None
    takes: Seconds | Literal["forever"] = 0.0
    note: str = ""
    kind: Annotated[Asked, Field(strict=False)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _old_words(cls, facts: Any) -> Any:
        """Read the choices that cases from older records use for unresolved effects."""
        if isinstance(facts, dict) and facts.get("kind") == "effect" and facts.get("choice", "approve") in _OLD_WORDS:
            return {**facts, "choice": _OLD_WORDS[facts.get("choice", "approve")]}
        return facts


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _replies(value: Any) -> Any:
    return [{"choice": one} if isinstance(one, str) else one for one in _listed(value)]


Replies: TypeAlias = dict[
    str,
    Annotated[list[PersonReply], Field(min_length=1), BeforeValidator(_replies, json_schema_input_type=Any)],
]


class PlannerReply(_Part):
    """A planner's scripted answer to one request; an empty one keeps the plan.

    Attributes:
        about: The steps that it is asked about; empty for a goal: its first plan, or more of it.
        takes: Seconds until the answer; ``forever`` for none.
        plan: The whole plan, for a goal.
        patch: Edits of the plan, as in ``dagrun schema patch``.
        more: Whether it wants to be asked again when all of the plan has ended.
        fail: Why it has no answer.
        kind: Who goes on after *fail*, as in `CannotPlan`: ``person`` for people, ``ceiling`` if a limit is reached.
        tokens: The usage of its models.
        cost: What that costs.
    """

    about: list[str] = []
    takes: Seconds | Literal["forever"] = 0.0
    plan: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None
    more: bool = False
    fail: str | None = None
    kind: Literal["cannot", "person", "ceiling"] = "cannot"
    tokens: Count | None = None
    cost: Seconds | None = None

    @model_validator(mode="after")
    def _one_answer(self) -> PlannerReply:
        given = [name for name in ("plan", "patch", "fail") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"a reply has {' or '.join(given)}, not both")
        if self.kind != "cannot" and self.fail is None:
            raise ValueError("kind is for a reply with fail")
        return self


class Effective(_Part):
    """What ``reconcile`` says about a call that took effect.

    Attributes:
        applied: What the call returned.
    """

    applied: Any


Reconciliations: TypeAlias = dict[
    Name,
    Annotated[
        list[Effective | Literal[False]],
        Field(min_length=1),
        BeforeValidator(_listed, json_schema_input_type=Any),
    ],
]


class StepExpectation(_Part):
    """The expectations for one step.

    Attributes:
        state: The state in which it ends.
        attempts: How often its tool is called.
        output: Its output.
    """

    state: Annotated[State, Field(strict=False)] | None = None
    attempts: Count | None = None
    output: Any = None


class CallExpectation(_Part):
    """Which calls are expected, by the names of tools; a partial order, so that any parallel run can fit.

    Attributes:
        must: They are called at least once.
        never: They are not called.
        before: Each list is an order: the first call of a tool comes after the last end of the one before it.
        args: The arguments of every call of a tool, or of one call each for a list; a part of an object is enough.
        once: They are called exactly once.
    """

    must: list[Name] = []
    never: list[Name] = []
    before: list[Annotated[list[Name], Field(min_length=2)]] = []
    args: dict[Name, dict[str, Any] | list[dict[str, Any]]] = {}
    once: list[Name] = []


class PatchExpectation(_Part):
    """How often the plan is changed by its planner: spliced patches, without the first plan."""

    at_least: Count = 0
    at_most: Count | None = None


class CeilingExpectation(_Part):
    """The expected ceilings of a run: calls of tools, tokens, cost, seconds on its clock, and calls of the planner."""

    calls: Count | None = None
    tokens: Count | None = None
    cost: Seconds | None = None
    seconds: Seconds | None = None
    planner_calls: Count | None = None


class Expectation(_Part):
    """The expectations for a run.

    Attributes:
        status: How it ends; ``refused`` if its plan must not pass the check.
        plan: The plan that its planner writes, whole, before any change of it; the order of the steps does not count.
        output: Its answer.
        contains: A part of its answer: objects may have more fields, lists must be equal.
        output_schema: A JSON Schema that its answer fits.
        critic: ``module:name`` of a critic that its answer must pass.
        steps: The expectations of steps, by id.
        calls: Which calls are expected.
        patches: How often the plan is changed.
        escalates: Whether a person is needed: asked a question, or handed the run.
        ceilings: Its budget.
    """

    status: Ending | None = "succeeded"
    plan: dict[str, Any] | None = None
    output: Any = None
    contains: Any = None
    output_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    critic: str | None = None
    steps: dict[str, StepExpectation] = {}
    calls: CallExpectation = CallExpectation()
    patches: PatchExpectation | None = None
    escalates: bool | None = None
    ceilings: CeilingExpectation = CeilingExpectation()


class _CaseDefaults(_Part):
    """The fields that a case has itself, or takes from its file.

    Attributes:
        policy: The limits: a TOML file, or the fields themselves.
        planner: ``module:name`` of a planner, or of a function or class that makes one; or the name of one of dagrun's;
            or its replies, a list.
        model: The language model of the planner. Such cases run in real time.
        routes: A route that `dagrun learn` has written, or a folder of routes, from which the plan is taken: a file.
        critics: ``module:name`` of critics that review the outputs of steps.
        world: The stand-ins of tools: an act, a list of acts, or a value that every call returns.
        compose: What composes the answer of the run from its results, as its last step: an act, a list of acts, or the
            answer that it writes. Without it, nothing does.
        real: Tools that are called for real.
        reconcile: What ``reconcile`` of a tool says about calls in doubt: ``{applied: value}``, or false for one
            that took no effect; or a list of these, one a question, of which the last goes on.
        people: What people answer, by step, tool, kind of question, or ``*``: a reply, or a list, one a question; the
            last goes on. Without it, nobody is there.
        secrets: The names of secrets that the plan may name; their values are made up.
    """

    policy: str | dict[str, Any] | None = None
    planner: str | list[PlannerReply] | None = None
    model: str | None = None
    routes: str | None = None
    critics: list[str] = []
    world: dict[Name, Acts] = {}
    compose: Acts = []
    real: list[Name] = []
    reconcile: Reconciliations = {}
    people: Replies | None = None
    secrets: list[Name] = []


class Case(_CaseDefaults):
    """A golden task.

    Attributes:
        id: Its name, unique in its file.
        goal: The goal, in words; a planner writes the plan.
        plan: The plan: a file, or the plan itself.
        inputs: The inputs of the run.
        runs: How often it runs: with the seeds *seed*, *seed* + 1, and so on.
        seed: The first seed, of the jitter of delays between attempts.
        clock: ``virtual``: time costs nothing, and is exact; ``real``. What fits is found out, unless it is said here.
        faults: ``matrix``: each tool of the case is also broken in each way, once and always, and what no fault may
            change must hold; see `dagrun.evaluate.cases.fault_matrix`.
        expect: What is expected.
    """

    id: Name
    goal: Text | None = None
    plan: str | dict[str, Any] | None = None
    inputs: dict[str, Any] = {}
    runs: Annotated[int, Field(ge=1, le=1_000)] = 1
    seed: int = 0
    clock: Literal["virtual", "real"] | None = None
    faults: Literal["matrix"] | None = None
    expect: Expectation = Expectation()

    @model_validator(mode="after")
    def _one_begin(self) -> Case:
        if (self.goal is None) == (self.plan is None):
            raise ValueError("a case has a goal or a plan: one of both")
        if self.plan is not None and self.expect.plan is not None:
            raise ValueError("expect.plan is for a case with a goal: its planner writes the plan")
        return self


def _bound(value: Any) -> Any:
    if isinstance(value, bool) or not (isinstance(value, int | float) or _is_change(value)):
        raise ValueError("a bound is a number, or a change against the baseline, such as +10%")
    return value


def _is_change(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[+-]\d+(\.\d+)?%", value, re.ASCII) is not None


Bound: TypeAlias = Annotated[float | str, BeforeValidator(_bound)]


class CaseFile(_CaseDefaults):
    """A file of golden tasks.

    Attributes:
        json_schema: The address of the schema of the file, for editors.
        tools: The tools: modules, files (``my_tools.py``, beside this one), or ``module:name``; left out, those of the
            command line.
        gate: What the cases of the file must reach together: a number, or a change against the baseline (``+10%``).
        cases: The cases.
    """

    json_schema: str | None = Field(default=None, alias="$schema")
    tools: str | list[str] | None = None
    gate: dict[str, Bound] = {}
    cases: Annotated[list[Case], Field(min_length=1)]

    @model_validator(mode="after")
    def _unique_ids(self) -> CaseFile:
        ids = [case.id for case in self.cases]
        if doubled := next((id_ for number, id_ in enumerate(ids) if id_ in ids[:number]), None):
            raise ValueError(f"two cases have the id {doubled}")
        return self


def case_schema() -> Mapping[str, Any]:
    """Return the JSON Schema of files of golden tasks."""
    schema = CaseFile.model_json_schema(by_alias=True)
    return {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dagrun golden tasks"}


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
        tree, problems = read_yaml(data.decode("utf-8-sig"), _MAX_DEPTH)
    except OSError as error:
        raise CasesRefused([f"cannot read {path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise CasesRefused([f"{path} is not text: byte {error.start} is not UTF-8"]) from None
    except PlanRefused as error:
        raise CasesRefused([f"{path}: {problem.sentence}" for problem in error.problems]) from None
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
