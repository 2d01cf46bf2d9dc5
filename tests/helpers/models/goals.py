"""A dozen goals, each with the plan that a model writes for it and what comes out; and the tools for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dagrun import Toolbox, tool
from dagrun.planners.answers.plan_schemas import toolset_schema

SALES = {"sales": [10.0, -1.0, 20.0, 30.0], "north": [1.0, 2.0], "south": [3.0, 4.0]}


@tool(effect="read")
async def load(name: str, limit: int = 100) -> list[float]:
    """Load the figures of a table."""
    return SALES[name][:limit]


@tool(effect="pure")
async def clean(values: list[float]) -> list[float]:
    """Leave out figures below zero."""
    return [value for value in values if value >= 0]


@tool(effect="pure")
async def total(values: list[float]) -> float:
    """Add figures up."""
    return sum(values)


@tool(effect="pure")
async def mean(values: list[float]) -> float:
    """Give the mean of figures."""
    return sum(values) / len(values)


@tool(effect="read")
async def search(query: str) -> str:
    """Look something up."""
    return f"<{query}>"


@tool(effect="pure")
async def translate(text: str, to: str) -> str:
    """Translate a text."""
    return f"{to}:{text}"


@tool(effect="pure")
async def report(title: str, lines: list[str]) -> str:
    """Write a report."""
    return f"{title}: {'; '.join(lines)}"


@tool(effect="effectful")
async def notify(to: str, text: str) -> str:
    """Send a message."""
    return f"to {to}: {text}"


WORLD = Toolbox(load, clean, total, mean, search, translate, report, notify)


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and its plan.

    Attributes:
        name: For the test.
        goal: In words.
        steps: Of the plan: id, tool and arguments of each, and its other fields.
        output: What the run answers, as the plan names it.
        gives: What that is.
        lines: The same plan as lines of calls; empty where they cannot say it.
        skipped: Steps that end so.
    """

    name: str
    goal: str
    steps: tuple[dict[str, Any], ...]
    output: str
    gives: Any
    lines: str = ""
    skipped: tuple[str, ...] = ()

    def plan(self) -> dict[str, Any]:
        """The plan, as short as can be."""
        return {"steps": list(self.steps), "output": self.output}

    def strict(self) -> dict[str, Any]:
        """The plan as strict output modes have it: every field is there, and an empty one is left out."""
        steps = [_strict_step(step) for step in self.steps]
        return {"steps": steps, "output": self.output, "confidence": 0.9, "refusal": ""}


def _strict_step(step: dict[str, Any]) -> dict[str, Any]:
    shapes = toolset_schema(WORLD)["properties"]["steps"]["items"]["anyOf"]
    shape = next(shape for shape in shapes if shape["properties"]["tool"]["const"] == step["tool"])["properties"]
    args = {name: _as_text(step["args"].get(name)) for name in shape["args"]["properties"]}
    each = step.get("for_each", "")
    return {
        "tool": step["tool"],
        "id": step["id"],
        "args": args,
        "depends_on": step.get("depends_on", []),
        "description": "",
        "when": _strict_condition(step.get("when")),
        "for_each": each if isinstance(each, str) else json.dumps(each),
        "success": _strict_condition(step.get("success")),
        "on_failure": "",
    }


def _as_text(value: Any) -> Any:
    return f"${{{value['$step']}}}" if isinstance(value, dict) else value


def _strict_condition(leaf: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [] if leaf is None else [leaf | {"value": json.dumps(leaf["value"])}]


def _call(id_: str, name: str, /, _fields: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
    return {"id": id_, "tool": name, "args": args, **(_fields or {})}


GOALS: tuple[Goal, ...] = (
    Goal(
        "sales",
        "Analyse the sales and write a report.",
        (
            _call("load", "load", name="sales"),
            _call("clean", "clean", values="${load}"),
            _call("total", "total", values="${clean}"),
            _call("report", "report", title="Sales", lines=["total ${total}"]),
        ),
        "report",
        "Sales: total 60.0",
        '1. load("sales")\n2. clean($1)\n3. total($2)\n4. report("Sales", ["total $3"])\n5. join($4)\n',
    ),
    Goal(
        "regions",
        "Compare the regions.",
        (
            _call("n", "load", name="north"),
            _call("s", "load", name="south"),
            _call("tn", "total", values="${n}"),
            _call("ts", "total", values="${s}"),
            _call("r", "report", title="Regions", lines=["north ${tn}", "south ${ts}"]),
        ),
        "r",
        "Regions: north 3.0; south 7.0",
        '1. load("north")\n2. load("south")\n3. total("$1")\n4. total("$2")\n'
        '5. report("Regions", ["north $3", "south $4"])\n6. join()\n',
    ),
    Goal(
        "searches",
        "What are the three highest towers?",
        (
            *(_call(f"s{n}", "search", query=f"tower {n}") for n in (1, 2, 3)),
            _call("r", "report", title="Towers", lines=["${s1}", "${s2}", "${s3}"]),
        ),
        "r",
        "Towers: <tower 1>; <tower 2>; <tower 3>",
        '1. search("tower 1")\n2. search("tower 2")\n3. search("tower 3")\n'
        '4. report("Towers", ["$1", "$2", "$3"])\n5. join($4)\n',
    ),
    Goal(
        "languages",
        "Say hello in three languages.",
        (_call("t", "translate", {"for_each": ["de", "fr", "pt"]}, text="hello", to="${item}"),),
        "t",
        ["de:hello", "fr:hello", "pt:hello"],
    ),
    Goal(
        "each",
        "Load every region, with the total of each.",
        (
            _call("l", "load", {"for_each": ["north", "south"]}, name="${item}"),
            _call("t", "total", {"for_each": "${l}"}, values="${item}"),
        ),
        "t",
        [3.0, 7.0],
    ),
    Goal(
        "alarm",
        "Tell ops if the total of the north is above 2.",
        (
            _call("l", "load", name="north"),
            _call("t", "total", values="${l}"),
            _call("n", "notify", {"when": {"ref": "t", "op": ">", "value": 2}}, to="ops", text="it is ${t}"),
        ),
        "n",
        "to ops: it is 3.0",
    ),
    Goal(
        "no_alarm",
        "Tell ops if the total of the north is above 20; give the total.",
        (
            _call("l", "load", name="north"),
            _call("t", "total", values="${l}"),
            _call("n", "notify", {"when": {"ref": "t", "op": ">", "value": 20}}, to="ops", text="it is ${t}"),
        ),
        "t",
        3.0,
        skipped=("n",),
    ),
    Goal(
        "checked",
        "Give the first two figures of the sales, and be sure that there are two.",
        (_call("l", "load", {"success": {"ref": "l", "op": "contains", "value": 10.0}}, name="sales", limit=2),),
        "l",
        [10.0, -1.0],
        '1. load("sales", limit=2)\n2. join($1)\n',
    ),
    Goal(
        "money",
        "Ask the bank for $100 in words, and name the template ${x}.",
        (_call("n", "notify", to="bank", text="I want $100, not $1.50, as in $${x}"),),
        "n",
        "to bank: I want $100, not $1.50, as in ${x}",
        '1. notify("bank", "I want $100, not $1.50, as in ${x}")\n2. join()\n',
    ),
    Goal(
        "diamond",
        "Total and mean of the cleaned sales.",
        (
            _call("l", "load", name="sales"),
            _call("c", "clean", values={"$step": "l", "path": ""}),
            _call("t", "total", values="${c}"),
            _call("m", "mean", values="${c}"),
            _call("r", "report", title="Sales", lines=["${t} in all", "${m} on average"]),
        ),
        "r",
        "Sales: 60.0 in all; 20.0 on average",
        '1. load("sales")\n2. clean($1)\n3. total($2)\n4. mean($2)\n'
        '5. report("Sales", ["$3 in all", "$4 on average"])\n6. join($5)\n',
    ),
    Goal(
        "chain",
        "Look dagrun up, in German, then back in English, and send it to me after the sales were loaded.",
        (
            _call("s", "search", query="dagrun"),
            _call("d", "translate", text="${s}", to="de"),
            _call("e", "translate", text="${d}", to="en"),
            _call("l", "load", name="sales"),
            _call("n", "notify", {"depends_on": ["l"]}, to="me", text="${e}"),
        ),
        "n",
        "to me: en:de:<dagrun>",
    ),
    Goal(
        "part",
        "Send the second figure of the south.",
        (_call("l", "load", name="south"), _call("n", "notify", to="me", text="it is ${l[1]}")),
        "n",
        "to me: it is 4.0",
        '1. load("south")\n2. notify("me", "it is ${1[1]}")\n3. join($2)\n',
    ),
)
