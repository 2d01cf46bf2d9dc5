"""``--journal``: the records of runs in a database, for every command that takes the folder of records."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import TOOLS, Shell, shell
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.journal.base import without_password

__all__ = ["shell"]

SECRET = "correct-horse"
ADDRESS = f"postgresql://app:{SECRET}@127.0.0.1:1/runs"


@pytest.mark.real_time
@pytest.mark.costly
def test_a_run_lives_in_the_database(shell: Shell, postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is begun, listed, answered, resumed, and looked at, and no folder has anything of it."""
    plan = shell.plan({"id": "pay", "tool": "echo", "args": {"value": 3}, "pause": "before"}, goal="pay it")
    begun = shell("run", plan, *TOOLS, "--run-id", "paid", "--journal", postgres, "--json")
    assert begun.code == 5, begun.err
    assert "--journal" in begun.json["next_command"]
    taken = shell("run", plan, *TOOLS, "--run-id", "paid", "--journal", postgres)
    assert (taken.code, "there is a run paid" in taken.err) == (2, True)

    monkeypatch.setenv("DAGRUN_JOURNAL", postgres)
    (listed,) = [run for run in shell("runs", "--json").json["runs"] if run["run_id"] == "paid"]
    assert (listed["state"], listed["waits_for"]) == ("waiting", ["pay"])
    answered = shell("answer", "paid", "pay", "--yes", "--by", "me", "--json")
    assert answered.code == 0, answered.err
    assert not answered.json["is_held"]
    assert shell("stop", "paid", "--suspend").code == 5

    unsafe = shell("resume", "last")
    assert unsafe.code == 2, "anybody may have written the record, so no code that it names is imported"
    assert unsafe.err.count("--journal") == 1
    assert shell("resume", "last", *TOOLS).code == 0
    assert "by me" in shell("inspect", "paid").out
    assert shell("report", "paid", "-o", "paid.html").code == 0
    assert len(shell("inspect", "paid", "--hash").out.strip()) == 64
    assert "paid: good" in shell("runs", "--verify", "paid").out
    assert json.loads(shell("inspect", "paid", "--export").out.splitlines()[0])["run_id"] == "paid"
    assert shell("prune", "paid").code == 0
    assert shell("inspect", "paid").code == 2
    assert not shell.runs.exists()


def test_a_password_is_never_shown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by errors, nor by the settings, nor by the refusal of a project's file."""
    monkeypatch.setenv("DAGRUN_JOURNAL", ADDRESS)
    said = [shell("runs"), shell("runs", "--json"), shell("config", "show"), shell("runs", "--journal", ADDRESS)]
    monkeypatch.delenv("DAGRUN_JOURNAL")
    shell.file("dagrun.toml", f"journal = '{ADDRESS}'\n")
    said.append(shell("runs"))
    assert "dagrun config trust" in said[-1].err
    for ended in said:
        assert SECRET not in ended.out + ended.err
        assert "app@127.0.0.1" in ended.out + ended.err or "127.0.0.1:1/runs" in ended.err


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:p@h/db", "postgresql://u@h/db"),
        ("postgres://u:p/@:?x@h:5/db?a=b", "postgres://u@h:5/db?a=b"),
        ("postgresql://u@h/db?password=p&x=1", "postgresql://u@h/db?password=…&x=1"),
        ("postgresql://h/db?pass%77ord=p&x=1", "postgresql://h/db?pass%77ord=…&x=1"),
        ("postgresql://h/db?x=1&SSL%70assword=p", "postgresql://h/db?x=1&SSL%70assword=…"),
        ("postgresql://h/db?passfile=f&keyword=w", "postgresql://h/db?passfile=f&keyword=w"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("--journal=postgresql://u:p@h/db", "--journal=postgresql://u@h/db"),
    ],
)
def test_what_is_shown_of_an_address(address: str, shown: str) -> None:
    assert without_password(address) == shown


@given(key=st.sampled_from(["password", "sslpassword"]), data=st.data())
def test_a_password_in_a_query_is_hidden_in_every_spelling(key: str, data: st.DataObject) -> None:
    """Whatever a server would take as the password: keys may be percent-encoded, and values, too."""
    spelled = "".join(
        data.draw(
            st.sampled_from([letter, letter.upper(), *(f"%{ord(each):02{form}}" for each in near for form in "xX")])
        )
        for letter in key
        for near in [(letter, letter.upper())]
    )
    query = f"a=b&{spelled}=123&c=d"
    assert {name.lower() for name in parse_qs(query)} == {"a", key, "c"}
    assert without_password(f"postgresql://u@h/db?{query}") == f"postgresql://u@h/db?a=b&{spelled}=…&c=d"


def test_the_nearest_place_counts(shell: Shell) -> None:
    """A folder on the command line hides a database of the environment, and the other way round."""
    database = "postgresql://h/db"
    near = configure({"runs": "here"}, {"DAGRUN_JOURNAL": database}).settings
    assert (near.runs, near.journal) == ("here", None)
    near = configure({"journal": database}, {"DAGRUN_RUNS": "there"}).settings
    assert (near.runs, near.journal) == (None, database)
    near = configure({"journal": "folder"}, {"DAGRUN_JOURNAL": database}).settings
    assert (near.runs, near.journal) == ("folder", None)
    for flags, environment in (
        ({"runs": "here", "journal": database}, {}),
        ({"runs": "here", "journal": "there"}, {}),
        ({}, {"DAGRUN_RUNS": "here", "DAGRUN_JOURNAL": database}),
    ):
        with pytest.raises(BadInput, match="name one"):
            configure(flags, environment)
    with pytest.raises(BadInput, match="begins with postgresql://"):
        configure({"journal": "mysql://h/db"}, {})
