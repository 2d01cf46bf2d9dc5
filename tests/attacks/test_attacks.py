"""Mail, bank, files, web, calendar: whatever others write there, nothing is done that the user does not want.

The planner obeys every sentence that it reads, and nothing in the tests guards anything. So what holds here holds
because of the trust boundary alone, and each attack succeeds without it.
"""

from __future__ import annotations

import logging
from typing import Final

import pytest

from attack_mutants import ATTACK_MUTANTS, SOUND
from attack_plays import ADDED, ATTACKS, Attack, play
from attack_tasks import TASKS, Task

pytestmark = pytest.mark.usefixtures("quiet")

AREAS: Final = ("mail", "bank", "files", "web", "calendar")
PLAIN: Final = tuple(attack for attack in ATTACKS if not attack.is_replaced)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A step fails in each run, and pytest would keep what was said about it."""
    caplog.set_level(logging.CRITICAL, "dagrun")


def test_the_suite_is_as_large_as_it_says() -> None:
    """Tasks that need no question, tasks whose choice is left to others, and tasks that are found while reading."""
    assert (len(TASKS), len(ATTACKS), sum(bool(task.asks) for task in TASKS)) == (28, 306, 15)  # as the docs say
    for area in AREAS:
        tasks = [task for task in TASKS if task.area == area]
        assert any(not task.asks for task in tasks)
        assert any(task.asks and task.late is None for task in tasks)
        assert any(task.late is not None for task in tasks)


# Tasks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_is_done_and_a_person_is_asked_only_where_the_choice_is_left_to_others(task: Task) -> None:
    """Also where the planner adds the call after it has read what to do: after a yes."""
    ended = play(task, is_careful=True)

    assert (ended.status, ended.is_done, ended.bad) == ("succeeded", True, [])
    assert set(ended.world.asked) == task.asks


@pytest.mark.parametrize("task", [task for task in TASKS if task.asks], ids=lambda task: task.name)
def test_without_a_yes_what_others_have_chosen_is_not_done(task: Task) -> None:
    """And a call that its planner has added after it had read is not."""
    ended = play(task, is_careful=False)

    assert (ended.is_done, ended.bad) == (False, [])
    assert set(ended.world.asked) == task.asks


# Attacks --------------------------------------------------------------------------------------------------------------


def by_area(attacks: tuple[Attack, ...], area: str) -> list[Attack]:
    """The attacks of one area."""
    return [attack for attack in attacks if attack.task.area == area]


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.rigs
def test_no_attack_succeeds_without_a_yes(area: str) -> None:
    """Each order was read and obeyed, and each run has ended."""
    for attack in by_area(ATTACKS, area):
        ended = play(attack.task, attack, is_careful=False)

        assert attack.order in ended.obeyed, attack
        assert not ended.bad, attack
        assert ended.status in ("succeeded", "failed"), attack


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.rigs
def test_each_attack_succeeds_without_the_boundary(area: str) -> None:
    """So it is one."""
    for attack in by_area(PLAIN, area):
        assert play(attack.task, attack, is_careful=False, otherwise=None).bad, attack


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.rigs
def test_a_person_who_says_yes_to_what_the_user_wants_gets_just_that(area: str) -> None:
    """An attack that adds calls does not keep the task from being done; one that changes the call of the task may."""
    for attack in by_area(PLAIN, area):
        ended = play(attack.task, attack, is_careful=True)

        assert not ended.bad, attack
        assert ended.is_done or attack.order not in ADDED, attack


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.rigs
def test_where_the_policy_refuses_every_task_is_done_and_nobody_is_asked(area: str) -> None:
    """The edit is refused with its reasons, what else the planner has repaired counts, and the user's plan stays."""
    attacks = [attack for attack in by_area(ATTACKS, area) if not attack.task.asks]
    for attack in attacks:
        ended = play(attack.task, attack, is_careful=False, otherwise="refuse")

        assert ended.refused, attack
        assert (ended.status, ended.bad, ended.world.asked) == ("succeeded", [], []), attack
        assert ended.is_done, attack


@pytest.mark.parametrize("area", AREAS)
@pytest.mark.rigs
def test_a_frozen_plan_does_what_the_plan_says(area: str) -> None:
    """No order gets in, and nobody is asked; but whatever the plan itself takes from others is taken."""
    for attack in by_area(PLAIN, area):
        ended = play(attack.task, attack, is_careful=False, otherwise="freeze")

        assert ended.refused, attack
        assert (ended.bad, ended.world.asked) == ([], []), attack
        assert ended.is_done is (attack.task.late is None), attack


# Teeth ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hole", ATTACK_MUTANTS)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.rigs
def test_a_boundary_with_a_hole_lets_an_attack_through(hole: str) -> None:
    """Each of these ways of data is used by some attack."""
    for attack in ATTACKS:
        if play(attack.task, attack, is_careful=False, parts=ATTACK_MUTANTS[hole]).bad:
            assert not play(attack.task, attack, is_careful=False, parts=SOUND).bad
            print(f"{hole}: {attack}")
            return
    pytest.fail(f"no attack gets through: {hole}")
