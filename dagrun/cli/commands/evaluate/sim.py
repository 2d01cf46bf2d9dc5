"""``dagrun sim`` and ``dagrun bench``: try a plan out, on a virtual clock or for real."""

from __future__ import annotations

from typing import Any

from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import data_output


@command("sim")
def sim(*, plan: str, inputs: tuple[str, ...], **flags: Any) -> None:
    """Simulate many runs of PLAN on a virtual clock, and call no tool.

    The engine is the real one, so the whole policy applies: limits, retries, fallbacks, hedging, time limits, ceilings.
    Only the tools are replaced: the duration of a call is drawn from the recorded durations of real calls, or from
    --duration, and it fails at the rate of --fail. All variants get the same random draws, call by call, so that small
    differences between them show. Brackets are 95 % intervals.

    Examples:
      dagrun sim plan.json --tools my_tools
      dagrun sim plan.json --tools my_tools --duration 'fetch=lognorm(0.2,0.8)'
      dagrun sim plan.json --tools my_tools --fail fetch=0.02:timeout --person 60
      dagrun sim plan.json --tools my_tools --fail learned --fail fetch=0.1
      dagrun sim plan.json -t my_tools --vary max_running=2,4 --vary hedge=off,on

    Durations: 0.3 (seconds), uniform(LOW,HIGH), exp(MEAN), lognorm(MEDIAN,SIGMA).
    Failures: a part of the calls, and how they fail (by default: connection):
      timeout     the call does not come back
      connection  it breaks, and may have had its effect
      busy        the tool says that it cannot now
      refused     the tool says no for good
      bug         it raises anything else
    """
    from dagrun.cli.jobs.evaluate.sim_job import simulate_plan

    configuration = configure(flags)
    with data_output() as data:
        simulate_plan(configuration, data, plan, inputs, flags)


@command("bench")
def bench(*, plan: str, inputs: tuple[str, ...], **flags: Any) -> int:
    """Run PLAN in each mode, several times, and compare the times.

    sequential runs one step after another, waves one generation after another, parallel each step as soon as it can
    run. A first run, in which tools load their libraries, is not counted. The figures are medians. Efficiency is the
    critical path (the longest chain of steps that wait for each other) divided by the makespan, for each run.

    Examples:
      dagrun bench plan.json --tools my_tools
      dagrun bench plan.json --tools my_tools --repeat 5 --plot bench.png
    """
    from dagrun.cli.jobs.bench_job import measure

    configuration = configure(flags)
    with data_output() as data:
        return measure(configuration, data, plan, inputs, flags)
