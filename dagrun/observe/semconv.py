"""The names of spans, attributes and metrics, and the instruments of the metrics.

The ``gen_ai`` names are those that opentelemetry-util-genai 1.3b0 emits; all of these conventions are in development. A
workflow is written under the old name and the new one, because the conventions are just being renamed. A name changes
only with a line in the changelog: dashboards of other people use it. No id of a run or a step is an attribute of a
metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SCOPE: Final = "dagrun"

# Operations, each the first word of the name of a span.
INVOKE_WORKFLOW: Final = "invoke_workflow"
EXECUTE_TOOL: Final = "execute_tool"
PLAN: Final = "plan"
CHAT: Final = "chat"

# Attributes of the conventions.
OPERATION: Final = "gen_ai.operation.name"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
CALL_ID: Final = "gen_ai.tool.call.id"
CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
CALL_RESULT: Final = "gen_ai.tool.call.result"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

# Attributes of our own.
RUN_ID: Final = "dagrun.run.id"
RUN_STEPS: Final = "dagrun.run.steps"
RUN_STATUS: Final = "dagrun.run.status"
RUN_REVISIONS: Final = "dagrun.run.revisions"
USAGE_TOKENS: Final = "dagrun.run.usage.tokens"
USAGE_COST: Final = "dagrun.run.usage.cost"
STEP_ID: Final = "dagrun.step.id"
STEP_STATE: Final = "dagrun.step.state"
ATTEMPT: Final = "dagrun.step.attempt"
EFFECT: Final = "dagrun.step.effect"
RECOVERY: Final = "dagrun.step.recovery"
SLOT_WAIT: Final = "dagrun.step.wait.slot_ms"
BACKOFF_WAIT: Final = "dagrun.step.wait.backoff_ms"
PERSON_WAIT: Final = "dagrun.step.wait.person_ms"
PLANNER_WAIT: Final = "dagrun.step.wait.planner_ms"
WAIT_REASON: Final = "dagrun.step.wait.reason"
HEDGE: Final = "dagrun.hedge"
SHARED: Final = "dagrun.call.shared"
REVISION: Final = "dagrun.revision"
PLAN_KIND: Final = "dagrun.plan.kind"
PLAN_TRIGGER: Final = "dagrun.plan.trigger"
PLAN_RESULT: Final = "dagrun.plan.result"
LINK: Final = "dagrun.link"
ORIGIN: Final = "dagrun.patch.origin"
QUESTION_ID: Final = "dagrun.question.id"
QUESTION_KIND: Final = "dagrun.question.kind"
CHOICE: Final = "dagrun.answer.choice"
CEILING: Final = "dagrun.ceiling"

# Events of the span of a run.
SPLICED: Final = "dagrun.spliced"
ASKED: Final = "dagrun.question.asked"
ANSWERED: Final = "dagrun.question.answered"
NEAR: Final = "dagrun.ceiling.near"

# Metrics.
WORKFLOW_DURATION: Final = "gen_ai.invoke_workflow.duration"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
MODEL_DURATION: Final = "gen_ai.client.operation.duration"
MODEL_TOKENS: Final = "gen_ai.client.token.usage"
RUN_DURATION: Final = "dagrun.run.duration"
STEP_WAIT: Final = "dagrun.step.wait"
STEPS: Final = "dagrun.steps"
REPLANS: Final = "dagrun.replans"
OPEN_QUESTIONS: Final = "dagrun.questions.open"


# Instruments ----------------------------------------------------------------------------------------------------------


class Instruments:
    """The instruments of one meter.

    Args:
        meter: The meter; of OpenTelemetry, which this file need not know.
        workflow: The name of the workflow.
    """

    def __init__(self, meter: Any, workflow: str) -> None:
        self._workflow = {WORKFLOW_NAME: workflow, AGENT_NAME: workflow}
        self._workflow_duration = meter.create_histogram(WORKFLOW_DURATION, "s", "Duration of a workflow.")
        self._tool_duration = meter.create_histogram(TOOL_DURATION, "s", "Duration of a call of a tool.")
        self._model_duration = meter.create_histogram(MODEL_DURATION, "s", "Duration of a call of a model.")
        self._model_tokens = meter.create_histogram(MODEL_TOKENS, "{token}", "Tokens of a call of a model.")
        self._run_duration = meter.create_histogram(RUN_DURATION, "s", "Seconds from start to end of a run.")
        self._wait = meter.create_histogram(STEP_WAIT, "s", "How long a step was ready, by reason.")
        self._steps = meter.create_counter(STEPS, "{step}", "Steps that have ended, by state.")
        self._replans = meter.create_counter(REPLANS, "{replan}", "Requests to a planner, by result.")
        self._open = meter.create_up_down_counter(OPEN_QUESTIONS, "{question}", "Open questions to people.")

    def called(self, tool: str, seconds: float, error: str) -> None:
        """Count a call of a tool; *error* is the kind of its failure, or empty."""
        facts = {OPERATION: EXECUTE_TOOL, TOOL_NAME: tool, TOOL_TYPE: "function"}
        self._tool_duration.record(seconds, {**facts, ERROR_TYPE: error} if error else facts)

    def waited(self, reason: str, seconds: float) -> None:
        """Count how long a step has waited for one reason."""
        self._wait.record(seconds, {WAIT_REASON: reason})

    def settled(self, state: str) -> None:
        """Count a step that has ended."""
        self._steps.add(1, {STEP_STATE: str(state)})

    def replanned(self, result: str) -> None:
        """Count a request to the planner."""
        self._replans.add(1, {PLAN_RESULT: result})

    def questions(self, change: int) -> None:
        """Count the questions that are open."""
        if change:
            self._open.add(change, self._workflow)

    def asked(self, seconds: float, tokens: Mapping[str, int | None], facts: Mapping[str, str], error: str) -> None:
        """Count a call of a model."""
        self._model_duration.record(seconds, {**facts, ERROR_TYPE: error} if error else dict(facts))
        for kind in ("input", "output"):
            if (count := tokens.get(kind)) is not None:
                self._model_tokens.record(count, {**facts, TOKEN_TYPE: kind})

    def ended(self, status: str, seconds: float, *, is_error: bool) -> None:
        """Count a run that has ended, or was suspended."""
        facts = {**self._workflow, ERROR_TYPE: status} if is_error else self._workflow
        self._workflow_duration.record(seconds, facts)
        self._run_duration.record(seconds, {**self._workflow, RUN_STATUS: status})
