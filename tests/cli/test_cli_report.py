"""``dagrun report``, and reports at the end of a run."""

from __future__ import annotations

import json
import sqlite3

import pytest

from command_line import TOOLS, Shell, shell

__all__ = ["shell"]

ADD = {"id": "sum", "tool": "add", "args": {"a": 1}}


def ran(shell: Shell) -> None:
    assert shell("run", shell.plan(ADD), *TOOLS, "--run-id", "one").code == 0


def test_report_of_a_run_is_a_page(shell: Shell) -> None:
    """Named after the run, with its path on the standard output."""
    ran(shell)
    written = shell("report", "last")

    assert written.code == 0
    assert written.out.strip() == str(shell.folder / "one.html")
    assert (shell.folder / "one.html").read_text().startswith("<!doctype html>")


def test_summary_of_a_run_names_the_command(shell: Shell) -> None:
    """So that nobody has to know that there is one."""
    assert "report: dagrun report one" in shell("run", shell.plan(ADD), *TOOLS, "--run-id", "one").err


def test_report_is_written_at_the_end_of_a_run(shell: Shell) -> None:
    """Also without a record."""
    ended = shell("run", shell.plan(ADD), *TOOLS, "--no-journal", "--report", "r.md")

    assert (shell.folder / "r.md").read_text().startswith("## ✓ succeeded")
    assert f"report: {shell.folder / 'r.md'}" in ended.err


def test_report_is_refused_before_the_run(shell: Shell) -> None:
    """Where it cannot be written, or would overwrite something else."""
    (shell.folder / "mine.html").write_text("my own")
    ended = shell("run", shell.plan(ADD), *TOOLS, "--report", "mine.html")

    assert ended.code == 2
    assert "no report of dagrun" in ended.err
    assert (shell.folder / "mine.html").read_text() == "my own"
    assert shell("run", shell.plan(ADD), *TOOLS, "--report", "nowhere/r.html").code == 2


def test_only_our_own_files_are_overwritten(shell: Shell) -> None:
    """Unless --force says so."""
    ran(shell)
    (shell.folder / "mine.html").write_text("my own")

    assert shell("report", "one", "-o", "mine.html").code == 2
    assert shell("report", "one", "-o", "mine.html", "--force").code == 0
    assert shell("report", "one", "-o", "mine.html").code == 0


@pytest.mark.parametrize(("form", "start"), [("dot", "digraph"), ("markdown", "## "), ("svg", "<svg"), ("json", "{")])
def test_report_goes_to_the_standard_output(shell: Shell, form: str, start: str) -> None:
    """In each form that is text."""
    ran(shell)

    assert shell("report", "one", "-f", form, "-o", "-").out.startswith(start)


def test_report_of_a_run_json_and_of_its_folder(shell: Shell) -> None:
    """A record is not needed."""
    assert shell("run", shell.plan(ADD), *TOOLS, "--no-journal", "-o", "left").code == 0

    assert shell("report", "left/run.json", "-o", "a.html").code == 0
    assert shell("report", "left", "-o", "b.html").code == 0
    assert (shell.folder / "a.html").read_bytes() == (shell.folder / "b.html").read_bytes()


def test_report_of_a_run_json_of_the_first_schema_is_refused(shell: Shell) -> None:
    """In one sentence, that says what to do."""
    assert shell("run", shell.plan(ADD), *TOOLS, "--no-journal", "-o", "left").code == 0
    whole = json.loads((shell.folder / "left" / "run.json").read_text("utf-8"))
    del whole["view"]
    shell.file("old.json", json.dumps({**whole, "schema_version": 1}))
    refused = shell("report", "old.json", "-o", "a.html")

    assert refused.code == 2
    assert refused.err == (
        "Error: this run.json is of schema 1, which has no view of the run;"
        " name the recorded run instead, or run it again\n"
    )
    assert not (shell.folder / "a.html").exists()


def test_values_are_left_out_on_request(shell: Shell) -> None:
    """From a record and from a run.json."""
    plan = shell.plan({"id": "a", "tool": "add", "args": {"a": 4_000_001, "b": 3}})
    assert shell("run", plan, *TOOLS, "--run-id", "one", "-o", "left").code == 0

    for source in ("one", "left"):
        assert "4000004" in shell("report", source, "-f", "json", "-o", "-").out
        assert "400000" not in shell("report", source, "-f", "json", "-o", "-", "--values", "none").out


def test_facts_about_the_file_are_json(shell: Shell) -> None:
    """For programs."""
    ran(shell)
    facts = shell("report", "one", "--json").json

    assert facts["steps"] == 1
    assert facts["bytes"] == (shell.folder / "one.html").stat().st_size


def test_damaged_record_has_a_report_of_its_good_part(shell: Shell) -> None:
    """Which says so; and the exit code is 1."""
    plan = shell.plan(ADD, {"id": "second", "tool": "add", "args": {"a": 1, "b": 2}, "depends_on": [ADD["id"]]})
    assert shell("run", plan, *TOOLS, "--run-id", "one").code == 0
    with sqlite3.connect(shell.runs / "one" / "journal.db") as database:
        database.execute("UPDATE records SET text = text || ' ' WHERE seq = (SELECT max(seq) FROM records)")
    database.close()
    written = shell("report", "one")

    assert written.code == 1
    page = (shell.folder / "one.html").read_text()
    assert "The record is damaged at number" in page
    assert "#step-" in page


def test_summary_of_a_job_gets_markdown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is added to what is there."""
    ran(shell)
    summary = shell.folder / "summary.md"
    summary.write_text("before\n")
    assert shell("report", "one", "--github").code == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))

    assert shell("report", "one", "--github").code == 0
    assert summary.read_text().startswith("before\n## ✓")


@pytest.mark.parametrize("source", ["nobody", "broken.json", "list.json", "empty.json"])
def test_what_is_no_run_is_refused(shell: Shell, source: str) -> None:
    """With a sentence, and without a file."""
    ran(shell)
    (shell.folder / "broken.json").write_text("{")
    (shell.folder / "list.json").write_text("[]")
    (shell.folder / "empty.json").write_text("{}")
    refused = shell("report", source, "-o", "r.html")

    assert refused.code == 2
    assert not (shell.folder / "r.html").exists()


@pytest.mark.parametrize("name", ["r.pdf", "r.txt", "r.html.gz"])
def test_an_ending_that_stands_for_no_form_is_refused(shell: Shell, name: str) -> None:
    """A page that is called a PDF opens nowhere; a run says so before it begins."""
    ran(shell)
    plan = shell.plan(ADD)
    for command in (["report", "one", "-o", name], ["show", plan, "-o", name], ["run", plan, *TOOLS, "--report", name]):
        refused = shell(*command)
        assert (refused.code, "there is no form for the ending" in refused.err) == (2, True)
        assert not (shell.folder / name).exists()

    assert shell("report", "one", "-f", "html", "-o", name).code == 0
    assert shell("report", "one", "-o", "page").code == 0


def test_plan_is_drawn(shell: Shell) -> None:
    """Before it has run; a check marks its problems."""
    plan = shell.plan(ADD)
    assert shell("show", plan, "-f", "svg").out.startswith("<svg")
    assert shell("show", plan, "-f", "html", "-o", "plan.html").code == 0
    bad = shell.plan({"id": "x", "tool": "nothing_like_it", "args": {}})
    assert shell("check", bad, *TOOLS, "--html", "bad.html").code == 3
    assert "nothing_like_it" in (shell.folder / "bad.html").read_text()


def test_schema_of_views_is_printed(shell: Shell) -> None:
    """For whoever reads `-f json`."""
    ran(shell)
    schema = shell("schema", "view").json

    view = json.loads(shell("report", "one", "-f", "json", "-o", "-").out)
    assert set(schema["required"]) <= set(view)
