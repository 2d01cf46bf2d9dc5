"""Metrics of runs, for a meter of OpenTelemetry. No id of a run or a step is an attribute of a metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dagrun.observe import semconv as names

_SECONDS: Final = "s"


class Instruments:
    """The instruments of one meter.

    Args:
        meter: The meter; of OpenTelemetry, which this file need not know.
        workflow: The name of the workflow.
    """

    def __init__(self, meter: Any, workflow: str) -> None:
        self._workflow = {names.WORKFLOW_NAME: workflow, names.AGENT_NAME: workflow}
        self._workflow_duration = meter.create_histogram(names.WORKFLOW_DURATION, _SECONDS, "Duration of a workflow.")
        self._tool_duration = meter.create_histogram(names.TOOL_DURATION, _SECONDS, "Duration of a call of a tool.")
        self._model_duration = meter.create_histogram(names.MODEL_DURATION, _SECONDS, "Duration of a call of a model.")
        self._model_tokens = meter.create_histogram(names.MODEL_TOKENS, "{token}", "Tokens of a call of a model.")
        self._run_duration = meter.create_histogram(names.RUN_DURATION, _SECONDS, "Seconds from start to end of a run.")
        self._wait = meter.create_histogram(names.STEP_WAIT, _SECONDS, "How long a step was ready, by reason.")
        self._steps = meter.create_counter(names.STEPS, "{step}", "Steps that have ended, by state.")
        self._replans = meter.create_counter(names.REPLANS, "{replan}", "Requests to a planner, by result.")
        self._open = meter.create_up_down_counter(names.OPEN_QUESTIONS, "{question}", "Open questions to people.")

    def called(self, tool: str, seconds: float, error: str) -> None:
        """Count a call of a tool; *error* is the kind of its failure, or empty."""
        facts = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: tool, names.TOOL_TYPE: "function"}
        self._tool_duration.record(seconds, {**facts, names.ERROR_TYPE: error} if error else facts)

    def waited(self, reason: str, seconds: float) -> None:
        """Count how long a step has waited for one reason."""
        self._wait.record(seconds, {names.WAIT_REASON: reason})

    def settled(self, state: str) -> None:
        """Count a step that has ended."""
        self._steps.add(1, {names.STEP_STATE: str(state)})

    def replanned(self, result: str) -> None:
        """Count a request to the planner."""
        self._replans.add(1, {names.PLAN_RESULT: result})

    def questions(self, change: int) -> None:
        """Count the questions that are open."""
        if change:
            self._open.add(change, self._workflow)

    def asked(self, seconds: float, tokens: Mapping[str, int | None], facts: Mapping[str, str], error: str) -> None:
        """Count a call of a model."""
        self._model_duration.record(seconds, {**facts, names.ERROR_TYPE: error} if error else dict(facts))
        for kind in ("input", "output"):
            if (count := tokens.get(kind)) is not None:
                self._model_tokens.record(count, {**facts, names.TOKEN_TYPE: kind})

    def ended(self, status: str, seconds: float, *, is_error: bool) -> None:
        """Count a run that has ended, or was suspended."""
        facts = {**self._workflow, names.ERROR_TYPE: status} if is_error else self._workflow
        self._workflow_duration.record(seconds, facts)
        self._run_duration.record(seconds, {**self._workflow, names.RUN_STATUS: status})
