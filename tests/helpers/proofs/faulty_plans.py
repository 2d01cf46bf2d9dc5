"""Random plans with faults of nearly every kind that a check can find, and what a check said about one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from typing_extensions import TypedDict

import dagrun
from dagrun import Plan, Policy, Step, ToolContext
from dagrun.kernel.checks.check_plan import find_problems
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.contracts.deps import deps_from
from dagrun.kernel.model.reference import Template
from dagrun.kernel.model.secrets import secrets_from


class Row(TypedDict):
    """A row."""

    name: str
    total: float


class Part(BaseModel):
    """A model whose fields have two names."""

    model_config = ConfigDict(extra="forbid")

    size: int = Field(alias="partSize")
    tags: dict[str, list[int]] = {}


class Loose(BaseModel):
    """A model that takes more than it names."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["a", "b"] = "a"
    rows: list[Row] = []


class Thing:
    """An object in memory."""


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("it is odd")
    return number


def _touchy(text: Any) -> Any:
    return text.strip()  # in place of a reference there may be no text


@dagrun.tool(effect="pure")
async def make_row() -> Row:
    return {"name": "a", "total": 1.0}


@dagrun.tool(effect="pure")
async def make_rows(count: int = 1) -> list[Row]:
    return []


@dagrun.tool(effect="pure")
async def make_text() -> str:
    return ""


@dagrun.tool(effect="pure")
async def make_number(of: list[int] | int = 0) -> int:
    return 0


@dagrun.tool(effect="pure")
async def make_loose() -> Loose:
    return Loose()


@dagrun.tool(effect="pure")
async def make_any(inputs: dict[str, Any], sid: str = "") -> Any:
    return inputs


@dagrun.tool(effect="pure")
async def make_thing() -> dagrun.Object[Thing]:
    return Thing()


@dagrun.tool(effect="pure", timeout=3)
async def sum_up(numbers: dict[str, int], unit: str = "kg", *, most: int | None = None) -> int:
    return 0


@dagrun.tool(effect="pure")
async def pair(two: tuple[int, str], few: Annotated[list[Row], Field(max_length=2)] = []) -> str:  # noqa: B006
    return ""


@dagrun.tool(effect="pure")
async def fit(part: Part | Row, loose: Loose | None = None) -> Part:
    return Part(partSize=1)


@dagrun.tool(effect="effectful", fallback="make_any")
async def send(
    rows: list[Row],
    key: SecretStr,
    to: Annotated[str, Field(alias="recipient")] = "",
    context: ToolContext | None = None,
) -> None:
    """Send rows."""


@dagrun.tool(effect="pure")
async def strict(
    even: Annotated[int, AfterValidator(_even)], text: Annotated[Any, AfterValidator(_touchy)] = ""
) -> bool:
    return True


@dagrun.tool(effect="pure")
async def hold(
    thing: dagrun.Object[Thing], more: list[dagrun.Object[Thing]] | None = None, name: str = ""
) -> dagrun.Object[Thing]:
    return thing


@dagrun.tool(effect="pure", executor="process")
def apart(value: Any = None) -> Any:
    return value


@dagrun.tool(effect="idempotent")
async def forbidden(inputs: dict[str, Any]) -> None: ...


ALL: Final = (
    make_row, make_rows, make_text, make_number, make_loose, make_any, make_thing, sum_up, pair, fit, send,
    strict, hold, apart, forbidden,
)  # fmt: skip
_MAKERS: Final = ("make_row", "make_rows", "make_text", "make_number", "make_loose", "make_thing", "make_any")
_TOOLBOX: Final = dagrun.Toolbox(*ALL, allow=[tool.name for tool in ALL if tool.name != "forbidden"])
_RIGHT: Final = ("make_number", "make_any", "sum_up", "pair", "fit", "strict", "hold")
_NAMES: Final = {tool.name: tuple(tool.arguments.names) for tool in ALL}
_KEYS: Final = (
    "a",
    "b",
    "name",
    "total",
    "rows",
    "kind",
    "tags",
    "size",
    "partSize",
    "a key",
    "ключ",
    "$$step",
    "$$$step",
    "",
)
_PATHS: Final = (
    "",
    "",
    "",
    ".name",
    ".total",
    "[0]",
    "[0].name",
    "[1].total",
    ".rows[0]",
    ".tags.a[2]",
    ".nope",
    '["name"]',
)
_SECRET: Final = "a secret of some length"


class _Text(str):
    pass


def faulty_plan(seed: int) -> tuple[Plan, dict[str, Any]]:
    """Make a plan, and the options of its check; each by its seed alone."""
    return _Writer(random.Random(f"faults {seed}")).plan()


class _Writer:
    """Writes one plan.

    Args:
        rng: What it throws dice with.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.is_right = rng.random() < 0.5  # nearly everything is as it should be
        self.faults = 0.0 if self.is_right else rng.choice((0.0, 0.02, 0.1))  # how often something is very wrong
        self.ids: list[str] = []
        self.tools: list[str] = []
        self.used: list[dict[str, Any]] = []

    def chance(self, chance: float) -> bool:
        return self.rng.random() < chance

    def plan(self) -> tuple[Plan, dict[str, Any]]:
        rng = self.rng
        count = rng.randint(2, 14)
        self.ids = [f"s{number}" for number in range(count)]
        steps = [self.step(number) for number in range(count)]
        if self.chance(0.2):
            rng.shuffle(steps)
        output = (
            None if self.chance(0.6) else f"${{{rng.choice(self.ids)}}}" if self.is_right else {"out": self.value(2)}
        )
        plan = Plan(steps=steps, output=output if isinstance(output, str | dict | list) else None)
        policy = Policy(
            max_argument_bytes=1 << 20 if self.is_right else rng.choice((1 << 20, 200)),
            max_steps=100 if self.is_right else rng.choice((100, 100, 100, 5)),
            unrecorded=rng.choice(((), (), ("make_rows",))),
        )
        options = {
            "policy": policy,
            "inputs": rng.choice((None, {"one": 1, "rows": [{"name": "x"}]})),
            "secrets": secrets_from(rng.choice((None, {"key": _SECRET}))),
            "executors": rng.choice(((), ("far",))),
            "deps": deps_from(None),
            "strict": self.chance(0.1),
        }
        return plan, options

    def step(self, number: int) -> Step:
        rng = self.rng
        is_maker = number < 3 or self.chance(0.2)
        tool = rng.choice(_MAKERS) if is_maker else rng.choice([tool.name for tool in ALL])
        if self.is_right:
            tool = rng.choice(_MAKERS if is_maker else (*_RIGHT, *_MAKERS))
        elif self.chance(self.faults):
            tool = rng.choice(("nope", "make_rws", "forbidden"))
        self.tools.append(tool)
        fields: dict[str, Any] = {"id": self.ids[number], "tool": tool}
        if self.chance(self.faults):
            fields["id"] = rng.choice(("s0", "S1", "item", "input", "a b", "ё", "x" * 60))
        fields["args"] = self.right_args(tool) if self.is_right else self.args(tool, number)
        if self.is_right and self.chance(0.95):
            return Step(**fields)
        if self.chance(0.1):
            fields["depends_on"] = [
                rng.choice((*self.ids[: number + 1], "s0", "nope")) for _ in range(rng.randint(1, 3))
            ]
        if self.chance(0.15):
            fields |= self.options(number)
        return Step(**fields)

    def options(self, number: int) -> dict[str, Any]:
        rng, fields = self.rng, dict[str, Any]()
        reference = self.reference()
        makers: dict[str, Callable[[], Any]] = {
            "for_each": lambda: rng.choice((f"${{{self.earlier(number)}}}", ["a", 1, reference], reference, "s0")),
            "when": lambda: {
                "ref": reference[2:-1],
                "op": rng.choice(("==", "exists")),
                "value": rng.choice((True, 1)),
            },
            "success": lambda: {"ref": f"{self.ids[number]}.name", "op": "==", "value": 1},
            "fallback": lambda: rng.choice(("make_any", "sum_up", "nope")),
            "executor": lambda: rng.choice(("process", "thread", "coroutine", "far", "nope")),
            "on_failure": lambda: rng.choice(("default", "skip")),
            "default": lambda: rng.choice((None, 1, {"a": float("nan")})),
            "max_parallel": lambda: 2,
            "confidence": lambda: 0.2,
            "pool": lambda: "p",
            "deadline": lambda: 3.0,
        }
        for name, make in makers.items():
            if self.chance(0.25):
                fields[name] = make()
        return fields

    def args(self, tool: str, number: int) -> Any:
        rng = self.rng
        if self.used and self.chance(0.3):
            return rng.choice(self.used)  # the same arguments once more, often of another tool
        if self.chance(self.faults):
            return {"$step": rng.choice(self.ids), "path": ""}
        names = [name for name in _NAMES.get(tool, ("inputs",)) if self.chance(0.7)]
        if self.chance(self.faults):
            names.append(rng.choice(("context", "nope", "inputs", "to", "recipient")))
        args = {name: self.likely(name, number) if self.chance(0.75) else self.value(3) for name in names}
        self.used.append(args)
        return args

    def right_args(self, tool: str) -> dict[str, Any]:
        """Arguments that fit, unless there is a slip."""
        rng = self.rng
        numbers = list(range(rng.randint(0, 3)))
        match tool:
            case "make_any":
                keys = rng.sample((*self.ids, *_KEYS), len(numbers))
                inputs: dict[str, Any] = {key: self.made(rng.choice(_MAKERS)) for key in keys}
                return {"inputs": inputs, "sid": rng.choice(("a", f"the {self.made('make_text')}", "$${", "\\"))}
            case "make_number":
                return {"of": rng.choice(([self.made("make_number") for _ in numbers], self.made("make_number"), 4))}
            case "sum_up":
                found = {rng.choice(_KEYS): rng.choice((self.made("make_number"), 7)) for _ in numbers}
                return {"numbers": found} | (
                    {"unit": self.made("make_text")}
                    if self.chance(0.5)
                    else {"most": rng.choice((None, self.made("make_number")))}
                )
            case "pair":
                return {
                    "two": [self.made("make_number"), rng.choice(("x", self.made("make_text")))],
                    "few": rng.choice(([self.made("make_row")], self.made("make_rows"), [{"name": "", "total": 1}])),
                }
            case "fit":
                part = {
                    "partSize": rng.choice((1, self.made("make_number"))),
                    "tags": {"x": [1, self.made("make_number")]},
                }
                return {"part": rng.choice((part, self.made("make_row"))), "loose": self.made("make_loose")}
            case "strict":
                return {
                    "even": rng.choice((2, 4, self.made("make_number"))),
                    "text": rng.choice(("", self.made("make_text"))),
                }
            case "hold":
                return {"thing": self.made("make_thing"), "name": rng.choice(("a", self.made("make_text")))}
        return {}

    def made(self, tool: str) -> str:
        """A reference to a step of a tool, or to an input if there is none."""
        found = [id_ for id_, other in zip(self.ids, self.tools[:-1], strict=False) if other == tool]
        part = {"make_rows": "[0]", "make_row": ".name"}.get(tool, "") if self.chance(0.03) else ""
        whole = f"${{{self.rng.choice(found)}{part}}}" if found else "${input.one}"
        return f"{whole}!" if self.chance(0.03) else whole

    def likely(self, name: str, number: int) -> Any:
        """What somebody would write, right or nearly right."""
        rng = self.rng

        def earlier() -> str:
            return f"${{{self.earlier(number)}{rng.choice(_PATHS[:8])}}}"

        match name:
            case "inputs":
                return {rng.choice((*self.ids, *_KEYS)): earlier() for _ in range(rng.randint(0, 4))}
            case "numbers":
                return {rng.choice(_KEYS): rng.choice((earlier(), 3, earlier())) for _ in range(rng.randint(0, 3))}
            case "rows" | "few" | "of" | "more":
                inside = [rng.choice((earlier(), {"name": "x", "total": 1.5})) for _ in range(rng.randint(0, 3))]
                return rng.choice((earlier(), inside))
            case "key":
                return rng.choice(({"$secret": "key"}, {"$secret": "key"}, {"$secret": "kye"}, earlier(), None))
            case "part":
                other = {"partSize": rng.choice((1, earlier())), "tags": {rng.choice(_KEYS): [1, earlier()]}}
                return rng.choice((earlier(), other, {"size": 1, "partSize": 2}, {"name": earlier(), "total": 1}))
            case "two":
                return rng.choice(([1, "a"], [earlier(), "a"], [1, earlier()], [earlier()], ["a", earlier(), 2]))
            case "even" | "count" | "most":
                return rng.choice((2, 3, earlier(), "4", None))
            case "text" | "name" | "unit" | "sid" | "to":
                return rng.choice(
                    ("kg", f"so {earlier()} and {earlier()}", earlier(), "$${no}", f"{earlier()} $${{x", 5)
                )
            case _:
                return rng.choice((earlier(), {"kind": rng.choice(("a", "c", earlier())), "rows": [earlier()]}))

    def value(self, depth: int) -> Any:
        """Any value at all."""
        rng = self.rng
        if self.chance(self.faults):
            return rng.choice(_ODD)()
        kind = rng.randrange(8 if depth else 5)
        if kind < 2:
            return rng.choice(
                (0, 1, True, 1.0, -0.0, 2.5, None, "x", "ü", "$", 10**15, 1 << 70, 1e22, "${", "a ${s0", _SECRET)
            )
        if kind < 5:
            return self.reference()
        if kind < 7:
            return {rng.choice((*_KEYS, "$step")) if self.chance(0.1) else rng.choice(_KEYS): self.value(depth - 1)
                    for _ in range(rng.randint(0, 3))}  # fmt: skip
        return [self.value(depth - 1) for _ in range(rng.randint(0, 3))]

    def reference(self) -> Any:
        rng = self.rng
        source = (
            rng.choice((*self.ids, *self.ids, "input", "item", "nope")) if self.chance(0.3) else rng.choice(self.ids)
        )
        path = rng.choice(_PATHS)
        return f"${{{source}{path}}}"

    def earlier(self, number: int) -> str:
        return self.rng.choice(self.ids[:number] or self.ids)


def _nested(depth: int) -> Any:
    value: Any = "${s0}"
    for _ in range(depth):
        value = [value]
    return value


_ODD: Final[tuple[Callable[[], Any], ...]] = (
    lambda: float("nan"),
    lambda: 1 << 5_000,
    lambda: object(),
    lambda: (1, "${s0}"),
    lambda: _Text("${s0}"),
    lambda: {1: "${s0}"},
    lambda: {_Text("a"): 1},
    lambda: "\ud800",
    lambda: {"\ud800": "${s0}"},
    lambda: "${s0.\ud800}",
    lambda: {"$step": "s0", "path": ["name", 0]},
    lambda: {"$step": "s0", "path": "name"},
    lambda: {"$step": "s0", "path": "[", "x": 1},
    lambda: {"$step": _Text("s0")},
    lambda: {"$step": 5},
    lambda: {"a": {"$secret": "key"}},
    lambda: _nested(12),
    lambda: _nested(80),
    lambda: list(range(1_200)),
    lambda: ["${s0}"] * 1_200,
    lambda: "x" * 300,
    lambda: _SECRET,
    lambda: "${s0.a.}",
    lambda: "${}",
    lambda: "\0",
    lambda: "null ${s0} \"${s1}\" \\",
)  # fmt: skip


def verdict_of(plan: Plan, options: dict[str, Any]) -> Any:
    """Say all that a check found about a plan, or made of it, as texts and numbers."""
    problems, checked = find_problems(plan, _TOOLBOX, **options)
    found = [(problem.code, problem.path, dict(problem.facts)) for problem in problems]
    return found, None if checked is None else _outline(checked)


def _outline(checked: CheckedPlan) -> Any:
    steps = [
        (
            id_,
            _template(one.args),
            _template(one.items),
            one.depends_on,
            sorted(one.value_sources),
            one.executor,
            one.pool,
        )
        for id_, one in checked.steps.items()
    ]
    after = [list(waiting) for waiting in checked.after]
    return steps, after, checked.is_ordered, _template(checked.output), list(map(list, checked.input_paths))


def _template(template: Template | None) -> Any:
    if template is None:
        return None
    references = [[one.step, *one.path] for one in template.references]
    return (
        [one.decode() for one in template.pieces],
        references,
        list(map(list, template.places)),
        sorted(template.texts),
    )
