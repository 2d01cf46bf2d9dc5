"""What traces cost: CPU microseconds for each step, beyond a run that is not traced.

    python benchmarks/tracing.py [--steps N] [--rounds N]

The same plan of steps that end at once, each after one other, is run in turn, in one process:

- *off*: without ``tracing=``. That costs one look at `None` for each attempt; a test counts the calls, which are none.
- *no provider*: the API of OpenTelemetry alone, as in a library whose host has set up nothing.
- *sampled out*: the SDK, with a sampler that takes no trace.
- *SDK*: the SDK, whose spans go to no exporter.
- *SDK and metrics*: with a meter, too.

Each figure is the median of the rounds of the difference to *off* of the same round, in CPU time of the process. The
exit code is 1 if one is above its budget.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import anyio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider

import dagrun
import subject
from dagrun import Plan, Step

# Microseconds for a step. That of the SDK is what its spans, attributes and links cost, with our own part on top.
BUDGETS: Final = {"no provider": 15.0, "sampled out": 20.0, "SDK": 50.0, "SDK and metrics": 90.0}


def sdk(**options: Any) -> TracerProvider:
    """Return a provider of the SDK whose spans go nowhere: what an exporter costs is not counted."""
    provider = TracerProvider(**options)
    provider.add_span_processor(SpanProcessor())
    return provider


MODES: Final[dict[str, Callable[[], dagrun.Tracing | None]]] = {
    "off": lambda: None,
    "no provider": lambda: dagrun.Tracing(tracer_provider=NoOpTracerProvider()),
    "sampled out": lambda: dagrun.Tracing(tracer_provider=sdk(sampler=ALWAYS_OFF)),
    "SDK": lambda: dagrun.Tracing(tracer_provider=sdk()),
    "SDK and metrics": lambda: dagrun.Tracing(
        tracer_provider=sdk(), meter_provider=MeterProvider([InMemoryMetricReader()])
    ),
}


def seconds_of(plan: dagrun.CheckedPlan, tracing: dagrun.Tracing | None) -> float:
    """Return the CPU seconds of a run."""

    async def main() -> float:
        begun = time.process_time()
        result = await dagrun.run(plan, tracing=tracing)
        assert result.status == "succeeded"
        return time.process_time() - begun

    return anyio.run(main)


def main() -> int:
    """Measure, and compare with the budgets."""
    options = argparse.ArgumentParser(description="What traces cost for each step.")
    options.add_argument("--steps", type=int, default=2_000)
    options.add_argument("--rounds", type=int, default=9)
    chosen = options.parse_args()
    steps = [
        Step(id=f"s{n}", tool="noop", depends_on=[f"s{(n - 1) // 2}"] if n > 0 else []) for n in range(chosen.steps)
    ]
    plan = dagrun.check(Plan(steps=steps), tools=[subject.noop])
    tracings = {name: make() for name, make in MODES.items()}
    for tracing in tracings.values():
        seconds_of(plan, tracing)  # the first run of a mode also loads and caches
    rounds = [
        {name: seconds_of(plan, tracing) / chosen.steps * 1e6 for name, tracing in tracings.items()}
        for _ in range(chosen.rounds)
    ]
    print(f"{'off':16} {median(one['off'] for one in rounds):7.1f} us a step")
    is_good = True
    for name, budget in BUDGETS.items():
        more = median(one[name] - one["off"] for one in rounds)
        is_good = is_good and more <= budget
        print(f"{name:16} {more:+7.1f} us a step, budget {budget:g}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
