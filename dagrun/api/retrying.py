"""Retry: a new run of the failed part, which takes over outputs and idempotency keys of the first run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic import ValidationError

from dagrun.api.options import RetryOptions, must_fit, must_make_sense, with_defaults
from dagrun.api.record_opening import Descent, last_opening, present_of, sealer_of, traceparent_of, whole_events
from dagrun.api.replaying import Replayed, replayed
from dagrun.errors import CannotResume, JournalFailed
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.checks.waves import in_waves
from dagrun.kernel.graph.fold import doubtful
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.mapped_steps import EACH, needed, source_of
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.patches.guards import guards_to_keep
from dagrun.kernel.model.contracts.deps import deps_from
from dagrun.kernel.model.event import DraftEnded, Spliced
from dagrun.kernel.model.executor import Executor
from dagrun.kernel.model.outcome import State, Status
from dagrun.kernel.model.patch import Add, Replace, Rewire
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.secrets import secrets_from
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Artifact, Stored, Unavailable, decode
from dagrun.kernel.runtime.artifacts import ArtifactFolder
from dagrun.kernel.runtime.record.record import TAKEN_OVER, Record
from dagrun.kernel.runtime.run_options import RunOptions


def files_named(value: Stored) -> frozenset[str]:
    """Return the names of the files of the artifacts in the value of a step, at any depth."""
    if isinstance(value, Unavailable) or (isinstance(value, bytes) and b'"sha256"' not in value):
        return frozenset()
    return frozenset(_found(decode(value)))


def _found(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from _found(part)
    elif isinstance(value, dict):
        if value.keys() == Artifact.model_fields.keys() and (artifact := _artifact(value)) is not None:
            yield artifact.sha256
        for part in value.values():
            yield from _found(part)


def _artifact(value: dict[str, Any]) -> Artifact | None:
    try:
        return Artifact.model_validate(value)
    except ValidationError:
        return None


def are_there(names: frozenset[str], source: Path | None) -> bool:
    """Whether all files are in the folder *source*."""
    return not names or (source is not None and all((source / name).is_file() for name in names))


def bring(names: frozenset[str], source: Path, target: ArtifactFolder) -> None:
    """Put files into the folder of the new run: as hard links, or else as copies.

    Raises:
        OSError: A file cannot be read or written.
    """
    folder = target.folder
    for name in sorted(names):
        if (folder / name).exists() or not (source / name).is_file():
            continue
        try:
            os.link(source / name, folder / name, follow_symlinks=False)
        except OSError:  # on another disk, for example
            target.save(source / name)


@dataclass(slots=True, kw_only=True)
class TakenOver:
    """The parts that a new run takes over from the run that it retries.

    Attributes:
        plan: The checked plan, with the steps that are done and those that are not.
        options: The options of the new run.
        descent: The runs that the new run comes from.
        values: The outputs of the steps that succeeded, by step id.
        files: The names of the files that belong to these outputs.
        source: The folder of these files; `None` if there is none.
        traceparent: Names the trace of the run that is retried; empty if it had none.
    """

    plan: CheckedPlan
    options: RunOptions
    descent: Descent
    values: Mapping[str, Stored]
    files: frozenset[str] = frozenset()
    source: Path | None = None
    traceparent: str = ""

    async def bring(self, target: ArtifactFolder) -> None:
        """Put the files that belong to the outputs into the folder of the new run.

        Raises:
            JournalFailed: A file cannot be read or written.
        """
        if not self.files or self.source is None:
            return
        try:
            await anyio.to_thread.run_sync(bring, self.files, self.source, target)
        except OSError as error:
            raise JournalFailed(f"cannot take over the files in {self.source}: {error.strerror}") from error

    def settle(self, record: Record) -> None:
        """Settle, at the beginning of the new run, the steps that succeeded in the first one."""
        for id_, value in self.values.items():
            node = record.graph.nodes[id_]
            if not node.state.is_settled:
                record.settle(node, State.SUCCEEDED, TAKEN_OVER.format(self.descent.parent), value=value)
        self.values = {}  # from now on the graph has them, for as long as they are needed


async def failed_part(
    run_id: str, options: RetryOptions, executors: Mapping[str, Executor], policy: Policy | None
) -> TakenOver:
    """Return the parts that a new run takes over from a run that has ended.

    Args:
        run_id: The run that has ended.
        options: The options of `dagrun.retry`.
        executors: The executors of the host, by name.
        policy: The limits, if the options name none; `None` for the recorded ones.

    Raises:
        JournalError: The run cannot be read, has not ended, has succeeded, has an effect in doubt, or a retry would
            repeat an effect.
    """
    must_fit(options, RetryOptions, "retry")
    lines = await options["journal"].read(run_id)
    past = replayed(run_id, whole_events(run_id, lines, sealer_of(options, run_id), "retried"))
    graph = past.graph
    if graph.status is None or not past.has_ended:
        raise CannotResume(f"run {run_id} has not ended; resume it")
    if graph.status is Status.SUCCEEDED:
        raise CannotResume(f"run {run_id} has succeeded; there is nothing to do again")
    if unknown := doubtful(graph):
        named = ", ".join(node.id for node in unknown[:10])
        raise CannotResume(f"nobody knows whether these took effect: {named}; resume run {run_id} to settle that first")
    if known := [node.id for node in graph.nodes.values() if _is_known_effect(node)]:
        named = ", ".join(known[:10])
        raise CannotResume(f"a person knows that these took effect: {named}; run the others as a new plan")
    return _taken_over(run_id, past, options, executors, policy)


def _taken_over(
    run_id: str, past: Replayed, options: RetryOptions, executors: Mapping[str, Executor], policy: Policy | None
) -> TakenOver:
    recorded = last_opening(past.events)
    now = present_of(recorded, options, executors, policy, f"run {run_id} cannot be retried")
    inputs = decode(recorded.inputs) or {}
    secrets = secrets_from(options.get("secrets"))
    checked = check_plan(
        past.history.current,
        now.toolbox,
        now.policy,
        inputs=inputs,
        executors=tuple(executors),
        secrets=secrets,
        deps=deps_from(options.get("deps")),
        is_hooked=options.get("redact") is not None,
    )
    chosen = with_defaults({**options, **_OF_THE_PLAN, "inputs": inputs, "run_id": options.get("new_id")})
    must_make_sense(chosen)
    nodes = past.graph.nodes
    source = options.get("parent_artifacts") or options["journal"].artifacts(run_id)
    values = {id_: nodes[id_].value for id_ in checked.steps if _is_done(nodes[id_], nodes[id_].value, source)}
    _open_incomplete(past.graph, values)
    elements = _elements_done(past.graph, values, source)
    return TakenOver(
        plan=in_waves(checked) if recorded.in_waves else checked,
        options=chosen,
        descent=Descent(
            parent=run_id,
            root=recorded.root,
            roots=_roots_of([nodes[id_] for id_ in checked.steps]),
            guards={**_calls_of_planner(past, recorded.policy, now.policy), **guards_to_keep(past.graph)},
            guarded_tools=past.graph.guarded_tools,
            agreed=tuple(node.id for node in past.graph.planned() if node.extra is not None and node.extra.is_agreed),
            written=_written_by_others(past.graph),
            elements=elements,
        ),
        values=values,
        files=frozenset(name for value in (*values.values(), *elements.values()) for name in files_named(value)),
        source=source,
        traceparent=traceparent_of(past.events),
    )


def _written_by_others(graph: LiveGraph) -> dict[str, tuple[str, ...]]:
    if graph.plan.policy.flow is None:
        return {}
    from dagrun.kernel.graph.patches.flow_after import written_by_others  # here: few policies have a trust boundary

    return written_by_others(graph)


def _calls_of_planner(past: Replayed, before: Policy, policy: Policy) -> dict[str, str]:
    """Return the calls that a person must agree to, because the plan is frozen now, and was not when they came."""
    if before.freeze_plan or not policy.freeze_plan:
        return {}
    from dagrun.kernel.graph.patches.plan_freeze import calls_of_planner  # here: few policies freeze the plan

    brought, is_planned = set[str](), bool(past.opening.plan.steps)
    for event in past.events:
        is_planned = is_planned or isinstance(event, DraftEnded)
        if is_planned and isinstance(event, Spliced) and event.origin == "planner":
            brought.update(edit.step.id for edit in event.edits if isinstance(edit, Add | Replace))
            brought.update(edit.id for edit in event.edits if isinstance(edit, Rewire))
    return calls_of_planner(past.graph, brought)


# A checked plan has these of its own, so they are no options of the run.
_OF_THE_PLAN: Final = {"tools": None, "policy": None, "secrets": None, "deps": None}


def _roots_of(steps: Iterable[Node]) -> dict[str, tuple[str, int]]:
    """Return the roots of idempotency keys, for steps and elements whose key is not made from their own id."""
    roots = {}
    for node in steps:
        if _has_roots(node):
            roots[node.id] = node.root, node.generation
        for child in node.children or ():
            if child.extra is not None and _has_roots(child):  # by its index: a substitute has an id of its own
                roots[f"{node.id}[{child.index}]"] = child.root, child.generation
    return roots


def _is_known_effect(node: Node) -> bool:
    """Whether a step is known to have taken effect, but has no output, so that a retry would call it again."""
    is_open = node.state is not State.SUCCEEDED and (node.parent is None or node.parent.state is not State.SUCCEEDED)
    is_known = node.extra is not None and node.extra.applied > 0
    return is_known and is_open and not node.is_gone and not node.tool.effect.may_repeat


def _has_roots(node: Node) -> bool:
    return node.root != node.id or node.generation > 0


def _is_done(node: Node, value: Stored, source: Path | None) -> bool:
    """Whether a step or an element is not called again: its output is there, or its effect must not take place twice.

    What reads an output whose file is gone will report it.
    """
    if node.state is not State.SUCCEEDED:
        return False
    if isinstance(value, Unavailable):
        return not all(tool.effect.may_repeat for tool in _called(node))
    return are_there(files_named(value), source) or not all(tool.effect.is_free for tool in _called(node))


def _called(node: Node) -> Iterator[AnyTool]:
    """Yield the last tools that a step and its elements have called: their fallback, if they had to use it."""
    yield node.tool
    yield from (child.tool for child in node.children or ())


# The elements of a for_each of which not all is done ------------------------------------------------------------------


def _open_incomplete(graph: LiveGraph, done: dict[str, Stored]) -> None:
    """Take out of *done* each for_each that went on without failed elements, with the steps that have read its output.

    It stays if one of these has an effect, which would be repeated with another list.
    """
    for fan in graph.planned():
        if fan.id not in done or not fan.has_failed_elements:
            continue
        readers = {fan.id: fan}
        for id_ in (behind := [fan.id]):
            found = [node for node in graph.after(readers[id_]) if id_ in node.plan.value_sources]
            behind += [node.id for node in found if node.id not in readers]
            readers.update((node.id, node) for node in found)
        del readers[fan.id]
        if not any(_has_applied(node, done) for node in readers.values()):
            for id_ in behind:
                done.pop(id_, None)


def _has_applied(node: Node, done: Mapping[str, Stored]) -> bool:
    is_effect = not all(tool.effect.is_free for tool in _called(node))
    return is_effect and (node.id in done or node.frozen_call is not None)


def _elements_done(graph: LiveGraph, done: Mapping[str, Stored], source: Path | None) -> dict[str, Stored]:
    """Return the outputs of the elements that are done, by their ids, for each for_each that is not done itself.

    Raises:
        CannotResume: Elements took effect, and what their list is made of has to run again.
    """
    elements, twice = dict[str, Stored](), list[str]()
    for fan in graph.planned():
        if fan.id in done or fan.plan.items is None:
            continue
        found = {id_: value for id_, value in graph.elements.items() if id_.startswith(f"{fan.id}[")}
        for child in fan.children or ():
            if _is_done(child, child.value, source) and _has_its_source(child):
                found[f"{fan.id}[{child.index}]"] = child.value  # by its index: a substitute has an id of its own
        if _has_its_list(graph, fan, done):
            elements.update(found)
        elif not all(tool.effect.may_repeat for tool in _called(fan)):
            twice += found
    if twice:
        named = ", ".join(twice[:10])
        raise CannotResume(
            f"these elements took effect and would be called again, as their list must be computed again: {named}; "
            "run the others as a new plan"
        )
    return elements


def _has_its_list(graph: LiveGraph, fan: Node, done: Mapping[str, Stored]) -> bool:
    """Whether a for_each will have an unchanged list: its sources are taken over, or are other such for_each steps."""
    for id_ in fan.plan.items.sources if fan.plan.items is not None else ():
        before = graph.nodes.get(id_)  # none for the inputs of the run
        if before is None or id_ in done:
            continue
        follows = before.is_expandable and needed(fan.plan, before) is EACH
        if not follows or not _has_its_list(graph, before, done):
            return False
    return True


def _has_its_source(element: Node) -> bool:
    """Whether an element has an unchanged item: not if an element that it follows, directly or not, is called again."""
    source = source_of(element)
    if source is None or not element.tool.effect.is_free:
        return True
    return source.state is State.SUCCEEDED and _has_its_source(source)
