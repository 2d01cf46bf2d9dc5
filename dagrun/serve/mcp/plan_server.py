"""The MCP server: which tools it offers, and how their calls become runs.

The caller's program asks its user by itself (elicitation) where it can, so that no model is in between. A question that
a yes or a no answers, or one value of a plain type, fits the forms of the protocol. If one of the questions of a run
does not, none is asked this way: the caller gets them all as data.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, get_args

import anyio

from dagrun._version import __version__
from dagrun.api.engine import Engine
from dagrun.errors import ContractError, DagrunError, PlanRefused, shorten
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.question import Asked, Choice
from dagrun.kernel.model.value import encode_plain
from dagrun.planners.signatures import signatures_of
from dagrun.serve.mcp.plan_inputs import input_schema, tools_of
from dagrun.serve.mcp.served_runs import Host, Report, ServedRuns, problems_of
from dagrun.sources.foreign_schema import read_schema
from dagrun.sources.mcp_connection import mcp_library
from dagrun.sources.schema_check import SchemaRules
from dagrun.sources.schemas import fitting_name

_PLAIN: Final = ("string", "integer", "number", "boolean")
_MOST_ARGUMENTS: Final = 2_000
_VALUE: Final = "value"
_FIRST_VERSION: Final = "2026-07-28"  # of the protocol in which a result can ask


def can_ask(context: Any) -> bool:
    """Whether the program that has sent a request can ask its user."""
    capabilities = context.session.client_capabilities
    asks = None if capabilities is None else capabilities.elicitation
    is_form = asks is not None and (asks.form is not None or asks.url is None)
    return is_form and str(context.protocol_version) >= _FIRST_VERSION


def forms_of(questions: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, dict[str, Any]]] | None:
    """Return the text and the schema of the form for each question by its id; `None` if one fits no form.

    Args:
        questions: The questions, as `shown_question` returns them.
    """
    forms: dict[str, tuple[str, dict[str, Any]]] = {}
    for question in questions:
        schema = _form(question)
        if schema is None:
            return None
        forms[question["id"]] = (_text(question), schema)
    return forms or None


def _form(question: Mapping[str, Any]) -> dict[str, Any] | None:
    if question["checklist"] or question["kind"] == Asked.EFFECT:
        return None
    if question["kind"] != Asked.INPUT:
        return {"type": "object", "properties": {}}  # to send it is a yes, to decline a no
    schema = question["schema"] or {}
    if schema.get("type") not in _PLAIN:
        return None
    kept = {key: schema[key] for key in ("type", "description", "enum", "minimum", "maximum") if key in schema}
    return {"type": "object", "properties": {_VALUE: kept}, "required": [_VALUE]}


def _text(question: Mapping[str, Any]) -> str:
    """Return the text for the user: the question, and the exact call that it is about."""
    lines = [question["text"]]
    if question["tool"]:
        lines.append(f"Step {question['step']} calls {question['tool']} ({question['effect']}).")
    if question["why"]:
        lines.append(f"Why: {question['why']}")
    if question["arguments"] is not None:
        lines.append(question["arguments"]["text"][:_MOST_ARGUMENTS])
        if question["arguments"]["characters"] > _MOST_ARGUMENTS:
            lines.append(f"… of {question['arguments']['characters']} characters")
    lines += question["diff"]
    return "\n".join(lines)


def answers_from(responses: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the answers in a client's message; a closed form answers nothing."""
    answers: list[Mapping[str, Any]] = []
    for question, response in responses.items():
        action = getattr(response, "action", "cancel")
        if action == "decline":
            answers.append({"question": question, "choice": "deny"})
        elif action == "accept":
            content = response.content or {}
            value = {_VALUE: content[_VALUE]} if _VALUE in content else {}
            answers.append({"question": shorten(question, 64), "choice": "approve", **value})
    return answers


Handler = Callable[[dict[str, Any], Report], Awaitable[dict[str, Any]]]

ANSWER: Final = "answer"
_MOST_DESCRIPTION: Final = 4_000
_RUN: Final = {"type": "string", "description": "The id of a run, as a call has returned it."}
_QUESTIONS: Final = {"type": "array", "items": {"type": "object"}}
_OUTCOME: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "description": "succeeded, failed, waiting (for people: see questions, and the tool answer), unknown (an "
            "effect is in doubt), cancelled, over_budget, escalated, running, or interrupted.",
        },
        "run": _RUN,
        "output": {"description": "The answer of the run."},
        "questions": _QUESTIONS,
        "reason": {"type": "string"},
        "failures": {"type": "array", "items": {"type": "string"}},
        "steps": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["status", "run"],
}
_PLAN: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Steps that call tools. A step starts as soon as the steps that its arguments refer to have ended.",
    "properties": {
        "steps": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "tool": {"type": "string"},
                    "args": {
                        "type": "object",
                        "description": "Values, or references: ${id}, ${id.field[0]}, ${input.x}.",
                    },
                    "depends_on": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["id", "tool"],
            },
        },
        "output": {"description": "What the run answers: a reference, or JSON with references."},
    },
    "required": ["steps"],
}
_INPUTS: Final = {"type": "object", "description": "The values of ${input.…} in the plan."}
_ANSWERS: Final[Mapping[str, Any]] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The id of the question."},
            "choice": {"enum": list(get_args(Choice)), "description": "One of the choices of the question."},
            "value": {"description": "The value that the question asks for."},
            "note": {"type": "string", "description": "The reason."},
            "ticked": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["question", "choice"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True)
class _Offered:
    """A tool of the server.

    Attributes:
        name: Its name.
        description: Its description.
        arguments: The JSON Schema of its arguments.
        rules: Holds arguments to it.
        handle: Carries out a call.
        hints: What a call does to the world, as the protocol says it.
        output: The JSON Schema of its output.
        is_run: Whether a call is as good as the run that it carries out.
    """

    name: str
    description: str
    arguments: dict[str, Any]
    rules: SchemaRules
    handle: Handler
    hints: Mapping[str, bool]
    output: Mapping[str, Any]
    is_run: bool


class PlanServer:
    """A server of the MCP library; made by `plan_server`.

    Args:
        runs: Carries out runs.
        plans: The plans that are offered, by name; empty for the five general tools.
        host: What runs have.
        offers_answers: Whether callers can pass on answers of people.

    Attributes:
        library_server: The server, to be connected to a transport.
    """

    def __init__(
        self, runs: ServedRuns, plans: Mapping[str, CheckedPlan], host: Host, *, offers_answers: bool = True
    ) -> None:
        self._runs = runs
        self._host = host
        self._offers_answers = offers_answers
        offered = list(self._plan_tools(plans)) if plans else [*self._general_tools()]
        offered += [one for one in self._run_tools() if offers_answers or one.name != ANSWER]
        self._offered: dict[str, _Offered] = {}
        for one in offered:
            if one.name in self._offered:
                raise ContractError(f"two tools of the server are called {one.name}; rename a plan")
            self._offered[one.name] = one
        self._types = mcp_library("mcp_types")
        self.library_server = mcp_library("mcp.server.lowlevel.server").Server(
            "dagrun", version=__version__, on_list_tools=self._list, on_call_tool=self._call
        )

    async def suspend(self) -> None:
        """Suspend all runs, before the server ends; a later one may resume them."""
        await self._runs.suspend()

    # The offered tools -----------------------------------------------------------------------------------------------

    def _plan_tools(self, plans: Mapping[str, CheckedPlan]) -> list[_Offered]:
        return [self._plan_tool(name, plan) for name, plan in plans.items()]

    def _plan_tool(self, name: str, plan: CheckedPlan) -> _Offered:
        effects = [tool.effect for tool in tools_of(plan)]
        steps = ", ".join(f"{id_} ({step.tool.name})" for id_, step in plan.steps.items())
        description = f"{plan.plan.goal or f'Runs the plan {name}.'} Steps: {steps}."

        async def handle(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
            return await self._runs.run(plan, arguments, report)

        return _offered(
            name,
            shorten(description, _MOST_DESCRIPTION),
            input_schema(plan),
            handle,
            is_read=all(effect.is_free for effect in effects),
            is_repeatable=all(effect.may_repeat for effect in effects),
            is_run=True,
        )

    def _general_tools(self) -> list[_Offered]:
        lines = signatures_of(tool.describe() for tool in self._host.toolbox.values())
        calls = [f"{tool['call']} ({tool['effect']}): {tool['description']}" for tool in lines.tools]
        names = "\n".join([*calls, *(f"{name} = {kind}" for name, kind in lines.types.items())])
        tools = f"Plans may call these tools:\n{names}"[:_MOST_DESCRIPTION]
        is_read = all(tool.effect.is_free for tool in self._host.toolbox.values())
        plan = {"plan": _PLAN, "inputs": _INPUTS}

        async def check(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
            checked = self._runs.check(arguments["plan"], arguments.get("inputs"))
            advice = [{"code": each.code, "path": each.path, "message": each.sentence} for each in checked.advice]
            return {"is_valid": True, "problems": [], "advice": advice, "inputs": input_schema(checked)}

        async def run(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
            inputs = arguments.get("inputs", {})
            checked = self._runs.check(arguments["plan"], inputs)
            if arguments.get("wait", True):
                return await self._runs.run(checked, inputs, report)
            return await self._runs.begin(checked, inputs)

        wait = {"type": "boolean", "description": "Whether to wait for the end; else run_status says where it stands."}
        return [
            _offered(
                "check_plan",
                f"Check a plan, and run nothing. {tools}",
                _object(plan, ["plan"]),
                check,
                is_read=True,
                output={"type": "object"},
            ),
            _offered(
                "run_plan",
                "Run a plan: every step as soon as its inputs exist. A step that needs a person waits, see answer. The "
                "tools that it may call stand at check_plan.",
                _object({**plan, "wait": wait}, ["plan"]),
                run,
                is_read=is_read,
                is_run=True,
            ),
        ]

    def _run_tools(self) -> list[_Offered]:
        async def status(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
            return await self._runs.status(arguments["run"])

        async def answer(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
            return await self._runs.answer(arguments["run"], arguments["answers"], report)

        async def cancel(arguments: dict[str, Any], report: Report) -> dict[str, Any]:
            return await self._runs.cancel(arguments["run"], arguments.get("reason") or "cancelled by the caller")

        return [
            _offered("run_status", "Say where a run stands.", _object({"run": _RUN}, ["run"]), status, is_read=True),
            _offered(
                ANSWER,
                "Pass on what a person has answered to questions of a run, and let the run continue. Ask the person "
                "first, with the text and the arguments of the question; never answer for them.",
                _object({"run": _RUN, "answers": _ANSWERS}, ["run", "answers"]),
                answer,
                is_run=True,
            ),
            _offered(
                "cancel_run",
                "Cancel a run: what runs is stopped, and nothing more starts.",
                _object({"run": _RUN, "reason": {"type": "string"}}, ["run"]),
                cancel,
                is_repeatable=True,
            ),
        ]

    # The protocol ----------------------------------------------------------------------------------------------------

    async def _list(self, context: Any, params: Any) -> Any:
        types = self._types
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=one.name,
                    description=one.description,
                    input_schema=one.arguments,
                    output_schema=dict(one.output),
                    annotations=types.ToolAnnotations(**one.hints),
                )
                for one in self._offered.values()
            ]
        )

    async def _call(self, context: Any, params: Any) -> Any:
        one = self._offered.get(params.name)
        arguments = dict(params.arguments or {})
        if one is None:
            return self._error(f"there is no tool {shorten(params.name, 60)}; they are {', '.join(self._offered)}")
        faults = one.rules.faults(arguments, len(encode_plain(arguments)))
        if faults:
            return self._error("; ".join(str(fault) for fault in faults[:5]))
        answers = answers_from(params.input_responses or {}) if params.request_state else None
        try:
            made = await self._made(one, arguments, context, params.request_state, answers)
        except PlanRefused as refused:
            return self._result({"is_valid": False, "problems": problems_of(refused)}, str(refused), is_error=True)
        except DagrunError as error:
            return self._error(str(error))
        is_dismissed = answers == []  # the user has closed the forms, and is not asked again
        may_ask = one.is_run and self._offers_answers and not is_dismissed and can_ask(context)
        if may_ask and made["status"] == "waiting":
            forms = forms_of(made["questions"])
            if forms is not None:
                return self._asking(made["run"], forms)
        is_error = one.is_run and made["status"] not in ("succeeded", "waiting", "running")
        return self._result(made, json.dumps(made, ensure_ascii=False), is_error=is_error)

    async def _made(
        self,
        one: _Offered,
        arguments: dict[str, Any],
        context: Any,
        run_id: str | None,
        answers: list[Mapping[str, Any]] | None,
    ) -> dict[str, Any]:
        """Serve a call; or continue its run, if the call is repeated with the user's answers."""
        report = context.session.report_progress
        if run_id is None or answers is None or not (one.is_run and self._offers_answers):
            return await one.handle(arguments, report)
        return await (self._runs.answer(run_id, answers, report) if answers else self._runs.status(run_id))

    def _asking(self, run_id: str, forms: Mapping[str, tuple[str, dict[str, Any]]]) -> Any:
        types = self._types
        requests = {
            question: types.ElicitRequest(params=types.ElicitRequestFormParams(message=text, requested_schema=schema))
            for question, (text, schema) in forms.items()
        }
        return types.InputRequiredResult(input_requests=requests, request_state=run_id)

    def _error(self, text: str) -> Any:
        return self._types.CallToolResult(content=[self._types.TextContent(type="text", text=text)], is_error=True)

    def _result(self, made: dict[str, Any], text: str, *, is_error: bool) -> Any:
        content = [self._types.TextContent(type="text", text=text)]
        return self._types.CallToolResult(content=content, structured_content=made, is_error=is_error)


def _object(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": required, "additionalProperties": False}


def _offered(
    name: str,
    description: str,
    arguments: dict[str, Any],
    handle: Handler,
    *,
    is_read: bool = False,
    is_repeatable: bool = False,
    output: Mapping[str, Any] = _OUTCOME,
    is_run: bool = False,
) -> _Offered:
    fitting = fitting_name(name)
    rules = SchemaRules(read_schema(arguments, f"{fitting}: its arguments"))
    hints = {
        "read_only_hint": is_read,
        "destructive_hint": not is_read,
        "idempotent_hint": is_read or is_repeatable,
    }
    return _Offered(fitting, description, arguments, rules, handle, hints, output, is_run)


@asynccontextmanager
async def plan_server(
    host: Host, plans: Mapping[str, CheckedPlan], *, offers_answers: bool = True
) -> AsyncIterator[PlanServer]:
    """Make a server that offers plans, or the five general tools.

    Args:
        host: What runs have.
        plans: The checked plans by name; empty for the general tools.
        offers_answers: Whether callers can pass on answers of people.

    Yields:
        The server. When the block ends, runs that still go on are suspended, and can be resumed.

    Raises:
        MissingExtra: The extra ``mcp`` is not installed.
        ContractError: Two tools would have one name.
    """
    async with Engine(policy=host.policy) as engine, anyio.create_task_group() as tasks:
        server = PlanServer(ServedRuns(engine, host, tasks), plans, host, offers_answers=offers_answers)
        yield server
        await server.suspend()
