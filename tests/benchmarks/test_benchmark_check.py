"""`make bench-check` bites: on figures that a test hands it, with no timing at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import check
import command
from check import Kind, Watched, change_of, compare


def _recorded(folder: Path, figure: float) -> None:
    rows = [{"name": "other", "value": 99.0}, {"name": "mine", "value": figure}]
    (folder / "some.json").write_text(json.dumps({"date": "2026-11-22", "figures": rows}))


def _watched(*figures: float, kind: Kind = "ratio") -> tuple[Watched, list[float]]:
    """A figure whose measurements give *figures* in turn; and those that are left."""
    left = list(figures)
    measure: Callable[[], float] = lambda: left.pop(0)  # noqa: E731  (a name for its type)
    return Watched("mine", kind, "some", "figures", {"name": "mine"}, "value", measure), left


def _run(folder: Path, *watched: Watched) -> int:
    return check.main(["--results", str(folder)], watched)


def test_what_was_much_better_is_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """This is what it is there for: the pipeline turns red, and names the figure."""
    _recorded(tmp_path, 0.5)
    watched, left = _watched(0.8, 0.7, 0.9)

    assert _run(tmp_path, watched) == 1
    assert not left

    out = capsys.readouterr().out
    assert "mine 0.500 0.700 +40% REGRESSION, measured 3 times" in [" ".join(x.split()) for x in out.splitlines()]
    assert "FAILED" in out


def test_what_is_as_it_was_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _recorded(tmp_path, 0.5)
    watched, left = _watched(0.5, 9.0)

    assert _run(tmp_path, watched) == 0
    assert left == [9.0], "what is well is not measured again: there are 90 seconds"
    assert ["mine", "0.500", "0.500", "+0%", "ok"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_regression_is_one_only_if_it_is_seen_three_times(tmp_path: Path) -> None:
    """Something else that ran on the machine for a moment must not turn a pipeline red."""
    _recorded(tmp_path, 0.5)

    for figures in ((0.9, 0.55), (0.9, 0.7, 0.55)):
        watched, left = _watched(*figures)
        assert _run(tmp_path, watched) == 0
        assert not left
    watched, left = _watched(0.9, 0.7, 0.7, 0.5)
    assert _run(tmp_path, watched) == 1
    assert left == [0.5], "and not until chance helps"


def test_what_seems_worse_is_measured_again_after_all_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What disturbs lasts a while, so the second look is taken as late as can be."""
    _recorded(tmp_path, 0.5)

    assert _run(tmp_path, _watched(0.9, 0.5)[0], _watched(0.51)[0]) == 0

    seen = [line.split()[2] for line in capsys.readouterr().out.splitlines() if line.startswith("mine")]
    assert seen == ["0.900", "0.510", "0.500"]


def test_after_its_time_nothing_is_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stage of CI must not take for ever; what was not looked at again still fails, and nothing is left out."""
    _recorded(tmp_path, 0.5)
    bad, good = _watched(0.9, 0.5), _watched(0.5)

    assert not check.compare_all([bad[0], good[0]], tmp_path, until=0.0)

    assert (bad[1], good[1]) == ([0.5], [])
    assert "no time" in capsys.readouterr().out


def test_one_regression_among_many_figures_is_enough(tmp_path: Path) -> None:
    """And the figures behind it are still looked at: who reads the table wants all of them."""
    _recorded(tmp_path, 0.5)
    good, bad, last = _watched(0.5), _watched(0.9, 0.9, 0.9), _watched(0.5)

    assert _run(tmp_path, good[0], bad[0], last[0]) == 1
    assert not last[1]


@pytest.mark.parametrize(("now", "passes"), [(0.62, True), (0.63, False)])
def test_a_quarter_is_allowed(tmp_path: Path, now: float, passes: bool) -> None:
    _recorded(tmp_path, 0.5)

    assert compare(_watched(now)[0], tmp_path).passed is passes


def test_of_an_exponent_it_is_a_quarter_more_for_ten_times_the_steps() -> None:
    """A quarter of the exponent itself would let through what takes twice as long at ten times the size."""
    assert change_of("exponent", 1.0, 1.25) == pytest.approx(0.778, abs=1e-3)
    assert change_of("exponent", 1.0, 1.09) < check.SLACK < change_of("exponent", 1.0, 1.1)
    assert change_of("ratio", 0.5, 0.6) == change_of("bytes", 500, 600) == pytest.approx(0.2)


def test_what_was_never_recorded_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A figure that is renamed would be compared with nothing, and pass for ever."""
    assert _run(tmp_path, _watched(0.5)[0]) == 1
    assert "NOT RECORDED" in capsys.readouterr().out

    (tmp_path / "some.json").write_text(json.dumps({"figures": [{"name": "other", "value": 1.0}]}))
    assert _run(tmp_path, _watched(0.5)[0]) == 1


def test_what_has_become_much_better_is_to_be_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else it may be lost again unseen."""
    _recorded(tmp_path, 0.5)

    assert _run(tmp_path, _watched(0.3)[0]) == 0
    assert "better: record it" in capsys.readouterr().out


def test_what_is_watched_is_recorded() -> None:
    """In the files of the repository, under the names that are looked up; and nothing of it is a time."""
    found = {one.name: one for one in check.watched()}

    assert [name for name, one in found.items() if one.recorded(command.RESULTS) is None] == []
    assert len(found) == len(list(check.watched()))
    for one in found.values():
        assert (one.field, one.kind) in {
            ("ratio", "ratio"),
            ("value", "ratio"),
            ("whole", "ratio"),
            ("check", "ratio"),
            ("ours", "exponent"),
            ("bytes", "bytes"),
        }
        assert one.field != "value" or "/" in one.name, "of latencies, only those over a baseline"
