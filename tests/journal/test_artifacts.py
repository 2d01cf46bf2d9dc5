"""Artifacts: files by content hash, in the folder of the run and nowhere else."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from pydantic import ValidationError

import dagrun
from dagrun.kernel.runtime.artifacts import ArtifactFolder


@dagrun.tool(effect="pure")
async def write(text: str, context: dagrun.ToolContext) -> dagrun.Artifact:
    """Keep a text."""
    return context.artifacts.save(text, media_type="text/plain", name="note.txt")


@dagrun.tool(effect="pure")
async def read(note: dagrun.Artifact, context: dagrun.ToolContext) -> str:
    """Read a kept text."""
    return context.artifacts.path(note).read_text()


PLAN = dagrun.Plan(
    steps=[
        dagrun.Step(id="write", tool="write", args={"text": "x" * 3_000_000}),
        dagrun.Step(id="read", tool="read", args={"note": "${write}"}),
        dagrun.Step(id="size", tool="write", args={"text": "size ${write.size}"}),
    ]
)


def test_an_artifact_carries_what_is_too_large_for_json(tmp_path: Path) -> None:
    """Three megabytes pass from one step to the next by their hash; as a value they would be refused."""
    result = dagrun.run_sync(PLAN, tools=[write, read], artifacts=tmp_path)
    assert result.steps["write"].output["size"] == 3_000_000
    assert result.steps["read"].state == "failed"  # as JSON, it is over the ceiling again
    assert result.steps["read"].failure is not None
    assert "Artifact" in result.steps["read"].failure.message
    assert result.steps["size"].state == "succeeded"
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o400}


def test_a_temporary_folder_lives_as_long_as_somebody_can_ask_for_it() -> None:
    """Artifacts of a run are of use after it; a folder that nobody knows any more is not."""
    store = ArtifactFolder()
    artifact = store.save(b"data")
    file = store.path(artifact)
    assert file.read_bytes() == b"data"
    del store
    gc.collect()
    assert not file.exists()


def test_the_same_data_is_kept_once(tmp_path: Path) -> None:
    """The name is the hash of what it contains; files and texts are the same data as bytes."""
    store = ArtifactFolder(tmp_path / "kept")
    source = tmp_path / "source"
    source.write_bytes(b"data")
    assert store.save(b"data").sha256 == store.save("data").sha256 == store.save(source).sha256
    assert len(list((tmp_path / "kept").iterdir())) == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 63, "A" * 64, "a" * 64 + "\n", ""])
def test_an_artifact_can_name_nothing_but_a_hash(name: str) -> None:
    """A tool may return any JSON that looks like one."""
    with pytest.raises(ValidationError):
        dagrun.Artifact(sha256=name)


def test_a_hash_that_the_run_does_not_have_is_not_found(tmp_path: Path) -> None:
    """Forged or from another run: there is nothing behind it."""
    with pytest.raises(FileNotFoundError, match="no artifact"):
        ArtifactFolder(tmp_path).path(dagrun.Artifact(sha256="0" * 64))


def test_a_write_that_fails_leaves_no_draft_behind(tmp_path: Path) -> None:
    """Half a file under a hash would be a lie."""
    store = ArtifactFolder(tmp_path)
    with pytest.raises(FileNotFoundError):
        store.save(Path("/no/such/file"))
    assert list(tmp_path.iterdir()) == []
