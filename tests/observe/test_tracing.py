"""Traces: the spans of a run, their nesting and links, and what they never do."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import dagrun
import traced_tools
from dagrun import Plan, Policy, RetryRule, Secrets, Step
from dagrun.observe import semconv
from dagrun.testing import FakeModelServer
from folders import ROOT
from small_tools import ONCE, scripted, toolset

SECRET: Final = "correct-horse-battery"


class Traced:
    """A tracer provider in memory, and what it has exported."""

    def __init__(self, **options: Any) -> None:
        self.memory = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))

    def tracing(self, **options: Any) -> dagrun.Tracing:
        return dagrun.Tracing(tracer_provider=self.provider, **options)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.memory.get_finished_spans()

    def named(self, name: str, **attributes: Any) -> list[ReadableSpan]:
        found = [span for span in self.spans if span.name == name]
        return [span for span in found if all((span.attributes or {}).get(k) == v for k, v in attributes.items())]

    def one(self, name: str, **attributes: Any) -> ReadableSpan:
        (span,) = self.named(name, **attributes)
        return span

    def of_step(self, step: str) -> list[ReadableSpan]:
        return [span for span in self.spans if (span.attributes or {}).get(semconv.STEP_ID) == step]

    def tree(self) -> list[str]:
        """Each span as a line: its depth, name, step and attempt; with an error, and the steps that it links to."""
        spans = sorted(self.spans, key=lambda span: span.start_time or 0)
        by_id = {span.context.span_id: span for span in spans}
        return [_line(span, by_id) for span in spans]


def _line(span: ReadableSpan, by_id: dict[int, ReadableSpan]) -> str:
    depth, above = 0, span.parent
    while above is not None and above.span_id in by_id:
        depth, above = depth + 1, by_id[above.span_id].parent
    facts = _facts(span)
    words = [f"{'  ' * depth}{span.name}"]
    if semconv.STEP_ID in facts:
        words.append(f"{facts[semconv.STEP_ID]}#{facts[semconv.ATTEMPT]}")
    if semconv.PLAN_RESULT in facts:
        words.append(f"{facts[semconv.PLAN_KIND]} {facts[semconv.PLAN_TRIGGER]} {facts[semconv.PLAN_RESULT]}")
    if semconv.ERROR_TYPE in facts:
        words.append(f"({facts[semconv.ERROR_TYPE]}, {span.status.status_code.name})")
    linked = [_facts(by_id[link.context.span_id])[semconv.STEP_ID] for link in span.links]
    return " ".join([*words, *(f"<- {step}" for step in linked)])


def _facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def _waits(span: ReadableSpan) -> dict[str, float]:
    """The waits before an attempt by reason, in milliseconds."""
    found = {key: value for key, value in _facts(span).items() if key.startswith("dagrun.step.wait.")}
    return {key.removeprefix("dagrun.step.wait.").removesuffix("_ms"): value for key, value in found.items()}


def _is_below(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return child.parent is not None and child.parent.span_id == parent.context.span_id


# T1, T5: the tree -----------------------------------------------------------------------------------------------------


class Mends:
    """Replaces the step that has failed by one that sleeps."""

    async def revise(self, brief: dagrun.Brief) -> dagrun.Patch:
        await anyio.sleep(1)
        step = Step(id="mended", tool="nap", args={"seconds": 1.0, "gives": 3})
        return dagrun.Patch(edits=[dagrun.Replace(id=brief.triggers[0].step, step=step)], reason="another way")


RICH: Final = Plan(
    steps=[
        Step(id="list", tool="nap", args={"seconds": 1.0, "gives": [1, 2]}),
        Step(id="each", tool="nap", for_each="${list}", args={"seconds": "${item}", "gives": "${item}"}),
        Step(id="moody", tool="moody", retry=RetryRule(max_attempts=2, first_delay=5.0), depends_on=["list"]),
        Step(id="bad", tool="fail", depends_on=["list"]),
        Step(id="lost", tool="fail", on_failure="skip", optional=True, depends_on=["moody"], retry=ONCE),
        Step(id="all", tool="echo", args={"value": ["${each}", "${moody}", "${bad}"]}),
    ],
    output="all",
)


@pytest.mark.anyio
async def test_the_tree_of_a_run() -> None:
    """A retry is a span of its own, without an error; a repair is one of the planner; links go to what was needed."""
    traced = Traced()
    moody = scripted("moody", ConnectionError("gone"), 7)
    result = await dagrun.run(RICH, tools=toolset(moody), planner=Mends(), tracing=traced.tracing(workflow="rich"))

    assert result.output == [[1, 2], 7, 3]
    assert sorted(traced.tree()) == sorted(
        [
            "invoke_workflow rich",
            "  execute_tool nap list#1",
            "  execute_tool nap each[0]#1 <- list",
            "  execute_tool nap each[1]#1 <- list",
            "  execute_tool moody moody#1 (connection, UNSET) <- list",
            "  execute_tool moody moody#2 <- list",
            "  execute_tool fail bad#1 (exception, UNSET) <- list",
            "  plan Mends replan failed applied",
            "  execute_tool nap mended#1",
            "  execute_tool fail lost#1 (exception, ERROR) <- moody",
            "  execute_tool echo all#1 <- each[0] <- each[1] <- moody <- mended",
        ]
    )
    run = traced.one("invoke_workflow rich")
    assert _facts(run) == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "rich",
        "gen_ai.agent.name": "rich",
        "dagrun.run.id": result.run_id,
        "dagrun.run.steps": 6,
        "dagrun.run.status": "succeeded",
        "dagrun.run.revisions": 1,
        "dagrun.run.usage.tokens": 0,
    }
    assert [event.name for event in run.events] == ["dagrun.spliced"]
    first, second = traced.of_step("moody")
    assert _facts(first)["dagrun.step.recovery"] == "retry"
    assert _facts(second)["dagrun.step.wait.backoff_ms"] > 0
    varying = {"dagrun.step.wait.backoff_ms": 0, "gen_ai.tool.call.id": "", "dagrun.revision": 0}  # by the delay
    assert _facts(second) | varying == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "moody",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "",
        "dagrun.step.id": "moody",
        "dagrun.step.attempt": 2,
        "dagrun.step.effect": "read",
        "dagrun.revision": 0,
        "dagrun.step.wait.backoff_ms": 0,
        "dagrun.step.wait.slot_ms": 0.0,
        "dagrun.step.state": "succeeded",
        "dagrun.step.recovery": "proceed",
    }


@pytest.mark.anyio
async def test_waits_for_slots_and_for_people_are_told_apart() -> None:
    async def agrees(_: dagrun.Question) -> bool:
        await anyio.sleep(3)
        return True

    pay = scripted("pay", 1, effect="effectful", needs_approval=True)
    steps = [Step(id=f"s{n}", tool="nap", args={"seconds": 2.0}) for n in range(2)]
    traced = Traced()
    plan = Plan(steps=[*steps, Step(id="pay", tool="pay", depends_on=["s0", "s1"])])
    await dagrun.run(plan, tools=toolset(pay), policy=Policy(max_running=1), approver=agrees, tracing=traced.tracing())
    waits = sorted(_facts(span)["dagrun.step.wait.slot_ms"] for step in ("s0", "s1") for span in traced.of_step(step))

    assert waits == pytest.approx([0, 2_000])
    assert _facts(traced.of_step("pay")[0])["dagrun.step.wait.person_ms"] == pytest.approx(3_000)
    assert [event.name for event in traced.one("invoke_workflow dagrun").events] == [
        "dagrun.question.asked",
        "dagrun.question.answered",
    ]


class Thinks:
    """A planner that thinks for three seconds, and leaves the plan as it is."""

    async def revise(self, brief: dagrun.Brief) -> dagrun.Patch:
        await anyio.sleep(3)
        return dagrun.Patch(edits=[], reason="it is fine")


class Drafts:
    """A planner that writes a plan step by step, one each second: a step without an effect, and one with."""

    async def revise(self, brief: dagrun.Brief) -> AsyncIterator[dagrun.Add]:
        yield dagrun.Add(step=Step(id="look", tool="nap", args={"seconds": 0.5}))
        yield dagrun.Add(step=Step(id="write", tool="put", args={}, depends_on=["look"]))
        await anyio.sleep(4)
        yield dagrun.Add(step=Step(id="last", tool="nap", args={"seconds": 0.5}))


@pytest.mark.anyio
async def test_waits_for_a_planner_are_none_for_a_slot() -> None:
    """Dependents of a surprise wait until the planner has looked at it; what comes after them waits for them alone."""

    @dagrun.tool(effect="read")
    async def odd(context: dagrun.ToolContext = dagrun.PROVIDED) -> int:
        """Surprise everybody."""
        context.surprise("ten times as many")
        return 7

    steps = [
        Step(id="odd", tool="odd"),
        Step(id="after", tool="echo", args={"value": "${odd}"}),
        Step(id="later", tool="echo", args={"value": "${after}"}),
        Step(id="beside", tool="nap", args={"seconds": 1.0}),
    ]
    traced = Traced()
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    tracing = traced.tracing(meter_provider=meters)
    await dagrun.run(Plan(steps=steps), tools=toolset(odd), planner=Thinks(), tracing=tracing)
    waits = {step: _waits(traced.of_step(step)[0]) for step in ("odd", "after", "later", "beside")}
    data: Any = reader.get_metrics_data()
    points = next(m for m in data.resource_metrics[0].scope_metrics[0].metrics if m.name == "dagrun.step.wait").data
    by_reason = {point.attributes["dagrun.step.wait.reason"]: point.sum for point in points.data_points}

    assert waits["after"] == {"planner": pytest.approx(3_000), "slot": 0}
    assert waits["odd"] == waits["later"] == waits["beside"] == {"slot": 0}
    assert by_reason == {"planner": pytest.approx(3), "slot": 0}
    meters.shutdown()


@pytest.mark.anyio
async def test_steps_with_an_effect_wait_for_the_whole_plan() -> None:
    """Those without one start as soon as they are written."""
    traced = Traced()
    put = scripted("put", 1, effect="idempotent")
    result = await dagrun.run(goal="g", tools=toolset(put), planner=Drafts(), tracing=traced.tracing())

    assert result.status == "succeeded", result.reason
    assert _waits(traced.of_step("write")[0]) == {"planner": pytest.approx(3_500), "slot": 0}
    assert _waits(traced.of_step("look")[0]) == _waits(traced.of_step("last")[0]) == {"slot": 0}


@pytest.mark.anyio
async def test_a_step_that_cannot_run_ends_its_run_in_error() -> None:
    traced = Traced()
    result = await dagrun.run(
        Plan(steps=[Step(id="bad", tool="fail", retry=ONCE)]), tools=toolset(), tracing=traced.tracing()
    )
    run = traced.one("invoke_workflow dagrun")

    assert result.status == "failed"
    assert (run.status.status_code.name, _facts(run)["error.type"]) == ("ERROR", "failed")


@pytest.mark.anyio
async def test_a_cancelled_run_leaves_no_span_open() -> None:
    traced = Traced()
    plan = Plan(steps=[Step(id="long", tool="nap", args={"seconds": 60.0})])

    async def leaves() -> None:
        async with dagrun.start(plan, tools=toolset(), tracing=traced.tracing()):
            await anyio.sleep(1)
            raise RuntimeError("leave")

    with pytest.raises(RuntimeError, match="leave"):
        await leaves()

    assert {span.name for span in traced.spans} == {"invoke_workflow dagrun", "execute_tool nap"}
    assert _facts(traced.one("invoke_workflow dagrun"))["dagrun.run.status"] == "cancelled"


@pytest.mark.anyio
async def test_a_second_call_is_a_child_of_the_first() -> None:
    """A slow call gets company, and the trace shows both."""
    calls: list[int] = []

    async def sometimes(n: int) -> int:
        calls.append(n)
        await anyio.sleep(100 if n == 99 and calls.count(99) == 1 else 1)
        return n

    tool = dagrun.tool(effect="pure")(sometimes)
    steps = [Step(id=f"s{n}", tool="sometimes", args={"n": n}) for n in range(30)]
    slow = Step(id="slow", tool="sometimes", args={"n": 99}, depends_on=[step.id for step in steps])
    traced = Traced()
    policy = Policy(hedge=dagrun.HedgeRule(min_calls=20, max_share=1.0))
    result = await dagrun.run(Plan(steps=[*steps, slow]), tools=[tool], policy=policy, tracing=traced.tracing())
    hedges = [span for span in traced.spans if "dagrun.hedge" in _facts(span)]

    assert result.status == "succeeded"
    assert len(hedges) == 1
    (first,) = [span for span in traced.of_step("slow") if span is not hedges[0]]
    assert _is_below(hedges[0], first)
    assert _facts(hedges[0])["dagrun.step.state"] == "succeeded"


# T2, T3: nesting ------------------------------------------------------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.anyio
@pytest.mark.costly
async def test_spans_of_tools_are_below_their_attempts() -> None:
    """In a coroutine, its task group, a worker thread and a worker process."""
    traced = Traced()
    tracer = traced.provider.get_tracer("tool")

    async def in_loop() -> None:
        async def part() -> None:
            with tracer.start_as_current_span("in task"):
                await anyio.sleep(0)

        with tracer.start_as_current_span("in loop"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(part)

    def in_thread() -> None:
        with tracer.start_as_current_span("in thread"):
            pass

    tools = [dagrun.tool(effect="pure")(in_loop), dagrun.tool(effect="pure")(in_thread), traced_tools.span_of_process]
    plan = Plan(steps=[Step(id=tool.name, tool=tool.name) for tool in tools])
    result = await dagrun.run(plan, tools=tools, tracing=traced.tracing())

    assert result.status == "succeeded", result.reason
    assert _is_below(traced.one("in loop"), traced.one("execute_tool in_loop"))
    assert _is_below(traced.one("in task"), traced.one("in loop"))
    assert _is_below(traced.one("in thread"), traced.one("execute_tool in_thread"))
    process = traced.one("execute_tool span_of_process").context
    expected = [f"{process.trace_id:032x}", f"{process.span_id:016x}"]
    assert result.steps["span_of_process"].output == expected
    assert otel_context.get_current() == otel_context.Context()  # nothing is left behind


@pytest.mark.anyio
async def test_a_run_is_below_the_span_of_its_caller_and_a_host_executor_gets_headers() -> None:
    traced = Traced()
    seen: list[Any] = []

    class Elsewhere:
        async def call(self, call: dagrun.extend.ToolCall) -> object:
            seen.append(dict(call.headers or {}))
            return 1

        async def aclose(self) -> None:
            pass

    plan = Plan(
        steps=[
            Step(id="a", tool="echo", args={"value": 1}, executor="far"),
            Step(id="b", tool="nap", args={"seconds": 0.0}),
        ]
    )
    with traced.provider.get_tracer("host").start_as_current_span("request"):
        await dagrun.run(plan, tools=toolset(), executors={"far": Elsewhere()}, tracing=traced.tracing())
    attempt = traced.one("execute_tool echo").context

    assert _is_below(traced.one("invoke_workflow dagrun"), traced.one("request"))
    assert seen == [{"traceparent": f"00-{attempt.trace_id:032x}-{attempt.span_id:016x}-{attempt.trace_flags:02x}"}]


class _Quiet(BaseHTTPRequestHandler):
    bodies: list[bytes]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))  # type: ignore[attr-defined]
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def _listening() -> Iterator[tuple[str, list[bytes]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Quiet)
    server.daemon_threads = False
    bodies: list[bytes] = []
    server.bodies = bodies  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.real_time
def test_calls_of_an_instrumented_http_client_nest() -> None:
    traced = Traced()
    HTTPXClientInstrumentor().instrument(tracer_provider=traced.provider)
    try:
        with _listening() as (address, _):

            @dagrun.tool(effect="read")
            async def fetch(url: str) -> int:
                async with httpx.AsyncClient() as client:
                    return (await client.get(url)).status_code

            result = dagrun.run_sync(dagrun.plan(fetch.step(address)), tracing=traced.tracing())
    finally:
        HTTPXClientInstrumentor().uninstrument()

    assert result.output == 200
    assert _is_below(traced.one("GET"), traced.one("execute_tool fetch"))


# T4: no content -------------------------------------------------------------------------------------------------------


@dagrun.tool(effect="pure", name="tells")
async def tells(value: str) -> dict[str, str]:
    """Return what it got, and a secret."""
    return {"value": value, "said": SECRET, "password": "hunter2"}


@dagrun.tool(effect="pure", name="breaks")
async def breaks(value: str) -> str:
    raise ValueError(f"canary-message {value} {SECRET}")


CANARY: Final = Plan(
    goal="canary-goal",
    steps=[
        Step(id="tells", tool="tells", args={"value": "canary-argument"}),
        Step(id="breaks", tool="breaks", args={"value": "${tells.value}"}, retry=ONCE),
    ],
)


def _text(spans: Sequence[ReadableSpan]) -> str:
    return "\n".join(span.to_json() for span in spans)


@pytest.mark.anyio
async def test_spans_hold_no_content() -> None:
    """Traces go to other people's servers: no goal, argument, output, message or secret is in them by default."""
    traced = Traced()
    await dagrun.run(
        CANARY, tools=[tells, breaks], secrets=Secrets({"key": SECRET}), tracing=traced.tracing(), planner=Mends()
    )
    shown = _text(traced.spans)

    assert len(traced.spans) >= 4
    assert not any(part in shown for part in ("canary", SECRET, "hunter2"))
    assert all("exception" not in event.name for span in traced.spans for event in span.events)


@pytest.mark.anyio
async def test_captured_content_is_redacted_and_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    traced = Traced()
    long = Plan(steps=[*CANARY.steps, Step(id="long", tool="echo", args={"value": "x" * 20_000})])
    tools = [tells, breaks, *toolset()]
    await dagrun.run(long, tools=tools, secrets=Secrets({"key": SECRET}), tracing=traced.tracing())
    told, broken, cut = (traced.one(f"execute_tool {name}") for name in ("tells", "breaks", "echo"))

    assert json.loads(_facts(told)["gen_ai.tool.call.arguments"]) == {"value": "canary-argument"}
    assert "canary-argument" in _facts(told)["gen_ai.tool.call.result"]
    assert "canary-message" in (broken.status.description or "")
    assert not any(part in _text(traced.spans) for part in (SECRET, "hunter2"))
    assert max(len(str(value)) for value in _facts(cut).values()) == 8 << 10


# T6: resumed and retried runs -----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_resumed_and_retried_runs_link_to_the_last_trace() -> None:
    """So a trace leads to the one before it, and that to the one before; one that was not traced is passed over."""
    journal, traced = dagrun.MemoryJournal(), Traced()
    bad = scripted("bad", ValueError("no"), ValueError("no"), 1)
    plan = Plan(
        steps=[
            Step(id="slow", tool="nap", args={"seconds": 9.0}),
            Step(id="bad", tool="bad", depends_on=["slow"], retry=ONCE),
        ]
    )
    untraced: dict[str, Any] = {"tools": toolset(bad), "journal": journal}
    options = {**untraced, "tracing": traced.tracing()}
    async with dagrun.start(plan, **options, run_id="first", labels={"mine": 1}) as run:
        await anyio.sleep(1)
        run.suspend()
        await run.result()
    for given in (options, untraced):
        async with dagrun.resume("first", **given) as run:
            await anyio.sleep(1)
            run.suspend()
            await run.result()
    async with dagrun.resume("first", **options) as run:
        assert (await run.result()).status == "failed"
    async with dagrun.retry("first", **options, new_id="again") as run:
        await run.result()
    first, second, third, retried = spans = traced.named("invoke_workflow dagrun")

    assert len({span.context.trace_id for span in spans}) == 4
    for span, before, relation in ((second, first, "resumes"), (third, second, "resumes"), (retried, third, "retries")):
        (link,) = span.links
        assert (link.context.span_id, link.attributes) == (before.context.span_id, {"dagrun.link": relation})
    assert (await dagrun.replay("first", journal=journal)).opening.labels["mine"] == 1


# T7, T8: no cost, no harm ---------------------------------------------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.costly
def test_a_run_without_traces_loads_nothing_of_them() -> None:
    code = (
        "import sys, dagrun\n"
        "@dagrun.tool(effect='pure')\n"
        "async def one() -> int: return 1\n"
        "assert dagrun.run_sync(dagrun.plan(one.step())).output == 1\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'dagrun.observe'))])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert ended.stdout == "[]\n"


@pytest.mark.anyio
async def test_a_run_without_traces_makes_no_call_for_them() -> None:
    """An attempt looks whether there is a tracer, and that is all. Calls do not depend on the machine, as time does."""
    steps = [Step(id=f"s{n}", tool="nap", args={"seconds": 0.0}) for n in range(50)]
    plan = dagrun.check(Plan(steps=steps), tools=toolset())
    for tracing in (None, Traced().tracing()):
        await dagrun.run(plan, tracing=tracing)  # what is imported and cached is not counted
    calls = {"off": Counter[str](), "on": Counter[str]()}
    for name, tracing in (("off", None), ("on", Traced().tracing())):
        with _counted(calls[name]):
            await dagrun.run(plan, tracing=tracing)
    tracing_alone = {call for call in calls["on"] if call not in calls["off"]}

    assert [call for call in calls["off"] if "tracing" in call or "_traced" in call or "opentelemetry" in call] == []
    assert calls["off"]["kernel/runtime/steps/attempt.py perform"] >= 50
    assert {"kernel/runtime/steps/attempt.py _traced", "observe/tracing.py begin_attempt"} <= tracing_alone


@contextmanager
def _counted(calls: Counter[str]) -> Iterator[None]:
    """Count the calls of functions of dagrun and of OpenTelemetry, by file and name."""

    def note(frame: Any, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and ("/dagrun/" in file or "opentelemetry" in file):
            calls[f"{file.rpartition('/dagrun/')[2]} {frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


class BrokenExporter(SpanExporter):
    """Raises at each export."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("no collector")


class BrokenProcessor(SpanProcessor):
    """Raises at the start or the end of each span."""

    def __init__(self, *moments: str) -> None:
        self._moments = moments

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if "start" in self._moments:
            raise OSError("broken at the start")

    def on_end(self, span: ReadableSpan) -> None:
        if "end" in self._moments:
            raise OSError("broken at the end")


BROKEN: Final = [
    SimpleSpanProcessor(BrokenExporter()),
    BrokenProcessor("start"),
    BrokenProcessor("end"),
    BrokenProcessor("start", "end"),
]


@pytest.mark.parametrize("processor", BROKEN, ids=["exporter", "start", "end", "both"])
@pytest.mark.anyio
async def test_a_broken_exporter_or_processor_hurts_no_run(
    processor: SpanProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(processor)
    moody = scripted("moody", ConnectionError("gone"), 7)
    with caplog.at_level(logging.ERROR):
        result = await dagrun.run(
            RICH, tools=toolset(moody), planner=Mends(), tracing=dagrun.Tracing(tracer_provider=provider)
        )

    assert result.output == [[1, 2], 7, 3]
    assert len([record for record in caplog.records if record.name == "dagrun.observers"]) <= 2


@pytest.mark.anyio
async def test_a_run_that_is_not_sampled_has_no_spans_and_no_label() -> None:
    traced, journal = Traced(sampler=ALWAYS_OFF), dagrun.MemoryJournal()
    result = await dagrun.run(
        RICH, tools=toolset(scripted("moody", 7)), planner=Mends(), tracing=traced.tracing(), journal=journal
    )

    assert result.status == "succeeded"
    assert traced.spans == ()


# Models and metrics ---------------------------------------------------------------------------------------------------


@pytest.mark.real_time
def test_calls_of_models_are_spans_below_their_planner_and_their_tool() -> None:
    traced = Traced()
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    answer = json.dumps(
        {"steps": [{"id": "a", "tool": "ask", "args": {"prompt": "hi"}}], "output": None, "confidence": 1}
    )
    with FakeModelServer([answer, "Hello."]) as server:
        model = dagrun.OpenAIModel("m-1", base_url=server.base_url, api_key="k")
        ask = dagrun.llm_tool(model, name="ask")
        tracing = traced.tracing(meter_provider=meters)
        result = dagrun.run_sync(goal="greet", tools=[ask], planner=dagrun.ModelPlanner(model), tracing=tracing)
        port = int(server.base_url.rsplit(":", 1)[1].split("/")[0])
    # By their start: the step may end before the planner has written its last word.
    drafted, asked = sorted(traced.named("chat m-1"), key=lambda span: span.start_time or 0)

    assert result.status == "succeeded", result.reason
    assert _is_below(drafted, next(span for span in traced.spans if span.name.startswith("plan ")))
    assert _is_below(asked, traced.one("execute_tool ask"))
    facts = _facts(asked)
    assert (facts["server.address"], facts["server.port"]) == ("127.0.0.1", port)
    assert (facts["gen_ai.provider.name"], facts["gen_ai.request.model"]) == ("openai", "m-1")
    assert facts["gen_ai.response.finish_reasons"] == ("stop",)
    assert facts["gen_ai.usage.output_tokens"] > 0
    assert "Hello" not in _text(traced.spans)
    meters.shutdown()


@pytest.mark.anyio
async def test_metrics_count_what_ended_without_ids() -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    moody = scripted("moody", ConnectionError("gone"), 7)
    tracing = Traced().tracing(meter_provider=meters)
    await dagrun.run(RICH, tools=toolset(moody), planner=Mends(), tracing=tracing)
    data = reader.get_metrics_data()
    assert data is not None
    found = {m.name: m.data.data_points for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    steps = {(point.attributes or {})["dagrun.step.state"]: point.value for point in found["dagrun.steps"]}  # type: ignore[union-attr]
    tools = {(p.attributes or {}).get("gen_ai.tool.name"): p.count for p in found["gen_ai.execute_tool.duration"]}  # type: ignore[union-attr]
    names = {name for points in found.values() for point in points for name in point.attributes or {}}

    assert steps["succeeded"] >= 6
    assert tools["nap"] == 4
    assert [point.value for point in found["dagrun.replans"]] == [1]  # type: ignore[union-attr]
    assert found.keys() >= {"dagrun.run.duration", "dagrun.step.wait", "gen_ai.invoke_workflow.duration"}
    assert not names & {semconv.RUN_ID, semconv.STEP_ID, semconv.QUESTION_ID, semconv.CALL_ID}
    meters.shutdown()


# T9: a collector ------------------------------------------------------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.costly
def test_the_command_sends_its_trace_to_a_collector(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import dagrun\n@dagrun.tool(effect='pure')\nasync def add(a: int, b: int) -> int:\n    return a + b\n"
    )
    steps = [
        {"id": "one", "tool": "add", "args": {"a": 1, "b": 2}},
        {"id": "two", "tool": "add", "args": {"a": "${one}", "b": 2}},
    ]
    (tmp_path / "plan.json").write_text(json.dumps({"steps": steps}))
    with _listening() as (address, bodies):
        command = [
            sys.executable,
            "-m",
            "dagrun",
            "run",
            "plan.json",
            "--tools",
            "./mine.py",
            "--no-journal",
            "--trace",
        ]
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "5\n"
    found = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    resources = [resource for request in found for resource in request.resource_spans]
    spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]

    assert sorted(span.name for span in spans) == ["execute_tool add", "execute_tool add", "invoke_workflow dagrun"]
    assert len({span.trace_id for span in spans}) == 1
    names = {a.key: a.value.string_value for resource in resources for a in resource.resource.attributes}
    assert names["service.name"] == "dagrun"


# T10: names -----------------------------------------------------------------------------------------------------------

NAMES: Final = Path(__file__).with_name("semconv.txt")


def test_the_names_are_those_that_were_published() -> None:
    """Dashboards use them: a change needs a line in the changelog, and one in the list beside this test."""
    names = {name: value for name, value in vars(semconv).items() if name.isupper()}

    assert [f"{name} {value}" for name, value in names.items()] == NAMES.read_text().splitlines()


def test_wrong_use_is_refused() -> None:
    with pytest.raises(dagrun.errors.ContractError, match="workflow is a name"):
        dagrun.Tracing(workflow="")
    assert trace.get_current_span().get_span_context().is_valid is False
    assert repr(dagrun.Tracing(workflow="w", capture_content=True)) == "<Tracing w, with content>"
