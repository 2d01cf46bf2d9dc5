"""Hamilton's AsyncDriver: an async function per step, whose parameters are named after what it waits for."""

from __future__ import annotations

import inspect
import logging
import sys
from contextlib import nullcontext
from types import ModuleType
from typing import Any, Final

from hamilton import async_driver

from peers.interface import Run, Shape, Step, Values

IS_BLOCKING = False
MODULE: Final = "steps_of_a_plan"

session = nullcontext
logging.getLogger("hamilton").setLevel(logging.CRITICAL)  # a step that fails is part of the measurement


def prepare(shape: Shape, step: Step) -> Run:
    """Make the functions, and the driver of the module that has them."""
    module = ModuleType(MODULE)
    for id_, before in shape.items():
        setattr(module, id_, _function(id_, before, step))
    sys.modules[MODULE] = module  # where Hamilton looks up which module a function is of
    driver = async_driver.AsyncDriver({}, module)

    async def run() -> Values:
        values: Values = await driver.raw_execute(list(shape))
        return values

    return run


def _function(id_: str, before: tuple[str, ...], step: Step) -> Any:
    async def call(**values: Any) -> Any:
        return await step(id_, values)

    # Hamilton reads names and types from the signature alone.
    parameters = [inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY, annotation=str) for one in before]
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    call.__annotations__ = dict.fromkeys([*before, "return"], str)
    call.__name__ = call.__qualname__ = id_
    call.__module__ = MODULE
    return call
