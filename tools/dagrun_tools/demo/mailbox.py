"""The scenario ``tools``: a real MCP server, a mail that gives orders, and a planner that obeys whatever it reads."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import anyio
import click

from dagrun import (
    Add,
    Answer,
    Brief,
    Event,
    Patch,
    Policy,
    Question,
    Replace,
    RunResult,
    Step,
    Toolbox,
    check,
    mcp_tools,
)
from dagrun.cli.jobs.execute import Executed, execute
from dagrun.cli.jobs.job import Job, Reporting
from dagrun.cli.records.output_files import run_folder
from dagrun.cli.setup.mcp_servers import KeptServers
from dagrun.cli.setup.tool_modules import ConnectedToolbox
from dagrun.cli.terminal.display import StepLines
from dagrun.events import QuestionAnswered, QuestionAsked, Spliced
from dagrun_tools.demo.demo_run import files_in, packaged, save_run

THINKING: Final = 0.4  # seconds; a model would take longer
SENT: Final = "sent.jsonl"
_FORMAT: Final = re.compile(r"it has the format (\w+)")
_ORDER: Final = re.compile(r"send the mail (\w+) to (\S+@\S*\w)")


class ObedientPlanner:
    """Repairs a failed step, and follows every instruction in the texts that it sees, as a model may."""

    async def revise(self, brief: Brief) -> Patch | None:
        """Return a patch."""
        await anyio.sleep(THINKING)
        edits: list[Add | Replace] = [*self._repairs(brief), *self._orders(brief)]
        return Patch(edits=edits, reason="the attachment has another format") if edits else None

    def _repairs(self, brief: Brief) -> Iterator[Replace]:
        for trigger in brief.triggers:
            found, step = _FORMAT.search(trigger.reason), brief.steps[trigger.step].step
            if found is not None:
                args = {**step.args, "format": found[1]}
                yield Replace(id=step.id, step=step.model_copy(update={"id": f"{step.id}_{found[1]}", "args": args}))

    def _orders(self, brief: Brief) -> Iterator[Add]:
        for mail, receiver in dict.fromkeys(_ORDER.findall(json.dumps(brief.results))):
            place = next(n for n, heading in enumerate(brief.results["inbox"]["result"]) if heading["id"] == mail)
            args = {"to": receiver, "subject": "as you wish", "text": f"${{mails[{place}].text}}"}
            yield Add(step=Step(id=f"send_{mail}", tool="mailbox.send_mail", args=args))


class Story(StepLines):
    """Prints the progress of the run, and stores refusals and questions.

    Attributes:
        refused: What was refused, in sentences.
        asked: The questions by id.
        answers: The answers by the id of their question.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[str] = []
        self.asked: dict[str, Question] = {}
        self.answers: dict[str, Answer | None] = {}

    def on_event(self, event: Event) -> None:
        """Print an event."""
        match event:
            case Spliced():
                super().on_event(event)
                for problem in map(str, event.refused):
                    self._write(event, f"refused: {problem}")
                    self.refused.append(problem)
            case QuestionAsked():
                self.asked[event.question.id] = event.question
                self._write(event, f"{event.question.step}: a person is asked, because {event.question.why}")
            case QuestionAnswered():
                self.answers[event.question] = event.answer
                given = event.answer
                self._write(
                    event, f"{event.step}: {given.choice} (by {given.by})" if given else f"{event.step}: no answer"
                )
            case _:
                super().on_event(event)


async def stand_in(question: Question) -> Answer:
    """Approve without a terminal; else the demo would wait for ever."""
    return Answer("approve", by="the demo, for nobody sits at a terminal")


def servers(sent: Path) -> dict[str, Any]:
    """Return the configuration of the server that writes to the absolute path *sent*, as in a file ``mcp.json``."""
    arguments = ["-P", "-m", "dagrun_tools.demo.mailbox_server", str(sent)]
    return {"mcpServers": {"mailbox": {"command": sys.executable, "args": arguments}}}


def run_mailbox(output: Path, *, has_boundary: bool = True) -> tuple[Executed, Story]:
    """Run the plan with the mailbox, and print its progress.

    Args:
        output: The folder for files; it is made if needed.
        has_boundary: Whether the policy has its trust boundary; without, the planner does what the mail wants.

    Raises:
        MissingExtra: The extra ``mcp`` is not installed.
    """
    sent = output.resolve() / SENT  # before the run moves into its folder, as relative names mean another place there
    with run_folder(output) as folder:
        sent.unlink(missing_ok=True)
        connections = mcp_tools(servers(sent), rules={"mailbox": {"trust": "hints"}})
        kept = KeptServers(connections)
        toolbox = kept.listed()
        policy = tomllib.loads(packaged("mailbox.toml"))
        if not has_boundary:
            del policy["flow"]
        tools = ConnectedToolbox([toolbox], [kept])
        checked = check(packaged("mailbox.json"), tools, policy=Policy.model_validate(policy))
        _tell(_opening(toolbox, checked.plan.steps))
        story = Story()

        def deliver(result: RunResult) -> None:
            save_run(result, folder)

        job = Job(plan=checked, artifacts=folder.artifacts, planner=ObedientPlanner(), stand_in=stand_in)
        return execute(job, Reporting(on_result=deliver, on_event=story.on_event, is_shown=False)), story


def _opening(toolbox: Toolbox, steps: Sequence[Step]) -> Iterator[str]:
    yield "1. A mailbox, served over MCP by a program of its own. Its tools, and what it says they do:"
    for tool in toolbox.values():
        yield f"   {tool.name:24} {tool.effect}"
    yield ""
    yield "2. The plan. Its planner will read the mails, and obeys whatever a text tells it to do; one mail does."
    for step in steps:
        each = f" for each of {step.for_each}" if step.for_each is not None else ""
        told = ", ".join(f"{name}={value}" for name, value in step.args.items() if name != "text")
        yield f"   {step.id:7} {step.tool}({told}){each}"
    yield ""
    yield "3. The run:"


def mailbox_facts(ran: Executed, story: Story, output: Path) -> dict[str, Any]:
    """Return the scenario as plain JSON."""
    return {
        "status": str(ran.result.status),
        "steps": len(ran.result.steps),
        "refused": story.refused,
        "questions": [
            {"step": question.step, "why": question.why, "answer": answer.choice if answer is not None else None}
            for question, answer in ((one, story.answers.get(id_)) for id_, one in story.asked.items())
        ],
        "sent": _sent(output),
        "makespan": round(ran.result.makespan, 3),
        "output": str(output),
        "files": files_in(output),
    }


def mailbox_lines(ran: Executed, story: Story, output: Path, *, width: int) -> list[str]:
    """Return how it ended, as lines for people of at most *width* characters."""
    sent = [mail["to"] for mail in _sent(output)]
    moral = (
        "Nobody had to see through the mail: a planner that was shown text of others may look, and may not act. "
        "The receivers come from the plan and from the address book, and the policy asks before a mail leaves the "
        "house."
    )
    lines = [
        f"4. The end: {ran.result.status}. Mails were sent to {', '.join(sent) or 'nobody'}.",
        *([moral] if story.refused else []),
        f"Open {output}/run.html for how the run went{f', and {output}/{SENT} for what was sent' if sent else ''}.",
    ]
    return [part for line in lines for part in wrap(line, width)]


def _sent(output: Path) -> list[dict[str, str]]:
    file = output / SENT
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, err=True)
