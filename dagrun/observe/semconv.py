"""The names of spans, attributes and metrics: all of them, and nothing else.

The ``gen_ai`` names are those that opentelemetry-util-genai 1.3b0 emits; all of these conventions are in development. A
workflow is written under the old name and the new one, because the conventions are just being renamed. A name changes
only with a line in the changelog: dashboards of other people use it.
"""

from __future__ import annotations

from typing import Final

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
