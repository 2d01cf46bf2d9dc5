"""The prompts of an agent, and the form of its turns."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, create_model

from dagrun.kernel.model.toolbox import AnyTool, Toolbox
from dagrun.llm.language_model import Form
from dagrun.llm.quoting import DATA_RULE, block
from dagrun.llm.strict_answers import StepRestorer, restored_text
from dagrun.llm.strict_schemas import OTHER_ARGUMENTS, OTHERS, closed, strict_schema, with_null
from dagrun.model_tools.typed_answers import restore_answer, shape_schema

RULES: Final = """\
You carry out one step of a larger plan with a few tools. You see nothing of the plan but this step, and you cannot \
change it.

You work in turns. In each turn you answer with one JSON object and nothing else:
{"thought": "…", "call": …, "answer": …, "cannot": …}
- "thought": in one short sentence, what you do now and why.
- "call": the one tool to call now, with all its arguments: {"tool": "…", "args": {…}}. You are shown what it gives.
- "answer": the result of the step, when the task is done and its condition of success is met.
- "cannot": why the step cannot be done with these tools, if so. Say it rather than to make a result up.
Exactly one of "call", "answer" and "cannot" is not null.

Arguments are the values themselves: there are no references and no variables, so "${…}" means nothing. The same call \
again, right after it has failed, ends the step: change something, or say that it cannot be done. You have few turns; \
you are told how many are left."""

LAST_TURN: Final = "This is your last turn: answer, or say that it cannot be done."


class AgentCall(BaseModel):
    """A call that an agent wants to make."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tool: str
    args: dict[str, Any] = {}


class Turn(BaseModel):
    """One turn of an agent; exactly one of *call*, *answer* and *cannot* is set."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    thought: str | None = None
    call: AgentCall | None = None
    answer: Any = None
    cannot: str | None = None


class Turns:
    """The form of the turns of one agent.

    Args:
        name: The name of the agent, for messages.
        toolbox: The tools of the agent.
        shape: The type of its answer.

    Attributes:
        form: The form of each turn, for the model.
        system: The system prompt.

    Raises:
        ContractError: Values of the type cannot be made from JSON.
    """

    __slots__ = ("_answer", "_model", "_restorer", "form", "system")

    def __init__(self, name: str, toolbox: Toolbox, shape: Any) -> None:
        self._restorer, self._answer = StepRestorer(toolbox), shape_schema(name, shape)
        self._model = create_model("Turn", __base__=Turn, answer=(shape | None, None))
        none = {"type": "null"}
        properties = {
            "thought": {"type": "string"},
            "call": {"anyOf": [*(_call_schema(toolbox[tool]) for tool in sorted(toolbox.allowed)), none]},
            "answer": with_null(strict_schema(self._answer)),
            "cannot": with_null({"type": "string"}),
        }
        self.form = Form("turn", "What to do now.", closed(properties))
        tools = [_described(toolbox[tool].describe()) for tool in sorted(toolbox.allowed)]
        self.system = f"{RULES}\n\n{DATA_RULE}\n\n{block('tools', tools)}"

    def read(self, text: str) -> Turn:
        """Parse a turn.

        Raises:
            ValueError: *text* is not a turn.
        """
        turn = self._model.model_validate_json(restored_text(text, self._restored), strict=True)
        parts = [part for part in (turn.call, turn.answer, turn.cannot) if part is not None]
        if len(parts) != 1:
            raise ValueError(f'exactly one of "call", "answer" and "cannot" is given, not {len(parts)}')
        return turn

    def _restored(self, tree: Any) -> Any:
        if isinstance(tree, dict) and isinstance(tree.get("call"), dict):
            self._restorer.restore(tree["call"])
        return restore_answer(tree, self._answer)


def _call_schema(tool: AnyTool) -> dict[str, Any]:
    """Return the strict schema of a call of *tool* without references."""
    arguments = tool.arguments
    properties = {}
    for name, schema in arguments.schema.get("properties", {}).items():
        strict = strict_schema(schema, arguments.schema)
        is_optional = arguments.names.get(name, name) not in arguments.required
        properties[name] = with_null(strict) if is_optional else strict
    if arguments.is_open:
        properties[OTHERS] = OTHER_ARGUMENTS
    call = {"tool": {"type": "string", "const": tool.name}, "args": closed(properties)}
    return closed(call, tool.description.partition("\n")[0] or tool.name)


def task_text(task: str, inputs: Any, success: str) -> str:
    """Write the first message to an agent."""
    parts = [f"Task: {task}"]
    if success:
        parts.append(f"It is done when: {success}")
    if inputs is not None:
        parts.append(block("inputs", inputs))
    return "\n\n".join(parts)


def turns_left(left: int) -> str:
    """Write how many turns are left."""
    return LAST_TURN if left == 1 else f"{left} turns are left."


def _described(tool: Any) -> Any:
    return {name: tool[name] for name in ("name", "description", "arguments", "output")}
