"""Frames: data frames, tables and arrays survive a crash in files, and get to worker processes by them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dagrun
from dagrun import MemoryJournal, Plan, Policy, SQLiteJournal, Status, Step
from dagrun.features.frame_files import CODECS, NotKept, codec_of_frame
from dagrun.kernel.model.contracts.objects import FRAME_CLASSES
from frame_tools import TOOLS, calls, grow, load, odd
from objects import texts_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Polars opens descriptors for its threads when it first reads a file, and keeps them."""
    path = tmp_path_factory.mktemp("warm") / "file"
    CODECS["polars.DataFrame"].write(pl.DataFrame({"n": [1]}), path)
    CODECS["polars.DataFrame"].read(path)


NAIVE = pd.DataFrame({"n": [1, 2], "x": [1.5, None], "t": ["a", "b"], "b": [True, False]})
TIMES = pd.DataFrame({"at": pd.to_datetime(["2024-01-01", "2024-02-01"], utc=True)}, index=pd.Index([7, 9], name="id"))
KINDS = pd.DataFrame({"kind": pd.Categorical(["a", "b"]), "whole": pd.array([1, None], dtype="Int64")})


def test_each_class_of_frames_that_contracts_know_can_be_in_a_file() -> None:
    """Contracts know the classes by name, and only the feature knows how their files are written."""
    assert CODECS.keys() == FRAME_CLASSES


@pytest.mark.parametrize(
    "frame",
    [
        NAIVE,
        TIMES,
        KINDS,
        pd.DataFrame(),
        pl.DataFrame({"n": [1, 2], "deep": [[1], [2, 3]], "t": ["a", None]}),
        pa.table({"n": [1, 2], "deep": [{"a": 1}, {"a": 2}]}),
        np.arange(12.0).reshape(3, 4),
        np.array(3),
        np.array(["2024-01-01"], dtype="datetime64[ns]"),
        np.array([(1, "x")], dtype=[("n", "i4"), ("t", "U3")]),
    ],
    ids=lambda frame: f"{type(frame).__module__}-{getattr(frame, 'shape', '')}",
)
def test_a_frame_comes_back_as_it_was(frame: Any, tmp_path: Path) -> None:
    """Values, types of columns, and the index."""
    codec = codec_of_frame(frame)
    assert codec is not None
    codec.write(frame, tmp_path / "file")
    back = codec.read(tmp_path / "file")

    assert type(back) is type(frame)
    match frame:
        case pd.DataFrame():
            pd.testing.assert_frame_equal(frame, back)
        case pl.DataFrame() | pa.Table():
            assert frame.equals(back)
        case _:
            assert frame.dtype == back.dtype
            assert np.array_equal(frame, back)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [1, "x", object()]}),
        pd.DataFrame({"a": [[1], [2]]}),
        pd.DataFrame({"a": [1, None]}, dtype=object),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        np.array([{}]),
        pl.DataFrame({"a": [object()]}, schema={"a": pl.Object}),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_frame_that_would_come_back_otherwise_is_not_kept(frame: Any, tmp_path: Path) -> None:
    """Nothing is pickled, and no column changes its type behind the back of its author."""
    codec = codec_of_frame(frame)
    assert codec is not None
    with pytest.raises(NotKept):
        codec.write(frame, tmp_path / "file")


def test_a_subclass_is_no_frame() -> None:
    """It would come back as its base."""

    class Special(pd.DataFrame):  # type: ignore[misc]  # pandas brings no types
        pass

    assert codec_of_frame(Special()) is None
    assert codec_of_frame("text") is None
    assert all("." in name for name in CODECS)


def plan() -> Plan:
    """Frames of four libraries into one step that waits for a person."""
    steps = [
        Step(id="frame", tool="load", args={"rows": 3}),
        Step(id="table", tool="table", args={"rows": 3}),
        Step(id="parts", tool="parts", args={"count": 2}),
        Step(id="array", tool="array", args={"count": 4}),
        Step(id="each", tool="height", args={"part": "${item}"}, for_each="${parts}"),
        Step(
            id="send",
            tool="send",
            args={"frame": "${frame}", "table": "${table}", "parts": "${parts}", "array": "${array}"},
        ),
    ]
    return Plan(steps=steps, output={"sent": "${send}", "frame": "${frame}", "each": "${each}"})


APPROVE = [dagrun.ApprovalRule(tool="send"), dagrun.ApprovalRule(tool="height")]
MADE = ["array", "load", "parts", "table"]


async def yes(question: dagrun.Question) -> dagrun.Answer:
    """Agree to everything."""
    return dagrun.Answer("approve")


async def suspended(journal: Any, **policy: Any) -> None:
    """Run until a person is needed."""
    calls.clear()
    limits = Policy(approve=APPROVE, **policy)
    result = await dagrun.run(plan(), tools=TOOLS, journal=journal, run_id="one", policy=limits)
    assert result.status is Status.WAITING, result.reason
    assert sorted(calls) == MADE
    calls.clear()


async def resumed(journal: Any) -> Any:
    """Resume, agree, and check the answer."""
    async with dagrun.resume("one", journal=journal, tools=TOOLS, approver=yes) as run:
        result = await run.result()
    assert result.status is Status.SUCCEEDED, result.reason
    assert result.output["sent"] == "DataFrame 3 Table 3 [DataFrame, DataFrame] float64"
    assert result.output["each"] == [2, 2]
    assert result.output["frame"]["n"].tolist() == [0, 1, 2]
    return result


@pytest.mark.real_time
async def test_with_a_journal_a_resumed_run_reads_the_files(tmp_path: Path) -> None:
    """No tool is called again, and records name the files by their hashes."""
    journal = SQLiteJournal(tmp_path)
    await suspended(journal)
    await resumed(journal)

    assert calls == []
    assert "application/vnd.apache.arrow.file" in b"".join([line.text for line in await journal.read("one")]).decode()


@pytest.mark.real_time
async def test_a_frame_whose_file_is_gone_is_made_again(tmp_path: Path) -> None:
    """Somebody has cleared the folder; the tools are pure."""
    journal = SQLiteJournal(tmp_path)
    await suspended(journal)
    folder = journal.artifacts("one")
    assert folder is not None
    for file in folder.iterdir():
        file.unlink()
    await resumed(journal)

    assert sorted(calls) == MADE


@pytest.mark.real_time
@pytest.mark.parametrize(
    "policy", [{"redact": ["email"], "redact_records": True}, {"unrecorded": ["load", "table", "array"]}]
)
async def test_what_may_not_be_recorded_is_in_no_file(tmp_path: Path, policy: dict[str, Any]) -> None:
    """A file in the folder of the run is as good as a record."""
    journal = SQLiteJournal(tmp_path)
    await suspended(journal, **policy)
    folder = journal.artifacts("one")
    left = {file.stat().st_size for file in folder.iterdir()} if folder is not None and folder.exists() else set()
    assert len(left) <= (1 if "unrecorded" in policy else 0)  # the two parts are alike in size
    await resumed(journal)

    assert {"load", "table", "array"} <= set(calls)


async def test_a_journal_in_memory_has_no_folder_that_lasts() -> None:
    """The frames are made again, as objects are."""
    journal = MemoryJournal()
    await suspended(journal)
    await resumed(journal)

    assert sorted(calls) == MADE


async def test_without_a_journal_frames_are_objects_in_memory() -> None:
    """No file is written, and no copy is made."""
    made = load.step(rows=2)
    result = await dagrun.run(dagrun.plan(output=[made, made]))

    assert result.output[0] is result.output[1]
    assert result.shown_output[0] == {"$object": "pandas.DataFrame", "of": "load#1"}


async def test_a_secret_in_a_frame_is_in_no_file(tmp_path: Path) -> None:
    """The frame stays in memory, and the run goes on with it."""

    @dagrun.tool(effect="pure")
    async def leak() -> pd.DataFrame:
        return pd.DataFrame({"key": ["s3cr3t-key-of-the-host"]})

    journal = MemoryJournal()
    result = await dagrun.run(
        dagrun.plan(output=leak.step()),
        journal=journal,
        run_id="one",
        secrets={"key": "s3cr3t-key-of-the-host"},
        artifacts=tmp_path / "files",
    )

    assert result.output["key"].tolist() == ["s3cr3t-key-of-the-host"]
    assert list((tmp_path / "files").glob("*")) == []
    assert b'"unavailable":"an object in memory' in b"".join(await texts_of(journal))


@pytest.mark.costly
@pytest.mark.real_time
async def test_frames_get_to_worker_processes_and_back_by_files() -> None:
    """What cannot be written as it is, cannot leave."""
    journal = MemoryJournal()
    plan = dagrun.plan(output=grow.step(frame=load.step(rows=2), times=3))
    result = await dagrun.run(plan, journal=journal, run_id="one")
    assert result.status is Status.SUCCEEDED, result.reason
    assert result.output["n"].tolist() == [0, 1] * 3
    assert (await dagrun.replay("one", journal=journal)).graph.status is Status.SUCCEEDED  # without the types

    result = await dagrun.run(dagrun.plan(output=odd.step()))
    assert "cannot be written to a file as it is" in result.reason


def test_arrays_of_a_type_are_arrays() -> None:
    """`NDArray[float64]` is a generic alias of the class."""

    @dagrun.tool(effect="pure")
    async def half(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return values / 2

    assert half.output.has_frames
    assert half.arguments.objects == {"values"}


@pytest.mark.costly
def test_no_library_of_frames_is_imported_for_a_run_without_them() -> None:
    """They take a second to load."""
    code = """
import sys, asyncio, dagrun
@dagrun.tool(effect="pure")
async def one() -> dagrun.Object[set]: return {1}
asyncio.run(dagrun.run(dagrun.plan(output=one.step())))
assert not {"pandas", "polars", "pyarrow", "numpy"} & set(sys.modules), sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
