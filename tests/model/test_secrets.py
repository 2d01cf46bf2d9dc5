"""Secrets: named in plans, passed to tools, and contained in no plan, record or message."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr

import dagrun
from dagrun import Add, Patch, Plan, Secret, Secrets, Step, Toolbox, agent_tool, env, tool
from dagrun.errors import ContractError, SpliceRefused
from dagrun.kernel.checks.check_plan import find_problems
from dagrun.kernel.decide.briefs import with_secret_names
from dagrun.kernel.model.secrets import MIN_LENGTH, AnySecret
from dagrun.kernel.model.tool import make_tool
from dagrun.planners.answers.plan_schemas import toolset_schema
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio

VALUE = 'sk-canary/5+7 Zq"x'
HANDLE = {"$secret": "api"}


@tool(effect="read", timeout=5)
async def pay(to: str, key: SecretStr) -> str:
    """Pay with a key.

    Args:
        key: Of the bank.
    """
    return f"{to}, {len(key.get_secret_value())} characters"


@tool(effect="read", timeout=5)
async def maybe(key: SecretStr | None = None) -> str:
    """Take a key, or none."""
    return "none" if key is None else key.get_secret_value()


@tool(effect="read", timeout=5)
async def load(path: str = "") -> str:
    """Return a text."""
    return path


@tool(effect="read", timeout=5)
async def anything(value: Any = None) -> Any:
    """Take any value."""
    return value


TOOLS = Toolbox(pay, maybe, load, anything)
SECRETS: dict[str, AnySecret] = {"api": VALUE, "db": Secret("hunter2-hunter2", tools=("maybe",))}


def problems(*steps: Step, secrets: Any = SECRETS) -> list[str]:
    """Return the errors of a plan of these steps, each as code and place."""
    found, _ = find_problems(Plan(steps=steps), TOOLS, secrets=Secrets(secrets))
    return [f"{problem.code} {problem.path}" for problem in found if not problem.is_advice]


def call(id_: str, name: str = "pay", **args: Any) -> Step:
    """Return a step that calls a tool."""
    return Step(id=id_, tool=name, args=args)


# Registering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["five5", "true", "null", "False", "12345678", "2026-11-22", "aaaaaaaa", "password"])
def test_values_that_stand_in_every_text_are_refused(value: str) -> None:
    """They would be hidden in every text, which would make messages unreadable (S64)."""
    with pytest.raises(ContractError, match="secret api") as caught:
        Secrets({"api": value})
    assert value not in str(caught.value)


@pytest.mark.parametrize("value", [" padded-value", "padded-value\n", "half\ud800a-character", "x" * 20_000])
def test_values_that_would_get_lost_on_the_way_are_refused(value: str) -> None:
    with pytest.raises(ContractError, match="secret api"):
        Secrets({"api": value})


def test_the_shortest_value_that_is_taken() -> None:
    assert Secrets({"api": "a1b2c3"[:MIN_LENGTH]}).found_in("… a1b2c3 …") == "api"


@pytest.mark.parametrize("name", ["", "1api", "a b", "a" * 65, "a\n", "ä", "a.b", 7])
def test_names_are_plain(name: Any) -> None:
    with pytest.raises(ContractError, match="not a name of a secret"):
        Secrets({name: VALUE})


@pytest.mark.parametrize("given", [7, None, b"bytes-bytes", ["x"]])
def test_a_secret_is_a_text(given: Any) -> None:
    with pytest.raises(ContractError, match="secret api: it must be"):
        Secrets({"api": given})


def test_a_variable_is_read_when_the_secrets_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable may be deleted or changed later."""
    monkeypatch.setenv("CANARY_KEY", VALUE)
    made = Secrets({"api": env("CANARY_KEY")})
    monkeypatch.delenv("CANARY_KEY")

    assert made.reveal("pay", "api").get_secret_value() == VALUE
    with pytest.raises(ContractError, match="secret api: the environment variable CANARY_KEY is not set"):
        Secrets({"api": env("CANARY_KEY")})


def test_what_stands_in_place_of_a_variable_is_not_shown() -> None:
    """A shell may have put in the secret itself: ``env:$KEY``."""
    with pytest.raises(ContractError) as caught:
        Secrets({"api": env("sk-live-12345678")})
    assert "sk-live" not in str(caught.value)


def test_no_representation_shows_a_value() -> None:
    made = Secrets(SECRETS)

    assert repr(made) == "Secrets(api, db)"
    assert (
        VALUE not in f"{made!r} {made} {dict(made)} {Secret(VALUE)!r} {made.reveal('pay', 'api')!r} {vars(type(made))}"
    )


@pytest.mark.parametrize("take", [pickle.dumps, copy.deepcopy, copy.copy], ids=["pickle", "deepcopy", "copy"])
def test_secrets_are_not_copied_by_accident(take: Any) -> None:
    with pytest.raises(TypeError, match="not pickled"):
        take(Secrets(SECRETS))


def test_locals_of_a_traceback_show_no_value() -> None:
    """Tools that report errors also report local variables (S65)."""
    shown = ""
    try:
        Secrets({"api": VALUE, "bad": VALUE}).reveal("pay", "none")
    except LookupError as error:
        shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())

    assert "self = Secrets(api, bad)" in shown
    assert "canary/5" not in shown.replace("VALUE", "").split("self = ")[1]


# Contracts of tools --------------------------------------------------------------------------------------------------


def test_a_parameter_takes_a_handle_and_nothing_else() -> None:
    assert pay.arguments.secrets == {"key"}
    assert pay.arguments.parse(b'{"to": "a", "key": {"$secret": "api"}}')["key"] == HANDLE


class Login(BaseModel):
    """A model with a secret in it."""

    password: SecretStr


async def _list(keys: list[SecretStr]) -> None: ...
async def _model(login: Login) -> None: ...
async def _union(key: SecretStr | str) -> None: ...
async def _limited(key: Annotated[SecretStr, Field(min_length=8)]) -> None: ...


@pytest.mark.parametrize("function", [_list, _model, _union, _limited])
def test_a_secret_within_something_is_refused(function: Any) -> None:
    """A plan could only pass the secret itself there, or a value that does not fit the type."""
    with pytest.raises(ContractError, match=r"secret|SecretStr"):
        make_tool(function)


def test_a_secret_may_have_an_alias_and_a_description() -> None:
    async def use(key: Annotated[SecretStr, Field(alias="token", description="Of the bank.")]) -> None: ...

    made = make_tool(use, effect="read")

    assert made.arguments.secrets == {"key"}
    assert made.arguments.parse(b'{"token": {"$secret": "api"}}') == {"key": HANDLE}


def test_planners_see_the_names_that_each_tool_may_have() -> None:
    """The schema has no references in their place, so that a strict model cannot write anything else."""
    shown = with_secret_names(TOOLS, Secrets(SECRETS))
    schema = json.dumps(toolset_schema(shown))

    assert json.dumps({"enum": ["api"]})[1:-1] in json.dumps(shown["pay"].describe())
    assert json.dumps({"enum": ["api", "db"]})[1:-1] in json.dumps(shown["maybe"].describe())
    assert "Never a secret itself" in schema
    steps = toolset_schema(shown)["properties"]["steps"]["items"]["anyOf"]
    key = next(s for s in steps if s["properties"]["tool"]["const"] == "pay")["properties"]["args"]["properties"]["key"]
    assert set(key["properties"]) == {"$secret"}
    assert key["properties"]["$secret"]["enum"] == ["api"]


def test_without_secrets_the_tools_are_the_same() -> None:
    """A feature that is not used must cost nothing."""
    assert with_secret_names(TOOLS, Secrets()) is TOOLS
    assert with_secret_names(Toolbox(load), Secrets(SECRETS))["load"] is load


def test_an_agent_has_no_tools_that_take_secrets() -> None:
    """The agent's model would have to name the secrets, and no checker would check that."""
    with pytest.raises(ContractError, match="pay takes a secret"):
        agent_tool(ScriptedModel("x"), [pay])


# Plans ---------------------------------------------------------------------------------------------------------------


def test_a_plan_passes_handles() -> None:
    assert problems(call("a", to="x", key=HANDLE), call("b", "maybe"), call("c", "maybe", key=None)) == []


@pytest.mark.parametrize("value", ["literal", 5, None, True, [], {}, {"$secret": 5}, {"$secret": "api", "x": 1},
                                   {"$secret": ["api"]}, [{"$secret": "api"}], {"$secret": "${l}"}])  # fmt: skip
def test_anything_else_in_place_of_a_secret_is_refused(value: Any) -> None:
    """A literal would be recorded. There is one problem for it, not a second one in other words."""
    assert problems(call("l", "load"), call("a", to="x", key=value)) == ["DR209 steps[1].args.key"]


@pytest.mark.parametrize("value", ["${l}", {"$step": "l"}, "Bearer ${l}"])
def test_references_in_place_of_a_secret_are_refused(value: Any) -> None:
    """The output of a tool is recorded, so it is no secret any more."""
    assert problems(call("l", "load"), call("a", to="x", key=value)) == ["DR209 steps[1].args.key"]


def test_elements_of_a_list_are_no_secrets() -> None:
    each = Step(id="a", tool="pay", for_each=[HANDLE], args={"to": "x", "key": "${item}"})
    assert problems(each) == ["DR209 steps[0].args.key"]


def test_unknown_names_are_refused_with_a_hint() -> None:
    found, _ = find_problems(Plan(steps=(call("a", to="x", key={"$secret": "apj"}),)), TOOLS, secrets=Secrets(SECRETS))

    assert "did you mean api?" in str(found[0])
    assert found[0].code == "DR210"


def test_without_secrets_no_name_is_known() -> None:
    assert problems(call("a", to="x", key=HANDLE), secrets={}) == ["DR210 steps[0].args.key"]


@pytest.mark.parametrize("name", [VALUE, "hunter2-hunter2", "ghp_" + "a1" * 15, "a" * 65])
def test_what_may_be_the_secret_itself_is_not_shown_as_an_unknown_name(name: str) -> None:
    """A person may confuse name and secret, and refusals are logged and sent to planners."""
    found, _ = find_problems(Plan(steps=(call("a", to="x", key={"$secret": name}),)), TOOLS, secrets=Secrets(SECRETS))

    assert "DR210" in {problem.code for problem in found}
    assert name not in "\n".join(json.dumps(problem.as_dict()) + str(problem) for problem in found)


def test_a_secret_that_is_bound_to_tools_goes_to_no_other() -> None:
    """A key of one server is useless, and dangerous, for another (S29)."""
    assert problems(call("a", to="x", key={"$secret": "db"})) == ["DR211 steps[0].args.key"]
    assert problems(call("a", "maybe", key={"$secret": "db"})) == []


def test_the_fallback_may_not_get_it_either() -> None:
    @tool(effect="read", timeout=5)
    async def other(key: SecretStr | None = None) -> str:
        return ""

    steps = (Step(id="a", tool="maybe", args={"key": {"$secret": "db"}}, fallback="other"),)
    found, _ = find_problems(Plan(steps=steps), Toolbox(maybe, other), secrets=Secrets(SECRETS))
    assert "other, which is not allowed to have it" in "\n".join(map(str, found))


@pytest.mark.parametrize("value", [HANDLE, [HANDLE], {"deep": [1, HANDLE]}])
def test_a_handle_where_no_secret_is_taken_is_refused(value: Any) -> None:
    """The tool would get the handle, or even the secret, as plain data."""
    assert [text[:5] for text in problems(call("a", "anything", value=value))] == ["DR212"]


@pytest.mark.parametrize("step", [
    call("a", to=VALUE, key=HANDLE),
    call("a", "anything", value={"deep": [f"Bearer {VALUE}"]}),
    Step(id="a", tool="load", description=f"with {VALUE}"),
    Step(id="a", tool="load", on_failure="default", default=VALUE),
    call("a", "anything", value=VALUE.encode().hex()),
])  # fmt: skip
def test_a_plan_that_holds_the_value_is_refused(step: Step) -> None:
    """It would be recorded, and a resumed run would make the call with another value."""
    assert problems(step) == ["DR213 steps[0]"]


async def test_a_patch_is_checked_as_a_plan_is() -> None:
    async with dagrun.start(Plan(steps=(call("a", "load"),)), tools=TOOLS, secrets=SECRETS) as run:
        for step, code in (
            (call("b", to="x", key="literal"), "DR209"),
            (call("b", to="x", key={"$secret": "nobody"}), "DR210"),
            (call("b", to=VALUE, key=HANDLE), "DR213"),
        ):
            with pytest.raises(SpliceRefused) as caught:
                run.check(Patch(edits=(Add(step=step),)))
            assert [problem.code for problem in caught.value.problems] == [code]
        run.check(Patch(edits=(Add(step=call("b", to="x", key=HANDLE)),)))


async def test_inputs_that_hold_the_value_are_refused() -> None:
    """Inputs are recorded, too."""
    with pytest.raises(ContractError, match="inputs hold the secret api"):
        await dagrun.run(Plan(steps=(call("a", "load"),)), tools=TOOLS, secrets=SECRETS, inputs={"key": VALUE})
