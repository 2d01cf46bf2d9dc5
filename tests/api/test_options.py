"""The options of a run are listed in one place, and every function that takes them shows and checks them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

import pytest

import dagrun
from dagrun.api import RunOptions
from dagrun.api.options import ResumeOptions, RetryOptions, SoloOptions, with_defaults
from dagrun.errors import ContractError
from dagrun.kernel.runtime.run_options import DraftOptions

pytestmark = pytest.mark.anyio

_TAKEN: Final = [
    (dagrun.start, SoloOptions),
    (dagrun.run, SoloOptions),
    (dagrun.run_sync, SoloOptions),
    (dagrun.draft, DraftOptions),
    (dagrun.resume, ResumeOptions),
    (dagrun.retry, RetryOptions),
    (dagrun.Engine.start, RunOptions),
    (dagrun.Engine.run, RunOptions),
    (dagrun.Engine.draft, RunOptions),
    (dagrun.Engine.resume, ResumeOptions),
    (dagrun.Engine.retry, RetryOptions),
]


@pytest.mark.parametrize(("function", "kind"), _TAKEN)
def test_a_signature_names_every_option_with_its_default(function: Callable[..., Any], kind: type) -> None:
    """`help` and editors show the signature; ``**options`` would say nothing."""
    parameters = inspect.signature(function).parameters
    options = {name: one for name, one in parameters.items() if name in kind.__annotations__}

    assert options.keys() == kind.__annotations__.keys()
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for name, default in with_defaults({}).items():
        if name in options and options[name].default is not inspect.Parameter.empty:
            assert options[name].default == default
    required = {name for name, one in options.items() if one.default is inspect.Parameter.empty}
    assert required == kind.__required_keys__  # type: ignore[attr-defined]


def test_every_option_of_a_run_is_explained_once() -> None:
    explained = re.findall(r"^ {4}(\w+): ", inspect.getdoc(RunOptions) or "", re.MULTILINE)

    assert sorted(explained) == sorted(RunOptions.__annotations__)


@pytest.mark.parametrize("method", ["start", "run", "draft"])
async def test_an_engine_refuses_a_misspelt_option(method: str) -> None:
    """One that is ignored would be a surprise in the middle of the run."""
    async with dagrun.Engine() as engine:
        with pytest.raises(ContractError, match=r"a run has no option toolz; did you mean tools\?"):
            await _enter(getattr(engine, method)(toolz=[]))


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: dagrun.start(None, gaol="x"), "goal"),  # type: ignore[call-arg]
        (lambda: dagrun.run(None, duration=1), "durations"),  # type: ignore[call-arg]
        (lambda: dagrun.draft("x", planer=None), "planner"),  # type: ignore[call-arg]
    ],
)
async def test_a_function_refuses_a_misspelt_option(call: Callable[[], Any], meant: str) -> None:
    with pytest.raises(ContractError, match=rf"a run has no option .*; did you mean {meant}\?"):
        await _enter(call())


def test_a_misspelt_option_is_refused_in_code_that_is_not_async() -> None:
    with pytest.raises(TypeError, match=r"did you mean artifacts\?"):
        dagrun.run_sync(None, artefacts=None)  # type: ignore[call-arg]


def test_what_is_like_no_option_gets_no_lead() -> None:
    with pytest.raises(ContractError, match=r"a run has no option observers$"):
        dagrun.run_sync(None, observers=[])  # type: ignore[call-arg]
    with pytest.raises(ContractError, match=r"^on_event takes one function, not a list$"):
        dagrun.run_sync(None, on_event=[print])  # type: ignore[arg-type]


async def _enter(made: Any) -> None:
    if inspect.isawaitable(made):
        await made
    else:
        async with made:
            raise AssertionError("it has begun")
