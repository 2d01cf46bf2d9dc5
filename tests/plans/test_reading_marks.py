"""A plan without marks is not searched for marks; any other plan is."""

from __future__ import annotations

import pytest

from dagrun import PlanRefused, read_plan


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ('{"k": 1, "k": 1}', "DR007"),
        ("1" * 2_000, "DR008"),
        ("1e999", "DR008"),
        ("NaN", "DR008"),
        (r'"\u0000"', "DR013"),
        (r'"\ud800"', "DR013"),
    ],
)
def test_one_mark_in_a_plain_text_is_found(value: str, code: str) -> None:
    """Each mark is tested alone, in a text that has no other mark."""
    text = f'{{"steps": [{{"id": "a", "tool": "t", "args": {{"x": {value}}}}}]}}'
    with pytest.raises(PlanRefused) as caught:
        read_plan(text)
    assert [problem.code for problem in caught.value.problems] == [code]
