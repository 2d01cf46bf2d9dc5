"""Tools that make and take frames, in a module, so that worker processes can import them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import dagrun

calls: list[str] = []


@dagrun.tool(effect="read")
async def load(rows: int) -> pd.DataFrame:
    """Return a data frame."""
    calls.append("load")
    return pd.DataFrame({"n": range(rows)})


@dagrun.tool(effect="read")
def table(rows: int) -> pa.Table:
    """Return a table."""
    calls.append("table")
    return pa.table({"n": list(range(rows))})


@dagrun.tool(effect="read")
def parts(count: int) -> list[pl.DataFrame]:
    """Return some data frames."""
    calls.append("parts")
    return [pl.DataFrame({"n": [number, number + 1]}) for number in range(count)]


@dagrun.tool(effect="read")
async def array(count: int) -> np.ndarray:
    """Return an array."""
    calls.append("array")
    return np.arange(count) * 1.5


@dagrun.tool(effect="effectful")
async def send(frame: pd.DataFrame, table: pa.Table, parts: list[pl.DataFrame], array: np.ndarray) -> str:
    """Say what came."""
    names = ", ".join(type(part).__name__ for part in parts)
    return f"{type(frame).__name__} {len(frame)} {type(table).__name__} {table.num_rows} [{names}] {array.dtype}"


@dagrun.tool(effect="effectful")
async def height(part: pl.DataFrame) -> int:
    """Count the rows."""
    return part.height


@dagrun.tool(effect="pure", executor="process")
def grow(frame: pd.DataFrame, times: int) -> pd.DataFrame:
    """Repeat a data frame."""
    return pd.concat([frame] * times, ignore_index=True)


@dagrun.tool(effect="pure", executor="process")
def odd() -> pd.DataFrame:
    """Return a data frame that no file can hold."""
    return pd.DataFrame({"a": [1, "x", object()]})


TOOLS = [load, table, parts, array, send, height]
